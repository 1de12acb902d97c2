//! The servers' lists and instructions, as far as they are known without asking the servers.

use std::collections::HashMap;
use std::path::PathBuf;

use fanlight_config::Config;
use fanlight_gateway::{BackendEntry, Gateway, ListKind, ListStore};
use fanlight_protocol::Json;

use crate::list_state::ListState;

/// The servers' lists with the servers' own names, by kind and server. Unknown lists are absent.
#[derive(Debug, Default)]
pub struct KnownLists {
    lists: HashMap<ListKind, HashMap<String, Vec<(String, Json)>>>,
    /// The instructions of connected servers, by server.
    instructions: HashMap<String, Json>,
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
        Self {
            lists: ListKind::ALL
                .into_iter()
                .map(|kind| (kind, gateway.own_entries(kind, with_private)))
                .collect(),
            instructions: gateway.own_instructions(),
        }
    }

    /// The lists that earlier runs stored for these servers.
    pub fn from_entries(entries: &[BackendEntry]) -> Self {
        let mut known = Self::default();
        for entry in entries {
            if let Some(store) = &entry.store {
                known.add(entry.client.name(), &**store);
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
            known.add(&server.name, &*state.load(server, false));
        }
        known
    }

    fn add(&mut self, server: &str, store: &dyn ListStore) {
        for kind in ListKind::ALL {
            let kept = store.load(kind);
            let entries = kept.map(|list| (server.to_owned(), kind.own_entries(&list.pages)));
            self.lists.entry(kind).or_default().extend(entries);
        }
    }

    /// The names in a server's list of one kind, if known.
    pub fn names(&self, kind: ListKind, server: &str) -> Option<Vec<&str>> {
        let entries = self.lists.get(&kind)?.get(server)?;
        Some(entries.iter().map(|(name, _)| name.as_str()).collect())
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
        of_kind.flat_map(|(server, entries)| {
            entries
                .iter()
                .map(move |(name, definition)| (server.as_str(), name.as_str(), definition))
        })
    }
}
