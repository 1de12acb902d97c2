//! An authorization server: discovering its metadata (RFC 8414; OpenID Connect Discovery 1.0).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::fetch::{FetchError, Requests, visible};
use crate::oauth::error::OAuthError;

/// The metadata of an authorization server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provider {
    /// The issuer, compared character by character.
    pub issuer: String,
    /// The URL to send browsers to.
    pub authorization_endpoint: Option<Url>,
    /// The token endpoint.
    pub token_endpoint: Url,
    /// The endpoint where clients register (RFC 7591).
    pub registration_endpoint: Option<Url>,
    /// The endpoint for revoking tokens (RFC 7009).
    pub revocation_endpoint: Option<Url>,
    /// The supported scopes.
    pub scopes_supported: Option<Vec<String>>,
    /// The supported methods of PKCE.
    pub code_challenge_methods_supported: Option<Vec<String>>,
    /// The clients' authentication methods at the token endpoint; if absent, `client_secret_basic`.
    pub token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// The supported kinds of grants; if absent, codes.
    grant_types_supported: Option<Vec<String>>,
    /// Whether each answer through the browser names the issuer (RFC 9207).
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
    /// Whether it accepts the URL of a client's metadata as the client's id.
    #[serde(default)]
    pub client_id_metadata_document_supported: bool,
    /// The algorithms for DPoP proofs (RFC 9449).
    pub dpop_signing_alg_values_supported: Option<Vec<String>>,
    /// The servers that it is for (RFC 9728, 4). Records of grants do not need them.
    #[serde(skip_serializing)]
    pub protected_resources: Option<Vec<String>>,
}

/// The member of metadata that names their owner.
#[derive(Deserialize)]
struct Named {
    issuer: String,
}

/// Reads the metadata of an issuer at the first place that has them. The named issuer "MUST be
/// identical" (RFC 8414, 3.3), since one issuer could otherwise present its endpoints as another's.
///
/// # Errors
///
/// If no place has metadata, they name another issuer, or there is no answer.
pub async fn metadata<T: DeserializeOwned>(
    requests: &Requests,
    issuer: &str,
) -> Result<T, OAuthError> {
    for place in metadata_places(issuer) {
        let document = async {
            let answer = requests.get(&place).await?;
            Ok::<_, FetchError>((answer.json::<Named>(&place)?, answer.json::<T>(&place)?))
        };
        match document.await {
            Ok((Named { issuer: named }, document)) if named == issuer => return Ok(document),
            Ok((Named { issuer: named }, _)) => {
                return Err(OAuthError::OtherIssuer {
                    issuer: issuer.to_owned(),
                    named: visible(&named, 200),
                });
            }
            Err(error) if error.is_absence() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(OAuthError::NoMetadata {
        issuer: issuer.to_owned(),
    })
}

/// The places where an issuer may publish its metadata, in the order of 2026-07-28
/// basic/authorization/authorization-server-discovery. There are none if the issuer is not a URL, or
/// has a user name.
fn metadata_places(issuer: &str) -> Vec<Url> {
    let url = Url::parse(issuer).ok();
    let Some(url) = url.filter(|url| url.username().is_empty() && url.password().is_none()) else {
        return Vec::new();
    };
    let path = url.path().trim_end_matches('/');
    let mut places = vec![
        format!("/.well-known/oauth-authorization-server{path}"),
        format!("/.well-known/openid-configuration{path}"),
    ];
    if !path.is_empty() {
        places.push(format!("{path}/.well-known/openid-configuration"));
    }
    let origin = url.origin().ascii_serialization();
    let at = |place: &String| Url::parse(&format!("{origin}{place}")).ok();
    places.iter().filter_map(at).collect()
}

impl Provider {
    /// Reads the metadata of the authorization server with this issuer.
    ///
    /// # Errors
    ///
    /// If there is no metadata, its URLs are forbidden, or the server does not answer.
    pub async fn discover(requests: &Requests, issuer: &str) -> Result<Self, OAuthError> {
        let provider: Self = metadata(requests, issuer).await?;
        let others = [
            &provider.authorization_endpoint,
            &provider.registration_endpoint,
            &provider.revocation_endpoint,
        ];
        for endpoint in [&provider.token_endpoint]
            .into_iter()
            .chain(others.into_iter().flatten())
        {
            requests.permits(endpoint)?;
        }
        Ok(provider)
    }

    /// An authorization server with a configured token endpoint, and nothing else known.
    pub fn from_token_endpoint(issuer: String, token_endpoint: Url) -> Self {
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
            protected_resources: None,
        }
    }

    /// The authorization server that a server without metadata has at its own origin (2025-03-26
    /// basic/authorization, 2.3.3). PKCE is required there.
    pub(crate) fn at_default_places(origin: &str) -> Option<Self> {
        let at = |path: &str| Url::parse(&format!("{origin}{path}")).ok();
        let known = Self::from_token_endpoint(origin.to_owned(), at("/token")?);
        Some(Self {
            authorization_endpoint: at("/authorize"),
            registration_endpoint: at("/register"),
            ..known.with_pkce()
        })
    }

    /// The URL to send browsers to.
    ///
    /// # Errors
    ///
    /// If there is none, or codes would not be protected by PKCE with S256.
    pub(crate) fn sign_in_endpoint(&self) -> Result<&Url, OAuthError> {
        let issuer = || self.issuer.clone();
        let Some(endpoint) = &self.authorization_endpoint else {
            return Err(OAuthError::NoEndpoint {
                issuer: issuer(),
                endpoint: "authorization endpoint",
            });
        };
        if self.has_pkce() {
            Ok(endpoint)
        } else {
            Err(OAuthError::NoPkce { issuer: issuer() })
        }
    }

    /// Whether the authorization server lists this server as one of its own.
    pub(crate) fn lists(&self, resource: &str) -> bool {
        let same = |one: &String| one.trim_end_matches('/') == resource.trim_end_matches('/');
        self.protected_resources.iter().flatten().any(same)
    }

    /// Whether codes are protected by PKCE with S256.
    pub fn has_pkce(&self) -> bool {
        self.code_challenge_methods_supported
            .as_ref()
            .is_some_and(|methods| methods.iter().any(|one| one == "S256"))
    }

    /// Assumes PKCE even if the metadata do not mention it: a server that does not know its
    /// parameters ignores them (RFC 7636, 5).
    #[must_use]
    pub fn with_pkce(self) -> Self {
        Self {
            code_challenge_methods_supported: Some(vec!["S256".to_owned()]),
            ..self
        }
    }

    /// Whether it binds tokens to clients' keys with an algorithm of [`crate::oauth::ProofKey`].
    pub fn has_dpop(&self) -> bool {
        self.dpop_signing_alg_values_supported
            .as_ref()
            .is_some_and(|known| known.iter().any(|one| one == "ES256"))
    }

    /// Whether clients may authenticate by this method.
    pub fn accepts_authentication(&self, method: &str) -> bool {
        match &self.token_endpoint_auth_methods_supported {
            Some(methods) => methods.iter().any(|one| one == method),
            None => method == "client_secret_basic",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_are_at_these_places() {
        let places = |issuer| {
            let places = metadata_places(issuer);
            places.iter().map(Url::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            places("https://id.example.com"),
            [
                "https://id.example.com/.well-known/oauth-authorization-server",
                "https://id.example.com/.well-known/openid-configuration",
            ]
        );
        assert_eq!(
            places("https://id.example.com:8443/tenant/1/"),
            [
                "https://id.example.com:8443/.well-known/oauth-authorization-server/tenant/1",
                "https://id.example.com:8443/.well-known/openid-configuration/tenant/1",
                "https://id.example.com:8443/tenant/1/.well-known/openid-configuration",
            ]
        );
        assert!(places("https://u:p@id.example.com").is_empty());
    }
}
