//! `fanlight status`: the state of a running gateway and its backends.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::Admin;
use super::columns::{self, Column};
use super::style::{Style, duration};
use crate::cli::StatusArgs;
use crate::failure::Failure;
use crate::inspect::plain;
use crate::out::{self, say};

/// Least width of the names of backends, before other columns are dropped.
const NAME: usize = 16;

/// Prints the overview; fails if the gateway is not ready.
pub(crate) async fn status(args: &StatusArgs) -> Result<(), Failure> {
    let admin = Admin::new(&args.admin)?;
    let text = admin.get("/api/overview", &[]).await?;
    let overview = admin.json(&text)?;
    if args.json {
        out::json(&String::from_utf8_lossy(&text));
    } else {
        show(&overview, &admin, Style::of_stdout());
    }
    let ready = overview.get("ready").and_then(Value::as_bool).unwrap_or_default();
    if ready { Ok(()) } else { Err(Failure::other("not ready: no backend can be used yet, or it is shutting down")) }
}

fn show(overview: &Value, admin: &Admin, style: Style) {
    let number = |key: &str| overview.get(key).and_then(Value::as_u64).unwrap_or_default();
    let uptime = overview.get("uptimeSeconds").and_then(Value::as_f64).unwrap_or_default();
    say!(
        "{} {} at {}, up {}",
        style.bold("Fanlight"),
        plain(text(overview, "version"), 40),
        plain(text(overview, "endpoint"), 200),
        rough(uptime)
    );
    say!(
        "{}, {}, {} kept; admin at {}",
        several(number("sessions"), "session"),
        several(number("suspendedCalls"), "suspended call"),
        several(number("traces"), "trace"),
        admin.shown()
    );
    say!("");
    let backends: Vec<&Value> = overview.get("backends").and_then(Value::as_array).into_iter().flatten().collect();
    let (table, below) = backends_in(&backends, style.table_width());
    say!("{}", paint(&table, style));
    if !below.is_empty() {
        say!("\n{}", below.join("\n"));
    }
}

/// A table with a row for each backend, and lines below it for what does not fit.
fn backends_in(backends: &[&Value], width: usize) -> (String, Vec<String>) {
    let mut columns = columns(backends);
    let mut below = Vec::new();
    if columns::width(&columns) > width {
        columns.pop();
        let errors = backends.iter().map(|backend| (plain(text(backend, "name"), 60), last_error(backend)));
        below.extend(errors.filter(|(_, error)| !error.is_empty()).map(|(name, error)| format!("{name}: {error}")));
    }
    // The least important column is dropped first.
    for heading in ["TRANSPORT", "MEDIAN", "RESTARTS"] {
        let least = columns::width(&columns) - columns.first().map(Column::width).unwrap_or_default() + NAME;
        if least > width {
            columns.retain(|column| column.heading() != heading);
        }
    }
    (columns::render(&columns, width), below)
}

fn columns(backends: &[&Value]) -> Vec<Column> {
    let each = |of: &dyn Fn(&Value) -> String| backends.iter().map(|backend| of(backend)).collect::<Vec<_>>();
    let number = |backend: &Value, key: &str| backend.get(key).and_then(Value::as_u64).unwrap_or_default();
    let millis = |backend: &Value, key: &str| {
        let value = backend.get(key).and_then(Value::as_f64);
        value.map_or_else(|| "-".to_owned(), |millis| duration((millis * 1e6) as u64))
    };
    let revision = |backend: &Value| match (text(backend, "era"), text(backend, "revision")) {
        ("", "") => "-".to_owned(),
        (era, "") => plain(era, 20),
        (_, revision) => plain(revision, 20),
    };
    vec![
        Column::words("BACKEND", each(&|backend| plain(text(backend, "name"), 60))),
        Column::whole("STATE", each(&|backend| plain(text(backend, "state"), 20))),
        Column::whole("REVISION", each(&revision)),
        Column::whole("TRANSPORT", each(&|backend| plain(text(backend, "transport"), 20))),
        Column::numbers("REQUESTS", each(&|backend| number(backend, "requests").to_string())),
        Column::numbers("ERRORS", each(&|backend| number(backend, "errors").to_string())),
        Column::numbers("MEDIAN", each(&|backend| millis(backend, "medianMs"))),
        Column::numbers("P95", each(&|backend| millis(backend, "p95Ms"))),
        Column::numbers(
            "RESTARTS",
            each(&|backend| (number(backend, "restarts") + number(backend, "reconnects")).to_string()),
        ),
        Column::whole("LAST ERROR", each(&last_error)),
    ]
}

/// Why the backend is down, else its last error.
fn last_error(backend: &Value) -> String {
    if let Some(error) = backend.get("error").and_then(Value::as_str) {
        return plain(error, 200);
    }
    let Some(last) = backend.get("lastError").filter(|last| last.is_object()) else { return String::new() };
    let at = last.get("atMs").and_then(Value::as_f64).unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ago = now.saturating_sub(Duration::from_secs_f64((at / 1e3).max(0.0))).as_secs_f64();
    format!("{} {} ago", plain(text(last, "type"), 60), rough(ago))
}

/// Colours the states in a finished table: colour codes within cells would count as width.
fn paint(table: &str, style: Style) -> String {
    let mut lines = table.lines();
    let heading = lines.next().map(|line| style.bold(line));
    let rows = lines.map(|line| {
        let painted = |state: &str, paint: fn(Style, &str) -> String| {
            let place = format!(" {state} ");
            line.contains(&place).then(|| line.replacen(&place, &format!(" {} ", paint(style, state)), 1))
        };
        painted("ready", Style::good)
            .or_else(|| painted("down", Style::bad))
            .or_else(|| painted("failed", Style::bad))
            .or_else(|| painted("connecting", Style::warn))
            .unwrap_or_else(|| line.to_owned())
    });
    heading.into_iter().chain(rows).collect::<Vec<_>>().join("\n")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn several(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// A duration in its two largest units.
pub(super) fn rough(seconds: f64) -> String {
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
            ["a\\u001b[2J", "ready", "2026-07-28", "stdio", "7", "1", "1.25", "ms", "-", "3"],
            "{table}"
        );
        assert!(
            table.lines().nth(1).unwrap().ends_with(" ago") && table.contains("no such") && below.is_empty(),
            "{table}"
        );
        for room in [80, 120] {
            let (table, below) = backends_in(&[&full, &down, &Value::Null], room);
            assert!(table.lines().all(|line| line.width() <= room) && table.lines().count() == 4, "{table}");
            assert_eq!(below[1..], ["b-with-a-name-that-is-longer-than-it-has-to-be: no such"]);
            assert_eq!(table.contains("TRANSPORT"), room == 120, "{table}");
        }
    }
}
