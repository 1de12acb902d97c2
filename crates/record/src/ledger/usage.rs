//! Usage statistics from the audit log.

use std::collections::{BTreeMap, BTreeSet};

use fanlight_protocol::{Json, estimated_tokens};

use crate::ledger::files::LedgerFiles;
use crate::ledger::query::{Filter, Unreadable, count_at, each};

/// The most rows of a usage table. Further usage is counted in one common row.
const ROWS: usize = 10_000;

/// The key of a row: day, principal, client and item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UseKey {
    /// The day, in UTC: `2026-11-25`.
    pub day: String,
    /// The principal; empty for clients that are not authenticated.
    pub principal: String,
    /// The name and version that the client declares.
    pub client: String,
    /// `server/item`, or the method of a request that names nothing.
    pub what: String,
}

/// The amount of use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// The number of requests.
    pub calls: u64,
    /// The requests that ended with an error, including errors of tools.
    pub errors: u64,
    /// The requests that were refused.
    pub refused: u64,
    /// The size of the parameters in bytes.
    pub request_bytes: u64,
    /// The size of the results in bytes.
    pub response_bytes: u64,
}

impl Use {
    /// The estimated number of tokens of the results for a model.
    pub fn estimated_tokens(&self) -> u64 {
        estimated_tokens(usize::try_from(self.response_bytes).unwrap_or(usize::MAX)) as u64
    }
}

/// The usage in the lines that `filter` selects.
///
/// # Errors
///
/// If a file cannot be read.
pub fn usage(
    records: &[LedgerFiles],
    filter: &Filter,
) -> Result<BTreeMap<UseKey, Use>, Unreadable> {
    let mut table = BTreeMap::new();
    for path in records.iter().flat_map(LedgerFiles::list) {
        each(&path, |line| {
            if filter.wants(&line) {
                count(&mut table, &line);
            }
        })?;
    }
    Ok(table)
}

fn count(table: &mut BTreeMap<UseKey, Use>, line: &Json) {
    let text = |member| line.text_at(member).unwrap_or_default();
    let number = |member| count_at(line, member).unwrap_or_default();
    let outcome = text("outcome");
    if text("event") != "request" || outcome == "decided" {
        return;
    }
    let (server, item) = (text("server"), text("item"));
    // A client may invent any number of names. They share a row, which leaves others theirs.
    let what = if item.is_empty() || (server.is_empty() && outcome != "ok") {
        text("action")
    } else {
        format!("{server}/{item}")
    };
    let day = text("time").get(..10).unwrap_or_default().to_owned();
    let mut key = UseKey {
        day,
        principal: text("principal"),
        client: text("client"),
        what,
    };
    if table.len() >= ROWS && !table.contains_key(&key) {
        let others = || "others".to_owned();
        key = UseKey {
            day: key.day,
            principal: others(),
            client: String::new(),
            what: others(),
        };
    }
    let row = table.entry(key).or_default();
    row.calls += 1;
    row.errors += u64::from(matches!(outcome.as_str(), "error" | "tool_error"));
    row.refused += u64::from(outcome == "refused");
    row.request_bytes += number("requestBytes");
    row.response_bytes += number("responseBytes");
}

/// The calls of tools on record.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// The time of the oldest line; `None` if there is none.
    pub since: Option<String>,
    /// The endpoint of each called tool, and its `server/item`.
    pub tools: BTreeSet<(String, String)>,
}

/// The calls of tools that were carried out.
///
/// # Errors
///
/// If a file cannot be read.
pub fn calls(records: &[LedgerFiles]) -> Result<Calls, Unreadable> {
    let mut calls = Calls::default();
    for path in records.iter().flat_map(LedgerFiles::list) {
        each(&path, |line| {
            let text = |member| line.text_at(member).unwrap_or_default();
            let time = Some(text("time")).filter(|time| !time.is_empty());
            calls.since = calls.since.take().into_iter().chain(time).min();
            let has_run = !matches!(&*text("outcome"), "refused" | "not_run" | "decided");
            if text("event") == "request" && text("action") == "tools/call" && has_run {
                let tool = format!("{}/{}", text("server"), text("item"));
                calls.tools.insert((text("endpoint"), tool));
            }
        })?;
    }
    Ok(calls)
}
