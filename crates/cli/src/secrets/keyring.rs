//! Secrets in the keyring of the system: the Secret Service, the keychain of macOS, the credential
//! manager of Windows.

use fanlight_config::Secret;
use fanlight_grants::Keyring;

use super::within_limit;

/// The service name of Fanlight's own entries.
const SERVICE: &str = "fanlight";

/// The system's keyring, for Fanlight's own keys.
#[derive(Clone, Copy, Debug)]
pub struct SystemKeyring;

impl Keyring for SystemKeyring {
    fn keep(&self, name: &str, secret: &str) -> Result<(), String> {
        within_limit(store::set(SERVICE, name, secret))
    }

    fn find(&self, name: &str) -> Result<Secret, String> {
        within_limit(get(SERVICE, name)).map(Secret::new)
    }

    fn remove(&self, name: &str) {
        let _ = within_limit(store::remove(SERVICE, name));
    }
}

/// The secret of an account. Another process answers, and may first ask the user to unlock the
/// keyring.
pub(super) async fn get(service: &str, account: &str) -> Result<String, String> {
    store::get(service, account)
        .await
        .map_err(|error| format!("the keyring has none for {account:?} of {service:?}: {error}"))
}

#[cfg(not(any(target_os = "macos", windows)))]
mod store {
    use std::collections::HashMap;

    use secret_service::{EncryptionType, Error, Item, SecretService};

    async fn connect() -> Result<SecretService<'static>, String> {
        SecretService::connect(EncryptionType::Dh)
            .await
            .map_err(|error| format!("the keyring of this system cannot be used: {error}"))
    }

    fn attributes<'a>(service: &'a str, account: &'a str) -> HashMap<&'a str, &'a str> {
        HashMap::from([("service", service), ("username", account)])
    }

    fn text(error: Error) -> String {
        error.to_string()
    }

    /// The unlocked entry of an account.
    async fn find<'k>(
        keyring: &'k SecretService<'_>,
        service: &str,
        account: &str,
    ) -> Result<Item<'k>, String> {
        let found = keyring.search_items(attributes(service, account)).await;
        let found = found.map_err(text)?;
        let mut items = found.unlocked.into_iter().chain(found.locked);
        let item = items.next().ok_or("there is no such entry")?;
        if item.is_locked().await.map_err(text)? {
            item.unlock().await.map_err(text)?;
        }
        Ok(item)
    }

    pub(super) async fn get(service: &str, account: &str) -> Result<String, String> {
        let keyring = connect().await?;
        let item = find(&keyring, service, account).await?;
        let secret = item.get_secret().await.map_err(text)?;
        String::from_utf8(secret).map_err(|_| "it is not UTF-8 text".to_owned())
    }

    pub(super) async fn set(service: &str, account: &str, secret: &str) -> Result<(), String> {
        let keyring = connect().await?;
        let collection = keyring.get_any_collection().await.map_err(text)?;
        if collection.is_locked().await.map_err(text)? {
            collection.unlock().await.map_err(text)?;
        }
        let label = format!("{service}: {account}");
        let attributes = attributes(service, account);
        let created =
            collection.create_item(&label, attributes, secret.as_bytes(), true, "text/plain");
        created.await.map(drop).map_err(text)
    }

    pub(super) async fn remove(service: &str, account: &str) -> Result<(), String> {
        let keyring = connect().await?;
        let item = find(&keyring, service, account).await?;
        item.delete().await.map_err(text)
    }
}

#[cfg(any(target_os = "macos", windows))]
mod store {
    use keyring::v1::{Entry, Error};

    /// Runs an operation on a keyring entry in a thread that may block.
    async fn on_entry<T: Send + 'static>(
        service: &str,
        account: &str,
        work: impl FnOnce(&Entry) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, String> {
        let (service, account) = (service.to_owned(), account.to_owned());
        let worked = tokio::task::spawn_blocking(move || {
            Entry::new(&service, &account).and_then(|entry| work(&entry))
        });
        let result = worked.await.map_err(|error| error.to_string())?;
        result.map_err(|error| error.to_string())
    }

    pub(super) async fn get(service: &str, account: &str) -> Result<String, String> {
        on_entry(service, account, Entry::get_password).await
    }

    pub(super) async fn set(service: &str, account: &str, secret: &str) -> Result<(), String> {
        let secret = fanlight_config::Secret::new(secret);
        let work = move |entry: &Entry| entry.set_password(secret.expose());
        on_entry(service, account, work).await
    }

    pub(super) async fn remove(service: &str, account: &str) -> Result<(), String> {
        on_entry(service, account, Entry::delete_credential).await
    }
}
