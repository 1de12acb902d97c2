//! Judges one MCP server: connects to it directly, in each era of the protocol, and reports what it offers, what breaks the
//! specification, and what gateways and clients will trip on. It calls no tool.
//!
//! A client of its own, apart from the gateway's: what a server gets wrong must be seen, not tolerated. `conversation` talks
//! through a `peer`, `rules` judge what was said, `report` is the outcome, and `page` shows it as HTML.

mod client;
mod conversation;
mod list;
mod lists;
mod mask;
mod observed;
mod page;
mod peer;
mod report;
mod rules;
mod shape;

use std::time::Duration;

use fanlight_protocol::Era;

pub use mask::Mask;
pub use page::page;
pub use report::{
    EntryReport, EraReport, Finding, ListReport, Pings, Report, Severity, Timing, Who,
};

/// The server to judge.
#[derive(Clone, Debug)]
pub enum Target {
    /// A process that speaks over its standard input and output.
    Command {
        /// The program.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// A Streamable HTTP server, or one of the deprecated HTTP+SSE transport.
    Url {
        /// Its endpoint.
        url: String,
        /// Headers of each request.
        headers: Vec<(String, String)>,
    },
}

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For the first answer of a server, which may have to be installed first.
    pub start: Duration,
    /// For any other answer.
    pub answer: Duration,
}

/// A step of judging, for who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The server is opened in this era.
    Opening(Era),
    /// It has been, and its lists are read.
    Reading(Era),
}

/// Judges a server. `at` is the time of the report, as it is to be shown.
pub async fn judge(
    target: &Target,
    patience: Patience,
    at: String,
    mut step: impl FnMut(Step),
) -> Report {
    let mask = Mask::of(target);
    let mut findings = Vec::new();
    let mut eras = Vec::new();
    // The older era first: its first request is the one that servers of both eras answer.
    let mut first_answer = patience.start;
    for era in [Era::Legacy, Era::Modern] {
        let said = conversation::hold(
            target,
            era,
            Patience {
                start: first_answer,
                ..patience
            },
            &mask,
            &mut step,
        )
        .await;
        // What has started once starts again about as fast; a server that never answers is not waited for twice.
        if let Some(took) = said.first_answer {
            first_answer = (took * 3).max(patience.answer).min(patience.start);
        } else if said.cannot_start {
            eras.push(said.report(&mut findings));
            break;
        }
        eras.push(said.report(&mut findings));
    }
    let report = Report::new(target, at, eras, findings);
    report.judged()
}
