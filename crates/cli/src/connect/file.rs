//! A client's file on disk, and the copy made before the first change.

use std::ffi::OsStr;
use std::fs;
use std::io::Error;
use std::path::{Path, PathBuf};

use fanlight_config::client_files::{self as client_files, Client, EditError, Entry};
use serde_json::Value;

use crate::cli::NAME;
use crate::failure::{Failure, Result};
use crate::replace::{self, NewFile};

/// The suffix of a file's copy.
const BACKUP: &str = ".before-fanlight";

/// The file of a client.
pub(super) struct ClientFile {
    client: Client,
    /// The path, whether or not the file exists.
    pub(super) path: PathBuf,
    /// The project's folder, if the file belongs to one. Others may have written it, so no link
    /// below it is followed.
    pub(super) project: Option<PathBuf>,
}

/// The outcome of removing an entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Undone {
    /// The file has its previous bytes again.
    Restored,
    /// The file existed only for the entry, and is removed.
    Deleted,
    /// The entry is removed; other changes made since then stay.
    Removed,
}

impl ClientFile {
    pub(super) fn new(client: Client, path: PathBuf) -> Self {
        Self {
            client,
            path,
            project: None,
        }
    }

    /// The path to write to. In the user's own files a link is followed; in a project a link is
    /// refused, since others may have made it.
    fn target(&self) -> Result<PathBuf> {
        let Some(project) = &self.project else {
            return Ok(replace::target(&self.path));
        };
        let within = self
            .path
            .ancestors()
            .take_while(|ancestor| *ancestor != project.as_path());
        match within.filter(|path| path.is_symlink()).last() {
            Some(link) => Err(failure!(
                "{} is a link, and links in a project are not followed; remove it, or name the file itself with --file",
                link.display()
            )),
            None => Ok(self.path.clone()),
        }
    }

    /// Whether the file has an entry of this name.
    pub(super) fn has(&self, name: &str) -> Result<bool> {
        let text = self.read(&self.path)?.unwrap_or_default();
        Ok(client_files::find_entry(self.client, &text, name)
            .map_err(|error| self.cannot_edit(&error))?
            .is_some())
    }

    /// The names of the entries that start this program or contain `url`.
    pub(super) fn own_names(&self, url: Option<&str>) -> Vec<String> {
        let text = self.read(&self.path).ok().flatten().unwrap_or_default();
        let entries = client_files::entries(self.client, &text).unwrap_or_default();
        let own = entries
            .into_iter()
            .filter(|(_, entry)| leads_here(entry, url));
        own.map(|(name, _)| name).collect()
    }

    /// Adds an entry to the file. Returns the path of the file's copy, if the file existed.
    pub(super) fn add(&self, entry: &Entry) -> Result<Option<PathBuf>> {
        let path = self.target()?;
        let before = self.read(&path)?;
        let text = before.clone().unwrap_or_default();
        let edited = |error: EditError| self.cannot_edit(&error);
        let changed = client_files::add(self.client, &text, entry).map_err(edited)?;
        let backup = backup_of(&path)?;
        let original = self.original(&path, &text, &entry.name)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)
                .map_err(|error| cannot("make the folder of", &path, &error))?;
        }
        if before.as_deref() == Some(&changed) {
            return Ok(Some(backup).filter(|backup| backup.is_file()));
        }
        let kept = match (original, &before) {
            // The entry replaces one of the same name: the first copy stays.
            (Some(Some(_)), _) => Some(backup),
            (Some(None), _) | (None, None) => None,
            (None, Some(before)) => {
                replace::copy(&path, &backup, before)
                    .map_err(|error| cannot("write", &backup, &error))?;
                Some(backup)
            }
        };
        replace::replace(&path, &changed, NewFile::OfOwner)
            .map_err(|error| cannot("write", &path, &error))?;
        Ok(kept)
    }

    /// Removes the entry of this name from the file.
    pub(super) fn undo(&self, name: &str) -> Result<Undone> {
        let path = self.target()?;
        let not_there = || failure!("{} has no entry {name:?}", self.path.display());
        let text = self.read(&path)?.ok_or_else(not_there)?;
        let backup = backup_of(&path)?;
        match self.original(&path, &text, name)? {
            Some(Some(original)) => {
                replace::replace(&path, &original, NewFile::OfOwner)
                    .map_err(|error| cannot("write", &path, &error))?;
                fs::remove_file(&backup).map_err(|error| cannot("remove", &backup, &error))?;
                Ok(Undone::Restored)
            }
            Some(None) => {
                fs::remove_file(&path).map_err(|error| cannot("remove", &path, &error))?;
                Ok(Undone::Deleted)
            }
            None => {
                if client_files::find_entry(self.client, &text, name)
                    .map_err(|error| self.cannot_edit(&error))?
                    .is_none()
                {
                    return Err(not_there());
                }
                let changed = client_files::remove(self.client, &text, name)
                    .map_err(|error| self.cannot_edit(&error))?;
                replace::replace(&path, &changed, NewFile::OfOwner)
                    .map_err(|error| cannot("write", &path, &error))?;
                Ok(Undone::Removed)
            }
        }
    }

    /// The file's content before the entry, if nothing else has changed since: the copy's text, or
    /// empty if there was no file.
    fn original(&self, path: &Path, text: &str, name: &str) -> Result<Option<Option<String>>> {
        let Ok(Some(value)) = client_files::find_entry(self.client, text, name) else {
            return Ok(None);
        };
        let entry = Entry::from_file(self.client, name, value);
        let copy = self.read(&backup_of(path)?)?;
        let again = client_files::add(self.client, copy.as_deref().unwrap_or_default(), &entry);
        Ok((again.as_deref() == Ok(text) && copy.as_deref() != Some(text)).then_some(copy))
    }

    fn read(&self, path: &Path) -> Result<Option<String>> {
        replace::read(path).map_err(|error| cannot("read", path, &error))
    }

    fn cannot_edit(&self, error: &EditError) -> Failure {
        let path = self.path.display();
        let by_hand = format!(
            "nothing was changed; `fanlight connect {} --print` shows the entry",
            self.client.as_str()
        );
        Failure::other(match error {
            EditError::Malformed(line, message) => format!("{path}:{line}: {message}; {by_hand}"),
            EditError::ByHand => {
                format!(
                    "{path} cannot be changed automatically because of how it is written; {by_hand}"
                )
            }
        })
    }
}

/// Whether a client's entry starts this program or contains `url`.
fn leads_here(entry: &Value, url: Option<&str>) -> bool {
    match entry {
        Value::String(text) => {
            Some(text.as_str()) == url || Path::new(text).file_stem() == Some(OsStr::new(NAME))
        }
        Value::Array(items) => items.iter().any(|item| leads_here(item, url)),
        Value::Object(members) => members.values().any(|item| leads_here(item, url)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The path of a file's copy. An existing copy must be a regular file: through a link, Fanlight
/// would overwrite or read another file.
fn backup_of(path: &Path) -> Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(BACKUP);
    let backup = path.with_file_name(name);
    match fs::symlink_metadata(&backup) {
        Ok(found) if !found.is_file() => {
            let message = format!(
                "{} is not a regular file: remove it; nothing was changed",
                backup.display()
            );
            Err(Failure::other(message))
        }
        _ => Ok(backup),
    }
}

fn cannot(what: &str, path: &Path, error: &Error) -> Failure {
    failure!("cannot {what} {}: {error}", path.display())
}
