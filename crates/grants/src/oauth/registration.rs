//! A client's identity at an authorization server: its id, its authentication, and registration
//! (RFC 7591; 2026-07-28 basic/authorization/client-registration).

use std::time::{Duration, SystemTime};

use fanlight_config::settings::Secret;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::fetch::{JSON, Requests};
use crate::oauth::error::{OAuthError, refusal};
use crate::oauth::{Provider, SigningKey, sealed};

/// A client at one authorization server. No other one knows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClientRegistration {
    /// The issuer of the authorization server.
    pub issuer: String,
    /// The client's id.
    pub client_id: String,
    /// The client's authentication.
    pub authentication: ClientAuthentication,
    /// When the client's secret expires.
    pub expires_at: Option<SystemTime>,
}

/// A client's authentication at the token endpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClientAuthentication {
    /// The client shows only its id.
    None,
    /// The client shows its secret in the header `Authorization`.
    Basic(#[serde(with = "sealed")] Secret),
    /// The client shows its secret in the form.
    Post(#[serde(with = "sealed")] Secret),
    /// An assertion signed with its key (RFC 7523, 2.2). The key belongs to the configuration, and
    /// is stored in no record.
    #[serde(skip)]
    PrivateKey(SigningKey),
}

/// A client configured by the operator.
#[derive(Clone, Debug, Default)]
pub struct ConfiguredClient {
    /// The client's id; empty if it has none.
    pub id: String,
    /// The client's credentials.
    pub credentials: ClientCredentials,
}

/// The credentials of a configured client.
#[derive(Clone, Debug, Default)]
pub enum ClientCredentials {
    /// No credentials.
    #[default]
    None,
    /// A secret.
    Secret(Secret),
    /// A private key.
    Key(SigningKey),
}

/// A client's metadata: for its registration, or for the document that its id refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientMetadata {
    /// The URL of the document; absent for a registration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The name shown to users.
    pub client_name: String,
    /// A page about the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_uri: Option<String>,
    /// The URLs to which browsers are sent back.
    pub redirect_uris: Vec<String>,
    /// The kinds of grants.
    pub(crate) grant_types: Vec<String>,
    /// The kinds of answers from the authorization endpoint.
    pub(crate) response_types: Vec<String>,
    /// The authentication method at the token endpoint.
    pub token_endpoint_auth_method: String,
    /// `native` or `web`, which determines the accepted redirect URLs.
    pub application_type: String,
    /// The scopes that it may request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The URL of its public keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jwks_uri: Option<String>,
    /// The algorithm of its assertions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token_endpoint_auth_signing_alg: Option<String>,
}

impl ClientMetadata {
    /// A client called `client_name` that signs users in with codes that browsers bring to
    /// `redirect_uri`, and refreshes their tokens. It has only an id; [`register`] finds out
    /// whether it gets a secret.
    pub fn new_code_client(client_name: impl Into<String>, redirect_uri: &Url) -> Self {
        let is_native = crate::fetch::is_loopback(redirect_uri);
        Self {
            client_name: client_name.into(),
            redirect_uris: vec![redirect_uri.to_string()],
            grant_types: vec!["authorization_code".to_owned(), "refresh_token".to_owned()],
            response_types: vec!["code".to_owned()],
            token_endpoint_auth_method: "none".to_owned(),
            application_type: if is_native { "native" } else { "web" }.to_owned(),
            ..Self::default()
        }
    }
}

impl ClientRegistration {
    /// A client without a secret, at an authorization server that accepts the URL of its metadata
    /// as `client_id`.
    pub fn from_document(provider: &Provider, client_id: &Url, key: Option<SigningKey>) -> Self {
        let key = key.filter(|_| provider.accepts_authentication("private_key_jwt"));
        let authentication =
            key.map_or(ClientAuthentication::None, ClientAuthentication::PrivateKey);
        Self {
            issuer: provider.issuer.clone(),
            client_id: client_id.to_string(),
            authentication,
            expires_at: None,
        }
    }

    /// A client configured by the operator.
    pub fn from_configured(provider: &Provider, client: &ConfiguredClient) -> Self {
        let authentication = match client.credentials.clone() {
            ClientCredentials::None => ClientAuthentication::None,
            ClientCredentials::Key(key) => ClientAuthentication::PrivateKey(key),
            ClientCredentials::Secret(secret) => Self::with_secret(provider, secret),
        };
        Self {
            issuer: provider.issuer.clone(),
            client_id: client.id.clone(),
            authentication,
            expires_at: None,
        }
    }

    fn with_secret(provider: &Provider, secret: Secret) -> ClientAuthentication {
        match provider.accepts_authentication("client_secret_post") {
            // All authorization servers have to accept the header (RFC 6749, 2.3.1).
            true if !provider.accepts_authentication("client_secret_basic") => {
                ClientAuthentication::Post(secret)
            }
            _ => ClientAuthentication::Basic(secret),
        }
    }

    /// Whether the client may be used now at this authorization server.
    pub fn is_valid_at(&self, provider: &Provider) -> bool {
        self.issuer == provider.issuer && self.expires_at.is_none_or(|end| SystemTime::now() < end)
    }
}

/// The answer to a registration.
#[derive(Deserialize)]
struct Registered {
    client_id: String,
    client_secret: Option<String>,
    /// The expiry in seconds since 1970; 0 means never.
    client_secret_expires_at: Option<u64>,
    token_endpoint_auth_method: Option<String>,
}

/// Registers a client.
///
/// # Errors
///
/// If the authorization server has no registration endpoint, refuses, or does not answer.
pub async fn register(
    requests: &Requests,
    provider: &Provider,
    metadata: &ClientMetadata,
) -> Result<ClientRegistration, OAuthError> {
    let Some(endpoint) = &provider.registration_endpoint else {
        return Err(OAuthError::NoEndpoint {
            issuer: provider.issuer.clone(),
            endpoint: "registration endpoint",
        });
    };
    let wanted = metadata_for(provider, metadata);
    let wanted =
        serde_json::to_vec(&wanted).map_err(|error| OAuthError::malformed(endpoint, error))?;
    let answer = requests
        .post(endpoint, JSON, HeaderMap::new(), wanted)
        .await?;
    if !matches!(answer.status, StatusCode::CREATED | StatusCode::OK) {
        return Err(refusal(&answer, endpoint, &[]));
    }
    let registered: Registered = answer.json(endpoint)?;
    let end = registered
        .client_secret_expires_at
        .filter(|end| *end > 0)
        .map(Duration::from_secs);
    let expires_at = end.and_then(|end| SystemTime::UNIX_EPOCH.checked_add(end));
    let secret = registered
        .client_secret
        .filter(|secret| !secret.is_empty())
        .map(Secret::new);
    let authentication = authentication(
        provider,
        registered.token_endpoint_auth_method.as_deref(),
        secret,
    );
    Ok(ClientRegistration {
        issuer: provider.issuer.clone(),
        client_id: registered.client_id,
        authentication,
        expires_at,
    })
}

/// The metadata with a keyless authentication method that the authorization server accepts.
fn metadata_for(provider: &Provider, metadata: &ClientMetadata) -> ClientMetadata {
    let methods = ["none", "client_secret_basic", "client_secret_post"];
    let method = methods
        .into_iter()
        .find(|method| provider.accepts_authentication(method));
    ClientMetadata {
        token_endpoint_auth_method: method.unwrap_or("none").to_owned(),
        ..metadata.clone()
    }
}

/// The authentication of a registered client: as stated in the answer, or else as the authorization
/// server accepts it.
fn authentication(
    provider: &Provider,
    method: Option<&str>,
    secret: Option<Secret>,
) -> ClientAuthentication {
    let Some(secret) = secret else {
        return ClientAuthentication::None;
    };
    match method {
        Some("none") => ClientAuthentication::None,
        Some("client_secret_post") => ClientAuthentication::Post(secret),
        Some(_) => ClientAuthentication::Basic(secret),
        None if takes_no_secret(provider) => ClientAuthentication::None,
        None => ClientRegistration::with_secret(provider, secret),
    }
}

/// Whether an authorization server claims that clients have no secrets, yet issues some.
fn takes_no_secret(provider: &Provider) -> bool {
    let accepts = |method| provider.accepts_authentication(method);
    accepts("none") && !accepts("client_secret_basic") && !accepts("client_secret_post")
}
