//! Requests a token without a browser, by each kind of grant.

use fanlight_config::settings::Secret;
use serde::Deserialize;

use super::settings::{IdentityProvider, MachineGrant, MachineSettings, Subject};
use super::settings::{SubjectToken, SubjectTokens};
use crate::fetch::Requests;
use crate::oauth::token::{Client, REFRESH_TOKEN, TokenExchange, TokenSet, TypedToken, unverified};
use crate::oauth::{ClientRegistration, Discovered, OAuthError, ProofKey, Provider, TokenTarget};

/// A request for a token at an authorization server.
pub(super) struct Asking<'a> {
    pub(super) settings: &'a MachineSettings,
    pub(super) requests: &'a Requests,
    pub(super) authority: &'a Discovered,
    pub(super) proof_key: Option<&'a ProofKey>,
    /// The user that the token is for.
    pub(super) user: Option<&'a dyn SubjectTokens>,
}

impl Asking<'_> {
    /// Requests a token for this target.
    pub(super) async fn token(&self, target: &TokenTarget) -> Result<TokenSet, OAuthError> {
        let registration =
            ClientRegistration::from_configured(&self.authority.provider, &self.settings.client);
        let client = self.client(&registration);
        match &self.settings.grant {
            MachineGrant::ClientCredentials => client.client_credentials(target).await,
            MachineGrant::Assertion(file) => {
                let assertion = file.read().await?;
                self.check_audience(&assertion)?;
                client.redeem_assertion(&assertion, target).await
            }
            MachineGrant::Exchange { subject, .. } | MachineGrant::Enterprise { subject, .. } => {
                self.for_subject(subject, &registration, target).await
            }
        }
    }

    /// Exchanges the subject token; retries once with a fresh one if the authorization server
    /// rejects it.
    async fn for_subject(
        &self,
        subject: &Subject,
        registration: &ClientRegistration,
        target: &TokenTarget,
    ) -> Result<TokenSet, OAuthError> {
        let kind = subject.kind;
        if let Some(file) = &subject.file {
            let token = SubjectToken {
                token: file.read().await?,
                kind,
                origin: None,
            };
            return self.exchange(&token, registration, target).await;
        }
        let user = self.user.ok_or(OAuthError::NoSubject)?;
        let first = user.token(kind, None).await?;
        match self.exchange(&first, registration, target).await {
            Err(error)
                if error
                    .refusal()
                    .is_some_and(|code| OF_SUBJECT.contains(&code)) =>
            {
                let other = user.token(kind, Some(&first.token)).await?;
                if other.token == first.token {
                    return Err(error);
                }
                self.exchange(&other, registration, target).await
            }
            outcome => outcome,
        }
    }

    async fn exchange(
        &self,
        subject: &SubjectToken,
        registration: &ClientRegistration,
        target: &TokenTarget,
    ) -> Result<TokenSet, OAuthError> {
        match &self.settings.grant {
            MachineGrant::Enterprise { idp, .. } => {
                let assertion = self
                    .identity_assertion(subject, idp.as_ref(), target)
                    .await?;
                self.client(registration)
                    .redeem_assertion(&assertion, target)
                    .await
            }
            MachineGrant::Exchange { audience, .. } => {
                let at = &self.authority.provider;
                // A refresh token is for the authorization server that issued it (RFC 6749, 10.4).
                if subject.kind == REFRESH_TOKEN
                    && subject.origin.as_ref().is_some_and(|(own, _)| {
                        own.issuer != at.issuer && own.token_endpoint != at.token_endpoint
                    })
                {
                    return Err(OAuthError::NoSubject);
                }
                let client = self.client(self.known_as(registration, subject));
                let subject = TypedToken {
                    token: &subject.token,
                    kind: subject.kind,
                };
                client
                    .exchange(&TokenExchange {
                        subject,
                        audience: audience.as_deref(),
                        requested_type: None,
                        target,
                    })
                    .await
            }
            MachineGrant::ClientCredentials | MachineGrant::Assertion(_) => {
                Err(OAuthError::NoSubject)
            }
        }
    }

    /// The client for an exchange: the configured one, or else the client of the user's token, if
    /// the exchange is at the user's own identity provider.
    fn known_as<'a>(
        &self,
        configured: &'a ClientRegistration,
        token: &'a SubjectToken,
    ) -> &'a ClientRegistration {
        let own = token
            .origin
            .as_ref()
            .filter(|(provider, _)| provider.issuer == self.authority.provider.issuer);
        match own {
            Some((_, registration)) if self.settings.client.id.is_empty() => registration,
            _ => configured,
        }
    }

    fn client<'a>(&'a self, registration: &'a ClientRegistration) -> Client<'a> {
        Client {
            requests: self.requests,
            provider: &self.authority.provider,
            registration,
            proof_key: self.proof_key,
        }
    }

    /// Requests the identity provider's assertion about the subject for the server's authorization
    /// server.
    async fn identity_assertion(
        &self,
        subject: &SubjectToken,
        idp: Option<&IdentityProvider>,
        target: &TokenTarget,
    ) -> Result<Secret, OAuthError> {
        let SubjectToken {
            token,
            kind,
            origin,
        } = subject;
        let (provider, registration) = match (origin, idp) {
            (Some(origin), _) => origin.clone(),
            (None, Some(idp)) => self.at_identity_provider(idp).await?,
            (None, None) => return Err(OAuthError::NoSubject),
        };
        let client = Client {
            requests: self.requests,
            provider: &provider,
            registration: &registration,
            proof_key: None,
        };
        let subject = TypedToken { token, kind };
        // The parameter is required here, even if the server's authorization server refuses it.
        let target = TokenTarget {
            resource: Some(self.authority.resource.clone()),
            ..target.clone()
        };
        client
            .identity_assertion(subject, &self.authority.provider.issuer, &target)
            .await
    }

    async fn at_identity_provider(
        &self,
        idp: &IdentityProvider,
    ) -> Result<(Provider, ClientRegistration), OAuthError> {
        let provider = Provider::discover(self.requests, &idp.issuer).await?;
        let registration = ClientRegistration::from_configured(&provider, &idp.client);
        Ok((provider, registration))
    }

    /// Checks that an assertion is meant for an authorization server that only the server has
    /// named. Otherwise a server could have it sent to itself, and use it elsewhere.
    fn check_audience(&self, assertion: &Secret) -> Result<(), OAuthError> {
        let issuer = &self.authority.provider.issuer;
        if self.settings.names_authority()
            || audiences(assertion)
                .iter()
                .any(|audience| audience == issuer)
        {
            return Ok(());
        }
        Err(OAuthError::Key(format!(
            "the workload's token is not for the authorization server {issuer}, which the server \
             names; if {issuer} may get it, write it as `issuer`"
        )))
    }
}

/// The codes with which an authorization server rejects the subject token (RFC 8693, 2.2.2, and RFC
/// 6749, 5.2).
const OF_SUBJECT: [&str; 3] = ["invalid_grant", "invalid_request", "invalid_token"];

/// The claim `aud` of an assertion, unverified: its recipient verifies it.
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
    match unverified::<Claims>(assertion).map(|claims| claims.aud) {
        Some(Audience::One(audience)) => vec![audience],
        Some(Audience::Many(audiences)) => audiences,
        None => Vec::new(),
    }
}
