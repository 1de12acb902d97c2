//! `fanlight traces --follow`: a line for each call that ends.

use std::collections::VecDeque;
use std::time::SystemTime;

use fanlight_protocol::visible::plain;
use serde_json::Value;

use super::Admin;
use super::admin::{elements, plain_text, text};
use super::style::clock;
use super::style::{Style, duration};
use crate::cli::TracesArgs;
use crate::failure::Failure;
use crate::judge::peer::http::EventStream;
use crate::out::{self, complain, say};

/// How many shown traces are remembered. A trace comes again when a late span of it ends.
const REMEMBERED: usize = 1024;

/// Prints calls as they end, until Ctrl-C or the end of the gateway.
pub(super) async fn follow(admin: &Admin, args: &TracesArgs) -> Result<(), Failure> {
    let query = args.filters.query(SystemTime::now());
    let stream = admin.events(&query).await?;
    tokio::select! {
        ended = print(admin, stream, args.json) => ended,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

async fn print(admin: &Admin, mut stream: EventStream, json: bool) -> Result<(), Failure> {
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
pub(super) fn error(trace: &Value) -> String {
    let error = plain_text(trace, "error", 60);
    match text(trace, "side") {
        "" => error,
        side => format!("{error} ({side})"),
    }
}

#[cfg(test)]
mod tests {
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
