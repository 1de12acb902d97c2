//! Patterns of a configuration, which match pairs of a server and its own name for an item.

use super::spelling::Servers;
use super::uri_form::folded;

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
