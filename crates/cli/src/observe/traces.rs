//! `fanlight traces`: lists the latest traces of a running gateway, or shows one as a waterfall.

use std::collections::{HashSet, VecDeque};
use std::time::SystemTime;

use fanlight_protocol::visible::plain;
use itertools::Itertools as _;
use serde_json::Value;

use super::admin::{elements, plain_text, text};
use super::columns::{self, Column};
use super::spans::Span;
use super::style::{Style, clock, duration};
use super::{Admin, spans, waterfall};
use crate::cli::{CommonArgs, TracesArgs};
use crate::judge::peer::http::EventStream;
use crate::{Result, complain, out, say};

/// The least number of digits shown of an id.
const SHORTEST: usize = 8;
/// Least width of the request column.
const REQUEST: usize = 28;
/// The limit of traces that the API lists at once.
const MOST: usize = 500;

/// Prints the matching traces, newest first, or the named trace.
pub async fn traces(args: &TracesArgs, common: &CommonArgs) -> Result {
    let id = args.trace_id.as_deref().map(checked).transpose()?;
    let admin = Admin::find(&args.admin, common).await?;
    match id {
        None if args.follow => follow(&admin, args).await,
        Some(id) => print_trace(&admin, id, args.json).await,
        None => list(&admin, args).await,
    }
}

async fn list(admin: &Admin, args: &TracesArgs) -> Result {
    let mut query = vec![("limit", args.limit.to_string())];
    query.extend(args.filters.query(SystemTime::now()));
    let text = admin.get(&["traces"], &query).await?;
    if out::is_json(args.json, &text) {
        return Ok(());
    }
    let answer = admin.json(&text)?;
    if answer["recording"] == false {
        return Err(failure!(
            "this gateway keeps no traces: `limits.traces` of its configuration is 0",
        ));
    }
    let traces: Vec<&Value> = elements(&answer, "traces").collect();
    if traces.is_empty() {
        say!("no such traces");
        return Ok(());
    }
    say!(
        "{}",
        format_rows(&traces, Style::for_stdout().table_width())
    );
    Ok(())
}

/// A row for each trace. If the table is too wide, times are in whole seconds and ids are shortened
/// as far as they stay unique.
fn format_rows(traces: &[&Value], width: usize) -> String {
    let mut columns = columns(traces, clock, 32);
    if columns::width(&columns) > width {
        let ids: HashSet<&str> = traces.iter().map(|trace| text(trace, "traceId")).collect();
        let is_enough = |digits: &usize| {
            ids.iter()
                .filter_map(|id| id.get(..*digits))
                .collect::<HashSet<_>>()
                .len()
                == ids.len()
        };
        let digits = (SHORTEST..32).find(is_enough).unwrap_or(32);
        columns = self::columns(
            traces,
            |millis| format!("{}Z", clock(millis).chars().take(8).collect::<String>()),
            digits,
        );
    }
    for heading in ["CLIENT", "SPANS"] {
        if columns::width(&columns) > width {
            columns.retain(|column| column.heading() != heading);
        }
    }
    if traces.iter().all(|trace| text(trace, "client").is_empty()) {
        columns.retain(|column| column.heading() != "CLIENT");
    }
    columns::render(&columns, width)
}

fn columns(traces: &[&Value], clock: impl Fn(f64) -> String, digits: usize) -> Vec<Column> {
    let float = |trace: &Value, key: &str| trace[key].as_f64().unwrap_or_default();
    let backends = |trace: &&Value| {
        let mut names = elements(trace, "backends").filter_map(Value::as_str);
        plain(&names.join(", "), 120)
    };
    let spans = |trace: &&Value| trace["spans"].as_u64().unwrap_or_default().to_string();
    let request = |trace: &&Value| {
        let name = plain_text(trace, "name", 120);
        match trace["attempts"].as_u64() {
            Some(attempts) if attempts > 1 => format!("{name} ({attempts} attempts)"),
            _ => name,
        }
    };
    vec![
        Column::whole("TIME", traces, |trace| clock(float(trace, "startMs"))),
        Column::numbers("TOOK", traces, |trace| {
            duration((float(trace, "durationMs") * 1e6) as u64)
        }),
        Column::numbers("SPANS", traces, spans),
        Column::words("REQUEST", traces, request).at_least(REQUEST),
        Column::words("SERVERS", traces, backends),
        Column::words("CLIENT", traces, |trace| plain_text(trace, "client", 60)),
        Column::words("ERROR", traces, |trace| error(trace)),
        Column::whole("TRACE", traces, |trace| {
            text(trace, "traceId").chars().take(digits).collect()
        }),
    ]
}

/// The id in lower case, or its first digits.
fn checked(id: &str) -> Result<String> {
    let id = id.to_ascii_lowercase();
    // A `traceparent` contains the id.
    let id = id.split('-').find(|part| part.len() == 32).unwrap_or(&id);
    if !(4..=32).contains(&id.len()) || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(usage!(
            "a trace id has 32 hexadecimal digits; `fanlight traces` lists the traces",
        ));
    }
    Ok(id.to_owned())
}

async fn print_trace(admin: &Admin, id: String, json: bool) -> Result {
    let id = &if id.len() == 32 {
        id
    } else {
        whole_id(admin, &id).await?
    };
    let text = admin.get(&["traces", id], &[]).await?;
    if out::is_json(json, &text) {
        return Ok(());
    }
    let spans = spans::read(&text).map_err(|what| failure!("{}: {what}", admin.display_name()))?;
    let start = spans
        .iter()
        .map(|span| span.start)
        .min()
        .unwrap_or_default();
    let style = Style::for_stdout();
    let trace = admin.json(&text)?;
    let replica = trace["replica"].as_str();
    say!(
        "{} {id}  {}{}",
        style.bold("trace"),
        style.dim(&clock(start as f64 / 1e6)),
        replica.map_or_else(String::new, |replica| format!(
            "  at replica {}",
            plain(replica, 60)
        ))
    );
    say!("{}", waterfall::render(&spans, style));
    let content = render(&trace, &spans, style);
    if !content.is_empty() {
        say!("{content}");
    }
    Ok(())
}

/// The full id of the stored trace whose id begins with `start`.
async fn whole_id(admin: &Admin, start: &str) -> Result<String> {
    let query = [("text", start.to_owned()), ("limit", MOST.to_string())];
    let answer = admin.json(&admin.get(&["traces"], &query).await?)?;
    let all = elements(&answer, "traces");
    let found = all
        .map(|trace| text(trace, "traceId"))
        .filter(|id| id.starts_with(start))
        .collect_vec();
    match found[..] {
        [id] => Ok(id.to_owned()),
        [] => Err(failure!(
            "no stored trace has an id that begins with {start}"
        )),
        _ => Err(usage!(
            "{} traces begin with {start}: give more of the id",
            found.len()
        )),
    }
}

/// The limit of characters shown of one message. The API has the rest.
const SHOWN: usize = 4000;

/// A line about each message, with its text below it. Messages that client and server have alike are
/// one.
pub(super) fn render(trace: &Value, spans: &[Span], style: Style) -> String {
    let mut shown: Vec<(&Value, Vec<String>)> = Vec::new();
    for message in elements(trace, "content") {
        let is_alike = |one: &Value| {
            ["kind", "bytes", "text"]
                .iter()
                .all(|key| one[key] == message[key])
        };
        let peer = peer(message, spans);
        let alike = shown.iter_mut().find(|(one, peers)| {
            message["text"].is_string() && is_alike(one) && !peers.contains(&peer)
        });
        match alike {
            Some((_, peers)) => peers.push(peer),
            None => shown.push((message, vec![peer])),
        }
    }
    let mut lines = shown.iter().map(|(message, peers)| {
        let heading = format!("{}: {}", text(message, "kind"), peers.join(", "));
        let content = match message["text"].as_str() {
            Some(content) => format!("\n{}", plain(content, SHOWN)),
            None => String::new(),
        };
        let size = style.dim(&size(message));
        format!("{}  {size}{content}", style.bold(&heading))
    });
    lines.join("\n")
}

/// The peer that sent or got a message.
fn peer(message: &Value, spans: &[Span]) -> String {
    let span = spans.iter().find(|span| span.id == text(message, "spanId"));
    let backend = span.and_then(|span| span.attribute("fanlight.backend.name"));
    backend.map_or_else(|| "client".to_owned(), |name| plain(name, 60))
}

/// The size of a message, and how much of it was not kept.
fn size(message: &Value) -> String {
    let bytes = |key: &str| message[key].as_u64().unwrap_or_default();
    match bytes("leftOut") {
        0 => format!("{} bytes", bytes("bytes")),
        left_out => format!("{} bytes, of which {left_out} are left out", bytes("bytes")),
    }
}

/// How many shown traces are remembered. A trace comes again when a late span of it ends.
const REMEMBERED: usize = 1024;

/// Prints calls as they end, until Ctrl-C or the end of the gateway.
async fn follow(admin: &Admin, args: &TracesArgs) -> Result {
    let query = args.filters.query(SystemTime::now());
    let stream = admin.events(&query).await?;
    tokio::select! {
        ended = print(admin, stream, args.json) => ended,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn print(admin: &Admin, mut stream: EventStream, json: bool) -> Result {
    let style = Style::for_stdout();
    let mut shown = VecDeque::with_capacity(REMEMBERED);
    while let Some(event) = admin.next_event(&mut stream).await? {
        match event.name.as_ref() {
            b"traces" => {
                for trace in elements(&admin.json(&event.data)?, "traces") {
                    if !is_new(trace, &mut shown) {
                        continue;
                    }
                    match json {
                        true => out::json(&trace.to_string()),
                        false => say!("{}", line(trace, style)),
                    }
                }
            }
            b"missed" => complain("some traces are missing here: too many ended at once\n"),
            _ => {}
        }
    }
    Err(admin.ended())
}

/// Whether a trace has ended and was not shown before.
fn is_new(trace: &Value, shown: &mut VecDeque<String>) -> bool {
    let id = text(trace, "traceId");
    if trace["ended"] != true || shown.iter().any(|one| one == id) {
        return false;
    }
    if shown.len() >= REMEMBERED {
        shown.pop_front();
    }
    shown.push_back(id.to_owned());
    true
}

/// The line of a trace, such as "09:21:22.120Z  12.5 ms  ok  tools/call search  @library  4bf9…".
fn line(trace: &Value, style: Style) -> String {
    let number = |key: &str| trace[key].as_f64().unwrap_or_default();
    let outcome = match error(trace) {
        none if none.is_empty() => style.good("ok"),
        error => style.bad(&error),
    };
    let servers = elements(trace, "backends").filter_map(Value::as_str);
    let servers = servers.map(|name| format!("  @{}", plain(name, 60)));
    format!(
        "{}  {:>8}  {outcome}  {}{}  {}",
        style.dim(&clock(number("startMs"))),
        duration((number("durationMs") * 1e6) as u64),
        plain_text(trace, "name", 120),
        servers.collect::<String>(),
        style.dim(text(trace, "traceId"))
    )
}

/// The error, and the side that can do something about it.
fn error(trace: &Value) -> String {
    let error = plain_text(trace, "error", 60);
    match text(trace, "side") {
        "" => error,
        side => format!("{error} ({side})"),
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;

    fn trace(id: &str) -> Value {
        serde_json::json!({"traceId": id, "name": "tools/call library__search_books",
            "startMs": 86_400_000.0 + 3_723_004.0, "durationMs": 12.5, "spans": 3,
            "backends": ["library", "a-backend-with-a-long-name"], "error": "connect_failed"})
    }

    #[test]
    fn a_trace_is_a_row() {
        let (one, other) = (
            trace("4bf92f3577b34da6a3ce929d0e0e4736"),
            trace("4bf92f3577b34da6a3ce929d0e0e4737"),
        );
        let wide = format_rows(&[&one, &Value::Null], 200);
        for word in [
            "01:02:03.004Z",
            "12.5 ms",
            "3",
            "tools/call library__search_books",
            "connect_failed",
        ] {
            assert!(wide.lines().nth(1).unwrap().contains(word), "{wide}");
        }
        assert!(
            wide.contains("library, a-backend-with-a-long-name")
                && wide.contains("4bf92f3577b34da6a3ce929d0e0e4736")
        );
        let third = trace("0af7651916cd43dd8448eb211c80319c");
        let narrow = format_rows(&[&one, &third], 80);
        assert!(
            narrow.lines().all(|line| line.width() <= 80) && narrow.lines().count() == 3,
            "{narrow}"
        );
        assert!(
            narrow.lines().nth(1).unwrap().ends_with("  4bf92f35"),
            "{narrow}"
        );
        assert!(
            narrow.contains("01:02:03Z ") && narrow.contains("tools/call library__search_"),
            "{narrow}"
        );
        // Shortened ids must still differ.
        assert!(format_rows(&[&one, &other], 80).contains("4bf92f3577b34da6a3ce929d0e0e4737"));
    }
}

#[cfg(test)]
mod content_tests {
    use super::*;
    use crate::observe::spans;

    #[test]
    fn messages_are_shown_once_and_safely() {
        let trace = serde_json::json!({
            "resourceSpans": [{"scopeSpans": [{"spans": [
                {"traceId": "t", "spanId": "s", "name": "x"},
                {"traceId": "t", "spanId": "c", "name": "x", "attributes": [
                    {"key": "fanlight.backend.name", "value": {"stringValue": "files"}}]},
            ]}]}],
            "content": [
                {"spanId": "s", "kind": "arguments", "bytes": 7, "leftOut": 0, "text": "{\"a\":1}"},
                {"spanId": "c", "kind": "arguments", "bytes": 7, "leftOut": 0, "text": "{\"a\":1}"},
                {"spanId": "c", "kind": "result", "bytes": 90, "leftOut": 80, "text": "\u{1b}[2J"},
                {"spanId": "s", "kind": "result", "bytes": 5, "leftOut": 0},
            ],
        });
        let spans = spans::read(trace.to_string().as_bytes()).unwrap();
        assert_eq!(
            render(&trace, &spans, Style::plain(80)),
            "arguments: client, files  7 bytes\n{\"a\":1}\n\
             result: files  90 bytes, of which 80 are left out\n\\u001b[2J\n\
             result: client  5 bytes"
        );
    }
}

#[cfg(test)]
mod follow_tests {
    use super::*;

    #[test]
    fn ended_call_is_shown_once_on_a_safe_line() {
        let mut trace = serde_json::json!({"traceId": "4bf9", "name": "tools/call a\u{1b}[2J", "startMs": 3_723_004.0,
            "durationMs": 12.5, "backends": ["library"], "error": "timeout", "side": "server", "ended": false});
        let mut shown = VecDeque::new();
        assert!(!is_new(&trace, &mut shown));
        trace["ended"] = true.into();
        assert!(is_new(&trace, &mut shown) && !is_new(&trace, &mut shown));
        assert_eq!(
            line(&trace, Style::plain(80)),
            "01:02:03.004Z   12.5 ms  timeout (server)  tools/call a\\u001b[2J  @library  4bf9"
        );
    }
}
