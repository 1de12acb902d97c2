//! `resources/subscribe` and `resources/unsubscribe` of clients that have a session.
//!
//! On a session's own connection the requests are forwarded. On a shared connection, the server
//! sees only the first subscription to a resource and the last unsubscription. The resulting
//! subscriptions are recorded, so that another connection can repeat them.

use std::sync::Arc;

use fanlight_canonical::{Call, Caller};
use fanlight_protocol::{Json, Method, Response, Revision, RpcError, code};

use crate::subscriptions::{SubscriptionRegistry, Verdict};

/// The session, the resource, and whether the call subscribes; `None` for other calls.
fn subject(call: &Call) -> Option<(&Caller, Arc<str>, bool)> {
    let subscribes = match call.method {
        Method::Subscribe => true,
        Method::Unsubscribe => false,
        _ => return None,
    };
    let uri = call.params.as_ref()?.get("uri")?;
    call.context.session()?;
    Some((&call.context.caller, Arc::from(uri.as_str()?), subscribes))
}

/// The answer on a connection that clients share; `None` for other calls.
pub(crate) async fn local_answer(
    registry: &SubscriptionRegistry,
    call: &Call,
    revision: Revision,
) -> Option<Response> {
    let (session, uri, subscribes) = subject(call)?;
    if !subscribes {
        registry.unsubscribe(session, &uri);
        return Some(Response::from_result(&Json::empty_object()));
    }
    // A server without this request never sees its parameters.
    let has_request = revision.has_request(&call.method);
    let params = call.params.as_ref().filter(|_| has_request);
    let refused = |code, message: &str| Response::from_error(&RpcError::new(code, message));
    Some(match registry.subscribe(session, &uri, params).await {
        Some(Verdict::Accepted) => Response::from_result(&Json::empty_object()),
        Some(Verdict::Refused(Some(answer))) => answer,
        Some(_) => refused(
            code::INVALID_PARAMS,
            "the server does not send updates of this resource",
        ),
        None => refused(
            code::INTERNAL,
            "the clients' subscriptions to resources of this server are at the limit",
        ),
    })
}

/// The refusal of a subscription beyond the limit, on a session's own connection. If several calls
/// are checked at once, some beyond the limit reach the server; the record stays limited
/// nevertheless.
pub(crate) fn refusal(registry: &SubscriptionRegistry, call: &Call) -> Option<Response> {
    let (session, uri, subscribes) = subject(call)?;
    let refused = subscribes && !registry.may_subscribe(session, &uri);
    let message = "this session has subscribed to as many resources of this server as are allowed: unsubscribe from one";
    refused.then(|| Response::from_error(&RpcError::new(code::INVALID_PARAMS, message)))
}

/// Records the effect of an answered call on a session's own connection.
pub(crate) fn record(registry: &SubscriptionRegistry, call: &Call, answer: &Response) {
    match subject(call).filter(|_| !answer.is_error()) {
        Some((session, uri, true)) => registry.recorded().add(session, &uri),
        Some((session, uri, false)) => registry.recorded().remove(session, &uri),
        None => {}
    }
}
