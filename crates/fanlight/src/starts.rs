//! Shows on standard error which servers are starting, and their processes' latest output: live on
//! a terminal, otherwise as single lines.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _, Write};
use std::sync::LazyLock;
use std::time::Duration;

use fanlight_canonical::{BackendState, BackendStatus, Starting};
use fanlight_gateway::Gateway;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::time::{MissedTickBehavior, interval};

use crate::out;
use crate::show::plain;

/// The interval between two checks of the servers.
const LOOK: Duration = Duration::from_millis(100);
/// A quicker start is not shown.
const SHOWN_AFTER: Duration = Duration::from_millis(500);
/// Without a terminal: the time before the first line, and the least interval between two lines
/// about a server.
const LINES_EVERY: Duration = Duration::from_secs(5);
/// The limit of characters of a process's last line.
const LAST_LINE: usize = 200;

/// The lines at the bottom of the terminal, below all log lines.
static DRAWN: LazyLock<MultiProgress> =
    LazyLock::new(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10)));

/// A writer whose lines do not disturb the drawing.
pub(crate) struct AboveDrawing<W>(pub(crate) W);

impl<W: Write> Write for AboveDrawing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        DRAWN.suspend(|| self.0.write(bytes))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        DRAWN.suspend(|| self.0.write_all(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Shows servers that start for the first time, until all have started or failed.
pub(crate) async fn show(gateway: &Gateway) {
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
pub(crate) async fn show_on_terminal(gateway: &Gateway) {
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
    Live(HashMap<String, ProgressBar>),
    /// The time of the last line about each server.
    Lines(HashMap<String, Duration>),
}

impl Display {
    fn new(is_terminal: bool) -> Self {
        if is_terminal {
            Self::Live(HashMap::new())
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
            Self::Live(bars) => {
                bars.retain(|name, bar| {
                    let stays = shown().any(|(shown, _)| shown == name);
                    if !stays {
                        bar.finish_and_clear();
                        DRAWN.remove(bar);
                    }
                    stays
                });
                for (name, starting) in shown() {
                    let bar = bars.entry((*name).to_owned()).or_insert_with(new_bar);
                    bar.set_message(line(name, starting));
                }
            }
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
        if let Self::Live(bars) = self {
            bars.values().for_each(ProgressBar::finish_and_clear);
        }
    }
}

fn new_bar() -> ProgressBar {
    let bar = DRAWN.add(ProgressBar::new_spinner());
    // `wide_msg` is cut at the terminal's width.
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(LOOK);
    bar
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
