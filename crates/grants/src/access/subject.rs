//! The user's token that is exchanged for a server's token.

use std::sync::Arc;

use fanlight_config::settings::Secret;

use super::held::Held;
use super::{NoAccess, UserAccess, Wanted, finished};
use crate::oauth::{ID_TOKEN, OAuthError, REFRESH_TOKEN, SubjectToken};
use crate::record::Grant;
use crate::store::StoreError;

impl UserAccess {
    /// The token of this type of a user who has signed in at this identity provider. It is renewed
    /// if it is due, or was refused.
    pub(crate) async fn subject(
        &self,
        kind: &'static str,
        refused: Option<&Secret>,
    ) -> Result<SubjectToken, OAuthError> {
        // Taken before the store is read, so that a concurrent write by another process counts as a
        // change.
        let stamp = self.0.store.stamp();
        let held = finished(self.0.work(None)).await.map_err(unavailable)?;
        let first = self.stored_token(held.as_ref(), kind).await?;
        let found = match (first, held) {
            (Some(first), Some(held)) if refused == Some(&first.token) => {
                let held = finished(self.0.work(Some(held.value().clone())))
                    .await
                    .map_err(unavailable)?;
                self.stored_token(held.as_ref(), kind).await?
            }
            (first, _) => first,
        };
        found.ok_or_else(|| {
            self.0.state.lock().miss(Wanted::default(), stamp);
            OAuthError::NoSubject
        })
    }

    /// The user's stored token, while it is `held`.
    async fn stored_token(
        &self,
        held: Option<&Arc<Held>>,
        kind: &str,
    ) -> Result<Option<SubjectToken>, OAuthError> {
        if held.is_none() {
            return Ok(None);
        }
        let grant = self.0.store.get::<Grant>(&self.0.owner).await;
        let grant = grant.map_err(|error: StoreError| OAuthError::Subject(error.to_string()))?;
        Ok(grant.and_then(|grant| {
            let registration = self.0.server.load().registration(&grant)?;
            let Grant {
                tokens, provider, ..
            } = grant;
            let token = match kind {
                ID_TOKEN => tokens.id_token?,
                REFRESH_TOKEN => tokens.refresh_token?,
                _ => tokens.access_token,
            };
            Some(SubjectToken {
                token,
                provider,
                registration,
            })
        }))
    }
}

fn unavailable(error: NoAccess) -> OAuthError {
    match error {
        NoAccess::SignIn(_) => OAuthError::NoSubject,
        NoAccess::Unavailable(reason) => OAuthError::Subject(reason),
    }
}
