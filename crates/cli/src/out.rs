//! Printing to standard output and error without failing if the reader has closed them.

use std::fmt::Arguments;
use std::io::{IsTerminal, Write as _};

use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;
use fanlight_protocol::visible::escaped_lines;

pub use crate::say;

/// Prints a line, as `println!` does.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::out::line(format_args!($($text)*)) };
}

/// Prints JSON: unchanged for a program, with escapes on a terminal.
pub fn json(text: &str) {
    if std::io::stdout().is_terminal() {
        say!("{text}");
    } else {
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }
}

/// Prints the JSON of a gateway's answer if that `is_wanted`. Returns whether it is.
pub fn is_json(is_wanted: bool, answer: &[u8]) -> bool {
    if is_wanted {
        json(&String::from_utf8_lossy(answer));
    }
    is_wanted
}

/// Prints JSON in several lines.
pub fn pretty(value: &serde_json::Value) {
    json(&format!("{value:#}"));
}

/// Prints a line, and escapes characters of peers that would disguise it. A reader that is gone,
/// such as `head`, is no failure; `println!` would panic.
pub fn line(text: Arguments<'_>) {
    let _ = writeln!(
        std::io::stdout().lock(),
        "{}",
        escaped_lines(&text.to_string())
    );
}

/// Whether text for this stream should have colours: on a terminal, unless `NO_COLOR` is set
/// (<https://no-color.org>).
pub fn has_colours(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    stream.is_terminal()
        && set("NO_COLOR").is_none()
        && set("TERM").is_none_or(|term| term != "dumb")
}

/// A number with a noun, such as `1 server` and `2 servers`.
pub fn counted(count: usize, what: &str) -> String {
    match (count, what.strip_suffix("ry")) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{count} {stem}ries"),
        _ => format!("{count} {what}s"),
    }
}

/// Writes to standard error; a failure is ignored.
pub fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// Indents JSON. Only white space changes: numbers, escapes and the order of members stay.
pub fn indented(json: &Json) -> String {
    let mut out = String::with_capacity(json.bytes().len() * 2);
    indent(json, 0, &mut out);
    out
}

fn indent(json: &Json, depth: usize, out: &mut String) {
    let (open, close, parts): (char, char, Vec<(Option<Json>, Json)>) = match json.kind() {
        Kind::Object => (
            '{',
            '}',
            json.members()
                .map(|m| (Some(json.slice(m.key)), json.slice(m.value)))
                .collect(),
        ),
        Kind::Array => (
            '[',
            ']',
            json.elements()
                .map(|element| (None, json.slice(element)))
                .collect(),
        ),
        _ => return out.push_str(json.as_text()),
    };
    out.push(open);
    let last = parts.len();
    for (index, (key, value)) in parts.into_iter().enumerate() {
        out.push('\n');
        out.push_str(&"  ".repeat(depth + 1));
        if let Some(key) = key {
            out.push_str(key.as_text());
            out.push_str(": ");
        }
        indent(&value, depth + 1, out);
        if index + 1 < last {
            out.push(',');
        }
    }
    if last > 0 {
        out.push('\n');
        out.push_str(&"  ".repeat(depth));
    }
    out.push(close);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_changes_only_white_space() {
        let json = Json::literal(r#"{"a":[1.0,{"b":"\u0041 x"}],"c":{},"d":[]}"#);
        let expected = "{\n  \"a\": [\n    1.0,\n    {\n      \"b\": \"\\u0041 x\"\n    }\n  ],\n  \"c\": {},\n  \"d\": []\n}";
        assert_eq!(indented(&json), expected);
    }
}
