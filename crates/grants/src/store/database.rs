//! The store's file: entries by kind and name. Their content is sealed and opaque to it. Every
//! function blocks.
//!
//! Several processes may have it open: a running gateway, gateways that clients of this user start,
//! and `fanlight login`.

use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use fanlight_protocol::epoch;
use redb::backends::FileBackend;
use redb::{
    Builder, ConcurrencyMode, DatabaseError, ReadableDatabase as _, ReadableTable,
    ReadableTableMetadata as _, StorageError, Table, TableError,
};
use serde::{Deserialize, Serialize};
use tracing::error;

use super::StoreError;
use super::epochs::Epochs;
use super::kind::Kind;
use crate::folder::Folder;

/// The name of the file.
pub const FILE: &str = "grants.redb";
/// The size of the file's page cache.
const CACHE: usize = 1 << 20;
/// The size limits of an entry: about a user or an authorization server, and of another kind.
const LONGEST: (usize, usize) = (128 << 10, 256 << 20);

/// One entry in its stored form.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Entry {
    /// The issuer that it concerns; empty for none. It is sealed with the content.
    pub(super) issuer: String,
    /// The owning principal, sealed.
    pub(super) principal: String,
    /// When the entry becomes useless, in seconds since 1970.
    pub(super) expires: Option<u64>,
    /// The process that currently has it for itself.
    pub(super) lease: Option<Lease>,
    /// The sealed content.
    pub(super) sealed: String,
}

/// A process's temporary claim to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The end of the lease in seconds since 1970, by the clock of the machine or of the common
    /// store.
    pub(super) until: u64,
    /// A random number that identifies the lease.
    pub(super) id: u64,
}

/// The change of an entry.
pub(super) enum Change {
    Leave,
    Put(Entry),
    Remove,
}

pub(super) struct Database {
    file: redb::Database,
    pub(super) epochs: Epochs,
    path: PathBuf,
}

/// The beginning of the name of a damaged file that was set aside.
pub(super) const SET_ASIDE: &str = "grants.damaged-";

/// The time of the last write, if known.
pub type Stamp = Option<SystemTime>;

impl Database {
    /// Opens the file, or creates it. A damaged file is set aside.
    pub(super) fn open(folder: &Folder) -> Result<Self, StoreError> {
        match Self::try_open(folder) {
            Err(DatabaseError::Storage(StorageError::Corrupted(problem))) => {
                set_aside(folder, &problem)
            }
            Err(DatabaseError::Storage(StorageError::Io(problem)))
                if problem.kind() == io::ErrorKind::InvalidData =>
            {
                set_aside(folder, &problem.to_string())
            }
            Err(DatabaseError::RepairAborted | DatabaseError::UpgradeRequired(_)) => {
                set_aside(folder, "unknown form")
            }
            other => Ok(other?),
        }
    }

    /// Opens the file, or creates it.
    pub(super) fn try_open(folder: &Folder) -> Result<Self, DatabaseError> {
        let refused = |problem| DatabaseError::Storage(StorageError::Io(io::Error::other(problem)));
        let file = folder.open_file(FILE).map_err(refused)?;
        let mut builder = Builder::new();
        builder
            .set_cache_size(CACHE)
            .set_concurrency_mode(ConcurrencyMode::MultiWriter);
        builder.set_check_integrity_on_open(true);
        let file = builder.create_with_backend(FileBackend::new(file)?)?;
        Ok(Self {
            file,
            epochs: Epochs::in_folder(folder),
            path: folder.path().join(FILE),
        })
    }

    /// A value that changes when a process has written the file.
    pub(super) fn stamp(&self) -> Stamp {
        std::fs::metadata(&self.path)
            .and_then(|metadata| metadata.modified())
            .ok()
    }

    /// The entry of this name.
    pub(super) fn get(&self, kind: Kind, name: &str) -> Result<Option<Entry>, StoreError> {
        let read = self.file.begin_read()?;
        match read.open_table(kind.table()) {
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            table => find(&table?, name),
        }
    }

    /// The epoch of the record of this name.
    pub(super) fn epoch(&self, kind: Kind, name: &str) -> Result<u64, StoreError> {
        if kind.has_epochs() {
            Ok(self.epochs.read(kind, name).map_err(removal_error)?)
        } else {
            Ok(0)
        }
    }

    /// Begins the next epochs of these records.
    pub(super) fn end_epochs(&self, kind: Kind, names: &[String]) -> Result<(), StoreError> {
        if kind.has_epochs() {
            Ok(self.epochs.end(kind, names).map_err(removal_error)?)
        } else {
            Ok(())
        }
    }

    /// The entries whose names begin with `prefix`, at most `most`.
    pub(super) fn list(
        &self,
        kind: Kind,
        prefix: &str,
        most: usize,
    ) -> Result<Vec<(String, Entry)>, StoreError> {
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

    /// Changes the entry of this name with `decide`, which also returns the result. Afterwards the
    /// change is on disk. Without a change nothing is written: writing takes time and makes all
    /// processes read their data again.
    pub(super) fn change<T>(
        &self,
        kind: Kind,
        name: &str,
        decide: impl FnOnce(Option<Entry>) -> (Change, T),
    ) -> Result<T, StoreError> {
        let write = self.file.begin_write()?;
        let answer = {
            let mut table = write.open_table(kind.table())?;
            let entry = find(&table, name)?;
            let is_there = entry.is_some();
            let (change, answer) = decide(entry);
            match change {
                Change::Put(entry) => put(kind, &mut table, name, &entry)?,
                Change::Remove if is_there => drop(table.remove(name)?),
                Change::Remove | Change::Leave => return Ok(answer),
            }
            answer
        };
        write.commit()?;
        Ok(answer)
    }

    /// Removes the entries of a kind whose names begin with `prefix`. Returns their number.
    pub(super) fn remove_all(&self, kind: Kind, prefix: &str) -> Result<usize, StoreError> {
        let write = self.file.begin_write()?;
        let removed = {
            let mut table = write.open_table(kind.table())?;
            let gone = table.extract_if(|name, _| name.starts_with(prefix))?;
            gone.map(|item| Ok(item?.0.value().to_owned()))
                .collect::<Result<Vec<_>, StoreError>>()?
        };
        self.end_epochs(kind, &removed)?;
        let removed = removed.len();
        write.commit()?;
        Ok(removed)
    }
}

fn removal_error(error: io::Error) -> StoreError {
    StoreError::File(format!("the file removed: {error}"))
}

fn put(
    kind: Kind,
    table: &mut Table<'_, &str, &[u8]>,
    name: &str,
    entry: &Entry,
) -> Result<(), StoreError> {
    let bytes = encode(kind, entry)?;
    if kind == Kind::SignIn || (kind == Kind::Lists && table.len()? >= kind.most()) {
        let now = epoch::seconds();
        table.retain(|_, value| {
            decode(value).is_ok_and(|entry| entry.expires.is_none_or(|expires| expires > now))
        })?;
    }
    if table.get(name)?.is_none() {
        make_room(kind, table, name)?;
    }
    table.insert(name, bytes.as_slice())?;
    Ok(())
}

/// Makes room for an entry if a limit is reached, in total or for its owner: removes the oldest
/// entry of the owner with the most entries.
fn make_room(kind: Kind, table: &mut Table<'_, &str, &[u8]>, name: &str) -> Result<(), StoreError> {
    let (owner, mut own) = (owner_of(name), 0);
    if kind.most_of_one() < kind.most() {
        for item in table.range(owner..)? {
            if owner_of(item?.0.value()) != owner {
                break;
            }
            own += 1;
        }
    }
    let is_share_used = own >= kind.most_of_one();
    if !is_share_used && table.len()? < kind.most() {
        return Ok(());
    }
    if !kind.gives_way() {
        return Err(StoreError::Full {
            kind: kind.as_str(),
        });
    }
    let mut entries = Vec::new();
    for item in table.iter()? {
        let (name, value) = item?;
        if !is_share_used || owner_of(name.value()) == owner {
            entries.push((name.value().to_owned(), decode(value.value())?.expires));
        }
    }
    let by_owner = entries.chunk_by(|(one, _), (other, _)| owner_of(one) == owner_of(other));
    let most = by_owner
        .max_by_key(|entries| entries.len())
        .unwrap_or_default();
    if let Some((oldest, _)) = most.iter().min_by_key(|(_, expires)| *expires) {
        table.remove(oldest.as_str())?;
    }
    Ok(())
}

/// The owner in the name of an entry.
fn owner_of(name: &str) -> &str {
    name.split_once('/').map_or(name, |(owner, _)| owner)
}

fn find(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
    name: &str,
) -> Result<Option<Entry>, StoreError> {
    table
        .get(name)?
        .map(|value| decode(value.value()))
        .transpose()
}

/// The stored form of an entry.
pub(super) fn encode(kind: Kind, entry: &Entry) -> Result<Vec<u8>, StoreError> {
    let bytes = serde_json::to_vec(entry).map_err(|_| StoreError::TooLarge)?;
    let longest = if kind.is_of_users() {
        LONGEST.0
    } else {
        LONGEST.1
    };
    if bytes.len() > longest {
        Err(StoreError::TooLarge)
    } else {
        Ok(bytes)
    }
}

pub(super) fn decode(bytes: &[u8]) -> Result<Entry, StoreError> {
    serde_json::from_slice(bytes).map_err(|_| StoreError::Damaged)
}

/// Renames an unreadable file, and creates an empty one.
fn set_aside(folder: &Folder, problem: &str) -> Result<Database, StoreError> {
    let path = folder.path().join(FILE);
    let aside: PathBuf = folder
        .path()
        .join(format!("{SET_ASIDE}{}.redb", epoch::seconds()));
    std::fs::rename(&path, &aside).map_err(|error| StoreError::File(error.to_string()))?;
    error!(
        file = %path.display(), moved_to = %aside.display(), problem,
        "cannot read the data in stateDir: the damaged file was renamed, users have to sign in \
         again, and servers are started to read their lists"
    );
    Ok(Database::try_open(folder)?)
}

/// A time in seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> u64 {
    epoch::since(time).as_secs()
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;

    #[test]
    fn oldest_entry_of_who_has_most_gives_way_where_there_are_too_many() {
        let soon = epoch::seconds() + 600;
        let entry = |expires| Entry {
            issuer: String::new(),
            principal: String::new(),
            expires: Some(expires),
            lease: None,
            sealed: String::new(),
        };
        let file = redb::Database::builder()
            .create_with_backend(InMemoryBackend::new())
            .unwrap();
        let write = file.begin_write().unwrap();
        let mut table = write.open_table(Kind::SignIn.table()).unwrap();
        for number in 3..=Kind::SignIn.most() {
            let bytes = encode(Kind::SignIn, &entry(soon)).unwrap();
            table
                .insert(format!("{number}/one").as_str(), bytes.as_slice())
                .unwrap();
        }
        for (name, expires) in [
            ("bob/second", soon + 2),
            ("bob/first", soon + 1),
            ("ann/new", soon + 3),
        ] {
            put(Kind::SignIn, &mut table, name, &entry(expires)).unwrap();
        }
        let is_there = |name| table.get(name).unwrap().is_some();
        assert!(
            is_there("ann/new")
                && is_there("bob/second")
                && is_there("3/one")
                && !is_there("bob/first")
        );
        assert_eq!(table.len().unwrap(), Kind::SignIn.most());
    }
}
