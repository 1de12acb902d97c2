//! Secrets outside the configuration files: output of programs and entries of the system's keyring.
//! They are read with the configuration, and again after a while.
//! A rotated secret takes effect like any change of the configuration.

mod exec;
#[cfg(feature = "keyring")]
mod keyring;

use std::collections::HashMap;
use std::future::Future;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use fanlight_config::{Secret, SecretReference};
#[cfg(not(feature = "keyring"))]
pub use fanlight_grants::NoKeyring as SystemKeyring;
use parking_lot::Mutex;
use tracing::warn;

#[cfg(feature = "keyring")]
pub use self::keyring::SystemKeyring;

/// The time limit for reading a secret. There is no option: whatever takes longer hangs.
const LIMIT: Duration = Duration::from_secs(10);

/// The size limit of a secret in bytes.
const MAX_SIZE: usize = 64 << 10;

/// The lifetime of a secret whose source does not specify one.
const LASTS: Duration = Duration::from_secs(5 * 60);

/// When to retry a secret that could not be read.
const RETRY: Duration = Duration::from_secs(30);

/// The secrets read so far.
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
    /// When it has to be read again.
    due: Instant,
    /// The last reading of the configuration that referred to it.
    reading: u64,
}

/// Begins a reading of the configuration: forgets secrets that the previous one did not refer to.
pub fn begin_reading() {
    let mut known = KNOWN.lock();
    let last = known.reading;
    known.entries.retain(|_, entry| entry.reading == last);
    known.reading += 1;
}

/// The secret at a place. It is read now, unless it is a program's output that is still valid. If
/// it cannot be read again, the previous value stays.
///
/// # Errors
///
/// The reason, without parts of a secret.
pub fn get(reference: &SecretReference) -> Result<String, String> {
    let exposed = |value: &Result<Secret, String>| {
        value
            .as_ref()
            .map(|text| text.expose().to_owned())
            .map_err(Clone::clone)
    };
    let before = {
        let mut known = KNOWN.lock();
        let reading = known.reading;
        known.entries.get_mut(reference).map(|entry| {
            // A program's output is valid for its stated lifetime, any other secret for one
            // reading.
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
    let mut known = KNOWN.lock();
    let entry = Entry {
        value,
        due: Instant::now() + lasts,
        reading: known.reading,
    };
    known.entries.insert(reference.clone(), entry);
    result
}

/// Waits until a secret has to be read again; forever if there is none.
pub async fn due() {
    let due = {
        let known = KNOWN.lock();
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

fn lasts(reference: &SecretReference) -> Duration {
    match reference {
        SecretReference::Exec { lasts, .. } => (*lasts).max(Duration::from_secs(1)),
        _ => LASTS,
    }
}

fn read(reference: &SecretReference) -> Result<String, String> {
    match reference {
        // The reader of the configuration reads files itself, and watches them.
        SecretReference::File { .. } => Err("files are read with the configuration".to_owned()),
        SecretReference::Exec { command, .. } => within_limit(exec::output(command)),
        #[cfg(feature = "keyring")]
        SecretReference::Keyring { service, account } => {
            within_limit(keyring::get(service, account))
        }
        #[cfg(not(feature = "keyring"))]
        SecretReference::Keyring { .. } => Err(
            "this program was built without the feature `keyring`: build it with `--features \
                 keyring`, or use `${exec:…}` or `${file:…}`"
                .to_owned(),
        ),
    }
}

/// Runs in a separate thread, since the configuration is read both inside and outside a runtime.
fn within_limit<T: Send>(
    reading: impl Future<Output = Result<T, String>> + Send,
) -> Result<T, String> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| format!("no thread for it: {error}"))?;
        let read = runtime.block_on(async { tokio::time::timeout(LIMIT, reading).await });
        // A keyring that has not answered keeps a thread.
        runtime.shutdown_background();
        read.unwrap_or_else(|_| Err(format!("it took longer than {} s", LIMIT.as_secs())))
    };
    std::thread::scope(|scope| scope.spawn(run).join())
        .unwrap_or_else(|_| Err("reading it has failed".to_owned()))
}
