//! The store: records about users, authorization servers and servers' lists. They are in one file
//! in `stateDir`, or in common with other processes. Each is sealed for its owner and subject, so
//! that a moved record cannot be opened.

mod common;
mod database;
mod epochs;
mod kind;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::seal::{Keys, Seal};
use fanlight_protocol::{epoch, sha256_hex};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::warn;
use zeroize::Zeroizing;

pub use self::common::{CommonEntries, CommonError, Exchange, Exchanged};
pub(crate) use self::database::seconds;
use self::database::{Change, Database, Entry, SET_ASIDE};
pub use self::database::{FILE, Lease, Stamp};
use self::epochs::Epochs;
pub use self::kind::Kind;
use crate::folder::Folder;
use crate::sealing_key::{KeyPlace, Keyring, SealingKeyError, keys_of};

/// The purpose of the seal on records.
const PURPOSE: &[u8] = b"record in stateDir: ";
/// The time limit for one operation, including waiting for others and the disk.
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// The limit of records in an export.
const MOST_EXPORTED: usize = 1_000_000;

/// A kind of record.
pub trait Record: Serialize + DeserializeOwned + Send + 'static {
    /// The kind.
    const KIND: Kind;

    /// The issuer that it concerns, if any. It is sealed with the record.
    fn issuer(&self) -> &str {
        ""
    }

    /// When the record becomes useless, in seconds since 1970.
    fn useless_after(&self) -> Option<u64> {
        None
    }
}

/// The principal that a record belongs to, and its server.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    principal: Arc<[u8]>,
    server: Arc<str>,
}

impl Owner {
    /// The owner of the records of a principal
    /// ([`to_bytes`](fanlight_canonical::identity::Principal::to_bytes)) for a server.
    pub fn new(principal: &[u8], server: &str) -> Self {
        Self {
            principal: principal.into(),
            server: server.into(),
        }
    }

    /// The owner of Fanlight's own records, by their subject.
    pub fn nobody(about: &str) -> Self {
        Self::new(&[], about)
    }

    /// The name of the server.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The principal's bytes.
    pub fn principal(&self) -> &[u8] {
        &self.principal
    }

    /// The name of the record, which does not reveal the principal.
    fn name(&self) -> String {
        format!("{}{}", prefix(&self.principal), self.server)
    }

    /// The context that a record is sealed for: its owner and subject, and the owner's epoch.
    fn bound(&self, kind: Kind, issuer: &str, epoch: u64) -> Vec<u8> {
        let length = |bytes: &[u8]| (bytes.len() as u64).to_be_bytes();
        let (kind, server) = (kind.as_str().as_bytes(), self.server.as_bytes());
        let parts = [kind, &self.principal, server, issuer.as_bytes()];
        parts
            .into_iter()
            .flat_map(|part| length(part).into_iter().chain(part.iter().copied()))
            .chain(epoch.to_be_bytes())
            .collect()
    }
}

/// The beginning of the names of a principal's records.
fn prefix(principal: &[u8]) -> String {
    format!("{}/", sha256_hex(principal))
}

/// The result of requesting a lease on a record.
#[derive(Debug)]
pub enum Leased<T> {
    /// There is no record.
    Nothing,
    /// This process holds the record, under this lease.
    Ours(T, Lease),
    /// Another process has the record.
    Others,
}

/// The change of a record at the end of a lease.
#[derive(Clone, Copy, Debug)]
pub enum LeaseOutcome<T> {
    /// Replace the record.
    Replace(T),
    /// Remove the record.
    Remove,
    /// Leave the record unchanged.
    Keep,
}

/// One record of an export.
#[derive(Debug)]
pub struct Exported<T> {
    /// The owner of the record.
    pub owner: Owner,
    /// The record.
    pub record: T,
}

/// The reason why something was not read or stored. The texts are for operators.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened, read or written.
    #[error("the file {FILE} in stateDir cannot be used: {0}")]
    File(String),
    /// An entry does not have the written form.
    #[error("the file {FILE} in stateDir is damaged")]
    Damaged,
    /// The common store cannot be reached, or is damaged.
    #[error("users' grants cannot be used: {0}")]
    Common(String),
    /// Others are using the file.
    #[error("the file {FILE} in stateDir did not answer within {} s", LONGEST_WAIT.as_secs())]
    Busy,
    /// There are too many entries.
    #[error("stateDir has reached its limit of records of the kind {kind:?}")]
    Full {
        /// The kind.
        kind: &'static str,
    },
    /// A record is too large.
    #[error("a record exceeds the size limit of stateDir")]
    TooLarge,
    /// Records have to be removed with an entry in the audit log, but cannot be opened.
    #[error(
        "nothing was removed: {0} records of users cannot be read, and the audit log has to name \
         each user; add the key with which they were encrypted to `keys`, or unlock the system's \
         keyring"
    )]
    Unnamed(usize),
    /// A record cannot be sealed.
    #[error("cannot encrypt a record")]
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

/// The store of records. Clones share one file.
#[derive(Clone)]
pub struct Store(Arc<Shared>);

struct Shared {
    place: Place,
    key: KeyPlace,
    keys: Keys,
    seal: Seal,
    /// The epochs that were seen in a common store.
    seen: Epochs,
}

/// The place of the entries.
#[derive(Clone)]
enum Place {
    File {
        database: Arc<Database>,
        /// The turn to block: a slow disk occupies only one thread.
        turn: Arc<Semaphore>,
    },
    Common(Arc<dyn CommonEntries>),
}

fanlight_protocol::opaque!(Store, Owner);

impl Store {
    /// Opens the store in a folder for users' records. The sealing key is the first of `keys`, else
    /// a key in the keyring, else the folder's key. Blocks.
    ///
    /// # Errors
    ///
    /// If the file or its key cannot be used. A damaged file is set aside, and logged as an error.
    pub fn open(folder: &Folder, keys: &Keys, keyring: &dyn Keyring) -> Result<Self, StoreError> {
        Self::open_for_lists(folder, keys)?.for_users(folder, keys, keyring)
    }

    /// Opens the store in a folder for records about servers. The sealing key is the first of
    /// `keys`, else the folder's key; these records need no keyring. Blocks.
    ///
    /// # Errors
    ///
    /// As [`Self::open`].
    pub fn open_for_lists(folder: &Folder, keys: &Keys) -> Result<Self, StoreError> {
        let key = if keys.is_empty() {
            KeyPlace::File
        } else {
            KeyPlace::Configuration
        };
        let place = Place::File {
            database: Arc::new(Database::open(folder)?),
            turn: Arc::new(Semaphore::new(1)),
        };
        Self::at(place, key, keys.followed_by(folder.sealing_key()))
    }

    /// This store, [opened](Self::open) for users' records. Blocks.
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
        Self::at(self.0.place.clone(), key, keys)
    }

    fn at(place: Place, key: KeyPlace, keys: Keys) -> Result<Self, StoreError> {
        Ok(Self(Arc::new(Shared {
            place,
            key,
            seal: Seal::new(&keys, PURPOSE).map_err(|_| StoreError::Seal)?,
            keys,
            seen: Epochs::default(),
        })))
    }

    /// The place of the sealing key.
    pub fn key(&self) -> KeyPlace {
        self.0.key
    }

    /// The store in common with other processes, which have the same keys.
    ///
    /// # Errors
    ///
    /// If a key cannot be used.
    pub fn open_common(entries: Arc<dyn CommonEntries>, keys: &Keys) -> Result<Self, StoreError> {
        Self::at(
            Place::Common(entries),
            KeyPlace::Configuration,
            keys.clone(),
        )
    }

    /// A seal for another purpose, with the same keys.
    ///
    /// # Errors
    ///
    /// If a key cannot be used.
    pub fn seal(&self, purpose: &'static [u8]) -> Result<Seal, StoreError> {
        Seal::new(&self.0.keys, purpose).map_err(|_| StoreError::Seal)
    }

    /// A value that changes when a process has changed something.
    pub(crate) fn stamp(&self) -> Stamp {
        match &self.0.place {
            Place::File { database, .. } => database.stamp(),
            Place::Common(entries) => entries.stamp(),
        }
    }

    /// Whether nothing can be read now; data read earlier stays in use.
    pub(crate) fn is_away(&self) -> bool {
        matches!(&self.0.place, Place::Common(entries) if entries.is_away())
    }

    /// The record of this owner, if it exists and one of the keys decrypts it.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub async fn get<T: Record>(&self, owner: &Owner) -> Result<Option<T>, StoreError> {
        let name = owner.name();
        let (entry, epoch) = match &self.0.place {
            Place::File { database, turn } => {
                let get = move |file: &Database| {
                    Ok((file.get(T::KIND, &name)?, file.epoch(T::KIND, &name)?))
                };
                in_turn(database, turn, get).await?
            }
            Place::Common(entries) => tokio::try_join!(
                common::get(&**entries, T::KIND, &name),
                self.epoch(T::KIND, &name)
            )?,
        };
        Ok(entry.and_then(|entry| self.0.open::<T>(&entry, owner, epoch)))
    }

    /// A blocking form of [`Self::get`], which does not wait for others. `None` for a common store.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn get_blocking<T: Record>(&self, owner: &Owner) -> Result<Option<T>, StoreError> {
        let Place::File { database, .. } = &self.0.place else {
            return Ok(None);
        };
        let epoch = database.epoch(T::KIND, &owner.name())?;
        Ok(database
            .get(T::KIND, &owner.name())?
            .and_then(|entry| self.0.open::<T>(&entry, owner, epoch)))
    }

    /// All records of a kind that belong to a principal, with their servers.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub async fn list<T: Record>(&self, principal: &[u8]) -> Result<Vec<Exported<T>>, StoreError> {
        let prefix = prefix(principal);
        let most = usize::try_from(T::KIND.most_of_one()).unwrap_or(usize::MAX);
        let entries = self.entries(T::KIND, prefix.clone(), most).await?;
        let mut opened = Vec::new();
        for (name, entry) in entries {
            let epoch = self.epoch(T::KIND, &name).await?;
            let owner = Owner::new(principal, name.strip_prefix(&prefix).unwrap_or_default());
            if let Some(record) = self.0.open(&entry, &owner, epoch) {
                opened.push(Exported { owner, record });
            }
        }
        Ok(opened)
    }

    /// All records of a kind that can be decrypted.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub async fn export<T: Record>(&self) -> Result<Vec<Exported<T>>, StoreError> {
        Ok(self.read_all().await?.0)
    }

    /// All records of a kind that can be decrypted, and the number of others.
    pub(crate) async fn read_all<T: Record>(
        &self,
    ) -> Result<(Vec<Exported<T>>, usize), StoreError> {
        let open = |name: &str, entry: &Entry, epoch: u64| {
            let principal = self.0.seal.open_for(&entry.principal, name.as_bytes())?;
            let owner = Owner::new(&principal, name.split_once('/')?.1);
            Some(Exported {
                record: self.0.open(entry, &owner, epoch)?,
                owner,
            })
        };
        let entries = self.entries(T::KIND, String::new(), MOST_EXPORTED).await?;
        let count = entries.len();
        let mut opened = Vec::new();
        for (name, entry) in entries {
            let epoch = self.epoch(T::KIND, &name).await?;
            opened.extend(open(&name, &entry, epoch));
        }
        let unopened = count - opened.len();
        Ok((opened, unopened))
    }

    /// Stores a record, replacing an earlier one. Afterwards it is on disk.
    ///
    /// # Errors
    ///
    /// If it cannot be stored; the earlier record then stays.
    pub async fn put<T: Record>(&self, owner: &Owner, record: &T) -> Result<(), StoreError> {
        let name = owner.name();
        let epoch = self.epoch(T::KIND, &name).await?;
        let entry = self.0.seal(owner, record, epoch)?;
        self.change(T::KIND, name, move |_| (Change::Put(entry.clone()), ()))
            .await
    }

    /// Removes a record, and returns it if it can be decrypted. Of several callers, one gets it.
    ///
    /// # Errors
    ///
    /// If the file cannot be changed.
    pub async fn take<T: Record>(&self, owner: &Owner) -> Result<Option<T>, StoreError> {
        let name = owner.name();
        let epoch = self.epoch(T::KIND, &name).await?;
        let entry = self
            .change(T::KIND, name.clone(), |entry| (Change::Remove, entry))
            .await?;
        if entry.is_some() {
            self.end_epoch(T::KIND, name).await?;
        }
        Ok(entry.and_then(|entry| self.0.open::<T>(&entry, owner, epoch)))
    }

    /// Leases the record of this owner to this process, for at most `time`. Other processes cannot
    /// lease it until then.
    ///
    /// # Errors
    ///
    /// If the file cannot be changed.
    pub async fn lease<T: Record>(
        &self,
        owner: &Owner,
        time: Duration,
    ) -> Result<Leased<T>, StoreError> {
        let epoch = self.epoch(T::KIND, &owner.name()).await?;
        let now = match &self.0.place {
            Place::File { .. } => epoch::seconds(),
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
            Leased::Ours(entry, lease) => match self.0.open::<T>(&entry, owner, epoch) {
                Some(record) => Leased::Ours(record, lease),
                None => Leased::Nothing,
            },
            Leased::Others => Leased::Others,
            Leased::Nothing => Leased::Nothing,
        })
    }

    /// Ends a [`lease`](Self::lease): with another record, with none, or without a change. Returns
    /// whether it was still in force. If not, somebody has changed or removed the record meanwhile,
    /// and nothing is changed.
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
            LeaseOutcome::Replace(record) => {
                let epoch = self.epoch(T::KIND, &owner.name()).await?;
                LeaseOutcome::Replace(self.0.seal(owner, record, epoch)?)
            }
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

    /// Removes all records of a principal, or of all principals. Returns their number.
    ///
    /// # Errors
    ///
    /// If the file cannot be changed.
    pub async fn purge(&self, principal: Option<&[u8]>) -> Result<usize, StoreError> {
        let prefix = principal.map(prefix).unwrap_or_default();
        match &self.0.place {
            Place::File { database, turn } => {
                let all = move |file: &Database| {
                    Kind::RECORDS
                        .map(|kind| file.remove_all(kind, &prefix))
                        .into_iter()
                        .sum()
                };
                in_turn(database, turn, all).await
            }
            Place::Common(entries) => {
                let mut count = 0;
                for kind in Kind::RECORDS {
                    let removed = if kind.has_epochs() {
                        self.entries(kind, prefix.clone(), MOST_EXPORTED).await?
                    } else {
                        Vec::new()
                    };
                    count += common::remove_all(&**entries, kind, &prefix).await?;
                    for (name, _) in removed {
                        self.end_epoch(kind, name).await?;
                    }
                }
                Ok(count)
            }
        }
    }

    /// The epoch of the record of this name.
    async fn epoch(&self, kind: Kind, name: &str) -> Result<u64, StoreError> {
        let name = name.to_owned();
        match &self.0.place {
            _ if !kind.has_epochs() => Ok(0),
            Place::File { database, turn } => {
                in_turn(database, turn, move |file| file.epoch(kind, &name)).await
            }
            Place::Common(entries) => {
                let place = epoch_name(kind, &name);
                let entry = common::get(&**entries, Kind::Epoch, &place).await?;
                let epoch = entry.and_then(|entry| self.0.opened_epoch(&entry, &place));
                Ok(self.0.seen.raise(kind, &name, epoch.unwrap_or_default()))
            }
        }
    }

    /// Begins the next epoch of the record of this name. Records of earlier ones cannot be opened.
    async fn end_epoch(&self, kind: Kind, name: String) -> Result<(), StoreError> {
        match &self.0.place {
            _ if !kind.has_epochs() => Ok(()),
            Place::File { database, turn } => {
                let end = move |file: &Database| file.end_epochs(kind, &[name]);
                in_turn(database, turn, end).await
            }
            Place::Common(entries) => {
                let place = epoch_name(kind, &name);
                let next = self.epoch(kind, &name).await?.saturating_add(1);
                let next = self.0.seen.raise(kind, &name, next);
                let text = next.to_string();
                let sealed = self.0.seal.seal_for(text.as_bytes(), place.as_bytes());
                let entry = Entry {
                    sealed: sealed.ok_or(StoreError::Seal)?,
                    ..Entry::default()
                };
                let put = move |_| (Change::Put(entry.clone()), ());
                common::change(&**entries, Kind::Epoch, &place, put).await
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

    /// Changes the entry of this name with `decide`, which also returns the result. Afterwards the
    /// change is stored.
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

/// The name of the epoch of a record.
fn epoch_name(kind: Kind, name: &str) -> String {
    format!("{name} {}", kind.as_str())
}

/// Whether a folder has users' data, or may have. Blocks.
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
    // Opening it for this check must not set a damaged file aside.
    let opened = || Database::try_open(&Folder::open(path).ok()?).ok();
    path.join(FILE).exists() && opened().is_none_or(|database| has_users(&database))
}

fn has_users(database: &Database) -> bool {
    let has_any = |kind: Kind| {
        database
            .list(kind, "", 1)
            .map_or(true, |found| !found.is_empty())
    };
    Kind::RECORDS
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
        // This panics only if the file has damage that was not noticed when it was opened.
        working.await.unwrap_or(Err(StoreError::Damaged))
    };
    timeout(LONGEST_WAIT, in_turn)
        .await
        .unwrap_or(Err(StoreError::Busy))
}

impl Shared {
    /// The epoch in an entry, if a process with these keys has sealed it for this place.
    fn opened_epoch(&self, entry: &Entry, place: &str) -> Option<u64> {
        let text = self.seal.open_for(&entry.sealed, place.as_bytes())?;
        std::str::from_utf8(&text).ok()?.parse().ok()
    }

    fn seal<T: Record>(&self, owner: &Owner, record: &T, epoch: u64) -> Result<Entry, StoreError> {
        let text = Zeroizing::new(serde_json::to_vec(record).map_err(|_| StoreError::Seal)?);
        let bound = owner.bound(T::KIND, record.issuer(), epoch);
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

    fn open<T: Record>(&self, entry: &Entry, owner: &Owner, epoch: u64) -> Option<T> {
        let bound = owner.bound(T::KIND, &entry.issuer, epoch);
        let opened = self
            .seal
            .open_for(&entry.sealed, &bound)
            .map(Zeroizing::new);
        let record = opened.and_then(|text| serde_json::from_slice::<T>(&text).ok());
        if record.is_none() {
            warn!(kind = T::KIND.as_str(), server = %owner.server, "record in stateDir ignored: none of `keys` can decrypt it, or it was removed before");
        }
        record.filter(|record| record.issuer() == entry.issuer)
    }
}

#[cfg(test)]
mod tests;
