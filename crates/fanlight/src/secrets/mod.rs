//! Secrets that the configuration refers to and that are in no file: outputs of programs, entries of the system's keyring, and
//! of Vault or OpenBao. They are read with the configuration, and after a while again: what was rotated then takes effect as any
//! change of the configuration does.

mod exec;
#[cfg(feature = "keyring")]
mod keyring;
mod vault;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fanlight_config::{Secret, SecretReference};
#[cfg(not(feature = "keyring"))]
pub(crate) use fanlight_grants::NoKeyring as SystemKeyring;
use tracing::warn;

#[cfg(feature = "keyring")]
pub(crate) use self::keyring::SystemKeyring;

/// Reading one secret. No option: what takes longer hangs.
const LIMIT: Duration = Duration::from_secs(10);

/// Bytes of a secret, and of what a server of secrets answers.
const MAX_SIZE: usize = 64 << 10;

/// When a secret is read again whose source does not say for how long it is good.
const LASTS: Duration = Duration::from_secs(5 * 60);

/// When a secret that could not be read is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// What has been read, for as long as this process runs.
static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Known {
    entries: HashMap<SecretReference, Entry>,
    /// Counts readings of the configuration.
    reading: u64,
}

/// One secret.
struct Entry {
    value: Result<Secret, String>,
    /// When it is to be read again.
    due: Instant,
    /// The last reading of the configuration that referred to it.
    reading: u64,
}

/// A reading of the configuration begins: what the one before did not refer to is forgotten.
pub(crate) fn begin_reading() {
    let mut known = known();
    let last = known.reading;
    known.entries.retain(|_, entry| entry.reading == last);
    known.reading += 1;
}

/// The secret at a place, read now unless the output of a program is still good. One that cannot be read again stays as it was.
///
/// # Errors
///
/// Why there is none, without anything of a secret.
pub(crate) fn get(reference: &SecretReference) -> Result<String, String> {
    let exposed = |value: &Result<Secret, String>| {
        value
            .as_ref()
            .map(|text| text.expose().to_owned())
            .map_err(Clone::clone)
    };
    let before = {
        let mut known = known();
        let reading = known.reading;
        known.entries.get_mut(reference).map(|entry| {
            // The output of a program is good for as long as it says, everything else for one reading.
            let is_of_now =
                matches!(reference, SecretReference::Exec { .. }) || entry.reading == reading;
            entry.reading = reading;
            (entry.value.clone(), is_of_now && entry.due > Instant::now())
        })
    };
    if let Some((value, true)) = &before {
        return exposed(value);
    }
    let (value, lasts) = match (read(reference), before) {
        (Ok(value), _) => (Ok(Secret::new(value)), lasts(reference)),
        (Err(why), Some((Ok(before), _))) => {
            warn!(
                why,
                "a secret could not be read again: its previous value stays in use"
            );
            (Ok(before), RETRY)
        }
        (Err(why), _) => (Err(why), RETRY),
    };
    let result = exposed(&value);
    let mut known = known();
    let entry = Entry {
        value,
        due: Instant::now() + lasts,
        reading: known.reading,
    };
    known.entries.insert(reference.clone(), entry);
    result
}

/// Waits until a secret is to be read again; for ever if there is none.
pub(crate) async fn due() {
    let due = {
        let known = known();
        known
            .entries
            .values()
            .filter(|entry| entry.reading == known.reading)
            .map(|entry| entry.due)
            .min()
    };
    match due {
        Some(due) => tokio::time::sleep_until(due.into()).await,
        None => std::future::pending().await,
    }
}

fn known() -> MutexGuard<'static, Known> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lasts(reference: &SecretReference) -> Duration {
    match reference {
        SecretReference::Exec { lasts, .. } => (*lasts).max(Duration::from_secs(1)),
        _ => LASTS,
    }
}

fn read(reference: &SecretReference) -> Result<String, String> {
    match reference {
        // The reader of the configuration does that, and follows the file.
        SecretReference::File { .. } => Err("files are read with the configuration".to_owned()),
        SecretReference::Exec { command, .. } => within_limit(exec::output(command)),
        #[cfg(feature = "keyring")]
        SecretReference::Keyring { service, account } => keyring::get(service, account),
        #[cfg(not(feature = "keyring"))]
        SecretReference::Keyring { .. } => {
            Err("this program was built without the feature `keyring`".to_owned())
        }
        SecretReference::Vault { mount, path, key } => within_limit(vault::get(mount, path, key)),
    }
}

/// Runs in a thread of its own, since the configuration is read with a runtime around it and without.
fn within_limit<T: Send>(
    reading: impl Future<Output = Result<T, String>> + Send,
) -> Result<T, String> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| format!("no thread for it: {error}"))?;
        let read = runtime.block_on(async { tokio::time::timeout(LIMIT, reading).await });
        read.unwrap_or_else(|_| Err(format!("it took longer than {} s", LIMIT.as_secs())))
    };
    std::thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|_| Err("reading it has failed".to_owned()))
}
