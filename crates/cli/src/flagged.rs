//! Suspicious definitions of servers, changed or not: hidden characters, and names that look like
//! another server's.

use std::collections::{BTreeMap, HashMap};

use crate::pins::locked_lists;
use fanlight_gateway::pins::{Flag, ItemKey, LockedKind, flags, skeleton};
use fanlight_protocol::visible::plain;
use serde_json::{Value, json};

use crate::known_lists::KnownLists;

/// The limit of reported definitions. There is no option for this, since nobody reads more.
const TOLD: usize = 50;

/// The servers' definitions, as the servers wrote them.
pub type Definitions = BTreeMap<ItemKey, Value>;

/// A suspicious definition.
pub struct Flagged {
    key: ItemKey,
    flag: Flag,
}

/// The definitions that are known without asking the servers.
pub fn known(lists: &KnownLists) -> Definitions {
    let of_kind = |(kind, locked)| {
        lists
            .definitions(kind)
            .map(move |(server, name, definition)| {
                let key = ItemKey {
                    server: server.to_owned(),
                    kind: locked,
                    name: name.to_owned(),
                };
                (
                    key,
                    serde_json::from_str(definition.as_text()).unwrap_or_default(),
                )
            })
    };
    locked_lists().flat_map(of_kind).collect()
}

/// The suspicious ones of these definitions.
pub fn flagged(definitions: &Definitions) -> Vec<Flagged> {
    let mut alike: HashMap<String, Vec<&ItemKey>> = HashMap::new();
    for key in definitions
        .keys()
        .filter(|key| key.kind == LockedKind::Tools)
    {
        alike.entry(skeleton(&key.name)).or_default().push(key);
    }
    let of_one = |(key, definition): (&ItemKey, &Value)| {
        let is_tool = key.kind == LockedKind::Tools;
        let others = is_tool
            .then(|| alike.get(&skeleton(&key.name)))
            .flatten()
            .into_iter()
            .flatten();
        let others = others.filter(|other| other.server != key.server);
        let others = others.map(|other| (other.server.as_str(), other.name.as_str()));
        let flagged = |flag| Flagged {
            key: key.clone(),
            flag,
        };
        flags(&key.name, definition, others)
            .into_iter()
            .map(flagged)
            .collect::<Vec<_>>()
    };
    definitions.iter().flat_map(of_one).take(TOLD).collect()
}

impl Flagged {
    fn word(&self) -> &'static str {
        match self.flag {
            Flag::Invisible { .. } => "hidden text",
            Flag::Lookalike { .. } => "lookalike",
        }
    }

    /// A line for a terminal.
    pub fn line(&self) -> String {
        format!(
            "{}: {}: {}",
            self.word(),
            plain(&self.key.to_string(), 120),
            plain(&self.flag.to_string(), 200)
        )
    }

    /// The value for the API.
    pub fn to_json(&self) -> Value {
        let ItemKey { server, kind, name } = &self.key;
        json!({ "server": server, "kind": kind.noun(), "name": name, "what": self.word(), "text": self.flag.to_string() })
    }
}
