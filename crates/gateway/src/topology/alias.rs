//! Aliases: URIs for resources whose own URI belongs to another server.
//!
//! An alias keeps the scheme, because clients tell by it what a resource is (`ui://`: MCP Apps
//! 2026-01-26, UI Resource Format). It has one more path segment in front, so that relative
//! references within a skill lead to aliases too (SEP-2640, Relative References). It contains only
//! the server's name and the URI, so every replica makes the same alias, and finds the original
//! without any memory.

use fanlight_canonical::rights::hash;

/// The beginning of an alias's first segment.
const MARK: &str = "fanlight--";
/// The end of the first segment if clients may fetch the resource themselves: a host name that
/// never resolves (RFC 6761, section 6.4).
const NO_HOST: &str = ".invalid";
/// The scheme of aliases for URIs without a scheme, such as the template `{+uri}`.
const BARE: &str = "fanlight-uri";

/// The labels that name servers in aliases, in the same order. Each depends on the server's name
/// alone, unless two labels would be equal.
pub(super) fn labels<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
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
pub(super) fn make(label: &str, uri: &str) -> String {
    match split(uri) {
        Some((scheme, slashes, rest)) if scheme != BARE => {
            format!("{scheme}:{slashes}{MARK}{label}{}/{rest}", no_host(scheme))
        }
        _ => format!("{BARE}://{MARK}{label}/{uri}"),
    }
}

/// The original of an alias with this label.
pub(super) fn original_uri(label: &str, uri: &str) -> Option<String> {
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
pub(super) fn has_form(uri: &str) -> bool {
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
            assert_eq!(make("b", uri), alias);
            assert_eq!(original_uri("b", alias).as_deref(), Some(uri));
            assert!(has_form(alias), "{alias}");
            assert_eq!(original_uri("bb", alias), None);
            assert_eq!(original_uri("", alias), None);
        }
        assert_eq!(
            original_uri("b", "HTTPS://Fanlight--B.INVALID/example.com/x").as_deref(),
            Some("HTTPS://example.com/x")
        );
        for no in [
            "ui://fanlight--b",
            "https://fanlight--b/x",
            "ui://fanlight-b/x",
            "fanlight--b/x",
            "ui://b/x",
        ] {
            assert_eq!(original_uri("b", no), None, "{no}");
        }
    }

    #[test]
    fn label_is_made_of_the_name_alone() {
        let of = |names: &[&str]| labels(names.iter().copied());
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
