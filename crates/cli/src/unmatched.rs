//! Patterns and names in the configuration that match nothing, although all relevant lists are
//! known.

use std::fmt;
use std::iter;
use std::sync::Arc;

use fanlight_canonical::rights::{ItemKind, Servers, WrittenPattern};
use fanlight_config::{Config, EntryFilter, ScopeRules, Server};
use fanlight_gateway::catalogue::ListKind;
use itertools::Itertools as _;

use crate::known_lists::KnownLists;
use crate::rewriting::servers_of_rules;
use crate::suggestions::did_the_pattern_mean;

/// The limits of checked and of reported patterns. There is no option: configurations have fewer.
const LOOKED_AT: usize = 1000;
const TOLD: usize = 20;

/// Warnings about patterns that match nothing, one line each.
pub fn warnings(config: &Config, known: &KnownLists) -> Vec<String> {
    let servers = servers_of_rules(config);
    let rules = all(config, &servers).into_iter().take(LOOKED_AT);
    let mut unmatched = rules.filter(|rule| rule.is_unmatched(config, known));
    let mut lines = unmatched
        .by_ref()
        .take(TOLD)
        .map(|rule| rule.describe(config, known))
        .collect_vec();
    match unmatched.count() {
        0 => {}
        more => lines.push(format!("{more} other patterns match nothing")),
    }
    lines
}

/// The kind of item that a rule concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Tools,
    Prompts,
    /// Resources, templates and skills.
    Resources,
    /// Items that `rename` applies to.
    ToolsAndPrompts,
}

impl Subject {
    fn lists(self) -> &'static [ListKind] {
        match self {
            Self::Tools => &[ListKind::Tools],
            Self::Prompts => &[ListKind::Prompts],
            Self::Resources => &[
                ListKind::Resources,
                ListKind::ResourceTemplates,
                ListKind::Skills,
            ],
            Self::ToolsAndPrompts => &[ListKind::Tools, ListKind::Prompts],
        }
    }

    /// A server's names of this kind, if all of them are known.
    fn names<'a>(self, known: &'a KnownLists, server: &str) -> Option<Vec<&'a str>> {
        // A template stands for resources that no list has.
        let has_more = |kind| {
            kind == ListKind::ResourceTemplates && known.names(kind, server) != Some(Vec::new())
        };
        let lists = self
            .lists()
            .iter()
            .map(|kind| known.names(*kind, server).filter(|_| !has_more(*kind)));
        let lists: Vec<_> = lists.collect::<Option<_>>()?;
        Some(lists.into_iter().flatten().collect())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::Resources => "resource",
            Self::ToolsAndPrompts => "tool or prompt",
        })
    }
}

/// A pattern and its place.
struct Rule<'a> {
    /// The option with the pattern, as a path through the file.
    place: String,
    subject: Subject,
    /// The servers that the pattern can concern; `None` for all.
    among: Option<&'a [String]>,
    pattern: WrittenPattern,
}

impl Rule<'_> {
    /// The servers that the pattern concerns, including disabled ones.
    fn servers<'c>(&self, config: &'c Config) -> Vec<&'c Server> {
        let is_shown =
            |server: &&Server| self.among.is_none_or(|among| among.contains(&server.name));
        let all = config.servers_of_clients().filter(is_shown).collect_vec();
        let concerned = all
            .iter()
            .copied()
            .filter(|server| self.pattern.concerns(&server.name))
            .collect_vec();
        // An unknown prefix may be part of a name.
        if concerned.is_empty() && !self.pattern.names_a_server() {
            all
        } else {
            concerned
        }
    }

    fn is_unmatched(&self, config: &Config, known: &KnownLists) -> bool {
        self.servers(config).into_iter().all(|server| {
            let names = self
                .subject
                .names(known, &server.name)
                .filter(|_| server.enabled);
            names.is_some_and(|names| {
                !names
                    .iter()
                    .any(|name| self.pattern.is_about(&server.name, name))
            })
        })
    }

    fn describe(&self, config: &Config, known: &KnownLists) -> String {
        let servers = config.servers.iter().filter(|server| server.enabled);
        let names = servers.flat_map(|server| {
            let names = self.subject.names(known, &server.name).unwrap_or_default();
            names
                .into_iter()
                .flat_map(|name| self.pattern.spellings(&server.name, name).collect_vec())
        });
        let (place, subject, text) = (&self.place, self.subject, self.pattern.text());
        let meant = did_the_pattern_mean(text, names);
        match self.servers(config).as_slice() {
            [] => format!("{place}: no server matches {text:?}{meant}"),
            [only] => format!(
                "{place}: {text:?} matches no {subject} of {:?}{meant}",
                only.name
            ),
            _ => format!("{place}: {text:?} matches no {subject}{meant}"),
        }
    }
}

fn all<'a>(config: &'a Config, servers: &Arc<Servers>) -> Vec<Rule<'a>> {
    let mut rules = Vec::new();
    for server in &config.servers {
        add_server_rules(server, servers, &mut rules);
    }
    for (path, endpoint) in &config.endpoints {
        let among = endpoint.servers.as_deref();
        let filters = [
            ("tools", Subject::Tools, &endpoint.tools),
            ("prompts", Subject::Prompts, &endpoint.prompts),
            ("resources", Subject::Resources, &endpoint.resources),
        ];
        for (name, subject, EntryFilter { allow, deny }) in filters {
            let place = format!("endpoints.{path}.{name}");
            filter((place, subject, among), (allow, deny), servers, &mut rules);
        }
        if let Some(lean) = &endpoint.lean {
            let place = format!("endpoints.{path}.lean");
            let groups = lean
                .groups
                .iter()
                .map(|(name, tools)| (format!("groups.{name}"), tools));
            for (option, patterns) in iter::once(("always".to_owned(), &lean.always)).chain(groups)
            {
                let place = format!("{place}.{option}");
                rules.extend(patterns.iter().map(|text| Rule {
                    place: place.clone(),
                    subject: Subject::Tools,
                    among,
                    pattern: WrittenPattern::new(servers, ItemKind::Names, text, true),
                }));
            }
        }
        scopes(
            (format!("endpoints.{path}"), among),
            &endpoint.scopes,
            servers,
            &mut rules,
        );
    }
    if let Some(auth) = config.auth.methods() {
        scopes(("auth".to_owned(), None), &auth.scopes, servers, &mut rules);
    }
    rules
}

fn add_server_rules<'a>(server: &'a Server, servers: &Arc<Servers>, rules: &mut Vec<Rule<'a>>) {
    let among = Some(std::slice::from_ref(&server.name));
    let EntryFilter { allow, deny } = &server.tools;
    let place = |option: &str| format!("mcpServers.{}.{option}", server.name);
    let first = rules.len();
    filter(
        (place("tools"), Subject::Tools, among),
        (allow, deny),
        servers,
        rules,
    );
    let mut named = |option: &str, subject: Subject, name: &str| {
        let pattern = WrittenPattern::new(servers, ItemKind::Names, name, false);
        rules.push(Rule {
            place: place(option),
            subject,
            among,
            pattern,
        });
    };
    server
        .renames
        .iter()
        .for_each(|(name, _)| named("rename", Subject::ToolsAndPrompts, name));
    server
        .overrides
        .iter()
        .for_each(|(name, _)| named("override", Subject::Tools, name));
    server
        .arguments
        .iter()
        .for_each(|(name, _)| named("arguments", Subject::Tools, name));
    server
        .approval
        .tools
        .iter()
        .for_each(|name| named("approval.tools", Subject::Tools, name));
    for rule in rules.iter_mut().skip(first) {
        rule.pattern = rule.pattern.clone().limit_to_server(&server.name);
    }
}

fn filter<'a>(
    (place, subject, among): (String, Subject, Option<&'a [String]>),
    (allow, deny): (&Option<Vec<String>>, &[String]),
    servers: &Arc<Servers>,
    rules: &mut Vec<Rule<'a>>,
) {
    let kind = if subject == Subject::Resources {
        ItemKind::Uris
    } else {
        ItemKind::Names
    };
    for (option, opens, patterns) in [
        ("allow", true, allow.as_deref().unwrap_or_default()),
        ("deny", false, deny),
    ] {
        rules.extend(patterns.iter().map(|text| {
            let pattern = WrittenPattern::new(servers, kind, text, opens);
            Rule {
                place: format!("{place}.{option}"),
                subject,
                among,
                pattern,
            }
        }));
    }
}

fn scopes<'a>(
    (place, among): (String, Option<&'a [String]>),
    scopes: &ScopeRules,
    servers: &Arc<Servers>,
    rules: &mut Vec<Rule<'a>>,
) {
    for (text, _) in scopes.tools.iter().flatten() {
        let pattern = WrittenPattern::new(servers, ItemKind::Names, text, false);
        rules.push(Rule {
            place: format!("{place}.scopes.tools"),
            subject: Subject::Tools,
            among,
            pattern,
        });
    }
}
