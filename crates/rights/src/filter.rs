//! Rules of the configuration about items.

use std::sync::Arc;

use crate::glob::matches;
use crate::pattern::{ItemKind, ItemPattern};
use crate::spelling::Servers;

/// What a server offers, or an endpoint shows, of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemFilter {
    servers: Arc<Servers>,
    /// The server that it is about, where that is given.
    of: Option<String>,
    allow: Option<Vec<ItemPattern>>,
    deny: Vec<ItemPattern>,
}

impl ItemFilter {
    /// The filter with these patterns, in a configuration with these servers. `None` as `allow` permits all that `deny` does
    /// not match.
    #[must_use]
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

    /// The filter that the configuration gives one server: its patterns match that server's own names, too, whatever these
    /// look like.
    #[must_use]
    pub fn of_server(self, server: &str) -> Self {
        Self {
            of: Some(server.to_owned()),
            ..self
        }
    }

    /// Whether it permits what `server` calls `name`. A pattern of `allow` counts only in the way in which it is read, one of
    /// `deny` in every way in which it can be.
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

    /// Whether it forbids the URI of a server, given in lower case, if the case of its own letters is ignored.
    #[must_use]
    pub fn denies_lower_case(&self, server: &str, uri: &str) -> bool {
        self.deny
            .iter()
            .any(|pattern| pattern.may_mean_lower_case(server, uri))
    }

    /// Whether it permits nothing at all.
    #[must_use]
    pub fn permits_nothing(&self) -> bool {
        self.allow.as_ref().is_some_and(Vec::is_empty)
            || self.deny.iter().any(ItemPattern::is_everything)
    }
}

/// The items that something more is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemRule {
    servers: Arc<Servers>,
    pattern: ItemPattern,
}

impl ItemRule {
    /// The tools that `pattern` can be read as being about.
    #[must_use]
    pub fn new(servers: &Arc<Servers>, pattern: &str) -> Self {
        Self {
            servers: Arc::clone(servers),
            pattern: ItemPattern::new(pattern, ItemKind::Names, servers),
        }
    }

    /// Whether it is about what `server` calls `name`.
    #[must_use]
    pub fn is_about(&self, server: &str, name: &str) -> bool {
        self.pattern.may_mean(&self.servers, server, name)
    }
}
