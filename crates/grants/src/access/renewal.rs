//! Renewing the credentials of a user. Of several processes with one store, one asks the authorization server.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fanlight_oauth::{Client, OAuthError, TokenSet};
use http::HeaderValue;
use tokio::time::sleep;
use tracing::{info, warn};

use super::held::Held;
use super::{NoAccess, Outcome, Shared};
use crate::record::{Grant, UserKey};
use crate::server::Method;
use crate::store::{Kind, Leased};

/// Longer than a request to an authorization server and the store take together.
const LEASE: Duration = Duration::from_secs(45);
/// How often is looked whether another process has renewed a grant.
const POLL: Duration = Duration::from_millis(200);

impl Shared {
    /// The credentials of now, other than those with the `refused` value of the header field; `None` if the user has none.
    pub(super) async fn renewed(&self, refused: Option<HeaderValue>) -> Outcome {
        if let Method::Key { header, prefix } = &self.server.settings.method {
            let key = self.store.get::<UserKey>(&self.owner).await?;
            let held = key.and_then(|key| Held::of_key(header.clone(), prefix, key.expose()));
            return Ok(held.map(Arc::new));
        }
        let is_refused = |held: &Held| refused.as_ref() == Some(held.value());
        let now = SystemTime::now();
        let is_good = |held: &Held| !is_refused(held) && !held.is_due(now);
        let Some(grant) = self.store.get::<Grant>(&self.owner).await? else { return Ok(None) };
        match Held::of_grant(&grant) {
            Some(held) if is_good(&held) => return Ok(Some(Arc::new(held))),
            _ => {}
        }
        let deadline = now + LEASE;
        loop {
            let grant = match self.store.lease::<Grant>(&self.owner, LEASE).await? {
                Leased::Nothing => return Ok(None),
                Leased::Ours(grant) => grant,
                Leased::Others if SystemTime::now() < deadline => {
                    sleep(POLL).await;
                    continue;
                }
                Leased::Others => return Err(unavailable("another process has not renewed a user's grant in time")),
            };
            // Another process may have renewed it meanwhile.
            return match Held::of_grant(&grant) {
                Some(held) if is_good(&held) => {
                    self.store.release(Kind::Grant, &self.owner).await?;
                    Ok(Some(Arc::new(held)))
                }
                _ => self.renew(grant, is_refused).await,
            };
        }
    }

    /// Asks the authorization server for new tokens. The lease of `grant` ends with this.
    async fn renew(&self, grant: Grant, is_refused: impl Fn(&Held) -> bool) -> Outcome {
        let tokens = match self.refresh(&grant).await {
            Ok(Some(tokens)) => tokens,
            Ok(None) => return self.end(&grant, "the access token has ended, and there is no refresh token").await,
            Err(error) if error.refusal() == Some("invalid_grant") => return self.end(&grant, &error.to_string()).await,
            Err(error) => {
                self.store.release(Kind::Grant, &self.owner).await?;
                warn!(server = self.server.name(), %error, "a user's grant cannot be renewed now");
                // It is renewed ahead of its end, so that it may still be of use.
                let usable = Held::of_grant(&grant).filter(|held| !is_refused(held));
                let usable = usable.filter(|held| !held.has_ended(SystemTime::now()));
                return usable.map(|held| Some(Arc::new(held))).ok_or_else(|| unavailable(&error.to_string()));
            }
        };
        let renewed = Grant { tokens, issued: SystemTime::now(), ..grant };
        // Before anything else: the old refresh token may be worth nothing any more.
        self.store.put(&self.owner, &renewed).await?;
        Held::of_grant(&renewed)
            .map(|held| Some(Arc::new(held)))
            .ok_or_else(|| unavailable("the access token cannot be sent in a header"))
    }

    async fn refresh(&self, grant: &Grant) -> Result<Option<TokenSet>, OAuthError> {
        let Some(refresh_token) = &grant.tokens.refresh_token else { return Ok(None) };
        let configured = || self.server.sign_in().and_then(|method| method.configured(&grant.provider));
        let Some(registration) = grant.client.clone().or_else(configured) else { return Ok(None) };
        let client = Client {
            requests: &self.server.requests,
            provider: &grant.provider,
            registration: &registration,
            proof_key: grant.proof_key.as_ref(),
        };
        client.refresh(refresh_token, &grant.target).await.map(Some)
    }

    /// Removes a grant that is worth nothing any more: its user has to sign in anew.
    async fn end(&self, grant: &Grant, reason: &str) -> Outcome {
        info!(server = self.server.name(), issuer = grant.provider.issuer, reason, "a user's grant has ended");
        self.store.take::<Grant>(&self.owner).await?;
        Ok(None)
    }
}

fn unavailable(reason: &str) -> NoAccess {
    NoAccess::Unavailable(reason.to_owned())
}
