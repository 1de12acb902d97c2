//! Reads the whole list of one server: all pages, within a deadline.
//!
//! Lists can outlast the process, so that Fanlight need not start a server to list its entries. A
//! kept list is read as if the server had answered with its pages, with the same checks and limits.
//! It is used at most once: while the server's process is not running and nothing else is known of
//! the list. After the server has been connected, its own list replaces the kept one (`watch`).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{BackendClient, BackendError, Call, CallContext, Outcome};
use fanlight_protocol::Response;
use fanlight_protocol::json::{Json, Kind, MAX_NESTING, ObjectBuilder};
use fanlight_protocol::result::{AnyResult, ResultView as _};
use fanlight_protocol::secret::redacted_text;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, warn};

use super::ListKind;
use super::memory::ReservedBytes;
use super::needs::Needs;
use super::part::Loaded;
use super::starting::{Wait, late_error};
use crate::merge::Contribution;
use crate::{ListLimits, uri_places as places};

/// Reads one server's list with requests in `context`, or from the pages of an earlier run. A failure
/// loses no page that was read before it.
pub(super) async fn read_server(
    kind: ListKind,
    (backend, kept): (&dyn BackendClient, Option<&KeptPages>),
    wait: Wait,
    limits: &ListLimits,
    reserved: ReservedBytes,
    context: Arc<CallContext>,
) -> Loaded {
    let received = Instant::now();
    let (results, entries, expires) = (Vec::new(), 0, None);
    let declared = context.capabilities.clone();
    let limit = wait.time(backend, limits.timeout);
    let mut walk = Walk {
        kind,
        backend,
        kept,
        limits,
        limit,
        context,
        results,
        entries,
        reserved,
        received,
        expires,
    };
    let (outcome, reason) = match walk.run().await {
        Ok(()) => (Outcome::Ok, None),
        Err(failure) => {
            let (backend, list, reason) = (backend.name(), kind.member(), &failure.reason);
            match failure.outcome {
                // Nothing to log, or the server's supervisor has logged it.
                Outcome::Unreachable
                | Outcome::Unauthorized
                | Outcome::SignInNeeded
                | Outcome::Starting => {
                    debug!(backend, list, reason, "list is incomplete");
                }
                _ => warn!(backend, list, reason, "list is incomplete"),
            }
            (failure.outcome, Some(failure.reason))
        }
    };
    let Walk {
        results,
        reserved,
        received,
        expires,
        ..
    } = walk;
    let contribution = Contribution {
        backend: backend.name().to_owned(),
        outcome,
        reason,
        results,
        is_stale: false,
    };
    let names_uris = match kind {
        ListKind::Tools => contribution.results.iter().any(places::may_name_app),
        ListKind::Skills => !contribution.results.is_empty(),
        _ => false,
    };
    Loaded {
        contribution,
        received,
        expires,
        names_uris,
        read: received,
        reserved,
        kept_since: None,
        declared,
        changes: 0,
        needs: Needs::default(),
    }
}

struct Walk<'a> {
    kind: ListKind,
    backend: &'a dyn BackendClient,
    /// Set for a list of an earlier run.
    kept: Option<&'a KeptPages>,
    limits: &'a ListLimits,
    /// The time limit for reading all pages.
    limit: Duration,
    context: Arc<CallContext>,
    results: Vec<Json>,
    entries: usize,
    reserved: ReservedBytes,
    received: Instant,
    expires: Option<Instant>,
}

struct Failure {
    outcome: Outcome,
    reason: String,
}

impl Walk<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + self.limit;
        let own = CallContext::internal();
        let described = timeout_at(deadline, self.backend.describe(&own)).await;
        let description = described
            .map_err(|_| self.late_failure())?
            .map_err(to_failure)?;
        let all = description.capabilities().unwrap_or_default();
        let is_declared = self.kind.is_offered_by(&all);
        // Some servers declare nothing at all and have tools all the same.
        if !is_declared && (self.kind != ListKind::Tools || ListKind::is_any_offered_by(&all)) {
            return Ok(());
        }
        let mut seen = HashSet::new();
        let mut cursor = None;
        for _ in 0..self.limits.pages {
            let page = timeout_at(deadline, self.page(cursor.as_ref())).await;
            let result = match page.map_err(|_| self.late_failure()).flatten() {
                Err(_) if !is_declared => return Ok(()),
                page => page?,
            };
            // Any string is a cursor, the empty one too (server/utilities/pagination).
            let next = result
                .get("nextCursor")
                .filter(|next| next.kind() != Kind::Null);
            let entries = self.entries
                + result
                    .get(self.kind.member())
                    .map_or(0, |list| list.elements().count());
            // A short text can have very many entries, and each takes memory.
            if entries > self.limits.entries {
                return Err(self.too_many_entries());
            }
            self.reserved
                .grow(result.bytes().len(), self.limits.bytes)
                .map_err(|error| cut_short(&error.to_string()))?;
            self.note_expiry(&result);
            self.entries = entries;
            self.results.push(result);
            let Some(next) = next else { return Ok(()) };
            if next.kind() != Kind::String {
                return Err(cut_short("its `nextCursor` is no string"));
            }
            if self.entries == self.limits.entries {
                return Err(self.too_many_entries());
            }
            if !seen.insert(next.clone().into_bytes()) {
                return Err(cut_short("it repeated a cursor"));
            }
            cursor = Some(next);
        }
        Err(cut_short(&format!(
            "it has more than {} pages",
            self.limits.pages
        )))
    }

    /// The failure of a server that did not answer in time.
    fn late_failure(&self) -> Failure {
        to_failure(late_error(self.backend, self.limit))
    }

    fn too_many_entries(&self) -> Failure {
        cut_short(&format!("it has more than {} entries", self.limits.entries))
    }

    /// Counts the time of each page from its arrival (2026-07-28 server/utilities/caching,
    /// Interaction with Pagination). The first page that expires makes the whole list stale.
    fn note_expiry(&mut self, page: &Json) {
        let ttl = page
            .get("ttlMs")
            .and_then(|ttl| ttl.as_i64())
            .and_then(|ttl| u64::try_from(ttl).ok());
        self.received = Instant::now();
        let expires = ttl.and_then(|ttl| self.received.checked_add(Duration::from_millis(ttl)));
        self.expires = match self.results.is_empty() {
            true => expires,
            false => self
                .expires
                .zip(expires)
                .map(|(earlier, this)| earlier.min(this)),
        };
    }

    async fn page(&self, cursor: Option<&Json>) -> Result<Json, Failure> {
        let params = cursor.map(|cursor| ObjectBuilder::new().member("cursor", cursor).finish());
        let call = Call::new(self.kind.method(), params, Arc::clone(&self.context));
        let response = match self.kept {
            Some(kept) => kept.answer(&call),
            None => self.backend.request(call).await,
        };
        let response = response.map_err(to_failure)?;
        match response.view::<AnyResult>() {
            // Merging puts entries of several servers into one text. One invalid entry would break
            // all of it.
            Some(result) => {
                Json::parse(result.json().bytes().clone(), MAX_NESTING).map_err(|error| Failure {
                    outcome: Outcome::Error,
                    reason: format!("the list is not JSON: {error}"),
                })
            }
            None => Err(Failure {
                outcome: Outcome::Error,
                reason: answer_reason(&response.body()),
            }),
        }
    }
}

/// The reported reason for a server that answered with an error.
pub(crate) fn answer_reason(error: &Json) -> String {
    const LONGEST: usize = 200;
    let message = error.text_at("message").unwrap_or_default();
    let message: String = message.chars().take(LONGEST).collect();
    let code = error
        .get("code")
        .map(|code| code.as_text().to_owned())
        .unwrap_or_default();
    format!("answered with error {code}: {}", redacted_text(&message))
}

fn to_failure(error: BackendError) -> Failure {
    Failure {
        outcome: error.outcome(),
        reason: error.for_clients().to_string(),
    }
}

/// The reported reason for a list that was not read to its end.
pub(crate) fn cut_off(why: &str) -> String {
    format!("the list was cut off: {why}")
}

fn cut_short(why: &str) -> Failure {
    Failure {
        outcome: Outcome::Error,
        reason: cut_off(why),
    }
}

/// Whether a list read with the capabilities `declared` is good for `wanted` too: it lacks no
/// extension, and nothing else differs.
pub(super) fn covers(declared: &Json, wanted: &Json) -> bool {
    let is_covered = |member: &str, value: &Json| match (member, declared.get(member)) {
        ("extensions", Some(declared)) => value.members().all(|one| {
            one.name(value)
                .is_some_and(|id| declared.get(&id).is_some())
        }),
        (_, declared) => declared.as_ref() == Some(value),
    };
    declared.members().count() == wanted.members().count()
        && wanted.members().all(|member| {
            member
                .name(wanted)
                .is_some_and(|name| is_covered(&name, &wanted.slice(member.value.clone())))
        })
}

/// The pages of a list of an earlier run.
pub(super) struct KeptPages(pub(super) Vec<Json>);

impl KeptPages {
    /// The answer to a request for a page.
    pub(super) fn answer(&self, call: &Call) -> Result<Response, BackendError> {
        let cursor = call.params.as_ref().and_then(|params| params.get("cursor"));
        let page = self.page(cursor.as_ref()).map(Response::from_result);
        page.ok_or_else(|| BackendError::Malformed {
            reason: "the kept list lacks a page".to_owned(),
        })
    }

    /// The page after the one that ended with `cursor`.
    fn page(&self, cursor: Option<&Json>) -> Option<&Json> {
        let Some(cursor) = cursor else {
            return self.0.first();
        };
        let ends_with_it = |page: &Json| {
            page.get("nextCursor")
                .filter(|next| next.kind() == Kind::String)
                .as_ref()
                == Some(cursor)
        };
        let position = self.0.iter().position(ends_with_it)?;
        self.0.get(position + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_read_with_more_extensions_covers_one_with_fewer() {
        let json = |text: &'static str| Json::literal(text);
        let few = json(r#"{"roots":{},"extensions":{"a/a":{}}}"#);
        let more = json(r#"{"roots":{},"extensions":{"b/b":{},"a/a":{}}}"#);
        assert!(covers(&few, &few) && covers(&more, &few) && !covers(&few, &more));
        assert!(!covers(&json(r#"{"extensions":{"a/a":{}}}"#), &few));
        assert!(!covers(
            &json(r#"{"roots":{},"sampling":{},"extensions":{"a/a":{}}}"#),
            &few
        ));
        assert!(!covers(
            &json(r#"{"roots":{"x":1},"extensions":{"a/a":{}}}"#),
            &few
        ));
        assert!(!covers(&json("7"), &few));
    }
}
