//! Pinned definitions: the approved ones, and how others are treated.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{DefinitionGuard, PolicyKind};
use fanlight_config::{Config, PinMode};
use fanlight_fair::LogLimit;
use fanlight_gateway::catalogue::ListKind;
use fanlight_gateway::pins::{Definition, INSTRUCTIONS, ItemKey, Lock, LockedKind, Pinned};
use fanlight_protocol::json::Unreadable;
use fanlight_protocol::{Json, Sha256, sha256_of_parts};
use fanlight_record::{AuditEvent, PinnedDefinition, Record};
use parking_lot::Mutex;
use serde::Serialize;

use crate::replace::{self, NewFile};

/// How many comparisons are remembered of one server before the older ones are dropped. A server
/// may have this many definitions before each list compares them again.
const REMEMBERED: usize = 20_000;
/// The limit of lines that one server causes in the audit log and the log within [`WINDOW`]: it can
/// change its definitions as often as it likes.
const LINES: u32 = 100;
const WINDOW: Duration = Duration::from_secs(3600);
/// The word for a definition that two programs could read differently.
const UNREADABLE: &str = "unreadable";
/// The word for a definition that was never approved.
pub const NEW: &str = "new";

/// Servers' current definitions.
pub type Definitions = BTreeMap<ItemKey, Result<Definition, Unreadable>>;

/// Approved definitions, and their comparison with the current ones.
#[derive(Debug)]
pub struct Pins {
    mode: PinMode,
    path: PathBuf,
    lock: Lock,
    number: u64,
    /// The comparisons that have been made, by server.
    seen: Mutex<HashMap<String, Seen>>,
    /// Limits the lines that a server can cause.
    lines: LogLimit,
    record: Arc<dyn Record>,
}

/// The digest of a definition's text, its kind and its name.
type Fingerprint = Sha256;

/// The comparisons of one server's definitions: whether clients may see them. Digests alone, since
/// the server decides how long its definitions are and how many there are. Definitions that are no
/// longer listed are dropped when enough others have come.
#[derive(Debug, Default)]
struct Seen {
    young: HashMap<Fingerprint, bool>,
    old: HashMap<Fingerprint, bool>,
}

impl Seen {
    fn get(&mut self, fingerprint: &Fingerprint) -> Option<bool> {
        if let Some(known) = self.young.get(fingerprint) {
            return Some(*known);
        }
        let known = self.old.remove(fingerprint)?;
        self.insert(*fingerprint, known);
        Some(known)
    }

    fn insert(&mut self, fingerprint: Fingerprint, is_admitted: bool) {
        if self.young.len() >= REMEMBERED {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(fingerprint, is_admitted);
    }
}

/// The difference between a definition and the approved one.
#[derive(Clone, Debug)]
struct Objection<'a> {
    /// [`NEW`], [`UNREADABLE`], or the severity of the differences.
    what: &'static str,
    /// A line about each difference.
    reasons: Vec<String>,
    /// The approved definition.
    approved: Option<&'a Pinned>,
    /// The server's current definition; `None` if it is unreadable.
    offered: Option<&'a Definition>,
}

/// An objection for operators.
#[derive(Serialize)]
struct Shown<'a> {
    /// `None` if nobody can approve the definition.
    id: Option<String>,
    server: &'a str,
    kind: &'static str,
    name: &'a str,
    what: &'static str,
    reasons: Vec<String>,
    approved: Option<&'a Definition>,
    offered: Option<&'a Definition>,
}

#[derive(Serialize)]
struct AllShown<'a> {
    held: bool,
    definitions: Vec<Shown<'a>>,
}

/// The difference between a definition and the approved one, if any: a word, and a line about each
/// part.
pub fn difference(
    approved: Option<&Pinned>,
    offered: &Result<Definition, Unreadable>,
) -> Option<(&'static str, Vec<String>)> {
    Some(match (approved, offered) {
        (_, Err(unreadable)) => (UNREADABLE, vec![unreadable.to_string()]),
        (None, Ok(_)) => (NEW, Vec::new()),
        (Some(pinned), Ok(offered)) => {
            let (severity, lines) = pinned.definition.difference(offered)?;
            (severity.as_str(), lines)
        }
    })
}

/// The id by which operators name a definition that they have seen. Another definition of the same
/// item has another id.
fn id_of(key: &ItemKey, offered: &Definition) -> String {
    let ItemKey { server, kind, name } = key;
    let digest = sha256_of_parts([server, kind.as_str(), name, offered.text().as_text()]);
    data_encoding::HEXLOWER.encode(&digest)
}

/// Writes the file with approved definitions as a whole. Anybody may read it, like the files beside
/// it.
///
/// # Errors
///
/// If writing fails; the previous file then stays.
pub fn write(path: &Path, lock: &Lock) -> io::Result<()> {
    replace::replace(path, &lock.to_text(), NewFile::OfAll)
}

/// The kinds of lists, each with the kind of pin.
pub fn locked_lists() -> impl Iterator<Item = (ListKind, LockedKind)> {
    ListKind::ALL
        .into_iter()
        .filter_map(|kind| Some((kind, locked_kind(kind.policy_kind())?)))
}

/// The kind of pin for this kind of item; `None` if it cannot be pinned.
fn locked_kind(kind: PolicyKind) -> Option<LockedKind> {
    match kind {
        PolicyKind::Tool => Some(LockedKind::Tools),
        PolicyKind::Prompt => Some(LockedKind::Prompts),
        PolicyKind::Resource => Some(LockedKind::Resources),
        PolicyKind::Template => Some(LockedKind::ResourceTemplates),
        PolicyKind::Skill => Some(LockedKind::Skills),
        PolicyKind::Method | PolicyKind::Server => None,
    }
}

/// Checks that a configuration's pins can be used.
///
/// # Errors
///
/// If the file is missing, or cannot be used.
pub fn check(config: &Config) -> Result<(), String> {
    read(config).map(drop)
}

/// The pins of a configuration; `None` if it has none. Differences from the pins `before` are
/// written to the audit log as approvals.
///
/// # Errors
///
/// If the file is missing, or cannot be used.
pub fn load(
    config: &Config,
    before: Option<&Arc<Pins>>,
    record: &Arc<dyn Record>,
) -> Result<Option<Arc<Pins>>, String> {
    let Some((mode, lock, number)) = read(config)? else {
        return Ok(None);
    };
    let (path, record) = (PathBuf::from(&config.pins.path), Arc::clone(record));
    let pins = Pins {
        mode,
        path,
        lock,
        number,
        seen: Mutex::default(),
        lines: LogLimit::new(LINES, WINDOW),
        record,
    };
    before
        .iter()
        .for_each(|before| pins.tell_of_approvals(&before.lock));
    Ok(Some(Arc::new(pins)))
}

/// The mode, the approved definitions and their digest from a configuration; `None` if it has no
/// pins.
fn read(config: &Config) -> Result<Option<(PinMode, Lock, u64)>, String> {
    let options = &config.pins;
    let Some(mode) = options.mode else {
        return Ok(None);
    };
    let text = options.text.as_ref().ok_or_else(|| {
        format!(
            "`pins` needs {}, which does not exist: `fanlight pin` writes it",
            options.path
        )
    })?;
    let lock = Lock::parse(text).map_err(|error| format!("{}: {error}", options.path))?;
    let mut hasher = DefaultHasher::new();
    (text, mode == PinMode::Hold).hash(&mut hasher);
    Ok(Some((mode, lock, hasher.finish())))
}

impl Pins {
    /// Writes changes of the pins since `before` to the audit log.
    fn tell_of_approvals(&self, before: &Lock) {
        let of = |lock: &Lock, key: &ItemKey| {
            lock.get(&key.server, key.kind, &key.name)
                .map(|pinned| pinned.digest.clone())
        };
        let approved = self
            .lock
            .all()
            .filter(|(key, pinned)| of(before, key).as_ref() != Some(&pinned.digest));
        approved.for_each(|(key, _)| self.tell(&key, "approved", None, 0));
        let gone = before
            .all()
            .filter(|(key, _)| of(&self.lock, key).is_none());
        gone.for_each(|(key, _)| self.tell(&key, "unpinned", None, 0));
    }

    fn tell(
        &self,
        key: &ItemKey,
        outcome: &'static str,
        objection: Option<&Objection<'_>>,
        omitted: u64,
    ) {
        let ItemKey { server, kind, name } = key;
        let pinned = PinnedDefinition {
            server,
            kind: kind.as_str(),
            name,
            outcome,
            change: objection.map(|objection| objection.what),
            reasons: objection.map_or(&[], |objection| &objection.reasons),
            omitted,
        };
        // Clients get the definition even if the audit log cannot be written.
        let _ = self.record.record(&AuditEvent::Definition(pinned));
    }

    /// The state of pins for operators, as JSON. `known` are the servers' current definitions.
    pub fn to_json(&self, known: &Definitions) -> String {
        let shown = |(key, offered)| {
            let objection = self.objection(key, offered)?;
            let ItemKey { server, kind, name } = key;
            Some(Shown {
                id: objection.offered.map(|offered| id_of(key, offered)),
                server,
                kind: kind.as_str(),
                name,
                what: objection.what,
                reasons: objection.reasons,
                approved: objection.approved.map(|pinned| &pinned.definition),
                offered: objection.offered,
            })
        };
        let all = AllShown {
            held: self.holds(),
            definitions: known.iter().filter_map(shown).collect(),
        };
        serde_json::to_string(&all).unwrap_or_default()
    }

    /// The item to approve with this id, and a function that writes the approval.
    pub fn approval(
        &self,
        id: &str,
        known: &Definitions,
    ) -> Option<(String, impl FnOnce() -> io::Result<()> + Send + use<>)> {
        let (about, lock) = self.approved(id, known)?;
        let path = self.path.clone();
        Some((about, move || write(&path, &lock)))
    }

    /// The item to approve with this id, and all approved definitions including it.
    pub fn approved(&self, id: &str, known: &Definitions) -> Option<(String, Lock)> {
        let mut objected = known.iter().filter_map(|(key, offered)| {
            let offered = self.objection(key, offered)?.offered?;
            Some((key, offered))
        });
        let (key, offered) = objected.find(|(key, offered)| id_of(key, offered) == id)?;
        let mut lock = self.lock.clone();
        lock.pin(key, offered);
        Some((key.to_string(), lock))
    }

    /// Whether unapproved definitions are withheld from clients.
    fn holds(&self) -> bool {
        self.mode == PinMode::Hold
    }

    /// The difference between a definition and the approved one, if any.
    fn objection<'a>(
        &'a self,
        key: &ItemKey,
        offered: &'a Result<Definition, Unreadable>,
    ) -> Option<Objection<'a>> {
        if !self.lock.has_server(&key.server) {
            return None;
        }
        let approved = self.lock.get(&key.server, key.kind, &key.name);
        let (what, reasons) = difference(approved, offered)?;
        Some(Objection {
            what,
            reasons,
            approved,
            offered: offered.as_ref().ok(),
        })
    }

    /// Whether clients may see a definition.
    fn admits_locked(&self, kind: LockedKind, server: &str, name: &str, text: &Json) -> bool {
        if !self.lock.has_server(server) {
            return true;
        }
        let fingerprint = sha256_of_parts([kind.as_str(), name, text.as_text()]);
        let known = self
            .seen
            .lock()
            .get_mut(server)
            .and_then(|seen| seen.get(&fingerprint));
        if let Some(is_admitted) = known {
            return is_admitted;
        }
        let key = ItemKey {
            server: server.to_owned(),
            kind,
            name: name.to_owned(),
        };
        let offered = Definition::parse(text);
        let objection = self.objection(&key, &offered);
        // Even to warn of a definition, it has to be known what it says.
        let is_admitted = objection
            .as_ref()
            .is_none_or(|objection| !self.holds() && objection.what != UNREADABLE);
        if let Some(objection) = &objection
            && let Some(omitted) = self.lines.admit(server)
        {
            let outcome = if is_admitted { "passed" } else { "held" };
            self.tell(&key, outcome, Some(objection), omitted);
        }
        self.seen
            .lock()
            .entry(key.server)
            .or_default()
            .insert(fingerprint, is_admitted);
        is_admitted
    }
}

impl DefinitionGuard for Pins {
    fn number(&self) -> u64 {
        self.number
    }

    fn can_withhold(&self) -> bool {
        self.holds()
    }

    fn admits(&self, kind: PolicyKind, server: &str, name: &str, definition: &Json) -> bool {
        locked_kind(kind).is_none_or(|kind| self.admits_locked(kind, server, name, definition))
    }

    fn admits_instructions(&self, server: &str, instructions: &Json) -> bool {
        self.admits_locked(LockedKind::Instructions, server, INSTRUCTIONS, instructions)
    }
}
