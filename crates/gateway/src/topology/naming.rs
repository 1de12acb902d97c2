//! The naming policy: what a backend's tools, prompts and resources are called by clients.
//!
//! With one backend nothing is renamed. With several, tools and prompts become
//! `<server>__<name>`, unless the configuration gives another prefix. The configuration may give single tools and
//! prompts other names, and bound the length of all. URIs stay; one that an earlier
//! backend claims as well is reached under an alias (`alias`).

use std::collections::HashMap;

use fanlight_canonical::Rewritten;
use fanlight_protocol::json::{Json, quote};
use fanlight_rights::{label, shortened};

use super::alias;

/// The longest tool name that common clients accept, in characters.
const MAX_CLIENT_NAME: usize = 64;

/// How names are made of those that servers give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamingPolicy {
    /// Whether names have a prefix also where there is only one server.
    pub always: bool,
    /// What stands between the name of a server and that of its tool.
    pub separator: String,
    /// The most characters of a name that clients see; longer ones are shortened.
    pub max_length: Option<usize>,
    /// All servers of the configuration in its order, with their prefixes. Those that are switched off count, too, so that
    /// names stay when a server is; any that are missing here come after them.
    pub servers: Vec<NamedServer>,
}

/// A server of the configuration, as far as names depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedServer {
    /// Its name.
    pub name: String,
    /// Its prefix, if the configuration gives it one.
    pub prefix: Option<String>,
}

impl Default for NamingPolicy {
    fn default() -> Self {
        Self {
            always: false,
            separator: "__".to_owned(),
            max_length: None,
            servers: Vec::new(),
        }
    }
}

/// How one backend's names are translated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    prefix: String,
    /// Names the backend in aliases of URIs.
    alias_label: String,
    renames: Renames,
    max_length: Option<usize>,
}

/// The names that the configuration gives single tools and prompts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Renames {
    by_original: HashMap<String, String>,
    by_new: HashMap<String, String>,
}

/// The name of a tool or prompt for clients.
pub(crate) struct VisibleName {
    /// A JSON string.
    pub(crate) key: Json,
    /// Whether the configuration has changed more of it than its prefix.
    pub(crate) rewritten: Rewritten,
}

impl VisibleName {
    pub(crate) fn into_parts(self) -> (Json, Rewritten) {
        (self.key, self.rewritten)
    }
}

/// The namings of backends, given by name and configured prefix, in the same order.
#[must_use]
pub fn namings(backends: &[(&str, Option<&str>)], policy: &NamingPolicy) -> Vec<Naming> {
    let mut labels: Vec<String> = Vec::with_capacity(backends.len());
    for (name, _) in backends {
        let plain = label(name);
        // Names that differ only in characters that labels lack get different labels all the same.
        let unique = (1..).map(|n| {
            if n == 1 {
                plain.clone()
            } else {
                format!("{plain}-{n}")
            }
        });
        labels.extend(unique.into_iter().find(|label| !labels.contains(label)));
    }
    let has_default = policy.always || backends.len() > 1;
    let alias_labels = alias::labels(backends.iter().map(|(name, _)| *name));
    let prefix = |configured: Option<&str>, label: &str| match configured {
        Some(prefix) => prefix.to_owned(),
        None if has_default => format!("{label}{}", policy.separator),
        None => String::new(),
    };
    let naming = |configured: Option<&str>, label: &str, alias_label: String| Naming {
        prefix: prefix(configured, label),
        alias_label,
        renames: Renames::default(),
        max_length: policy.max_length,
    };
    let labelled = labels.iter().zip(alias_labels);
    backends
        .iter()
        .zip(labelled)
        .map(|((_, prefix), (label, alias))| naming(*prefix, label, alias))
        .collect()
}

/// The namings of those `backends` that run, in the same order, among all servers of the configuration.
pub(super) fn running(backends: &[(&str, Option<&str>)], policy: &NamingPolicy) -> Vec<Naming> {
    let is_missing = |name: &str| policy.servers.iter().all(|server| server.name != name);
    let configured = policy
        .servers
        .iter()
        .map(|server| (server.name.as_str(), server.prefix.as_deref()));
    let missing = backends
        .iter()
        .copied()
        .filter(|(name, _)| is_missing(name));
    let all: Vec<_> = configured.chain(missing).collect();
    let named: HashMap<_, _> = all
        .iter()
        .map(|(name, _)| *name)
        .zip(namings(&all, policy))
        .collect();
    backends
        .iter()
        .filter_map(|(name, _)| named.get(name).cloned())
        .collect()
}

impl Naming {
    /// With other names for single tools and prompts, given as pairs of the old and the new one.
    #[must_use]
    pub fn with_renames(mut self, renames: &[(String, String)]) -> Self {
        let renames = || {
            renames
                .iter()
                .filter(|(original, new)| original != new)
                .cloned()
        };
        self.renames.by_original = renames().collect();
        self.renames.by_new = renames().map(|(original, new)| (new, original)).collect();
        self
    }

    /// Whether names pass unchanged.
    #[must_use]
    pub fn is_identity(&self) -> bool {
        self.prefix.is_empty() && self.max_length.is_none() && !self.renames_any()
    }

    /// Whether single tools or prompts have other names.
    #[must_use]
    pub fn renames_any(&self) -> bool {
        !self.renames.by_original.is_empty()
    }

    /// The tools and prompts with other names, by original name and in alphabetical order.
    pub(crate) fn renamed(&self) -> Vec<&str> {
        let mut names: Vec<_> = self
            .renames
            .by_original
            .keys()
            .map(String::as_str)
            .collect();
        names.sort_unstable();
        names
    }

    /// The name of `original` without a prefix, by which apps call it.
    #[must_use]
    pub fn bare<'a>(&'a self, original: &'a str) -> &'a str {
        self.renames
            .by_original
            .get(original)
            .map_or(original, String::as_str)
    }

    /// The backend's name of the item that clients call `original`, if it is another one.
    pub(crate) fn renamed_to(&self, original: &str) -> Option<&str> {
        let renamed = self.renames.by_new.get(original).map(String::as_str);
        renamed.filter(|_| !self.renames.by_original.contains_key(original))
    }

    /// The name that clients see for the backend's `original`, a JSON string, whose escapes are kept.
    #[must_use]
    pub fn visible(&self, original: &Json) -> Json {
        self.rewritten(original).key
    }

    /// The name that clients see for the backend's `original`, a JSON string, whose escapes are kept.
    pub(crate) fn rewritten(&self, original: &Json) -> VisibleName {
        let new = match self.renames_any() {
            true => original
                .as_str()
                .and_then(|name| self.renames.by_original.get(name.as_ref())),
            false => None,
        };
        let own = new.map_or_else(|| original.clone(), |new| Json::string(new));
        let whole = self.prefixed(own);
        let short = self
            .max_length
            .and_then(|max| shortened(&whole.as_str()?, max));
        let rewritten = Rewritten::NAME.when(new.is_some() || short.is_some());
        VisibleName {
            key: short.map_or(whole, |short| Json::string(&short)),
            rewritten,
        }
    }

    fn prefixed(&self, own: Json) -> Json {
        match own.as_text().strip_prefix('"') {
            Some(rest) if !self.prefix.is_empty() => {
                let mut text = quote(&self.prefix);
                text.pop();
                text.extend_from_slice(rest.as_bytes());
                Json::parse(text.into(), 1).unwrap_or(own)
            }
            _ => own,
        }
    }

    /// The backend's own name for what clients call `visible`, if that has this backend's prefix. `None` also for a name
    /// of which only the list knows what it stands for.
    #[must_use]
    pub fn original<'a>(&'a self, visible: &'a str) -> Option<&'a str> {
        let own = visible
            .strip_prefix(&self.prefix)
            .filter(|own| !own.is_empty())?;
        // A name of the greatest length may be a shortened one, and a longer one is none.
        if self
            .max_length
            .is_some_and(|max| visible.chars().nth(max.saturating_sub(1)).is_some())
        {
            return None;
        }
        match self.renames.by_new.get(own) {
            Some(original) => Some(original),
            None if self.renames.by_original.contains_key(own) => None,
            None => Some(own),
        }
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
        return Some(format!(
            "{name:?} is longer than {MAX_CLIENT_NAME} characters"
        ));
    }
    let odd = name
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-')));
    odd.map(|odd| {
        format!("{name:?} has {odd:?}; common clients take only letters, digits, `_` and `-`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_backend_are_unchanged() {
        let naming = &namings(&[("a", None)], &NamingPolicy::default())[0];
        assert!(naming.is_identity());
        assert_eq!(
            naming.visible(&Json::literal(r#""\u0041""#)).as_text(),
            r#""\u0041""#
        );
    }

    #[test]
    fn names_of_several_backends_get_prefixes() {
        let all = [
            ("my server", None),
            ("my_server", None),
            ("c", Some("")),
            ("d", Some("x-")),
        ];
        let all = namings(&all, &NamingPolicy::default());
        let names: Vec<_> = all
            .iter()
            .map(|n| {
                n.visible(&Json::literal(r#""t\u0041""#))
                    .as_text()
                    .to_owned()
            })
            .collect();
        assert_eq!(
            names,
            [
                r#""my_server__t\u0041""#,
                r#""my_server-2__t\u0041""#,
                r#""t\u0041""#,
                r#""x-t\u0041""#
            ]
        );
        assert_eq!(all[3].original("x-t"), Some("t"));
        assert_eq!(all[3].original("x-"), None);
    }

    fn naming(policy: &NamingPolicy, renames: &[(&str, &str)]) -> Naming {
        let renames: Vec<_> = renames
            .iter()
            .map(|(old, new)| ((*old).to_owned(), (*new).to_owned()))
            .collect();
        namings(&[("a", None)], policy)
            .remove(0)
            .with_renames(&renames)
    }

    #[test]
    fn style_always_gives_a_prefix_to_the_names_of_one_backend() {
        let policy = NamingPolicy {
            always: true,
            separator: "-".to_owned(),
            max_length: None,
            ..NamingPolicy::default()
        };
        let naming = naming(&policy, &[]);
        assert_eq!(naming.visible(&Json::literal("\"t\"")).as_text(), "\"a-t\"");
        assert_eq!(
            (naming.original("a-t"), naming.original("t")),
            (Some("t"), None)
        );
        let unprefixed = &namings(&[("a", Some(""))], &policy)[0];
        assert!(
            unprefixed.is_identity(),
            "a configured prefix counts, also an empty one"
        );
    }

    #[test]
    fn renamed_name_replaces_the_old_one() {
        let naming = naming(
            &NamingPolicy::default(),
            &[("old", "new"), ("x", "y"), ("y", "x"), ("z", "z")],
        );
        assert!(!naming.is_identity());
        let visible = |name: &str| naming.rewritten(&Json::string(name));
        for (original, new) in [("old", "new"), ("x", "y"), ("y", "x")] {
            assert_eq!(visible(original).key, Json::string(new));
            assert_eq!(visible(original).rewritten, Rewritten::NAME);
            assert_eq!(naming.original(new), Some(original));
        }
        assert_eq!(visible("z").rewritten, Rewritten::NONE);
        assert_eq!(naming.original("old"), None);
        assert_eq!(
            (
                naming.renamed_to("new"),
                naming.renamed_to("x"),
                naming.renamed_to("z")
            ),
            (Some("old"), None, None)
        );
        assert_eq!(
            naming.visible(&Json::literal(r#""ol\u0064""#)).as_text(),
            "\"new\""
        );
    }

    #[test]
    fn long_names_are_shortened_by_a_stable_hash() {
        let policy = NamingPolicy {
            max_length: Some(16),
            ..NamingPolicy::default()
        };
        let naming = naming(&policy, &[]);
        let visible = |name: &str| {
            naming
                .visible(&Json::string(name))
                .as_str()
                .unwrap()
                .into_owned()
        };
        assert_eq!(visible("sixteen_letters_"), "sixteen_letters_");
        // Clients keep names: they must not change with a release.
        assert_eq!(visible("seventeen_letters"), "sevente_87010b44");
        assert_ne!(visible("seventeen_letterz"), visible("seventeen_letters"));
        assert_eq!(visible(&"é".repeat(17)).chars().count(), 16);
        assert_eq!(naming.original("fifteen_letters"), Some("fifteen_letters"));
        assert_eq!(
            naming.original("sevente_87010b44"),
            None,
            "only the list knows"
        );
        assert_eq!(naming.original("seventeen_letters"), None);
    }

    #[test]
    fn client_objection_names_what_clients_reject() {
        assert!(client_objection("a_B-9").is_none());
        assert!(client_objection("a.b").is_some());
        assert!(client_objection(&"a".repeat(65)).is_some());
    }
}
