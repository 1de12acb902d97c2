//! Asking for a token without a user, by each kind of grant.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fanlight_settings::Secret;
use serde::Deserialize;

use super::settings::{IdentityProvider, MachineGrant, MachineSettings, SubjectFile};
use crate::authorization::TokenTarget;
use crate::discovery::Discovered;
use crate::error::OAuthError;
use crate::proof::ProofKey;
use crate::provider::Provider;
use crate::registration::ClientRegistration;
use crate::requests::Requests;
use crate::token::{ACCESS_TOKEN, Client, TokenExchange, TokenSet, TypedToken};

/// An authorization server that a token is asked of.
pub(super) struct Asking<'a> {
    pub(super) settings: &'a MachineSettings,
    pub(super) requests: &'a Requests,
    pub(super) authority: &'a Discovered,
    pub(super) proof_key: Option<&'a ProofKey>,
}

impl Asking<'_> {
    /// A token for what the settings name.
    pub(super) async fn token(&self, target: &TokenTarget) -> Result<TokenSet, OAuthError> {
        let registration = ClientRegistration::configured(&self.authority.provider, &self.settings.client);
        let client = self.client(&registration);
        match &self.settings.grant {
            MachineGrant::ClientCredentials => client.client_credentials(target).await,
            MachineGrant::Assertion(file) => {
                let assertion = file.read().await?;
                self.check_audience(&assertion)?;
                client.redeem_assertion(&assertion, target).await
            }
            MachineGrant::Exchange { subject, actor, audience } => {
                let token = subject.file.read().await?;
                let actor = actor.as_ref().map(|token| TypedToken { token, kind: ACCESS_TOKEN });
                let subject = TypedToken { token: &token, kind: subject.kind };
                let audience = audience.as_deref();
                client.exchange(&TokenExchange { subject, actor, audience, requested_type: None, target }).await
            }
            MachineGrant::Enterprise { subject, idp } => {
                let assertion = self.identity_assertion(subject, idp, target).await?;
                client.redeem_assertion(&assertion, target).await
            }
        }
    }

    fn client<'a>(&'a self, registration: &'a ClientRegistration) -> Client<'a> {
        let provider = &self.authority.provider;
        Client { requests: self.requests, provider, registration, proof_key: self.proof_key }
    }

    /// What the identity provider says of the subject to the server's authorization server.
    async fn identity_assertion(
        &self,
        subject: &SubjectFile,
        idp: &IdentityProvider,
        target: &TokenTarget,
    ) -> Result<Secret, OAuthError> {
        let provider = match &idp.token_endpoint {
            Some(endpoint) => Provider::of_token_endpoint(idp.issuer.clone(), endpoint.clone()),
            None => Provider::discover(self.requests, &idp.issuer).await?,
        };
        let registration = ClientRegistration::configured(&provider, &idp.client);
        let client =
            Client { requests: self.requests, provider: &provider, registration: &registration, proof_key: None };
        let token = subject.file.read().await?;
        let subject = TypedToken { token: &token, kind: subject.kind };
        // The parameter is required here, whatever the authorization server of the server accepts.
        let target = TokenTarget { resource: Some(self.authority.resource.clone()), ..target.clone() };
        client.identity_assertion(subject, &self.authority.provider.issuer, &target).await
    }

    /// Whether an assertion may be sent to an authorization server that nobody but the server has named: only if it is for it.
    /// Otherwise the server could have it sent to itself, and use it where it is good.
    fn check_audience(&self, assertion: &Secret) -> Result<(), OAuthError> {
        let issuer = &self.authority.provider.issuer;
        if self.settings.names_authority() || audiences(assertion).iter().any(|audience| audience == issuer) {
            return Ok(());
        }
        Err(OAuthError::Key(format!(
            "the token of the workload is not for the authorization server {issuer} that the server names; write its `issuer`, \
             if it may get it"
        )))
    }
}

/// The claim `aud` of an assertion, which is verified by whom it is for.
fn audiences(assertion: &Secret) -> Vec<String> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Many(Vec<String>),
    }
    #[derive(Deserialize)]
    struct Claims {
        aud: Audience,
    }
    let claims = || {
        let part = assertion.expose().split('.').nth(1)?;
        serde_json::from_slice::<Claims>(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
    };
    match claims().map(|claims| claims.aud) {
        Some(Audience::One(audience)) => vec![audience],
        Some(Audience::Many(audiences)) => audiences,
        None => Vec::new(),
    }
}
