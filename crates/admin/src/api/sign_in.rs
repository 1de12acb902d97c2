//! `/api/session/issuer`: signing in at an issuer of `auth`.
//!
//! A browser that begins a sign-in keeps the secrets of the sign-in, encrypted, in a cookie. The
//! listener stores nothing, so unfinished sign-ins need no memory.
//!
//! The issuer sends the browser back to `/sign-in/callback`, or to its own place below it. This request comes from another site,
//! so it does not have the cookie (`SameSite=Strict`). The page at this path posts the issuer's
//! answer to this API, with the cookie and its own origin, like any page of the listener.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use fanlight_credentials::{ConnectionFacts, SignInError};
use fanlight_protocol::epoch;
use fanlight_protocol::seal::{Keys, Seal};
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::Answer;
use super::session::{members, object, sign_in, texts};
use crate::settings::{InForce, set_cookie};
use crate::{
    Admin, AdminState, CommonProof, Denied, Digest, OperatorConnection, Proof, Purpose, Refusal,
    Shown, SignInIssuer, answer, peer, require_json,
};

/// The limit of sign-ins that wait for the issuer at the same time. There is no option: an issuer
/// answers in less than a second, and operators are few.
const AT_ONCE: usize = 16;

answers! {
    /// The URL to which the browser has to go.
    pub(crate) struct Location {
        location: String,
    }
}

/// Seals the pending sign-ins. The browsers keep them in cookies.
pub(crate) struct Attempts {
    /// Replicas have its keys in common, so that a browser may come back to any of them. `None` if
    /// the system has no random numbers.
    seal: Option<Seal>,
    asking: Semaphore,
}

impl Attempts {
    pub(crate) fn new(keys: &Keys) -> Self {
        let seal = Seal::new(keys, b"sign-in of an operator\0").ok();
        Self {
            seal,
            asking: Semaphore::new(AT_ONCE),
        }
    }

    /// Encrypts an attempt for a cookie.
    fn seal(&self, attempt: &Attempt) -> Option<String> {
        self.seal.as_ref()?.seal(&serde_json::to_vec(attempt).ok()?)
    }

    /// Decrypts the attempt in a cookie. Returns `None` if it has expired.
    fn open(&self, text: &str, now: Duration) -> Option<Attempt> {
        let plain = self.seal.as_ref()?.open(text)?;
        let attempt: Attempt = serde_json::from_slice(&plain).ok()?;
        (now < Duration::from_secs(attempt.expires)).then_some(attempt)
    }
}

/// A pending sign-in.
#[derive(Serialize, Deserialize)]
struct Attempt {
    /// The time when it expires, in seconds since 1970.
    expires: u64,
    at: SignInIssuer,
    /// The secrets that are needed to finish it.
    secrets: String,
}

fn busy() -> Denied {
    Denied::Unavailable("too many operators are signing in at the same time: try again".into())
}

/// Begins a sign-in. Returns the URL to which the browser has to go.
pub(super) async fn begin(
    State(admin): AdminState,
    connection: OperatorConnection,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    require_json(&headers)?;
    let now = admin.now();
    let [issuer] = texts(&now, body, ["issuer"]).await?;
    let at = now.settings.sign_in.iter().find(|at| at.issuer == issuer);
    let Some((at, redirect_uri)) = at.zip(now.redirect_uri()) else {
        let message = "operators do not sign in at this issuer: `/api/session` lists their issuers";
        return Err(Refusal::not_found(message));
    };
    let begun = {
        let _asking = admin
            .attempts
            .asking
            .try_acquire()
            .map_err(|_| Refusal::denied(&busy()))?;
        admin.subject.sign_in.begin(&issuer, &redirect_uri).await
    };
    // This writes no line to the log, because anybody can begin a sign-in. The code that asks the
    // issuer writes a line when that begins to fail.
    let begun = begun.map_err(|error| Refusal::denied(&denied(error)))?;
    let age = now.settings.sign_in_timeout;
    let sealed = admin.attempts.seal(&Attempt {
        expires: (epoch::now() + age).as_secs(),
        at: at.clone(),
        secrets: begun.attempt,
    });
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

/// The address at which the browser came back.
struct Came {
    /// The path. The page of this listener always sends it. The redirect URI of one issuer is not
    /// another's, so that no issuer can pass off another's code as its own (RFC 9700, 4.4.2.2).
    path: Option<String>,
    query: String,
}

/// Finishes a sign-in with the issuer's answer, which the browser has brought back.
pub(super) async fn finish(
    State(admin): AdminState,
    connection: OperatorConnection,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    require_json(&headers)?;
    let now = admin.now();
    let body = object(&now, body).await?;
    let [query] = members(&body, ["query"])?;
    let path = body.get("path").map(|_| members(&body, ["path"]));
    let came = Came {
        query,
        path: path.transpose()?.map(|[path]| path),
    };
    let proof = prove(&admin, &now, &headers, &connection.0, &came).await;
    let mut response = sign_in(&admin, &now, "issuer", proof, &headers, &connection.0).await;
    // The cookie can be used only once. The next sign-in gives the browser another one.
    now.forget(Purpose::SignIn, &connection.0, &mut response);
    Ok(response)
}

async fn prove(
    admin: &Admin,
    now: &InForce,
    headers: &HeaderMap,
    connection: &ConnectionFacts,
    came: &Came,
) -> Result<(Proof, CommonProof), Denied> {
    let cookie = match now.cookies(connection).read(Purpose::SignIn, headers) {
        Shown::Value(cookie) => Some(cookie),
        Shown::Nothing | Shown::Several => None,
    };
    let attempt = cookie.and_then(|cookie| admin.attempts.open(cookie, epoch::now()));
    let message = "this sign-in did not begin in this browser, or it took too long: start again";
    let Attempt { at, secrets, .. } = attempt
        .filter(|attempt| now.settings.sign_in.contains(&attempt.at))
        .ok_or(Denied::Invalid(message.into()))?;
    let (peer, most) = (peer(connection), now.settings.max_sign_in_failures);
    admin
        .throttle
        .check(peer, Digest::compute(came.query.as_bytes()), most)
        .map_err(Denied::Throttled)?;
    let finished = {
        let _asking = admin.attempts.asking.try_acquire().map_err(|_| busy())?;
        let path = came.path.as_deref();
        admin
            .subject
            .sign_in
            .finish(&secrets, path, &came.query)
            .await
    };
    match finished {
        Ok((identity, proof)) => {
            let common = CommonProof::SignedIn {
                at: at.clone(),
                proof,
            };
            Ok((Proof::SignedIn { at, identity }, common))
        }
        Err(error) => {
            if matches!(error, SignInError::Refused(_)) {
                admin.throttle.count_failure(peer, most);
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
