//! The naming policy: what a backend's tools, prompts and resources are called by clients.
//!
//! With one backend nothing is renamed. With several, tools and prompts become
//! `<server>__<name>`, unless the configuration gives another prefix. URIs stay; one that an earlier
//! backend claims as well is reached under an alias (`alias`).

use fanlight_protocol::json::{Json, quote};

use super::alias;

/// The longest tool name that common clients accept, in characters.
const MAX_CLIENT_NAME: usize = 64;

/// How one backend's names are translated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    prefix: String,
    /// Names the backend in aliases of URIs.
    alias_label: String,
}

/// The namings of backends, given by name and configured prefix, in the same order.
#[must_use]
pub fn namings(backends: &[(&str, Option<&str>)]) -> Vec<Naming> {
    let mut labels: Vec<String> = Vec::with_capacity(backends.len());
    for (name, _) in backends {
        let plain = label(name);
        // Names that differ only in characters that labels lack get different labels all the same.
        let unique = (1..).map(|n| if n == 1 { plain.clone() } else { format!("{plain}-{n}") });
        labels.extend(unique.into_iter().find(|label| !labels.contains(label)));
    }
    let several = backends.len() > 1;
    let alias_labels = alias::labels(backends.iter().map(|(name, _)| *name));
    let prefix = |configured: Option<&str>, label: &str| match configured {
        Some(prefix) => prefix.to_owned(),
        None if several => format!("{label}__"),
        None => String::new(),
    };
    backends
        .iter()
        .zip(labels.iter().zip(alias_labels))
        .map(|((_, configured), (label, alias_label))| Naming { prefix: prefix(*configured, label), alias_label })
        .collect()
}

/// A server's name in the characters that tool names may have for common clients.
fn label(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect()
}

impl Naming {
    /// Whether names pass unchanged.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.prefix.is_empty()
    }

    /// The name that clients see for the backend's `original`, a JSON string, whose escapes are kept.
    #[must_use]
    pub fn visible(&self, original: &Json) -> Json {
        match original.as_text().strip_prefix('"') {
            Some(rest) if !self.prefix.is_empty() => {
                let mut text = quote(&self.prefix);
                text.pop();
                text.extend_from_slice(rest.as_bytes());
                Json::parse(text.into(), 1).unwrap_or_else(|_| original.clone())
            }
            _ => original.clone(),
        }
    }

    /// The backend's own name for what clients call `visible`, if that has this backend's prefix.
    #[must_use]
    pub fn original<'a>(&self, visible: &'a str) -> Option<&'a str> {
        visible.strip_prefix(&self.prefix).filter(|original| !original.is_empty())
    }

    /// The length of the prefix in bytes.
    #[must_use]
    pub fn prefix_len(&self) -> usize {
        self.prefix.len()
    }

    /// The URI under which a resource is reached whose own URI another backend claims.
    #[must_use]
    pub fn alias(&self, uri: &str) -> String {
        alias::of(&self.alias_label, uri)
    }

    /// The original URI of an alias that this naming has made.
    #[must_use]
    pub fn unalias(&self, uri: &str) -> Option<String> {
        alias::original(&self.alias_label, uri)
    }
}

/// Why common clients would reject a tool's name; `None` if they would not.
pub(crate) fn client_objection(name: &str) -> Option<String> {
    if name.chars().count() > MAX_CLIENT_NAME {
        return Some(format!("{name:?} is longer than {MAX_CLIENT_NAME} characters"));
    }
    let odd = name.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')));
    odd.map(|odd| format!("{name:?} has {odd:?}; common clients take only letters, digits, `_` and `-`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_backend_are_unchanged() {
        let naming = &namings(&[("a", None)])[0];
        assert!(naming.is_identity());
        assert_eq!(naming.visible(&Json::literal(r#""\u0041""#)).as_text(), r#""\u0041""#);
    }

    #[test]
    fn names_of_several_backends_get_prefixes() {
        let all = namings(&[("my server", None), ("my_server", None), ("c", Some("")), ("d", Some("x-"))]);
        let names: Vec<_> =
            all.iter().map(|n| n.visible(&Json::literal(r#""t\u0041""#)).as_text().to_owned()).collect();
        assert_eq!(names, [r#""my_server__t\u0041""#, r#""my_server-2__t\u0041""#, r#""t\u0041""#, r#""x-t\u0041""#]);
        assert_eq!(all[3].original("x-t"), Some("t"));
        assert_eq!(all[3].original("x-"), None);
    }

    #[test]
    fn client_objection_names_what_clients_reject() {
        assert!(client_objection("a_B-9").is_none());
        assert!(client_objection("a.b").is_some());
        assert!(client_objection(&"a".repeat(65)).is_some());
    }
}
