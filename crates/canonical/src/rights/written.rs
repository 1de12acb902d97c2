//! Patterns as they are written, to find out whether they match anything.

use std::sync::Arc;

use super::pattern::matches;
use crate::rights::pattern::{ItemKind, ItemPattern};
use crate::rights::spelling::Servers;

/// A pattern of the configuration.
#[derive(Clone, Debug)]
pub struct WrittenPattern {
    servers: Arc<Servers>,
    pattern: ItemPattern,
    /// The server that the pattern belongs to, if it is for one server.
    of: Option<String>,
    opens: bool,
}

impl WrittenPattern {
    /// A pattern in a configuration with these servers. With `opens` it permits something;
    /// otherwise it forbids or requires more.
    pub fn new(servers: &Arc<Servers>, kind: ItemKind, text: &str, opens: bool) -> Self {
        Self {
            servers: Arc::clone(servers),
            pattern: ItemPattern::new(text, kind, servers),
            of: None,
            opens,
        }
    }

    /// Limits the pattern to the server whose entry contains it.
    #[must_use]
    pub fn limit_to_server(self, server: &str) -> Self {
        Self {
            of: Some(server.to_owned()),
            ..self
        }
    }

    /// The text.
    pub fn text(&self) -> &str {
        self.pattern.text()
    }

    /// Whether the pattern, in its main reading, can match any possible item of `server`.
    #[must_use]
    pub fn concerns(&self, server: &str) -> bool {
        match &self.of {
            Some(of) => of == server,
            None => self.pattern.concerns(&self.servers, server),
        }
    }

    /// Whether the pattern names its server.
    pub fn names_a_server(&self) -> bool {
        self.of.is_some() || self.pattern.names_a_server()
    }

    /// Whether the pattern matches the item `name` of `server`.
    pub fn is_about(&self, server: &str, name: &str) -> bool {
        let is_own = self.of.as_deref() == Some(server) && matches(self.text(), name);
        let is_meant = if self.opens {
            self.pattern.means(&self.servers, server, name)
        } else {
            self.pattern.may_mean(&self.servers, server, name)
        };
        is_own || is_meant
    }

    /// The spellings of an item, the usual one first, for suggestions in messages.
    pub fn spellings<'a>(
        &'a self,
        server: &'a str,
        name: &'a str,
    ) -> impl Iterator<Item = String> + 'a {
        let with_server = format!("{server}/{name}");
        std::iter::once(name.to_owned())
            .chain([with_server])
            .chain(self.servers.prefixed_spellings(server, name, true))
    }
}
