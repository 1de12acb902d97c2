//! Translates `allow` entries of the configuration into policies.

use std::fmt::Write as _;
use std::sync::Arc;

use itertools::Itertools as _;

use crate::source::PolicyText;

/// The clients in an `allow` entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// The members of a group.
    Group(String),
    /// A client: `key#ci`, `https://idp.example.com#ann`.
    User(String),
    /// Clients that have a scope.
    Scope(String),
    /// All clients.
    Anybody,
}

/// One `allow` entry of the configuration. Only these clients may use its subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The entry's place, such as `mcpServers.git.allow`.
    pub place: String,
    /// The subject of the entry.
    pub about: Allowed,
    /// The clients that may use it.
    pub who: Vec<Who>,
}

/// The subject of an `allow` entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Everything of a server.
    Server(String),
    /// Everything at an endpoint.
    Endpoint(String),
    /// The tools of a server whose own names match a pattern.
    Tools {
        /// The server.
        server: String,
        /// The pattern: `*` stands for any characters.
        pattern: String,
    },
}

impl Allowance {
    /// The policies for this entry: one permits the listed clients, and one forbids all others.
    pub(crate) fn text(&self) -> PolicyText {
        let (resource, only) = match &self.about {
            Allowed::Server(name) => (
                format!("resource in Server::{}", literal(name)),
                String::new(),
            ),
            Allowed::Endpoint(path) => (
                format!("resource in Endpoint::{}", literal(path)),
                String::new(),
            ),
            Allowed::Tools { server, pattern } => (
                format!("resource is Tool in Server::{}", literal(server)),
                format!("resource.name like {} && ", literal(pattern)),
            ),
        };
        let one = |who: &Who| match who {
            Who::Group(name) => format!("principal in Group::{}", literal(name)),
            Who::User(name) => format!("principal == User::{}", literal(name)),
            Who::Scope(name) => format!(
                "(principal.allScopes || principal.scopes.contains({}))",
                literal(name)
            ),
            Who::Anybody => "true".to_owned(),
        };
        let who = match self.who.as_slice() {
            [] => "false".to_owned(),
            all => all.iter().map(one).join(" || "),
        };
        let place = &self.place;
        let others = literal(&format!("{place} (others)"));
        PolicyText {
            name: Arc::from(place.as_str()),
            text: format!(
                "@id({})\npermit(principal, action, {resource}) when {{ {only}({who}) }};\n\
                 @id({others})\nforbid(principal, action, {resource}) when {{ {only}!({who}) }};\n",
                literal(place)
            ),
        }
    }
}

/// A text as a Cedar literal. In a pattern, `*` keeps its meaning.
fn literal(text: &str) -> String {
    let mut literal = String::from('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => literal.extend(['\\', character]),
            character if character.is_control() => {
                let _ = write!(literal, "\\u{{{:x}}}", u32::from(character));
            }
            character => literal.push(character),
        }
    }
    literal.push('"');
    literal
}
