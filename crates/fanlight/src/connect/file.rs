//! The file of a client on disk, with a copy of what it was before.

use std::fs;
use std::io::Error;
use std::path::{Path, PathBuf};

use fanlight_client_files::{self as client_files, Client, EditError, Entry};

use crate::failure::Failure;
use crate::replace;

/// What the copy of a file is called: its name and this.
const BACKUP: &str = ".before-fanlight";

/// The file of a client.
pub(super) struct ClientFile {
    client: Client,
    /// Where it is, or will be.
    pub(super) path: PathBuf,
}

/// How an entry was taken out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Undone {
    /// The file has the bytes that it had before.
    Restored,
    /// The file was made for the entry, and is gone.
    Deleted,
    /// The entry is gone; the file was changed since, and the changes stay.
    Removed,
}

impl ClientFile {
    pub(super) fn new(client: Client, path: PathBuf) -> Self {
        Self { client, path }
    }

    /// Whether it has an entry of this name.
    pub(super) fn has(&self, name: &str) -> Result<bool, Failure> {
        let text = self.read(&self.path)?.unwrap_or_default();
        Ok(client_files::has(self.client, &text, name).map_err(|error| self.cannot_edit(&error))?.is_some())
    }

    /// Puts an entry into the file. The answer is where the copy of the file is, if there was a file.
    pub(super) fn add(&self, entry: &Entry) -> Result<Option<PathBuf>, Failure> {
        let path = replace::target(&self.path);
        let before = self.read(&path)?;
        let text = before.clone().unwrap_or_default();
        let edited = |error: EditError| self.cannot_edit(&error);
        let changed = client_files::add(self.client, &text, entry).map_err(edited)?;
        let backup = backup_of(&path);
        let original = self.original(&path, &text, &entry.name)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| cannot("make the folder of", &path, &error))?;
        }
        if before.as_deref() == Some(&changed) {
            return Ok(Some(backup).filter(|backup| backup.is_file()));
        }
        let kept = match (original, &before) {
            // A further entry of the same name: the first copy stays.
            (Some(Some(_)), _) => Some(backup),
            (Some(None), _) | (None, None) => None,
            (None, Some(before)) => {
                fs::copy(&path, &backup).map_err(|error| cannot("copy", &path, &error))?;
                replace::replace(&backup, before).map_err(|error| cannot("write", &backup, &error))?;
                Some(backup)
            }
        };
        replace::replace(&path, &changed).map_err(|error| cannot("write", &path, &error))?;
        Ok(kept)
    }

    /// Takes the entry of this name out of the file.
    pub(super) fn undo(&self, name: &str) -> Result<Undone, Failure> {
        let path = replace::target(&self.path);
        let not_there = || Failure::other(format!("{} has no entry {name:?}", self.path.display()));
        let text = self.read(&path)?.ok_or_else(not_there)?;
        let backup = backup_of(&path);
        match self.original(&path, &text, name)? {
            Some(Some(original)) => {
                replace::replace(&path, &original).map_err(|error| cannot("write", &path, &error))?;
                fs::remove_file(&backup).map_err(|error| cannot("remove", &backup, &error))?;
                Ok(Undone::Restored)
            }
            Some(None) => {
                fs::remove_file(&path).map_err(|error| cannot("remove", &path, &error))?;
                Ok(Undone::Deleted)
            }
            None => {
                if client_files::has(self.client, &text, name).map_err(|error| self.cannot_edit(&error))?.is_none() {
                    return Err(not_there());
                }
                let changed =
                    client_files::remove(self.client, &text, name).map_err(|error| self.cannot_edit(&error))?;
                replace::replace(&path, &changed).map_err(|error| cannot("write", &path, &error))?;
                Ok(Undone::Removed)
            }
        }
    }

    /// The text that `text` was made of by putting the entry into it, if nothing else was changed since: that of the copy,
    /// or nothing where there was no file.
    fn original(&self, path: &Path, text: &str, name: &str) -> Result<Option<Option<String>>, Failure> {
        let Ok(Some(value)) = client_files::has(self.client, text, name) else { return Ok(None) };
        let entry = Entry::existing(self.client, name, value);
        let copy = self.read(&backup_of(path))?;
        let again = client_files::add(self.client, copy.as_deref().unwrap_or_default(), &entry);
        Ok((again.as_deref() == Ok(text) && copy.as_deref() != Some(text)).then_some(copy))
    }

    fn read(&self, path: &Path) -> Result<Option<String>, Failure> {
        replace::read(path).map_err(|error| cannot("read", path, &error))
    }

    fn cannot_edit(&self, error: &EditError) -> Failure {
        let path = self.path.display();
        let by_hand = format!("nothing was changed; `fanlight connect {} --print` shows the entry", self.client.id());
        Failure::other(match error {
            EditError::Malformed(line, message) => format!("{path}:{line}: {message}; {by_hand}"),
            EditError::ByHand => format!("{path} is written so that it has to be changed by hand; {by_hand}"),
        })
    }
}

fn backup_of(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(BACKUP);
    path.with_file_name(name)
}

fn cannot(what: &str, path: &Path, error: &Error) -> Failure {
    Failure::other(format!("cannot {what} {}: {error}", path.display()))
}
