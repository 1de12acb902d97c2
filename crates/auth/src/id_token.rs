//! Verifies an issuer's ID token, which names the user who has signed in there (OpenID Connect Core
//! 1.0, 3.1.3.7).

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use fanlight_canonical::identity::{Identity, Validity};
use fanlight_credentials::{Denial, IdToken, SignInError};
use fanlight_protocol::Json;

use tokio_util::sync::CancellationToken;

use crate::issuer::{Issuer, KeySet, KeyStore, Lookup};
use crate::json;
use crate::token::{Jwt, check_required, claim_date, token_identity};

/// The length limit of an ID token.
const LONGEST: usize = 64 << 10;

/// The length limit of a name or subject.
const LONGEST_NAME: usize = 1024;

/// The requirements for an ID token.
#[derive(Clone, Copy)]
struct Expected<'a> {
    issuer: &'a str,
    /// The client id of Fanlight, for which the token must be made.
    client: &'a str,
    nonce: &'a str,
    /// The permitted difference of the clocks.
    leeway: Duration,
    now: SystemTime,
}

/// The user named by an ID token of an issuer of access tokens. The principal is the same as with
/// those tokens.
pub(crate) async fn user(
    issuer: &Issuer,
    leeway: Duration,
    shown: IdToken<'_>,
) -> Result<Arc<Identity>, SignInError> {
    let IdToken {
        token,
        client_id: client,
        nonce,
        ..
    } = shown;
    let expected = Expected {
        issuer: &issuer.settings.issuer,
        client,
        nonce,
        leeway,
        now: SystemTime::now(),
    };
    let (claims, revoked) = verify(token, &issuer.keys, &expected).await?;
    check_required(&claims, &issuer.settings).map_err(denied)?;
    let validity = Validity {
        expires: None,
        revoked,
    };
    let identity = token_identity(&claims, &issuer.settings, validity).map_err(denied)?;
    if identity.validity.revoked.is_cancelled() {
        // The configuration or the issuer's keys have changed meanwhile.
        return Err(SignInError::Unavailable(
            "the issuer has changed: start again".into(),
        ));
    }
    let name = name_of(&claims).map_or_else(|| Arc::clone(&identity.name), Arc::from);
    Ok(Arc::new(Identity { name, ..identity }))
}

/// Verifies an ID token. Returns its claims, and a token that is cancelled when its key is no
/// longer published.
async fn verify(
    token: &str,
    keys: &Arc<KeyStore>,
    expected: &Expected<'_>,
) -> Result<(Json, CancellationToken), SignInError> {
    let malformed = || refused_error("the issuer's ID token is malformed");
    if token.len() > LONGEST {
        return Err(malformed());
    }
    let jwt = Jwt::read(token).map_err(denied)?.ok_or_else(malformed)?;
    let header = jwt.header().map_err(denied)?;
    let (id, algorithm) = (header.key.as_deref(), header.algorithm);
    let lookup = match keys.look_up(id, algorithm) {
        Lookup::Reading(attempt) => {
            attempt.await;
            keys.find_known(id, algorithm)
        }
        other => other,
    };
    let set: Arc<KeySet> = match lookup {
        Lookup::Found(set) => set,
        Lookup::Unknown => {
            return Err(refused_error(
                "the issuer's ID token is signed by an unknown key",
            ));
        }
        Lookup::Unavailable | Lookup::Reading(_) => {
            return Err(SignInError::Unavailable(
                "the issuer's keys cannot be read: try again later".into(),
            ));
        }
    };
    let key = set
        .find(id, algorithm)
        .filter(|key| jwt.is_signed_by(key, algorithm));
    let key =
        key.ok_or_else(|| refused_error("the signature of the issuer's ID token is wrong"))?;
    check(&jwt.claims, expected)?;
    Ok((jwt.claims, key.revoked.clone()))
}

/// Checks all claims except the identity.
fn check(claims: &Json, expected: &Expected<'_>) -> Result<(), SignInError> {
    let Expected {
        issuer,
        client,
        nonce,
        leeway,
        now,
    } = *expected;
    let is = |name: &str, text: &str| claims.says(name, text);
    if !is("iss", issuer) {
        return Err(refused_error("the ID token comes from another issuer"));
    }
    let audiences = claims
        .get("aud")
        .and_then(|claim| json::texts(&claim))
        .unwrap_or_default();
    let is_for_others = audiences.iter().any(|audience| audience != client);
    let has_other_party = claims.peek("azp").is_some() && !is("azp", client);
    if !audiences.iter().any(|audience| audience == client)
        || has_other_party
        || (is_for_others && claims.peek("azp").is_none())
    {
        return Err(refused_error("the ID token is for another client"));
    }
    let shown = claims.text_at("nonce").unwrap_or_default();
    if verify_slices_are_equal(shown.as_bytes(), nonce.as_bytes()).is_err() {
        return Err(refused_error("the ID token belongs to another sign-in"));
    }
    let date = |name| claim_date(claims, name).map_err(denied);
    let is_past = |time: SystemTime| time.checked_add(leeway).is_some_and(|time| time <= now);
    if date("exp")?.is_none_or(is_past) {
        return Err(refused_error("the ID token has expired, or never expires"));
    }
    let is_ahead = |time: SystemTime| time > now + leeway;
    if date("iat")?.is_none_or(is_ahead) || date("nbf")?.is_some_and(is_ahead) {
        return Err(refused_error(
            "the ID token is not valid yet: are both clocks right?",
        ));
    }
    Ok(())
}

/// A name for people.
fn name_of(claims: &Json) -> Option<String> {
    text_at(claims, "preferred_username").or_else(|| text_at(claims, "email"))
}

fn text_at(claims: &Json, path: &str) -> Option<String> {
    let value = json::find(claims, path).and_then(|claim| claim.to_str());
    value.filter(|text| !text.is_empty() && text.len() <= LONGEST_NAME)
}

fn refused_error(text: &'static str) -> SignInError {
    SignInError::Refused(text.into())
}

fn denied(denial: Denial) -> SignInError {
    SignInError::Refused(format!("the issuer's ID token is not accepted: {denial}").into())
}
