//! The store: records of users, of authorization servers and of servers' lists in one file in `stateDir`, or in common with other
//! processes, each sealed for whom and what it is about, so that one that is moved within the file does not open.

mod common;
mod database;

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{fmt, fs};

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::HEXLOWER;
use fanlight_protocol::seal::{Keys, Seal};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::warn;
use zeroize::Zeroizing;

pub use self::common::{CommonEntries, CommonError, Exchange, Exchanged, Pending};
pub(crate) use self::database::seconds;
use self::database::{Change, Database, Entry, SET_ASIDE};
pub use self::database::{FILE, Kind, Lease, Stamp};
use crate::folder::Folder;
use crate::sealing_key::{KeyPlace, Keyring, SealingKeyError, keys_of};

/// What records are sealed for.
const PURPOSE: &[u8] = b"record in stateDir: ";
/// How long one operation may wait for others and for the disk.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// Most records in an export.
const MOST_EXPORTED: usize = 1_000_000;

/// What is kept of one thing.
pub trait Record: Serialize + DeserializeOwned + Send + 'static {
    /// What it is.
    const KIND: Kind;

    /// The issuer that it is about, if any: sealed with it.
    fn issuer(&self) -> &str;

    /// When it is of no use any more, in seconds since 1970.
    fn useless_after(&self) -> Option<u64> {
        None
    }
}

/// Whom a record belongs to, and which server it is for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    principal: Arc<[u8]>,
    server: Arc<str>,
}

impl Owner {
    /// The records of a principal ([`to_bytes`](fanlight_identity::Principal::to_bytes)) for a server.
    #[must_use]
    pub fn new(principal: &[u8], server: &str) -> Self {
        Self {
            principal: principal.into(),
            server: server.into(),
        }
    }

    /// The records that belong to Fanlight itself, by what they are about.
    #[must_use]
    pub fn nobody(about: &str) -> Self {
        Self::new(&[], about)
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The principal's bytes.
    #[must_use]
    pub fn principal(&self) -> &[u8] {
        &self.principal
    }

    /// The name of the record: it does not tell who the principal is.
    fn name(&self) -> String {
        format!("{}{}", prefix(&self.principal), self.server)
    }

    /// What a record is sealed with: whom and what it is about.
    fn bound(&self, kind: Kind, issuer: &str) -> Vec<u8> {
        let length = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes();
        let (kind, server) = (kind.as_str().as_bytes(), self.server.as_bytes());
        let parts = [kind, &self.principal, server, issuer.as_bytes()];
        parts
            .into_iter()
            .flat_map(|part| length(part).into_iter().chain(part.iter().copied()))
            .collect()
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// How the names of all records of a principal begin.
fn prefix(principal: &[u8]) -> String {
    format!("{}/", HEXLOWER.encode(digest(&SHA256, principal).as_ref()))
}

/// A record that one process is to have for itself for a time.
#[derive(Debug)]
pub enum Leased<T> {
    /// There is none.
    Nothing,
    /// It is this process's, under this lease.
    Ours(T, Lease),
    /// Another process has it.
    Others,
}

/// What becomes of a record when a lease of it ends.
#[derive(Clone, Copy, Debug)]
pub enum LeaseOutcome<T> {
    /// It becomes this one.
    Replace(T),
    /// It is removed.
    Remove,
    /// It stays as it is.
    Keep,
}

/// One record of an export.
#[derive(Debug)]
pub struct Exported<T> {
    /// Whom it belongs to.
    pub owner: Owner,
    /// The record.
    pub record: T,
}

/// Why something was not read or kept. The texts are for operators.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened, read or written.
    #[error("the file {FILE} in stateDir cannot be used: {0}")]
    File(String),
    /// An entry is not in the form that is written.
    #[error("the file {FILE} in stateDir is damaged")]
    Damaged,
    /// What all processes have in common cannot be reached, or is damaged.
    #[error("what users have granted cannot be used: {0}")]
    Common(String),
    /// Others use it.
    #[error("the file {FILE} in stateDir did not answer within {} s", LONGEST_WAIT.as_secs())]
    Busy,
    /// There are too many entries.
    #[error("stateDir holds as many records of the kind {kind:?} as it may")]
    Full {
        /// The kind.
        kind: &'static str,
    },
    /// A record is too large.
    #[error("a record is larger than stateDir may keep")]
    TooLarge,
    /// They are to be removed on record, and cannot be opened.
    #[error(
        "not removed: {0} of the records of users cannot be opened, and the audit record has to name each user; have `keys` \
         include the key with which they were sealed, or unlock the system's keyring"
    )]
    Unnamed(usize),
    /// It cannot be sealed.
    #[error("cannot seal a record")]
    Seal,
    /// There is no key to seal with.
    #[error(transparent)]
    Key(SealingKeyError),
}

impl<E: Into<redb::Error>> From<E> for StoreError {
    fn from(error: E) -> Self {
        Self::File(error.into().to_string())
    }
}

/// The records. Clones share one file.
#[derive(Clone)]
pub struct Store(Arc<Shared>);

struct Shared {
    place: Place,
    key: KeyPlace,
    keys: Keys,
    seal: Seal,
}

/// Where the entries are.
#[derive(Clone)]
enum Place {
    File {
        database: Arc<Database>,
        /// One operation blocks at a time, so that a slow disk takes one thread alone.
        turn: Arc<Semaphore>,
    },
    Common(Arc<dyn CommonEntries>),
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

impl Store {
    /// Opens the store in a folder for records of users. It seals with the first of `keys`, else with a key in the keyring,
    /// else with one of the folder. Blocks.
    ///
    /// # Errors
    ///
    /// If the file or its key cannot be used. A file that is damaged is set aside, and logged as an error.
    pub fn open(folder: &Folder, keys: &Keys, keyring: &dyn Keyring) -> Result<Self, StoreError> {
        Self::of_lists(folder, keys)?.for_users(folder, keys, keyring)
    }

    /// Opens the store in a folder for what is kept of servers. It seals with the first of `keys`, else with one of the folder:
    /// no keyring is asked for what is worth no secret. Blocks.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn of_lists(folder: &Folder, keys: &Keys) -> Result<Self, StoreError> {
        let key = if keys.is_empty() {
            KeyPlace::File
        } else {
            KeyPlace::Configuration
        };
        let keys = keys.followed_by(folder.sealing_key());
        let seal = Seal::new(&keys, PURPOSE).map_err(|_| StoreError::Seal)?;
        let database = Arc::new(Database::open(folder)?);
        let place = Place::File {
            database,
            turn: Arc::new(Semaphore::new(1)),
        };
        Ok(Self(Arc::new(Shared {
            place,
            key,
            keys,
            seal,
        })))
    }

    /// This store, as it is [opened](Self::open) for records of users. Blocks.
    ///
    /// # Errors
    ///
    /// If the key cannot be used.
    pub fn for_users(
        &self,
        folder: &Folder,
        keys: &Keys,
        keyring: &dyn Keyring,
    ) -> Result<Self, StoreError> {
        let Place::File { database, .. } = &self.0.place else {
            return Ok(self.clone());
        };
        let (keys, key) =
            keys_of(folder, has_users(database), keys, keyring).map_err(StoreError::Key)?;
        let seal = Seal::new(&keys, PURPOSE).map_err(|_| StoreError::Seal)?;
        Ok(Self(Arc::new(Shared {
            place: self.0.place.clone(),
            key,
            keys,
            seal,
        })))
    }

    /// Where the key is that seals.
    #[must_use]
    pub fn key(&self) -> KeyPlace {
        self.0.key
    }

    /// The store that several processes have in common. They have the same keys.
    ///
    /// # Errors
    ///
    /// If a key cannot be used.
    pub fn in_common(entries: Arc<dyn CommonEntries>, keys: &Keys) -> Result<Self, StoreError> {
        let seal = Seal::new(keys, PURPOSE).map_err(|_| StoreError::Seal)?;
        let (place, key) = (Place::Common(entries), KeyPlace::Configuration);
        Ok(Self(Arc::new(Shared {
            place,
            key,
            keys: keys.clone(),
            seal,
        })))
    }

    /// Seals other things for one purpose, with the same keys.
    ///
    /// # Errors
    ///
    /// If a key cannot be used.
    pub fn seal(&self, purpose: &'static [u8]) -> Result<Seal, StoreError> {
        Seal::new(&self.0.keys, purpose).map_err(|_| StoreError::Seal)
    }

    /// Another than before if a process has changed something since.
    pub(crate) fn stamp(&self) -> Stamp {
        match &self.0.place {
            Place::File { database, .. } => database.stamp(),
            Place::Common(entries) => entries.stamp(),
        }
    }

    /// Whether nothing can be read now: what was read stays in use.
    pub(crate) fn is_away(&self) -> bool {
        matches!(&self.0.place, Place::Common(entries) if entries.is_away())
    }

    /// The record of this owner, if there is one that one of the keys opens.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub async fn get<T: Record>(&self, owner: &Owner) -> Result<Option<T>, StoreError> {
        let name = owner.name();
        let entry = match &self.0.place {
            Place::File { database, turn } => {
                in_turn(database, turn, move |file| file.get(T::KIND, &name)).await?
            }
            Place::Common(entries) => common::get(&**entries, T::KIND, &name).await?,
        };
        Ok(entry.and_then(|entry| self.0.open::<T>(&entry, owner)))
    }

    /// The same without waiting for others, in place of a future: it blocks. `None` where records are in common.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn get_blocking<T: Record>(&self, owner: &Owner) -> Result<Option<T>, StoreError> {
        let Place::File { database, .. } = &self.0.place else {
            return Ok(None);
        };
        Ok(database
            .get(T::KIND, &owner.name())?
            .and_then(|entry| self.0.open::<T>(&entry, owner)))
    }

    /// All records of a kind that belong to a principal, with their servers.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub async fn list<T: Record>(&self, principal: &[u8]) -> Result<Vec<Exported<T>>, StoreError> {
        let prefix = prefix(principal);
        let open = |(name, entry): (String, Entry)| {
            let owner = Owner::new(principal, name.strip_prefix(&prefix)?);
            Some(Exported {
                record: self.0.open(&entry, &owner)?,
                owner,
            })
        };
        let most = usize::try_from(T::KIND.most_of_one()).unwrap_or(usize::MAX);
        let entries = self.entries(T::KIND, prefix.clone(), most).await?;
        Ok(entries.into_iter().filter_map(open).collect())
    }

    /// All records of a kind that can be opened.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub async fn export<T: Record>(&self) -> Result<Vec<Exported<T>>, StoreError> {
        Ok(self.opened().await?.0)
    }

    /// The same, and how many there are besides that cannot be opened.
    pub(crate) async fn opened<T: Record>(&self) -> Result<(Vec<Exported<T>>, usize), StoreError> {
        let open = |(name, entry): (String, Entry)| {
            let principal = self.0.seal.open_for(&entry.principal, name.as_bytes())?;
            let owner = Owner::new(&principal, name.split_once('/')?.1);
            Some(Exported {
                record: self.0.open(&entry, &owner)?,
                owner,
            })
        };
        let entries = self.entries(T::KIND, String::new(), MOST_EXPORTED).await?;
        let count = entries.len();
        let opened: Vec<_> = entries.into_iter().filter_map(open).collect();
        let unopened = count - opened.len();
        Ok((opened, unopened))
    }

    /// Keeps a record instead of an earlier one. When this returns, it is on disk.
    ///
    /// # Errors
    ///
    /// If it cannot be kept; then the earlier one is.
    pub async fn put<T: Record>(&self, owner: &Owner, record: &T) -> Result<(), StoreError> {
        let (name, entry) = (owner.name(), self.0.seal(owner, record)?);
        self.change(T::KIND, name, move |_| (Change::Put(entry.clone()), ()))
            .await
    }

    /// Removes a record; returns it if it can be opened. Of several that ask, one gets it.
    ///
    /// # Errors
    ///
    /// If the file cannot be changed.
    pub async fn take<T: Record>(&self, owner: &Owner) -> Result<Option<T>, StoreError> {
        let entry = self
            .change(T::KIND, owner.name(), |entry| (Change::Remove, entry))
            .await?;
        Ok(entry.and_then(|entry| self.0.open::<T>(&entry, owner)))
    }

    /// The record of this owner for this process alone, for at most `time`: until then other processes do not get it so.
    ///
    /// # Errors
    ///
    /// If the file cannot be changed.
    pub async fn lease<T: Record>(
        &self,
        owner: &Owner,
        time: Duration,
    ) -> Result<Leased<T>, StoreError> {
        let now = match &self.0.place {
            Place::File { .. } => seconds(SystemTime::now()),
            Place::Common(entries) => entries.now(T::KIND, &owner.name()).await?,
        };
        let lease = Lease {
            until: now.saturating_add(time.as_secs()),
            id: fastrand::u64(..),
        };
        let decide = move |entry: Option<Entry>| match entry {
            Some(entry) if entry.lease.is_some_and(|lease| lease.until > now) => {
                (Change::Leave, Leased::Others)
            }
            Some(entry) => {
                let leased = Entry {
                    lease: Some(lease),
                    ..entry.clone()
                };
                (Change::Put(leased), Leased::Ours(entry, lease))
            }
            None => (Change::Leave, Leased::Nothing),
        };
        Ok(match self.change(T::KIND, owner.name(), decide).await? {
            Leased::Ours(entry, lease) => match self.0.open::<T>(&entry, owner) {
                Some(record) => Leased::Ours(record, lease),
                None => Leased::Nothing,
            },
            Leased::Others => Leased::Others,
            Leased::Nothing => Leased::Nothing,
        })
    }

    /// Ends a [`lease`](Self::lease): with another record, with none, or without a change. Returns whether it was still in
    /// force; otherwise somebody has put or removed the record meanwhile, and nothing is changed.
    ///
    /// # Errors
    ///
    /// If the file cannot be changed.
    pub async fn end_lease<T: Record>(
        &self,
        owner: &Owner,
        lease: Lease,
        outcome: LeaseOutcome<&T>,
    ) -> Result<bool, StoreError> {
        let outcome = match outcome {
            LeaseOutcome::Replace(record) => LeaseOutcome::Replace(self.0.seal(owner, record)?),
            LeaseOutcome::Remove => LeaseOutcome::Remove,
            LeaseOutcome::Keep => LeaseOutcome::Keep,
        };
        let decide =
            move |entry: Option<Entry>| match entry.filter(|entry| entry.lease == Some(lease)) {
                None => (Change::Leave, false),
                Some(entry) => match &outcome {
                    LeaseOutcome::Replace(other) => (Change::Put(other.clone()), true),
                    LeaseOutcome::Remove => (Change::Remove, true),
                    LeaseOutcome::Keep => (
                        Change::Put(Entry {
                            lease: None,
                            ..entry
                        }),
                        true,
                    ),
                },
            };
        self.change(T::KIND, owner.name(), decide).await
    }

    /// Removes all records of a principal, or of all; returns how many there were.
    ///
    /// # Errors
    ///
    /// If the file cannot be changed.
    pub async fn purge(&self, principal: Option<&[u8]>) -> Result<usize, StoreError> {
        let prefix = principal.map(prefix).unwrap_or_default();
        match &self.0.place {
            Place::File { database, turn } => {
                let all = move |file: &Database| {
                    Kind::ALL
                        .map(|kind| file.remove_all(kind, &prefix))
                        .into_iter()
                        .sum()
                };
                in_turn(database, turn, all).await
            }
            Place::Common(entries) => {
                let mut count = 0;
                for kind in Kind::ALL {
                    count += common::remove_all(&**entries, kind, &prefix).await?;
                }
                Ok(count)
            }
        }
    }

    /// The entries whose names begin with `prefix`, at most `most`.
    async fn entries(
        &self,
        kind: Kind,
        prefix: String,
        most: usize,
    ) -> Result<Vec<(String, Entry)>, StoreError> {
        match &self.0.place {
            Place::File { database, turn } => {
                in_turn(database, turn, move |file| file.list(kind, &prefix, most)).await
            }
            Place::Common(entries) => common::list(&**entries, kind, &prefix, most).await,
        }
    }

    /// Changes the entry of this name as `decide` says, which also gives the answer. When this returns, the change is kept.
    async fn change<T: Send + 'static>(
        &self,
        kind: Kind,
        name: String,
        decide: impl Fn(Option<Entry>) -> (Change, T) + Send + Sync + 'static,
    ) -> Result<T, StoreError> {
        match &self.0.place {
            Place::File { database, turn } => {
                in_turn(database, turn, move |file| file.change(kind, &name, decide)).await
            }
            Place::Common(entries) => common::change(&**entries, kind, &name, decide).await,
        }
    }
}

/// Whether a folder has something of users, or may have. Blocks.
#[must_use]
pub fn holds_users(path: &Path) -> bool {
    let was_set_aside = |name: &OsStr| {
        name.to_str()
            .is_some_and(|name| name.starts_with(SET_ASIDE))
    };
    if fs::read_dir(path)
        .is_ok_and(|mut all| all.any(|one| one.is_ok_and(|one| was_set_aside(&one.file_name()))))
    {
        return true;
    }
    // One that is damaged is not set aside for this.
    let opened = || Database::try_open(&Folder::open(path).ok()?).ok();
    path.join(FILE).exists() && opened().is_none_or(|database| has_users(&database))
}

fn has_users(database: &Database) -> bool {
    let has_any = |kind: Kind| {
        database
            .list(kind, "", 1)
            .map_or(true, |found| !found.is_empty())
    };
    Kind::ALL
        .into_iter()
        .filter(|kind| kind.is_of_users())
        .any(has_any)
}

/// Works on the file, which blocks.
async fn in_turn<T: Send + 'static>(
    database: &Arc<Database>,
    turn: &Arc<Semaphore>,
    work: impl FnOnce(&Database) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let database = Arc::clone(database);
    let in_turn = async {
        let permit = Arc::clone(turn)
            .acquire_owned()
            .await
            .map_err(|_| StoreError::Busy)?;
        let working = spawn_blocking(move || {
            let _permit = permit;
            work(&database)
        });
        // It panics only where the file is damaged in a way that was not noticed when it was opened.
        working.await.unwrap_or(Err(StoreError::Damaged))
    };
    timeout(LONGEST_WAIT, in_turn)
        .await
        .unwrap_or(Err(StoreError::Busy))
}

impl Shared {
    fn seal<T: Record>(&self, owner: &Owner, record: &T) -> Result<Entry, StoreError> {
        let text = Zeroizing::new(serde_json::to_vec(record).map_err(|_| StoreError::Seal)?);
        let bound = owner.bound(T::KIND, record.issuer());
        Ok(Entry {
            issuer: record.issuer().to_owned(),
            principal: self
                .seal
                .seal_for(&owner.principal, owner.name().as_bytes())
                .ok_or(StoreError::Seal)?,
            expires: record.useless_after(),
            lease: None,
            sealed: self.seal.seal_for(&text, &bound).ok_or(StoreError::Seal)?,
        })
    }

    fn open<T: Record>(&self, entry: &Entry, owner: &Owner) -> Option<T> {
        let bound = owner.bound(T::KIND, &entry.issuer);
        let opened = self
            .seal
            .open_for(&entry.sealed, &bound)
            .map(Zeroizing::new);
        let record = opened.and_then(|text| serde_json::from_slice::<T>(&text).ok());
        if record.is_none() {
            warn!(kind = T::KIND.as_str(), server = %owner.server, "record in stateDir ignored: none of `keys` opens it");
        }
        record.filter(|record| record.issuer() == entry.issuer)
    }
}

#[cfg(test)]
mod tests;
