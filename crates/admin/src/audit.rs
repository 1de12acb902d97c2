//! The record of who signed in, who was refused and who changed what: lines of the log with the target `audit`, and counts
//! in the metrics. Neither has a secret.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::Request;
use axum::response::Response;
use fanlight_credentials::{Authenticate, Authentication, Credentials, Denial};
use fanlight_fair::LogLimit;
use fanlight_protocol::visible;
use fanlight_telemetry::metrics::{Family, FamilyInfo, Point, Shape, Values};
use tracing::{info, warn};

use crate::operator::{Denied, Operator};

/// Most lines about refusals in ten seconds; the next line says how many there were besides. No option: metrics count each.
const LINES: u32 = 20;

/// Most characters of a path or a name in a line.
const LONGEST: usize = 200;

const SIGN_INS: FamilyInfo = FamilyInfo {
    name: "fanlight.auth.sign_ins",
    unit: "{sign_in}",
    help: "Sign-ins of operators.",
    shape: Shape::Counter,
    labels: &["method", "outcome"],
};
const REFUSALS: FamilyInfo = FamilyInfo {
    name: "fanlight.auth.refusals",
    unit: "{request}",
    help: "Requests that were not authenticated or not allowed.",
    shape: Shape::Counter,
    labels: &["listener", "reason"],
};
const OPERATOR_SESSIONS: FamilyInfo = FamilyInfo {
    name: "fanlight.auth.operator_sessions",
    unit: "{session}",
    help: "Operators who are signed in to the page.",
    shape: Shape::Gauge,
    labels: &[],
};

/// Records who signed in, who was refused and who changed what.
#[derive(Debug)]
pub struct Audit {
    counts: Mutex<State>,
    /// Bounds the lines that anybody can cause.
    lines: LogLimit,
}

impl Default for Audit {
    fn default() -> Self {
        Self { counts: Mutex::default(), lines: LogLimit::new(LINES) }
    }
}

#[derive(Debug, Default)]
struct State {
    /// By the method of sign-in and its outcome.
    sign_ins: BTreeMap<(&'static str, &'static str), u64>,
    /// By the listener, and the reason.
    refusals: BTreeMap<(&'static str, &'static str), u64>,
}

/// A change that an operator asks for.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The path of the request, which names it.
    what: String,
}

impl Change {
    pub(crate) fn of(request: &Request) -> Self {
        Self { what: shown(request.uri().path()) }
    }
}

/// What a change was about, in the extensions of its response, where the path does not say it.
#[derive(Clone, Debug)]
pub(crate) struct About(pub(crate) String);

impl Audit {
    /// An operator has signed in or out.
    pub(crate) fn signed(
        &self,
        what: &'static str,
        method: &'static str,
        operator: &Operator,
        peer: Option<SocketAddr>,
    ) {
        if what == "sign-in" {
            self.count(method, "accepted");
        }
        let (who, source, role) = (shown(&operator.name), operator.source, operator.role.as_str());
        info!(target: "audit", what, who, source, role, outcome = "done", peer = peer.map(tracing::field::display), "operator: {what}");
    }

    /// Credentials with which an operator wanted to sign in were refused.
    pub(crate) fn sign_in_refused(&self, method: &'static str, denied: &Denied, peer: Option<SocketAddr>) {
        self.count(method, "refused");
        self.refusal("sign-in", denied, peer);
    }

    /// A request was refused since it does not show who makes it.
    pub(crate) fn refused(&self, denied: &Denied, peer: Option<SocketAddr>) {
        self.refusal("request", denied, peer);
    }

    fn refusal(&self, what: &'static str, denied: &Denied, peer: Option<SocketAddr>) {
        let reason = denied.reason();
        // A page that is opened, or left open, without a session is no attempt.
        let is_silent = matches!(denied, Denied::Missing | Denied::SessionOver);
        let Some(omitted) = self.count_refusal("admin", reason, is_silent) else { return };
        let who = match denied {
            Denied::NoRole(name) => Some(shown(name)),
            _ => None,
        };
        let peer = peer.map(tracing::field::display);
        warn!(target: "audit", what, who, outcome = "refused", reason, peer, omitted, "operator not authenticated: {reason}");
    }

    /// An operator's role does not allow the request.
    pub(crate) fn not_allowed(&self, operator: &Operator, path: &str, peer: Option<SocketAddr>) {
        let Some(omitted) = self.count_refusal("admin", "role", false) else { return };
        let (what, who, source, role) = (shown(path), shown(&operator.name), operator.source, operator.role.as_str());
        let peer = peer.map(tracing::field::display);
        warn!(target: "audit", what, who, source, role, outcome = "refused", reason = "role", peer, omitted, "not allowed to a {role}");
    }

    /// An operator has asked for a change.
    pub(crate) fn changed(&self, operator: &Operator, change: Change, response: &Response, peer: Option<SocketAddr>) {
        let (who, source, role) = (shown(&operator.name), operator.source, operator.role.as_str());
        let about = response.extensions().get::<About>().map(|about| shown(&about.0));
        let status = response.status().as_u16();
        let outcome = if response.status().is_success() { "done" } else { "failed" };
        let (what, peer) = (change.what, peer.map(tracing::field::display));
        info!(target: "audit", what, about, who, source, role, outcome, status, peer, "change by an operator");
    }

    /// A client of the listener for clients was refused.
    fn client_refused(&self, denial: &Denial, credentials: &Credentials<'_>) {
        let reason = match denial {
            Denial::Missing => "missing",
            Denial::Malformed(_) => "malformed",
            Denial::Invalid(_) => "invalid",
            Denial::Forbidden(_) => "forbidden",
            Denial::Throttled { .. } => "throttled",
            Denial::Unavailable(_) => "unavailable",
        };
        // Clients begin without credentials, to learn which they need.
        let Some(omitted) = self.count_refusal("clients", reason, *denial == Denial::Missing) else { return };
        let (endpoint, text) = (shown(credentials.endpoint), shown(&denial.to_string()));
        let peer = credentials.connection.peer.map(tracing::field::display);
        warn!(target: "audit", what = "request", endpoint, outcome = "refused", reason, text, peer, omitted, "client not authenticated: {reason}");
    }

    fn count(&self, method: &'static str, outcome: &'static str) {
        *self.state().sign_ins.entry((method, outcome)).or_default() += 1;
    }

    /// Counts a refusal; how many lines were omitted before the line about it, if there is to be one.
    fn count_refusal(&self, listener: &'static str, reason: &'static str, is_silent: bool) -> Option<u64> {
        let mut state = self.state();
        *state.refusals.entry((listener, reason)).or_default() += 1;
        if is_silent { None } else { self.lines.admit() }
    }

    /// The counts, and the number of `sessions` of operators.
    pub(crate) fn metrics(&self, sessions: usize) -> [Family; 3] {
        let state = self.state();
        let sessions = vec![(Vec::new(), Values::Integer(i64::try_from(sessions).unwrap_or(i64::MAX)))];
        [
            Family { info: &SIGN_INS, points: points(&state.sign_ins, SIGN_INS.labels) },
            Family { info: &REFUSALS, points: points(&state.refusals, REFUSALS.labels) },
            Family { info: &OPERATOR_SESSIONS, points: sessions },
        ]
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under this lock.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The values of counts by two labels.
fn points(counts: &BTreeMap<(&'static str, &'static str), u64>, labels: &[&'static str]) -> Vec<Point> {
    let point = |((one, other), count): (&(&str, &str), &u64)| {
        let values = [*one, *other].map(str::to_owned);
        (labels.iter().copied().zip(values).collect(), Values::Integer(i64::try_from(*count).unwrap_or(i64::MAX)))
    };
    counts.iter().map(point).collect()
}

/// A text of a peer on one line, with an end.
fn shown(text: &str) -> String {
    let escaped = visible::escaped(text);
    match escaped.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", escaped.get(..end).unwrap_or_default()),
        None => escaped.into_owned(),
    }
}

/// Authenticates clients by another [`Authenticate`], and records whom it refuses.
#[derive(Debug)]
pub struct AuditedAuthentication {
    inner: Arc<dyn Authenticate>,
    audit: Arc<Audit>,
}

impl AuditedAuthentication {
    /// Records what `inner` refuses.
    #[must_use]
    pub fn new(inner: Arc<dyn Authenticate>, audit: Arc<Audit>) -> Self {
        Self { inner, audit }
    }
}

impl Authenticate for AuditedAuthentication {
    fn authenticate<'a>(&'a self, credentials: &Credentials<'a>) -> Authentication<'a> {
        match self.inner.authenticate(credentials) {
            Authentication::Ready(outcome) => {
                outcome.as_ref().err().into_iter().for_each(|denial| self.audit.client_refused(denial, credentials));
                Authentication::Ready(outcome)
            }
            Authentication::Pending(pending) => {
                let credentials = *credentials;
                Authentication::Pending(Box::pin(async move {
                    let outcome = pending.await;
                    outcome
                        .as_ref()
                        .err()
                        .into_iter()
                        .for_each(|denial| self.audit.client_refused(denial, &credentials));
                    outcome
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fanlight_credentials::ConnectionFacts;
    use fanlight_identity::Identity;
    use http::HeaderMap;

    use super::*;

    #[derive(Debug)]
    struct Refuses(bool);

    impl Authenticate for Refuses {
        fn authenticate<'a>(&'a self, credentials: &Credentials<'a>) -> Authentication<'a> {
            let denial = || Denial::Invalid("no".into());
            match (credentials.endpoint, self.0) {
                ("/open", _) => Authentication::Ready(Ok(Arc::new(Identity::anonymous()))),
                (_, true) => Authentication::Pending(Box::pin(async move { Err(denial()) })),
                (_, false) => Authentication::Ready(Err(denial())),
            }
        }
    }

    #[tokio::test]
    async fn refused_clients_are_counted_whether_at_once_or_later() {
        let audit = Arc::new(Audit::default());
        for is_later in [false, true] {
            let audited = AuditedAuthentication::new(Arc::new(Refuses(is_later)), Arc::clone(&audit));
            let (headers, connection) = (HeaderMap::new(), ConnectionFacts::default());
            for (endpoint, is_served) in [("/mcp", false), ("/open", true)] {
                let credentials = Credentials { headers: &headers, connection: &connection, client: None, endpoint };
                assert_eq!(audited.authenticate(&credentials).outcome().await.is_ok(), is_served);
            }
        }
        let text = fanlight_telemetry::metrics::prometheus(&audit.metrics(3));
        assert!(text.contains("fanlight_auth_refusals_total{listener=\"clients\",reason=\"invalid\"} 2\n"), "{text}");
        assert!(text.contains("fanlight_auth_operator_sessions 3\n"), "{text}");
    }

    #[test]
    fn names_are_shown_on_one_line_with_an_end() {
        assert!(!shown("a\nfake line\u{1b}[31m").contains(['\n', '\u{1b}']));
        assert!(shown(&"x".repeat(10_000)).chars().count() <= LONGEST + 1);
    }
}
