//! Which tools of a backend are offered, and what endpoints show.

use serde_json::json;

use crate::definition::Visible;
use crate::option::kind::{Each, Maybe, Parsed};
use crate::option::{Options as _, options};

options! {
    /// Which tools of a backend are offered. Patterns match the backend's own names; `*` stands for any characters.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ToolFilter: "tools", "in `tools` of a server";
    options {
        /// The tools that are offered. Default: all.
        "allow" => allow: Option<Vec<String>> = None, Maybe(PATTERNS), example "[\"read_*\"]";
        /// Tools that are not offered, even when allowed.
        "deny" => deny: Vec<String> = Vec::new(), PATTERNS, example "[\"delete_*\"]";
    }
}

/// Names of tools, in which `*` stands for any characters.
pub(crate) const PATTERNS: Each<String> = Each(Parsed {
    visible: Visible::All,
    parse: |reader, text| {
        if text.value.is_empty() {
            reader.error(text.span, "this name of a tool is empty", "write the name of a tool, or `*` for all");
        }
        Some(text.value)
    },
    show: |pattern| json!(pattern),
});

options! {
    /// What an endpoint shows of one kind. `*` stands for any characters. Patterns match a server and its own name or URI:
    /// `git/log_*`, `log_*` for every server, or `git__log_*` with the server's prefix.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct EntryFilter: "endpointFilter", "in `tools`, `prompts` or `resources` of an endpoint";
    options {
        /// What is shown. Default: all.
        "allow" => allow: Option<Vec<String>> = None, Maybe(PATTERNS), example "[\"git__*\", \"files__read_*\"]";
        /// What is not shown, even when allowed.
        "deny" => deny: Vec<String> = Vec::new(), PATTERNS, example "[\"*delete*\"]";
    }
}

impl Default for EntryFilter {
    fn default() -> Self {
        Self::defaults()
    }
}

impl EntryFilter {
    /// Whether it permits this name or URI.
    pub fn permits(&self, name: &str) -> bool {
        permits(self.allow.as_deref(), &self.deny, name)
    }

    /// Whether a pattern of `deny` matches a text in lower case when the case of its own letters is ignored.
    pub fn denies_lower_case(&self, text: &str) -> bool {
        self.deny.iter().any(|pattern| matches(&pattern.to_lowercase(), text))
    }

    /// Whether it permits nothing at all.
    pub fn permits_nothing(&self) -> bool {
        self.allow.as_ref().is_some_and(Vec::is_empty) || self.deny.iter().any(|pattern| pattern == "*")
    }
}

fn permits(allow: Option<&[String]>, deny: &[String], name: &str) -> bool {
    let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, name));
    allow.is_none_or(any) && !any(deny)
}

impl Default for ToolFilter {
    fn default() -> Self {
        Self::defaults()
    }
}

impl ToolFilter {
    /// Whether a tool of this name is offered.
    pub fn permits(&self, name: &str) -> bool {
        permits(self.allow.as_deref(), &self.deny, name)
    }
}

/// Whether a pattern with `*` matches the whole of a name. Time is at most the product of both lengths.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(head) else {
        return false;
    };
    // Each part but the last is best found as early as possible; the last must end the name.
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

    #[test]
    fn deny_wins_and_an_empty_allow_list_permits_nothing() {
        let all = ToolFilter::default();
        assert!(all.permits("anything"));
        let none = ToolFilter { allow: Some(Vec::new()), deny: Vec::new() };
        assert!(!none.permits("anything"));
        let some = ToolFilter { allow: Some(vec!["read_*".to_owned()]), deny: vec!["*_all".to_owned()] };
        assert!(some.permits("read_one"));
        assert!(!some.permits("read_all"));
        assert!(!some.permits("write_one"));
    }
}
