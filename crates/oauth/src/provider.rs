//! An authorization server: its metadata, and where they are (RFC 8414; OpenID Connect Discovery 1.0).

use serde::{Deserialize, Serialize};
use url::Url;

use crate::error::{OAuthError, visible};
use crate::requests::Requests;

/// What is known of an authorization server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provider {
    /// Its name, compared by each character.
    pub issuer: String,
    /// Where browsers are sent.
    pub authorization_endpoint: Option<Url>,
    /// Where tokens are asked for.
    pub token_endpoint: Url,
    /// Where clients register (RFC 7591).
    #[serde(default)]
    pub registration_endpoint: Option<Url>,
    /// Where tokens are given back (RFC 7009).
    #[serde(default)]
    pub revocation_endpoint: Option<Url>,
    /// Scopes that it knows.
    #[serde(default)]
    pub scopes_supported: Option<Vec<String>>,
    /// Forms of PKCE.
    #[serde(default)]
    pub code_challenge_methods_supported: Option<Vec<String>>,
    /// How clients may authenticate at the token endpoint; absent, it means `client_secret_basic`.
    #[serde(default)]
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// Kinds of grants; absent, it means codes.
    #[serde(default)]
    pub grant_types_supported: Option<Vec<String>>,
    /// Whether each of its answers by way of the browser names it (RFC 9207).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
    /// Whether it reads the metadata of clients from the URL that is their id.
    #[serde(default)]
    pub client_id_metadata_document_supported: bool,
    /// Algorithms of proofs of possession (RFC 9449).
    #[serde(default)]
    pub dpop_signing_alg_values_supported: Option<Vec<String>>,
}

/// The places at which an issuer may publish its metadata, in the order of 2026-07-28
/// basic/authorization/authorization-server-discovery; none if it is no URL.
#[must_use]
pub fn metadata_places(issuer: &str) -> Vec<String> {
    let Ok(url) = Url::parse(issuer) else {
        return Vec::new();
    };
    let origin = url.origin().ascii_serialization();
    let path = url.path().trim_end_matches('/');
    let mut places = vec![
        format!("{origin}/.well-known/oauth-authorization-server{path}"),
        format!("{origin}/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{origin}{path}/.well-known/openid-configuration"));
    }
    places
}

impl Provider {
    /// Reads the metadata of the authorization server with this issuer.
    ///
    /// # Errors
    ///
    /// If there are none at any of the places, they name another issuer, or there is no answer.
    pub async fn discover(requests: &Requests, issuer: &str) -> Result<Self, OAuthError> {
        for place in metadata_places(issuer) {
            let place = Url::parse(&place).map_err(|_| no_metadata(issuer))?;
            match requests.get_json::<Self>(&place).await {
                Ok(provider) => return provider.checked(requests, issuer),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Err(no_metadata(issuer))
    }

    /// One of which nothing but a token endpoint is known, as the operator has written it.
    #[must_use]
    pub fn of_token_endpoint(issuer: String, token_endpoint: Url) -> Self {
        Self {
            issuer,
            authorization_endpoint: None,
            token_endpoint,
            registration_endpoint: None,
            revocation_endpoint: None,
            scopes_supported: None,
            code_challenge_methods_supported: None,
            token_endpoint_auth_methods_supported: None,
            grant_types_supported: None,
            authorization_response_iss_parameter_supported: false,
            client_id_metadata_document_supported: false,
            dpop_signing_alg_values_supported: None,
        }
    }

    /// The one that a server without any metadata has at its own origin (2025-03-26 basic/authorization, 2.3.3), which
    /// requires PKCE.
    pub(crate) fn at_default_places(origin: &str) -> Option<Self> {
        let at = |path: &str| Url::parse(&format!("{origin}{path}")).ok();
        let known = Self::of_token_endpoint(origin.to_owned(), at("/token")?);
        Some(Self {
            authorization_endpoint: at("/authorize"),
            registration_endpoint: at("/register"),
            ..known.with_pkce()
        })
    }

    /// Whether codes are protected by PKCE with S256.
    #[must_use]
    pub fn has_pkce(&self) -> bool {
        self.code_challenge_methods_supported
            .as_ref()
            .is_some_and(|methods| methods.iter().any(|one| one == "S256"))
    }

    /// This, taken to know PKCE whether its metadata say so or not: who does not know the parameters ignores them (RFC 7636, 5).
    #[must_use]
    pub fn with_pkce(self) -> Self {
        Self {
            code_challenge_methods_supported: Some(vec!["S256".to_owned()]),
            ..self
        }
    }

    /// Whether it binds tokens to keys of clients, with an algorithm that [`crate::ProofKey`] has.
    #[must_use]
    pub fn has_dpop(&self) -> bool {
        self.dpop_signing_alg_values_supported
            .as_ref()
            .is_some_and(|known| known.iter().any(|one| one == "ES256"))
    }

    /// Whether clients may authenticate by this method.
    #[must_use]
    pub fn accepts_authentication(&self, method: &str) -> bool {
        match &self.token_endpoint_auth_methods_supported {
            Some(methods) => methods.iter().any(|one| one == method),
            None => method == "client_secret_basic",
        }
    }

    /// These metadata if they are the issuer's own ("MUST be identical", RFC 8414, 3.3: else one issuer could bring its
    /// endpoints for another), and lead nowhere that is forbidden.
    fn checked(self, requests: &Requests, issuer: &str) -> Result<Self, OAuthError> {
        if self.issuer != issuer {
            let named = visible(&self.issuer, 200);
            return Err(OAuthError::OtherIssuer {
                issuer: issuer.to_owned(),
                named,
            });
        }
        requests.permits(&self.token_endpoint)?;
        for endpoint in [
            &self.authorization_endpoint,
            &self.registration_endpoint,
            &self.revocation_endpoint,
        ] {
            endpoint
                .iter()
                .try_for_each(|endpoint| requests.permits(endpoint))?;
        }
        Ok(self)
    }
}

fn no_metadata(issuer: &str) -> OAuthError {
    OAuthError::NoMetadata {
        issuer: issuer.to_owned(),
    }
}

/// Whether an answer says that the document is elsewhere, if anywhere. A server that has failed says nothing: the next
/// place could be another's.
pub(crate) fn is_absent(error: &OAuthError) -> bool {
    match error {
        OAuthError::Status { status, .. } => status.is_client_error() && !error.is_temporary(),
        // Pages that are shown for all paths.
        OAuthError::Malformed { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_are_at_these_places() {
        assert_eq!(
            metadata_places("https://id.example.com"),
            [
                "https://id.example.com/.well-known/oauth-authorization-server",
                "https://id.example.com/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            metadata_places("https://id.example.com:8443/tenant/1/"),
            [
                "https://id.example.com:8443/.well-known/oauth-authorization-server/tenant/1",
                "https://id.example.com:8443/.well-known/openid-configuration/tenant/1",
                "https://id.example.com:8443/tenant/1/.well-known/openid-configuration",
            ]
        );
    }
}
