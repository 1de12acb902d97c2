//! `/api/audit` and `/api/usage`: who called what, and how often, from the files of the audit log.

use std::sync::Arc;

use axum::extract::State;
use fanlight_record::ledger::{Filter, LedgerFiles, Unreadable, Use, UseKey, read, usage};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tracing::warn;

use super::{Answer, Query};
use crate::{Admin, AdminState, Refusal, Verbatim, answer};

const DEFAULT: usize = 100;
const MOST: usize = 1000;
/// The limit of simultaneous readers of files.
static READERS: Semaphore = Semaphore::const_new(2);

answers! {
    /// Entries of the audit log.
    pub(crate) struct AuditEntries {
        /// Whether there is an audit log.
        recording: bool,
        /// Entries that this process could not write.
        lost: u64,
        /// Entries and checkpoints that this process could not send to the collector.
        not_exported: u64,
        /// The entries, newest first.
        #[cfg_attr(test, schema(value_type = Vec<serde_json::Value>))]
        entries: Vec<Verbatim>,
    }

    /// Usage by clients.
    pub(crate) struct UsageTable {
        /// Whether there is an audit log.
        recording: bool,
        usage: Vec<UsageRow>,
    }

    /// One client's use of one item on one day.
    struct UsageRow {
        /// The day in UTC.
        day: String,
        /// The issuer, `#` and the subject; empty for clients that are not authenticated.
        principal: String,
        /// The name and version that the client declares, which nothing proves.
        client: String,
        /// `server/item`, or the method of a request without an item.
        what: String,
        calls: u64,
        /// Calls that ended with an error, including errors of the tool.
        errors: u64,
        refused: u64,
        request_bytes: u64,
        response_bytes: u64,
        /// The estimated number of the results' tokens for a model: their bytes by 4.3.
        estimated_tokens: u64,
    }
}

/// The newest entries that match the query.
pub(super) async fn entries(State(admin): AdminState, query: Query) -> Answer {
    let filter = filter(&query)?;
    let limit = query.number("limit", DEFAULT, MOST)?;
    let Some(files) = files(&admin) else {
        return Ok(answer(&AuditEntries {
            recording: false,
            lost: 0,
            not_exported: 0,
            entries: Vec::new(),
        }));
    };
    let ledger = admin
        .subject
        .audit_log
        .files()
        .map(|kept| Arc::clone(&kept.ledger));
    let lost = ledger.as_ref().map_or(0, |ledger| ledger.counts().lost);
    let not_exported = ledger
        .and_then(|ledger| ledger.mirror_counts())
        .map_or(0, |mirrored| mirrored.lost);
    let lines = reading(move || read(&files, &filter, limit)).await?;
    let entries = lines.into_iter().map(Verbatim).collect();
    Ok(answer(&AuditEntries {
        recording: true,
        lost,
        not_exported,
        entries,
    }))
}

/// The usage in the entries that match the query.
pub(super) async fn used(State(admin): AdminState, query: Query) -> Answer {
    let filter = filter(&query)?;
    let Some(files) = files(&admin) else {
        return Ok(answer(&UsageTable {
            recording: false,
            usage: Vec::new(),
        }));
    };
    let table = reading(move || usage(&files, &filter)).await?;
    let row = |(key, row): (UseKey, Use)| UsageRow {
        day: key.day,
        principal: key.principal,
        client: key.client,
        what: key.what,
        calls: row.calls,
        errors: row.errors,
        refused: row.refused,
        request_bytes: row.request_bytes,
        response_bytes: row.response_bytes,
        estimated_tokens: row.estimated_tokens(),
    };
    Ok(answer(&UsageTable {
        recording: true,
        usage: table.into_iter().map(row).collect(),
    }))
}

fn files(admin: &Admin) -> Option<Vec<LedgerFiles>> {
    Some(admin.subject.audit_log.files()?.files())
}

/// Reads files, in a few requests at a time.
async fn reading<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, Unreadable> + Send + 'static,
) -> Result<T, Refusal> {
    let unreadable = || Refusal::unavailable("cannot read the audit log; Fanlight's log says why");
    let _turn = READERS.acquire().await.map_err(|_| unreadable())?;
    let done = spawn_blocking(read).await.map_err(|_| unreadable())?;
    done.map_err(|error| {
        warn!(%error, "the audit log cannot be read");
        unreadable()
    })
}

fn filter(query: &Query) -> Result<Filter, Refusal> {
    Ok(Filter {
        principal: query.text("principal")?,
        server: query.text("server")?,
        item: query.text("tool")?,
        action: query.text("action")?,
        outcome: query.text("outcome")?,
        task: query.text("task")?,
        since: query.time("since")?,
        until: query.time("until")?,
    })
}
