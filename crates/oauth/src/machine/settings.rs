//! What access without users is made of.

use std::path::PathBuf;

use fanlight_settings::{Secret, read_bounded};
use url::Url;

use crate::error::{OAuthError, visible};
use crate::guard::Trust;
use crate::provider::Provider;
use crate::registration::ConfiguredClient;
use crate::scopes::Scopes;

/// Bytes of a file with a token.
const LONGEST_TOKEN: usize = 64 << 10;

/// How access to a server is had without a user.
#[derive(Clone, Debug)]
pub struct MachineSettings {
    /// The server's name, for the log.
    pub name: String,
    /// The server, and what the operator has named.
    pub trust: Trust,
    /// What a token is had for.
    pub grant: MachineGrant,
    /// Fanlight as the authorization server knows it.
    pub client: ConfiguredClient,
    /// The only authorization server that may be used.
    pub issuer: Option<String>,
    /// Where tokens are asked for, if that is not to be found out.
    pub token_endpoint: Option<Url>,
    /// The scopes to ask for, if the server is not to be asked for them.
    pub scopes: Option<Scopes>,
    /// Whether the server's URL is part of the request (RFC 8707).
    pub sends_resource: bool,
}

/// What a token is had for.
#[derive(Clone, Debug)]
pub enum MachineGrant {
    /// The client itself.
    ClientCredentials,
    /// An assertion of the platform that the workload runs on.
    Assertion(TokenFile),
    /// Another token.
    Exchange {
        /// Of whom the new one is.
        subject: Subject,
        /// The access token of who acts for them.
        actor: Option<Secret>,
        /// The name by which the authorization server knows the server.
        audience: Option<String>,
    },
    /// An assertion of the identity provider of an enterprise.
    Enterprise {
        /// Of whom the token is.
        subject: Subject,
        /// The identity provider; `None` for that of the user.
        idp: Option<IdentityProvider>,
    },
}

/// A token of somebody, and the type of it.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Where it is had; `None` for that of a user, who has signed in.
    pub file: Option<TokenFile>,
    /// The URI of its type.
    pub kind: &'static str,
}

/// The identity provider of an enterprise.
#[derive(Clone, Debug)]
pub struct IdentityProvider {
    /// Its issuer.
    pub issuer: String,
    /// Where tokens are asked for, if that is not to be found out.
    pub token_endpoint: Option<Url>,
    /// Fanlight as it knows it.
    pub client: ConfiguredClient,
}

/// A file with a token, which the platform replaces before the token ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile(pub PathBuf);

impl TokenFile {
    /// The token that it has now.
    pub(super) async fn read(&self) -> Result<Secret, OAuthError> {
        let (path, file) = (self.0.clone(), self.0.display().to_string());
        let failed = |reason: String| OAuthError::TokenFile {
            file: visible(&file, 200),
            reason,
        };
        // A file system may let its readers wait.
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
    /// The authorization server, if it is not to be found out.
    pub(super) fn configured_provider(&self) -> Option<Provider> {
        let endpoint = self.token_endpoint.as_ref()?;
        let issuer = self.issuer.clone().unwrap_or_else(|| endpoint.to_string());
        Some(Provider::of_token_endpoint(issuer, endpoint.clone()))
    }

    /// Whether tokens that are had by these are good where those are that are had by others: of the same authorization server, by
    /// the same client, for the same server.
    pub(super) fn give_the_tokens_of(&self, other: &Self) -> bool {
        self.trust.server == other.trust.server
            && self.issuer == other.issuer
            && self.token_endpoint == other.token_endpoint
            && self.client.id == other.client.id
    }

    /// Whether the operator has said where credentials may be sent.
    pub(super) fn names_authority(&self) -> bool {
        self.issuer.is_some() || self.token_endpoint.is_some()
    }
}
