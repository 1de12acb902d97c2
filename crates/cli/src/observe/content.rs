//! The kept content of a trace's calls, as text.

use fanlight_protocol::visible::plain;
use serde_json::Value;

use super::admin::{elements, text};
use super::spans::Span;
use super::style::Style;

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
    let lines = shown.iter().map(|(message, peers)| {
        let heading = format!("{}: {}", text(message, "kind"), peers.join(", "));
        let content = match message["text"].as_str() {
            Some(content) => format!("\n{}", plain(content, SHOWN)),
            None => String::new(),
        };
        let size = style.dim(&size(message));
        format!("{}  {size}{content}", style.bold(&heading))
    });
    lines.collect::<Vec<_>>().join("\n")
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

#[cfg(test)]
mod tests {
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
