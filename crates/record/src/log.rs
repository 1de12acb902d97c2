//! The audit log as log lines with the target `audit`, and as counts in metrics. Neither contains
//! secrets.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use fanlight_canonical::{Decidable, Endpoint, Identity, Item, Principal};
use fanlight_credentials::{Credentials, Denial};
use fanlight_fair::LogLimit;
use fanlight_protocol::visible;
use fanlight_telemetry::metrics::{Family, FamilyInfo};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tracing::field::display;
use tracing::{info, warn};

use crate::ledger::Written;
use crate::{
    Acknowledged, Actor, ArgumentsKept, AuditEvent, ConnectionChange, DeniedOperator, KeptRecord,
    KeptRequests, NotRecorded, PinnedDefinition, Record, RecordedRequest, RequestEnd,
};

/// The most lines about refusals in [`WINDOW`]. The next line of the same party tells how many of
/// its lines were omitted. No option: metrics count all.
const LINES: u32 = 1000;

/// The most entries in [`WINDOW`] that anybody can cause. In a week they fill half of the default
/// size of the files.
const KEPT_LINES: u32 = 120;

/// The part of these lines that one party can cause.
const PART: u32 = 10;

const WINDOW: Duration = Duration::from_secs(600);

/// The most characters of a path or a name in a line.
const LONGEST: usize = 200;

const SIGN_INS: FamilyInfo = FamilyInfo::counter(
    "fanlight.auth.sign_ins",
    "{sign_in}",
    "Sign-ins of operators.",
    &["method", "outcome"],
);
const REFUSALS: FamilyInfo = FamilyInfo::counter(
    "fanlight.auth.refusals",
    "{request}",
    "Requests that were not authenticated or not allowed.",
    &["listener", "reason"],
);

const ENTRIES: FamilyInfo = FamilyInfo::counter(
    "fanlight.audit.entries",
    "{entry}",
    "Entries of the audit log in files.",
    &["outcome"],
);

const EXPORTED: FamilyInfo = FamilyInfo::counter(
    "fanlight.audit.exported",
    "{record}",
    "Entries and checkpoints of the audit log that reached the collector as log records, or were lost on the way.",
    &["outcome"],
);

/// Logs sign-ins, refusals and changes by operators. Permitted requests of clients are in traces
/// instead.
#[derive(Debug)]
pub struct AuditLog {
    counts: Mutex<Counts>,
    /// Limits the lines that anybody can cause.
    lines: LogLimit,
    /// Limits the entries in files that anybody can cause.
    kept_lines: LogLimit,
    /// The audit log in files; `None` without one.
    kept: ArcSwapOption<KeptRecord>,
    /// Take what waits for somebody.
    notices: ArcSwap<Vec<mpsc::Sender<Notice>>>,
}

/// Something that waits for somebody.
#[derive(Clone, Debug)]
pub struct Notice {
    /// `approval`, `pin` or `serverDown`.
    pub event: &'static str,
    /// The time since which it waits.
    pub at: SystemTime,
    /// The facts, without arguments and secrets.
    pub data: Vec<(&'static str, String)>,
}

impl Default for AuditLog {
    fn default() -> Self {
        let limit = |lines| LogLimit::new(lines / PART, WINDOW).with_total(lines);
        Self {
            counts: Mutex::default(),
            lines: limit(LINES),
            kept_lines: limit(KEPT_LINES),
            kept: ArcSwapOption::empty(),
            notices: ArcSwap::default(),
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    /// The counts of sign-ins, by method and result.
    sign_ins: Pairs,
    /// The counts of refusals, by listener and reason.
    refusals: Pairs,
}

/// The log takes every event. It counts lines that it cannot write.
impl Record for AuditLog {
    fn record(&self, event: &AuditEvent<'_>) -> Result<(), NotRecorded> {
        if let Some(kept) = &*self.kept.load() {
            kept.add(event, &self.kept_lines);
        }
        match event {
            AuditEvent::Decided {
                client,
                endpoint,
                subject,
                refused: None,
            } => {
                if subject
                    .verdict()
                    .is_some_and(|verdict| verdict.outcome.is_denial())
                {
                    self.client_not_allowed(client, endpoint, *subject, "policy");
                }
            }
            AuditEvent::ChangeAsked { .. } => {}
            AuditEvent::Decided {
                client,
                endpoint,
                subject,
                refused: Some(refused),
            } => {
                self.client_not_allowed(client, endpoint, *subject, refused.reason);
            }
            AuditEvent::Approval {
                client,
                tool,
                id,
                outcome,
            } => {
                approval(*client, tool, id, outcome);
                // Nobody else is asked if the client asks its user.
                if *outcome == "asked" && *id != "client" {
                    let who = client.map(|client| ("who", &*client.name));
                    let about = [("server", tool.server), ("tool", &*tool.name), ("id", id)];
                    self.tell("approval", about.into_iter().chain(who));
                }
            }
            AuditEvent::Definition(pinned) => {
                definition(pinned);
                if pinned.outcome == "held" {
                    let PinnedDefinition {
                        server, kind, name, ..
                    } = *pinned;
                    self.tell("pin", [("server", server), ("kind", kind), ("name", name)]);
                }
            }
            AuditEvent::Connection(change) => self.connection(change),
            AuditEvent::ClientDenied {
                denial,
                credentials,
            } => self.client_denied(denial, credentials),
            AuditEvent::SignedIn { operator, method } => {
                self.count(method, "accepted");
                signed("sign-in", operator);
            }
            AuditEvent::SignedOut { operator } => signed("sign-out", operator),
            AuditEvent::SignInDenied { method, denied } => {
                self.count(method, "refused");
                self.operator_denied("sign-in", denied);
            }
            AuditEvent::OperatorDenied(denied) => self.operator_denied("request", denied),
            AuditEvent::RoleDenied { operator, path } => self.role_denied(operator, path),
            AuditEvent::Changed {
                operator,
                path,
                about,
                status,
            } => changed(operator, path, *about, *status),
        }
        Ok(())
    }

    fn keeps_requests(&self) -> Option<KeptRequests> {
        let kept = self.kept.load();
        let KeptRecord {
            arguments,
            is_required,
            ..
        } = **kept.as_ref()?;
        Some(KeptRequests {
            arguments: arguments != ArgumentsKept::None,
            definitions: arguments == ArgumentsKept::Full,
            announced: is_required,
        })
    }

    fn begins(&self, request: &RecordedRequest<'_>) -> Result<Option<Acknowledged>, NotRecorded> {
        self.kept
            .load()
            .as_ref()
            .map_or(Ok(None), |kept| kept.begins(request))
    }

    fn record_end(&self, request: &RecordedRequest<'_>, end: &RequestEnd<'_>, duration: Duration) {
        if let Some(kept) = &*self.kept.load() {
            kept.record_end(request, end, duration);
        }
    }
}

impl AuditLog {
    /// Sets or removes the audit log in files.
    pub fn keep(&self, kept: Option<KeptRecord>) {
        self.kept.store(kept.map(Arc::new));
    }

    /// Replaces the receivers of notices about calls and definitions that wait for somebody.
    pub fn notify(&self, receivers: Vec<mpsc::Sender<Notice>>) {
        self.notices.store(Arc::new(receivers));
    }

    /// Tells all receivers that something waits. Never blocks; a receiver with a full queue is not
    /// told.
    pub fn tell<'a>(
        &self,
        event: &'static str,
        data: impl IntoIterator<Item = (&'static str, &'a str)>,
    ) {
        let receivers = self.notices.load();
        if receivers.is_empty() {
            return;
        }
        let data = data.into_iter().map(|(name, text)| (name, one_line(text)));
        let notice = Notice {
            event,
            at: SystemTime::now(),
            data: data.collect(),
        };
        for receiver in &**receivers {
            if receiver.try_send(notice.clone()).is_err() {
                warn!(
                    event,
                    "a webhook of `notify` is not told: too much waits for it"
                );
            }
        }
    }

    /// The audit log in files, if there is one.
    pub fn files(&self) -> Option<Arc<KeptRecord>> {
        self.kept.load_full()
    }

    /// Records that a user is about to be connected to a server, if such a line is required before.
    /// Must not block.
    ///
    /// # Errors
    ///
    /// If it cannot be recorded. Then the user is not connected.
    pub fn connects(
        &self,
        change: &ConnectionChange<'_>,
    ) -> Result<Option<Acknowledged>, NotRecorded> {
        self.kept
            .load()
            .as_ref()
            .map_or(Ok(None), |kept| kept.connects(change))
    }

    /// Logs a change of a user's grant at a server.
    fn connection(&self, change: &ConnectionChange<'_>) {
        let ConnectionChange {
            principal,
            server,
            action,
            outcome,
            reason,
        } = *change;
        let what = match action {
            "signIn" => "sign-in at a server",
            "keyDeposit" => "key for a server",
            "signOut" => "sign-out at a server",
            _ => "end of a grant",
        };
        let who = principal.map(|principal| one_line(&principal.describe()));
        let (about, reason) = (one_line(server), reason.map(one_line));
        if outcome == "ok" {
            info!(target: "audit", what, about, who, outcome = "done", reason, "user: {what}");
        } else if let Some(omitted) = self.lines.admit(&who) {
            warn!(target: "audit", what, about, who, outcome, reason, omitted, "user: {what}: {outcome}");
        }
    }

    /// Logs that a client lacks a right.
    fn client_not_allowed(
        &self,
        client: &Identity,
        endpoint: &Endpoint,
        subject: &dyn Decidable,
        reason: &'static str,
    ) {
        let Some(omitted) = self.count_refusal("clients", reason, true, &client.principal) else {
            return;
        };
        let what = one_line(subject.method().as_str());
        let about = subject
            .tool()
            .map(|Item { server, name }| one_line(&format!("{server}/{name}")));
        let (who, source, groups) = (
            one_line(&client.name),
            client.source.as_str(),
            one_line(&client.groups.join(",")),
        );
        let endpoint = endpoint.path().map(|path| one_line(path));
        let about = about.or_else(|| subject.shown_name().map(|name| one_line(&name)));
        let policies = subject
            .verdict()
            .map(|verdict| one_line(&verdict.policies.join(", ")));
        warn!(target: "audit", what, about, policies, who, source, groups, endpoint, outcome = "refused", reason, omitted, "not allowed to a client: {reason}");
    }

    /// Logs that a client was not authenticated.
    fn client_denied(&self, denial: &Denial, credentials: &Credentials<'_>) {
        let reason = match denial {
            Denial::Missing => "missing",
            Denial::Malformed(_) => "malformed",
            Denial::Invalid(_) => "invalid",
            Denial::InvalidProof(_) => "proof",
            Denial::Forbidden(_) => "forbidden",
            Denial::Throttled { .. } => "throttled",
            Denial::Unavailable(_) => "unavailable",
        };
        // Clients begin without credentials, to learn which ones they need.
        let is_attempt = *denial != Denial::Missing;
        let party = credentials.client;
        let Some(omitted) = self.count_refusal("clients", reason, is_attempt, party) else {
            return;
        };
        let (endpoint, text) = (
            one_line(credentials.endpoint),
            one_line(&denial.to_string()),
        );
        let peer = credentials.connection.peer.map(display);
        warn!(target: "audit", what = "request", endpoint, outcome = "refused", reason, text, peer, omitted, "client not authenticated: {reason}");
    }

    fn operator_denied(&self, what: &'static str, denied: &DeniedOperator<'_>) {
        let DeniedOperator {
            reason,
            name,
            principal,
            is_attempt,
            peer,
        } = *denied;
        let party = peer.map(|peer| peer.ip());
        let Some(omitted) = self.count_refusal("admin", reason, is_attempt, party) else {
            return;
        };
        let (who, principal, peer) = (name.map(one_line), id(principal), peer.map(display));
        warn!(target: "audit", what, who, principal, outcome = "refused", reason, peer, omitted, "operator not authenticated: {reason}");
    }

    fn role_denied(&self, operator: &Actor<'_>, path: &str) {
        let Some(omitted) = self.count_refusal("admin", "role", true, operator.principal) else {
            return;
        };
        let Actor {
            name,
            principal,
            source,
            role,
            peer,
        } = *operator;
        let (what, who, peer) = (one_line(path), one_line(name), peer.map(display));
        let principal = id(principal);
        warn!(target: "audit", what, who, principal, source, role, outcome = "refused", reason = "role", peer, omitted, "not allowed to a {role}");
    }

    fn count(&self, method: &'static str, outcome: &'static str) {
        *self
            .counts
            .lock()
            .sign_ins
            .entry([method, outcome])
            .or_default() += 1;
    }

    /// Counts a refusal. Returns how many lines were omitted before its own line, or `None` if it
    /// gets no line.
    fn count_refusal(
        &self,
        listener: &'static str,
        reason: &'static str,
        is_attempt: bool,
        party: impl Hash,
    ) -> Option<u64> {
        *self
            .counts
            .lock()
            .refusals
            .entry([listener, reason])
            .or_default() += 1;
        if is_attempt {
            self.lines.admit(party)
        } else {
            None
        }
    }

    /// The counts.
    pub fn metrics(&self) -> [Family; 4] {
        let counts = self.counts.lock();
        let kept = self.files();
        let kept = kept.as_ref().map(|kept| &kept.ledger);
        let (written, mirrored) = (
            kept.map(|ledger| ledger.counts()),
            kept.and_then(|ledger| ledger.mirror_counts()),
        );
        [
            SIGN_INS.with(counts.sign_ins.clone()),
            REFUSALS.with(counts.refusals.clone()),
            ENTRIES.with(outcomes("written", written)),
            EXPORTED.with(outcomes("exported", mirrored)),
        ]
    }
}

/// Logs a request for approval, or the answer to it.
fn approval(
    client: Option<&Identity>,
    Item { server, name }: &Item<'_>,
    id: &str,
    outcome: &'static str,
) {
    let (who, source) = (
        client.map(|client| one_line(&client.name)),
        client.map(|client| client.source.as_str()),
    );
    let about = one_line(&format!("{server}/{name}"));
    let principal = self::id(client.map(|client| &client.principal));
    info!(target: "audit", what = "approval", about, id, who, principal, source, outcome, "approval of a call: {outcome}");
}

/// Logs that a definition differs from the approved one, or has been approved.
fn definition(pinned: &PinnedDefinition<'_>) {
    let PinnedDefinition {
        server,
        kind,
        name,
        outcome,
        change,
        reasons,
        omitted,
    } = pinned;
    let (about, reasons) = (
        one_line(&format!("{kind} {server}/{name}")),
        one_line(&reasons.join("; ")),
    );
    match *outcome {
        "held" | "passed" => {
            warn!(target: "audit", what = "pin", about, outcome, reason = change, reasons, omitted, "a definition is not as it was approved");
        }
        _ => info!(target: "audit", what = "pin", about, outcome, "a definition is {outcome}"),
    }
}

/// Logs that an operator has signed in or out.
fn signed(what: &'static str, operator: &Actor<'_>) {
    let Actor {
        name,
        principal,
        source,
        role,
        peer,
    } = *operator;
    let (who, principal, peer) = (one_line(name), id(principal), peer.map(display));
    info!(target: "audit", what, who, principal, source, role, outcome = "done", peer, "operator: {what}");
}

fn changed(operator: &Actor<'_>, path: &str, about: Option<&str>, status: u16) {
    let Actor {
        name,
        principal,
        source,
        role,
        peer,
    } = *operator;
    let (what, about, who, principal, peer) = (
        one_line(path),
        about.map(one_line),
        one_line(name),
        id(principal),
        peer.map(display),
    );
    let outcome = if (200..300).contains(&status) {
        "done"
    } else {
        "failed"
    };
    info!(target: "audit", what, about, who, principal, source, role, outcome, status, peer, "change by an operator");
}

/// The id of a principal, which policies and roles use.
fn id(principal: Option<&Principal>) -> Option<String> {
    principal.and_then(Principal::id).map(|id| one_line(&id))
}

/// The counts of entries that arrived, under this name, and of lost entries.
fn outcomes(arrived: &'static str, counts: Option<Written>) -> Vec<([&'static str; 1], u64)> {
    let Some(Written { written, lost }) = counts else {
        return Vec::new();
    };
    vec![([arrived], written), (["lost"], lost)]
}

/// Counts by two labels.
type Pairs = BTreeMap<[&'static str; 2], u64>;

/// A peer's text on one line, shortened.
fn one_line(text: &str) -> String {
    let escaped = visible::escaped(text);
    match escaped.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", escaped.get(..end).unwrap_or_default()),
        None => escaped.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Ledger, LedgerFiles, LedgerSettings, Retention};

    #[test]
    fn names_are_shown_on_one_line_with_an_end() {
        assert!(!one_line("a\nfake line\u{1b}[31m").contains(['\n', '\u{1b}']));
        assert!(one_line(&"x".repeat(10_000)).chars().count() <= LONGEST + 1);
    }

    #[test]
    fn stranger_who_floods_refusals_does_not_hide_those_of_others() {
        let folder = tempfile::TempDir::new().unwrap();
        let files = LedgerFiles::from_path(&folder.path().join("audit.jsonl")).unwrap();
        let path = files.current();
        let day = Duration::from_secs(86_400);
        let retention = Retention {
            file_bytes: 1 << 20,
            kept_bytes: 4 << 20,
            kept_for: day,
        };
        let ledger = Ledger::open(LedgerSettings {
            files,
            retention,
            mirror: None,
            replica: None,
        });
        let ledger = Arc::new(ledger.unwrap());
        let log = AuditLog::default();
        log.keep(Some(KeptRecord {
            ledger: Arc::clone(&ledger),
            is_required: false,
            arguments: ArgumentsKept::None,
            redact: Vec::new(),
            is_one_of_several: false,
        }));
        let deny = |host: u8, reason, is_known: bool| {
            let event = AuditEvent::OperatorDenied(DeniedOperator {
                reason,
                name: is_known.then_some("bob"),
                principal: None,
                is_attempt: true,
                peer: Some(([192, 0, 2, host], 1000).into()),
            });
            log.record(&event).unwrap();
        };
        (0..1000).for_each(|_| deny(1, "flood", false));
        deny(2, "role", true);
        ledger.end();
        let lines = std::fs::read_to_string(path).unwrap();
        assert_eq!(lines.matches(r#""flood""#).count(), 12);
        assert_eq!(lines.matches(r#""bob""#).count(), 1, "{lines}");
    }

    #[test]
    fn sign_ins_and_refusals_are_counted() {
        let log = AuditLog::default();
        let operator = Actor {
            name: "ann",
            principal: None,
            source: "token",
            role: "viewer",
            peer: None,
        };
        let denied = DeniedOperator {
            reason: "invalid",
            name: None,
            principal: None,
            is_attempt: true,
            peer: None,
        };
        let events = [
            AuditEvent::SignedIn {
                operator,
                method: "token",
            },
            AuditEvent::SignInDenied {
                method: "token",
                denied,
            },
            AuditEvent::OperatorDenied(denied),
            AuditEvent::RoleDenied {
                operator,
                path: "/api/reload",
            },
            AuditEvent::ChangeAsked {
                operator,
                path: "/api/reload",
            },
        ];
        events.iter().for_each(|event| log.record(event).unwrap());
        let text = fanlight_telemetry::metrics::prometheus(&log.metrics());
        for line in [
            r#"fanlight_auth_sign_ins_total{method="token",outcome="accepted"} 1"#,
            r#"fanlight_auth_sign_ins_total{method="token",outcome="refused"} 1"#,
            r#"fanlight_auth_refusals_total{listener="admin",reason="invalid"} 2"#,
            r#"fanlight_auth_refusals_total{listener="admin",reason="role"} 1"#,
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
