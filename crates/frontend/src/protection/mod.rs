//! What protects the endpoints, as clients have to know it: the scopes of operations, and which authorization servers
//! give tokens.

mod scopes;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fanlight_identity::resource_url;

pub(crate) use self::scopes::{Operation, ScopePolicy};
pub use self::scopes::{ScopeSettings, ToolNames, ToolScopes};

/// The path prefix of protected resource metadata (RFC 9728, 3.1).
pub(crate) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// What protects the endpoints, as configured.
#[derive(Clone, Debug, Default)]
pub struct ProtectionSettings {
    /// The URL under which clients reach the listener, such as `https://mcp.example.com`, without the path of an
    /// endpoint.
    pub public_url: Option<String>,
    /// The issuers of tokens. Without one, there is no metadata.
    pub authorization_servers: Vec<String>,
    /// The scopes that operations need.
    pub scopes: ScopeSettings,
    /// Those of endpoints that have their own, by path.
    pub endpoints: Vec<(String, ScopeSettings)>,
}

/// What protects the endpoints.
#[derive(Debug, Default)]
pub(crate) struct Protection {
    public_url: Option<PublicUrl>,
    authorization_servers: Vec<String>,
    scopes: ScopePolicy,
    endpoints: HashMap<String, ScopePolicy>,
}

/// The protection that can be replaced while clients are served.
#[derive(Clone, Debug, Default)]
pub struct LiveProtection(Arc<ArcSwap<Protection>>);

/// A URL under which clients reach the listener.
#[derive(Debug)]
struct PublicUrl {
    /// Without a slash at its end.
    whole: String,
    /// The part of it before its path.
    origin: String,
    /// Its path, without a slash at its end; mostly empty. A proxy in front may or may not remove it.
    path: String,
}

impl LiveProtection {
    /// That of `settings`.
    #[must_use]
    pub fn new(settings: ProtectionSettings) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(Protection::new(settings))))
    }

    /// Has `settings` take effect from the next message on.
    pub fn replace(&self, settings: ProtectionSettings) {
        self.0.store(Arc::new(Protection::new(settings)));
    }

    /// What is in force now.
    pub(crate) fn load(&self) -> impl std::ops::Deref<Target = Arc<Protection>> + use<> {
        self.0.load()
    }
}

impl Protection {
    fn new(settings: ProtectionSettings) -> Self {
        let ProtectionSettings { public_url, authorization_servers, scopes, endpoints } = settings;
        let endpoints = endpoints.iter().map(|(path, scopes)| (path.clone(), ScopePolicy::new(scopes))).collect();
        let public_url = public_url.as_deref().map(PublicUrl::new);
        Self { public_url, authorization_servers, scopes: ScopePolicy::new(&scopes), endpoints }
    }

    /// The scopes of the endpoint at `path`.
    pub(crate) fn scopes_at(&self, path: &str) -> &ScopePolicy {
        self.endpoints.get(path).unwrap_or(&self.scopes)
    }

    /// The authorization servers; empty if the resource has no metadata.
    pub(crate) fn authorization_servers(&self) -> &[String] {
        if self.public_url.is_some() { &self.authorization_servers } else { &[] }
    }

    /// The URL of what is served at `path`, if it is known. Never made from what a request says.
    pub(crate) fn url_of(&self, path: &str) -> Option<String> {
        self.public_url.as_ref().map(|url| resource_url(&url.whole, path))
    }

    /// The URL of the metadata of the resource at `path`; `None` if it has none.
    pub(crate) fn metadata_url(&self, path: &str) -> Option<String> {
        let url = self.public_url.as_ref().filter(|_| !self.authorization_servers.is_empty())?;
        Some(resource_url(&format!("{}{WELL_KNOWN}{}", url.origin, url.path), path))
    }

    /// The paths whose metadata a request at [`WELL_KNOWN`] followed by `suffix` may ask for: with the path of the
    /// public URL, and without.
    pub(crate) fn resource_paths<'a>(&self, suffix: &'a str) -> impl Iterator<Item = &'a str> {
        let prefix = self.public_url.as_ref().map_or("", |url| url.path.as_str());
        let rest = suffix.strip_prefix(prefix).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let both = [rest.filter(|_| !prefix.is_empty()), Some(suffix)];
        both.into_iter().flatten()
    }
}

impl PublicUrl {
    fn new(url: &str) -> Self {
        let whole = url.trim_end_matches('/').to_owned();
        let after_scheme = whole.find("://").map_or(0, |at| at + 3);
        let host_end = whole.get(after_scheme..).and_then(|rest| rest.find('/')).map_or(whole.len(), |at| after_scheme + at);
        let (origin, path) = whole.split_at(host_end);
        let (origin, path) = (origin.to_owned(), path.to_owned());
        Self { whole, origin, path }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protection(url: &str) -> Protection {
        Protection::new(ProtectionSettings {
            public_url: Some(url.into()),
            authorization_servers: vec!["https://id.example.com".into()],
            ..ProtectionSettings::default()
        })
    }

    #[test]
    fn metadata_is_between_the_host_and_the_path() {
        for (public, path, resource, metadata) in [
            ("https://a.example", "/mcp", "https://a.example/mcp", "https://a.example/.well-known/oauth-protected-resource/mcp"),
            ("https://a.example/", "/mcp", "https://a.example/mcp", "https://a.example/.well-known/oauth-protected-resource/mcp"),
            ("https://a.example:8443", "/", "https://a.example:8443", "https://a.example:8443/.well-known/oauth-protected-resource"),
            ("https://a.example/tools", "/mcp/x", "https://a.example/tools/mcp/x", "https://a.example/.well-known/oauth-protected-resource/tools/mcp/x"),
        ] {
            let protection = protection(public);
            assert_eq!(protection.url_of(path).as_deref(), Some(resource));
            assert_eq!(protection.metadata_url(path).as_deref(), Some(metadata));
        }
        let keys_alone = Protection::new(ProtectionSettings { public_url: Some("https://a.example".into()), ..ProtectionSettings::default() });
        assert_eq!(keys_alone.metadata_url("/mcp"), None);
    }

    #[test]
    fn proxy_may_remove_the_path_of_the_public_url() {
        let paths = |url, suffix: &'static str| protection(url).resource_paths(suffix).collect::<Vec<_>>();
        assert_eq!(paths("https://a.example", "/mcp"), ["/mcp"]);
        assert_eq!(paths("https://a.example/tools", "/tools/mcp"), ["/mcp", "/tools/mcp"]);
        assert_eq!(paths("https://a.example/tools", "/mcp"), ["/mcp"]);
        assert_eq!(paths("https://a.example/tools", "/toolsmith/mcp"), ["/toolsmith/mcp"]);
        assert_eq!(paths("https://a.example/tools", "/tools"), ["", "/tools"]);
    }
}
