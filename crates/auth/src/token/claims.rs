//! The checks of a token's claims, and the identity in them (RFC 7519, RFC 9068).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fanlight_canonical::identity::{Claims, Identity, Principal, Scopes, Source, Validity};
use fanlight_credentials::Denial;
use fanlight_protocol::Json;
use fanlight_protocol::json::{Kind, Member};

use crate::{IssuerSettings, json};

/// The limit of listed actors in a chain.
const MAX_ACTORS: usize = 8;
/// The length limit of a client's name, in bytes.
const MAX_NAME: usize = 1024;

/// The end of the year 9999. A later time is a mistake, and would not fit everywhere.
const LAST_SECOND: f64 = 253_402_300_799.0;

/// Claims of ID tokens (OpenID Connect Core, 3.1.3.6) and security events (RFC 8417), which access
/// tokens lack. They matter if an issuer signs all of these with the same keys, and a client's
/// audience is configured.
const OF_OTHER_TOKENS: [&str; 3] = ["at_hash", "c_hash", "events"];

/// Claims by which issuers tell the kind of a token (RFC 7662, 2.2; Keycloak, Cognito, Hydra), and
/// the kinds that are no access tokens.
const KIND_CLAIMS: [&str; 3] = ["token_type", "token_use", "typ"];
const OTHER_KINDS: [&str; 5] = ["id", "id_token", "offline", "refresh", "refresh_token"];

/// The requirements for claims.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules<'a> {
    /// The issuer.
    pub(crate) issuer: &'a IssuerSettings,
    /// The identifier of the endpoint that the token is sent to.
    pub(crate) endpoint: Option<&'a str>,
    /// The allowed difference between clocks.
    pub(crate) leeway: Duration,
    /// The time.
    pub(crate) now: SystemTime,
}

/// The key that a token is bound to, if any (RFC 7800).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// No key: it is a bearer token.
    None,
    /// The TLS certificate with this SHA-256 hash (RFC 8705, 3.1).
    Certificate([u8; 32]),
    /// The key with this thumbprint. Each request needs a DPoP proof (RFC 9449, 6.1).
    Key([u8; 32]),
}

/// Checks all claims except the signer. Returns when they expire, including the leeway; `None` if
/// they do not tell.
///
/// # Errors
///
/// If they are not the claims of a token that may be used now at this endpoint.
pub(crate) fn check(claims: &Json, rules: &Rules<'_>) -> Result<Option<SystemTime>, Denial> {
    let expires = date(claims, "exp")?.and_then(|expires| expires.checked_add(rules.leeway));
    if expires.is_some_and(|expires| expires <= rules.now) {
        return Err(invalid("the token has expired"));
    }
    let latest = rules.now + rules.leeway;
    for name in ["nbf", "iat"] {
        if date(claims, name)?.is_some_and(|time| time > latest) {
            return Err(invalid("the token is not valid yet"));
        }
    }
    if !is_for(claims, rules) {
        return Err(invalid(
            "the token is not for this server: it has another audience",
        ));
    }
    let is_other = |name: &&str| {
        let kind = claims.text_at(name).unwrap_or_default();
        OTHER_KINDS.contains(&&*kind.to_ascii_lowercase())
    };
    if OF_OTHER_TOKENS
        .iter()
        .any(|name| claims.peek(name).is_some())
        || KIND_CLAIMS.iter().any(is_other)
    {
        return Err(invalid("the token is not an access token"));
    }
    check_required(claims, rules.issuer)?;
    Ok(expires)
}

/// Checks the claims that the configuration requires.
///
/// # Errors
///
/// If one is missing, or has none of the values.
pub(crate) fn check_required(claims: &Json, issuer: &IssuerSettings) -> Result<(), Denial> {
    for (path, values) in &issuer.require {
        let found = json::find(claims, path)
            .and_then(|claim| json::texts(&claim))
            .unwrap_or_default();
        if !found.iter().any(|text| values.contains(text)) {
            return Err(invalid("the token lacks a claim that this server requires"));
        }
    }
    Ok(())
}

/// Whether one of the audiences is this server. An endpoint's identifier may have a slash at its
/// end or not.
fn is_for(claims: &Json, rules: &Rules<'_>) -> bool {
    let audiences = claims
        .get("aud")
        .and_then(|audience| json::texts(&audience))
        .unwrap_or_default();
    let configured = &rules.issuer.audience;
    if !configured.is_empty() {
        return audiences
            .iter()
            .any(|audience| configured.contains(audience));
    }
    let without_slash = |url: &str| url.strip_suffix('/').unwrap_or(url).to_owned();
    rules.endpoint.is_some_and(|endpoint| {
        let endpoint = without_slash(endpoint);
        audiences
            .iter()
            .any(|audience| without_slash(audience) == endpoint)
    })
}

/// The key that the token is bound to.
///
/// # Errors
///
/// If the binding cannot be checked, since a thief could then use the token as well.
pub(crate) fn binding(claims: &Json) -> Result<Binding, Denial> {
    let Some(confirmation) = claims.get("cnf") else {
        return Ok(Binding::None);
    };
    let hash = |name: &str| {
        json::base64url(&confirmation.text_at(name)?)?
            .try_into()
            .ok()
    };
    let known = hash("x5t#S256")
        .map(Binding::Certificate)
        .or_else(|| hash("jkt").map(Binding::Key));
    let only = known.filter(|_| confirmation.members().count() == 1);
    only.ok_or_else(|| {
        invalid("the token is bound to a key, and this server accepts no proof of it")
    })
}

/// The client in checked claims.
///
/// # Errors
///
/// If they do not describe one.
pub(crate) fn identity(
    claims: &Json,
    issuer: &IssuerSettings,
    validity: Validity,
) -> Result<Identity, Denial> {
    let paths = &issuer.claims;
    let subject = json::find(claims, &paths.principal).and_then(|claim| claim.to_str());
    let subject = subject.filter(|subject| !subject.is_empty() && subject.len() <= MAX_NAME);
    let subject = subject.ok_or_else(|| invalid("the token does not name its client"))?;
    let groups = match json::find(claims, &paths.groups) {
        Some(claim) if !claim.is_null() => {
            json::texts(&claim).ok_or_else(|| invalid("the groups in the token are malformed"))?
        }
        _ => Vec::new(),
    };
    Ok(Identity {
        principal: Principal::new(&issuer.issuer, &subject),
        name: Arc::from(subject),
        source: Source::Token,
        groups: groups.into_iter().map(Arc::from).collect(),
        scopes: scopes(claims, paths)?,
        claims: texts_of(claims),
        endpoints: None,
        validity,
    })
}

/// The claims that policies can read: texts, numbers, Booleans, and lists of texts. Nested claims
/// are left out.
fn texts_of(claims: &Json) -> Claims {
    let texts = |value: &Json| match value.kind() {
        Kind::String | Kind::Array => json::texts(value),
        Kind::Number | Kind::Bool => Some(vec![value.as_text().to_owned()]),
        Kind::Object | Kind::Null => None,
    };
    let texts = |name: &str, value: &Json| {
        if name == "act" {
            Some(actors(value))
        } else {
            texts(value)
        }
    };
    let claim = |member: Member| {
        let name = member.name(claims)?.into_boxed_str();
        let texts = texts(&name, &claims.slice(member.value))?
            .into_iter()
            .map(String::into_boxed_str);
        Some((name, texts.collect()))
    };
    Arc::new(claims.members().filter_map(claim).collect())
}

/// The chain of actors for the subject, the current one first (RFC 8693, 4.1).
fn actors(claim: &Json) -> Vec<String> {
    let mut next = Some(claim.clone());
    let chain = std::iter::from_fn(|| {
        let actor = next.take()?;
        next = actor.get("act");
        actor.text_at("sub")
    });
    chain.take(MAX_ACTORS).collect()
}

/// The scopes: a space-separated list (RFC 8693, 4.2), or an array.
fn scopes(claims: &Json, paths: &fanlight_config::Claims) -> Result<Scopes, Denial> {
    let mut claim = json::find(claims, &paths.scopes);
    if claim.is_none() && paths.scopes == "scope" {
        claim = claims.get("scp");
    }
    let Some(claim) = claim.filter(|claim| !claim.is_null()) else {
        return Ok(Scopes::parse(""));
    };
    let texts =
        json::texts(&claim).ok_or_else(|| invalid("the scopes in the token are malformed"))?;
    Ok(match claim.kind() {
        Kind::String => Scopes::parse(texts.first().map_or("", String::as_str)),
        _ => Scopes::Only(Arc::new(
            texts.into_iter().map(Arc::from).collect::<BTreeSet<_>>(),
        )),
    })
}

/// A time in seconds since 1970, possibly with a fraction (RFC 7519, 2: `NumericDate`).
pub(crate) fn date(claims: &Json, name: &str) -> Result<Option<SystemTime>, Denial> {
    let Some(claim) = claims.get(name) else {
        return Ok(None);
    };
    let seconds: Option<f64> = (claim.kind() == Kind::Number)
        .then(|| claim.as_text().parse().ok())
        .flatten();
    let duration = seconds
        .filter(|seconds| (0.0..=LAST_SECOND).contains(seconds))
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = duration.and_then(|duration| UNIX_EPOCH.checked_add(duration));
    time.map(Some)
        .ok_or_else(|| invalid("a time in the token is malformed"))
}

fn invalid(text: &'static str) -> Denial {
    Denial::Invalid(text.into())
}

#[cfg(test)]
mod tests;
