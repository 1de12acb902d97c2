//! Reading files: their text, and a fingerprint that shows a change.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::settings::read_bounded;

use crate::{ConfigErrors, MAX_KEY_FILE_SIZE};

/// A file of the configuration, or a folder in which further files may appear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// The path.
    pub path: PathBuf,
    /// The file's [`fingerprint`] when it was read.
    pub fingerprint: Option<u64>,
}

impl ConfigFile {
    /// A file or folder as it is now.
    pub(crate) fn read(path: PathBuf) -> Self {
        Self {
            fingerprint: fingerprint(&path),
            path,
        }
    }
}

/// A number that changes with a file's content or with the names in a folder; `None` if it cannot
/// be read.
pub fn fingerprint(path: &Path) -> Option<u64> {
    if path.is_dir() {
        let mut names: Vec<_> = std::fs::read_dir(path)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.file_name()))
            .collect();
        names.sort();
        let mut hasher = DefaultHasher::new();
        names.hash(&mut hasher);
        return Some(hasher.finish());
    }
    read_bounded(path, MAX_KEY_FILE_SIZE)
        .ok()
        .map(|bytes| hash(&bytes))
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// The text of a file of at most `most` bytes; one byte more of a larger file.
pub(crate) fn read(path: &Path, most: usize) -> Result<(String, ConfigFile), ConfigErrors> {
    let bytes = read_bounded(path, most).map_err(|error| {
        let help = match error.kind() {
            ErrorKind::InvalidInput => {
                "name a file that holds the text: pipes and devices are not read"
            }
            _ => "check the name and the permissions of the file",
        };
        ConfigErrors::from_file(path, format!("cannot read the file: {error}"), help)
    })?;
    let file = ConfigFile {
        path: path.to_owned(),
        fingerprint: Some(hash(&bytes)),
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error
            .as_bytes()
            .iter()
            .take(valid)
            .filter(|byte| **byte == b'\n')
            .count();
        let message = format!("the file is not UTF-8 text: see line {line}");
        ConfigErrors::from_file(path, message, "save it as UTF-8")
    })?;
    Ok((text, file))
}

/// The start of the line with this byte.
pub(crate) fn line_start(text: &str, at: usize) -> usize {
    text.get(..at)
        .and_then(|before| before.rfind('\n'))
        .map_or(0, |found| found + 1)
}

/// The end of the line with this byte, after its line break.
pub(crate) fn line_end(text: &str, at: usize) -> usize {
    text.get(at..)
        .and_then(|after| after.find('\n'))
        .map_or(text.len(), |found| at + found + 1)
}

/// The text with other content between two places.
pub(crate) fn spliced(text: &str, start: usize, end: usize, new: &str) -> String {
    format!(
        "{}{new}{}",
        text.get(..start).unwrap_or_default(),
        text.get(end..).unwrap_or_default()
    )
}
