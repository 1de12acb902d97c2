//! What servers call the tools, prompts and resources that they list, as far as that is known without asking them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use fanlight_backend::MessageMemory;
use fanlight_canonical::HandleSeal;
use fanlight_config::Config;
use fanlight_gateway::catalogue::ListKind;
use fanlight_gateway::{BackendEntry, Gateway, ListStore as _};
use fanlight_telemetry::Telemetry;

use crate::list_state::ListState;
use crate::wiring::{backend_settings, keys};

/// The servers' own names of what they list, by kind and server. A list that is not known is absent.
#[derive(Debug, Default)]
pub(crate) struct KnownLists(HashMap<ListKind, HashMap<String, Vec<String>>>);

impl KnownLists {
    /// What a running gateway has read.
    pub(crate) fn of(gateway: &Gateway) -> Self {
        Self(ListKind::ALL.into_iter().map(|kind| (kind, gateway.own_names(kind))).collect())
    }

    /// What earlier runs have kept of these servers.
    pub(crate) fn kept(entries: &[BackendEntry]) -> Self {
        let mut known = Self::default();
        for (entry, store) in entries.iter().filter_map(|entry| Some((entry, entry.store.as_ref()?))) {
            for kind in ListKind::ALL {
                let kept = store.kept(kind).map(|list| kind.own_names(&list.pages));
                known.add(kind, entry.client.name(), kept);
            }
        }
        known
    }

    /// What earlier runs have kept of the servers of the configuration in these files, which is not in force.
    pub(crate) fn kept_for(config: &Config, files: &[PathBuf]) -> Self {
        let mut known = Self::default();
        let handles = HandleSeal::new(&keys(config)).ok().map(Arc::new);
        let Some((state, handles)) = ListState::left_for(config, files).zip(handles) else { return known };
        // No server is started, so that none sends anything.
        let memory = MessageMemory::new(0);
        for server in config.servers.iter().filter(|server| server.enabled) {
            let lists = state.of(&backend_settings(config, server, &Telemetry::off(), &handles, &memory), false);
            for kind in ListKind::ALL {
                known.add(kind, &server.name, lists.kept(kind).map(|list| kind.own_names(&list.pages)));
            }
        }
        known
    }

    fn add(&mut self, kind: ListKind, server: &str, names: Option<Vec<String>>) {
        let of_kind = self.0.entry(kind).or_default();
        of_kind.extend(names.map(|names| (server.to_owned(), names)));
    }

    /// What a server lists of one kind, if that is known.
    pub(crate) fn names(&self, kind: ListKind, server: &str) -> Option<&[String]> {
        self.0.get(&kind)?.get(server).map(Vec::as_slice)
    }
}
