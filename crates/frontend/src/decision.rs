//! Decides whether a client may make a request. The inputs are its identity, its endpoint and the
//! resolved operation, so the decision is about exactly what runs.
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fanlight_canonical::identity::{Identity, Scopes};
use fanlight_canonical::{Caller, Decidable, Endpoint, Interest, Peer};
use fanlight_fair::TooMany;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_protocol::{Json, Method, RpcError, code};
use fanlight_record::{AuditEvent, NotRecorded, RefusedRequest};
use futures_util::future::BoxFuture;

use crate::protection::{Asked, NotTaken, Operation, Turn};
use crate::recording::not_recorded;
use crate::settings::FrontendSettings;

/// A request that the gateway answers without the core; identified by its method.
#[derive(Debug)]
pub(crate) struct OwnRequest<'a>(pub(crate) &'a Method);

impl Decidable for OwnRequest<'_> {
    fn method(&self) -> &Method {
        self.0
    }
}

/// The reason for a refusal.
#[derive(Clone, Debug)]
pub(crate) enum Refused {
    /// The client lacks some of these required scopes.
    Scopes(Box<[Arc<str>]>),
    /// The request is allowed, but the audit log could not record it.
    NotRecorded,
    /// A rate limit allows the request only later.
    TooMany(TooMany),
    /// The rate limits cannot be counted now.
    NotCounted,
}

impl Refused {
    /// The error for its client.
    pub(crate) fn to_error(&self) -> RpcError {
        let required = match self {
            Self::Scopes(required) => required,
            Self::NotRecorded => return not_recorded(&NotRecorded),
            Self::TooMany(TooMany { retry_after }) => return too_many(*retry_after),
            Self::NotCounted => return not_counted(),
        };
        let scope = required.join(" ");
        let mut data = ObjectBuilder::new();
        data.string("scope", &scope);
        let message = format!("the credentials lack a scope; this needs: {scope}");
        RpcError::new(code::NOT_PERMITTED, message).with_data(data.finish())
    }
}

/// The retry time if rate limits could not be counted.
pub(crate) const COUNTED_AGAIN: Duration = Duration::from_secs(1);

/// The error for a request that comes too soon.
fn too_many(retry_after: Duration) -> RpcError {
    // Round up, so that the client does not come back too early.
    let millis = retry_after.as_millis() + 1;
    let message = format!(
        "too many requests: a rate limit of this gateway allows the next one in {millis} ms"
    );
    later(message, millis)
}

/// The error for a request whose limits cannot be counted.
fn not_counted() -> RpcError {
    let message =
        "a rate limit that this gateway's replicas share cannot be counted now; try again later";
    later(message.to_owned(), COUNTED_AGAIN.as_millis())
}

fn later(message: String, millis: u128) -> RpcError {
    let mut data = ObjectBuilder::new();
    data.member(
        "retryAfterMs",
        &Json::integer(i64::try_from(millis).unwrap_or(i64::MAX)),
    );
    data.member("mayHaveRun", &Json::literal("false"));
    RpcError::new(code::TOO_MANY_REQUESTS, message).with_data(data.finish())
}

/// The client of a request, by its identity and endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) identity: &'a Identity,
}

/// Decides by the current rules whether a client may do `subject`, and records the decision in the
/// audit log.
pub(crate) fn decide(
    settings: &FrontendSettings,
    client: Client<'_>,
    subject: &dyn Decidable,
) -> Result<(), Refused> {
    record(settings, client, subject, may(settings, client, subject))
}

/// [`decide`] for a request of `peer`, including rate limits. The request runs at once or when its
/// turn comes.
pub(crate) async fn decide_request(
    settings: &FrontendSettings,
    client: Client<'_>,
    peer: impl FnOnce() -> Peer,
    subject: &dyn Decidable,
) -> Result<Option<Turn>, Refused> {
    let taken = match may(settings, client, subject) {
        Ok(()) => take(settings, client, peer, subject).await,
        Err(refused) => Err(refused),
    };
    record(settings, client, subject, taken)
}

/// Counts a request against all limits that apply. Waits only for limits that several processes
/// count together.
async fn take(
    settings: &FrontendSettings,
    client: Client<'_>,
    peer: impl FnOnce() -> Peer,
    subject: &dyn Decidable,
) -> Result<Option<Turn>, Refused> {
    let taking = {
        let protection = settings.protection.load();
        if protection.rates().are_none() {
            return Ok(None);
        }
        let asked = Asked {
            peer: &peer(),
            endpoint: client.endpoint.full_path(),
            subject,
        };
        protection.rates().take(asked).map_err(Refused::TooMany)?
    };
    match settings.protection.common() {
        Some(common) if !taking.is_done() => {
            taking
                .in_common(common)
                .await
                .map_err(|not_taken| match not_taken {
                    NotTaken::TooMany(too_many) => Refused::TooMany(too_many),
                    NotTaken::Away => Refused::NotCounted,
                })
        }
        _ => Ok(taking.turn()),
    }
}

/// Records a decision in the audit log; a decision that cannot be recorded becomes a refusal.
fn record<T>(
    settings: &FrontendSettings,
    client: Client<'_>,
    subject: &dyn Decidable,
    outcome: Result<T, Refused>,
) -> Result<T, Refused> {
    let refused = outcome.as_ref().err().map(|refused| RefusedRequest {
        reason: match refused {
            Refused::TooMany(_) | Refused::NotCounted => "rate",
            Refused::Scopes(_) | Refused::NotRecorded => "scopes",
        },
        code: refused.to_error().code,
    });
    let Client { endpoint, identity } = client;
    let recorded = settings.record.record(&AuditEvent::Decided {
        client: identity,
        endpoint,
        subject,
        refused,
    });
    let allowed = outcome?;
    recorded
        .map(|()| allowed)
        .map_err(|NotRecorded| Refused::NotRecorded)
}

/// Records that a permitted request is refused, because too many run already.
pub(crate) fn record_busy(
    settings: &FrontendSettings,
    client: Client<'_>,
    subject: &dyn Decidable,
    error: &RpcError,
) {
    // A refusal needs no record to take effect.
    let _ = settings.record.record(&AuditEvent::Decided {
        client: client.identity,
        endpoint: client.endpoint,
        subject,
        refused: Some(RefusedRequest {
            reason: "busy",
            code: error.code,
        }),
    });
}

/// Whether the client still has an earlier permission. Adds no audit record.
pub(crate) fn may(
    settings: &FrontendSettings,
    client: Client<'_>,
    subject: &dyn Decidable,
) -> Result<(), Refused> {
    if client.identity.scopes == Scopes::All {
        return Ok(());
    }
    let depends = depends_on_tools(settings, client.endpoint);
    check(settings, client, &Operation::of_subject(subject, depends))
}

/// [`decide`] for the client of a context. A client without an identity gets Fanlight's own.
pub(crate) fn decide_for(
    settings: &FrontendSettings,
    caller: &Caller,
    subject: &dyn Decidable,
) -> Result<(), Refused> {
    let Some(identity) = caller.identity() else {
        return Ok(());
    };
    decide(
        settings,
        Client {
            endpoint: caller.endpoint(),
            identity,
        },
        subject,
    )
}

/// Whether rate limits depend on the tool.
pub(crate) fn rates_depend_on_tools(settings: &FrontendSettings) -> bool {
    settings.protection.load().rates().depend_on_tools()
}

/// Whether required scopes at this endpoint depend on the tool.
pub(crate) fn depends_on_tools(settings: &FrontendSettings, endpoint: &Endpoint) -> bool {
    settings
        .protection
        .load()
        .scopes_at(endpoint.full_path())
        .depends_on_tools()
}

fn check(
    settings: &FrontendSettings,
    client: Client<'_>,
    operation: &Operation<'_>,
) -> Result<(), Refused> {
    let protection = settings.protection.load();
    let policy = protection.scopes_at(client.endpoint.full_path());
    policy
        .check(&client.identity.scopes, operation)
        .map_err(|required| Refused::Scopes(required.into()))
}

/// A lasting decision about listening. It is repeated whenever the rules change, and resolves once
/// it is a refusal.
pub(crate) struct LastingDecision(BoxFuture<'static, Refused>);

impl LastingDecision {
    /// The decision about listening to `interest`; `None` for an unrestricted client.
    pub(crate) fn of(
        settings: &Arc<FrontendSettings>,
        caller: &Caller,
        interest: &Interest,
    ) -> Option<Self> {
        let identity = Arc::clone(
            caller
                .identity()
                .filter(|identity| identity.scopes != Scopes::All)?,
        );
        let (settings, endpoint) = (Arc::clone(settings), caller.endpoint().clone());
        let operation = Operation::of_listening(interest);
        let mut replacements = settings.protection.replacements();
        Some(Self(Box::pin(async move {
            loop {
                // Check at once: the rules may have changed since the first decision.
                if let Err(refused) = check(
                    &settings,
                    Client {
                        endpoint: &endpoint,
                        identity: &identity,
                    },
                    &operation,
                ) {
                    return refused;
                }
                // Cannot fail, since the settings own the sender.
                let _ = replacements.changed().await;
            }
        })))
    }

    /// Must not be polled again after it is ready.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Refused> {
        self.0.as_mut().poll(cx)
    }
}
