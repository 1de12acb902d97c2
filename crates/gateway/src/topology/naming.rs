//! The naming policy: the names and URIs by which clients know a server's tools, prompts and
//! resources.
//!
//! With one server nothing is renamed. With several, tools and prompts become `<server>__<name>`,
//! unless the configuration gives another prefix. The configuration may also rename single tools
//! and prompts, and limit the form of names. URIs stay as they are. If an earlier server claims
//! the same URI, the resource gets an alias.
//!
//! An alias keeps the scheme, because clients tell by it what a resource is (`ui://`: MCP Apps
//! 2026-01-26, UI Resource Format). It has one more path segment in front, so that relative
//! references within a skill lead to aliases too (SEP-2640, Relative References). It contains only
//! the server's name and the URI, so every replica makes the same alias, and finds the original
//! without any memory.

use std::collections::HashMap;

use fanlight_canonical::Rewritten;
use fanlight_canonical::rights::{NameForm, hash, unique_label};
use fanlight_protocol::json::{Json, quote};
use serde::{Deserialize, Serialize};

/// How clients' names are made from the servers' names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamingPolicy {
    /// Whether names have a prefix even if there is only one server.
    pub always: bool,
    /// The text between the server's name and the tool's name.
    pub separator: String,
    /// The form of names for clients.
    pub form: NameForm,
    /// All servers of the configuration in its order, with their prefixes. Disabled servers count
    /// too, so that names stay the same when one is disabled. Servers that are missing here come
    /// after them.
    pub servers: Vec<NamedServer>,
}

/// The properties of a configured server that names depend on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedServer {
    /// The server's name.
    pub name: String,
    /// The configured prefix, if there is one.
    pub prefix: Option<String>,
}

impl Default for NamingPolicy {
    fn default() -> Self {
        Self {
            always: false,
            separator: "__".to_owned(),
            form: NameForm::Any,
            servers: Vec::new(),
        }
    }
}

/// How one server's names are translated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    server: String,
    prefix: String,
    /// The server's label in aliases of URIs.
    alias_label: String,
    renames: Renames,
    form: NameForm,
}

/// The names that the configuration gives to single tools and prompts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Renames {
    by_original: HashMap<String, String>,
    by_new: HashMap<String, String>,
}

/// The namings of servers, which are given by name and configured prefix, in the same order.
pub fn namings(backends: &[(&str, Option<&str>)], policy: &NamingPolicy) -> Vec<Naming> {
    let mut labels: Vec<String> = Vec::with_capacity(backends.len());
    for (name, _) in backends {
        labels.push(unique_label(name, &labels));
    }
    let has_default = policy.always || backends.len() > 1;
    let alias_labels = distinct_labels(backends.iter().map(|(name, _)| *name));
    let prefix = |configured: Option<&str>, label: &str| match configured {
        Some(prefix) => prefix.to_owned(),
        None if has_default => format!("{label}{}", policy.separator),
        None => String::new(),
    };
    let naming = |server: &str, configured: Option<&str>, label: &str, alias_label| Naming {
        server: server.to_owned(),
        prefix: prefix(configured, label),
        alias_label,
        renames: Renames::default(),
        form: policy.form,
    };
    let labelled = labels.iter().zip(alias_labels);
    backends
        .iter()
        .zip(labelled)
        .map(|((server, prefix), (label, alias))| naming(server, *prefix, label, alias))
        .collect()
}

/// The namings of the running `backends`, in the same order, among all servers of the
/// configuration.
pub(super) fn running_namings(
    backends: &[(&str, Option<&str>)],
    policy: &NamingPolicy,
) -> Vec<Naming> {
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
    /// Renames single tools and prompts, given as pairs of the old and the new name.
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
    pub fn is_identity(&self) -> bool {
        self.prefix.is_empty() && self.form == NameForm::Any && !self.renames_any()
    }

    /// Whether any tool or prompt is renamed.
    #[must_use]
    pub fn renames_any(&self) -> bool {
        !self.renames.by_original.is_empty()
    }

    /// The original names of the renamed tools and prompts, in alphabetical order.
    pub(crate) fn renamed_items(&self) -> Vec<&str> {
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
    pub fn bare_name<'a>(&'a self, original: &'a str) -> &'a str {
        self.renames
            .by_original
            .get(original)
            .map_or(original, String::as_str)
    }

    /// The server's name of the item that clients call `original`, if the two names differ.
    pub(crate) fn renamed_to(&self, original: &str) -> Option<&str> {
        let renamed = self.renames.by_new.get(original).map(String::as_str);
        renamed.filter(|_| !self.renames.by_original.contains_key(original))
    }

    /// The clients' name for the server's `original`. Both are JSON strings; escapes are kept.
    pub fn visible(&self, original: &Json) -> Json {
        self.visible_name(original).0
    }

    /// The clients' name for the server's `original`, and whether the configuration changed it.
    /// Escapes are kept.
    pub(crate) fn visible_name(&self, original: &Json) -> (Json, Rewritten) {
        let new = if self.renames_any() {
            original
                .as_str()
                .and_then(|name| self.renames.by_original.get(name.as_ref()))
        } else {
            None
        };
        let own = new.map_or_else(|| original.clone(), |new| Json::string(new));
        let whole = self.prefixed(own);
        let replaced = match self.form {
            NameForm::Any => None,
            form => whole
                .as_str()
                .zip(original.as_str())
                .and_then(|(whole, original)| form.replacement(&whole, &self.server, &original)),
        };
        let is_rewritten = new.is_some() || replaced.is_some();
        let key = replaced.map_or(whole, |name| Json::string(&name));
        (key, Rewritten::NAME.when(is_rewritten))
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

    /// The server's own name for the clients' name `visible`, if it has this server's prefix.
    /// `None` for a name that only the list can resolve.
    pub fn original_name<'a>(&'a self, visible: &'a str) -> Option<&'a str> {
        let own = visible
            .strip_prefix(&self.prefix)
            .filter(|own| !own.is_empty())?;
        if self.form.may_replace(visible) {
            return None;
        }
        match self.renames.by_new.get(own) {
            Some(original) => Some(original),
            None if self.renames.by_original.contains_key(own) => None,
            None => Some(own),
        }
    }

    /// The length of the prefix in bytes.
    pub fn prefix_len(&self) -> usize {
        self.prefix.len()
    }

    /// The alias for a resource whose own URI another server claims.
    pub fn alias(&self, uri: &str) -> String {
        make_alias(&self.alias_label, uri)
    }

    /// The original URI of an alias that this naming has made.
    pub fn unalias(&self, uri: &str) -> Option<String> {
        unaliased_uri(&self.alias_label, uri)
    }
}

/// The beginning of an alias's first segment.
const MARK: &str = "fanlight--";
/// The end of the first segment if clients may fetch the resource themselves: a host name that
/// never resolves (RFC 6761, section 6.4).
const NO_HOST: &str = ".invalid";
/// The scheme of aliases for URIs without a scheme, such as the template `{+uri}`.
const BARE: &str = "fanlight-uri";

/// The labels that name servers in aliases, in the same order. Each depends on the server's name
/// alone, unless two labels would be equal.
fn distinct_labels<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut labels: Vec<String> = Vec::new();
    for name in names {
        let mut label = label(name);
        while labels.contains(&label) {
            label = hashed(&label, name);
        }
        labels.push(label);
    }
    labels
}

/// A name in the characters that a URI's host may have. Other names get a hash: hosts are compared
/// without regard to case, and two names must not become one.
fn label(name: &str) -> String {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    if !name.is_empty() && name.chars().all(fits) {
        return name.to_owned();
    }
    let plain: String = name
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if fits(c) { c } else { '-' })
        .collect();
    hashed(&plain, name)
}

fn hashed(label: &str, name: &str) -> String {
    format!("{label}-{:08x}", hash(name))
}

/// The alias of `uri`. For a URI template, the alias expands to aliases.
fn make_alias(label: &str, uri: &str) -> String {
    match split(uri) {
        Some((scheme, slashes, rest)) if scheme != BARE => {
            format!("{scheme}:{slashes}{MARK}{label}{}/{rest}", no_host(scheme))
        }
        _ => format!("{BARE}://{MARK}{label}/{uri}"),
    }
}

/// The original of an alias with this label.
fn unaliased_uri(label: &str, uri: &str) -> Option<String> {
    let (scheme, slashes, rest) = split(uri)?;
    let (segment, rest) = rest.split_once('/')?;
    let named = strip_prefix_ignoring_case(segment, MARK)?;
    let tail = strip_prefix_ignoring_case(named, label)?;
    if !tail.eq_ignore_ascii_case(no_host(scheme)) {
        return None;
    }
    match scheme {
        BARE => (!slashes.is_empty()).then(|| rest.to_owned()),
        _ => Some(format!("{scheme}:{slashes}{rest}")),
    }
}

/// Whether `uri` has the form of an alias, of any server.
pub(super) fn has_alias_form(uri: &str) -> bool {
    let segment = split(uri).and_then(|(_, _, rest)| rest.split_once('/'));
    segment.is_some_and(|(segment, _)| strip_prefix_ignoring_case(segment, MARK).is_some())
}

/// The scheme (RFC 3986, section 3.1), the slashes before an authority, and the rest.
fn split(uri: &str) -> Option<(&str, &str, &str)> {
    let (scheme, rest) = uri.split_once(':')?;
    let may_follow = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    if !scheme.starts_with(|c: char| c.is_ascii_alphabetic()) || !scheme.chars().all(may_follow) {
        return None;
    }
    match rest.strip_prefix("//") {
        Some(rest) => Some((scheme, "//", rest)),
        None => Some((scheme, "", rest)),
    }
}

fn no_host(scheme: &str) -> &'static str {
    if scheme.eq_ignore_ascii_case("https") || scheme.eq_ignore_ascii_case("http") {
        NO_HOST
    } else {
        ""
    }
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, tail) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(tail)
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
        assert_eq!(all[3].original_name("x-t"), Some("t"));
        assert_eq!(all[3].original_name("x-"), None);
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
            ..NamingPolicy::default()
        };
        let naming = naming(&policy, &[]);
        assert_eq!(naming.visible(&Json::literal("\"t\"")).as_text(), "\"a-t\"");
        assert_eq!(
            (naming.original_name("a-t"), naming.original_name("t")),
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
        let visible = |name: &str| naming.visible_name(&Json::string(name));
        for (original, new) in [("old", "new"), ("x", "y"), ("y", "x")] {
            assert_eq!(visible(original).0, Json::string(new));
            assert_eq!(visible(original).1, Rewritten::NAME);
            assert_eq!(naming.original_name(new), Some(original));
        }
        assert_eq!(visible("z").1, Rewritten::empty());
        assert_eq!(naming.original_name("old"), None);
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
            form: NameForm::AtMost(16),
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
        // Clients keep names, so these must not change with a release.
        assert_eq!(visible("seventeen_letters"), "sevente_87010b44");
        assert_ne!(visible("seventeen_letterz"), visible("seventeen_letters"));
        assert_eq!(visible(&"é".repeat(17)).chars().count(), 16);
        assert_eq!(
            naming.original_name("fifteen_letters"),
            Some("fifteen_letters")
        );
        assert_eq!(
            naming.original_name("sevente_87010b44"),
            None,
            "only the list knows"
        );
        assert_eq!(naming.original_name("seventeen_letters"), None);
    }

    #[test]
    fn safe_name_depends_on_its_server_and_own_name_alone() {
        let policy = NamingPolicy {
            form: NameForm::Safe(24),
            ..NamingPolicy::default()
        };
        let all = &namings(&[("a", None), ("b", Some("b.")), ("c", Some(""))], &policy);
        let visible = |naming: &Naming, name: &str| {
            let key = naming.visible(&Json::string(name));
            key.as_str().unwrap().into_owned()
        };
        assert_eq!(visible(&all[0], "short-name_1"), "a__short-name_1");
        assert_eq!(
            all[0].original_name("a__short-name_1"),
            Some("short-name_1")
        );
        // Clients keep names, so these must not change with a release.
        assert_eq!(visible(&all[0], "x.y"), "a__x_y_7ace4eaa");
        assert_eq!(visible(&all[0], "x/y"), "a__x_y_f723596c");
        assert_eq!(visible(&all[1], "x"), "b_x_e1707ddf");
        assert_eq!(
            visible(&all[2], &"é".repeat(30)),
            "________________65e261eb"
        );
        for name in ["a__x_y_00000000", "a__x.y"] {
            assert_eq!(
                all[0].original_name(name),
                None,
                "only the list knows {name}"
            );
        }
    }
}

#[cfg(test)]
mod alias_tests {
    use super::*;

    #[test]
    fn alias_keeps_the_scheme_and_gives_back_its_original() {
        for (uri, alias) in [
            ("ui://board/main", "ui://fanlight--b/board/main"),
            (
                "skill://a/refunds/SKILL.md",
                "skill://fanlight--b/a/refunds/SKILL.md",
            ),
            ("file:///x?y#{z}", "file://fanlight--b//x?y#{z}"),
            ("file:///{+path}", "file://fanlight--b//{+path}"),
            (
                "https://example.com/x",
                "https://fanlight--b.invalid/example.com/x",
            ),
            ("urn:isbn:1", "urn:fanlight--b/isbn:1"),
            ("x:/y", "x:fanlight--b//y"),
            ("x://", "x://fanlight--b/"),
            ("{+uri}", "fanlight-uri://fanlight--b/{+uri}"),
            ("plain", "fanlight-uri://fanlight--b/plain"),
            (
                "fanlight-uri://x",
                "fanlight-uri://fanlight--b/fanlight-uri://x",
            ),
            ("ui://fanlight--b/x", "ui://fanlight--b/fanlight--b/x"),
        ] {
            assert_eq!(make_alias("b", uri), alias);
            assert_eq!(unaliased_uri("b", alias).as_deref(), Some(uri));
            assert!(has_alias_form(alias), "{alias}");
            assert_eq!(unaliased_uri("bb", alias), None);
            assert_eq!(unaliased_uri("", alias), None);
        }
        assert_eq!(
            unaliased_uri("b", "HTTPS://Fanlight--B.INVALID/example.com/x").as_deref(),
            Some("HTTPS://example.com/x")
        );
        for no in [
            "ui://fanlight--b",
            "https://fanlight--b/x",
            "ui://fanlight-b/x",
            "fanlight--b/x",
            "ui://b/x",
        ] {
            assert_eq!(unaliased_uri("b", no), None, "{no}");
        }
    }

    #[test]
    fn label_is_made_of_the_name_alone() {
        let of = |names: &[&str]| distinct_labels(names.iter().copied());
        let both = of(&["My server", "my-server"]);
        assert_eq!(
            of(&["my-server", "My server"]),
            [both[1].clone(), both[0].clone()],
            "whatever the order"
        );
        assert_eq!(both[1], "my-server");
        assert!(both[0].starts_with("my-server-") && both[0].is_ascii());
        let twice = of(&["x", "x", "é", ""]);
        assert!(
            (0..4).all(|at| !twice[at + 1..].contains(&twice[at])),
            "{twice:?}"
        );
    }
}
