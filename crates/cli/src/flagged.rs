//! Suspicious definitions of servers, changed or not: hidden characters, and names that look like
//! another server's.

use std::collections::HashMap;

use fanlight_gateway::Gateway;
use fanlight_gateway::pins::{
    Definition, Flag, INSTRUCTIONS, ItemKey, LockedKind, flags, skeleton,
};
use fanlight_protocol::json::Unreadable;
use fanlight_protocol::visible::plain;
use serde_json::{Value, json};

use crate::known_lists::KnownLists;
use crate::pins::{Definitions, locked_lists};

/// The limit of reported definitions. There is no option for this, since nobody reads more.
const TOLD: usize = 50;

/// A suspicious definition.
pub struct Flagged {
    key: ItemKey,
    flag: Result<Flag, Unreadable>,
}

/// The definitions that a running gateway has read for itself.
pub fn gateway_definitions(gateway: &Gateway) -> Definitions {
    read_known(&KnownLists::for_operators(gateway))
}

/// The definitions that are known without asking the servers.
pub fn read_known(lists: &KnownLists) -> Definitions {
    let mut found = Definitions::new();
    for (kind, locked) in locked_lists() {
        for (server, name, definition) in lists.definitions(kind) {
            let key = ItemKey {
                server: server.to_owned(),
                kind: locked,
                name: name.to_owned(),
            };
            // Of two entries with one name, clients see the first.
            found
                .entry(key)
                .or_insert_with(|| Definition::parse(definition));
        }
    }
    for (server, instructions) in lists.instructions() {
        let key = ItemKey {
            server: server.to_owned(),
            kind: LockedKind::Instructions,
            name: INSTRUCTIONS.to_owned(),
        };
        found.insert(key, Definition::parse(instructions));
    }
    found
}

/// The suspicious ones of these definitions.
pub fn find_flagged(definitions: &Definitions) -> Vec<Flagged> {
    let mut alike: HashMap<String, Vec<&ItemKey>> = HashMap::new();
    for key in definitions
        .keys()
        .filter(|key| key.kind == LockedKind::Tools)
    {
        alike.entry(skeleton(&key.name)).or_default().push(key);
    }
    let of_one = |(key, definition): (&ItemKey, &Result<Definition, Unreadable>)| {
        let flagged = |flag| Flagged {
            key: key.clone(),
            flag,
        };
        let definition = match definition {
            Ok(definition) => definition.value(),
            Err(unreadable) => return vec![flagged(Err(unreadable.clone()))],
        };
        let is_tool = key.kind == LockedKind::Tools;
        let others = is_tool
            .then(|| alike.get(&skeleton(&key.name)))
            .flatten()
            .into_iter()
            .flatten();
        let others = others.filter(|other| other.server != key.server);
        let others = others.map(|other| (other.server.as_str(), other.name.as_str()));
        flags(&key.name, &definition, others)
            .into_iter()
            .map(|flag| flagged(Ok(flag)))
            .collect::<Vec<_>>()
    };
    definitions.iter().flat_map(of_one).take(TOLD).collect()
}

impl Flagged {
    fn word(&self) -> &'static str {
        match self.flag {
            Ok(Flag::Invisible { .. }) => "hidden text",
            Ok(Flag::Lookalike { .. }) => "lookalike",
            Err(_) => "unreadable",
        }
    }

    fn text(&self) -> String {
        match &self.flag {
            Ok(flag) => flag.to_string(),
            Err(unreadable) => unreadable.to_string(),
        }
    }

    /// A line for a terminal.
    pub fn line(&self) -> String {
        format!(
            "{}: {}: {}",
            self.word(),
            plain(&self.key.to_string(), 120),
            plain(&self.text(), 200)
        )
    }

    /// The value for the API.
    pub fn to_json(&self) -> Value {
        let ItemKey { server, kind, name } = &self.key;
        json!({ "server": server, "kind": kind.as_str(), "name": name, "what": self.word(), "text": self.text() })
    }
}
