//! The files of an audit log: the current one, earlier ones, the checkpoints, and the key.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The extension of files with lines.
const LINES: &str = "jsonl";
/// The number of digits in the name of an earlier file, which give the number of its first line.
const DIGITS: usize = 20;

/// The files of an audit log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerFiles {
    folder: PathBuf,
    stem: String,
}

impl LedgerFiles {
    /// The audit log with this current file. `None` if the path has no file name.
    pub fn from_path(file: &Path) -> Option<Self> {
        let stem = file.file_stem()?.to_str()?.to_owned();
        Some(Self {
            folder: file.parent().unwrap_or(Path::new("")).to_owned(),
            stem,
        })
    }

    /// The audit logs in a folder, by name.
    pub fn in_folder(folder: &Path) -> Vec<Self> {
        let stem = |stem: String| {
            first_line(&stem)
                .map_or(&*stem, |(stem, _)| stem)
                .to_owned()
        };
        let mut stems: Vec<_> = stems_in(folder).map(stem).collect();
        stems.sort();
        stems.dedup();
        stems
            .into_iter()
            .map(|stem| Self {
                folder: folder.to_owned(),
                stem,
            })
            .collect()
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file that new lines are written to.
    pub fn current(&self) -> PathBuf {
        self.folder.join(format!("{}.{LINES}", self.stem))
    }

    /// The file with the checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.folder.join(format!("{}.checkpoints", self.stem))
    }

    /// The file with the key that signs checkpoints.
    pub fn key(&self) -> PathBuf {
        self.folder.join(format!("{}.key", self.stem))
    }

    /// The files with lines, the oldest first.
    pub fn list(&self) -> Vec<PathBuf> {
        let mut all = self.earlier_files();
        all.extend(Some(self.current()).filter(|current| current.is_file()));
        all
    }

    /// The files before the current one, the oldest first.
    pub(crate) fn earlier_files(&self) -> Vec<PathBuf> {
        let is_own = |stem: &String| first_line(stem).is_some_and(|(stem, _)| stem == self.stem);
        // The numbers have the same number of digits.
        let mut stems: Vec<_> = stems_in(&self.folder).filter(is_own).collect();
        stems.sort();
        stems
            .into_iter()
            .map(|stem| self.folder.join(format!("{stem}.{LINES}")))
            .collect()
    }

    /// The name of the current file after its rotation.
    pub(crate) fn rotated_path(&self, first_line: u64) -> PathBuf {
        self.folder
            .join(format!("{}-{first_line:0DIGITS$}.{LINES}", self.stem))
    }

    /// The new name for a file that cannot be continued.
    pub(crate) fn set_aside(&self, seconds: u64) -> PathBuf {
        self.folder.join(format!("{}.damaged-{seconds}", self.stem))
    }

    /// Creates the folder if it is missing, for its owner alone.
    pub(crate) fn make_folder(&self) -> io::Result<()> {
        if self.folder.as_os_str().is_empty() {
            return Ok(());
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
    }
}

/// The names of the files with lines in a folder, without the ending.
fn stems_in(folder: &Path) -> impl Iterator<Item = String> {
    let names = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| Some(name.strip_suffix(LINES)?.strip_suffix('.')?.to_owned()))
}

/// The stem and the number of the first line in the name of an earlier file.
fn first_line(stem: &str) -> Option<(&str, u64)> {
    let (stem, number) = stem.rsplit_once('-')?;
    let is_number = number.len() == DIGITS && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Some((stem, number.parse().ok()?)))?
}

/// Opens a file for appending, for its owner alone.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}
