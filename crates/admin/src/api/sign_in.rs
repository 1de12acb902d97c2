//! `/api/session/issuer`: signing in at an OpenID Connect issuer.
//!
//! The browser that begins a sign-in keeps its secrets, sealed, in a cookie; nothing is kept here, so that no number of
//! sign-ins that are begun and never ended takes memory. The issuer sends the browser back to `/sign-in/callback`, whose
//! request comes from another site and therefore without that cookie (`SameSite=Strict`). That page posts what the issuer
//! has added to its address to this API, as any of the listener's pages would: with the cookie, and with its own origin.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use fanlight_canonical::credentials::{Attempt, ConnectionFacts, IssuerAnswer, SignInError};
use fanlight_protocol::Json;
use fanlight_protocol::seal::{Keys, Seal};
use http::{HeaderMap, StatusCode};
use serde::Serialize;
use tokio::sync::Semaphore;
#[cfg(test)]
use utoipa::ToSchema;

use super::Answer;
use super::body::read_up_to;
use super::session::{LONGEST_BODY, NESTING, sign_in};
use crate::Admin;
use crate::SignInClient;
use crate::access::{OperatorConnection, peer, require_json};
use crate::operator::{Denied, Digest, Proof, Purpose, Shown};
use crate::reply::{Refusal, answer};
use crate::settings::{InForce, set_cookie};

/// Most sign-ins that ask the issuer at the same time. No option: an issuer answers in less than a second, and operators are
/// few.
const AT_ONCE: usize = 16;

/// Where the browser goes.
#[derive(Serialize)]
#[cfg_attr(test, derive(ToSchema))]
pub(crate) struct Location {
    location: String,
}

/// The sign-ins that have begun: sealed, in the browsers that have begun them.
pub(crate) struct Attempts {
    /// With a key of this process; `None` if the system has no random numbers.
    seal: Option<Seal>,
    asking: Semaphore,
}

impl Attempts {
    pub(crate) fn new() -> Self {
        let seal = Seal::new(&Keys::default(), b"sign-in of an operator\0").ok();
        Self {
            seal,
            asking: Semaphore::new(AT_ONCE),
        }
    }

    /// The attempt as a cookie carries it, until `expires`.
    fn seal(&self, attempt: &Attempt, expires: Duration, client: &SignInClient) -> Option<String> {
        let Attempt {
            state,
            nonce,
            verifier,
        } = attempt;
        let plain = format!("{} {state} {nonce} {verifier}", expires.as_secs());
        self.seal
            .as_ref()?
            .seal_for(plain.as_bytes(), &owner(client))
    }

    /// The attempt in a cookie, if it has not expired, and began with this client of the issuer.
    fn open(&self, text: &str, now: Duration, client: &SignInClient) -> Option<Attempt> {
        let plain = self.seal.as_ref()?.open_for(text, &owner(client))?;
        let plain = String::from_utf8(plain).ok()?;
        let mut parts = plain.split(' ');
        let (expires, mut next) = (parts.next()?.parse().ok()?, || {
            parts.next().map(str::to_owned)
        });
        let attempt = Attempt {
            state: next()?,
            nonce: next()?,
            verifier: next()?,
        };
        (now < Duration::from_secs(expires)).then_some(attempt)
    }
}

/// What an attempt is bound to.
fn owner(client: &SignInClient) -> Vec<u8> {
    let settings = &client.settings;
    [
        settings.issuer.as_str(),
        &settings.client_id,
        &settings.redirect_uri,
    ]
    .join("\n")
    .into_bytes()
}

fn since_epoch() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn configured(now: &InForce) -> Result<SignInClient, Refusal> {
    let message = "no issuer is configured for operators (`admin.signIn`)";
    now.settings
        .sign_in
        .clone()
        .ok_or_else(|| Refusal::new(StatusCode::NOT_FOUND, message))
}

fn busy() -> Denied {
    Denied::Unavailable("too many operators are signing in at the same time: try again".into())
}

/// Begins a sign-in: where the browser goes.
pub(super) async fn begin(
    State(admin): State<Arc<Admin>>,
    connection: OperatorConnection,
    headers: HeaderMap,
) -> Answer {
    require_json(&headers)?;
    let now = admin.now();
    let client = configured(&now)?;
    let begun = {
        let _asking = admin
            .attempts
            .asking
            .try_acquire()
            .map_err(|_| Refusal::denied(&busy()))?;
        client.client.begin().await
    };
    // Without a line in the log: anybody can begin one. The client of the issuer writes one when that begins to fail.
    let begun = begun.map_err(|error| Refusal::denied(&denied(error)))?;
    let age = now.settings.sign_in_timeout;
    let sealed = admin
        .attempts
        .seal(&begun.attempt, since_epoch() + age, &client);
    let sealed = sealed.ok_or_else(|| {
        Refusal::denied(&Denied::Unavailable(
            "the system has no random numbers".into(),
        ))
    })?;
    let mut response = answer(&Location {
        location: begun.location,
    });
    set_cookie(
        &now.cookies(&connection.0)
            .set(Purpose::SignIn, &sealed, Some(age)),
        &mut response,
    );
    Ok(response)
}

/// Ends a sign-in with what the issuer has sent the browser back with.
pub(super) async fn finish(
    State(admin): State<Arc<Admin>>,
    connection: OperatorConnection,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    require_json(&headers)?;
    let now = admin.now();
    let client = configured(&now)?;
    let body = read_up_to(LONGEST_BODY, body, &now.settings).await?;
    let body =
        Json::parse(body, NESTING).map_err(|_| Refusal::bad_request("the body is no JSON"))?;
    let proof = prove(&admin, &now, &client, &headers, &connection.0, &body).await;
    let mut response: Response =
        sign_in(&admin, &now, "issuer", proof, &headers, &connection.0).into_response();
    // Single use: the next sign-in gives the browser another one.
    now.forget(Purpose::SignIn, &connection.0, &mut response);
    Ok(response)
}

async fn prove(
    admin: &Admin,
    now: &InForce,
    client: &SignInClient,
    headers: &HeaderMap,
    connection: &ConnectionFacts,
    body: &Json,
) -> Result<Proof, Denied> {
    let cookie = match now.cookies(connection).read(Purpose::SignIn, headers) {
        Shown::Value(cookie) => Some(cookie),
        Shown::Nothing | Shown::Several => None,
    };
    let attempt = cookie.and_then(|cookie| admin.attempts.open(cookie, since_epoch(), client));
    let message = "this browser has not begun this sign-in, or it took too long: begin again";
    let attempt = attempt.ok_or(Denied::Invalid(message.into()))?;
    let [code, state, iss, error] = ["code", "state", "iss", "error"].map(|name| body.get(name));
    let [code, state, iss, error] =
        [&code, &state, &iss, &error].map(|value| value.as_ref().and_then(Json::as_str));
    let answer = IssuerAnswer {
        code: code.as_deref(),
        state: state.as_deref(),
        iss: iss.as_deref(),
        error: error.as_deref(),
    };
    let (peer, shown) = (
        peer(connection),
        Digest::of(answer.code.unwrap_or_default().as_bytes()),
    );
    let most = now.settings.max_sign_in_failures;
    admin
        .throttle
        .check(peer, shown, most)
        .map_err(Denied::Throttled)?;
    let finished = {
        let _asking = admin.attempts.asking.try_acquire().map_err(|_| busy())?;
        client.client.finish(&attempt, answer).await
    };
    match finished {
        Ok(identity) => Ok(Proof::SignedIn {
            issuer: client.settings.issuer.as_str().into(),
            client: client.settings.client_id.as_str().into(),
            identity,
        }),
        Err(error) => {
            if matches!(error, SignInError::Refused(_)) {
                admin.throttle.failed(peer, most);
            }
            Err(denied(error))
        }
    }
}

fn denied(error: SignInError) -> Denied {
    match error {
        SignInError::Refused(text) => Denied::Invalid(text),
        SignInError::Unavailable(text) => Denied::Unavailable(text),
    }
}
