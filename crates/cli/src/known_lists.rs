//! The servers' lists and instructions, as far as they are known without asking the servers.

use std::collections::HashMap;
use std::path::PathBuf;

use fanlight_config::Config;
use fanlight_gateway::{BackendEntry, Gateway, ListKind, ListStore as _};
use fanlight_protocol::Json;

use crate::list_state::ListState;

/// The servers' lists with the servers' own names, by kind and server. Unknown lists are absent.
#[derive(Debug, Default)]
pub struct KnownLists {
    lists: HashMap<ListKind, HashMap<String, Known>>,
    /// The instructions of connected servers, by server.
    instructions: HashMap<String, Json>,
}

/// A list of a server.
#[derive(Debug, Default)]
struct Known {
    names: Vec<String>,
    /// The definitions in the order of the names.
    definitions: Vec<Json>,
}

impl Known {
    fn new(entries: Vec<(String, Json)>) -> Self {
        let (names, definitions) = entries.into_iter().unzip();
        Self { names, definitions }
    }
}

impl KnownLists {
    /// The lists that a running gateway has read, if they are the same for all clients.
    pub fn from_gateway(gateway: &Gateway) -> Self {
        Self::read_by(gateway, false)
    }

    /// The lists that a running gateway has read for itself, for operators.
    pub fn for_operators(gateway: &Gateway) -> Self {
        Self::read_by(gateway, true)
    }

    fn read_by(gateway: &Gateway, with_private: bool) -> Self {
        let of_kind = |kind| {
            gateway
                .own_entries(kind, with_private)
                .into_iter()
                .map(|(server, all)| (server, Known::new(all)))
                .collect()
        };
        Self {
            lists: ListKind::ALL
                .into_iter()
                .map(|kind| (kind, of_kind(kind)))
                .collect(),
            instructions: gateway.own_instructions(),
        }
    }

    /// The lists that earlier runs stored for these servers.
    pub fn from_entries(entries: &[BackendEntry]) -> Self {
        let mut known = Self::default();
        for (entry, store) in entries
            .iter()
            .filter_map(|entry| Some((entry, entry.store.as_ref()?)))
        {
            for kind in ListKind::ALL {
                let kept = store.load(kind).map(|list| kind.own_entries(&list.pages));
                known.add(kind, entry.client.name(), kept);
            }
        }
        known
    }

    /// The lists that earlier runs stored for the configuration in these files, which is not in
    /// force.
    pub fn kept_for(config: &Config, files: &[PathBuf]) -> Self {
        let mut known = Self::default();
        let Some(state) = ListState::left_for(config, files) else {
            return known;
        };
        for server in config.servers.iter().filter(|server| server.enabled) {
            let lists = state.load(server, false);
            for kind in ListKind::ALL {
                known.add(
                    kind,
                    &server.name,
                    lists.load(kind).map(|list| kind.own_entries(&list.pages)),
                );
            }
        }
        known
    }

    fn add(&mut self, kind: ListKind, server: &str, entries: Option<Vec<(String, Json)>>) {
        let of_kind = self.lists.entry(kind).or_default();
        of_kind.extend(entries.map(|entries| (server.to_owned(), Known::new(entries))));
    }

    /// The names in a server's list of one kind, if known.
    pub fn names(&self, kind: ListKind, server: &str) -> Option<&[String]> {
        self.lists
            .get(&kind)?
            .get(server)
            .map(|known| known.names.as_slice())
    }

    /// The known instructions, by server.
    pub fn instructions(&self) -> impl Iterator<Item = (&str, &Json)> {
        self.instructions
            .iter()
            .map(|(server, text)| (server.as_str(), text))
    }

    /// All known entries of one kind: the server, its own name for the entry, and the definition.
    pub fn definitions(&self, kind: ListKind) -> impl Iterator<Item = (&str, &str, &Json)> {
        let of_kind = self.lists.get(&kind).into_iter().flatten();
        of_kind.flat_map(|(server, Known { names, definitions })| {
            names
                .iter()
                .zip(definitions)
                .map(move |(name, definition)| (server.as_str(), name.as_str(), definition))
        })
    }
}
