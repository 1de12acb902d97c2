//! Secrets in the keyring of the system: the Secret Service, the keychain of macOS, the credential manager of Windows.

use keyring::v1::Entry;

/// The secret of an account.
pub(super) fn get(service: &str, account: &str) -> Result<String, String> {
    // Asks another process, which may ask its user to unlock the keyring: that takes as long as the user does.
    let entry = Entry::new(service, account).map_err(|error| match Entry::store_status() {
        Err(reason) => format!("the keyring of this system cannot be used: {reason}"),
        Ok(()) => format!("the keyring does not take this name: {error}"),
    })?;
    entry.get_password().map_err(|error| format!("the keyring has none for {account:?} of {service:?}: {error}"))
}
