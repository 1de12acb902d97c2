//! `/api/session`: the current operator, signing in with a token, and signing out.

use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use fanlight_credentials::ConnectionFacts;
use fanlight_protocol::Json;
use fanlight_record::AuditEvent;
use http::HeaderMap;

use super::Answer;
use super::body::read_up_to;
use crate::operator::{CommonProof, Denied, Digest, Operator, Proof, Purpose, Sessions, Shown};
use crate::settings::{InForce, set_cookie};
use crate::{Admin, AdminState, OperatorConnection, Refusal, peer, reply, require_json};

/// The limit of a body here, in bytes. There is no option: a token is at most as long as the head
/// of a request, and bodies contain nothing else.
const LONGEST_BODY: usize = 64 << 10;

/// The limit of the nesting of such a body.
const NESTING: usize = 4;

answers! {
    /// The operator who makes the request, and the ways to sign in.
    pub(crate) struct Session {
        /// Null if nobody is signed in.
        identity: Option<Identity>,
        sign_in: SignIn,
    }

    /// An operator or viewer.
    struct Identity {
        name: String,
        source: &'static str,
        /// `operator`, `approver` or `viewer`.
        role: &'static str,
        /// Whether a session of the page identifies the operator.
        session: bool,
    }

    /// The ways to sign in.
    struct SignIn {
        /// Whether operators can sign in with a token.
        token: bool,
        /// The issuers of `auth` at which people sign in.
        issuers: Vec<String>,
    }
}

/// Answers with the operator who makes the request, if any, and with the ways to sign in.
pub(super) async fn answer(
    State(admin): AdminState,
    connection: OperatorConnection,
    headers: HeaderMap,
) -> Answer {
    let now = admin.now();
    match admin.identify(&now, &headers, &connection.0).await {
        Ok(operator) => Ok(reply::answer(&described(
            &now,
            Some((&operator, operator.session.is_some())),
        ))),
        Err(Denied::Missing) => Ok(reply::answer(&described(&now, None))),
        // The page then offers to sign in.
        Err(Denied::SessionOver) => {
            let mut response = reply::answer(&described(&now, None));
            now.forget(Purpose::Session, &connection.0, &mut response);
            Ok(response)
        }
        Err(denied) => {
            admin.note(&AuditEvent::OperatorDenied(
                denied.audit_entry(connection.0.peer),
            ));
            Err(Refusal::denied(&denied))
        }
    }
}

/// Describes the operator who makes the request, and the ways to sign in. The flag says whether a
/// session identifies the operator.
fn described(now: &InForce, operator: Option<(&Operator, bool)>) -> Session {
    let identity = operator.map(|(operator, session)| Identity {
        name: operator.name.to_string(),
        source: operator.source,
        role: operator.role.as_str(),
        session,
    });
    let sign_in = now.settings.sign_in.iter();
    Session {
        identity,
        sign_in: SignIn {
            token: now.takes_tokens(),
            issuers: sign_in.map(|at| at.issuer.clone()).collect(),
        },
    }
}

/// The members of a body, all of which must be strings.
pub(super) async fn texts<const N: usize>(
    now: &InForce,
    body: Body,
    names: [&str; N],
) -> Result<[String; N], Refusal> {
    members(&object(now, body).await?, names)
}

/// The JSON in a body.
pub(super) async fn object(now: &InForce, body: Body) -> Result<Json, Refusal> {
    let body = read_up_to(LONGEST_BODY, body, &now.settings).await?;
    Json::parse(body, NESTING).map_err(|_| Refusal::bad_request("the body is not JSON"))
}

/// The members of an object, all of which must be strings.
pub(super) fn members<const N: usize>(
    object: &Json,
    names: [&str; N],
) -> Result<[String; N], Refusal> {
    let mut texts = [const { String::new() }; N];
    for (text, name) in texts.iter_mut().zip(names) {
        let value = object.text_at(name);
        *text = value.ok_or_else(|| Refusal::bad_request(format!("`{name}` must be a string")))?;
    }
    Ok(texts)
}

/// Signs in with a token.
pub(super) async fn begin(
    State(admin): AdminState,
    connection: OperatorConnection,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    require_json(&headers)?;
    let now = admin.now();
    let [token] = texts(&now, body, ["token"]).await?;
    let token = token.trim();
    let proof = admin.prove_token(&now, token, &connection.0).await;
    let proof = proof.map(|proof| (proof, CommonProof::Token(token.to_owned())));
    Ok(sign_in(&admin, &now, "token", proof, &headers, &connection.0).await)
}

/// Begins a session that is based on `proof`, if that identifies an operator. An id that the
/// browser sends is never used again, because somebody else may have set it.
pub(super) async fn sign_in(
    admin: &Admin,
    now: &InForce,
    method: &'static str,
    proof: Result<(Proof, CommonProof), Denied>,
    headers: &HeaderMap,
    connection: &ConnectionFacts,
) -> Response {
    let judged = proof
        .and_then(|(proof, common)| Ok((now.judge(&proof, SystemTime::now())?, proof, common)));
    let (operator, proof, common) = match judged {
        Ok(judged) => judged,
        Err(denied) => {
            admin.note(&AuditEvent::SignInDenied {
                method,
                denied: denied.audit_entry(connection.peer),
            });
            return Refusal::denied(&denied).into_response();
        }
    };
    let signed_in = AuditEvent::SignedIn {
        operator: operator.audit_actor(connection.peer),
        method,
    };
    if let Err(not_recorded) = admin.subject.record.record(&signed_in) {
        return Refusal::from(not_recorded).into_response();
    }
    let cookies = now.cookies(connection);
    if let Shown::Value(earlier) = cookies.read(Purpose::Session, headers) {
        let _ = admin.end_session(earlier).await;
    }
    admin
        .sessions
        .retain(|proof| now.judge(proof, SystemTime::now()).is_ok());
    let Some(id) = Sessions::new_id().and_then(|id| admin.common.seal(id)) else {
        let message = "the system has no random numbers for a session";
        return Refusal::unavailable(message).into_response();
    };
    let (key, limits) = (Digest::compute(id.as_bytes()), now.session_limits());
    admin
        .sessions
        .add(key, proof, peer(connection), Duration::ZERO, &limits);
    admin.common.tell(key, common, &limits).await;
    let mut response = reply::answer(&described(now, Some((&operator, true))));
    set_cookie(&cookies.set(Purpose::Session, &id, None), &mut response);
    response
}

/// Signs out.
pub(super) async fn end(
    State(admin): AdminState,
    connection: OperatorConnection,
    headers: HeaderMap,
) -> Answer {
    let now = admin.now();
    let cookies = now.cookies(&connection.0);
    if let Shown::Value(id) = cookies.read(Purpose::Session, &headers) {
        if let Ok(operator) = admin.session(&now, id, &connection.0).await {
            admin.note(&AuditEvent::SignedOut {
                operator: operator.audit_actor(connection.0.peer),
            });
        }
        admin.end_session(id).await.map_err(|reason| {
            let message = format!("the other replicas do not know that you signed out: {reason}");
            Refusal::unavailable(message)
        })?;
    }
    let mut response = reply::answer(&described(&now, None));
    now.forget(Purpose::Session, &connection.0, &mut response);
    Ok(response)
}
