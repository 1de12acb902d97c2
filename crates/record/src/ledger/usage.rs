//! Usage statistics from the audit log.

use std::collections::BTreeMap;

use fanlight_protocol::Json;

use crate::ledger::files::LedgerFiles;
use crate::ledger::query::{Filter, Unreadable, each};

/// The most rows of a usage table. Further usage is counted in one common row.
const ROWS: usize = 10_000;
/// About how many bytes of text are one token for a model.
const BYTES_OF_TOKEN: u64 = 4;

/// The key of a row: day, principal and item.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UseKey {
    /// The day, in UTC: `2026-11-25`.
    pub day: String,
    /// The principal; empty for clients that are not authenticated.
    pub principal: String,
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
        self.response_bytes / BYTES_OF_TOKEN
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
    for path in records.iter().flat_map(LedgerFiles::all) {
        each(&path, |line| {
            if filter.wants(&line) {
                count(&mut table, &line);
            }
        })?;
    }
    Ok(table)
}

fn count(table: &mut BTreeMap<UseKey, Use>, line: &Json) {
    let text = |member: &str| {
        line.peek(member)
            .and_then(|value| value.as_str())
            .unwrap_or_default()
            .into_owned()
    };
    let number = |member: &str| {
        line.get(member)
            .and_then(|value| u64::try_from(value.as_i64()?).ok())
            .unwrap_or_default()
    };
    let outcome = text("outcome");
    if text("event") != "request" || outcome == "decided" {
        return;
    }
    let (server, item) = (text("server"), text("item"));
    let what = match item.as_str() {
        "" => text("action"),
        item => format!("{server}/{item}"),
    };
    let day = text("time").get(..10).unwrap_or_default().to_owned();
    let mut key = UseKey {
        day,
        principal: text("principal"),
        what,
    };
    if table.len() >= ROWS && !table.contains_key(&key) {
        key = UseKey {
            day: key.day,
            principal: "others".to_owned(),
            what: "others".to_owned(),
        };
    }
    let row = table.entry(key).or_default();
    row.calls += 1;
    row.errors += u64::from(matches!(outcome.as_str(), "error" | "tool_error"));
    row.refused += u64::from(outcome == "refused");
    row.request_bytes += number("requestBytes");
    row.response_bytes += number("responseBytes");
}
