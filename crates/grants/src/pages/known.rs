//! Users of browsers that were identified a moment ago. Their proof of identity is in the store,
//! sealed, so that every process with that store knows them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fanlight_canonical::identity::Identity;
use fanlight_credentials::IdToken;
use fanlight_protocol::digest::sha256_hex;

use super::Visit;
use super::browser::Cookie;
use crate::error::{SignInError, unsealed};
use crate::record::{KnownBrowser, Proof};
use crate::store::Owner;

/// How long a user need not identify themselves again.
const USER_TIME: Duration = Duration::from_secs(600);
/// The purpose of the sealed user in the cookie.
const KNOWN: &[u8] = b"user of a browser";
/// The length limit of the cookie. Principals' names are shorter.
const LONGEST: usize = 8 << 10;

impl Visit<'_> {
    /// The user of the browser, if they identified themselves a moment ago.
    pub(super) async fn known_user(&self) -> Option<Arc<Identity>> {
        let cookie = self.browser.cookie(Cookie::User)?;
        let (principal, place) = self.place_of_user(cookie)?;
        let store = self.pages.grants.store();
        let known = store.get::<KnownBrowser>(&place).await.ok().flatten()?;
        if known.browser != self.browser_digest() || SystemTime::now() >= known.expires {
            return None;
        }
        let identity = match known.proof {
            Proof::Credential(credential) => {
                let user = self.browser.user(self.pages, Some(credential.expose()));
                user.await.ok()?
            }
            Proof::IdToken {
                token,
                issuer,
                client_id,
                nonce,
            } => {
                self.pages.grants.identity_provider(&issuer)?;
                let shown = IdToken {
                    token: token.expose(),
                    issuer: &issuer,
                    client_id: &client_id,
                    nonce: &nonce,
                };
                self.pages.authenticate.identify(shown).await.ok()?
            }
        };
        (identity.principal.to_bytes() == principal).then_some(identity)
    }

    /// Remembers the user of the browser. Only this browser gets the cookie that names the record.
    pub(super) async fn remember(
        &self,
        identity: &Identity,
        proof: Proof,
    ) -> Result<(), SignInError> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|_| unsealed())?;
        let principal = identity.principal.to_bytes();
        let user = self.pages.seal.seal_for(&principal, KNOWN);
        let user = user.ok_or_else(unsealed)?;
        let cookie = format!("{}.{user}", URL_SAFE_NO_PAD.encode(secret));
        let (_, place) = self.place_of_user(&cookie).ok_or_else(unsealed)?;
        let known = KnownBrowser {
            proof,
            browser: self.browser_digest(),
            expires: SystemTime::now() + USER_TIME,
        };
        self.pages.grants.store().put(&place, &known).await?;
        self.browser.give(Cookie::User, cookie);
        Ok(())
    }

    /// The user that a cookie names, and the place of the record.
    fn place_of_user(&self, cookie: &str) -> Option<(Vec<u8>, Owner)> {
        let is_short = |_: &(&str, &str)| cookie.len() <= LONGEST;
        let (_, user) = cookie.split_once('.').filter(is_short)?;
        let principal = self.pages.seal.open_for(user, KNOWN)?;
        let name = sha256_hex(cookie);
        let place = Owner::new(&principal, &name);
        Some((principal, place))
    }
}
