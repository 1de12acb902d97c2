//! The proof that a request needs besides a bound token: the TLS certificate (RFC 8705), or a DPoP
//! proof for this one request (RFC 9449).

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fanlight_canonical::identity::Principal;
use fanlight_config::settings::Algorithm;
use fanlight_credentials::{Credentials, Denial};
use fanlight_fair::Part;
use fanlight_grants::oauth::{PROOF, TokenKind};
use fanlight_protocol::{Json, sha256};
use futures_util::future::BoxFuture;
use http::HeaderMap;
use jsonwebtoken::jwk::{Jwk, ThumbprintHash};
use parking_lot::Mutex;
use url::Url;

use super::claims::{self, Binding};
use super::{Jwt, Shown, Tokens};
use crate::bearer::MAX_LENGTH;
use crate::issuer::Key;
use crate::json;

/// The age limit of a proof, which is made for one request.
pub(super) const MAX_AGE: Duration = Duration::from_secs(60);

/// The length limit of a proof's id.
const MAX_ID: usize = 1024;

/// The limit of proofs remembered as used. One principal may have as many of them as it leaves for
/// others.
const USED: usize = 1 << 19;

/// Checks that a request with a token of this `binding` comes from the token's holder.
///
/// # Errors
///
/// If the proof is missing or wrong.
pub(super) fn check(
    tokens: &Tokens,
    shown: &Shown<'_>,
    binding: Binding,
    principal: &Principal,
) -> Result<(), Denial> {
    let invalid = |text: &'static str| Err(Denial::Invalid(text.into()));
    match (binding, shown.bearer.scheme()) {
        (Binding::None, TokenKind::Bearer) => Ok(()),
        (Binding::Certificate(hash), TokenKind::Bearer) => {
            let certificate = shown.request.connection.certificate.as_deref();
            if certificate.is_some_and(|certificate| sha256([certificate]) == hash) {
                Ok(())
            } else {
                invalid(
                    "the token is bound to a TLS certificate that this connection does not have",
                )
            }
        }
        (Binding::Key(thumbprint), TokenKind::Dpop) => {
            let proof = Proof::read(shown, &thumbprint)?;
            proof.check(tokens, shown)?;
            tokens
                .proofs
                .use_once(&thumbprint, &proof.id, principal, tokens.proof_span())
        }
        // Required by RFC 9449, 7.2, since otherwise anybody who has seen the token could use it.
        (Binding::Key(_), TokenKind::Bearer) => invalid(
            "the token is bound to a key: send it as `Authorization: DPoP`, with a proof in the header DPoP",
        ),
        (Binding::None | Binding::Certificate(_), TokenKind::Dpop) => {
            invalid("the token is not bound to a key: send it as `Authorization: Bearer`")
        }
    }
}

/// Marks the verified proof of a request as used at all processes.
///
/// # Errors
///
/// If another process has accepted it, or cannot be asked.
pub(super) async fn use_everywhere(
    used: &dyn UsedOnce,
    headers: &HeaderMap,
    span: Duration,
) -> Result<(), Denial> {
    let proof = headers.get(&PROOF).and_then(|field| field.to_str().ok());
    let jwt = proof.and_then(|text| Jwt::read(text).ok().flatten());
    let named = jwt.as_ref().and_then(|jwt| {
        let (_, jwk) = jwt.proof_header()?;
        Some(
            [
                &thumbprint_of(&jwk)?[..],
                jwt.claims.text_at("jti")?.as_bytes(),
            ]
            .concat(),
        )
    });
    // The proof was parsed before, so this does not fail.
    let named = named.ok_or_else(|| invalid_proof("the proof in the header DPoP is malformed"))?;
    match used.use_once(&named, span).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(invalid_proof("the proof in the header DPoP was used before")),
        Err(NotKnown) => Err(Denial::Unavailable(
            "cannot check now whether the proof in the header DPoP was used before; try again later".into(),
        )),
    }
}

/// A proof of the key that a token is bound to. Nothing else in it is verified.
struct Proof<'a> {
    jwt: Jwt<'a>,
    algorithm: Algorithm,
    key: Key,
    id: String,
}

impl<'a> Proof<'a> {
    /// Reads the one proof in a request, which must be made with the key of this thumbprint.
    fn read(shown: &Shown<'a>, thumbprint: &[u8; 32]) -> Result<Self, Denial> {
        let mut fields = shown.request.headers.get_all(&PROOF).iter();
        let (Some(field), None) = (fields.next(), fields.next()) else {
            return Err(invalid_proof(
                "the token is bound to a key: send one proof of it in the header DPoP",
            ));
        };
        let malformed = || invalid_proof("the proof in the header DPoP is malformed");
        let text = field
            .to_str()
            .ok()
            .filter(|text| text.len() <= MAX_LENGTH)
            .ok_or_else(malformed)?;
        let jwt = Jwt::read(text).ok().flatten().ok_or_else(malformed)?;
        let (algorithm, jwk) = jwt.proof_header().ok_or_else(malformed)?;
        let key = Key::read(&jwk)
            .filter(|key| key.is_for(algorithm))
            .ok_or_else(malformed)?;
        if thumbprint_of(&jwk).as_ref() != Some(thumbprint) {
            return Err(invalid_proof(
                "the proof in the header DPoP was made with another key than the token's",
            ));
        }
        let id = jwt
            .claims
            .text_at("jti")
            .filter(|id| !id.is_empty() && id.len() <= MAX_ID);
        let id = id.ok_or_else(malformed)?;
        Ok(Self {
            jwt,
            algorithm,
            key,
            id,
        })
    }

    /// Checks that the key made the proof just now, for this request and this token (RFC 9449,
    /// 4.3).
    fn check(&self, tokens: &Tokens, shown: &Shown<'_>) -> Result<(), Denial> {
        let says = |name: &str, text: &str| self.jwt.claims.says(name, text);
        if !says("htm", shown.request.method.as_str()) {
            return Err(invalid_proof(
                "the proof in the header DPoP is for another HTTP method",
            ));
        }
        let public_url = tokens.settings.public_url.as_deref();
        let url = self
            .jwt
            .claims
            .text_at("htu")
            .and_then(|text| without_query(&text));
        if url.is_none()
            || url != public_url.and_then(|public_url| url_of(public_url, &shown.request))
        {
            return Err(invalid_proof(
                "the proof in the header DPoP is for another URL",
            ));
        }
        if !says(
            "ath",
            &URL_SAFE_NO_PAD.encode(sha256([shown.bearer.expose()])),
        ) {
            return Err(invalid_proof(
                "the proof in the header DPoP is for another token",
            ));
        }
        let now = SystemTime::now();
        let made = claims::date(&self.jwt.claims, "iat").ok().flatten();
        let is_new = |made: SystemTime| {
            let oldest = match tokens.used {
                Some(_) => now - MAX_AGE,
                // `iat` is in whole seconds.
                None => (now - MAX_AGE).max(tokens.proofs.since - Duration::from_secs(1)),
            };
            (oldest..=now + tokens.settings.limits.leeway).contains(&made)
        };
        if !made.is_some_and(is_new) {
            return Err(invalid_proof(
                "the proof in the header DPoP is too old, or from the future",
            ));
        }
        if self.jwt.is_signed_by(&self.key, self.algorithm) {
            Ok(())
        } else {
            Err(invalid_proof(
                "the signature of the proof in the header DPoP is wrong",
            ))
        }
    }
}

/// The URL of a request from the client's point of view.
fn url_of(public_url: &str, request: &Credentials<'_>) -> Option<Url> {
    without_query(&format!(
        "{}{}",
        public_url.trim_end_matches('/'),
        request.path
    ))
}

/// A URL in the form for comparisons (RFC 3986, 6.2.2 and 6.2.3), without query and fragment.
fn without_query(text: &str) -> Option<Url> {
    let mut url = Url::parse(text).ok()?;
    url.set_query(None);
    url.set_fragment(None);
    Some(url)
}

/// The thumbprint of a key (RFC 7638).
fn thumbprint_of(jwk: &Json) -> Option<[u8; 32]> {
    let jwk: Jwk = serde_json::from_str(jwk.as_text()).ok()?;
    json::base64url(&jwk.thumbprint(ThumbprintHash::SHA256).ok()?)?
        .try_into()
        .ok()
}

fn invalid_proof(text: &'static str) -> Denial {
    Denial::InvalidProof(text.into())
}

/// The used proofs, for as long as they could be used again. If there is no room, new proofs are
/// refused; none is forgotten.
#[derive(Debug)]
pub(super) struct Proofs {
    used: Mutex<Generations>,
    /// Proofs that are older may have been used at a process that has ended.
    since: SystemTime,
}

/// Proofs used recently and those used before. Each is remembered for at least one generation.
#[derive(Debug, Default)]
struct Generations {
    latest: Generation,
    earlier: Generation,
}

#[derive(Debug, Default)]
struct Generation {
    began: Option<Instant>,
    used: HashSet<u128>,
    counts: HashMap<Principal, usize>,
}

impl Default for Proofs {
    fn default() -> Self {
        Self {
            used: Mutex::default(),
            since: SystemTime::now(),
        }
    }
}

impl Proofs {
    /// Marks a proof as used. No proof is valid for longer than `span`.
    fn use_once(
        &self,
        thumbprint: &[u8; 32],
        id: &str,
        principal: &Principal,
        span: Duration,
    ) -> Result<(), Denial> {
        let mut generations = self.used.lock();
        generations.turn(Instant::now(), span);
        generations.add(hash(thumbprint, id), principal, USED)
    }
}

impl Generations {
    /// Begins a new generation when the latest one has lasted for `span`.
    fn turn(&mut self, now: Instant, span: Duration) {
        let began = *self.latest.began.get_or_insert(now);
        if now.saturating_duration_since(began) >= span {
            self.earlier = std::mem::take(&mut self.latest);
            self.latest.began = Some(now);
        }
    }

    fn add(&mut self, proof: u128, principal: &Principal, limit: usize) -> Result<(), Denial> {
        let both = [&self.latest, &self.earlier];
        if both
            .iter()
            .any(|generation| generation.used.contains(&proof))
        {
            return Err(invalid_proof(
                "the proof in the header DPoP was used before",
            ));
        }
        let all: usize = both.iter().map(|generation| generation.used.len()).sum();
        let own: usize = both
            .iter()
            .filter_map(|generation| generation.counts.get(principal))
            .sum();
        if !Part::AS_MUCH_AS_IT_LEAVES.allows(own, 1, limit.saturating_sub(all), limit) {
            return Err(Denial::Unavailable(
                "too many proofs of possession within a minute; try again later".into(),
            ));
        }
        self.latest.used.insert(proof);
        *self.latest.counts.entry(principal.clone()).or_default() += 1;
        Ok(())
    }
}

fn hash(thumbprint: &[u8; 32], id: &str) -> u128 {
    let digest = sha256([&thumbprint[..], id.as_bytes()]);
    u128::from_be_bytes(digest.first_chunk().copied().unwrap_or_default())
}

/// The other processes cannot be asked, so it is unknown whether a value was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data that all replicas share cannot be reached")]
pub struct NotKnown;

/// Remembers used values for all processes.
///
/// A trait because its implementation depends on this crate.
pub trait UsedOnce: fmt::Debug + Send + Sync {
    /// Marks a value as used for this time. Returns whether it was unused. This takes a limited
    /// time in any case.
    fn use_once(&self, what: &[u8], time: Duration) -> BoxFuture<'_, Result<bool, NotKnown>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_proof_is_known_for_as_long_as_it_could_be_used() {
        let (mut used, ann, span) = (
            Generations::default(),
            Principal::new("i", "ann"),
            Duration::from_secs(90),
        );
        let began = Instant::now();
        let mut at = |seconds: u64, proof| {
            used.turn(began + Duration::from_secs(seconds), span);
            used.add(proof, &ann, 100).is_ok()
        };
        assert!(at(0, 0) && at(89, 1));
        assert!(!at(95, 1) && !at(178, 1), "it was used 89 seconds ago");
        assert!(at(400, 1), "nobody could use it any more");
    }

    #[test]
    fn one_principal_leaves_room_for_others() {
        let mut used = Generations::default();
        let (ann, bob) = (Principal::new("i", "ann"), Principal::new("i", "bob"));
        let of = |used: &mut Generations, principal, from: u128| {
            (from..from + 1000)
                .filter(|proof| used.add(*proof, principal, 1000).is_ok())
                .count()
        };
        assert_eq!(of(&mut used, &ann, 0), 500);
        assert!(matches!(
            used.add(5000, &ann, 1000),
            Err(Denial::Unavailable(_))
        ));
        assert!(of(&mut used, &bob, 10_000) >= 200);
        // A used proof is recognised whether or not there is room.
        assert!(matches!(
            used.add(0, &ann, 1000),
            Err(Denial::InvalidProof(_))
        ));
    }
}
