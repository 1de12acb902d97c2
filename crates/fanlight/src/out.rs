//! Printing to standard output and error without failing when the reader has closed them.

use std::fmt::Arguments;
use std::io::Write as _;

/// Prints a line, as `println!` does.
macro_rules! say {
    ($($text:tt)*) => { $crate::out::line(format_args!($($text)*)) };
}

pub(crate) use say;

/// Writes a line. A reader that has gone, such as `head`, is no failure; `println!` would panic.
pub(crate) fn line(text: Arguments<'_>) {
    let _ = writeln!(std::io::stdout().lock(), "{text}");
}

/// Writes a line to standard error; a failure is ignored.
pub(crate) fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
