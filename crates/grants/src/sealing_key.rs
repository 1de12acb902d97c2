//! The key that seals users' records if the configuration has none. It is in the system's keyring,
//! or is derived from the key in the folder. The choice is made when the first record is stored,
//! and noted in the folder, so that another key never replaces one that is unavailable for a while.

use std::fmt;
use std::path::PathBuf;

use aws_lc_rs::rand;
use data_encoding::HEXLOWER;
use fanlight_config::settings::Secret;
use fanlight_protocol::digest::short_digest;
use fanlight_protocol::seal::Keys;
use tracing::{info, warn};

use crate::folder::Folder;

/// The file with the note about the key.
const NOTE: &str = "sealing-key";
/// The maximum length of the note, in bytes.
const LONGEST: usize = 4096;
/// The content of the note if the key is derived from the folder's key.
const IN_FILE: &str = "file";
const IN_KEYRING: &str = "keyring";

type Key = [u8; 32];

/// Stores secrets for this process's user: the system's keyring. It may block for some seconds, but
/// not forever.
pub trait Keyring: fmt::Debug + Send + Sync {
    /// Stores a secret under a new name.
    ///
    /// # Errors
    ///
    /// A text gives the reason.
    fn keep(&self, name: &str, secret: &str) -> Result<(), String>;

    /// The secret with this name.
    ///
    /// # Errors
    ///
    /// A text tells why it is unavailable.
    fn find(&self, name: &str) -> Result<Secret, String>;

    /// Removes an unused secret.
    fn remove(&self, name: &str);
}

/// A system without a keyring.
#[derive(Clone, Copy, Debug)]
pub struct NoKeyring;

impl Keyring for NoKeyring {
    fn keep(&self, _: &str, _: &str) -> Result<(), String> {
        Err("this program was built without one".to_owned())
    }

    fn find(&self, _: &str) -> Result<Secret, String> {
        Err("this program was built without one".to_owned())
    }

    fn remove(&self, _: &str) {}
}

/// The reason why there is no key. The texts are for operators.
#[derive(Debug, thiserror::Error)]
pub enum SealingKeyError {
    /// The key is in the keyring and unavailable.
    #[error(
        "cannot read the key for users' grants, which is in the system's keyring as {name:?}: \
         {reason}; unlock the keyring and start Fanlight again. If the key is lost for good, \
         remove sealing-key and grants.redb in {}; users then have to sign in again",
        folder.display()
    )]
    Away {
        /// The key's name in the keyring.
        name: String,
        /// The reason.
        reason: String,
        /// The folder of the store.
        folder: PathBuf,
    },
    /// The note about the key cannot be read or written.
    #[error("the file sealing-key in stateDir cannot be used: {0}")]
    Note(String),
}

/// The place of the sealing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// The key is in the configuration.
    Configuration,
    /// The key is in the keyring of the system.
    Keyring,
    /// The key is in a file of the folder.
    File,
}

/// A note about a key in the keyring.
struct Note {
    /// The key's name in the keyring.
    name: String,
    /// The check value that identifies the key.
    check: String,
}

/// The keys for users' records in a folder, the sealing one first, and that key's place. Records
/// without a note are sealed with the folder's key.
pub(crate) fn keys_of(
    folder: &Folder,
    has_records: bool,
    configured: &Keys,
    keyring: &dyn Keyring,
) -> Result<(Keys, KeyPlace), SealingKeyError> {
    let of_folder = folder.sealing_key();
    let in_file = || (configured.followed_by(of_folder), KeyPlace::File);
    // Lists are sealed with the folder's key.
    let in_keyring = |key| {
        (
            configured.followed_by(key).followed_by(of_folder),
            KeyPlace::Keyring,
        )
    };
    let (keys, place) = match read_note(folder)? {
        Some(None) => in_file(),
        Some(Some(note)) => match note.key(keyring) {
            Ok(key) => in_keyring(key),
            Err(reason) if configured.is_empty() => {
                return Err(SealingKeyError::Away {
                    name: note.name,
                    reason,
                    folder: folder.path().to_owned(),
                });
            }
            Err(reason) => {
                warn!(
                    name = note.name,
                    reason, "data encrypted with the key in the keyring cannot be read now"
                );
                (in_file().0, KeyPlace::Configuration)
            }
        },
        // Records sealed before `keys` were configured can still be opened.
        None if !configured.is_empty() || has_records => in_file(),
        None => match make_key(folder, keyring)? {
            Some(key) => in_keyring(key),
            None => in_file(),
        },
    };
    Ok((
        keys,
        if configured.is_empty() {
            place
        } else {
            KeyPlace::Configuration
        },
    ))
}

/// Makes a key for new records; `None` for the folder's key.
fn make_key(folder: &Folder, keyring: &dyn Keyring) -> Result<Option<Key>, SealingKeyError> {
    let (note, key) = match create_in_keyring(folder, keyring) {
        Ok(made) => made,
        Err(reason) => {
            info!(
                reason,
                "the key for users' grants is in a file in stateDir, since there is no keyring"
            );
            // This choice is not noted: until there are records, a keyring may appear.
            return Ok(None);
        }
    };
    let written = folder.write_new(NOTE, note.text().as_bytes());
    if !matches!(written, Ok(true)) {
        keyring.remove(&note.name);
    }
    if written.map_err(|error| SealingKeyError::Note(error.to_string()))? {
        return Ok(Some(key));
    }
    // Another process has made the choice meanwhile.
    let note = read_note(folder)?
        .ok_or_else(|| SealingKeyError::Note("another process has just removed it".to_owned()))?;
    let key = |note: Note| {
        note.key(keyring).map_err(|reason| SealingKeyError::Away {
            name: note.name,
            reason,
            folder: folder.path().to_owned(),
        })
    };
    note.map(key).transpose()
}

/// Makes a new key and stores it in the keyring.
fn create_in_keyring(folder: &Folder, keyring: &dyn Keyring) -> Result<(Note, Key), String> {
    let (mut key, mut number) = ([0; 32], [0; 4]);
    rand::fill(&mut key)
        .and_then(|()| rand::fill(&mut number))
        .map_err(|_| "the system has no random numbers")?;
    let path = folder
        .path()
        .canonicalize()
        .map_err(|error| error.to_string())?;
    let name = format!("{} {}", path.display(), HEXLOWER.encode(&number)).replace('\n', " ");
    keyring.keep(&name, Secret::new(HEXLOWER.encode(&key)).expose())?;
    Ok((
        Note {
            name,
            check: check(&key),
        },
        key,
    ))
}

/// The note about the key. The outer `None` means no note, the inner `None` the folder's key.
fn read_note(folder: &Folder) -> Result<Option<Option<Note>>, SealingKeyError> {
    let text = folder.read(NOTE, LONGEST).map_err(SealingKeyError::Note)?;
    let Some(text) = text else { return Ok(None) };
    let read = std::str::from_utf8(&text).ok().and_then(|text| {
        match text.split('\n').collect::<Vec<_>>()[..] {
            [IN_FILE] => Some(None),
            [IN_KEYRING, name, check] => Some(Some(Note {
                name: name.to_owned(),
                check: check.to_owned(),
            })),
            _ => None,
        }
    });
    read.map(Some)
        .ok_or_else(|| SealingKeyError::Note("it is malformed".to_owned()))
}

impl Note {
    fn text(&self) -> String {
        [IN_KEYRING, &self.name, &self.check].join("\n")
    }

    fn key(&self, keyring: &dyn Keyring) -> Result<Key, String> {
        let secret = keyring.find(&self.name)?;
        let key = HEXLOWER
            .decode(secret.expose().as_bytes())
            .ok()
            .and_then(|key| Key::try_from(key).ok());
        key.filter(|key| check(key) == self.check)
            .ok_or_else(|| "the keyring has another key under this name".to_owned())
    }
}

/// A check value that identifies a key without revealing it.
fn check(key: &Key) -> String {
    let text = [
        &b"check of a key that seals what users have granted "[..],
        key,
    ]
    .concat();
    short_digest(text)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use tempfile::TempDir;

    use super::*;

    /// A keyring that can become unavailable.
    #[derive(Debug, Default)]
    struct Ring {
        secrets: Mutex<HashMap<String, String>>,
        is_away: Mutex<bool>,
    }

    impl Ring {
        fn leave(&self, is_away: bool) {
            *self.is_away.lock().unwrap() = is_away;
        }

        fn check(&self) -> Result<(), String> {
            if *self.is_away.lock().unwrap() {
                Err("it is locked".to_owned())
            } else {
                Ok(())
            }
        }
    }

    impl Keyring for Ring {
        fn keep(&self, name: &str, secret: &str) -> Result<(), String> {
            self.check()?;
            self.secrets
                .lock()
                .unwrap()
                .insert(name.to_owned(), secret.to_owned());
            Ok(())
        }

        fn find(&self, name: &str) -> Result<Secret, String> {
            self.check()?;
            let found = self.secrets.lock().unwrap().get(name).cloned();
            found
                .map(Secret::new)
                .ok_or_else(|| "it has none of this name".to_owned())
        }

        fn remove(&self, name: &str) {
            self.secrets.lock().unwrap().remove(name);
        }
    }

    fn folder(of: &TempDir) -> Folder {
        Folder::open(&of.path().join("state")).unwrap()
    }

    fn place(of: &TempDir, configured: &Keys, ring: &Ring) -> Result<KeyPlace, String> {
        keys_of(&folder(of), false, configured, ring)
            .map(|(_, place)| place)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn key_in_the_keyring_is_waited_for_and_never_replaced() {
        let (of, ring, none) = (TempDir::new().unwrap(), Ring::default(), Keys::default());
        assert_eq!(place(&of, &none, &ring), Ok(KeyPlace::Keyring));
        assert_eq!(place(&of, &none, &ring), Ok(KeyPlace::Keyring));
        assert_eq!(ring.secrets.lock().unwrap().len(), 1);
        ring.leave(true);
        let error = place(&of, &none, &ring).unwrap_err();
        assert!(
            error.contains("it is locked") && error.contains("sealing-key"),
            "{error}"
        );
        ring.leave(false);
        assert_eq!(place(&of, &none, &ring), Ok(KeyPlace::Keyring));
        // With configured keys, an unavailable keyring is no error.
        ring.leave(true);
        assert_eq!(
            place(&of, &Keys::new([[1; 32]]), &ring),
            Ok(KeyPlace::Configuration)
        );
        ring.leave(false);
        ring.secrets
            .lock()
            .unwrap()
            .values_mut()
            .for_each(|secret| *secret = HEXLOWER.encode(&[7; 32]));
        assert!(place(&of, &none, &ring).unwrap_err().contains("another"));
        ring.secrets.lock().unwrap().clear();
        assert!(
            place(&of, &none, &ring)
                .unwrap_err()
                .contains("none of this name")
        );
        assert!(ring.secrets.lock().unwrap().is_empty());
        let text = std::fs::read_to_string(of.path().join("state").join(NOTE)).unwrap();
        assert!(text.starts_with("keyring\n"), "{text}");
    }

    #[test]
    fn key_stays_in_its_file_when_a_keyring_is_there_later() {
        let (of, ring, none) = (TempDir::new().unwrap(), Ring::default(), Keys::default());
        ring.leave(true);
        assert_eq!(place(&of, &none, &ring), Ok(KeyPlace::File));
        ring.leave(false);
        let (_, of_records) = keys_of(&folder(&of), true, &none, &ring).unwrap();
        assert_eq!(of_records, KeyPlace::File);
        assert!(ring.secrets.lock().unwrap().is_empty());
        // With configured keys, no keyring is needed.
        assert_eq!(
            place(&TempDir::new().unwrap(), &Keys::new([[1; 32]]), &ring),
            Ok(KeyPlace::Configuration)
        );
        assert!(ring.secrets.lock().unwrap().is_empty());
    }

    #[test]
    fn processes_that_begin_at_the_same_time_have_one_key() {
        let (of, ring) = (TempDir::new().unwrap(), Ring::default());
        let folder = folder(&of);
        let keys: Vec<_> = std::thread::scope(|scope| {
            let begin = || scope.spawn(|| make_key(&folder, &ring).unwrap());
            let all: Vec<_> = (0..8).map(|_| begin()).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(keys[0].is_some() && keys.iter().all(|key| *key == keys[0]));
        assert_eq!(ring.secrets.lock().unwrap().len(), 1);
    }
}
