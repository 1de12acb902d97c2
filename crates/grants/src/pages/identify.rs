//! Identifies a browser's user: by a sign-in at an identity provider with OpenID Connect, or by a
//! key or a token in a form.
//!
//! Anybody can begin a sign-in, so Fanlight stores nothing about it. The data for its end is in an
//! encrypted cookie of the browser that began it. The first answer uses it up, whatever it is.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use fanlight_canonical::identity::{Identity, Source};
use fanlight_config::settings::Secret;
use fanlight_credentials::Denial;
use fanlight_fair::Reservation;
use fanlight_protocol::{epoch, sha256};
use http::Response;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::browser::Cookie;
use super::connect::{ELSEWHERE, done};
use super::html::redirect;
use super::{CONNECTIONS, Visit};
use crate::error::{SignInError, unsealed, unusable};
use crate::links::join_path;
use crate::oauth::{AuthorizationRequest, CallbackParameters, ClientRegistration, TokenSet};
use crate::record::{Proof, SIGN_IN_TIME};
use crate::store::{Owner, seconds};
use crate::{Callback, Offer, UserAccess};

/// The path to which identity providers send browsers back. It differs from the path for servers'
/// authorization servers, so that none of them can pass off an identity provider's code as its own
/// (RFC 9700, 4.4.2).
pub(super) const CALLBACK: &str = "/connections/callback";
/// The length limit of the path to return to, since it has to fit into a cookie.
const LONGEST_PATH: usize = 2048;

/// A pending sign-in at an identity provider.
#[derive(Serialize, Deserialize)]
struct Attempt {
    request: AuthorizationRequest,
    /// The path to return to.
    back: String,
    /// The user and server that the tokens are stored for, if they are stored.
    kept_for: Option<(Vec<u8>, String)>,
    expires: u64,
}

impl Visit<'_> {
    /// The browser's user: identified by a credential in the form, by an earlier identification, or
    /// by the request itself.
    pub(super) async fn user(&self, credential: Option<&str>) -> Result<Arc<Identity>, Denial> {
        let Self { pages, browser, .. } = self;
        if credential.is_none()
            && let Some(identity) = self.known_user().await
        {
            return Ok(identity);
        }
        let identity = browser.user(pages, credential).await?;
        if credential.is_some() {
            if pages
                .grants
                .identity_provider_of(&identity.principal.to_bytes())
                .is_some()
            {
                return Err(Denial::Invalid(
                    "sign in at your identity provider instead".into(),
                ));
            }
            // Any other source means that the pasted credential did not identify the user.
            if let Some(credential) = credential
                && matches!(identity.source, Source::Key | Source::Token)
            {
                let proof = Proof::Credential(Secret::new(credential.trim()));
                let remembered = self.remember(&identity, proof).await;
                remembered.map_err(|error| Denial::Unavailable(error.to_string().into()))?;
            }
        }
        Ok(identity)
    }

    /// Whether the policies permit a user to sign in to a server.
    pub(super) fn may_sign_in(&self, user: &Arc<Identity>, server: &str) -> bool {
        self.pages.rules.permits(user, self.request.client, server)
    }

    /// Redirects the browser to an identity provider, from where it returns to the page at `back`.
    /// With `kept_for`, the tokens are stored for that user and server.
    pub(super) async fn begin_identifying(
        &self,
        issuer: &str,
        back: &str,
        kept_for: Option<&Owner>,
    ) -> Result<Response<String>, SignInError> {
        let _turn = self.turn()?;
        let (grants, callback) = (&self.pages.grants, self.identity_callback()?);
        let offer = Offer::identity(grants, issuer, kept_for.is_some()).await?;
        let client = self.client(&offer, &callback).await?;
        let mut request = offer.identity_request(&client, &offer.redirect_uri(&callback)?)?;
        let location = request.url.clone();
        // It would be in the cookie twice.
        request.url.set_query(None);
        let back = if back.len() <= LONGEST_PATH {
            back
        } else {
            CONNECTIONS
        }
        .to_owned();
        kept_for
            .and_then(|owner| self.access(owner))
            .iter()
            .for_each(UserAccess::begin_sign_in);
        let kept_for =
            kept_for.map(|owner| (owner.principal().to_vec(), owner.server().to_owned()));
        let attempt = Attempt {
            request,
            back,
            kept_for,
            expires: seconds(SystemTime::now() + SIGN_IN_TIME),
        };
        let sealed = serde_json::to_vec(&attempt).ok();
        let sealed = sealed.and_then(|text| {
            self.pages
                .seal
                .seal_for(&text, &self.browser.bound(ATTEMPT))
        });
        self.browser
            .give(Cookie::Attempt, sealed.ok_or_else(unsealed)?);
        Ok(redirect(&location))
    }

    /// Handles the browser's return from an identity provider. Afterwards the browser's user is
    /// known.
    pub(super) async fn end_identifying(&self) -> Result<Response<String>, SignInError> {
        let Some(attempt) = self.attempt() else {
            let reason = "this sign-in did not begin in this browser, is over, or took too long; start it again";
            return Err(SignInError::NotUsed(reason));
        };
        // The cookie can be used only once, whatever the result.
        self.browser.give(Cookie::Attempt, String::new());
        let kept_for = attempt
            .kept_for
            .as_ref()
            .map(|(principal, server)| Owner::new(principal, server));
        let outcome = self.end_attempt(attempt, kept_for.as_ref()).await;
        kept_for
            .and_then(|owner| self.access(&owner))
            .iter()
            .for_each(UserAccess::end_sign_in);
        outcome
    }

    async fn end_attempt(
        &self,
        attempt: Attempt,
        kept_for: Option<&Owner>,
    ) -> Result<Response<String>, SignInError> {
        let Attempt { request, back, .. } = attempt;
        let _turn = self.turn()?;
        let grants = &self.pages.grants;
        let identified = self.identified(&request, kept_for).await;
        if let (Err(error), Some(owner)) = (&identified, kept_for) {
            grants.not_signed_in(owner, error);
        }
        let (identity, offer, tokens, client) = identified?;
        let proof = proof_of(&request, &tokens, &client);
        if let Some(owner) = kept_for {
            let principal = identity.principal.to_bytes();
            if !self.may_sign_in(&identity, owner.server()) {
                return Ok(self.barred(owner));
            }
            offer
                .keep_identity(grants, &principal, tokens, client)
                .await?;
            self.remember(&identity, proof).await?;
            return Ok(done(&format!("You are signed in to {}", owner.server())));
        }
        self.remember(&identity, proof).await?;
        join_path(self.public_url, &back)
            .map(|url| redirect(&url))
            .ok_or_else(unusable)
    }

    /// Finds out who has signed in at the identity provider, and gets their tokens. With
    /// `kept_for`, it has to be that user.
    async fn identified(
        &self,
        request: &AuthorizationRequest,
        kept_for: Option<&Owner>,
    ) -> Result<(Arc<Identity>, Offer, TokenSet, ClientRegistration), SignInError> {
        let brought =
            CallbackParameters::from_query(self.request.head.uri.query().unwrap_or_default());
        let brought = brought.ok_or(SignInError::NotUsed(
            "the answer of the identity provider is ambiguous",
        ))?;
        if !self.is_redirect_of(request) {
            return Err(SignInError::NotUsed(ELSEWHERE));
        }
        let (grants, callback) = (&self.pages.grants, self.identity_callback()?);
        let offer = Offer::identity(grants, &request.issuer, kept_for.is_some()).await?;
        let client = self.client(&offer, &callback).await?;
        let authenticate = &*self.pages.authenticate;
        let (identity, tokens) = offer
            .identify(&client, request, &brought, authenticate)
            .await?;
        if kept_for.is_some_and(|owner| identity.principal.to_bytes() != owner.principal()) {
            return Err(SignInError::NotUsed(
                "this link is for another user than the one you signed in as",
            ));
        }
        Ok((identity, offer, tokens, client))
    }

    /// The pending sign-in of this browser. It is returned once, even if the browser keeps its
    /// cookie.
    fn attempt(&self) -> Option<Attempt> {
        let sealed = self.browser.cookie(Cookie::Attempt)?;
        let text = self
            .pages
            .seal
            .open_for(sealed, &self.browser.bound(ATTEMPT))?;
        let attempt: Attempt = serde_json::from_slice(&text).ok()?;
        let now = epoch::seconds();
        let is_good = now < attempt.expires
            && self
                .pages
                .spent
                .spend(&attempt.request.state, attempt.expires, now);
        is_good.then_some(attempt)
    }

    /// A permit to ask an identity provider. Anybody can cause such requests, so they are limited.
    fn turn(&self) -> Result<Reservation<Option<IpAddr>>, SignInError> {
        let busy = |_| SignInError::Failed {
            reason: "too many users are signing in at the same time".to_owned(),
        };
        self.pages
            .asking
            .reserve(&self.request.client, 1)
            .map_err(busy)
    }

    fn identity_callback(&self) -> Result<Callback, SignInError> {
        let callback = self.callback().ok_or_else(unusable)?;
        Ok(Callback {
            shared: join_path(self.public_url, CALLBACK).ok_or_else(unusable)?,
            ..callback
        })
    }

    /// Fanlight's client at an identity provider.
    async fn client(
        &self,
        offer: &Offer,
        callback: &Callback,
    ) -> Result<ClientRegistration, SignInError> {
        let grants = &self.pages.grants;
        offer
            .client(grants.peers(), Some(grants.store()), callback)
            .await
    }
}

/// The proof of who has signed in.
pub(crate) fn proof_of(
    request: &AuthorizationRequest,
    tokens: &TokenSet,
    client: &ClientRegistration,
) -> Proof {
    let nonce = request.nonce.as_ref().map(Secret::expose);
    Proof::IdToken {
        token: tokens.id_token.clone().unwrap_or_else(|| Secret::new("")),
        issuer: request.issuer.clone(),
        client_id: client.client_id.clone(),
        nonce: nonce.unwrap_or_default().to_owned(),
    }
}

const ATTEMPT: &[u8] = b"sign-in at an identity provider ";

/// The limit of remembered sign-ins. There is no option, since each takes some hundred bytes.
/// Beyond the limit, the one that expires first is forgotten; only its own browser could bring it
/// again.
const MOST: usize = 10_000;

/// The expiry of each ended sign-in, in seconds since 1970, by a digest of its `state`.
#[derive(Default)]
pub(super) struct Spent(Mutex<HashMap<Vec<u8>, u64>>);

impl Spent {
    /// Ends the sign-in with this `state`, which expires at `expires`. Returns false if it had
    /// already ended.
    pub(super) fn spend(&self, state: &Secret, expires: u64, now: u64) -> bool {
        let place = sha256([state.expose()]).to_vec();
        let mut all = self.0.lock();
        if all.contains_key(&place) {
            return false;
        }
        if all.len() >= MOST {
            all.retain(|_, end| *end > now);
        }
        if all.len() >= MOST
            && let Some(first) = all
                .iter()
                .min_by_key(|(_, end)| **end)
                .map(|(first, _)| first.clone())
        {
            all.remove(&first);
        }
        all.insert(place, expires).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_ends_once_and_no_more_than_so_many_are_remembered() {
        let spent = Spent::default();
        let ends = |number: u64, now| spent.spend(&Secret::new(number.to_string()), number, now);
        assert!((100..).take(MOST + 5).all(|number| ends(number, 0)));
        assert!(!ends(110, 0));
        assert_eq!(spent.0.lock().len(), MOST);
        // All expired ones are removed together.
        assert!(ends(u64::MAX, u64::MAX - 1));
        assert_eq!(spent.0.lock().len(), 1);
    }
}
