//! Pinned definitions: the approved ones, and how others are treated.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{Digest, SHA256, digest as sha256};
use fanlight_canonical::{DefinitionGuard, PolicyKind};
use fanlight_config::{Config, PinMode};
use fanlight_gateway::catalogue::ListKind;
use fanlight_gateway::pins::{Difference, ItemKey, Lock, LockedKind, canonical, digest};
use fanlight_protocol::Json;
use fanlight_record::{AuditEvent, PinnedDefinition, Record};
use serde_json::{Value, json};

use crate::replace::{self, NewFile};

/// The limit of items whose comparison is cached.
const KNOWN: usize = 50_000;

/// Approved definitions, and their comparison with the current ones.
#[derive(Debug)]
pub struct Pins {
    mode: PinMode,
    path: PathBuf,
    lock: Lock,
    number: u64,
    seen: Mutex<HashMap<ItemKey, Seen>>,
    record: Arc<dyn Record>,
}

/// The result of comparing a current definition.
#[derive(Clone, Debug)]
struct Seen {
    /// The digest of the definition's text.
    fingerprint: Digest,
    /// The difference; `None` if the definition is as approved, or its server is not pinned.
    objection: Option<Objection>,
}

/// The difference between a definition and the approved one.
#[derive(Clone, Debug)]
struct Objection {
    /// `new`, `text`, `compatible` or `breaking`.
    what: &'static str,
    /// The differences in words.
    reasons: Vec<String>,
    /// The approved definition.
    approved: Option<Value>,
    /// The server's current definition.
    offered: Value,
}

/// The id by which operators name a definition that they have seen. Another definition of the same
/// item has another id.
fn id_of(key: &ItemKey, offered: &Value) -> String {
    digest(&json!([key.server, key.kind.noun(), key.name, offered]))
}

/// Writes the file with approved definitions as a whole. Anybody may read it, like the files beside
/// it.
///
/// # Errors
///
/// If writing fails; the previous file then stays.
pub fn write(path: &Path, lock: &Lock) -> io::Result<()> {
    replace::replace(path, &lock.written(), NewFile::OfAll)
}

/// The kinds of lists that have pinned definitions, each with the kind of pin.
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
        PolicyKind::Template => Some(LockedKind::ResourceTemplates),
        PolicyKind::Resource | PolicyKind::Skill | PolicyKind::Server => None,
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
pub fn of(
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
    /// The definitions that differ from the approved ones, in order.
    fn objections(&self) -> Vec<(ItemKey, Objection)> {
        let seen = self.seen();
        let mut all: Vec<_> = seen
            .iter()
            .filter_map(|(key, seen)| Some((key.clone(), seen.objection.clone()?)))
            .collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

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
        approved.for_each(|(key, _)| self.tell(&key, "approved", None, &[]));
        let gone = before
            .all()
            .filter(|(key, _)| of(&self.lock, key).is_none());
        gone.for_each(|(key, _)| self.tell(&key, "unpinned", None, &[]));
    }

    fn tell(
        &self,
        key: &ItemKey,
        outcome: &'static str,
        change: Option<&'static str>,
        reasons: &[String],
    ) {
        let ItemKey { server, kind, name } = key;
        let pinned = PinnedDefinition {
            server,
            kind: kind.noun(),
            name,
            outcome,
            change,
            reasons,
        };
        // Clients get the definition even if the audit log cannot be written.
        let _ = self.record.record(&AuditEvent::Definition(pinned));
    }

    /// The state of pins for operators.
    pub fn to_json(&self) -> Value {
        let definitions: Vec<_> = self
            .objections()
            .into_iter()
            .map(|(key, Objection { what, reasons, approved, offered })| {
                json!({
                    "id": id_of(&key, &offered), "server": key.server, "kind": key.kind.noun(), "name": key.name, "what": what,
                    "reasons": reasons, "approved": approved, "offered": offered,
                })
            })
            .collect();
        json!({ "held": self.holds(), "definitions": definitions })
    }

    /// The item to approve with this id, and a function that writes the approval.
    pub fn approval(
        &self,
        id: &str,
    ) -> Option<(String, impl FnOnce() -> io::Result<()> + Send + use<>)> {
        let (about, lock) = self.approved(id)?;
        let path = self.path.clone();
        Some((about, move || write(&path, &lock)))
    }

    /// The item to approve with this id, and all approved definitions including it.
    pub fn approved(&self, id: &str) -> Option<(String, Lock)> {
        let mut objections = self.objections().into_iter();
        let (key, objection) =
            objections.find(|(key, objection)| id_of(key, &objection.offered) == id)?;
        let mut lock = self.lock.clone();
        lock.pin(&key, &objection.offered);
        Some((key.to_string(), lock))
    }

    /// Whether unapproved definitions are withheld from clients.
    fn holds(&self) -> bool {
        self.mode == PinMode::Hold
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<ItemKey, Seen>> {
        // Nothing that can panic runs under this lock.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The difference between a definition and the approved one, if any.
    fn objection(&self, key: &ItemKey, definition: &Json) -> Option<Objection> {
        if !self.lock.has_server(&key.server) {
            return None;
        }
        // An unreadable definition cannot be the approved one.
        let offered: Value = serde_json::from_str(definition.as_text()).unwrap_or_default();
        let approved = self.lock.get(&key.server, key.kind, &key.name);
        let (what, reasons) = match approved {
            None => ("new", Vec::new()),
            Some(pinned) => {
                let Difference { change, reasons } = pinned.difference(&offered)?;
                (change.as_str(), reasons)
            }
        };
        let approved = approved.map(|pinned| pinned.definition.clone());
        Some(Objection {
            what,
            reasons,
            approved,
            offered: canonical(&offered),
        })
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
        let Some(kind) = locked_kind(kind) else {
            return true;
        };
        let key = ItemKey {
            server: server.to_owned(),
            kind,
            name: name.to_owned(),
        };
        // The server chooses the text, so a cryptographic digest is needed: no other text may have
        // the same one.
        let fingerprint = sha256(&SHA256, definition.bytes());
        if let Some(known) = self
            .seen()
            .get(&key)
            .filter(|seen| seen.fingerprint.as_ref() == fingerprint.as_ref())
        {
            return known.objection.is_none() || !self.holds();
        }
        let objection = self.objection(&key, definition);
        let is_admitted = objection.is_none() || !self.holds();
        if let Some(Objection { what, reasons, .. }) = &objection {
            self.tell(
                &key,
                if self.holds() { "held" } else { "passed" },
                Some(what),
                reasons,
            );
        }
        let mut seen = self.seen();
        if seen.len() < KNOWN || seen.contains_key(&key) {
            seen.insert(
                key,
                Seen {
                    fingerprint,
                    objection,
                },
            );
        }
        is_admitted
    }
}
