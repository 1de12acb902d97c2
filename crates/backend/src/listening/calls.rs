//! `resources/subscribe` and `resources/unsubscribe` of clients that have a session.
//!
//! On a line of its own a client's requests pass as they are, and what they made is remembered.
//! On a line that clients share, what counts is who still wants to hear of a resource: the
//! first to subscribe and the last to leave are what the server sees.
//!
//! Must not know: how the server is told.

use std::sync::Arc;

use fanlight_protocol::{Era, Json, Method, Response, RpcError, code};

use crate::hub::{Hub, Made};
use fanlight_canonical::{Call, SessionKey};

/// Of whose subscription to what a call is, and whether it begins it.
fn subject(call: &Call) -> Option<(SessionKey, Arc<str>, bool)> {
    let begins = match call.method {
        Method::Subscribe => true,
        Method::Unsubscribe => false,
        _ => return None,
    };
    let uri = call.params.as_ref()?.get("uri")?;
    Some((call.context.session()?, Arc::from(uri.as_str()?), begins))
}

/// The answer to a subscription on a line that clients share; `None` if the call is none.
pub(crate) async fn local_answer(hub: &Hub, call: &Call, era: Era) -> Option<Response> {
    let (session, uri, begins) = subject(call)?;
    if !begins {
        hub.unsubscribe(session, &uri);
        return Some(Response::from_result(&Json::empty_object()));
    }
    // A modern server has no such request, and does not see its parameters.
    let params = call.params.as_ref().filter(|_| era == Era::Legacy);
    Some(match hub.subscribe(session, &uri, params).await {
        Some(Made::Accepted) => Response::from_result(&Json::empty_object()),
        Some(Made::Refused(Some(answer))) => answer,
        Some(Made::Refused(None) | Made::Open) => {
            let message = "the server does not tell of updates of this resource";
            Response::from_error(&RpcError::new(code::INVALID_PARAMS, message))
        }
        None => {
            let message = "clients have subscribed to as many resources of this server as the limit allows";
            Response::from_error(&RpcError::new(code::INTERNAL, message))
        }
    })
}

/// The refusal of a subscription on a session's own line, if the session has as many as it may.
/// Some may be on their way at the same time: what is remembered is bounded all the same.
pub(crate) fn refusal(hub: &Hub, call: &Call) -> Option<Response> {
    let (session, uri, begins) = subject(call)?;
    let refused = begins && !hub.has_room(session, &uri);
    let message = "this session has subscribed to as many resources of this server as limits.subscriptions allows";
    refused.then(|| Response::from_error(&RpcError::new(code::INVALID_PARAMS, message)))
}

/// Remembers what an answered call has changed on a session's own line.
pub(crate) fn remember(hub: &Hub, call: &Call, answer: &Response) {
    if let Some((session, uri, begins)) = subject(call)
        && !answer.is_error()
    {
        hub.remember(session, &uri, begins);
    }
}
