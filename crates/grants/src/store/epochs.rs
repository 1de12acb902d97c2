//! The epochs of owners: how often each one's record was removed. Records are sealed for an epoch,
//! so an earlier record that somebody puts back cannot be opened.
//!
//! With a file of records, the epochs are in a file beside it, which only grows and is read by all
//! processes. With a common store, each process remembers the latest epochs that it has seen there.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;

use fanlight_protocol::digest::sha256;
use parking_lot::Mutex;
use tracing::warn;

use super::kind::Kind;
use crate::folder::Folder;

/// The name of the file.
const FILE: &str = "removed";
/// A marker of one removal for an owner and a kind of record. The file has one for each removal.
const ONE: usize = 16;
/// The limit of removals in the file, and of remembered owners.
const MOST: usize = 200_000;

type Id = [u8; ONE];

/// The latest epochs that this process knows.
#[derive(Default)]
pub(super) struct Epochs(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The folder of the file; `None` without a file.
    folder: Option<PathBuf>,
    /// The file, once a record was removed.
    file: Option<File>,
    /// The bytes of the file that have been read.
    read: u64,
    epochs: HashMap<Id, u64>,
}

impl Epochs {
    /// The epochs in the file of this folder. Blocks, as all functions do here.
    pub(super) fn in_folder(folder: &Folder) -> Self {
        Self(Mutex::new(Known {
            folder: Some(folder.path().to_owned()),
            ..Known::default()
        }))
    }

    /// The epoch of an owner's record.
    pub(super) fn read(&self, kind: Kind, name: &str) -> io::Result<u64> {
        let mut known = self.0.lock();
        known.catch_up()?;
        let epoch = known.epochs.get(&id(kind, name));
        Ok(epoch.copied().unwrap_or_default())
    }

    /// Begins the next epochs of these owners' records, in the file.
    pub(super) fn end(&self, kind: Kind, names: &[String]) -> io::Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let mut known = self.0.lock();
        known.open(true)?;
        let Known { file, read, .. } = &mut *known;
        if let Some(file) = file {
            if *read >= (MOST * ONE) as u64 {
                warn!(
                    file = FILE,
                    "the file in stateDir is full: an earlier grants.redb could bring back removed grants"
                );
                return Ok(());
            }
            let bytes: Vec<u8> = names.iter().flat_map(|name| id(kind, name)).collect();
            file.lock()?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length - length % ONE as u64))?;
            let written = file.write_all(&bytes).and_then(|()| file.sync_data());
            file.unlock()?;
            written?;
        }
        known.catch_up()
    }

    /// Takes note of an epoch, and returns the latest.
    pub(super) fn raise(&self, kind: Kind, name: &str, epoch: u64) -> u64 {
        let id = id(kind, name);
        let epochs = &mut self.0.lock().epochs;
        if epoch == 0 {
            return epochs.get(&id).copied().unwrap_or_default();
        }
        if epochs.len() >= MOST
            && !epochs.contains_key(&id)
            && let Some(any) = epochs.keys().next().copied()
        {
            epochs.remove(&any);
        }
        let known = epochs.entry(id).or_default();
        *known = epoch.max(*known);
        *known
    }
}

impl Known {
    /// Opens the file if it exists or `is_needed`.
    fn open(&mut self, is_needed: bool) -> io::Result<()> {
        if let (Some(folder), None) = (&self.folder, &self.file)
            && (is_needed || folder.join(FILE).exists())
        {
            let opened = Folder::open(folder).and_then(|folder| folder.open_file(FILE));
            self.file = Some(opened.map_err(io::Error::other)?);
        }
        Ok(())
    }

    /// Reads what any process has added to the file.
    fn catch_up(&mut self) -> io::Result<()> {
        self.open(false)?;
        let Some(file) = &mut self.file else {
            return Ok(());
        };
        let length = file.metadata()?.len().min((2 * MOST * ONE) as u64);
        if length < self.read + ONE as u64 {
            return Ok(());
        }
        let mut added = Vec::new();
        file.seek(SeekFrom::Start(self.read))?;
        file.take(length - self.read).read_to_end(&mut added)?;
        let (ids, _) = added.as_chunks::<ONE>();
        for id in ids {
            *self.epochs.entry(*id).or_default() += 1;
            self.read += ONE as u64;
        }
        Ok(())
    }
}

fn id(kind: Kind, name: &str) -> Id {
    let digest = sha256([format!("{} {name}", kind.as_str())]);
    digest.first_chunk().copied().unwrap_or_default()
}
