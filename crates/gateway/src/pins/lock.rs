//! The lock file with the approved definitions.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use fanlight_canonical::comparison::{Severity, Tolerance, compare_definitions};
use fanlight_protocol::json::{Kind, STRICT_NESTING, SyntaxError, Unreadable, rewrite_object};
use fanlight_protocol::{Json, sha256_hex};
use serde::de::Error as _;
use serde::ser::{Error as _, SerializeMap as _};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// The version of the file format.
const VERSION: u32 = 1;
/// The levels of the file above a definition.
const ABOVE: usize = 6;
/// A member of definitions that servers may write differently each time.
const META: &str = "_meta";
/// The names, up to a slash, of the members of `_meta` that clients act on: a tool's page (MCP Apps,
/// also in the older forms `ui/resourceUri` and `openai/outputTemplate`).
const UI: [&str; 2] = ["ui", "openai"];

/// The approved definitions, by server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    version: u32,
    servers: BTreeMap<String, BTreeMap<LockedKind, BTreeMap<String, Pinned>>>,
}

fanlight_protocol::named! {
    /// The kinds of definitions that are pinned.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub enum LockedKind {
        /// Tools.
        Tools = "tool",
        /// Prompts.
        Prompts = "prompt",
        /// Resources.
        Resources = "resource",
        /// Templates of resources.
        ResourceTemplates = "template",
        /// Skills.
        Skills = "skill",
        /// The server's instructions, which are one text.
        Instructions = "instructions",
    }
}

/// An approved definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pinned {
    /// The SHA-256 digest of the definition.
    pub digest: String,
    /// The definition.
    pub definition: Definition,
}

/// A definition in the form that is compared and shown: canonical text, and of `_meta` only what
/// is about a tool's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition(Json);

impl Definition {
    /// The definition in a server's text.
    ///
    /// # Errors
    ///
    /// If two programs could read the text differently, or one could not read it. Such a text
    /// equals no other, and nobody can approve it.
    pub fn parse(text: &Json) -> Result<Self, Unreadable> {
        let whole = text.canonical()?;
        let Some(meta) = whole.get(META) else {
            return Ok(Self(whole));
        };
        let is_ui = |name: &str| UI.contains(&name.split('/').next().unwrap_or_default());
        let ui = rewrite_object(
            &meta,
            |member| member.name(&meta).is_some_and(|name| is_ui(&name)),
            b"",
        );
        let kept: &[u8] = match ui.members().next() {
            Some(_) => &[b"\"_meta\":", &**ui.bytes()].concat(),
            None => b"",
        };
        // The member may now have another place.
        rewrite_object(&whole, |member| !member.is(&whole, META), kept)
            .canonical()
            .map(Self)
    }

    /// The SHA-256 digest of the text.
    #[must_use]
    pub fn digest(&self) -> String {
        sha256_hex(self.0.bytes())
    }

    /// The canonical text.
    #[must_use]
    pub fn text(&self) -> &Json {
        &self.0
    }

    /// The value, with numbers as doubles.
    #[must_use]
    pub fn value(&self) -> Value {
        // The text is canonical, so this cannot fail.
        serde_json::from_str(self.0.as_text()).unwrap_or_default()
    }

    /// The severity of the current definition's differences, and a line about each; `None` if both
    /// are the same text. A difference that the comparison tolerates is worth a look here.
    #[must_use]
    pub fn difference(&self, now: &Self) -> Option<(Severity, Vec<String>)> {
        if self == now {
            return None;
        }
        let found = compare_definitions(Some(&self.0), Some(&now.0), &Tolerance::default());
        let severity = found.iter().map(|one| one.change.severity()).max();
        let mut lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        if lines.is_empty() {
            lines.push("the same is written differently".to_owned());
        }
        Some((severity.unwrap_or(Severity::Look), lines))
    }
}

impl Serialize for Definition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Written(&self.0).serialize(serializer)
    }
}

/// Serialises a value member by member, with numbers as they are written.
struct Written<'a>(&'a Json);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(json) = *self;
        match json.kind() {
            Kind::Object => {
                let mut map = serializer.serialize_map(None)?;
                for member in json.members() {
                    let name = member.name(json).unwrap_or_default();
                    map.serialize_entry(&name, &Written(&json.slice(member.value)))?;
                }
                map.end()
            }
            Kind::Array => {
                let elements: Vec<_> = json.items().collect();
                serializer.collect_seq(elements.iter().map(Written))
            }
            Kind::String => serializer.serialize_str(&json.as_str().unwrap_or_default()),
            Kind::Number => RawValue::from_string(json.as_text().to_owned())
                .map_err(S::Error::custom)?
                .serialize(serializer),
            Kind::Bool => serializer.serialize_bool(json.is_true()),
            Kind::Null => serializer.serialize_unit(),
        }
    }
}

impl<'de> Deserialize<'de> for Definition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let text = Bytes::copy_from_slice(text.get().as_bytes());
        let json = Json::parse(text, STRICT_NESTING).map_err(D::Error::custom)?;
        Self::parse(&json).map_err(D::Error::custom)
    }
}

/// The name under which a server's instructions are pinned.
pub const INSTRUCTIONS: &str = "instructions";

/// The key of a pinned item: its server, its kind, and the server's own name for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemKey {
    /// The server.
    pub server: String,
    /// The kind of the item.
    pub kind: LockedKind,
    /// The server's own name, the URI, or the text of the template.
    pub name: String,
}

impl fmt::Display for ItemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.as_str(), self.server, self.name)
    }
}

/// The reason why a text is not a valid lock file.
#[derive(Debug, thiserror::Error)]
pub enum InvalidLock {
    /// The text has another form.
    #[error("this is not a file that `fanlight pin` wrote: {0}")]
    Form(#[from] serde_json::Error),
    /// A later version of Fanlight has written it.
    #[error("version {0} of this file is not known here: use a later version of Fanlight")]
    Version(u32),
    /// The text is not JSON.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// The text has a member twice.
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] Unreadable),
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
        let whole = Bytes::copy_from_slice(text.as_bytes());
        let nesting = STRICT_NESTING + ABOVE;
        Json::parse(whole, nesting)?.read_strictly_within(nesting)?;
        let lock: Self = serde_json::from_str(text)?;
        if lock.version != VERSION {
            return Err(InvalidLock::Version(lock.version));
        }
        let wrong = lock
            .all()
            .find(|(_, pinned)| pinned.digest != pinned.definition.digest());
        match wrong.map(|(key, _)| key) {
            Some(key) => Err(InvalidLock::Digest(key)),
            None => Ok(lock),
        }
    }

    /// The text of the lock file.
    #[must_use]
    pub fn to_text(&self) -> String {
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
    pub fn pin(&mut self, key: &ItemKey, definition: &Definition) {
        let pinned = Pinned {
            digest: definition.digest(),
            definition: definition.clone(),
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
