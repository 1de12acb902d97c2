//! The file of the store: entries by kind and name. It knows nothing of what is sealed in them. Every function blocks.
//!
//! Several processes may have it open: a running gateway, the gateways that clients of this user start, and `fanlight login`.

use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use redb::backends::FileBackend;
use redb::{
    Builder, ConcurrencyMode, DatabaseError, ReadableDatabase as _, ReadableTable, ReadableTableMetadata as _,
    StorageError, Table, TableDefinition, TableError,
};
use serde::{Deserialize, Serialize};
use tracing::error;

use super::StoreError;
use crate::folder::Folder;

/// The name of the file.
pub const FILE: &str = "grants.redb";
/// Memory for pages of the file.
const CACHE: usize = 1 << 20;
/// The longest entry about a user or an authorization server, and of another kind.
const LONGEST: (usize, usize) = (128 << 10, 256 << 20);

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What a user has granted at a server.
    Grant,
    /// A key that a user has deposited for a server.
    UserKey,
    /// A registration at an authorization server.
    Client,
    /// A sign-in that a user has agreed to and not finished.
    SignIn,
    /// What a server has listed for all, and says of itself.
    Lists,
    /// The rules by which servers' tools and prompts are named.
    Names,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] = [Self::Grant, Self::UserKey, Self::Client, Self::SignIn, Self::Lists, Self::Names];

    /// Whether it is about users, or about authorization servers for them: it cannot be had again without them.
    #[must_use]
    pub fn is_of_users(self) -> bool {
        match self {
            Self::Grant | Self::UserKey | Self::Client | Self::SignIn => true,
            Self::Lists | Self::Names => false,
        }
    }

    /// Its name in exports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::UserKey => "user key",
            Self::Client => "client",
            Self::SignIn => "sign-in",
            Self::Lists => "lists",
            Self::Names => "names",
        }
    }

    fn table(self) -> TableDefinition<'static, &'static str, &'static [u8]> {
        TableDefinition::new(self.as_str())
    }

    /// Most entries of the kind.
    #[must_use]
    pub fn most(self) -> u64 {
        match self {
            Self::Grant | Self::UserKey => 100_000,
            Self::Client | Self::SignIn | Self::Lists | Self::Names => 1000,
        }
    }
}

/// One entry as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The issuer that it is about; empty for none. Sealed with the content.
    pub(super) issuer: String,
    /// The principal that it belongs to, sealed.
    pub(super) principal: String,
    /// When it is of no use any more, in seconds since 1970.
    pub(super) expires: Option<u64>,
    /// For which process it is at the moment.
    pub(super) lease: Option<Lease>,
    /// What it says.
    pub(super) sealed: String,
}

/// One process has an entry for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Until then, in seconds since 1970.
    pub(super) until: u64,
    /// Tells leases apart.
    pub(super) id: u64,
}

/// What is to become of an entry.
pub(super) enum Change {
    Leave,
    Put(Entry),
    Remove,
}

pub(super) struct Database {
    file: redb::Database,
    path: PathBuf,
}

/// How the name of a damaged file begins that was set aside.
pub(super) const SET_ASIDE: &str = "grants.damaged-";

/// When the file was written last, as far as that can be told.
pub type Stamp = Option<SystemTime>;

impl Database {
    /// Opens the file, or makes it. One that is damaged is set aside.
    pub(super) fn open(folder: &Folder) -> Result<Self, StoreError> {
        match Self::try_open(folder) {
            Err(DatabaseError::Storage(StorageError::Corrupted(problem))) => set_aside(folder, &problem),
            Err(DatabaseError::Storage(StorageError::Io(problem))) if problem.kind() == io::ErrorKind::InvalidData => {
                set_aside(folder, &problem.to_string())
            }
            Err(DatabaseError::RepairAborted | DatabaseError::UpgradeRequired(_)) => set_aside(folder, "unknown form"),
            other => Ok(other?),
        }
    }

    /// Opens the file, or makes it.
    pub(super) fn try_open(folder: &Folder) -> Result<Self, DatabaseError> {
        let refused = |problem| DatabaseError::Storage(StorageError::Io(io::Error::other(problem)));
        let file = folder.open_file(FILE).map_err(refused)?;
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE).set_concurrency_mode(ConcurrencyMode::MultiWriter);
        builder.set_check_integrity_on_open(true);
        let file = builder.create_with_backend(FileBackend::new(file)?)?;
        Ok(Self { file, path: folder.path().join(FILE) })
    }

    /// Another than before if a process has written since.
    pub(super) fn stamp(&self) -> Stamp {
        std::fs::metadata(&self.path).and_then(|metadata| metadata.modified()).ok()
    }

    /// The entry of this name.
    pub(super) fn get(&self, kind: Kind, name: &str) -> Result<Option<Entry>, StoreError> {
        let read = self.file.begin_read()?;
        match read.open_table(kind.table()) {
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            table => find(&table?, name),
        }
    }

    /// The entries whose names begin with `prefix`, at most `most`.
    pub(super) fn list(&self, kind: Kind, prefix: &str, most: usize) -> Result<Vec<(String, Entry)>, StoreError> {
        let read = self.file.begin_read()?;
        let table = match read.open_table(kind.table()) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            table => table?,
        };
        let mut found = Vec::new();
        for item in table.range(prefix..)? {
            let (name, value) = item?;
            if !name.value().starts_with(prefix) || found.len() == most {
                break;
            }
            found.push((name.value().to_owned(), decode(value.value())?));
        }
        Ok(found)
    }

    /// Changes the entry of this name as `decide` says, which also gives the answer. When this returns, the change is on disk.
    pub(super) fn change<T>(
        &self,
        kind: Kind,
        name: &str,
        decide: impl FnOnce(Option<Entry>) -> (Change, T),
    ) -> Result<T, StoreError> {
        let write = self.file.begin_write()?;
        let answer = {
            let mut table = write.open_table(kind.table())?;
            let (change, answer) = decide(find(&table, name)?);
            match change {
                Change::Leave => {}
                Change::Remove => drop(table.remove(name)?),
                Change::Put(entry) => put(kind, &mut table, name, &entry)?,
            }
            answer
        };
        write.commit()?;
        Ok(answer)
    }

    /// Removes the entries of a kind whose names begin with `prefix`; returns how many there were.
    pub(super) fn remove_all(&self, kind: Kind, prefix: &str) -> Result<usize, StoreError> {
        let write = self.file.begin_write()?;
        let removed = {
            let mut table = write.open_table(kind.table())?;
            let gone: Vec<_> = table.extract_if(|name, _| name.starts_with(prefix))?.collect::<Result<_, _>>()?;
            gone.len()
        };
        write.commit()?;
        Ok(removed)
    }
}

fn put(kind: Kind, table: &mut Table<'_, &str, &[u8]>, name: &str, entry: &Entry) -> Result<(), StoreError> {
    let bytes = encode(kind, entry)?;
    if kind == Kind::SignIn || (kind == Kind::Lists && table.len()? >= kind.most()) {
        let now = seconds(SystemTime::now());
        table.retain(|_, value| decode(value).is_ok_and(|entry| entry.expires.is_none_or(|expires| expires > now)))?;
    }
    if table.get(name)?.is_none() && table.len()? >= kind.most() {
        return Err(StoreError::Full { kind: kind.as_str() });
    }
    table.insert(name, bytes.as_slice())?;
    Ok(())
}

fn find(table: &impl ReadableTable<&'static str, &'static [u8]>, name: &str) -> Result<Option<Entry>, StoreError> {
    table.get(name)?.map(|value| decode(value.value())).transpose()
}

/// An entry as it is kept.
pub(super) fn encode(kind: Kind, entry: &Entry) -> Result<Vec<u8>, StoreError> {
    let bytes = serde_json::to_vec(entry).map_err(|_| StoreError::TooLarge)?;
    let longest = if kind.is_of_users() { LONGEST.0 } else { LONGEST.1 };
    if bytes.len() > longest { Err(StoreError::TooLarge) } else { Ok(bytes) }
}

pub(super) fn decode(bytes: &[u8]) -> Result<Entry, StoreError> {
    serde_json::from_slice(bytes).map_err(|_| StoreError::Damaged)
}

/// Gives a file that cannot be read another name, and makes an empty one.
fn set_aside(folder: &Folder, problem: &str) -> Result<Database, StoreError> {
    let path = folder.path().join(FILE);
    let aside: PathBuf = folder.path().join(format!("{SET_ASIDE}{}.redb", seconds(SystemTime::now())));
    std::fs::rename(&path, &aside).map_err(|error| StoreError::File(error.to_string()))?;
    error!(
        file = %path.display(), moved_to = %aside.display(), problem,
        "what is kept in stateDir cannot be read: the damaged file is set aside, users have to sign in again, and servers are \
         started for their lists"
    );
    Ok(Database::try_open(folder)?)
}

/// A time in seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map(|since| since.as_secs()).unwrap_or_default()
}
