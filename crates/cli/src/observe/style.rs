//! The terminal's width, and its use of colours.

use std::io::IsTerminal;

use terminal_size::{Height, Width, terminal_size_of};

use crate::out;

/// Width of a waterfall without a terminal.
const WIDTH: usize = 100;
/// Width of a terminal that does not report its own.
const NARROW: usize = 80;

/// Width and colours of an output.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The width of the terminal in characters.
    pub width: usize,
    /// Whether lines longer than `width` would wrap.
    pub is_bounded: bool,
    colour: bool,
}

impl Style {
    /// The style of standard output.
    pub fn for_stdout() -> Self {
        let stdout = std::io::stdout();
        Self::detect(&stdout, terminal_size_of(&stdout))
    }

    /// The style of standard error.
    pub fn for_stderr() -> Self {
        let stderr = std::io::stderr();
        Self::detect(&stderr, terminal_size_of(&stderr))
    }

    fn detect(stream: &impl IsTerminal, size: Option<(Width, Height)>) -> Self {
        let colour = out::has_colours(stream);
        let (width, is_bounded) = match size {
            Some((Width(width), _)) => (usize::from(width), true),
            None if stream.is_terminal() => (NARROW, true),
            None => (WIDTH, false),
        };
        Self {
            width,
            is_bounded,
            colour,
        }
    }

    #[cfg(test)]
    /// A style without colours.
    pub fn plain(width: usize) -> Self {
        Self {
            width,
            is_bounded: true,
            colour: false,
        }
    }

    /// The limit of a table's width; unlimited if lines do not wrap.
    pub fn table_width(self) -> usize {
        if self.is_bounded {
            self.width
        } else {
            usize::MAX
        }
    }

    /// Bold text.
    pub fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    /// Text of less interest.
    pub fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    /// Text about something that works.
    pub fn good(self, text: &str) -> String {
        self.wrap("32", text)
    }

    /// Text about something to look at.
    pub fn warn(self, text: &str) -> String {
        self.wrap("33", text)
    }

    /// Text about a failure.
    pub fn bad(self, text: &str) -> String {
        self.wrap("31", text)
    }

    /// A colour without a meaning of good or bad.
    pub fn mark(self, text: &str) -> String {
        self.wrap("36", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// A duration given in nanoseconds, with three significant digits.
pub fn duration(nanos: u64) -> String {
    let value = nanos as f64;
    let (value, unit) = match nanos {
        0..1_000 => return format!("{nanos} ns"),
        1_000..1_000_000 => (value / 1e3, "µs"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        1_000_000_000..120_000_000_000 => (value / 1e9, "s"),
        _ => return format!("{:.0} min", value / 6e10),
    };
    let digits = if value < 10.0 {
        2
    } else {
        usize::from(value < 100.0)
    };
    format!("{value:.digits$} {unit}")
}

/// The time of day in UTC, from milliseconds since 1970. No date is needed, since the shown data is
/// at most some hours old.
pub(super) fn clock(millis: f64) -> String {
    let millis = millis.max(0.0) as u64;
    let (seconds, rest) = (millis / 1000, millis % 1000);
    format!(
        "{:02}:{:02}:{:02}.{rest:03}Z",
        seconds / 3600 % 24,
        seconds / 60 % 60,
        seconds % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_has_three_digits() {
        let shown: Vec<String> = [
            0,
            999,
            1_500,
            12_340_000,
            123_400_000,
            1_000_000_000,
            300_000_000_000,
        ]
        .map(duration)
        .into();
        assert_eq!(
            shown,
            [
                "0 ns", "999 ns", "1.50 µs", "12.3 ms", "123 ms", "1.00 s", "5 min"
            ]
        );
    }
}
