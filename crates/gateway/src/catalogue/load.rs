//! Reading the whole list of every backend: all at once, each within its own time, all pages.
//!
//! Must not know: names, collisions, or what the entries are for.

use std::collections::HashSet;
use std::time::Duration;

use fanlight_backend::{BackendClient, BackendError, Call, CallContext, Outcome, ServerMessages};
use fanlight_protocol::json::{Json, Kind, ObjectBuilder};
use fanlight_protocol::result::{AnyResult, ResultView as _};
use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, warn};

use super::{ListKind, Sources};
use crate::merge::Contribution;
use crate::settings::ListLimits;

/// The lists of all backends, in configuration order.
pub(super) async fn all(kind: ListKind, sources: &Sources) -> Vec<Contribution> {
    join_all(sources.backends.iter().map(|backend| one(kind, backend.client.as_ref(), &sources.limits))).await
}

/// One backend's list. What it gave before it failed is kept.
pub(super) async fn one(kind: ListKind, backend: &dyn BackendClient, limits: &ListLimits) -> Contribution {
    let mut walk = Walk { kind, backend, limits, results: Vec::new(), entries: 0 };
    let (outcome, reason) = match walk.run().await {
        Ok(()) => (Outcome::Ok, None),
        Err(failure) => {
            let (backend, list, reason) = (backend.name(), kind.member(), &failure.reason);
            match failure.outcome {
                // Its supervisor has said so already, once.
                Outcome::Unreachable | Outcome::Unauthorized => debug!(backend, list, reason, "list is incomplete"),
                _ => warn!(backend, list, reason, "list is incomplete"),
            }
            (failure.outcome, Some(failure.reason))
        }
    };
    Contribution { backend: backend.name().to_owned(), outcome, reason, results: walk.results }
}

struct Walk<'a> {
    kind: ListKind,
    backend: &'a dyn BackendClient,
    limits: &'a ListLimits,
    results: Vec<Json>,
    entries: usize,
}

struct Failure {
    outcome: Outcome,
    reason: String,
}

impl Walk<'_> {
    async fn run(&mut self) -> Result<(), Failure> {
        let deadline = Instant::now() + self.limits.timeout;
        let described = timeout_at(deadline, self.backend.describe()).await;
        let description = described.map_err(|_| timed_out(self.limits.timeout))?.map_err(failed)?;
        if description.capabilities().is_none_or(|all| all.get(self.kind.capability()).is_none()) {
            return Ok(());
        }
        let mut seen = HashSet::new();
        let mut cursor = None;
        for _ in 0..self.limits.pages {
            let page = timeout_at(deadline, self.page(cursor.as_ref())).await;
            let result = page.map_err(|_| timed_out(self.limits.timeout))??;
            // Any string is a cursor, the empty one too (server/utilities/pagination).
            let next = result.get("nextCursor").filter(|next| next.kind() == Kind::String);
            self.entries += result.get(self.kind.member()).map_or(0, |list| list.elements().count());
            self.results.push(result);
            let Some(next) = next else { return Ok(()) };
            if self.entries >= self.limits.entries {
                return Err(left_off(&format!("more than {} entries", self.limits.entries)));
            }
            if !seen.insert(next.clone().into_bytes()) {
                return Err(left_off("it repeated a cursor"));
            }
            cursor = Some(next);
        }
        Err(left_off(&format!("more than {} pages", self.limits.pages)))
    }

    async fn page(&self, cursor: Option<&Json>) -> Result<Json, Failure> {
        let params = cursor.map(|cursor| {
            let mut params = ObjectBuilder::new();
            params.member("cursor", cursor);
            params.finish()
        });
        let call = Call {
            method: self.kind.method(),
            params,
            context: CallContext::internal(),
            messages: ServerMessages::nowhere(),
        };
        let response = self.backend.request(call).await.map_err(failed)?;
        match response.view::<AnyResult>() {
            Some(result) => Ok(result.json().clone()),
            None => Err(Failure { outcome: Outcome::Error, reason: answered(&response.body()) }),
        }
    }
}

/// What is said of a backend that answered with an error.
pub(crate) fn answered(error: &Json) -> String {
    const LONGEST: usize = 200;
    let message = error.get("message").and_then(|message| message.as_str().map(|text| text.into_owned()));
    let message: String = message.unwrap_or_default().chars().take(LONGEST).collect();
    let code = error.get("code").map(|code| code.as_text().to_owned()).unwrap_or_default();
    format!("answered with error {code}: {message}")
}

fn failed(error: BackendError) -> Failure {
    Failure { outcome: error.outcome(), reason: error.to_string() }
}

fn timed_out(after: Duration) -> Failure {
    failed(BackendError::Timeout { after, sent: true })
}

/// What is said of a backend whose list is not read to its end.
pub(crate) fn cut_off(why: &str) -> String {
    format!("the list was cut off: {why}")
}

fn left_off(why: &str) -> Failure {
    Failure { outcome: Outcome::Error, reason: cut_off(why) }
}
