//! The lock file with the approved definitions.

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::digest::{SHA256, digest as sha256};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::pins::compare::{Change, Difference, compare};

/// The version of the file format.
const VERSION: u32 = 1;
/// A member of definitions that servers may write differently each time, and that no model reads.
const META: &str = "_meta";

/// The approved definitions, by server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    version: u32,
    servers: BTreeMap<String, BTreeMap<LockedKind, BTreeMap<String, Pinned>>>,
}

/// The kinds of definitions that are pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LockedKind {
    /// Tools.
    Tools,
    /// Prompts.
    Prompts,
    /// Templates of resources.
    ResourceTemplates,
}

impl LockedKind {
    /// The word for one item of this kind.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Self::Tools => "tool",
            Self::Prompts => "prompt",
            Self::ResourceTemplates => "template",
        }
    }
}

/// An approved definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pinned {
    /// The SHA-256 digest of the definition, independent of the order of members.
    pub digest: String,
    /// The definition, without `_meta`.
    pub definition: Value,
}

impl Pinned {
    /// The difference of the current definition; `None` if it is as approved. A difference that
    /// [`compare`] cannot describe counts as a change of the text.
    #[must_use]
    pub fn difference(&self, now: &Value) -> Option<Difference> {
        if self.digest == digest(now) {
            return None;
        }
        let Difference { change, reasons } = compare(&self.definition, now);
        Some(Difference {
            change: change.max(Change::Text),
            reasons,
        })
    }
}

/// The key of a pinned item: its server, its kind, and the server's own name for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemKey {
    /// The server.
    pub server: String,
    /// The kind of the item.
    pub kind: LockedKind,
    /// The server's own name, or the text of the template.
    pub name: String,
}

impl fmt::Display for ItemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.noun(), self.server, self.name)
    }
}

/// The reason why a text is not a valid lock file.
#[derive(Debug, thiserror::Error)]
pub enum InvalidLock {
    /// The text is not JSON, or has another form.
    #[error("this is not a file that `fanlight pin` wrote: {0}")]
    Form(#[from] serde_json::Error),
    /// A later version of Fanlight has written it.
    #[error("version {0} of this file is not known here: use a later version of Fanlight")]
    Version(u32),
    /// A digest does not match its definition.
    #[error("the digest of {0} does not match its definition: approve it again")]
    Digest(ItemKey),
}

impl Default for Lock {
    fn default() -> Self {
        Self {
            version: VERSION,
            servers: BTreeMap::new(),
        }
    }
}

impl Lock {
    /// Parses the text of a lock file.
    ///
    /// # Errors
    ///
    /// If it is not a lock file, or a digest does not match.
    pub fn parse(text: &str) -> Result<Self, InvalidLock> {
        let lock: Self = serde_json::from_str(text)?;
        if lock.version != VERSION {
            return Err(InvalidLock::Version(lock.version));
        }
        let wrong = lock
            .all()
            .find(|(_, pinned)| pinned.digest != digest(&pinned.definition));
        match wrong.map(|(key, _)| key) {
            Some(key) => Err(InvalidLock::Digest(key)),
            None => Ok(lock),
        }
    }

    /// The text of the lock file.
    #[must_use]
    pub fn written(&self) -> String {
        serde_json::to_string_pretty(self)
            .map(|text| text + "\n")
            .unwrap_or_default()
    }

    /// Whether anything of a server is pinned. If so, its other items are new.
    #[must_use]
    pub fn has_server(&self, server: &str) -> bool {
        self.servers.contains_key(server)
    }

    /// The approved definition of an item.
    #[must_use]
    pub fn get(&self, server: &str, kind: LockedKind, name: &str) -> Option<&Pinned> {
        self.servers.get(server)?.get(&kind)?.get(name)
    }

    /// Approves a definition.
    pub fn pin(&mut self, key: &ItemKey, definition: &Value) {
        let definition = canonical(definition);
        let pinned = Pinned {
            digest: digest(&definition),
            definition,
        };
        let kinds = self.servers.entry(key.server.clone()).or_default();
        kinds
            .entry(key.kind)
            .or_default()
            .insert(key.name.clone(), pinned);
    }

    /// Adds a server without pinned items, unless it is there.
    pub fn begin(&mut self, server: &str) {
        self.servers.entry(server.to_owned()).or_default();
    }

    /// Removes all pins of a server.
    pub fn forget(&mut self, server: &str) {
        self.servers.remove(server);
    }

    /// Removes the pin of an item.
    pub fn unpin(&mut self, key: &ItemKey) {
        let of_kind = self
            .servers
            .get_mut(&key.server)
            .and_then(|kinds| kinds.get_mut(&key.kind));
        of_kind.map(|items| items.remove(&key.name));
    }

    /// All pinned items.
    pub fn all(&self) -> impl Iterator<Item = (ItemKey, &Pinned)> {
        self.servers.iter().flat_map(|(server, kinds)| {
            kinds.iter().flat_map(move |(kind, items)| {
                items.iter().map(move |(name, pinned)| {
                    (
                        ItemKey {
                            server: server.clone(),
                            kind: *kind,
                            name: name.clone(),
                        },
                        pinned,
                    )
                })
            })
        })
    }
}

/// The digest of a definition without `_meta`, independent of the order of members.
#[must_use]
pub fn digest(definition: &Value) -> String {
    let text = canonical(definition).to_string();
    HEXLOWER.encode(sha256(&SHA256, text.as_bytes()).as_ref())
}

/// A definition in the form that is compared and shown: without `_meta`, and with members sorted by
/// name.
#[must_use]
pub fn canonical(definition: &Value) -> Value {
    sorted(&without_meta(definition))
}

fn without_meta(definition: &Value) -> Value {
    match definition {
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, _)| *name != META);
            Value::Object(
                kept.map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

/// A value whose objects have their members sorted by name.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members: BTreeMap<_, _> = members
                .iter()
                .map(|(name, value)| (name.clone(), sorted(value)))
                .collect();
            Value::Object(members.into_iter().collect::<Map<_, _>>())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}
