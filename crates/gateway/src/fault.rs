//! The error policy: the errors that clients get when a server has not answered.
//!
//! Error responses of servers pass unchanged and are not made here.

use std::borrow::Cow;

use fanlight_canonical::{BackendError, Outcome, PolicyKind, SignInWish};
use fanlight_protocol::{ClientCapability, Json, MissingCapability, ObjectBuilder, RpcError, code};

/// The error for a request that `backend` did not answer.
pub fn no_answer(backend: &str, error: &BackendError) -> RpcError {
    if let Some(wish) = error.sign_in() {
        return sign_in_first(backend, wish);
    }
    let code = match error {
        BackendError::Timeout { .. } => code::BACKEND_TIMEOUT,
        _ => code::BACKEND_UNAVAILABLE,
    };
    let retry = if error.may_have_run() {
        "the request may have been carried out"
    } else {
        "the request was not carried out and can be sent again"
    };
    let message = format!("server {backend:?} {}; {retry}", error.for_clients());
    let told = RpcError::new(code, message)
        .with("backend", &Json::string(backend))
        .with("outcome", &Json::string(error.outcome().as_str()))
        .may_have_run(error.may_have_run());
    match error.retry_after() {
        Some(pause) => {
            let pause = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX);
            told.with("retryAfterMs", &Json::integer(pause))
        }
        None => told,
    }
}

/// The error for a request that needs the user to sign in first (2025-11-25 client/elicitation, URL
/// Elicitation Required Error). The message contains the link too, for clients that show only the
/// message.
fn sign_in_first(backend: &str, wish: &SignInWish) -> RpcError {
    let named = Json::string(backend);
    let Some(url) = &wish.url else {
        let message = format!(
            "{}, and send the request again; it was not carried out",
            wish.message
        );
        return RpcError::new(code::BACKEND_UNAVAILABLE, message).with("backend", &named);
    };
    let elicitation = ObjectBuilder::new()
        .string("mode", "url")
        .string("elicitationId", &wish.id)
        .string("url", url)
        .string("message", &wish.message)
        .finish();
    let message = format!(
        "{}: open {url} and send the request again; it was not carried out",
        wish.message
    );
    RpcError::new(code::URL_ELICITATION_REQUIRED, message)
        .with("elicitations", &Json::array([elicitation]))
        .with("backend", &named)
}

/// The error for a request that needs a sign-in which the policy does not permit this client.
pub fn no_sign_in(backend: &str) -> RpcError {
    let message = format!(
        "server {backend:?} requires its user to sign in, which the policy of this gateway does not permit this client; \
         the request was not carried out"
    );
    RpcError::new(code::NOT_PERMITTED, message)
        .with("backend", &Json::string(backend))
        .may_have_run(false)
}

/// Adapts the error to a client with these `capabilities`. A client that cannot open a page for its
/// user gets no elicitation; its user finds the link in the message.
pub fn adapt_to_client(error: RpcError, capabilities: &Json) -> RpcError {
    let is_link = error.code == code::URL_ELICITATION_REQUIRED;
    if !is_link
        || MissingCapability::check(capabilities, ClientCapability::ElicitationByUrl).is_none()
    {
        return error;
    }
    let backend = error.data.and_then(|data| data.get("backend"));
    let data = ObjectBuilder::new()
        .optional("backend", backend.as_ref())
        .finish();
    RpcError::new(code::BACKEND_UNAVAILABLE, error.message).with_data(data)
}

/// The error for a method that the gateway does not route among several servers.
pub fn unknown_method(method: &str) -> RpcError {
    RpcError::new(
        code::METHOD_NOT_FOUND,
        format!("Method not found: {method}"),
    )
}

/// The error for a name in no server's list. The wording is the specification's example. It also
/// names the servers that could not be listed, because the name may be one of theirs.
pub fn unknown_name(what: &str, name: &str, unlisted: &[(String, Outcome)]) -> RpcError {
    let name = excerpt(name);
    if unlisted.is_empty() {
        return RpcError::new(code::INVALID_PARAMS, format!("Unknown {what}: {name}"));
    }
    let reasons: Vec<_> = unlisted
        .iter()
        .map(|(backend, outcome)| format!("{backend:?} ({})", outcome.as_str()))
        .collect();
    let reason = format!(
        "it may belong to a server that could not be listed: {}",
        reasons.join(", ")
    );
    let mut backends = ObjectBuilder::new();
    for (backend, outcome) in unlisted {
        backends.string(backend, outcome.as_str());
    }
    RpcError::new(
        code::INVALID_PARAMS,
        format!("Unknown {what}: {name}; {reason}"),
    )
    .with("unlisted", &backends.finish())
}

/// The beginning of a name, since a client can send a name as long as a message.
fn excerpt(name: &str) -> Cow<'_, str> {
    const SHOWN: usize = 256;
    match name.char_indices().nth(SHOWN) {
        Some((cut, _)) => format!("{}…", name.get(..cut).unwrap_or_default()).into(),
        None => name.into(),
    }
}

/// The error for a call whose arguments the policy forbids.
pub fn not_permitted(kind: PolicyKind, name: &str) -> RpcError {
    let (what, name) = (kind.as_str().to_ascii_lowercase(), excerpt(name));
    let message = format!(
        "the policy of this gateway does not permit these arguments of the {what} {name}; it was not run"
    );
    RpcError::new(code::NOT_PERMITTED, message).may_have_run(false)
}

/// The error for a waiting request whose policy has changed, so that it needs a new decision.
pub fn policy_has_changed() -> RpcError {
    let message = "the policy of this gateway has changed while this call waited, and it was ended; send it again";
    RpcError::new(code::NOT_APPROVED, message).with("status", &Json::string("policyChanged"))
}

/// The error for a tool's original name that several servers have. `names` are the names for
/// clients.
pub fn ambiguous_tool(name: &str, names: &[String]) -> RpcError {
    const NAMED: usize = 16;
    let name = excerpt(name);
    let named: Vec<_> = names.iter().take(NAMED).map(String::as_str).collect();
    let message = format!(
        "Unknown tool: {name}; several servers have one of this name, call one of: {}",
        named.join(", ")
    );
    RpcError::new(code::INVALID_PARAMS, message).with("candidates", &Json::strings(named))
}

/// The error for an argument that clients may not send; `key` is its name as the client wrote it.
pub fn refused_argument(key: &Json) -> RpcError {
    let name = key.as_str().unwrap_or_default();
    RpcError::new(
        code::INVALID_PARAMS,
        format!(
            "params.arguments: the argument {:?} cannot be sent: leave it out",
            excerpt(&name)
        ),
    )
}

/// The error for another method that names a tool. Only `tools/call` reaches such a tool, because
/// its arguments are checked.
pub fn only_by_call(name: &str) -> RpcError {
    RpcError::new(
        code::INVALID_PARAMS,
        format!(
            "the tool {:?} can only be called by tools/call",
            excerpt(name)
        ),
    )
}

/// The error for a URI that no server has. The client edge sets the code of the client's revision.
pub fn unknown_resource(uri: &str) -> RpcError {
    RpcError::new(code::RESOURCE_NOT_FOUND, "Resource not found").with("uri", &Json::string(uri))
}

/// The error for a task that no server knows; `not_asked` are the servers that could not be asked.
/// The wording is the specification's example.
pub fn unknown_task(not_asked: &[(&str, BackendError)]) -> RpcError {
    const UNKNOWN: &str = "Failed to retrieve task: Task not found";
    if not_asked.is_empty() {
        return RpcError::new(code::INVALID_PARAMS, UNKNOWN);
    }
    let reasons: Vec<_> = not_asked
        .iter()
        .map(|(backend, error)| format!("server {backend:?} {}", error.for_clients()))
        .collect();
    let names = Json::strings(not_asked.iter().map(|(backend, _)| *backend));
    let message = format!(
        "{UNKNOWN} where it could be asked for, but {}; ask again later",
        reasons.join(", ")
    );
    RpcError::new(code::BACKEND_UNAVAILABLE, message).with("notAsked", &names)
}

/// The error for parameters that routing cannot read.
pub fn invalid_params(reason: impl Into<String>) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, reason)
}
