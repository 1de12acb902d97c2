//! The ID token: the identity of an operator or user who has signed in (OpenID Connect Core 1.0,
//! 3.1.3.7).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use fanlight_canonical::credentials::{Denial, IdToken, SignInError, SignInSettings};
use fanlight_canonical::identity::{Claims, Identity, Principal, Scopes, Source, Validity};
use fanlight_protocol::Json;
use fanlight_protocol::json::Kind;

use tokio_util::sync::CancellationToken;

use super::refused;
use crate::issuer::{Issuer, KeySet, KeyStore, Lookup};
use crate::json;
use crate::token::{Jwt, claim_date, token_identity};

/// The length limit of an ID token.
const LONGEST: usize = 64 << 10;

/// The length limit of a name or subject.
const LONGEST_NAME: usize = 1024;

/// The requirements for an ID token.
#[derive(Clone, Copy)]
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    /// Fanlight's client id, which must be the audience.
    pub(super) client: &'a str,
    pub(super) nonce: &'a str,
    /// The allowed difference between clocks.
    pub(super) leeway: Duration,
    pub(super) now: SystemTime,
}

/// The operator named by an ID token.
pub(super) async fn operator(
    token: &str,
    keys: &Arc<KeyStore>,
    expected: &Expected<'_>,
    settings: &SignInSettings,
) -> Result<Identity, SignInError> {
    let (claims, _) = verify(token, keys, expected).await?;
    identity(&claims, settings)
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
    let validity = Validity {
        expires: None,
        revoked,
    };
    let identity = token_identity(&claims, &issuer.settings, validity).map_err(denied)?;
    if identity.validity.revoked.is_cancelled() {
        // The configuration or the issuer's keys have changed meanwhile.
        return Err(SignInError::Unavailable(
            "the issuer has changed: begin again".into(),
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
    let malformed = || refused("the issuer's ID token is malformed");
    if token.len() > LONGEST {
        return Err(malformed());
    }
    let jwt = Jwt::read(token).map_err(denied)?.ok_or_else(malformed)?;
    let header = jwt.header().map_err(denied)?;
    let (id, algorithm) = (header.key.as_deref(), header.algorithm);
    let lookup = match keys.look_up(id, algorithm) {
        Lookup::Reading(attempt) => {
            attempt.await;
            keys.found(id, algorithm)
        }
        other => other,
    };
    let set: Arc<KeySet> = match lookup {
        Lookup::Found(set) => set,
        Lookup::Unknown => {
            return Err(refused("the issuer's ID token is signed by an unknown key"));
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
    let key = key.ok_or_else(|| refused("the signature of the issuer's ID token is wrong"))?;
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
    let is = |name: &str, text: &str| claims.peek(name).is_some_and(|claim| claim.is_str(text));
    if !is("iss", issuer) {
        return Err(refused("the ID token is of another issuer"));
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
        return Err(refused("the ID token is for another client"));
    }
    let shown = json::text(claims, "nonce").unwrap_or_default();
    if verify_slices_are_equal(shown.as_bytes(), nonce.as_bytes()).is_err() {
        return Err(refused("the ID token is of another sign-in"));
    }
    let date = |name| claim_date(claims, name).map_err(denied);
    let is_past = |time: SystemTime| time.checked_add(leeway).is_some_and(|time| time <= now);
    if date("exp")?.is_none_or(is_past) {
        return Err(refused("the ID token has expired, or never does"));
    }
    let is_ahead = |time: SystemTime| time > now + leeway;
    if date("iat")?.is_none_or(is_ahead) || date("nbf")?.is_some_and(is_ahead) {
        return Err(refused(
            "the ID token is not valid yet: are both clocks right?",
        ));
    }
    Ok(())
}

/// The identity in the checked claims. It is valid for the session, whose duration the
/// configuration limits.
fn identity(claims: &Json, settings: &SignInSettings) -> Result<Identity, SignInError> {
    let subject = json::text(claims, "sub")
        .filter(|subject| !subject.is_empty() && subject.len() <= LONGEST_NAME);
    let subject = subject.ok_or_else(|| refused("the ID token does not say who has signed in"))?;
    let name = match &settings.name_claim {
        Some(path) => text_at(claims, path),
        None => name_of(claims),
    };
    let list = |path: &str, separated: bool| -> Result<Vec<String>, SignInError> {
        let Some(claim) = json::at(claims, path).filter(|claim| !claim.is_null()) else {
            return Ok(Vec::new());
        };
        let texts = json::texts(&claim)
            .ok_or_else(|| refused("the groups or scopes in the ID token are malformed"))?;
        let is_one = separated && claim.kind() == Kind::String;
        let split = |text: &String| {
            text.split(' ')
                .filter(|part| !part.is_empty())
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        Ok(if is_one {
            texts.iter().flat_map(split).collect()
        } else {
            texts
        })
    };
    let groups = list(&settings.groups_claim, false)?;
    let scopes = settings
        .scopes_claim
        .as_deref()
        .map(|path| list(path, true))
        .transpose()?
        .unwrap_or_default();
    Ok(Identity {
        principal: Principal::named(&settings.issuer, &subject),
        name: Arc::from(name.unwrap_or(subject)),
        source: Source::Token,
        groups: groups.into_iter().map(Arc::from).collect(),
        scopes: Scopes::Only(Arc::new(
            scopes.into_iter().map(Arc::from).collect::<BTreeSet<_>>(),
        )),
        claims: Claims::default(),
        endpoints: None,
        validity: Validity::default(),
    })
}

/// A name for people.
fn name_of(claims: &Json) -> Option<String> {
    text_at(claims, "preferred_username").or_else(|| text_at(claims, "email"))
}

fn text_at(claims: &Json, path: &str) -> Option<String> {
    let value = json::at(claims, path).and_then(|claim| Some(claim.as_str()?.into_owned()));
    value.filter(|text| !text.is_empty() && text.len() <= LONGEST_NAME)
}

fn denied(denial: Denial) -> SignInError {
    SignInError::Refused(format!("the issuer's ID token is not accepted: {denial}").into())
}
