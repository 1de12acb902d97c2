//! Secrets in the keyring of the system: the Secret Service, the keychain of macOS, the credential
//! manager of Windows.

use std::sync::mpsc;
use std::thread;

use fanlight_config::Secret;
use fanlight_grants::Keyring;
use keyring::v1::Entry;

use super::LIMIT;

/// The service name of Fanlight's own entries.
const SERVICE: &str = "fanlight";

/// The system's keyring, for Fanlight's own keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemKeyring;

impl Keyring for SystemKeyring {
    fn keep(&self, name: &str, secret: &str) -> Result<(), String> {
        let (name, secret) = (name.to_owned(), Secret::new(secret));
        within_limit(move || {
            entry(SERVICE, &name)?
                .set_password(secret.expose())
                .map_err(|error| error.to_string())
        })
    }

    fn find(&self, name: &str) -> Result<Secret, String> {
        let name = name.to_owned();
        within_limit(move || get(SERVICE, &name).map(Secret::new))
    }

    fn remove(&self, name: &str) {
        let name = name.to_owned();
        let _ = within_limit(move || {
            entry(SERVICE, &name)?
                .delete_credential()
                .map_err(|error| error.to_string())
        });
    }
}

/// Runs `work` in a separate thread, and abandons the thread after a time limit: nobody may be
/// there to unlock the keyring.
fn within_limit<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (sender, answer) = mpsc::channel();
    let started = thread::Builder::new()
        .name("keyring".to_owned())
        .spawn(move || sender.send(work()));
    started.map_err(|error| format!("no thread for it: {error}"))?;
    answer
        .recv_timeout(LIMIT)
        .unwrap_or_else(|_| Err(format!("it has not answered within {} s", LIMIT.as_secs())))
}

fn entry(service: &str, account: &str) -> Result<Entry, String> {
    Entry::new(service, account).map_err(|error| match Entry::store_status() {
        Err(reason) => format!("the keyring of this system cannot be used: {reason}"),
        Ok(()) => format!("the keyring does not take this name: {error}"),
    })
}

/// The secret of an account.
pub(super) fn get(service: &str, account: &str) -> Result<String, String> {
    // Another process answers, and may first ask the user to unlock the keyring.
    entry(service, account)?
        .get_password()
        .map_err(|error| format!("the keyring has none for {account:?} of {service:?}: {error}"))
}
