//! Patterns of a configuration, which match pairs of a server and its own name.

use crate::glob::matches;
use crate::spelling::Servers;

/// What kind of items a pattern is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemKind {
    /// Tools or prompts, which have names.
    Names,
    /// Resources, templates and skills, which have URIs.
    Uris,
}

/// A pattern, with the one way in which it is read where it opens something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ItemPattern {
    text: String,
    kind: ItemKind,
    reading: Reading,
}

/// What a pattern says of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Reading {
    /// Nothing: it matches own names of every server.
    Own,
    /// Its name, before the first `/`.
    Server { server: String, name: String },
    /// Its prefix.
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

    /// Whether it is about an item in the one way in which it is read: what it opens.
    pub(crate) fn means(&self, servers: &Servers, server: &str, name: &str) -> bool {
        let is_match = |name: &str| matches(&self.text, name);
        if self.kind == ItemKind::Uris {
            return self.means_uri(server, name, is_match);
        }
        match &self.reading {
            Reading::Own => servers.bare(server, name, true).any(is_match),
            Reading::Prefixed => servers
                .prefixed(server, name, true)
                .any(|spelling| servers.any_matches(&spelling, is_match)),
            Reading::Server {
                server: of,
                name: pattern,
            } => {
                matches(of, server)
                    && servers
                        .bare(server, name, true)
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

    /// Whether it can be read as being about an item: what it forbids, or asks more scopes for.
    pub(crate) fn may_mean(&self, servers: &Servers, server: &str, name: &str) -> bool {
        let is_match = |name: &str| matches(&self.text, name);
        if is_match(name)
            || is_match(&format!("{server}/{name}"))
            || self.means(servers, server, name)
        {
            return true;
        }
        let is_any = |spelling: &str| servers.any_matches(spelling, is_match);
        self.kind == ItemKind::Names
            && (servers.bare(server, name, false).any(is_any)
                || servers
                    .prefixed(server, name, false)
                    .any(|spelling| is_any(&spelling)))
    }

    /// Whether it can be read as being about a URI that is given in lower case, ignoring the case of its own letters.
    pub(crate) fn may_mean_lower_case(&self, server: &str, uri: &str) -> bool {
        let pattern = self.text.to_lowercase();
        let server = server.to_lowercase();
        let names_server = || match pattern.split_once('/') {
            Some((of, rest)) => matches(of, &server) && matches(rest, uri),
            None => false,
        };
        matches(&pattern, uri) || matches(&pattern, &format!("{server}/{uri}")) || names_server()
    }

    /// Whether it can be about anything of a server, whatever that has, in the way in which it is read.
    pub(crate) fn concerns(&self, servers: &Servers, server: &str) -> bool {
        match &self.reading {
            Reading::Own => true,
            Reading::Server { server: of, .. } => matches(of, server),
            Reading::Prefixed => servers.may_begin_with_prefix(server, &self.text),
        }
    }

    /// Whether it names a server, or several.
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

/// Whether text before a `/` in a pattern of URIs is a server's name: it is no scheme, nor any text in a URI.
fn names_a_server(before: &str, after: &str) -> bool {
    !before.contains(':') && !before.is_empty() && (!before.contains('*') || after.contains(':'))
}
