//! Replaces a file as a whole or not at all.

use std::fs;
use std::io::{ErrorKind, Result, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The file itself, after following links.
pub(crate) fn target(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// The text of a file; `None` if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The readers of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewFile {
    /// Readable by the owner only.
    OfOwner,
    /// Everybody, as far as the umask allows.
    OfAll,
}

/// Replaces a file's text. An existing file keeps its owner and mode.
pub(crate) fn replace(path: &Path, text: &str, new: NewFile) -> Result<()> {
    write(path, text, Some(path).filter(|path| path.exists()), new)
}

/// Writes a copy of the file at `original` with this text and the same owner and mode. An existing
/// file with the copy's name is replaced; a link is not followed.
pub(crate) fn copy(original: &Path, path: &Path, text: &str) -> Result<()> {
    write(path, text, Some(original), NewFile::OfOwner)
}

/// Writes a file with the owner and mode of another, if given.
fn write(path: &Path, text: &str, like: Option<&Path>, made: NewFile) -> Result<()> {
    let mut builder = tempfile::Builder::new();
    if made == NewFile::OfAll {
        // The umask removes some of these bits.
        builder.permissions(PermissionsExt::from_mode(0o666));
    }
    let mut new = builder.tempfile_in(folder_of(path))?;
    new.write_all(text.as_bytes())?;
    if let Some(like) = like {
        keep_owner_and_mode(like, new.path())?;
    }
    new.as_file().sync_all()?;
    new.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// The folder in which a file is.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

#[cfg(unix)]
fn keep_owner_and_mode(old: &Path, new: &Path) -> Result<()> {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let (old, made) = (fs::metadata(old)?, fs::metadata(new)?);
    if (old.uid(), old.gid()) != (made.uid(), made.gid()) {
        chown(new, Some(old.uid()), Some(old.gid()))?;
    }
    fs::set_permissions(new, old.permissions())
}

#[cfg(not(unix))]
fn keep_owner_and_mode(old: &Path, new: &Path) -> Result<()> {
    fs::set_permissions(new, fs::metadata(old)?.permissions())
}
