//! OAuth access tokens (RFC 6750): JSON Web Tokens verified with issuers' keys, and tokens verified
//! by introspection. Verified tokens are remembered by their hashes.

pub(crate) mod claims;
mod jwt;
pub(crate) mod possession;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use fanlight_canonical::{Identity, Peer, Principal, Validity};
use fanlight_credentials::{Authentication, Credentials, Denial, resource_url};
use fanlight_fair::{Quota, Rate};
use fanlight_grants::oauth::TokenKind;
use fanlight_protocol::Json;
use quick_cache::sync::Cache;
use tokio::sync::Semaphore;

use self::claims::{Binding, Rules};
pub(crate) use self::claims::{check_required, date as claim_date, identity as token_identity};
use self::jwt::Header;
pub(crate) use self::jwt::Jwt;
use self::possession::{Proofs, UsedOnce};
use crate::bearer::{Bearer, TokenHash};
use crate::issuer::{Introspection, Issuer, KeySet, Lookup};
use crate::settings::OAuthSettings;

/// Access tokens of the configured issuers.
#[derive(Debug)]
pub(crate) struct Tokens {
    settings: OAuthSettings,
    issuers: Vec<Arc<Issuer>>,
    memory: Arc<Memory>,
    throttle: Arc<Throttle>,
    proofs: Arc<Proofs>,
    /// DPoP proofs used at other processes; `None` if there are none.
    used: Option<Arc<dyn UsedOnce>>,
    /// Permits of requests that wait for keys.
    waiting: Arc<Semaphore>,
}

/// The limit of requests that wait for keys of any issuer, since they hold their tokens in memory.
const WAITING: usize = 4096;

/// Verified tokens that are cached.
const TOKENS: usize = 10_000;

/// A token that is being verified.
#[derive(Clone, Copy, Debug)]
struct Shown<'a> {
    bearer: Bearer<'a>,
    hash: TokenHash,
    /// The other credentials of the request.
    request: Credentials<'a>,
}

impl Tokens {
    /// The method with these settings, with the state of unchanged issuers from `before`; `None`
    /// without settings.
    pub(crate) fn renew(
        before: Option<&Arc<Self>>,
        settings: Option<&OAuthSettings>,
        used: Option<&Arc<dyn UsedOnce>>,
    ) -> Option<Arc<Self>> {
        let settings = settings?.clone();
        let same = before.filter(|before| before.settings.limits == settings.limits);
        let memory = same.map_or_else(
            || Arc::new(Memory::new(TOKENS)),
            |same| Arc::clone(&same.memory),
        );
        let throttle = same.map_or_else(
            || Arc::new(Throttle::new(settings.limits.failures)),
            |same| Arc::clone(&same.throttle),
        );
        let proofs = before.map_or_else(Arc::default, |before| Arc::clone(&before.proofs));
        let issuers = Issuer::build_all(&settings, before.map_or(&[], |before| &before.issuers));
        let waiting = before.map_or_else(
            || Arc::new(Semaphore::new(WAITING)),
            |before| Arc::clone(&before.waiting),
        );
        Some(Arc::new(Self {
            settings,
            issuers,
            memory,
            throttle,
            proofs,
            used: used.cloned(),
            waiting,
        }))
    }

    /// Revokes the identities that `new` does not accept.
    pub(crate) fn revoke_except(&self, new: Option<&Self>) {
        let stays = |issuer: &Arc<Issuer>| {
            new.is_some_and(|new| new.issuers.iter().any(|other| Arc::ptr_eq(other, issuer)))
        };
        self.issuers
            .iter()
            .filter(|issuer| !stays(issuer))
            .for_each(|issuer| issuer.revoked.cancel());
    }

    /// The identity for the `bearer` token in `credentials`.
    pub(crate) fn authenticate<'a>(
        self: Arc<Self>,
        bearer: Bearer<'a>,
        credentials: &Credentials<'a>,
    ) -> Authentication<'a> {
        let used = self
            .used
            .clone()
            .filter(|_| bearer.scheme() == TokenKind::Dpop);
        let span = self.proof_span();
        let here = self.authenticate_here(bearer, credentials);
        let (Some(used), headers) = (used, credentials.headers) else {
            return here;
        };
        Authentication::Pending(Box::pin(async move {
            let identity = here.outcome().await?;
            possession::use_everywhere(&*used, headers, span).await?;
            Ok(identity)
        }))
    }

    /// How long a DPoP proof can be used.
    fn proof_span(&self) -> Duration {
        possession::MAX_AGE + self.settings.limits.leeway
    }

    /// The identity, without asking other processes.
    fn authenticate_here<'a>(
        self: Arc<Self>,
        bearer: Bearer<'a>,
        credentials: &Credentials<'a>,
    ) -> Authentication<'a> {
        let hash = TokenHash::compute(bearer.expose(), credentials.endpoint);
        let shown = Shown {
            bearer,
            hash,
            request: *credentials,
        };
        if let Some(known) = self.memory.recall(&hash, SystemTime::now()) {
            // Refresh keys here, too: otherwise a client with a single token would not notice that
            // its key is gone.
            self.issuers
                .iter()
                .for_each(|issuer| issuer.keys.keep_fresh());
            return Authentication::Ready(
                known.and_then(|verified| self.shown_by_holder(&shown, verified)),
            );
        }
        let peer = Peer::new(&Principal::anonymous(), credentials.client);
        self.verify(shown, peer)
            .unwrap_or_else(|denial| Authentication::Ready(Err(denial)))
    }

    /// Verifies a token that is not remembered.
    fn verify<'a>(
        self: Arc<Self>,
        shown: Shown<'a>,
        peer: Peer,
    ) -> Result<Authentication<'a>, Denial> {
        let charge = self.throttle.charge(&peer)?;
        let jwt = Jwt::read(shown.bearer.expose())?;
        // A token without an issuer cannot be verified by signature.
        let named = jwt.as_ref().filter(|jwt| jwt.claims.peek("iss").is_some());
        let Some(named) = named else {
            let is_opaque = |issuer: &&Arc<Issuer>| issuer.introspection.is_some();
            let issuers: Vec<_> = self.issuers.iter().filter(is_opaque).cloned().collect();
            return Ok(self.verify_by_asking(shown, issuers, charge));
        };
        let issuer = named
            .claims
            .text_at("iss")
            .and_then(|name| self.issuer_named(&name));
        let issuer =
            issuer.ok_or_else(|| Denial::Invalid("the token's issuer is not accepted".into()))?;
        if issuer.introspection.is_some() {
            return Ok(self.verify_by_asking(shown, vec![issuer], charge));
        }
        match jwt {
            Some(jwt) => self.verify_by_signature(shown, jwt, issuer, charge, peer),
            None => Err(Denial::Invalid("the token is malformed".into())),
        }
    }

    /// The issuer of this name, and the allowed difference of its clock.
    pub(crate) fn issuer(&self, name: &str) -> Option<(Arc<Issuer>, Duration)> {
        Some((self.issuer_named(name)?, self.settings.limits.leeway))
    }

    fn issuer_named(&self, name: &str) -> Option<Arc<Issuer>> {
        self.issuers
            .iter()
            .find(|issuer| issuer.settings.issuer == name)
            .cloned()
    }

    /// Verifies a token of `issuer` by its signature: at once, or after the issuer's keys have been
    /// read.
    fn verify_by_signature<'a>(
        self: Arc<Self>,
        shown: Shown<'a>,
        jwt: Jwt<'a>,
        issuer: Arc<Issuer>,
        charge: Charge,
        peer: Peer,
    ) -> Result<Authentication<'a>, Denial> {
        let header = jwt.header()?;
        // Checked before the signature, so that a token for another server causes no request for
        // keys.
        let expires = self.check(&jwt.claims, &issuer, shown.request.endpoint)?;
        let expires = expires.ok_or_else(|| Denial::Invalid("the token never expires".into()))?;
        let lookup = issuer.keys.look_up(header.key.as_deref(), header.algorithm);
        if let Lookup::Reading(attempt) = lookup {
            // The token may be right, and a whole company's clients may share one address.
            charge.refund();
            let place = Arc::clone(&self.waiting).try_acquire_owned();
            let place = place.map_err(|_| unavailable())?;
            return Ok(Authentication::Pending(Box::pin(async move {
                attempt.await;
                drop(place);
                let charge = self.throttle.charge(&peer)?;
                let lookup = issuer
                    .keys
                    .find_known(header.key.as_deref(), header.algorithm);
                self.with_keys(&shown, &jwt, &header, (&issuer, lookup), expires, charge)
            })));
        }
        let verified = self.with_keys(&shown, &jwt, &header, (&issuer, lookup), expires, charge);
        Ok(Authentication::Ready(verified))
    }

    fn with_keys(
        &self,
        shown: &Shown<'_>,
        jwt: &Jwt<'_>,
        header: &Header,
        (issuer, lookup): (&Issuer, Lookup),
        expires: SystemTime,
        charge: Charge,
    ) -> Result<Arc<Identity>, Denial> {
        let keys: Arc<KeySet> = match lookup {
            Lookup::Found(keys) => keys,
            Lookup::Unknown => {
                return Err(Denial::Invalid(
                    "the token is signed by an unknown key".into(),
                ));
            }
            Lookup::Unavailable | Lookup::Reading(_) => {
                // The token may be right. Clients of other issuers at the same address must not
                // suffer because of this issuer.
                charge.refund();
                return Err(unavailable());
            }
        };
        let key = keys.find(header.key.as_deref(), header.algorithm);
        let Some(key) = key.filter(|key| jwt.is_signed_by(key, header.algorithm)) else {
            self.memory.refuse(shown.hash);
            return Err(wrong_signature());
        };
        let validity = Validity {
            expires: Some(expires),
            revoked: key.revoked.clone(),
        };
        let identity = self.accept(shown, &jwt.claims, issuer, validity, expires)?;
        charge.refund();
        Ok(identity)
    }

    /// Verifies a token by asking one of `issuers` after another about it.
    fn verify_by_asking<'a>(
        self: Arc<Self>,
        shown: Shown<'a>,
        issuers: Vec<Arc<Issuer>>,
        charge: Charge,
    ) -> Authentication<'a> {
        Authentication::Pending(Box::pin(async move {
            let mut denial = Denial::Invalid("the token is unknown".into());
            for issuer in issuers {
                let Some(introspection) = &issuer.introspection else {
                    continue;
                };
                match self.ask(&shown, &issuer, introspection).await {
                    Ok(Some(identity)) => {
                        charge.refund();
                        return Ok(identity);
                    }
                    Ok(None) => {}
                    // The token may be from an issuer that has not answered.
                    Err(unavailable @ Denial::Unavailable(_)) => denial = unavailable,
                    Err(refused) => return Err(refused),
                }
            }
            if matches!(denial, Denial::Unavailable(_)) {
                charge.refund();
            }
            Err(denial)
        }))
    }

    /// The identity for a token according to its issuer; `None` if the issuer does not know the
    /// token.
    async fn ask(
        &self,
        shown: &Shown<'_>,
        issuer: &Issuer,
        introspection: &Arc<Introspection>,
    ) -> Result<Option<Arc<Identity>>, Denial> {
        let answer = introspection.ask(shown.bearer.expose(), shown.hash).await;
        let Some(claims) = answer.map_err(|_| unavailable())? else {
            return Ok(None);
        };
        if claims
            .peek("iss")
            .is_some_and(|name| !name.is_str(&issuer.settings.issuer))
        {
            return Err(Denial::Invalid("the token's issuer is not accepted".into()));
        }
        let expires = self.check(&claims, issuer, shown.request.endpoint)?;
        let again = SystemTime::now() + self.settings.limits.introspection;
        // Without an expiry, nothing else would end open streams after the token is revoked.
        let expires = expires.unwrap_or(again);
        let validity = Validity {
            expires: Some(expires),
            revoked: issuer.revoked.clone(),
        };
        self.accept(shown, &claims, issuer, validity, expires.min(again))
            .map(Some)
    }

    /// Checks claims before they are verified, and returns when they expire.
    fn check(
        &self,
        claims: &Json,
        issuer: &Issuer,
        endpoint: &str,
    ) -> Result<Option<SystemTime>, Denial> {
        // The operators' listener has no path below the clients' URL, so it needs a configured
        // audience.
        let public_url = self
            .settings
            .public_url
            .as_ref()
            .filter(|_| endpoint.starts_with('/'));
        let identifier = public_url.map(|url| resource_url(url, endpoint));
        let leeway = self.settings.limits.leeway;
        let rules = Rules {
            issuer: &issuer.settings,
            endpoint: identifier.as_deref(),
            leeway,
            now: SystemTime::now(),
        };
        claims::check(claims, &rules)
    }

    /// Accepts verified and checked claims, and remembers their token until a time, or until it is
    /// revoked.
    fn accept(
        &self,
        shown: &Shown<'_>,
        claims: &Json,
        issuer: &Issuer,
        validity: Validity,
        until: SystemTime,
    ) -> Result<Arc<Identity>, Denial> {
        let binding: Binding = claims::binding(claims)?;
        let identity = Arc::new(claims::identity(claims, &issuer.settings, validity)?);
        if identity.validity.revoked.is_cancelled() {
            // The configuration or the issuer's keys have changed meanwhile.
            return Err(Denial::Unavailable(
                "the issuers of tokens have changed; try again".into(),
            ));
        }
        let verified = Verified {
            identity,
            binding,
            until,
        };
        self.memory.remember(shown.hash, verified.clone());
        self.shown_by_holder(shown, verified)
    }

    /// The identity for a verified token, if the request proves that its sender has the key that
    /// the token is bound to.
    fn shown_by_holder(
        &self,
        shown: &Shown<'_>,
        verified: Verified,
    ) -> Result<Arc<Identity>, Denial> {
        let Verified {
            identity, binding, ..
        } = verified;
        possession::check(self, shown, binding, &identity.principal)?;
        Ok(identity)
    }
}

fn unavailable() -> Denial {
    Denial::Unavailable("the token's issuer cannot be reached; try again later".into())
}

/// The limit of remembered wrong tokens.
const REFUSED: usize = 1024;

/// How long a wrong token is remembered: its key may still be published later.
const REFUSED_FOR: Duration = Duration::from_secs(10);

/// A verified token.
#[derive(Clone, Debug)]
pub(crate) struct Verified {
    pub(crate) identity: Arc<Identity>,
    pub(crate) binding: Binding,
    /// The time until which the verification is valid.
    pub(crate) until: SystemTime,
}

/// Verified tokens and some wrong ones. Both are limited; frequently used ones stay longest.
pub(crate) struct Memory {
    verified: Cache<TokenHash, Verified>,
    refused: Cache<TokenHash, Instant>,
}

impl Memory {
    /// A memory for this many verified tokens.
    pub(crate) fn new(tokens: usize) -> Self {
        Self {
            verified: Cache::new(tokens),
            refused: Cache::new(REFUSED),
        }
    }

    /// The remembered result for a token; `None` if it has to be verified.
    fn recall(&self, hash: &TokenHash, now: SystemTime) -> Option<Result<Verified, Denial>> {
        if let Some(verified) = self.verified.get(hash) {
            if now < verified.until && verified.identity.validity.holds_at(now) {
                return Some(Ok(verified));
            }
            self.verified.remove(hash);
        }
        let refused = self.refused.get(hash)?;
        (refused.elapsed() < REFUSED_FOR).then(|| Err(wrong_signature()))
    }

    /// Remembers a verified token.
    pub(crate) fn remember(&self, hash: TokenHash, verified: Verified) {
        self.verified.insert(hash, verified);
    }

    /// Remembers a token whose signature is wrong.
    pub(crate) fn refuse(&self, hash: TokenHash) {
        self.refused.insert(hash, Instant::now());
    }
}

fanlight_protocol::opaque!(Memory);

/// The denial of a token with a wrong signature.
fn wrong_signature() -> Denial {
    Denial::Invalid("the token's signature is wrong".into())
}

/// The limit of peers counted separately at the same time.
const PEERS: usize = 16_384;

/// Counts the wrong tokens of each peer.
#[derive(Debug)]
pub(crate) struct Throttle {
    rate: Rate<Peer>,
    quota: Quota,
}

/// A peer's charge for a token under verification. Dropping it keeps the charge.
pub(crate) type Charge = fanlight_fair::Charge<Peer>;

impl Throttle {
    /// Allows each peer this many wrong tokens a second.
    pub(crate) fn new(failures: usize) -> Self {
        Self {
            rate: Rate::new(PEERS),
            quota: Quota::per_second(failures),
        }
    }

    /// Charges `peer` for one verification.
    ///
    /// # Errors
    ///
    /// If it has none left.
    pub(crate) fn charge(&self, peer: &Peer) -> Result<Charge, Denial> {
        let charged = self.rate.charge(peer, self.quota);
        charged.map_err(|too_many| Denial::Throttled {
            retry_after: too_many.retry_after,
        })
    }
}

#[cfg(test)]
mod memory_tests {
    use super::*;

    fn verified(until: SystemTime, binding: Binding) -> Verified {
        Verified {
            identity: Arc::new(Identity::anonymous()),
            binding,
            until,
        }
    }

    #[test]
    fn verified_token_is_remembered_until_its_time_is_over() {
        let (memory, hash, now) = (
            Memory::new(10),
            TokenHash::compute("t", "/mcp"),
            SystemTime::now(),
        );
        assert!(memory.recall(&hash, now).is_none());
        memory.remember(hash, verified(now + Duration::from_secs(1), Binding::None));
        assert!(memory.recall(&hash, now).unwrap().is_ok());
        assert!(
            memory
                .recall(&TokenHash::compute("t", "/mcp2"), now)
                .is_none()
        );
        assert!(
            memory
                .recall(&TokenHash::compute("t/mcp", ""), now)
                .is_none()
        );
        assert!(memory.recall(&hash, now + Duration::from_secs(1)).is_none());
    }

    #[test]
    fn revoked_identity_is_not_remembered() {
        let (memory, hash, now) = (
            Memory::new(10),
            TokenHash::compute("t", "/mcp"),
            SystemTime::now(),
        );
        let verified = verified(now + Duration::from_secs(1), Binding::None);
        let revoked = verified.identity.validity.revoked.clone();
        memory.remember(hash, verified);
        revoked.cancel();
        assert!(memory.recall(&hash, now).is_none());
    }

    #[test]
    fn remembered_tokens_are_bounded() {
        let (memory, now) = (Memory::new(100), SystemTime::now());
        for number in 0..10_000 {
            let hash = TokenHash::compute(&number.to_string(), "/mcp");
            memory.remember(hash, verified(now + Duration::from_secs(1), Binding::None));
            memory.refuse(hash);
        }
        assert!(memory.verified.len() <= 100 && memory.refused.len() <= REFUSED);
    }
}

#[cfg(test)]
mod throttle_tests {
    use std::time::Duration;

    use super::*;

    fn peer(last: u8) -> Peer {
        Peer::Address([10, 0, 0, last].into())
    }

    #[test]
    fn peer_has_a_budget_of_its_own() {
        let throttle = Throttle::new(5);
        let allowed = (0..100)
            .filter(|_| throttle.charge(&peer(1)).is_ok())
            .count();
        assert!((5..=10).contains(&allowed), "{allowed}");
        let denial = throttle.charge(&peer(1)).unwrap_err();
        assert!(
            matches!(denial, Denial::Throttled { retry_after } if retry_after <= Duration::from_secs(1))
        );
        assert!(throttle.charge(&peer(2)).is_ok() && throttle.charge(&Peer::Local).is_ok());
    }

    #[test]
    fn right_tokens_cost_nothing() {
        let throttle = Throttle::new(1);
        for _ in 0..100 {
            throttle.charge(&peer(1)).unwrap().refund();
        }
        let _wrong = throttle.charge(&peer(1)).unwrap();
        assert!(throttle.charge(&peer(1)).is_err());
    }

    #[test]
    fn counted_peers_are_bounded() {
        let throttle = Throttle::new(1);
        for number in 0..100_000_u32 {
            let _ = throttle.charge(&Peer::Address(std::net::Ipv4Addr::from(number).into()));
        }
        assert!(throttle.rate.len() <= PEERS);
    }
}

#[cfg(test)]
mod tests;
