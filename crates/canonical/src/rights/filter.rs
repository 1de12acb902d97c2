//! Filters and rules of the configuration for items.

use std::sync::Arc;

use super::pattern::matches;
use crate::rights::pattern::{ItemKind, ItemPattern};
use crate::rights::spelling::Servers;

/// The items of one kind that a server offers or an endpoint shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemFilter {
    servers: Arc<Servers>,
    /// The server that the filter belongs to, if it is for one server.
    of: Option<String>,
    allow: Option<Vec<ItemPattern>>,
    deny: Vec<ItemPattern>,
}

impl ItemFilter {
    /// A filter with these patterns, in a configuration with these servers. Without `allow`,
    /// everything is permitted that `deny` does not match.
    pub fn new(
        servers: &Arc<Servers>,
        kind: ItemKind,
        allow: Option<&[String]>,
        deny: &[String],
    ) -> Self {
        let parse = |patterns: &[String]| {
            patterns
                .iter()
                .map(|text| ItemPattern::new(text, kind, servers))
                .collect()
        };
        Self {
            servers: Arc::clone(servers),
            of: None,
            allow: allow.map(parse),
            deny: parse(deny),
        }
    }

    /// Limits the filter to one server of the configuration. Its patterns then also match that
    /// server's own names, whatever form these have.
    #[must_use]
    pub fn limit_to_server(self, server: &str) -> Self {
        Self {
            of: Some(server.to_owned()),
            ..self
        }
    }

    /// Whether the filter permits the item `name` of `server`. An `allow` pattern counts only in
    /// its main reading, a `deny` pattern in every possible reading.
    #[must_use]
    pub fn permits(&self, server: &str, name: &str) -> bool {
        let is_own = |pattern: &ItemPattern| {
            self.of.as_deref() == Some(server) && matches(pattern.text(), name)
        };
        let is_allowed = |patterns: &Vec<ItemPattern>| {
            patterns
                .iter()
                .any(|one| is_own(one) || one.means(&self.servers, server, name))
        };
        self.allow.as_ref().is_none_or(is_allowed)
            && !self
                .deny
                .iter()
                .any(|one| one.may_mean(&self.servers, server, name))
    }

    /// Whether the filter forbids a URI of a server in this [folded](super::folded) form.
    #[must_use]
    pub fn denies_folded(&self, server: &str, uri: &str) -> bool {
        self.deny
            .iter()
            .any(|pattern| pattern.may_mean_folded(server, uri))
    }

    /// Whether it permits nothing at all.
    #[must_use]
    pub fn permits_nothing(&self) -> bool {
        self.allow.as_ref().is_some_and(Vec::is_empty)
            || self.deny.iter().any(ItemPattern::is_everything)
    }
}

/// The items that need an additional right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRule {
    servers: Arc<Servers>,
    pattern: ItemPattern,
}

impl ItemRule {
    /// A rule for the tools that `pattern` may mean.
    pub fn new(servers: &Arc<Servers>, pattern: &str) -> Self {
        Self {
            servers: Arc::clone(servers),
            pattern: ItemPattern::new(pattern, ItemKind::Names, servers),
        }
    }

    /// Whether the rule applies to the item `name` of `server`.
    pub fn is_about(&self, server: &str, name: &str) -> bool {
        self.pattern.may_mean(&self.servers, server, name)
    }
}
