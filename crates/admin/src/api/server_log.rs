//! The logs of servers' processes: the last lines, and with `?follow` also new ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{Extension, Path, State};
use fanlight_canonical::{ProcessLine, ProcessOutput};
use futures_util::stream::{StreamExt as _, iter, unfold};
use tokio::time::Interval;

use super::stream::{self, Watch, event};
use super::{Answer, Query};
use crate::{Admin, AdminState, Operator, Refusal, answer, moment, to_json};

answers! {
    /// The last lines of a server's processes.
    pub(crate) struct ServerLog {
        name: String,
        dropped_lines: u64,
        lines: Vec<Line>,
    }

    /// The last lines of the processes of all servers.
    pub(crate) struct AllLogs {
        lines: Vec<Line>,
    }

    /// A line.
    struct Line {
        /// The name of the server.
        server: String,
        at_ms: f64,
        /// The number of the server's process, counted by starts.
        process: u64,
        /// `stderr` or `stdout`.
        stream: &'static str,
        text: String,
    }
}

/// The lines of the server called `name`.
pub(super) async fn server_lines(
    State(admin): AdminState,
    Extension(operator): Extension<Operator>,
    Path(name): Path<String>,
    query: Query,
) -> Answer {
    let Some(output) = admin.subject.gateway.process_output(&name) else {
        return Err(Refusal::not_found(
            "no server has this name; /api/backends lists them",
        ));
    };
    if query.has("follow") {
        return follow(&admin, operator, Some(name));
    }
    let lines = output
        .lines
        .iter()
        .map(|line| Line::new(&name, line))
        .collect();
    Ok(answer(&ServerLog {
        name,
        dropped_lines: output.dropped,
        lines,
    }))
}

/// The lines of all servers.
pub(super) async fn all_lines(
    State(admin): AdminState,
    Extension(operator): Extension<Operator>,
    query: Query,
) -> Answer {
    if query.has("follow") {
        return follow(&admin, operator, None);
    }
    let lines = Positions::default().news(outputs(&admin, None));
    Ok(answer(&AllLogs {
        lines: lines
            .iter()
            .map(|(name, line)| Line::new(name, line))
            .collect(),
    }))
}

fn follow(admin: &Arc<Admin>, operator: Operator, server: Option<String>) -> Answer {
    let now = admin.now();
    let follower = Follower {
        server,
        positions: Positions::default(),
        check: stream::ticks(),
        watch: Watch::follower(admin, &now, operator)?,
    };
    let events = unfold(follower, |mut follower| async move {
        let lines = follower.next().await?;
        let event = |(name, line): &(Arc<str>, ProcessLine)| {
            event("line", &to_json(&Line::new(name, line)))
        };
        Some((iter(lines.iter().map(event).collect::<Vec<_>>()), follower))
    });
    Ok(stream::response(&now, events.flatten()))
}

/// The state of a stream of lines.
struct Follower {
    /// The server of the lines; `None` for all servers.
    server: Option<String>,
    positions: Positions,
    check: Interval,
    watch: Watch,
}

impl Follower {
    /// The next lines; `None` at shutdown, after a change of settings, and at the end of the
    /// operator's credentials or session. The first ones are the stored lines, at once.
    async fn next(&mut self) -> Option<Vec<(Arc<str>, ProcessLine)>> {
        loop {
            tokio::select! {
                biased;
                _ = self.watch.ended() => return None,
                _ = self.check.tick() => {
                    if !self.watch.is_in_force().await {
                        return None;
                    }
                    let lines = self.positions.news(outputs(&self.watch.admin, self.server.as_deref()));
                    if !lines.is_empty() {
                        return Some(lines);
                    }
                }
            }
        }
    }
}

/// The reader's position in each server's log.
#[derive(Default)]
struct Positions(HashMap<Arc<str>, Position>);

/// The reader's position in a log.
#[derive(Default)]
struct Position {
    /// When the log began.
    began: Option<SystemTime>,
    /// The number of lines that were read, or dropped before.
    read: u64,
}

impl Positions {
    /// The unread lines, oldest first.
    fn news(&mut self, outputs: Vec<(Arc<str>, ProcessOutput)>) -> Vec<(Arc<str>, ProcessLine)> {
        let mut news = Vec::new();
        for (name, output) in outputs {
            let position = self.0.entry(Arc::clone(&name)).or_default();
            if position.began != output.began {
                *position = Position {
                    began: output.began,
                    read: 0,
                };
            }
            let total = output.dropped + output.lines.len() as u64;
            let unread = usize::try_from(total.saturating_sub(position.read)).unwrap_or(usize::MAX);
            position.read = total;
            let old = output.lines.len().saturating_sub(unread);
            news.extend(
                output
                    .lines
                    .into_iter()
                    .skip(old)
                    .map(|line| (Arc::clone(&name), line)),
            );
        }
        news.sort_by_key(|(_, line)| line.at);
        news
    }
}

/// The logs of the server with this name, or of all servers.
fn outputs(admin: &Admin, server: Option<&str>) -> Vec<(Arc<str>, ProcessOutput)> {
    let gateway = &admin.subject.gateway;
    let names: Vec<Arc<str>> = match server {
        Some(server) => vec![server.into()],
        None => gateway
            .status()
            .into_iter()
            .map(|(name, _)| name.into())
            .collect(),
    };
    names
        .into_iter()
        .filter_map(|name| Some((Arc::clone(&name), gateway.process_output(&name)?)))
        .collect()
}

impl Line {
    fn new(server: &str, line: &ProcessLine) -> Self {
        Self {
            server: server.to_owned(),
            at_ms: moment(line.at),
            process: line.process,
            stream: line.stream.as_str(),
            text: line.text.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use fanlight_canonical::ProcessStream;

    use super::*;

    fn output(began: u64, dropped: u64, lines: &[u64]) -> Vec<(Arc<str>, ProcessOutput)> {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let line = |second: &u64| ProcessLine {
            at: at(*second),
            process: 1,
            stream: ProcessStream::Stderr,
            text: second.to_string().into(),
        };
        let lines = lines.iter().map(line).collect();
        vec![(
            "a".into(),
            ProcessOutput {
                lines,
                dropped,
                began: Some(at(began)),
                ..ProcessOutput::default()
            },
        )]
    }

    #[test]
    fn each_line_is_read_once() {
        let mut positions = Positions::default();
        let mut texts = |output| {
            let news = positions.news(output);
            news.iter()
                .map(|(_, line)| line.text.to_string())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(texts(output(0, 0, &[1, 2])), "1 2");
        assert_eq!(texts(output(0, 0, &[1, 2])), "");
        assert_eq!(texts(output(0, 1, &[2, 3])), "3");
        // More lines were written than the log holds.
        assert_eq!(texts(output(0, 9, &[11, 12])), "11 12");
        // The log of a restarted server.
        assert_eq!(texts(output(1, 0, &[13])), "13");
    }
}
