//! Definitions of servers that are pinned: what was approved, and what becomes of the rest.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{Digest, SHA256, digest as sha256};
use fanlight_audit::{AuditEvent, PinnedDefinition, Record};
use fanlight_canonical::{DefinitionGuard, PolicyKind};
use fanlight_config::{Config, PinMode};
use fanlight_gateway::catalogue::ListKind;
use fanlight_pins::{Difference, ItemKey, Lock, LockedKind, canonical, digest};
use fanlight_protocol::Json;
use serde_json::{Value, json};

use crate::replace::{self, NewFile};

/// Items of which it is known how they compare.
const KNOWN: usize = 50_000;

/// Definitions that were approved, and those that servers list now.
#[derive(Debug)]
pub(crate) struct Pins {
    mode: PinMode,
    path: PathBuf,
    lock: Lock,
    number: u64,
    seen: Mutex<HashMap<ItemKey, Seen>>,
    record: Arc<dyn Record>,
}

/// How a definition of now compares.
#[derive(Clone, Debug)]
struct Seen {
    /// Of its text.
    fingerprint: Digest,
    /// `None` for one that is as it was approved, or whose server is not pinned.
    objection: Option<Objection>,
}

/// Why a definition is not as approved.
#[derive(Clone, Debug)]
struct Objection {
    /// `new`, `text`, `compatible` or `breaking`.
    what: &'static str,
    /// What differs.
    reasons: Vec<String>,
    /// What was approved.
    approved: Option<Value>,
    /// What the server says now.
    offered: Value,
}

/// By what operators name a definition that they have seen: another one of the same item has another id.
fn id_of(key: &ItemKey, offered: &Value) -> String {
    digest(&json!([key.server, key.kind.noun(), key.name, offered]))
}

/// Writes the file with what was approved, as a whole. Anybody may read it, as files beside it.
///
/// # Errors
///
/// If that cannot be done; then it is as before.
pub(crate) fn write(path: &Path, lock: &Lock) -> io::Result<()> {
    replace::replace(path, &lock.written(), NewFile::OfAll)
}

/// The lists with what is pinned, and what that is.
pub(crate) fn locked_lists() -> impl Iterator<Item = (ListKind, LockedKind)> {
    ListKind::ALL
        .into_iter()
        .filter_map(|kind| Some((kind, locked_kind(kind.policy_kind())?)))
}

/// What pins a definition of this kind; `None` if nothing does.
fn locked_kind(kind: PolicyKind) -> Option<LockedKind> {
    match kind {
        PolicyKind::Tool => Some(LockedKind::Tools),
        PolicyKind::Prompt => Some(LockedKind::Prompts),
        PolicyKind::Template => Some(LockedKind::ResourceTemplates),
        PolicyKind::Resource | PolicyKind::Skill | PolicyKind::Server => None,
    }
}

/// Whether the pins of a configuration can be used.
///
/// # Errors
///
/// If the file is missing, or cannot be used.
pub(crate) fn check(config: &Config) -> Result<(), String> {
    read(config).map(drop)
}

/// The pins of a configuration; `None` if it wants none. What was approved since those `before` is put on record.
///
/// # Errors
///
/// If the file is missing, or cannot be used.
pub(crate) fn of(
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

/// What a configuration says of pins, and what tells it from others; `None` if it wants none.
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
    /// The definitions that are not as approved, in order.
    fn objections(&self) -> Vec<(ItemKey, Objection)> {
        let seen = self.seen();
        let mut all: Vec<_> = seen
            .iter()
            .filter_map(|(key, seen)| Some((key.clone(), seen.objection.clone()?)))
            .collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }

    /// Puts on record what is pinned otherwise than before.
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
        // Whether clients get it does not depend on the record.
        let _ = self.record.record(&AuditEvent::Definition(pinned));
    }

    /// What operators are shown.
    pub(crate) fn to_json(&self) -> Value {
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

    /// What is approved under an id, and what writes that.
    pub(crate) fn approval(
        &self,
        id: &str,
    ) -> Option<(String, impl FnOnce() -> io::Result<()> + Send + use<>)> {
        let (about, lock) = self.approved(id)?;
        let path = self.path.clone();
        Some((about, move || write(&path, &lock)))
    }

    /// What is approved under an id, and all that is approved then.
    pub(crate) fn approved(&self, id: &str) -> Option<(String, Lock)> {
        let mut objections = self.objections().into_iter();
        let (key, objection) =
            objections.find(|(key, objection)| id_of(key, &objection.offered) == id)?;
        let mut lock = self.lock.clone();
        lock.pin(&key, &objection.offered);
        Some((key.to_string(), lock))
    }

    /// Whether they are kept from clients.
    fn holds(&self) -> bool {
        self.mode == PinMode::Hold
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<ItemKey, Seen>> {
        // Nothing that can panic runs under this lock.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why a definition is not as approved.
    fn objection(&self, key: &ItemKey, definition: &Json) -> Option<Objection> {
        if !self.lock.has_server(&key.server) {
            return None;
        }
        // What cannot be read was not approved.
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
        // The server chooses the text: no other one may have the same.
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
