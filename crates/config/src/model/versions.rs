//! Other versions of a server: its canary, which serves a share of its clients, and its mirror, which gets copies of requests.

use serde_json::{Value as Json, json};

use super::Config;
use super::auth::values::TEXT;
use super::server::Server;
use crate::definition::Form;
use crate::option::kind::{Choice, Kind};
use crate::option::options;
use crate::option::reader::{Reader, suggest};
use crate::report::problem::quoted;
use crate::syntax::Entry;

/// Parts that a share is counted in: a millionth.
const PARTS: f64 = 1_000_000.0;

/// A part of all: from 0 for none to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// All.
    pub const ALL: Self = Self(1_000_000);

    /// It as a number from 0 to 1.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / PARTS
    }

    fn parse(text: &str) -> Option<Self> {
        let number: f64 = text.parse().ok().filter(|number| (0.0..=1.0).contains(number))?;
        // Within the bounds of the type: at most a million.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1,000,000")]
        Some(Self((number * PARTS).round() as u32))
    }
}

/// What stays at one version of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StickyChoice {
    /// All that a principal does.
    Principal,
    /// A session.
    Session,
}

options! {
    /// The version of a server that serves a share of its clients: another entry of `mcpServers`, which clients are not shown.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CanaryOptions: "canary", "in `canary` of a server";
    options {
        /// The entry that it is.
        "server" => server: String = String::new(), TEXT, example "search-v2";
        /// The share of the clients, from 0 to 1. Whom a smaller share has, a greater one has as well.
        "share" => share: Share = Share::default(), SHARE, example "0.1";
        /// What stays at one version: all that a `principal` does, or a `session`; what belongs to no session goes by the
        /// principal. All clients that are not authenticated are one principal.
        "sticky" => sticky: StickyChoice = StickyChoice::Principal, STICKY;
    }
}

options! {
    /// The server that gets copies of safe requests, whose answers are compared and thrown away: another entry of
    /// `mcpServers`, which clients are not shown.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct MirrorOptions: "mirror", "in `mirror` of a server";
    options {
        /// The entry that it is.
        "server" => server: String = String::new(), TEXT, example "search-next";
        /// The share of the requests, from 0 to 1.
        "share" => share: Share = Share::default(), SHARE, example "0.05";
    }
}

/// A [`Share`].
struct ShareOption;

const SHARE: ShareOption = ShareOption;

const STICKY: Choice<StickyChoice> =
    Choice(&[("principal", StickyChoice::Principal), ("session", StickyChoice::Session)]);

impl Kind for ShareOption {
    type Value = Share;

    fn form(&self) -> Form {
        Form::Share
    }

    fn read(&self, reader: &mut Reader<'_>, entry: &Entry) -> Option<Share> {
        let help = "write a number from 0 (none) to 1 (all), such as `0.05`";
        let text = reader.amount(entry, "a share", help)?;
        let share = Share::parse(&text.value);
        if share.is_none() {
            reader.error(text.span, format!("{} is not a share", text.shown()), help);
        }
        share
    }

    fn show(&self, value: &Share) -> Json {
        match *value {
            Share(0) => json!(0),
            Share::ALL => json!(1),
            share => json!(share.as_f64()),
        }
    }
}

/// What is wrong with a version that a server names.
pub(crate) struct WrongVersion {
    /// The server that names it.
    pub(crate) server: String,
    /// The option: `canary` or `mirror`.
    pub(crate) option: &'static str,
    pub(crate) message: String,
    pub(crate) help: String,
}

impl Server {
    /// Its other versions, each with the option that names it.
    pub(crate) fn versions(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let canary = self.canary.as_ref().map(|canary| ("canary", canary.server.as_str()));
        let mirror = self.mirror.as_ref().map(|mirror| ("mirror", mirror.server.as_str()));
        canary.into_iter().chain(mirror)
    }
}

impl Config {
    /// The server whose canary or mirror the entry called `name` is, and the option that says so. Clients are not shown such an
    /// entry.
    #[must_use]
    pub fn version_of(&self, name: &str) -> Option<(&'static str, &Server)> {
        self.servers.iter().find_map(|server| {
            let (option, _) = server.versions().find(|(_, version)| *version == name)?;
            Some((option, server))
        })
    }

    /// The servers that clients may be shown: all but those that are other versions of one.
    pub fn servers_of_clients(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(|server| self.version_of(&server.name).is_none())
    }

    /// Versions that cannot be.
    pub(crate) fn wrong_versions(&self) -> Vec<WrongVersion> {
        let known: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
        let mut wrong = Vec::new();
        for server in &self.servers {
            for (option, name) in server.versions() {
                let problem = self.problem_with(server, option, name, &known);
                wrong.extend(problem.map(|(message, help)| WrongVersion {
                    server: server.name.clone(),
                    option,
                    message,
                    help,
                }));
            }
        }
        wrong
    }

    fn problem_with(&self, server: &Server, option: &str, name: &str, known: &[&str]) -> Option<(String, String)> {
        let own = quoted(&server.name);
        if name.is_empty() {
            let help = format!("write the entry of `mcpServers` that it is: `{option}: {{server: NAME, share: 0.05}}`");
            return Some((format!("the `{option}` of {own} has no `server`"), help));
        }
        let Some(version) = self.servers.iter().find(|version| version.name == name) else {
            let help = match suggest(name, known) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("the servers: {}", known.join(", ")),
            };
            return Some((format!("no server is called {}", quoted(name)), help));
        };
        if name == server.name {
            return Some((format!("{own} is its own `{option}`"), "name another entry of `mcpServers`".to_owned()));
        }
        let (further, _) = version.versions().next()?;
        let message = format!("{} is the `{option}` of {own} and has a `{further}` of its own", quoted(name));
        Some((message, "remove one of the two: versions of versions are not followed".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_numbers_from_none_to_all() {
        for (text, share) in [("0", Some(0)), ("0.05", Some(50_000)), ("1", Some(1_000_000)), ("1e-6", Some(1))] {
            assert_eq!(Share::parse(text), share.map(Share), "{text}");
        }
        for text in ["", "-0.1", "1.01", "5%", "NaN", "inf", "half"] {
            assert_eq!(Share::parse(text), None, "{text}");
        }
        assert!((Share::parse("0.3").unwrap().as_f64() - 0.3).abs() < 1e-9);
    }
}
