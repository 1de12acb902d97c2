//! What protects the endpoints, as clients have to know it: the scopes of operations, and which authorization servers
//! give tokens.

mod common;
mod rates;
mod scopes;
mod turn;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fanlight_credentials::resource_url;
use fanlight_http_edge::PublicUrl;
use tokio::sync::watch;

pub use self::common::{CommonLimit, CommonLimits, NotTaken, WithoutOthers};
pub(crate) use self::rates::{Asked, Rates};
pub use self::rates::{RateDimensions, RateRule, RateState, RateUse};
pub(crate) use self::scopes::{Operation, ScopePolicy};
pub use self::scopes::{ScopeSettings, ToolNames, ToolScopes};
pub(crate) use self::turn::Turn;

/// The path prefix of protected resource metadata (RFC 9728, 3.1).
pub(crate) const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// What protects the endpoints, as configured.
#[derive(Clone, Debug, Default)]
pub struct ProtectionSettings {
    /// The issuers of tokens. Without one, there is no metadata.
    pub authorization_servers: Vec<String>,
    /// The scopes that operations need.
    pub scopes: ScopeSettings,
    /// Those of endpoints that have their own, by path.
    pub endpoints: Vec<(String, ScopeSettings)>,
    /// How often clients may ask.
    pub rates: Vec<RateRule>,
}

/// What protects the endpoints.
#[derive(Debug, Default)]
pub(crate) struct Protection {
    authorization_servers: Vec<String>,
    scopes: ScopePolicy,
    endpoints: HashMap<String, ScopePolicy>,
    rates: Rates,
}

/// The protection that can be replaced while clients are served.
#[derive(Clone, Debug, Default)]
pub struct LiveProtection(Arc<Live>);

#[derive(Debug, Default)]
struct Live {
    current: ArcSwap<Protection>,
    /// Told of each replacement, for what lasts: it was decided about by earlier rules.
    replaced: watch::Sender<()>,
    /// Counts limits together with other processes; `None` if there are none.
    common: Option<Arc<dyn CommonLimits>>,
}

impl LiveProtection {
    /// That of `settings`.
    #[must_use]
    pub fn new(settings: ProtectionSettings) -> Self {
        Self::sharing(settings, None)
    }

    /// That of `settings`, with limits that are counted together with other processes.
    #[must_use]
    pub fn sharing(settings: ProtectionSettings, common: Option<Arc<dyn CommonLimits>>) -> Self {
        let current = ArcSwap::from_pointee(Protection::new(settings, &Rates::default()));
        Self(Arc::new(Live {
            current,
            replaced: watch::Sender::default(),
            common,
        }))
    }

    /// What counts limits together with other processes.
    pub(crate) fn common(&self) -> Option<&dyn CommonLimits> {
        self.0.common.as_deref()
    }

    /// Has `settings` take effect: for messages from the next on, and for streams that are open.
    pub fn replace(&self, settings: ProtectionSettings) {
        let next = Protection::new(settings, &self.load().rates);
        self.0.current.store(Arc::new(next));
        self.0.replaced.send_replace(());
    }

    /// What operators see of the limits in force, with so many of those who have used most.
    #[must_use]
    pub fn limits(&self, keys: usize) -> Vec<RateState> {
        self.load().rates.states(keys)
    }

    /// Told of each replacement from now on.
    pub(crate) fn replacements(&self) -> watch::Receiver<()> {
        self.0.replaced.subscribe()
    }

    /// What is in force now.
    pub(crate) fn load(&self) -> impl std::ops::Deref<Target = Arc<Protection>> + use<> {
        self.0.current.load()
    }
}

impl Protection {
    /// That of `settings`, after other limits.
    fn new(settings: ProtectionSettings, before: &Rates) -> Self {
        let ProtectionSettings {
            authorization_servers,
            scopes,
            endpoints,
            rates,
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
        }
    }

    /// How often clients may ask.
    pub(crate) fn rates(&self) -> &Rates {
        &self.rates
    }

    /// The scopes of the endpoint at `path`.
    pub(crate) fn scopes_at(&self, path: &str) -> &ScopePolicy {
        self.endpoints.get(path).unwrap_or(&self.scopes)
    }

    /// The authorization servers; empty if there is no metadata.
    pub(crate) fn authorization_servers(&self) -> &[String] {
        &self.authorization_servers
    }

    /// The URL of the metadata of the resource at `path` of a listener with this URL; `None` if it has none. Never made from
    /// what a request says.
    pub(crate) fn metadata_url(
        &self,
        public_url: Option<&PublicUrl>,
        path: &str,
    ) -> Option<String> {
        let url = public_url.filter(|_| !self.authorization_servers.is_empty())?;
        Some(resource_url(&format!("{url}{WELL_KNOWN}"), path))
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
            &Rates::default(),
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
