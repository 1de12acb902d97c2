//! Renews a user's credentials. Among processes with the same store, only one asks the
//! authorization server.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::oauth::{Client, OAuthError, TokenSet};
use http::HeaderValue;
use tokio::time::{Instant, sleep};
use tracing::{error, warn};

use super::held::Held;
use super::{NoAccess, Outcome, Shared};
use crate::peers::forget_client;
use crate::{
    Grant, GrantChange, GrantChangeEnd, GrantChangeKind, Lease, LeaseOutcome, Leased, Method,
    StoreError, UserKey,
};

/// The time of a lease: longer than a request to an authorization server and writing the store take
/// together.
const LEASE: Duration = Duration::from_secs(45);
/// How often to check whether another process has renewed a grant.
const POLL: Duration = Duration::from_millis(200);

/// The reason for a token that cannot be used.
const UNSENDABLE: &str = "the access token has characters that a header cannot contain";

impl Shared {
    /// The current credentials, other than those with the `refused` header value; `None` if the
    /// user has none.
    pub(super) async fn renewed(self: &Arc<Self>, refused: Option<HeaderValue>) -> Outcome {
        let server = self.server.load_full();
        if let Method::Key { header, prefix } = &server.settings.method {
            let key = self.store.get::<UserKey>(&self.owner).await?;
            let key = key.filter(|key| key.origin == server.origin());
            let held = key.and_then(|key| Held::from_key(header.clone(), prefix, key.expose()));
            return Ok(held.map(Arc::new));
        }
        let Some(grant) = self.grant().await? else {
            return Ok(None);
        };
        if let Some(held) = good(&grant, refused.as_ref()) {
            return Ok(Some(Arc::new(held)));
        }
        let failure = self.state.lock().standing_failure(&grant).map(unavailable);
        if let Some(failure) = failure {
            return usable(&grant, refused.as_ref()).map(Some).ok_or(failure);
        }
        let deadline = SystemTime::now() + LEASE;
        loop {
            match self.store.lease::<Grant>(&self.owner, LEASE).await? {
                Leased::Nothing => return Ok(None),
                Leased::Ours(grant, lease) => {
                    return self.renew(&grant, lease, refused.as_ref()).await;
                }
                Leased::Others if SystemTime::now() < deadline => sleep(POLL).await,
                Leased::Others => {
                    return Err(unavailable(
                        "another replica did not renew a user's grant in time",
                    ));
                }
            }
        }
    }

    /// Asks the authorization server for new tokens, unless another process has already got some.
    /// This ends the lease.
    async fn renew(
        self: &Arc<Self>,
        grant: &Grant,
        lease: Lease,
        refused: Option<&HeaderValue>,
    ) -> Outcome {
        let is_meant = self.server.load().is_meant_by(grant);
        let held = good(grant, refused).filter(|_| is_meant);
        if held.is_some() || !is_meant {
            self.store
                .end_lease::<Grant>(&self.owner, lease, LeaseOutcome::Keep)
                .await?;
            return Ok(held.map(Arc::new));
        }
        match self.refresh(grant).await {
            Ok(Some(tokens)) => {
                self.keep(
                    Grant {
                        tokens,
                        issued: SystemTime::now(),
                        ..grant.clone()
                    },
                    lease,
                )
                .await
            }
            Ok(None) => {
                self.end(
                    lease,
                    "the access token has expired, and there is no refresh token",
                )
                .await
            }
            Err(error) => {
                let is_client_gone = match &grant.client {
                    Some(client) => forget_client(&self.store, client, &error).await?,
                    None => false,
                };
                let is_useless = is_client_gone && usable(grant, refused).is_none();
                if is_useless || error.refusal() == Some("invalid_grant") {
                    return self.end(lease, &error.to_string()).await;
                }
                self.state.lock().fail(grant, &error);
                self.store
                    .end_lease::<Grant>(&self.owner, lease, LeaseOutcome::Keep)
                    .await?;
                warn!(server = self.owner.server(), %error, "cannot renew a user's grant now");
                usable(grant, refused)
                    .map(Some)
                    .ok_or_else(|| unavailable(&error.to_string()))
            }
        }
    }

    async fn refresh(&self, grant: &Grant) -> Result<Option<TokenSet>, OAuthError> {
        let Some(refresh_token) = &grant.tokens.refresh_token else {
            return Ok(None);
        };
        let server = self.server.load_full();
        let Some(registration) = server.registration(grant) else {
            return Ok(None);
        };
        let client = Client {
            requests: &server.requests,
            provider: &grant.provider,
            registration: &registration,
            proof_key: grant.proof_key.as_ref(),
        };
        let tokens = client.refresh(refresh_token, &grant.target).await?;
        let tokens = TokenSet {
            scopes: tokens.scopes.or_else(|| grant.tokens.scopes.clone()),
            ..tokens
        };
        if !server.is_identity_provider() {
            return Ok(Some(tokens));
        }
        if tokens.are_of_the_user_of(&grant.tokens) {
            Ok(Some(tokens.ending_with_id_token()))
        } else {
            Err(OAuthError::Subject(
                "the renewed ID token belongs to another user".to_owned(),
            ))
        }
    }

    /// Stores a renewed grant before using it, since the old refresh token may be invalid now.
    async fn keep(self: &Arc<Self>, renewed: Grant, lease: Lease) -> Outcome {
        match self
            .store
            .end_lease(&self.owner, lease, LeaseOutcome::Replace(&renewed))
            .await
        {
            Ok(true) => {}
            Ok(false) => return self.instead_of(renewed).await,
            Err(problem) => {
                warn!(server = self.owner.server(), %problem, "a renewed grant is not stored yet");
                let (this, renewed) = (Arc::clone(self), renewed.clone());
                self.tasks
                    .spawn(async move { this.keep_later(renewed, lease, problem).await });
            }
        }
        let sendable = sendable(&renewed);
        if sendable.is_err() {
            self.state
                .lock()
                .fail(&renewed, &OAuthError::Key(UNSENDABLE.to_owned()));
        }
        sendable
    }

    /// Retries storing a renewed grant, which is already in use, until the common store is
    /// reachable again. If the failed attempt succeeded there after all, the lease has ended.
    async fn keep_later(&self, renewed: Grant, lease: Lease, mut problem: StoreError) {
        let deadline = Instant::now() + LEASE;
        while matches!(problem, StoreError::Common(_)) && Instant::now() < deadline {
            sleep(POLL).await;
            match self
                .store
                .end_lease(&self.owner, lease, LeaseOutcome::Replace(&renewed))
                .await
            {
                Ok(true) => return,
                Ok(false) => return drop(self.instead_of(renewed).await),
                Err(again) => problem = again,
            }
        }
        error!(server = self.owner.server(), %problem, "a renewed grant is lost when this process ends");
    }

    /// The grant that replaced a renewed one whose lease has ended: the user has signed in again,
    /// or out.
    async fn instead_of(&self, renewed: Grant) -> Outcome {
        let instead = self.store.get::<Grant>(&self.owner).await?;
        // If there is another sign-in, revoking these tokens could end it, too.
        if instead.is_none() {
            let server = self.server.load_full();
            self.tasks
                .spawn(async move { server.revoke(&renewed).await });
        }
        let instead = instead.filter(|grant| self.server.load().is_meant_by(grant));
        instead.as_ref().map_or(Ok(None), sendable)
    }

    /// The user's grant, if it is for the server.
    pub(super) async fn grant(&self) -> Result<Option<Grant>, StoreError> {
        let grant = self.store.get::<Grant>(&self.owner).await?;
        Ok(grant.filter(|grant| self.server.load().is_meant_by(grant)))
    }

    /// Removes a grant that is no longer valid; its user has to sign in again.
    async fn end(&self, lease: Lease, reason: &str) -> Outcome {
        if self
            .store
            .end_lease::<Grant>(&self.owner, lease, LeaseOutcome::Remove)
            .await?
        {
            let change = GrantChange {
                kind: GrantChangeKind::End,
                owner: &self.owner,
            };
            self.record.record_end(change, &GrantChangeEnd::new(reason));
            Ok(None)
        } else {
            // The user has signed in again, or out.
            self.grant().await?.as_ref().map_or(Ok(None), sendable)
        }
    }
}

/// A grant's credentials, if they need no renewal and have not been refused.
fn good(grant: &Grant, refused: Option<&HeaderValue>) -> Option<Held> {
    let now = SystemTime::now();
    Held::from_grant(grant).filter(|held| refused != Some(held.value()) && !held.is_due(now))
}

/// The credentials of a grant that cannot be renewed now. Since renewal starts before the expiry,
/// they may still be valid.
fn usable(grant: &Grant, refused: Option<&HeaderValue>) -> Option<Arc<Held>> {
    let held = Held::from_grant(grant).filter(|held| refused != Some(held.value()));
    held.filter(|held| !held.has_ended(SystemTime::now()))
        .map(Arc::new)
}

fn sendable(grant: &Grant) -> Outcome {
    let held = Held::from_grant(grant).map(|held| Some(Arc::new(held)));
    held.ok_or_else(|| unavailable(UNSENDABLE))
}

fn unavailable(reason: &str) -> NoAccess {
    NoAccess::Unavailable(reason.to_owned())
}
