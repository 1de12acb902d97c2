//! Replacing a file as a whole or not at all.

use std::fs;
use std::io::{ErrorKind, Result, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The file itself where its name is that of a link to it.
pub(crate) fn target(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// The text of a file; none if there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Who can read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewFile {
    /// Its owner alone.
    OfOwner,
    /// Everybody, as far as the process lets others read its files.
    OfAll,
}

/// Gives a file this text. An existing one keeps its owner and mode.
pub(crate) fn replace(path: &Path, text: &str, new: NewFile) -> Result<()> {
    write(path, text, Some(path).filter(|path| path.exists()), new)
}

/// Writes a copy of the file at `original`, which has this text, with its owner and mode. What has the name of the copy is
/// replaced: a link is not followed.
pub(crate) fn copy(original: &Path, path: &Path, text: &str) -> Result<()> {
    write(path, text, Some(original), NewFile::OfOwner)
}

/// Writes a file with the owner and mode of another, if there is one.
fn write(path: &Path, text: &str, like: Option<&Path>, made: NewFile) -> Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    if made == NewFile::OfAll {
        // Less what the umask takes.
        builder.permissions(PermissionsExt::from_mode(0o666));
    }
    let mut new = builder.tempfile_in(folder)?;
    new.write_all(text.as_bytes())?;
    if let Some(like) = like {
        keep_owner_and_mode(like, new.path())?;
    }
    new.as_file().sync_all()?;
    new.persist(path).map_err(|error| error.error)?;
    Ok(())
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
