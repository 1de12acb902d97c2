//! The settings of access without a browser.

use std::path::PathBuf;

use fanlight_config::settings::{Secret, read_bounded};
use futures_util::future::BoxFuture;
use url::Url;

use crate::fetch::{Trust, visible};
use crate::oauth::{ClientRegistration, ConfiguredClient, OAuthError, Provider, Scopes};

/// The size limit of a file with a token, in bytes.
const LONGEST_TOKEN: usize = 64 << 10;

/// The settings for access to a server without a browser.
#[derive(Clone, Debug)]
pub struct MachineSettings {
    /// The server's name, for the log.
    pub name: String,
    /// The server, and other configured hosts to trust.
    pub trust: Trust,
    /// The kind of grant.
    pub grant: MachineGrant,
    /// Fanlight's client at the authorization server.
    pub client: ConfiguredClient,
    /// The only authorization server that may be used.
    pub issuer: Option<String>,
    /// The token endpoint; `None` to discover it.
    pub token_endpoint: Option<Url>,
    /// The scopes to request; `None` for those that the server names.
    pub scopes: Option<Scopes>,
    /// Whether the server's URL is part of the request (RFC 8707).
    pub sends_resource: bool,
}

/// The kind of grant for a token.
#[derive(Clone, Debug)]
pub enum MachineGrant {
    /// The client's own credentials.
    ClientCredentials,
    /// An assertion from the platform that the workload runs on.
    Assertion(TokenFile),
    /// An exchange of another token.
    Exchange {
        /// The token of the represented party.
        subject: Subject,
        /// The name by which the authorization server knows the server.
        audience: Option<String>,
    },
    /// An assertion from an enterprise's identity provider.
    Enterprise {
        /// The token of the represented party.
        subject: Subject,
        /// The identity provider; `None` for the user's.
        idp: Option<IdentityProvider>,
    },
}

/// A subject token and its type.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The file with the token; `None` for the token of a user who has signed in.
    pub file: Option<TokenFile>,
    /// The URI of its type.
    pub kind: &'static str,
}

/// An enterprise's identity provider.
#[derive(Clone, Debug)]
pub struct IdentityProvider {
    /// The issuer of the identity provider.
    pub issuer: String,
    /// The registration of Fanlight as a client there.
    pub client: ConfiguredClient,
}

/// A file with a token, which the platform replaces before the token expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile(pub PathBuf);

impl TokenFile {
    /// Reads the current token.
    pub(super) async fn read(&self) -> Result<Secret, OAuthError> {
        let (path, file) = (self.0.clone(), self.0.display().to_string());
        let failed = |reason: String| OAuthError::TokenFile {
            file: visible(&file, 200),
            reason,
        };
        // Reading may block, depending on the file system.
        let read = tokio::task::spawn_blocking(move || read_bounded(&path, LONGEST_TOKEN)).await;
        let bytes = read
            .map_err(|error| failed(error.to_string()))?
            .map_err(|error| failed(error.to_string()))?;
        if bytes.len() > LONGEST_TOKEN {
            return Err(failed(format!("it is larger than {LONGEST_TOKEN} bytes")));
        }
        let text = String::from_utf8(bytes).map_err(|_| failed("it is not text".to_owned()))?;
        let token = text.trim();
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        if is_token {
            Ok(Secret::new(token))
        } else {
            Err(failed("it has no token".to_owned()))
        }
    }
}

impl MachineSettings {
    /// The configured authorization server; `None` to discover it.
    pub(super) fn configured_provider(&self) -> Option<Provider> {
        let endpoint = self.token_endpoint.as_ref()?;
        let issuer = self.issuer.clone().unwrap_or_else(|| endpoint.to_string());
        Some(Provider::from_token_endpoint(issuer, endpoint.clone()))
    }

    /// Whether both settings yield equivalent tokens: from the same authorization server, for the
    /// same client and server.
    pub(super) fn give_the_tokens_of(&self, other: &Self) -> bool {
        self.trust.server == other.trust.server
            && self.issuer == other.issuer
            && self.token_endpoint == other.token_endpoint
            && self.client.id == other.client.id
    }

    /// Whether the configuration says where credentials may be sent.
    pub(super) fn names_authority(&self) -> bool {
        self.issuer.is_some() || self.token_endpoint.is_some()
    }
}

/// A user's token and its origin.
pub(crate) struct SubjectToken {
    /// The token.
    pub(crate) token: Secret,
    /// The type of the token.
    pub(crate) kind: &'static str,
    /// If it is a user's, the identity provider that issued it, and the client that it was issued
    /// to.
    pub(crate) origin: Option<(Provider, ClientRegistration)>,
}

/// A user with a sign-in at an identity provider, now or later.
pub(crate) trait SubjectTokens: Send + Sync {
    /// The user's valid token of this type. It differs from the `refused` one, if possible.
    ///
    /// # Errors
    ///
    /// [`OAuthError::NoSubject`] if the user has to sign in.
    fn token<'a>(
        &'a self,
        kind: &'static str,
        refused: Option<&'a Secret>,
    ) -> BoxFuture<'a, Result<SubjectToken, OAuthError>>;
}
