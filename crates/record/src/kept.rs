//! The audit log in files: translates each event into an entry.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{CallContext, Identity, Item, PolicyOutcome, Principal, Verdict};
use fanlight_fair::LogLimit;
use fanlight_protocol::{Era, Json, Method, Response, Revision, secret};

use crate::event::{
    Acknowledged, Actor, AuditEvent, ConnectionChange, NotRecorded, PinnedDefinition,
    RecordedRequest, RequestEnd,
};
use crate::ledger::{Arguments, Entry, Ledger, LedgerFiles};
use crate::masked::{MASKED, mask_secrets};

/// The most bytes of arguments that are kept in full. Longer ones are kept as a digest.
const ARGUMENTS: usize = 16 << 10;

/// The form in which arguments are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArgumentsKept {
    /// Arguments are not kept.
    #[default]
    None,
    /// Arguments are kept as a digest of their text.
    Digest,
    /// Arguments are kept as text, with secrets masked.
    Full,
}

/// The audit log in files.
#[derive(Clone, Debug)]
pub struct KeptRecord {
    /// Writes the files.
    pub ledger: Arc<Ledger>,
    /// Whether a request may run only after its entry is on the disk.
    pub is_required: bool,
    /// The form in which arguments are kept.
    pub arguments: ArgumentsKept,
    /// Members of arguments that are masked.
    pub redact: Vec<String>,
    /// Whether other replicas have audit logs beside this one.
    pub is_one_of_several: bool,
}

impl KeptRecord {
    /// The files of this audit log, and of other replicas' audit logs beside it.
    pub fn files(&self) -> Vec<LedgerFiles> {
        let own = self.ledger.files();
        if self.is_one_of_several {
            LedgerFiles::in_folder(own.folder())
        } else {
            vec![own.clone()]
        }
    }

    /// Adds an event that is not a request, without acknowledgement. `limit` restricts events that
    /// anybody can cause, which could otherwise push everything else out of the audit log.
    pub(crate) fn add(&self, event: &AuditEvent<'_>, limit: &LogLimit) {
        let Some(mut entry) = self.entry(event) else {
            return;
        };
        if let Some(stranger) = stranger(event) {
            let Some(omitted) = limit.admit(stranger) else {
                return;
            };
            entry.omitted = omitted;
        }
        self.ledger.add(entry);
    }

    fn entry<'a>(&self, event: &'a AuditEvent<'a>) -> Option<Entry<'a>> {
        Some(match event {
            AuditEvent::Decided { refused: None, .. } | AuditEvent::ChangeAsked { .. } => {
                return None;
            }
            AuditEvent::Decided {
                client,
                endpoint,
                subject,
                refused: Some(refused),
            } => {
                let shown = subject.shown_name();
                let method = subject.method();
                let entry = match subject.request() {
                    Some((context, params)) => self.request_entry(&RecordedRequest {
                        context,
                        method,
                        shown: None,
                        verdict: subject.verdict(),
                        params,
                        definition: subject.definition().map(|definition| &**definition),
                        bytes: params.map_or(0, |params| params.bytes().len()),
                    }),
                    None => Entry {
                        endpoint: Some(endpoint.full_path().into()),
                        action: Some(method.as_str().into()),
                        server: subject.tool().map(|tool| tool.server.into()),
                        item: subject.tool().map(|tool| tool.name),
                        ..identity_entry("request", client)
                    },
                };
                let entry = entry.with_shown(method, shown);
                Entry {
                    decision: Some("deny"),
                    outcome: "refused",
                    reason: Some(refused.reason.into()),
                    code: Some(refused.code),
                    ..entry
                }
            }
            AuditEvent::Approval {
                client,
                tool: Item { server, name },
                id,
                outcome,
            } => {
                let of_client = client.map(|client| identity_entry("approval", client));
                Entry {
                    server: Some((*server).into()),
                    item: Some((&**name).into()),
                    approval: Some((*id).into()),
                    outcome,
                    ..of_client.unwrap_or(Entry {
                        event: "approval",
                        ..Entry::default()
                    })
                }
            }
            AuditEvent::Definition(PinnedDefinition {
                server,
                kind,
                name,
                outcome,
                change,
                omitted,
                ..
            }) => Entry {
                event: "pin",
                server: Some((*server).into()),
                action: Some((*kind).into()),
                item: Some((*name).into()),
                reason: change.map(|change| match omitted {
                    0 => change.into(),
                    omitted => format!("{change} (omitted: {omitted})").into(),
                }),
                outcome,
                ..Entry::default()
            },
            AuditEvent::Connection(change) => connection_entry(change),
            AuditEvent::ClientDenied {
                denial,
                credentials,
            } => Entry {
                event: "authentication",
                endpoint: Some(credentials.endpoint.into()),
                reason: Some(denial.to_string().into()),
                outcome: "refused",
                ..Entry::default()
            },
            AuditEvent::SignedIn { operator, .. } => operator_entry(operator, "sign-in", "ok"),
            AuditEvent::SignedOut { operator } => operator_entry(operator, "sign-out", "ok"),
            AuditEvent::SignInDenied { denied, .. } | AuditEvent::OperatorDenied(denied)
                if !denied.is_attempt =>
            {
                return None;
            }
            AuditEvent::SignInDenied { denied, .. } | AuditEvent::OperatorDenied(denied) => Entry {
                event: "operator",
                principal: denied.principal.and_then(principal),
                who: denied.name.map(Cow::Borrowed),
                reason: Some(denied.reason.into()),
                outcome: "refused",
                ..Entry::default()
            },
            AuditEvent::RoleDenied { operator, path } => Entry {
                reason: Some("role".into()),
                ..operator_entry(operator, path, "refused")
            },
            AuditEvent::Changed {
                operator,
                path,
                about,
                status,
            } => Entry {
                shown: about.map(Cow::Borrowed),
                code: Some(i64::from(*status)),
                ..operator_entry(
                    operator,
                    path,
                    if (200..300).contains(status) {
                        "ok"
                    } else {
                        "error"
                    },
                )
            },
        })
    }

    /// Adds that a user is about to be connected, if that line must be on the disk before.
    pub(crate) fn connects(
        &self,
        change: &ConnectionChange<'_>,
    ) -> Result<Option<Acknowledged>, NotRecorded> {
        self.announce(|| connection_entry(change))
    }

    /// Adds that a request is about to run, if that line must be on the disk before.
    pub(crate) fn begins(
        &self,
        request: &RecordedRequest<'_>,
    ) -> Result<Option<Acknowledged>, NotRecorded> {
        self.announce(|| self.request_entry(request))
    }

    fn announce<'a>(
        &self,
        entry: impl FnOnce() -> Entry<'a>,
    ) -> Result<Option<Acknowledged>, NotRecorded> {
        if !self.is_required {
            return Ok(None);
        }
        let entry = Entry {
            outcome: "decided",
            ..entry()
        };
        self.ledger.add_durably(entry).map(Some)
    }

    /// Adds the end of a request.
    pub(crate) fn record_end(
        &self,
        request: &RecordedRequest<'_>,
        end: &RequestEnd<'_>,
        duration: Duration,
    ) {
        let mut entry = Entry {
            duration: Some(duration),
            ..self.request_entry(request)
        };
        let is_denied = request
            .verdict
            .is_some_and(|verdict| verdict.outcome.is_denial());
        let response = match *end {
            RequestEnd::Answered(response) => {
                entry.outcome = outcome(response);
                if is_denied {
                    entry.outcome = "refused";
                }
                if entry.task.is_none() {
                    entry.task = begun_task(&response.body());
                }
                Some(response)
            }
            RequestEnd::Cancelled => {
                entry.outcome = "cancelled";
                None
            }
            RequestEnd::NotRun(response) => {
                entry.outcome = "not_run";
                response
            }
        };
        let noted = request.context.noted.as_ref();
        let ended = noted.and_then(|noted| noted.code.get().copied());
        entry.code = ended.or_else(|| match request.context.era {
            Era::Legacy => response?.error_code(),
            Era::Modern => Some(Revision::NEWEST_MODERN.code(response?.error_code()?)),
        });
        if noted.is_some_and(|noted| noted.replaced.get().is_some()) {
            entry.reason = Some("a hook replaced the result".into());
        } else {
            entry.reason = request.context.gate.get().map(|gate| (*gate).into());
        }
        entry.response_bytes = response.map(|response| response.body().bytes().len());
        self.ledger.add(entry);
    }

    fn request_entry<'a>(&self, request: &RecordedRequest<'a>) -> Entry<'a> {
        let RecordedRequest {
            context,
            method,
            shown,
            verdict,
            bytes,
            ..
        } = *request;
        let caller = &context.caller;
        let mut entry = match caller.identity() {
            Some(identity) => identity_entry("request", identity),
            None => Entry {
                event: "request",
                principal: principal(caller.principal()),
                ..Entry::default()
            },
        };
        let noted = context.noted.as_ref();
        let about = noted.and_then(|noted| noted.about.get());
        entry.client = client(context);
        entry.era = Some(context.era.as_str());
        entry.endpoint = Some(caller.endpoint().full_path().into());
        entry.server = about.and_then(|about| about.server.as_deref().map(Cow::Borrowed));
        entry.canary = about.and_then(|about| about.canary.as_deref().map(Cow::Borrowed));
        entry.approval = noted.and_then(|noted| noted.approval.get().map(|id| (&**id).into()));
        entry.action = Some(method.as_str().into());
        entry.item = about.and_then(|about| about.item.as_deref().map(Cow::Borrowed));
        entry.decision = Some(verdict.map_or("allow", decision));
        entry.policies = verdict.map_or(&[], |verdict| &verdict.policies);
        entry.request_bytes = Some(bytes);
        entry.trace = context
            .trace
            .ids()
            .map(|ids| ids.trace_id.to_string().into());
        entry.arguments = self.arguments(request);
        entry.with_shown(method, shown.map(Cow::Borrowed))
    }

    fn arguments(&self, request: &RecordedRequest<'_>) -> Arguments {
        let arguments = request.params.and_then(|params| params.get("arguments"));
        let Some(arguments) = arguments else {
            return Arguments::None;
        };
        // Nobody knows which arguments of an unlisted tool are secret.
        let is_known = *request.method != Method::CallTool || request.definition.is_some();
        match self.arguments {
            ArgumentsKept::None => Arguments::None,
            ArgumentsKept::Full if is_known && arguments.bytes().len() <= ARGUMENTS => {
                let schema = request
                    .definition
                    .and_then(|definition| definition.get("inputSchema"));
                Arguments::Full(mask_secrets(&arguments, schema.as_ref(), &self.redact))
            }
            // Detached, because a slice would keep the whole message in memory until it is written.
            ArgumentsKept::Digest | ArgumentsKept::Full => Arguments::Digest(arguments.detached()),
        }
    }
}

impl<'a> Entry<'a> {
    /// Adds the client's name for the subject of a request.
    fn with_shown(mut self, method: &Method, mut shown: Option<Cow<'a, str>>) -> Self {
        // That is the task's id in requests about tasks.
        if method.as_str().starts_with("tasks/") {
            self.task.clone_from(&shown);
        }
        if !matches!(method, Method::CallTool | Method::GetPrompt) {
            // URIs may contain credentials, in completions and unknown methods, too.
            for uri in [&mut self.item, &mut shown].into_iter().flatten() {
                if let Some(masked) = secret::without_secrets(uri, MASKED) {
                    *uri = masked.into();
                }
            }
        }
        self.shown = shown.filter(|shown| self.item.as_ref() != Some(shown));
        self
    }
}

/// The address, if known, of a person without credentials who has caused the event.
/// `None` if such a person cannot cause it.
fn stranger(event: &AuditEvent<'_>) -> Option<Option<IpAddr>> {
    match event {
        AuditEvent::ClientDenied { credentials, .. } => Some(credentials.client),
        AuditEvent::SignInDenied { denied, .. } | AuditEvent::OperatorDenied(denied) => {
            Some(denied.peer.map(|peer| peer.ip()))
        }
        AuditEvent::Decided { client, .. } if client.principal.is_anonymous() => Some(None),
        AuditEvent::Connection(change) if change.principal.is_none() && change.outcome != "ok" => {
            Some(None)
        }
        _ => None,
    }
}

fn identity_entry<'a>(event: &'static str, identity: &'a Identity) -> Entry<'a> {
    Entry {
        event,
        principal: principal(&identity.principal),
        who: Some((&*identity.name).into()),
        authentication: Some(identity.source.as_str()),
        act: identity.claims.get("act").map_or(&[], |actors| actors),
        ..Entry::default()
    }
}

fn connection_entry<'a>(change: &ConnectionChange<'a>) -> Entry<'a> {
    Entry {
        event: "connection",
        principal: change.principal.and_then(principal),
        server: Some(change.server)
            .filter(|server| !server.is_empty())
            .map(Cow::Borrowed),
        action: Some(change.action.into()),
        outcome: change.outcome,
        reason: change.reason.map(Cow::Borrowed),
        ..Entry::default()
    }
}

fn operator_entry<'a>(operator: &Actor<'a>, action: &'a str, outcome: &'static str) -> Entry<'a> {
    Entry {
        event: "operator",
        principal: operator.principal.and_then(principal),
        who: Some(operator.name.into()),
        authentication: Some(operator.source),
        action: Some(action.into()),
        reason: Some(operator.role.into()),
        outcome,
        ..Entry::default()
    }
}

fn principal<'a>(principal: &Principal) -> Option<Cow<'a, str>> {
    principal.id().map(Cow::Owned)
}

fn client(context: &CallContext) -> Option<Cow<'_, str>> {
    let info = context.client_info.as_ref()?;
    let text = |member: &str| info.peek(member)?.as_str();
    let name = text("name")?;
    Some(match text("version") {
        Some(version) => format!("{name}/{version}").into(),
        None => name,
    })
}

fn decision(verdict: &Verdict) -> &'static str {
    match verdict.outcome {
        PolicyOutcome::Hidden => "hide",
        ref outcome => outcome.as_str(),
    }
}

/// The id of the task that a result creates (2025-11-25 basic/utilities/tasks, and the extension
/// for tasks).
fn begun_task<'a>(result: &Json) -> Option<Cow<'a, str>> {
    let task = result.get("task");
    let state = task
        .as_ref()
        .or_else(|| result.peek("resultType")?.is_str("task").then_some(result))?;
    Some(Cow::Owned(state.text_at("taskId")?))
}

fn outcome(response: &Response) -> &'static str {
    if response.is_error() {
        return "error";
    }
    let body = response.body();
    if body.flag("isError") {
        "tool_error"
    } else {
        "ok"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_a_uri_are_masked() {
        for method in [Method::ReadResource, Method::Complete] {
            let entry = Entry {
                item: Some("db://u:s3cret@h/x".into()),
                ..Entry::default()
            };
            let shown = Some("s__db://u:s3cret@h/x?token=s3cret".into());
            let entry = entry.with_shown(&method, shown);
            assert_eq!(entry.item.as_deref(), Some("db://***@h/x"));
            assert_eq!(entry.shown.as_deref(), Some("s__db://***@h/x?token=***"));
        }
    }
}
