//! Discovers a server's authorization server (RFC 9728; 2026-07-28
//! basic/authorization/authorization-server-discovery; for older servers 2025-03-26
//! basic/authorization, 2.3).

use serde::Deserialize;
use url::Url;

use crate::fetch::{Requests, visible};
use crate::oauth::{Challenge, OAuthError, Provider, Scopes};

/// A server's metadata about its protection.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ProtectedResource {
    /// The resource to request tokens for, as the server writes it.
    pub resource: String,
    /// The issuers of its authorization servers.
    #[serde(default)]
    pub authorization_servers: Vec<String>,
    /// The scopes that the server's users need.
    pub scopes_supported: Option<Vec<String>>,
    /// Whether the server accepts only tokens that are bound to a key (RFC 9728, 2).
    #[serde(default)]
    dpop_bound_access_tokens_required: bool,
}

/// A server's authorization server, and the parameters for requesting tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// The `resource` parameter (RFC 8707).
    pub resource: String,
    /// The authorization server.
    pub provider: Provider,
    /// The scopes to request: the challenge's, or else all of the server's (2026-07-28
    /// basic/authorization, Scope Selection Strategy).
    pub scopes: Option<Scopes>,
    /// Whether the server requires DPoP proofs, and the authorization server supports them.
    pub needs_proofs: bool,
}

/// Finds the authorization server of `server`, whose challenge may tell more. With an `issuer`,
/// only this one is accepted.
///
/// # Errors
///
/// If there is none, the metadata are not the server's, or somebody does not answer.
pub async fn discover(
    requests: &Requests,
    server: &Url,
    challenge: Option<&Challenge>,
    issuer: Option<&str>,
) -> Result<Discovered, OAuthError> {
    let metadata_url = challenge.and_then(|challenge| challenge.resource_metadata.as_ref());
    let protected = protected_resource(requests, server, metadata_url).await?;
    Discovered::find(requests, server, protected, challenge, issuer).await
}

impl Discovered {
    /// [`discover`] with known metadata of the server.
    pub(crate) async fn find(
        requests: &Requests,
        server: &Url,
        protected: Option<ProtectedResource>,
        challenge: Option<&Challenge>,
        issuer: Option<&str>,
    ) -> Result<Self, OAuthError> {
        let provider = match (&protected, issuer) {
            (Some(protected), _) => {
                Provider::discover(requests, protected.issuer(server, issuer)?).await?
            }
            (None, Some(issuer)) => Provider::discover(requests, issuer).await?,
            (None, None) => provider_of_origin(requests, server).await?,
        };
        Ok(Self::new(server, protected, provider, challenge))
    }

    /// Combines a server's metadata, its authorization server and its challenge.
    pub fn new(
        server: &Url,
        protected: Option<ProtectedResource>,
        provider: Provider,
        challenge: Option<&Challenge>,
    ) -> Self {
        let challenged = challenge.and_then(|challenge| challenge.scopes.clone());
        let wants_proofs = challenge.is_some_and(|challenge| challenge.is_dpop)
            || protected
                .as_ref()
                .is_some_and(|protected| protected.dpop_bound_access_tokens_required);
        let (resource, supported) = match protected {
            Some(protected) => (
                protected.resource,
                protected.scopes_supported.map(Scopes::from_iter),
            ),
            None => (resource_of(server), None),
        };
        let needs_proofs = wants_proofs && provider.has_dpop();
        Self {
            resource,
            provider,
            scopes: challenged.or(supported),
            needs_proofs,
        }
    }
}

/// A server's metadata: at the URL in the challenge, or else at the well-known places of its path
/// or origin; `None` if there are none.
///
/// # Errors
///
/// If they are another server's, or there is no answer.
pub async fn protected_resource(
    requests: &Requests,
    server: &Url,
    metadata_url: Option<&Url>,
) -> Result<Option<ProtectedResource>, OAuthError> {
    if let Some(place) = metadata_url {
        return requests
            .get_json::<ProtectedResource>(place)
            .await?
            .checked(server)
            .map(Some);
    }
    for place in places(server) {
        match requests.get_json::<ProtectedResource>(&place).await {
            Ok(protected) => return protected.checked(server).map(Some),
            Err(error) if error.is_absence() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

impl ProtectedResource {
    /// The issuer to use: the `wanted` one, or else the first, which a server with several prefers.
    /// The choice is the client's (RFC 9728, 7.6).
    fn issuer<'a>(&'a self, server: &Url, wanted: Option<&'a str>) -> Result<&'a str, OAuthError> {
        let Some(first) = self.authorization_servers.first() else {
            let none =
                || OAuthError::malformed(server, "its metadata name no authorization server");
            return wanted.ok_or_else(none);
        };
        match wanted {
            None => Ok(first),
            Some(wanted) if self.authorization_servers.iter().any(|one| one == wanted) => {
                Ok(wanted)
            }
            Some(wanted) => Err(OAuthError::OtherAuthorizationServer {
                issuer: wanted.to_owned(),
                named: visible(first, 200),
            }),
        }
    }

    /// Returns the metadata if they are the server's own: for its origin, and for its path or one
    /// above. Otherwise Fanlight could be made to request tokens that are valid elsewhere (RFC
    /// 9728, 3.3 and 7.3).
    fn checked(self, server: &Url) -> Result<Self, OAuthError> {
        if Url::parse(&self.resource).is_ok_and(|resource| is_above(&resource, server)) {
            return Ok(self);
        }
        Err(OAuthError::OtherResource {
            server: resource_of(server),
            named: visible(&self.resource, 200),
        })
    }
}

fn is_above(resource: &Url, server: &Url) -> bool {
    let (above, path) = (resource.path().trim_end_matches('/'), server.path());
    let is_path = path
        .strip_prefix(above)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    resource.origin() == server.origin() && is_path
}

/// The well-known places of a server's metadata: with its path, and without it.
fn places(server: &Url) -> Vec<Url> {
    const NAME: &str = "/.well-known/oauth-protected-resource";
    let path = server.path().trim_end_matches('/');
    let at = |path: &str| {
        let mut place = server.clone();
        place.set_path(path);
        place.set_query(None);
        place.set_fragment(None);
        place
    };
    let mut places = vec![at(&format!("{NAME}{path}"))];
    if !path.is_empty() {
        places.push(at(NAME));
    }
    places
}

/// The canonical form of a server's URL (2026-07-28 basic/authorization, Canonical Server URI).
fn resource_of(server: &Url) -> String {
    let mut url = server.clone();
    url.set_fragment(None);
    let text: String = url.into();
    if server.path() == "/" && server.query().is_none() {
        text.trim_end_matches('/').to_owned()
    } else {
        text
    }
}

/// The authorization server at the server's own origin.
async fn provider_of_origin(requests: &Requests, server: &Url) -> Result<Provider, OAuthError> {
    let origin = server.origin().ascii_serialization();
    match Provider::discover(requests, &origin).await {
        Err(error @ OAuthError::NoMetadata { .. }) => {
            let provider = Provider::at_default_places(&origin).ok_or(error)?;
            requests.permits(&provider.token_endpoint)?;
            Ok(provider)
        }
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        text.parse().unwrap()
    }

    #[test]
    fn metadata_of_a_server_are_at_its_path_and_its_origin() {
        let found = |server| {
            places(&url(server))
                .iter()
                .map(Url::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            found("https://a.b:1/public/mcp?x=1#y"),
            [
                "https://a.b:1/.well-known/oauth-protected-resource/public/mcp",
                "https://a.b:1/.well-known/oauth-protected-resource"
            ]
        );
        assert_eq!(
            found("https://a.b/"),
            ["https://a.b/.well-known/oauth-protected-resource"]
        );
    }

    #[test]
    fn resource_is_the_server_or_above_it() {
        let server = url("https://a.b/public/mcp");
        for resource in [
            "https://a.b/public/mcp",
            "https://A.B/public/mcp/",
            "https://a.b/public",
            "https://a.b",
            "https://a.b:443/",
        ] {
            assert!(is_above(&url(resource), &server), "{resource}");
        }
        let others = [
            "https://a.b/pub",
            "https://a.b/public/mcp/x",
            "https://b.a/public/mcp",
            "http://a.b/public/mcp",
        ];
        for resource in others
            .into_iter()
            .chain(["https://a.b:8443/public/mcp", "https://a.b.c/public/mcp"])
        {
            assert!(!is_above(&url(resource), &server), "{resource}");
        }
    }

    #[test]
    fn canonical_form_has_no_needless_slash() {
        assert_eq!(resource_of(&url("https://A.b/")), "https://a.b");
        assert_eq!(resource_of(&url("https://a.b/mcp/")), "https://a.b/mcp/");
        assert_eq!(
            resource_of(&url("https://a.b/mcp?x=1#y")),
            "https://a.b/mcp?x=1"
        );
    }
}
