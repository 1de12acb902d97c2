//! Showing who a browser's user is: at an identity provider, by OpenID Connect, or by a key or a token in a form.
//!
//! The browser that begins a sign-in at an identity provider keeps what its end needs, sealed, in a cookie: anybody can begin one,
//! and nothing is kept here of those that do. The first answer spends it, whatever that says.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use fanlight_credentials::{Denial, IdToken, SignInError as Unidentified};
use fanlight_fair::Reservation;
use fanlight_identity::{Identity, Source};
use fanlight_oauth::{
    AuthorizationRequest, CallbackParameters, ClientRegistration, Scopes, TokenSet,
};
use fanlight_settings::Secret;
use http::Response;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::browser::Cookie;
use super::connect::done;
use super::html::redirect;
use super::{CONNECTIONS, Visit};
use crate::access::UserAccess;
use crate::error::{SignInError, failed, unsealed, unusable};
use crate::links::below;
use crate::record::SIGN_IN_TIME;
use crate::sign_in::{Callback, LASTING, Offer};
use crate::store::{Owner, seconds};

/// Where browsers are sent back to by identity providers. Another place than that for the authorization servers of servers, so
/// that none of those can pass a code of an identity provider off as its own (RFC 9700, 4.4.2).
pub(super) const CALLBACK: &str = "/connections/callback";
/// The longest path that a browser returns to: with the rest it has to fit into a cookie.
const LONGEST_PATH: usize = 2048;

/// A sign-in at an identity provider that has begun.
#[derive(Serialize, Deserialize)]
struct Attempt {
    request: AuthorizationRequest,
    /// Where the browser returns to.
    back: String,
    /// For whom and which server the tokens are to be kept, if they are.
    kept_for: Option<(Vec<u8>, String)>,
    expires: u64,
}

impl Visit<'_> {
    /// The user of this browser: by a credential in the form, or else as shown a moment ago, or by the request itself.
    pub(super) async fn user(&self, credential: Option<&str>) -> Result<Arc<Identity>, Denial> {
        let Self { pages, browser, .. } = self;
        if credential.is_none()
            && let Some(identity) = self.known_user()
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
            // Otherwise it was not what has been pasted that has shown it.
            if matches!(identity.source, Source::Key | Source::Token) {
                self.remember(Arc::clone(&identity), None);
            }
        }
        Ok(identity)
    }

    /// Whether the policy permits a user to sign in at a server.
    pub(super) fn may_sign_in(&self, user: &Arc<Identity>, server: &str) -> bool {
        self.pages.rules.permits(user, self.request.client, server)
    }

    fn known_user(&self) -> Option<Arc<Identity>> {
        let secret = self.browser.cookie(Cookie::User)?;
        let (identity, provider) = self.pages.known.of(self.browser.id(), secret)?;
        let is_accepted =
            provider.is_none_or(|issuer| self.pages.grants.identity_provider(&issuer).is_some());
        is_accepted.then_some(identity)
    }

    fn remember(&self, identity: Arc<Identity>, provider: Option<String>) {
        if let Some(secret) = self
            .pages
            .known
            .remember(self.browser.id(), identity, provider)
        {
            self.browser.give(Cookie::User, secret);
        }
    }

    /// Sends the browser to an identity provider, from which it returns to the page at `back`.
    /// With `kept_for`, the tokens are kept for that user, for tokens of that server.
    pub(super) async fn begin_identifying(
        &self,
        issuer: &str,
        back: &str,
        kept_for: Option<&Owner>,
    ) -> Result<Response<String>, SignInError> {
        let _turn = self.turn()?;
        let (grants, callback) = (&self.pages.grants, self.identity_callback()?);
        let offer = Offer::identity(grants, issuer, kept_for.is_some()).await?;
        let (request, _) = offer.request(grants, &callback).await?;
        let mut request = request
            .with_nonce()
            .map_err(|error| failed(issuer, &error))?;
        if offer
            .scopes()
            .is_some_and(|scopes| scopes.include(&Scopes::read(LASTING)))
        {
            // Without it, the scope counts for nothing (OpenID Connect Core 1.0, 11).
            request
                .url
                .query_pairs_mut()
                .append_pair("prompt", "consent");
        }
        let location = request.url.clone();
        // It would be twice in the cookie.
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

    /// Takes what an identity provider sends back by way of the browser, whose user is known from then on.
    pub(super) async fn end_identifying(&self) -> Result<Response<String>, SignInError> {
        let Some(attempt) = self.attempt() else {
            let reason = "this sign-in has not begun in this browser, is over, or took too long; begin it again";
            return Err(SignInError::NotUsed(reason));
        };
        // Whatever comes of it, it is worth nothing afterwards.
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
        if let Some(owner) = kept_for {
            let principal = identity.principal.to_bytes();
            if !self.may_sign_in(&identity, owner.server()) {
                return Ok(self.barred(owner));
            }
            offer
                .keep_identity(grants, &principal, tokens, client)
                .await?;
            self.remember(identity, Some(request.issuer));
            return Ok(done(&format!("You are signed in to {}", owner.server())));
        }
        self.remember(identity, Some(request.issuer));
        below(self.public_url, &back)
            .map(|url| redirect(&url))
            .ok_or_else(unusable)
    }

    /// Who has signed in at the identity provider, who has to be the one that the tokens are kept for, and the tokens.
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
        let (grants, callback) = (&self.pages.grants, self.identity_callback()?);
        let offer = Offer::identity(grants, &request.issuer, kept_for.is_some()).await?;
        let (tokens, client) = offer.redeem(grants, request, &brought, &callback).await?;
        let identity = self
            .identify(request, tokens.id_token.as_ref(), &client.client_id)
            .await?;
        if kept_for.is_some_and(|owner| identity.principal.to_bytes() != owner.principal()) {
            return Err(SignInError::NotUsed(
                "you have signed in as another user than the one whose link this is",
            ));
        }
        Ok((identity, offer, tokens, client))
    }

    async fn identify(
        &self,
        request: &AuthorizationRequest,
        token: Option<&Secret>,
        client_id: &str,
    ) -> Result<Arc<Identity>, SignInError> {
        let none =
            || SignInError::NotIdentified("the identity provider has given no ID token".into());
        let (token, nonce) = token.zip(request.nonce.as_ref()).ok_or_else(none)?;
        let shown = IdToken {
            token: token.expose(),
            issuer: &request.issuer,
            client_id,
            nonce: nonce.expose(),
        };
        self.pages
            .authenticate
            .identify(shown)
            .await
            .map_err(|error| match error {
                Unidentified::Refused(text) => {
                    info!(
                        issuer = request.issuer,
                        reason = &*text,
                        "who a user is was not shown"
                    );
                    SignInError::NotIdentified(text)
                }
                Unidentified::Unavailable(text) => {
                    warn!(
                        issuer = request.issuer,
                        reason = &*text,
                        "who a user is cannot be found out"
                    );
                    SignInError::Failed {
                        reason: text.into_owned(),
                    }
                }
            })
    }

    /// The sign-in that has begun in this browser, once: the browser may keep the cookie that it is to forget.
    fn attempt(&self) -> Option<Attempt> {
        let sealed = self.browser.cookie(Cookie::Attempt)?;
        let text = self
            .pages
            .seal
            .open_for(sealed, &self.browser.bound(ATTEMPT))?;
        let attempt: Attempt = serde_json::from_slice(&text).ok()?;
        let now = seconds(SystemTime::now());
        let is_good = now < attempt.expires
            && self
                .pages
                .spent
                .spend(&attempt.request.state, attempt.expires, now);
        is_good.then_some(attempt)
    }

    /// Leave to ask an identity provider: anybody can have one asked, and keep it waiting.
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
            redirect_uri: below(self.public_url, CALLBACK).ok_or_else(unusable)?,
            ..callback
        })
    }
}

const ATTEMPT: &[u8] = b"sign-in at an identity provider ";
