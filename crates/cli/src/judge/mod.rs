//! Judges one MCP server. It connects directly, in each era of the protocol, and reports the
//! server's contents, violations of the specification, and difficulties for gateways and clients.
//! It calls no tool.
//!
//! It has a client of its own, apart from the gateway's, because it must report a server's faults
//! and not tolerate them. Commands that inspect a server over HTTP use that client, too. `conversation` talks through a `peer`, `rules` judge the answers,
//! `report` is the result, and `page` shows it as HTML.

mod client;
mod conversation;
mod lists;
mod observed;
mod page;
pub(crate) mod peer;
mod report;
mod rules;
mod shape;

use std::time::Duration;

use fanlight_config::{Server, Transport};
use fanlight_protocol::{Era, Revision};

pub use observed::Mask;
pub use page::page;
pub use report::{
    EntryReport, EraReport, Finding, ListReport, Pings, Report, Severity, Timing, Who,
};

/// How long to wait for answers.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The time for a server's first answer, before which it may have to be installed.
    pub start: Duration,
    /// The time for any other answer.
    pub answer: Duration,
}

/// A step of judging, for the progress display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Connecting in this era.
    Opening(Era),
    /// Reading the lists in this era.
    Reading(Era),
}

/// Judges a server. `at` is the time of the report in the form to show.
pub async fn judge(
    target: &Transport,
    patience: Patience,
    at: String,
    mut step: impl FnMut(Step),
) -> Report {
    let mask = Mask::new(&Server::new("server", target.clone()));
    let mut findings = Vec::new();
    let mut eras = Vec::new();
    // The older era first, because servers of both eras answer its first request.
    let mut first_answer = patience.start;
    for revision in [Revision::NEWEST_LEGACY, Revision::NEWEST_MODERN] {
        let said = conversation::hold(
            target,
            revision,
            Patience {
                start: first_answer,
                ..patience
            },
            &mask,
            &mut step,
        )
        .await;
        // A server that has started once starts again about as fast. A server that never answers is
        // not waited for twice.
        if let Some(took) = said.first_answer {
            first_answer = (took * 3).max(patience.answer).min(patience.start);
        } else if said.cannot_start {
            eras.push(said.report(&mut findings));
            break;
        }
        eras.push(said.report(&mut findings));
    }
    let report = Report::new(target, at, eras, findings);
    report.conclude()
}
