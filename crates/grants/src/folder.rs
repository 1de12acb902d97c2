//! The folder of `stateDir`, accessible only to Fanlight's user.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use aws_lc_rs::rand;
use rustix::fs::OFlags;
use tempfile::NamedTempFile;
use tracing::warn;

/// The file with the key from which others are derived.
const KEY: &str = "key";
const KEY_BYTES: usize = 32;
/// Flags that refuse to follow a link or wait for a pipe.
const PLAIN_FILES: i32 = (OFlags::NOFOLLOW.bits() | OFlags::NONBLOCK.bits()).cast_signed();
/// Permissions of users other than the owner.
const OTHERS: u32 = 0o077;
/// The prefix of temporary files.
const UNFINISHED: &str = ".unfinished-";
/// Older temporary files were left behind by a process that has ended.
const LEFT_BEHIND: Duration = Duration::from_secs(3600);

/// An open folder.
pub struct Folder {
    path: PathBuf,
    key: Key,
}

impl Folder {
    /// Opens the folder, or creates it, and checks that no other user can access it.
    ///
    /// # Errors
    ///
    /// A text describes the problem.
    pub fn open(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| format!("cannot make the folder {shown}: {error}"))?;
        let metadata = fs::metadata(path)
            .map_err(|error| format!("cannot read the permissions of {shown}: {error}"))?;
        check(&metadata).map_err(|problem| {
            format!("the folder {shown} {problem}; make it Fanlight's user's own, for example by `chmod 700 {shown}`")
        })?;
        remove_unfinished(path);
        let key = Self::key_in(path)
            .map_err(|error| format!("cannot use the key in {shown}: {error}"))?;
        Ok(Self {
            path: path.to_owned(),
            key: Key::new(HMAC_SHA256, &key),
        })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A sealing key derived from the folder's key, for use without another key.
    pub(crate) fn sealing_key(&self) -> [u8; KEY_BYTES] {
        let derived = hmac::sign(&self.key, b"key that seals what users have granted");
        let mut key = [0; KEY_BYTES];
        // Both have the length of SHA-256.
        key.copy_from_slice(derived.as_ref());
        key
    }

    fn key_in(path: &Path) -> Result<Vec<u8>, String> {
        let is_key = |key: &Vec<u8>| key.len() == KEY_BYTES;
        match read(&path.join(KEY), KEY_BYTES) {
            Ok(Some(key)) if is_key(&key) => return Ok(key),
            Ok(None) => {}
            Ok(Some(_)) => replace_key(path, "it is too short")?,
            Err(problem) => replace_key(path, &problem)?,
        }
        let mut key = vec![0; KEY_BYTES];
        rand::fill(&mut key).map_err(|_| "the system has no random numbers".to_owned())?;
        if write_new(path, KEY, &key).map_err(|error| error.to_string())? {
            return Ok(key);
        }
        // Another process was first.
        read(&path.join(KEY), KEY_BYTES)?
            .filter(is_key)
            .ok_or_else(|| "another process has just replaced it".to_owned())
    }

    /// Reads a file of at most `longest` bytes that only this user can access; `None` if it does
    /// not exist.
    ///
    /// # Errors
    ///
    /// A text tells why the file is not read.
    pub(crate) fn read(&self, name: &str, longest: usize) -> Result<Option<Vec<u8>>, String> {
        read(&self.path.join(name), longest)
    }

    /// Opens a file that only this user can access, for reading and writing; creates it if
    /// necessary.
    ///
    /// # Errors
    ///
    /// A text tells why the file is not opened.
    pub fn open_file(&self, name: &str) -> Result<File, String> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let file = options.custom_flags(PLAIN_FILES).open(self.path.join(name));
        let file = file.map_err(|error| format!("it cannot be opened: {error}"))?;
        check_file(&file)?;
        Ok(file)
    }

    /// Writes a new file. Returns false if it already exists.
    ///
    /// # Errors
    ///
    /// If it cannot be written.
    pub(crate) fn write_new(&self, name: &str, bytes: &[u8]) -> io::Result<bool> {
        write_new(&self.path, name, bytes)
    }
}

fn write_new(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<bool> {
    match unfinished(folder, bytes)?.persist_noclobber(folder.join(name)) {
        Ok(_) => Ok(true),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.error),
    }
}

/// Removes an unusable key. Data sealed with it is ignored from then on.
fn replace_key(folder: &Path, why: &str) -> Result<(), String> {
    warn!(folder = %folder.display(), why, "key in stateDir replaced: stored data is lost, except data encrypted with `keys` or with a key in the keyring");
    fs::remove_file(folder.join(KEY)).map_err(|error| error.to_string())
}

fn read(path: &Path, longest: usize) -> Result<Option<Vec<u8>>, String> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(PLAIN_FILES)
        .open(path);
    let file: File = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("it cannot be opened: {error}")),
    };
    check_file(&file)?;
    let limit = longest as u64;
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() > longest {
        return Err(format!("it has more than {longest} bytes"));
    }
    Ok(Some(bytes))
}

fn check_file(file: &File) -> Result<(), String> {
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file".to_owned());
    }
    check(&metadata).map_err(|problem| format!("it {problem}"))
}

/// Checks that only this user can access a file; the error tells why not.
fn check(metadata: &Metadata) -> Result<(), String> {
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err(format!("belongs to user {}", metadata.uid()));
    }
    match metadata.mode() & OTHERS {
        0 => Ok(()),
        _ => Err(format!(
            "is accessible to other users (mode {:o})",
            metadata.mode() & 0o7777
        )),
    }
}

/// A file with these bytes and mode 0600, which does not have its final name yet.
fn unfinished(folder: &Path, bytes: &[u8]) -> io::Result<NamedTempFile> {
    let mut file = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_data()?;
    Ok(file)
}

/// Removes temporary files that ended processes have left behind.
fn remove_unfinished(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_unfinished = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(UNFINISHED));
        let age = entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .ok()
            .and_then(|at| at.elapsed().ok());
        if is_unfinished && age.is_some_and(|age| age > LEFT_BEHIND) {
            let _ = fs::remove_file(entry.path());
        }
    }
}
