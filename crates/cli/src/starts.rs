//! Shows on standard error which servers are starting, and their processes' latest output: live on
//! a terminal, otherwise as single lines.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use fanlight_canonical::{BackendState, BackendStatus, Starting};
use fanlight_gateway::Gateway;
use fanlight_protocol::visible::plain;
use parking_lot::Mutex;
use terminal_size::{Width, terminal_size_of};
use tokio::time::{MissedTickBehavior, interval};

use crate::observe::waterfall::fit;
use crate::out;

/// The interval between two checks of the servers.
const LOOK: Duration = Duration::from_millis(100);
/// The duration below which a start is not shown.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// The intervals without a terminal: the time before the first line, and the least time between two
/// lines about a server.
const LINES_EVERY: Duration = Duration::from_secs(5);
/// The limit of characters of a process's last line.
const LAST_LINE: usize = 200;

/// The frames of the sign in front of a line, one for each look.
const FRAMES: [char; 4] = ['|', '/', '-', '\\'];

/// The lines at the bottom of the terminal, below all log lines.
static DRAWN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Draws other lines at the bottom of the terminal.
fn redraw(lines: Vec<String>) {
    let mut drawn = DRAWN.lock();
    // A terminal that is gone shows nothing.
    let _ = io::stderr().write_all((erasure(&drawn) + &lines.concat()).as_bytes());
    *drawn = lines;
}

/// Writes something above the drawing.
fn above_drawing<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let drawn = DRAWN.lock();
    if drawn.is_empty() {
        return write();
    }
    io::stderr().write_all(erasure(&drawn).as_bytes())?;
    let written = write();
    io::stderr().write_all(drawn.concat().as_bytes())?;
    written
}

/// Moves the cursor to the first of the drawn lines, and erases everything below.
fn erasure(drawn: &[String]) -> String {
    match drawn.len() {
        0 => String::new(),
        lines => format!("\u{1b}[{lines}A\u{1b}[J"),
    }
}

/// A writer whose lines do not disturb the drawing.
pub struct AboveDrawing<W>(pub W);

impl<W: Write> Write for AboveDrawing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        above_drawing(|| self.0.write(bytes))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        above_drawing(|| self.0.write_all(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Shows servers that start for the first time, until all have started or failed.
pub async fn show(gateway: &Gateway) {
    let mut display = Display::new(io::stderr().is_terminal());
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let status = gateway.status();
        let starting: Vec<_> = status
            .iter()
            .filter_map(|(name, status)| Some((&**name, first_start(status)?)))
            .collect();
        display.show(&starting);
        if starting.is_empty() {
            return;
        }
    }
}

/// Shows the starting servers on a terminal, while other lines are written to it.
pub async fn show_on_terminal(gateway: &Gateway) {
    if io::stderr().is_terminal() {
        show(gateway).await;
    }
}

/// The first attempt to connect to a server, while it lasts.
fn first_start(status: &BackendStatus) -> Option<&Starting> {
    match status.state {
        BackendState::Connecting if status.failure.is_none() => status.starting.as_ref(),
        _ => None,
    }
}

enum Display {
    /// A line for each server at the bottom of the terminal.
    Live,
    /// The time of the last line about each server.
    Lines(HashMap<String, Duration>),
}

impl Display {
    fn new(is_terminal: bool) -> Self {
        if is_terminal {
            Self::Live
        } else {
            Self::Lines(HashMap::new())
        }
    }

    fn show(&mut self, starting: &[(&str, &Starting)]) {
        let shown = || {
            starting
                .iter()
                .filter(|(_, starting)| starting.elapsed >= SHOWN_AFTER)
        };
        match self {
            Self::Live => redraw(
                shown()
                    .map(|(name, starting)| drawn(name, starting))
                    .collect(),
            ),
            Self::Lines(printed) => {
                for (name, starting) in shown() {
                    let last = printed.get(*name).copied().unwrap_or_default();
                    if starting.elapsed.saturating_sub(last) >= LINES_EVERY {
                        printed.insert((*name).to_owned(), starting.elapsed);
                        out::complain(&format!("{}\n", line(name, starting)));
                    }
                }
            }
        }
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        if matches!(self, Self::Live) {
            redraw(Vec::new());
        }
    }
}

/// Formats a line of the drawing, cut at the terminal's width.
fn drawn(name: &str, starting: &Starting) -> String {
    let looks = starting.elapsed.as_millis() / LOOK.as_millis();
    let frame = FRAMES[looks as usize % FRAMES.len()];
    let width = terminal_size_of(io::stderr()).map_or(80, |(Width(width), _)| usize::from(width));
    let line = fit(
        &format!("{frame} {}", line(name, starting)),
        width.saturating_sub(1),
    );
    format!("{}\n", line.trim_end())
}

/// Formats a line such as "everything starting (12 s): npm warn …".
fn line(name: &str, starting: &Starting) -> String {
    let last_line = starting
        .last_line
        .as_deref()
        .map(|line| plain(line, LAST_LINE));
    let last_line = last_line
        .filter(|line| !line.is_empty())
        .map(|line| format!(": {line}"))
        .unwrap_or_default();
    format!(
        "{} starting ({} s){last_line}",
        plain(name, 60),
        starting.elapsed.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn line_is_safe_to_print() {
        let starting = |last_line: Option<&str>| Starting {
            since: SystemTime::UNIX_EPOCH,
            elapsed: Duration::from_millis(12_900),
            last_line: last_line.map(Into::into),
        };
        assert_eq!(
            line("a", &starting(Some("npm warn\u{1b}[2J"))),
            "a starting (12 s): npm warn\\u001b[2J"
        );
        assert_eq!(line("a", &starting(None)), "a starting (12 s)");
    }
}
