//! A server whose users have credentials of their own, and the way to get them.

use crate::fetch::{Requests, Trust};
use crate::oauth::{
    Challenge, Client, ClientRegistration, ConfiguredClient, Discovered, MachineSettings,
    OAuthError, Provider, Scopes, TokenTarget, discover,
};
use http::HeaderName;
use serde::{Deserialize, Serialize};
use tracing::warn;
use url::Url;

use crate::record::{GivenFor, Grant};

/// The configuration of a server's users.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The name.
    pub name: String,
    /// The URL.
    pub url: Url,
    /// How users get credentials.
    pub method: Method,
    /// The hosts to trust.
    pub trust: Trust,
}

/// The way in which a server's users get credentials.
#[derive(Clone, Debug)]
pub enum Method {
    /// Each user signs in at the server's authorization server.
    SignIn(SignInMethod),
    /// The token of each user's sign-in at an identity provider is exchanged.
    Exchange(Box<MachineSettings>),
    /// An issuer of clients' tokens instead of a server; users identify themselves there.
    Identity(SignInMethod),
    /// Each user deposits a key of the server.
    Key {
        /// The header field for the key.
        header: HeaderName,
        /// The text before the key, such as `Bearer `.
        prefix: String,
    },
}

/// The settings for signing in.
#[derive(Clone, Debug)]
pub struct SignInMethod {
    /// The OAuth client; `None` to find or register one.
    pub client: Option<ConfiguredClient>,
    /// The required authorization server; if the server names another one, it is refused.
    pub issuer: Option<String>,
    /// The scopes to request; `None` for those that the server names.
    pub scopes: Option<Scopes>,
    /// Whether to tell the authorization server which server the tokens are for (RFC 8707).
    pub sends_resource: bool,
}

/// A server, and the HTTP client for its authorization server.
pub(crate) struct Server {
    pub(crate) settings: ServerSettings,
    pub(crate) requests: Requests,
}

fanlight_protocol::opaque!(Server);

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

    /// The client that a grant was issued to; `None` if it was the configured one, and another one
    /// is configured now.
    pub(crate) fn registration(&self, grant: &Grant) -> Option<ClientRegistration> {
        self.registration_at(&grant.provider, grant.client.as_ref(), &grant.given_for)
    }

    /// The `kept` client, or else the configured one if it is still the client of the tokens. Data
    /// of one client is never shown to another client's authorization server (2026-07-28
    /// basic/authorization/client-registration, Authorization Server Binding).
    pub(crate) fn registration_at(
        &self,
        provider: &Provider,
        kept: Option<&ClientRegistration>,
        given_for: &GivenFor,
    ) -> Option<ClientRegistration> {
        let client = kept
            .cloned()
            .or_else(|| self.sign_in()?.configured_client(provider));
        client.filter(|client| client.client_id == given_for.client_id)
    }

    /// Whether tokens from this authorization server with this validity are for this server in its
    /// current configuration.
    pub(crate) fn is_meant(&self, provider: &Provider, given_for: &GivenFor) -> bool {
        given_for.origin == self.origin()
            && self
                .sign_in()
                .is_some_and(|method| method.accepts(provider))
    }

    /// Discovers where the server's users sign in.
    pub(crate) async fn discover(&self, challenge: &Challenge) -> Result<Discovered, OAuthError> {
        let (requests, url) = (&self.requests, &self.settings.url);
        if self.is_identity_provider() {
            // The nonce protects codes as well, if the metadata do not mention PKCE, which is sent
            // anyway (RFC 9700, 2.1.1).
            let provider = Provider::discover(requests, self.name()).await?.with_pkce();
            return Ok(Discovered::new(url, None, provider, None));
        }
        let issuer = self.sign_in().and_then(|method| method.issuer.as_deref());
        discover(requests, url, Some(challenge), issuer).await
    }

    /// Whether the configuration has the OAuth client for sign-ins.
    pub(crate) fn has_configured_client(&self) -> bool {
        self.sign_in().is_some_and(|method| method.client.is_some())
    }

    /// Whether the configuration names the authorization server.
    pub(crate) fn has_configured_issuer(&self) -> bool {
        self.sign_in().is_some_and(|method| method.issuer.is_some())
    }

    /// Whether users' tokens are fetched and used in the same way for both servers, apart from the
    /// client's secrets.
    pub(crate) fn is_client_of(&self, other: &Self) -> bool {
        let id = |method: &SignInMethod| method.client.as_ref().map(|client| client.id.clone());
        let is_alike = |(one, other): (&SignInMethod, &SignInMethod)| {
            one.issuer == other.issuer && id(one) == id(other)
        };
        self.settings.url == other.settings.url
            && self.is_identity_provider() == other.is_identity_provider()
            && self.sign_in().zip(other.sign_in()).is_some_and(is_alike)
    }

    /// The server's origin.
    pub(crate) fn origin(&self) -> String {
        self.settings.url.origin().ascii_serialization()
    }

    /// Whether a grant's tokens are for this server in its current configuration.
    pub(crate) fn is_meant_by(&self, grant: &Grant) -> bool {
        self.is_meant(&grant.provider, &grant.given_for) && self.registration(grant).is_some()
    }

    /// Revokes a grant's tokens, if their client is still available. The grant is forgotten in any
    /// case.
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
        // The refresh token first, since it could fetch further tokens.
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
                warn!(server = self.name(), kind, %error, "cannot revoke the token of a user who has signed out");
            }
        }
    }

    /// Whether this is an identity provider.
    pub(crate) fn is_identity_provider(&self) -> bool {
        matches!(self.settings.method, Method::Identity(_))
    }

    /// The settings for signing in, if users sign in.
    pub(crate) fn sign_in(&self) -> Option<&SignInMethod> {
        match &self.settings.method {
            Method::SignIn(method) | Method::Identity(method) => Some(method),
            Method::Key { .. } | Method::Exchange(_) => None,
        }
    }
}

impl SignInMethod {
    /// The configured client, if it is valid for this authorization server.
    pub(crate) fn configured_client(&self, provider: &Provider) -> Option<ClientRegistration> {
        let client = self.client.as_ref().filter(|_| self.accepts(provider))?;
        Some(ClientRegistration::from_configured(provider, client))
    }

    /// Whether this authorization server may be used.
    fn accepts(&self, provider: &Provider) -> bool {
        self.issuer
            .as_ref()
            .is_none_or(|issuer| *issuer == provider.issuer)
    }

    /// Whether browsers return to the redirect URI that issuers share: for a configured client, if the
    /// issuer names itself in each answer (RFC 9207).
    pub(crate) fn returns_to_shared(&self, provider: &Provider) -> bool {
        self.client.is_some() && provider.authorization_response_iss_parameter_supported
    }

    /// The resource and scopes to request.
    pub(crate) fn target(&self, resource: String, scopes: Option<Scopes>) -> TokenTarget {
        TokenTarget {
            resource: self.sends_resource.then_some(resource),
            scopes,
        }
    }
}

/// A server's requirements for signing in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Wanted {
    /// The URL of the server's metadata, if it named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_metadata: Option<Url>,
    /// The scopes to ask for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Scopes>,
    /// Whether the server requires DPoP proofs of possession.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_dpop: bool,
}
