//! The protection of endpoints, as far as clients must know it: required scopes, and the
//! authorization servers that issue tokens.

mod rates;
mod scopes;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fanlight_credentials::resource_url;
use fanlight_http::PublicUrl;
use tokio::sync::watch;

pub(crate) use rates::{Asked, Rates, Turn};
pub use rates::{
    CommonLimit, CommonLimits, NotTaken, RateDimensions, RateRule, RateState, RateUse, RequestMatch,
};
pub(crate) use scopes::{Operation, ScopePolicy};
pub use scopes::{ScopeSettings, ToolNames, ToolScopes};

/// The path prefix of protected resource metadata (RFC 9728, 3.1).
pub(crate) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// The configured protection of the endpoints.
#[derive(Clone, Debug, Default)]
pub struct ProtectionSettings {
    /// The issuers of tokens. Without one there is no metadata.
    pub authorization_servers: Vec<String>,
    /// The required scopes of operations.
    pub scopes: ScopeSettings,
    /// The scopes of endpoints with their own settings, by path.
    pub endpoints: Vec<(String, ScopeSettings)>,
    /// The rate limits.
    pub rates: Vec<RateRule>,
    /// The headers of clients that servers get, in lower case.
    pub forwarded: Vec<String>,
}

/// The protection of the endpoints.
#[derive(Debug, Default)]
pub(crate) struct Protection {
    pub(crate) authorization_servers: Vec<String>,
    scopes: ScopePolicy,
    endpoints: HashMap<String, ScopePolicy>,
    /// `None` without limits, so that nothing is counted.
    pub(crate) rates: Option<Rates>,
    /// The headers of clients that servers get, in lower case.
    pub(crate) forwarded: Vec<String>,
}

/// The protection, which can be replaced while clients are served.
#[derive(Clone, Debug, Default)]
pub struct LiveProtection(Arc<Live>);

#[derive(Debug, Default)]
struct Live {
    current: ArcSwap<Protection>,
    /// Reports each replacement to lasting work that earlier rules allowed.
    replaced: watch::Sender<()>,
    /// Counts shared limits; `None` if there are none.
    common: Option<Arc<dyn CommonLimits>>,
}

impl LiveProtection {
    /// The protection in `settings`.
    pub fn new(settings: ProtectionSettings) -> Self {
        Self::sharing(settings, None)
    }

    /// The protection in `settings`, with shared limits.
    pub fn sharing(settings: ProtectionSettings, common: Option<Arc<dyn CommonLimits>>) -> Self {
        Self(Arc::new(Live {
            current: ArcSwap::from_pointee(Protection::new(settings, None)),
            replaced: watch::Sender::default(),
            common,
        }))
    }

    /// The counter of shared limits.
    pub(crate) fn common(&self) -> Option<&dyn CommonLimits> {
        self.0.common.as_deref()
    }

    /// Applies `settings` to the next messages and to open streams.
    pub fn replace(&self, settings: ProtectionSettings) {
        let next = Protection::new(settings, self.load().rates.as_ref());
        self.0.current.store(Arc::new(next));
        self.0.replaced.send_replace(());
    }

    /// The current limits for operators, each with its `keys` heaviest users.
    pub fn limits(&self, keys: usize) -> Vec<RateState> {
        let protection = self.load();
        let rates = protection.rates.iter();
        rates.flat_map(|rates| rates.states(keys)).collect()
    }

    /// Reports each later replacement.
    pub(crate) fn replacements(&self) -> watch::Receiver<()> {
        self.0.replaced.subscribe()
    }

    /// The current protection.
    pub(crate) fn load(&self) -> impl std::ops::Deref<Target = Arc<Protection>> + use<> {
        self.0.current.load()
    }
}

impl Protection {
    /// The protection in `settings`. Limits that were in `before` keep their counts.
    fn new(settings: ProtectionSettings, before: Option<&Rates>) -> Self {
        let ProtectionSettings {
            authorization_servers,
            scopes,
            endpoints,
            rates,
            forwarded,
        } = settings;
        let endpoints = endpoints
            .iter()
            .map(|(path, scopes)| (path.clone(), ScopePolicy::new(scopes)))
            .collect();
        Self {
            authorization_servers,
            scopes: ScopePolicy::new(&scopes),
            endpoints,
            rates: Rates::new(rates, before),
            forwarded,
        }
    }

    /// The scopes of the endpoint at `path`.
    pub(crate) fn scopes_at(&self, path: &str) -> &ScopePolicy {
        self.endpoints.get(path).unwrap_or(&self.scopes)
    }

    /// The URL of the metadata of the resource at `path`, on a listener with this public URL;
    /// `None` if it has none. Never made from a request's content.
    pub(crate) fn metadata_url(
        &self,
        public_url: Option<&PublicUrl>,
        path: &str,
    ) -> Option<String> {
        let url = public_url.filter(|_| !self.authorization_servers.is_empty())?;
        // RFC 9728, 3.1: between the host and the path, which may begin with a proxy's prefix.
        let (origin, prefix) = url.parts();
        Some(resource_url(&format!("{origin}{WELL_KNOWN}{prefix}"), path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_between_the_host_and_the_path() {
        let authorization_servers = vec!["https://id.example.com".into()];
        let protection = Protection::new(
            ProtectionSettings {
                authorization_servers,
                ..ProtectionSettings::default()
            },
            None,
        );
        let url = PublicUrl::parse("https://a.example:8443/");
        for (path, metadata) in [
            (
                "/mcp",
                "https://a.example:8443/.well-known/oauth-protected-resource/mcp",
            ),
            (
                "/mcp/x",
                "https://a.example:8443/.well-known/oauth-protected-resource/mcp/x",
            ),
            (
                "/",
                "https://a.example:8443/.well-known/oauth-protected-resource",
            ),
        ] {
            assert_eq!(
                protection.metadata_url(url.as_ref(), path).as_deref(),
                Some(metadata)
            );
        }
        assert_eq!(protection.metadata_url(None, "/mcp"), None);
        assert_eq!(
            Protection::default().metadata_url(url.as_ref(), "/mcp"),
            None
        );
    }
}
