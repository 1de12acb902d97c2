//! The names that clients see, and how an edit of the configuration changes them.

use std::collections::{BTreeMap, BTreeSet};

use fanlight_config::Config;
use fanlight_gateway::{ListKind, Naming, NamingPolicy, namings};
use fanlight_protocol::Json;
use fanlight_protocol::visible::plain;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::known_lists::KnownLists;
use crate::rewriting::naming_policy;

/// The limit of reported names; the rest is only counted. There is no option: comparing lists shows
/// all.
const TOLD: usize = 20;
/// The placeholder for all names of a server whose list is unknown.
const ANY: &str = "*";

/// All rules of a configuration about names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameRules {
    policy: NamingPolicy,
    renames: BTreeMap<String, Vec<(String, String)>>,
}

/// A name that clients see differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedName {
    server: String,
    from: String,
    to: String,
}

/// The names that clients see differently: the first of them, and the number of others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangedNames {
    names: Vec<ChangedName>,
    more: usize,
}

impl NameRules {
    /// The rules of names of a configuration.
    pub fn from_config(config: &Config) -> Self {
        let renamed = config
            .servers
            .iter()
            .filter(|server| !server.renames.is_empty());
        let renames = renamed
            .map(|server| (server.name.clone(), server.renames.clone()))
            .collect();
        Self {
            policy: naming_policy(config),
            renames,
        }
    }

    fn namings(&self) -> BTreeMap<&str, Naming> {
        let servers = &self.policy.servers;
        let named: Vec<_> = servers
            .iter()
            .map(|server| (server.name.as_str(), server.prefix.as_deref()))
            .collect();
        let renames = |name: &str| {
            self.renames
                .get(name)
                .map(Vec::as_slice)
                .unwrap_or_default()
        };
        let all = servers.iter().zip(namings(&named, &self.policy));
        all.map(|(server, naming)| {
            (
                server.name.as_str(),
                naming.with_renames(renames(&server.name)),
            )
        })
        .collect()
    }

    /// The names that change for clients if `new` replaces these rules. Servers that only one of
    /// both has do not count.
    pub fn changed_by(&self, new: &Self, known: &KnownLists) -> ChangedNames {
        let mut changed = ChangedNames::default();
        if self == new {
            return changed;
        }
        let (before, after) = (self.namings(), new.namings());
        for server in &new.policy.servers {
            let (Some(before), Some(after)) = (before.get(&*server.name), after.get(&*server.name))
            else {
                continue;
            };
            if before == after {
                continue;
            }
            for name in self.own_names(new, &server.name, known) {
                let [from, to] = [before, after].map(|naming| visible(naming, name));
                if from != to {
                    changed.add(ChangedName {
                        server: server.name.clone(),
                        from,
                        to,
                    });
                }
            }
        }
        changed
    }

    /// The known names of a server, or a stand-in for them, and its names in the configuration.
    fn own_names<'a>(
        &'a self,
        new: &'a Self,
        server: &str,
        known: &'a KnownLists,
    ) -> BTreeSet<&'a str> {
        let renames = [self, new]
            .into_iter()
            .filter_map(|rules| rules.renames.get(server))
            .flatten();
        let lists = [ListKind::Tools, ListKind::Prompts].map(|kind| known.names(kind, server));
        let any = lists.iter().any(Option::is_none).then_some(ANY);
        let known = lists.into_iter().flatten().flatten();
        renames
            .map(|(own, _)| own.as_str())
            .chain(any)
            .chain(known)
            .collect()
    }
}

impl ChangedNames {
    fn add(&mut self, name: ChangedName) {
        match self.names.len() < TOLD {
            true => self.names.push(name),
            false => self.more += 1,
        }
    }

    /// Whether no name has changed.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// A line for each name, and one for the rest.
    pub fn lines(&self) -> Vec<String> {
        let line =
            |name: &ChangedName| format!("{} → {}", plain(&name.from, 100), plain(&name.to, 100));
        let more = (self.more > 0).then(|| format!("{} more", self.more));
        self.names.iter().map(line).chain(more).collect()
    }

    /// Logs the names, if there are any.
    pub fn log(&self) {
        if !self.is_empty() {
            let names = self.lines().join(", ");
            warn!(
                names,
                "clients see new names because of an edit of the configuration"
            );
        }
    }
}

fn visible(naming: &Naming, own: &str) -> String {
    let visible = naming.visible(&Json::string(own));
    visible
        .as_str()
        .map_or_else(|| own.to_owned(), |name| name.into_owned())
}
