//! The file of one server: a line that names the format, the digest of the server's definition and an authentication code of
//! the rest, then one JSON object.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac::{self, Key};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use fanlight_backend::KnownServer;
use fanlight_gateway::KeptList;
use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::Revision;
use fanlight_protocol::json::{ArrayBuilder, Json, MAX_NESTING, ObjectBuilder};
use fanlight_protocol::result::ResultView as _;

use super::definition::{Definition, verifies};

/// The format, with its version.
const FORMAT: &str = "fanlight-lists/1";
/// The longest first line.
const LONGEST_LINE: usize = 256;

/// What a file has.
pub(super) struct Contents {
    pub(super) known: KnownServer,
    pub(super) lists: HashMap<ListKind, KeptList>,
}

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("{0}")]
    Unreadable(String),
    #[error("it is not in the format {FORMAT}")]
    Format,
    #[error("it is of a server that was defined differently")]
    OtherDefinition,
    #[error("it was cut off, changed, or written with another key")]
    Damaged,
    #[error("its {0} is not valid")]
    Invalid(&'static str),
}

/// The name of a server's file.
pub(super) fn name_of(server: &str) -> String {
    let digest = digest(&SHA256, server.as_bytes());
    format!("{}.lists", HEXLOWER.encode(digest.as_ref().get(..16).unwrap_or_default()))
}

/// The text of a file.
pub(super) fn encode(
    server: &str,
    definition: &Definition,
    known: &KnownServer,
    lists: &HashMap<ListKind, KeptList>,
    key: &Key,
) -> Vec<u8> {
    let mut each = ObjectBuilder::new();
    for (kind, list) in ListKind::ALL.into_iter().filter_map(|kind| Some((kind, lists.get(&kind)?))) {
        let mut pages = ArrayBuilder::default();
        for page in &list.pages {
            pages.push(page);
        }
        let read = list.read.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        let mut object = ObjectBuilder::new();
        object.integer("readMs", i64::try_from(read).unwrap_or(i64::MAX)).member("declared", &list.declared);
        object.member("pages", &pages.finish());
        each.member(kind.member(), &object.finish());
    }
    let mut object = ObjectBuilder::new();
    object.string("server", server).string("revision", known.revision.as_str());
    object.member("description", known.description.json()).member("lists", &each.finish());
    let object = object.finish();
    let (definition, content) = (definition.text(), object.bytes());
    let code = hmac::sign(key, &[FORMAT.as_bytes(), definition.as_bytes(), content].concat());
    let line = format!("{FORMAT} {definition} {}\n", HEXLOWER.encode(code.as_ref()));
    [line.as_bytes(), content].concat()
}

/// What a file says, if it is of this server, and this process or an earlier one with the same key has written it.
pub(super) fn decode(bytes: Vec<u8>, server: &str, definition: &Definition, key: &Key) -> Result<Contents, Unusable> {
    let bytes = Bytes::from(bytes);
    let end = bytes.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n').ok_or(Unusable::Format)?;
    let line = std::str::from_utf8(bytes.get(..end).unwrap_or_default()).map_err(|_| Unusable::Format)?;
    let mut words = line.split(' ');
    let (Some(FORMAT), Some(of), Some(code), None) = (words.next(), words.next(), words.next(), words.next()) else {
        return Err(Unusable::Format);
    };
    let content = bytes.slice(end + 1..);
    let code = HEXLOWER.decode(code.as_bytes()).map_err(|_| Unusable::Damaged)?;
    if !verifies(key, &[FORMAT.as_bytes(), of.as_bytes(), &content], &code) {
        return Err(Unusable::Damaged);
    }
    if of != definition.text() {
        return Err(Unusable::OtherDefinition);
    }
    let object = Json::parse(content, MAX_NESTING).map_err(|_| Unusable::Damaged)?;
    if object.get("server").and_then(|name| name.as_str().map(|name| name == server)) != Some(true) {
        return Err(Unusable::Invalid("server"));
    }
    let revision = object.get("revision").and_then(|name| Revision::from_name(&name.as_str()?));
    let description = object.get("description").filter(Json::is_object).map(|it| it.detached());
    let known = KnownServer {
        revision: revision.ok_or(Unusable::Invalid("revision"))?,
        description: description.ok_or(Unusable::Invalid("description"))?.into(),
    };
    let all = object.get("lists").ok_or(Unusable::Invalid("lists"))?;
    let mut lists = HashMap::new();
    for kind in ListKind::ALL {
        if let Some(list) = all.get(kind.member()) {
            lists.insert(kind, list_of(&list).ok_or(Unusable::Invalid("list"))?);
        }
    }
    Ok(Contents { known, lists })
}

fn list_of(list: &Json) -> Option<KeptList> {
    let read = u64::try_from(list.get("readMs")?.as_i64()?).ok()?;
    let pages = list.get("pages")?;
    // Each has its own memory, so that one that is read again does not keep that of all.
    let pages: Vec<_> = pages.elements().map(|page| pages.slice(page).detached()).collect();
    if !pages.iter().all(Json::is_object) {
        return None;
    }
    Some(KeptList {
        pages,
        declared: list.get("declared").filter(Json::is_object)?.detached(),
        read: SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(read))?,
    })
}
