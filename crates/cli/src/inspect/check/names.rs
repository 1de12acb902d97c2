//! Findings about names in merged lists: configured changes, and names that clients refuse.

use std::borrow::Cow;
use std::collections::BTreeSet;

use fanlight_config::Config;
use fanlight_gateway::catalogue::{ListView, UnknownName};
use fanlight_protocol::visible::plain;
use itertools::Itertools as _;

use crate::cli::NAME;
use crate::connect::longest_entry;
use crate::out::counted;

/// Configured arguments that the tools do not have.
pub(super) fn unknown_arguments(lists: &[ListView]) -> Vec<String> {
    let all = lists.iter().flat_map(|list| list.unknown_names());
    all.filter_map(describe)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

fn describe(unknown: &UnknownName) -> Option<String> {
    let UnknownName {
        backend,
        name,
        tool,
        ..
    } = unknown;
    let tool = tool.as_ref()?;
    Some(format!(
        "the tool {tool:?} of {backend:?} has no argument {name:?} among its properties"
    ))
}

/// The configured changes of a list, one line per entry.
pub(super) fn rewritten_entries(list: &ListView) -> impl Iterator<Item = String> {
    let changed = list
        .entries()
        .filter_map(|entry| Some((entry, entry.original.as_ref()?, entry.changes())));
    changed
        .filter(|(.., changes)| !changes.is_empty())
        .map(|(entry, original, changes)| {
            let line = format!(
                "{original} of {:?} {}",
                list.backend_of(entry),
                changes.join(", ")
            );
            plain(&line, 1000)
        })
}

pub(super) fn warnings(list: &ListView) -> impl Iterator<Item = String> {
    let collisions = list.collisions().iter().map(|collision| match &collision.alias {
        Some(alias) => format!(
            "{:?} and {:?} both have {:?}; clients read the one of {:?} as {alias}",
            collision.kept, collision.other, collision.key, collision.other
        ),
        None => format!(
            "{:?} and {:?} both have {:?}; the one of {:?} cannot be called: give one of them another prefix",
            collision.kept, collision.other, collision.key, collision.other
        ),
    });
    let invalid = list.invalid_entries().iter().map(|found| {
        let name = found.name().unwrap_or_default();
        let line = format!(
            "{name:?} of {:?} is left out: {}, and strict clients would reject the list of all servers",
            found.backend, found.reason
        );
        plain(&line, 1000)
    });
    collisions.chain(invalid)
}

/// The rules of a known client, or of the model that it uses, for the names of tools.
struct NameRule {
    client: &'static str,
    /// The text that the client puts before a tool's name; `{}` stands for the name of the
    /// gateway's entry.
    before: &'static str,
    /// The maximum length of a name, including that text.
    longest: usize,
    /// The characters that a name may have beside letters and digits; `None` if the client replaces
    /// others.
    signs: Option<&'static str>,
    /// Whether a name has to begin with a letter or `_`.
    begins_with_letter: bool,
    /// The public source of the rule, and the day when it was written or read.
    source: &'static str,
}

/// The clients whose rules are known; docs/overriding.md has the same table.
const RULES: [NameRule; 5] = [
    NameRule {
        client: "Claude Code",
        before: "mcp__{}__",
        longest: 64,
        signs: Some("_-"),
        begins_with_letter: false,
        source: "anthropics/claude-code#2412, 2025-06-21",
    },
    NameRule {
        client: "Cursor",
        before: "{}",
        longest: 59,
        signs: Some("_-"),
        begins_with_letter: false,
        source: "ComposioHQ/composio#2788, 2026-02-27",
    },
    NameRule {
        client: "VS Code",
        before: "mcp_{}_",
        longest: 64,
        signs: None,
        begins_with_letter: false,
        source: "microsoft/vscode#243602, 2025-03-14",
    },
    NameRule {
        client: "OpenAI",
        before: "",
        longest: 64,
        signs: Some("_-"),
        begins_with_letter: false,
        source: "OpenAI API, ChatCompletionFunctions.name, read 2026-11-30",
    },
    NameRule {
        client: "Gemini",
        before: "",
        longest: 64,
        signs: Some("_-."),
        begins_with_letter: true,
        source: "google.cloud.aiplatform.v1, FunctionDeclaration.name, read 2026-11-30",
    },
];

/// The limit of names in one warning; the rest is only counted.
const TOLD: usize = 5;

impl NameRule {
    /// The reason why the client refuses a name, if it does; `entry` is the gateway's name there.
    fn objection(&self, name: &str, entry: &str) -> Option<String> {
        let added = self.before.replace("{}", entry).chars().count();
        let length = added + name.chars().count();
        if length > self.longest {
            return Some(match added {
                0 => format!("{length} characters"),
                _ => format!("{length} characters with {added} of the client"),
            });
        }
        let is_allowed =
            |c: char| c.is_ascii_alphanumeric() || self.signs.is_none_or(|signs| signs.contains(c));
        if self.begins_with_letter
            && name.starts_with(|c: char| c != '_' && !c.is_ascii_alphabetic())
        {
            return Some("begins with no letter".to_owned());
        }
        let mut odd = name.chars().filter(|c| !is_allowed(*c));
        odd.next().map(|odd| format!("has {odd:?}"))
    }

    /// The names that the client refuses, if there are any, as one line.
    fn warning(&self, names: &[Cow<'_, str>], entry: &str) -> Option<String> {
        let refused = names
            .iter()
            .filter_map(|name| Some(format!("{name:?} ({})", self.objection(name, entry)?)))
            .collect_vec();
        if refused.is_empty() {
            return None;
        }
        let more = match refused.len().saturating_sub(TOLD) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let told = refused.iter().take(TOLD).map(String::as_str).collect_vec();
        let line = format!(
            "{} refuses {}: {}{more}; `naming: {{safe: true}}` makes names that it accepts ({})",
            self.client,
            counted(refused.len(), "tool"),
            told.join(", "),
            self.source
        );
        Some(plain(&line, 1000))
    }
}

/// A warning for each known client that refuses names of tools, and one if a client's file gives
/// this gateway a longer name than `naming.reserve` expects.
pub(super) fn refused_names(tools: &ListView, config: &Config) -> Vec<String> {
    let found = longest_entry(config);
    let entry = found.as_ref().map_or(NAME, |(_, name)| name);
    let names = tools
        .entries()
        .filter_map(|entry| entry.key.as_ref()?.as_str())
        .collect_vec();
    let added = RULES[0].before.replace("{}", entry).chars().count();
    let is_longer = config.naming.safe && added > config.naming.reserve;
    let reserve = found.as_ref().filter(|_| is_longer).map(|(client, name)| {
        format!(
            "the file of {} calls this gateway {name:?}, which adds up to {added} characters to names of tools; \
             write `naming: {{reserve: {added}}}`",
            client.title()
        )
    });
    let refused = RULES.iter().filter_map(|rule| rule.warning(&names, entry));
    refused.chain(reserve).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_refuses_what_its_rules_forbid() {
        let refusing = |name: &str| {
            let refuses = |rule: &&NameRule| rule.objection(name, NAME).is_some();
            let rules = RULES.iter().filter(refuses);
            rules.map(|rule| rule.client).collect::<Vec<_>>().join(", ")
        };
        for (name, expected) in [
            ("a_B-9", ""),
            ("a.b", "Claude Code, Cursor, OpenAI"),
            ("a/b", "Claude Code, Cursor, OpenAI, Gemini"),
            ("9a", "Gemini"),
            (&"a".repeat(49), ""),
            (&"a".repeat(50), "Claude Code"),
            (&"a".repeat(52), "Claude Code, Cursor, VS Code"),
            (
                &"a".repeat(65),
                "Claude Code, Cursor, VS Code, OpenAI, Gemini",
            ),
        ] {
            assert_eq!(refusing(name), expected, "{name}");
        }
    }
}
