//! The records of the store: one server's lists, and the rules of names.

use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash as _, Hasher};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use fanlight_backend::KnownServer;
use fanlight_config::{Server, Transport};
use fanlight_gateway::{KeptList, ListKind};
use fanlight_grants::{Kind, Record};
use fanlight_protocol::{Json, MAX_NESTING, ResultView as _, Revision, epoch, sha256_hex};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// An unused record can be removed after this time.
const UNUSED: Duration = Duration::from_secs(90 * 86_400);

/// The record of one server. The server's texts are stored as it wrote them.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptServer {
    definition: Definition,
    revision: String,
    description: Box<RawValue>,
    lists: BTreeMap<String, KeptPages>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptPages {
    read_ms: u64,
    declared: Box<RawValue>,
    pages: Vec<Box<RawValue>>,
}

/// The rules of names from the last run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptNames(pub(super) Value);

/// The contents of a record.
pub(super) struct Contents {
    pub(super) known: KnownServer,
    pub(super) lists: HashMap<ListKind, KeptList>,
}

/// The reason why a record is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("the server had another definition then")]
    OtherDefinition,
    #[error("it has more than {0} bytes")]
    TooLarge(usize),
    #[error("its {0} is not valid")]
    Invalid(&'static str),
}

impl Record for KeptServer {
    const KIND: Kind = Kind::Lists;

    fn useless_after(&self) -> Option<u64> {
        Some((epoch::now() + UNUSED).as_secs())
    }
}

impl Record for KeptNames {
    const KIND: Kind = Kind::Names;
}

impl KeptServer {
    /// Creates the record of a server; `None` if it cannot be stored.
    pub(super) fn new(
        definition: &Definition,
        known: &KnownServer,
        lists: &HashMap<ListKind, KeptList>,
    ) -> Option<Self> {
        let pages = |list: &KeptList| {
            let since = epoch::since(list.read);
            Some(KeptPages {
                read_ms: u64::try_from(since.as_millis()).ok()?,
                declared: raw(&list.declared)?,
                pages: list.pages.iter().map(raw).collect::<Option<_>>()?,
            })
        };
        let lists = lists
            .iter()
            .map(|(kind, list)| Some((kind.member().to_owned(), pages(list)?)));
        Some(Self {
            definition: definition.clone(),
            revision: known.revision.to_string(),
            description: raw(known.description.json())?,
            lists: lists.collect::<Option<_>>()?,
        })
    }

    /// The size of the server's texts in bytes.
    pub(super) fn size(&self) -> usize {
        let of = |list: &KeptPages| {
            list.pages
                .iter()
                .map(|page| page.get().len())
                .sum::<usize>()
        };
        self.description.get().len() + self.lists.values().map(of).sum::<usize>()
    }

    /// The record's contents, if the server still has this definition.
    pub(super) fn contents(
        self,
        definition: &Definition,
        longest: usize,
    ) -> Result<Contents, Unusable> {
        if self.definition != *definition {
            return Err(Unusable::OtherDefinition);
        }
        if self.size() > longest {
            return Err(Unusable::TooLarge(longest));
        }
        let known = KnownServer {
            revision: Revision::from_name(&self.revision).ok_or(Unusable::Invalid("revision"))?,
            description: object(&self.description)
                .ok_or(Unusable::Invalid("description"))?
                .into(),
        };
        let mut lists = HashMap::new();
        for kind in ListKind::ALL {
            if let Some(list) = self.lists.get(kind.member()) {
                lists.insert(kind, list.list().ok_or(Unusable::Invalid("list"))?);
            }
        }
        Ok(Contents { known, lists })
    }

    /// The kinds of stored lists, each with its time of reading in milliseconds since 1970.
    pub fn read(&self) -> BTreeMap<&str, u64> {
        self.lists
            .iter()
            .map(|(kind, list)| (kind.as_str(), list.read_ms))
            .collect()
    }
}

impl KeptPages {
    fn list(&self) -> Option<KeptList> {
        Some(KeptList {
            pages: self
                .pages
                .iter()
                .map(|page| object(page))
                .collect::<Option<_>>()?,
            declared: object(&self.declared)?,
            read: UNIX_EPOCH.checked_add(Duration::from_millis(self.read_ms))?,
        })
    }
}

fn raw(json: &Json) -> Option<Box<RawValue>> {
    RawValue::from_string(json.as_text().to_owned()).ok()
}

/// A copy of an object in memory of its own, so that later changes of other lists free the old
/// text.
fn object(raw: &RawValue) -> Option<Json> {
    let json = Json::parse(Bytes::copy_from_slice(raw.get().as_bytes()), MAX_NESTING).ok()?;
    Some(json).filter(Json::is_object)
}

/// A digest of a server's name and definition with all values expanded. It is stored encrypted, and
/// reveals none of the secrets among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Definition(String);

impl Definition {
    pub(super) fn new(server: &Server) -> Self {
        let mut transport = server.transport.clone();
        if let Transport::Stdio { env, .. } = &mut transport {
            // The order of variables does not matter.
            env.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        let mut digest = HashedBytes(Vec::new());
        (&server.name, transport, server.era).hash(&mut digest);
        // The session policy decides which client capabilities the server sees when its lists are
        // read.
        (server.session, &server.inherit_env).hash(&mut digest);
        server.sandbox.sandbox(&[]).hash(&mut digest);
        Self(sha256_hex(digest.0))
    }
}

/// The bytes of values, which delimit themselves. Another build of Fanlight may get others; then
/// lists are read again.
struct HashedBytes(Vec<u8>);

impl Hasher for HashedBytes {
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    fn finish(&self) -> u64 {
        0
    }
}
