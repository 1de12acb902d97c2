//! Filters and rules of the configuration for items, and whether their patterns match anything. A
//! pattern matches pairs of a server and its own name for an item.

use std::sync::Arc;

use super::spelling::Servers;
use super::uri_form::folded;

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

/// The kind of items that a pattern is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// Tools or prompts, which have names.
    Names,
    /// Resources, templates and skills, which have URIs.
    Uris,
}

/// A pattern and its main reading. Patterns that permit use only that reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ItemPattern {
    text: String,
    kind: ItemKind,
    reading: Reading,
}

/// The way in which a pattern names the server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reading {
    /// The pattern names no server; it matches own names of every server.
    Own,
    /// The server's name before the first `/`.
    Server { server: String, name: String },
    /// The server's prefix.
    Prefixed,
}

impl ItemPattern {
    pub(crate) fn new(text: &str, kind: ItemKind, servers: &Servers) -> Self {
        let reading = match (text.split_once('/'), kind) {
            (Some((server, name)), _)
                if kind == ItemKind::Names || names_a_server(server, name) =>
            {
                Reading::Server {
                    server: server.to_owned(),
                    name: name.to_owned(),
                }
            }
            (_, ItemKind::Names) if servers.has_prefix(text) => Reading::Prefixed,
            _ => Reading::Own,
        };
        Self {
            text: text.to_owned(),
            kind,
            reading,
        }
    }

    /// Whether the pattern matches an item in its main reading. Used by patterns that permit.
    pub(crate) fn means(&self, servers: &Servers, server: &str, name: &str) -> bool {
        let is_match = |name: &str| matches(&self.text, name);
        if self.kind == ItemKind::Uris {
            return self.means_uri(server, name, is_match);
        }
        match &self.reading {
            Reading::Own => servers.bare_spellings(server, name, true).any(is_match),
            Reading::Prefixed => servers
                .prefixed_spellings(server, name, true)
                .any(|spelling| servers.any_matches(&spelling, server, name, is_match)),
            Reading::Server {
                server: of,
                name: pattern,
            } => {
                matches(of, server)
                    && servers
                        .bare_spellings(server, name, true)
                        .any(|name| matches(pattern, name))
            }
        }
    }

    fn means_uri(&self, server: &str, uri: &str, is_match: impl Fn(&str) -> bool) -> bool {
        match &self.reading {
            Reading::Server { server: of, name } => matches(of, server) && matches(name, uri),
            Reading::Own | Reading::Prefixed => is_match(uri),
        }
    }

    /// Whether the pattern may match an item in any reading. Used by patterns that forbid or
    /// require more scopes.
    pub(crate) fn may_mean(&self, servers: &Servers, server: &str, name: &str) -> bool {
        let is_match = |name: &str| matches(&self.text, name);
        if is_match(name)
            || is_match(&format!("{server}/{name}"))
            || self.means(servers, server, name)
        {
            return true;
        }
        let is_any = |spelling: &str| servers.any_matches(spelling, server, name, is_match);
        self.kind == ItemKind::Names
            && (servers.bare_spellings(server, name, false).any(is_any)
                || servers
                    .prefixed_spellings(server, name, false)
                    .any(|spelling| is_any(&spelling)))
    }

    /// Whether the pattern, too folded, may match a [folded](folded) URI.
    pub(crate) fn may_mean_folded(&self, server: &str, uri: &str) -> bool {
        let pattern = folded(&self.text);
        let server = server.to_lowercase();
        let names_server = || match pattern.split_once('/') {
            Some((of, rest)) => matches(of, &server) && matches(rest, uri),
            None => false,
        };
        matches(&pattern, uri) || matches(&pattern, &format!("{server}/{uri}")) || names_server()
    }

    /// Whether the pattern, in its main reading, can match any possible item of a server.
    pub(crate) fn concerns(&self, servers: &Servers, server: &str) -> bool {
        match &self.reading {
            Reading::Own => true,
            Reading::Server { server: of, .. } => matches(of, server),
            Reading::Prefixed => servers.may_begin_with_prefix(server, &self.text),
        }
    }

    /// Whether the pattern names one or more servers.
    pub(crate) fn names_a_server(&self) -> bool {
        matches!(self.reading, Reading::Server { .. })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether it matches everything.
    pub(crate) fn is_everything(&self) -> bool {
        matches!(self.text.as_str(), "*" | "*/*")
    }
}

/// Whether the text before a `/` in a URI pattern is a server's name, rather than a scheme or a
/// part of a URI.
fn names_a_server(before: &str, after: &str) -> bool {
    !before.contains(':') && !before.is_empty() && (!before.contains('*') || after.contains(':'))
}

/// Whether a pattern with `*` matches a whole name. Takes at most the product of both lengths.
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(head) else {
        return false;
    };
    // Finding each part as early as possible is best, except for the last one, which must end the
    // name.
    let mut rest = rest;
    while let Some((part, after)) = rest.split_once('*') {
        let Some(at) = name.find(part) else {
            return false;
        };
        name = name.get(at + part.len()..).unwrap_or_default();
        rest = after;
    }
    name.ends_with(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name) in [
            ("read", "read"),
            ("*", ""),
            ("*", "anything"),
            ("read_*", "read_"),
            ("*_file", "read_file"),
            ("a*b*c", "a-b-b-c"),
            ("*b*b*", "bb"),
            ("**", "x"),
            ("é*", "éa"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("read", "read_file"),
            ("read", "Read"),
            ("", "x"),
            ("*_file", "read_files"),
            ("a*a", "a"),
            ("*b*b*", "b"),
            ("ab*bc", "abc"),
        ] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }
}
