//! A server whose users have credentials of their own, and how those are had.

use std::fmt;

use fanlight_oauth::{
    Challenge, Client, ClientRegistration, ConfiguredClient, Discovered, MachineSettings,
    OAuthError, Provider, Requests, Scopes, TokenTarget, Trust, discover,
};
use http::HeaderName;
use tracing::warn;
use url::Url;

use crate::record::{GivenFor, Grant};

/// What an operator has written about the users of a server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Its name.
    pub name: String,
    /// Its URL.
    pub url: Url,
    /// How users get credentials.
    pub method: Method,
    /// Whose word is followed.
    pub trust: Trust,
}

/// How the users of a server get credentials for it.
#[derive(Clone, Debug)]
pub enum Method {
    /// Each signs in at its authorization server.
    SignIn(SignInMethod),
    /// Each has a token for that of their sign-in at an identity provider.
    Exchange(Box<MachineSettings>),
    /// It is no server, but an issuer of the tokens of clients, at which users show who they are.
    Identity(SignInMethod),
    /// Each deposits a key that they have from it.
    Key {
        /// The header field that takes it.
        header: HeaderName,
        /// What stands before it there, such as `Bearer `.
        prefix: String,
    },
}

/// How users sign in.
#[derive(Clone, Debug)]
pub struct SignInMethod {
    /// The client as which it is done; `None` to find or register one.
    pub client: Option<ConfiguredClient>,
    /// The authorization server; another one that the server names is refused.
    pub issuer: Option<String>,
    /// The scopes to ask for; `None` for those that the server names.
    pub scopes: Option<Scopes>,
    /// Whether the authorization server is told which server the tokens are for (RFC 8707).
    pub sends_resource: bool,
}

/// A server, and what sends requests to its authorization server.
pub(crate) struct Server {
    pub(crate) settings: ServerSettings,
    pub(crate) requests: Requests,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.settings.name)
            .finish_non_exhaustive()
    }
}

impl Server {
    pub(crate) fn new(settings: ServerSettings) -> Result<Self, OAuthError> {
        Ok(Self {
            requests: Requests::new(&settings.trust)?,
            settings,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// The client that a grant was given to; `None` if it was the configured one, and another one is configured now.
    pub(crate) fn registration(&self, grant: &Grant) -> Option<ClientRegistration> {
        self.registration_at(&grant.provider, grant.client.as_ref(), &grant.given_for)
    }

    /// The `kept` client, or else the configured one if it still is the one that tokens are given to: nothing of a client is
    /// shown to the authorization server of another one (2026-07-28 basic/authorization/client-registration, Authorization Server
    /// Binding).
    pub(crate) fn registration_at(
        &self,
        provider: &Provider,
        kept: Option<&ClientRegistration>,
        given_for: &GivenFor,
    ) -> Option<ClientRegistration> {
        let client = kept
            .cloned()
            .or_else(|| self.sign_in()?.configured(provider));
        client.filter(|client| client.client_id == given_for.client_id)
    }

    /// Whether tokens of this authorization server that are given for this are for this server, as it is configured now.
    pub(crate) fn is_meant(&self, provider: &Provider, given_for: &GivenFor) -> bool {
        given_for.origin == self.origin()
            && self
                .sign_in()
                .is_some_and(|method| method.accepts(provider))
    }

    /// Asks where its users sign in.
    pub(crate) async fn discover(&self, challenge: &Challenge) -> Result<Discovered, OAuthError> {
        let (requests, url) = (&self.requests, &self.settings.url);
        if self.is_identity_provider() {
            // The nonce protects codes as well where the metadata do not name what is sent in any case (RFC 9700, 2.1.1).
            let provider = Provider::discover(requests, self.name()).await?.with_pkce();
            return Ok(Discovered::new(url, None, provider, None));
        }
        let issuer = self.sign_in().and_then(|method| method.issuer.as_deref());
        discover(requests, url, Some(challenge), issuer).await
    }

    /// Whether the operator has registered the client as which its users sign in.
    pub(crate) fn has_configured_client(&self) -> bool {
        self.sign_in().is_some_and(|method| method.client.is_some())
    }

    /// Whether users' tokens for the other server are had and used as those for this one, but for secrets of the client.
    pub(crate) fn is_client_of(&self, other: &Self) -> bool {
        let id = |method: &SignInMethod| method.client.as_ref().map(|client| client.id.clone());
        let is_alike = |(one, other): (&SignInMethod, &SignInMethod)| {
            one.issuer == other.issuer && id(one) == id(other)
        };
        self.settings.url == other.settings.url
            && self.is_identity_provider() == other.is_identity_provider()
            && self.sign_in().zip(other.sign_in()).is_some_and(is_alike)
    }

    /// Where it is.
    pub(crate) fn origin(&self) -> String {
        self.settings.url.origin().ascii_serialization()
    }

    /// Whether the tokens of a grant are for this server, as it is configured now.
    pub(crate) fn is_meant_by(&self, grant: &Grant) -> bool {
        self.is_meant(&grant.provider, &grant.given_for) && self.registration(grant).is_some()
    }

    /// Gives the tokens of a grant back, if that can be done as the client that they were given to. It is forgotten whether
    /// that succeeds or not.
    pub(crate) async fn revoke(&self, grant: &Grant) {
        let Some(registration) = self.registration(grant) else {
            return;
        };
        let (requests, provider, proof_key) =
            (&self.requests, &grant.provider, grant.proof_key.as_ref());
        let client = Client {
            requests,
            provider,
            registration: &registration,
            proof_key,
        };
        // The refresh token first: with it, others could be had.
        let refresh_token = grant
            .tokens
            .refresh_token
            .as_ref()
            .map(|token| (token, "refresh_token"));
        for (token, kind) in refresh_token
            .into_iter()
            .chain([(&grant.tokens.access_token, "access_token")])
        {
            if let Err(error) = client.revoke(token, kind).await {
                warn!(server = self.name(), kind, %error, "a token of a user who has signed out cannot be given back");
            }
        }
    }

    /// Whether users show there who they are.
    pub(crate) fn is_identity_provider(&self) -> bool {
        matches!(self.settings.method, Method::Identity(_))
    }

    /// How its users sign in, if they do.
    pub(crate) fn sign_in(&self) -> Option<&SignInMethod> {
        match &self.settings.method {
            Method::SignIn(method) | Method::Identity(method) => Some(method),
            Method::Key { .. } | Method::Exchange(_) => None,
        }
    }
}

impl SignInMethod {
    /// The client that the operator has registered, as one of this authorization server, unless it is for another one.
    pub(crate) fn configured(&self, provider: &Provider) -> Option<ClientRegistration> {
        let client = self.client.as_ref().filter(|_| self.accepts(provider))?;
        Some(ClientRegistration::configured(provider, client))
    }

    /// Whether this authorization server may be used.
    fn accepts(&self, provider: &Provider) -> bool {
        self.issuer
            .as_ref()
            .is_none_or(|issuer| *issuer == provider.issuer)
    }

    /// What is asked for.
    pub(crate) fn target(&self, resource: String, scopes: Option<Scopes>) -> TokenTarget {
        TokenTarget {
            resource: self.sends_resource.then_some(resource),
            scopes,
        }
    }
}
