//! The file of a client on disk, with a copy of what it was before.

use std::fs;
use std::io::Error;
use std::path::{Path, PathBuf};

use fanlight_client_files::{self as client_files, Client, EditError, Entry};

use crate::failure::Failure;
use crate::replace::{self, NewFile};

/// What the copy of a file is called: its name and this.
const BACKUP: &str = ".before-fanlight";

/// The file of a client.
pub(super) struct ClientFile {
    client: Client,
    /// Where it is, or will be.
    pub(super) path: PathBuf,
    /// The folder of a project, which may come from elsewhere: no link below it is followed.
    project: Option<PathBuf>,
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
        Self {
            client,
            path,
            project: None,
        }
    }

    /// It as a file below the folder of a project.
    pub(super) fn of_project(self, folder: PathBuf) -> Self {
        Self {
            project: Some(folder),
            ..self
        }
    }

    /// The file itself. A user may have made its name a link to it; in a project, somebody else may have.
    fn target(&self) -> Result<PathBuf, Failure> {
        let Some(project) = &self.project else {
            return Ok(replace::target(&self.path));
        };
        let within = self
            .path
            .ancestors()
            .take_while(|ancestor| *ancestor != project.as_path());
        match within.filter(|path| path.is_symlink()).last() {
            Some(link) => Err(Failure::other(format!(
                "{} is a link, and links in a project are not followed; remove it, or name the file itself with --file",
                link.display()
            ))),
            None => Ok(self.path.clone()),
        }
    }

    /// Whether it has an entry of this name.
    pub(super) fn has(&self, name: &str) -> Result<bool, Failure> {
        let text = self.read(&self.path)?.unwrap_or_default();
        Ok(client_files::has(self.client, &text, name)
            .map_err(|error| self.cannot_edit(&error))?
            .is_some())
    }

    /// Puts an entry into the file. The answer is where the copy of the file is, if there was a file.
    pub(super) fn add(&self, entry: &Entry) -> Result<Option<PathBuf>, Failure> {
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
            // A further entry of the same name: the first copy stays.
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

    /// Takes the entry of this name out of the file.
    pub(super) fn undo(&self, name: &str) -> Result<Undone, Failure> {
        let path = self.target()?;
        let not_there = || Failure::other(format!("{} has no entry {name:?}", self.path.display()));
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
                if client_files::has(self.client, &text, name)
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

    /// The text that `text` was made of by putting the entry into it, if nothing else was changed since: that of the copy,
    /// or nothing where there was no file.
    fn original(
        &self,
        path: &Path,
        text: &str,
        name: &str,
    ) -> Result<Option<Option<String>>, Failure> {
        let Ok(Some(value)) = client_files::has(self.client, text, name) else {
            return Ok(None);
        };
        let entry = Entry::existing(self.client, name, value);
        let copy = self.read(&backup_of(path)?)?;
        let again = client_files::add(self.client, copy.as_deref().unwrap_or_default(), &entry);
        Ok((again.as_deref() == Ok(text) && copy.as_deref() != Some(text)).then_some(copy))
    }

    fn read(&self, path: &Path) -> Result<Option<String>, Failure> {
        replace::read(path).map_err(|error| cannot("read", path, &error))
    }

    fn cannot_edit(&self, error: &EditError) -> Failure {
        let path = self.path.display();
        let by_hand = format!(
            "nothing was changed; `fanlight connect {} --print` shows the entry",
            self.client.id()
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

/// Where the copy of a file is, or will be. What is there already must be a file: a link would have another file replaced, or
/// shown in the place of this one.
fn backup_of(path: &Path) -> Result<PathBuf, Failure> {
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
    Failure::other(format!("cannot {what} {}: {error}", path.display()))
}
