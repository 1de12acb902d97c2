//! `fanlight status`: the state of a running gateway and its servers.

use std::time::Duration;

use fanlight_protocol::epoch;
use fanlight_protocol::visible::plain;
use itertools::Itertools as _;
use serde_json::Value;

use super::Admin;
use super::admin::{after_colon, elements, plain_text, text};
use super::columns::{self, Column};
use super::style::{Style, duration};
use crate::cli::{CommonArgs, StatusArgs};
use crate::{Failure, Result, counted, out, say};

/// Prints the overview; fails if the gateway is not ready.
pub async fn status(args: &StatusArgs, common: &CommonArgs) -> Result {
    let admin = Admin::find(&args.admin, common).await?;
    let text = admin.get(&["overview"], &[]).await?;
    let overview = admin.json(&text)?;
    if !out::is_json(args.json, &text) {
        show(&overview, &admin, Style::for_stdout());
    }
    if overview["ready"] == true {
        Ok(())
    } else {
        Err(Failure::other(why_not_ready(&overview)))
    }
}

/// The reason why a gateway is not ready, as far as the states of its servers tell.
fn why_not_ready(overview: &Value) -> &'static str {
    let is_any = |wanted: &[&str]| {
        elements(overview, "backends").any(|backend| wanted.contains(&text(backend, "state")))
    };
    let can_serve = is_any(&["ready", "idle", "ejected"]);
    match (can_serve, is_any(&["connecting"])) {
        (_, true) => "not ready yet: servers are being connected",
        (true, false) => "not ready: the gateway is shutting down",
        (false, false) => "not ready: no server can be used",
    }
}

fn show(overview: &Value, admin: &Admin, style: Style) {
    let number = |key: &str| {
        let number = overview[key].as_u64().unwrap_or_default();
        usize::try_from(number).unwrap_or(usize::MAX)
    };
    let uptime = overview["uptimeSeconds"].as_f64().unwrap_or_default();
    say!(
        "{} {} at {}, up {}",
        style.bold("Fanlight"),
        plain_text(overview, "version", 40),
        plain_text(overview, "endpoint", 200),
        rough(uptime)
    );
    say!(
        "{}, {}, {} kept; admin at {}",
        counted(number("sessions"), "session"),
        counted(number("suspendedCalls"), "suspended call"),
        counted(number("traces"), "trace"),
        admin.display_name()
    );
    say!("");
    if let Some(replicas) = object(overview, "replicas") {
        say!("{}\n", replicas_of(replicas, style));
    }
    let backends: Vec<&Value> = elements(overview, "backends").collect();
    let (table, below) = backends_in(&backends, style.table_width());
    say!("{}", paint(&table, style));
    if !below.is_empty() {
        say!("\n{}", below.join("\n"));
    }
    let starts = backends.iter().filter_map(|backend| start_of(backend));
    let failures = backends.iter().flat_map(|backend| failure_of(backend));
    let processes = backends.iter().filter_map(|backend| processes_of(backend));
    let endpoints = backends.iter().flat_map(|backend| endpoints_of(backend));
    let versions = backends.iter().flat_map(|backend| versions_of(backend));
    let more = starts
        .chain(failures)
        .chain(processes)
        .chain(endpoints)
        .chain(versions)
        .collect_vec();
    if !more.is_empty() {
        say!("\n{}", more.join("\n"));
    }
}

/// The replicas of this gateway, and the state of Valkey.
fn replicas_of(replicas: &Value, style: Style) -> String {
    let (own, valkey) = (text(replicas, "own"), &replicas["valkey"]);
    let since = for_long(valkey, "sinceMs");
    let state = match text(valkey, "trouble") {
        "" => format!("connected for {since}"),
        trouble => format!("unreachable for {since}: {}", plain(trouble, 200)),
    };
    let members: Vec<&Value> = elements(replicas, "members").collect();
    let id = |member: &&Value| match text(member, "id") {
        id if id == own => format!("{} (this one)", plain(id, 40)),
        id => plain(id, 40),
    };
    let up = |member: &&Value| {
        let is_ending = member["isEnding"] == true;
        format!(
            "{}{}",
            for_long(member, "sinceMs"),
            if is_ending { ", ending" } else { "" }
        )
    };
    let columns = [
        Column::whole("REPLICA", &members, id),
        Column::words("HOST", &members, |member| plain_text(member, "name", 60)),
        Column::whole("ADDRESS", &members, |member| {
            plain_text(member, "address", 60)
        }),
        Column::whole("VERSION", &members, |member| {
            plain_text(member, "version", 20)
        }),
        Column::whole("UP", &members, up),
    ];
    format!(
        "Valkey at {} {state}\n{}",
        plain_text(valkey, "url", 200),
        paint(&columns::render(&columns, style.table_width()), style)
    )
}

/// A table with a row for each server, and lines below it for errors that do not fit.
fn backends_in(backends: &[&Value], width: usize) -> (String, Vec<String>) {
    let mut columns = columns(backends);
    let mut below = Vec::new();
    if columns::width(&columns) > width {
        columns.pop();
        // Other failures get several lines of their own.
        let brief = backends
            .iter()
            .filter(|backend| failure_of(backend).is_empty());
        let errors = brief.map(|backend| (plain_text(backend, "name", 60), last_error(backend)));
        below.extend(
            errors
                .filter(|(_, error)| !error.is_empty())
                .map(|(name, error)| format!("{name}: {error}")),
        );
    }
    columns::narrow(&mut columns, &["TRANSPORT", "MEDIAN", "RESTARTS"], width);
    (columns::render(&columns, width), below)
}

fn columns(backends: &[&Value]) -> Vec<Column> {
    let number = |backend: &Value, key: &str| backend[key].as_u64().unwrap_or_default();
    let millis = |backend: &Value, key: &str| {
        let value = backend[key].as_f64();
        value.map_or_else(|| "-".to_owned(), |millis| duration((millis * 1e6) as u64))
    };
    let revision = |backend: &&Value| match (text(backend, "era"), text(backend, "revision")) {
        ("", "") => "-".to_owned(),
        (era, "") => plain(era, 20),
        (_, revision) => plain(revision, 20),
    };
    vec![
        Column::words("SERVER", backends, |it| plain_text(it, "name", 60)),
        Column::whole("STATE", backends, |it| plain_text(it, "state", 20)),
        Column::whole("REVISION", backends, revision),
        Column::whole("TRANSPORT", backends, |it| plain_text(it, "transport", 20)),
        Column::numbers("REQUESTS", backends, |it| {
            number(it, "requests").to_string()
        }),
        Column::numbers("ERRORS", backends, |it| number(it, "errors").to_string()),
        Column::numbers("MEDIAN", backends, |it| millis(it, "medianMs")),
        Column::numbers("P95", backends, |it| millis(it, "p95Ms")),
        Column::numbers("RESTARTS", backends, |it| {
            (number(it, "restarts") + number(it, "reconnects")).to_string()
        }),
        Column::whole("LAST ERROR", backends, |it| last_error(it)),
    ]
}

/// How long a server has been starting, and its latest output.
fn start_of(backend: &Value) -> Option<String> {
    let starting = object(backend, "starting")?;
    let seconds = starting["seconds"].as_f64().unwrap_or_default();
    Some(format!(
        "{} starting ({}){}",
        plain_text(backend, "name", 60),
        rough(seconds),
        after_colon(&plain_text(starting, "lastLine", 200))
    ))
}

/// The processes of a server with several, by their owners.
fn processes_of(backend: &Value) -> Option<String> {
    let processes = backend.get("processes")?.as_object()?;
    let count = |(_, count): (_, &Value)| count.as_u64().unwrap_or_default();
    let all: u64 = processes.iter().map(count).sum();
    let each = |(owner, count): (&String, &Value)| format!("{count} of {}", plain(owner, 200));
    let each = processes.iter().map(each).join(", ");
    let name = plain_text(backend, "name", 60);
    (all > 1).then(|| format!("{name} has {all} processes: {each}"))
}

/// A line for each endpoint of a server with several.
fn endpoints_of(backend: &Value) -> Vec<String> {
    let endpoints: Vec<&Value> = elements(backend, "endpoints").collect();
    let name = plain_text(backend, "name", 60);
    let line = |endpoint: &&Value| {
        let is_leaving = endpoint["leaving"] == true;
        let mut words = vec![plain_text(endpoint, "state", 20)];
        words.extend(is_leaving.then(|| "leaving".to_owned()));
        words.extend(
            endpoint["running"]
                .as_u64()
                .map(|running| format!("{running} running")),
        );
        let latency = endpoint["latencyMs"]
            .as_f64()
            .filter(|latency| *latency > 0.0);
        words.extend(latency.map(|millis| duration((millis * 1e6) as u64)));
        format!(
            "{name} endpoint {}: {}{}",
            plain_text(endpoint, "place", 200),
            words.join(", "),
            after_colon(&plain_text(endpoint, "error", 200))
        )
    };
    endpoints.iter().map(line).collect()
}

/// A line for each canary or mirror of a server.
fn versions_of(backend: &Value) -> Vec<String> {
    let name = plain_text(backend, "name", 60);
    let version = |key: &str| {
        let version = object(backend, key)?;
        let share = version["share"].as_f64().unwrap_or_default() * 100.0;
        let (server, state) = (
            plain_text(version, "server", 60),
            plain_text(version, "state", 20),
        );
        let counts = ["same", "different", "failed", "dropped"]
            .iter()
            .filter_map(|key| Some(format!(", {} {key}", version.get(*key)?.as_u64()?)))
            .collect::<String>();
        Some(format!(
            "{name} {key} {server}: {} % ({state}){counts}",
            (share * 100.0).round() / 100.0
        ))
    };
    ["canary", "mirror"]
        .into_iter()
        .filter_map(version)
        .collect()
}

/// The lines about the last attempt to connect to a server, if it failed.
fn failure_of(backend: &Value) -> Vec<String> {
    let Some(failure) = object(backend, "failure") else {
        return Vec::new();
    };
    let mut lines = vec![format!(
        "{} {}",
        plain_text(backend, "name", 60),
        plain_text(failure, "what", 400)
    )];
    for (key, note) in [("stderr", ""), ("stdout", "    (not a message)")] {
        let written = elements(failure, key).filter_map(Value::as_str);
        lines.extend(written.map(|line| format!("  {key}: {}{note}", plain(line, 200))));
    }
    let remedy = Some(plain_text(failure, "remedy", 600)).filter(|remedy| !remedy.is_empty());
    lines.extend(remedy.map(|remedy| format!("  help: {remedy}")));
    lines
}

/// The member with this name, if it is an object.
fn object<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|member| member.is_object())
}

/// The reason why the server is down, or else its last error.
fn last_error(backend: &Value) -> String {
    let what = backend
        .get("failure")
        .map(|failure| text(failure, "what"))
        .filter(|what| !what.is_empty());
    if let Some(error) = what.or(backend["error"].as_str()) {
        return plain(error, 200);
    }
    let Some(last) = object(backend, "lastError") else {
        return String::new();
    };
    format!(
        "{} {} ago",
        plain_text(last, "type", 60),
        for_long(last, "atMs")
    )
}

/// The time since the moment in this member, which is in milliseconds since 1970.
fn for_long(value: &Value, member: &str) -> String {
    let at = value[member].as_f64().unwrap_or_default();
    rough(
        epoch::now()
            .saturating_sub(Duration::from_secs_f64((at / 1e3).max(0.0)))
            .as_secs_f64(),
    )
}

/// Colours the states in a finished table. Colour codes within cells would count as width.
fn paint(table: &str, style: Style) -> String {
    let mut lines = table.lines();
    let heading = lines.next().map(|line| style.bold(line));
    let rows = lines.map(|line| {
        let painted = |state: &str, paint: fn(Style, &str) -> String| {
            let place = format!(" {state} ");
            line.contains(&place)
                .then(|| line.replacen(&place, &format!(" {} ", paint(style, state)), 1))
        };
        painted("ready", Style::good)
            .or_else(|| painted("down", Style::bad))
            .or_else(|| painted("ejected", Style::bad))
            .or_else(|| painted("failed", Style::bad))
            .or_else(|| painted("connecting", Style::warn))
            .unwrap_or_else(|| line.to_owned())
    });
    heading.into_iter().chain(rows).join("\n")
}

/// Formats a duration with its two largest units.
fn rough(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;

    #[test]
    fn rough_shows_two_units() {
        let shown: Vec<String> = [0.4, 61.0, 7_260.0, 180_000.0, -1.0].map(rough).into();
        assert_eq!(shown, ["0 s", "1 min 1 s", "2 h 1 min", "2 d 2 h", "0 s"]);
    }

    #[test]
    fn other_versions_have_a_line_each() {
        let backend = serde_json::json!({"name": "pay", "canary": {"server": "pay2", "share": 0.125, "state": "ready"},
            "mirror": {"server": "next", "share": 0.05, "state": "down", "same": 3, "different": 1, "failed": 0, "dropped": 0}});
        let lines = [
            "pay canary pay2: 12.5 % (ready)",
            "pay mirror next: 5 % (down), 3 same, 1 different, 0 failed, 0 dropped",
        ];
        assert_eq!(versions_of(&backend), lines);
        assert!(versions_of(&serde_json::json!({"name": "one"})).is_empty());
    }

    #[test]
    fn several_endpoints_have_a_line_each() {
        let backend = serde_json::json!({"name": "pay", "endpoints": [
            {"place": "http://a", "state": "ready", "leaving": false, "running": 3, "latencyMs": 1.5},
            {"place": "http://b at 10.0.0.1:80", "state": "down", "error": "refused", "leaving": true},
        ]});
        let lines = [
            "pay endpoint http://a: ready, 3 running, 1.50 ms",
            "pay endpoint http://b at 10.0.0.1:80: down, leaving: refused",
        ];
        assert_eq!(endpoints_of(&backend), lines);
        assert!(endpoints_of(&serde_json::json!({"name": "one"})).is_empty());
    }

    #[test]
    fn backends_with_missing_members_get_a_row() {
        let full = serde_json::json!({"name": "a\u{1b}[2J", "state": "ready", "transport": "stdio", "era": "modern",
            "revision": "2026-07-28", "requests": 7, "errors": 1, "medianMs": 1.25, "p95Ms": null, "restarts": 1,
            "reconnects": 2, "lastError": {"type": "timeout", "atMs": 0.0}});
        let down = serde_json::json!({"name": "b-with-a-name-that-is-longer-than-it-has-to-be", "state": "down",
            "error": "no such\nprogram"});
        let (table, below) = backends_in(&[&full, &down, &Value::Null], 300);
        let words: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            words[..10],
            [
                "a\\u001b[2J",
                "ready",
                "2026-07-28",
                "stdio",
                "7",
                "1",
                "1.25",
                "ms",
                "-",
                "3"
            ],
            "{table}"
        );
        assert!(
            table.lines().nth(1).unwrap().ends_with(" ago")
                && table.contains("no such")
                && below.is_empty(),
            "{table}"
        );
        for room in [80, 120] {
            let (table, below) = backends_in(&[&full, &down, &Value::Null], room);
            assert!(
                table.lines().all(|line| line.width() <= room) && table.lines().count() == 4,
                "{table}"
            );
            assert_eq!(
                below[1..],
                ["b-with-a-name-that-is-longer-than-it-has-to-be: no such"]
            );
            assert_eq!(table.contains("TRANSPORT"), room == 120, "{table}");
        }
    }
}
