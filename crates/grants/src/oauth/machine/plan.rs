//! An attempt to get a token: finding the authorization server, and asking it.

use std::sync::{Arc, OnceLock};

use super::grant::Asking;
use super::held::Held;
use super::progress::Obtained;
use super::settings::MachineSettings;
use super::settings::SubjectTokens;
use crate::fetch::Requests;
use crate::oauth::authorization::TokenTarget;
use crate::oauth::challenge::Challenge;
use crate::oauth::discovery::{Discovered, protected_resource};
use crate::oauth::error::OAuthError;
use crate::oauth::proof::ProofKey;
use crate::oauth::scopes::Scopes;

/// The settings, and the HTTP client for them.
pub(super) struct Sender {
    pub(super) settings: MachineSettings,
    requests: OnceLock<Requests>,
}

/// The data that an attempt needs.
pub(super) struct Plan {
    pub(super) sender: Arc<Sender>,
    pub(super) user: Option<Arc<dyn SubjectTokens>>,
    pub(super) challenge: Option<Challenge>,
    pub(super) authority: Option<Arc<Discovered>>,
    pub(super) issuer: Option<String>,
    pub(super) further: Scopes,
    pub(super) proof_key: Option<ProofKey>,
}

impl Plan {
    /// Gets a token; `None` if the server first has to name its authorization server.
    pub(super) async fn carry_out(self) -> Result<Option<Obtained>, OAuthError> {
        let settings = &self.sender.settings;
        let requests = self.sender.requests()?;
        let Some(authority) = self.authority(requests).await? else {
            return Ok(None);
        };
        let proof_key = match (authority.needs_proofs, self.proof_key) {
            (false, _) => None,
            (true, Some(key)) => Some(key),
            (true, None) => Some(ProofKey::generate()?),
        };
        let scopes = settings.scopes.clone().or_else(|| authority.scopes.clone());
        let scopes = if self.further.is_empty() {
            scopes
        } else {
            Some(scopes.unwrap_or_default().union(&self.further))
        };
        let target = TokenTarget {
            resource: settings.sends_resource.then(|| authority.resource.clone()),
            scopes,
        };
        let asking = Asking {
            settings,
            requests,
            authority: &authority,
            proof_key: proof_key.as_ref(),
            user: self.user.as_deref(),
        };
        let token = asking.token(&target).await?;
        Ok(Some((Arc::new(Held::new(token, proof_key)?), authority)))
    }

    async fn authority(&self, requests: &Requests) -> Result<Option<Arc<Discovered>>, OAuthError> {
        if let Some(authority) = &self.authority {
            return Ok(Some(Arc::clone(authority)));
        }
        let settings = &self.sender.settings;
        let (server, challenge) = (&settings.trust.server, self.challenge.as_ref());
        if let Some(provider) = settings.configured_provider() {
            return Ok(Some(Arc::new(Discovered::new(
                server, None, provider, challenge,
            ))));
        }
        let metadata_url = challenge.and_then(|challenge| challenge.resource_metadata.as_ref());
        let protected = protected_resource(requests, server, metadata_url).await?;
        if protected.is_none() && challenge.is_none() && settings.issuer.is_none() {
            // The server's challenge may name the place of its metadata.
            return Ok(None);
        }
        let issuer = settings
            .issuer
            .as_ref()
            .or(self.issuer.as_ref())
            .map(String::as_str);
        Discovered::find(requests, server, protected, challenge, issuer)
            .await
            .map(|found| Some(Arc::new(found)))
    }
}

impl Sender {
    pub(super) fn new(settings: MachineSettings) -> Self {
        Self {
            settings,
            requests: OnceLock::new(),
        }
    }

    fn requests(&self) -> Result<&Requests, OAuthError> {
        if let Some(requests) = self.requests.get() {
            return Ok(requests);
        }
        let requests = Requests::new(&self.settings.trust)?;
        Ok(self.requests.get_or_init(|| requests))
    }
}
