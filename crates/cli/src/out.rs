//! Printing to standard output and error without failing if the reader has closed them.

use std::fmt::Arguments;
use std::io::{IsTerminal, Write as _};

use fanlight_protocol::visible::escaped_lines;

/// Prints a line, as `println!` does.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { $crate::out::line(format_args!($($text)*)) };
}

pub use crate::say;

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
    if count == 1 {
        format!("1 {what}")
    } else {
        format!("{count} {what}s")
    }
}

/// Writes to standard error; a failure is ignored.
pub fn complain(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
