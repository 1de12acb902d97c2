//! The answers of authorization servers: their metadata, and the clients registered there.

use std::sync::Arc;
use std::time::Duration;

use url::Url;

use crate::error::{SignInError, sign_in_error, unkept};
use crate::oauth::{
    ClientMetadata, ClientRegistration, Discovered, OAuthError, Provider, register,
};
use crate::outcomes::{Outcomes, Pauses};
use crate::record::RegisteredClient;
use crate::server::Server;
use crate::server::Wanted;
use crate::store::{Exported, Owner, Store, StoreError};

/// The client name that authorization servers show to users.
pub(crate) const CLIENT_NAME: &str = "Fanlight";

/// How long discovered metadata are reused, so that a page and its form ask once.
const RECENT: Duration = Duration::from_secs(60);
/// The pause after a failed discovery, since anybody can open a page.
const RECENT_FAILURE: Duration = Duration::from_secs(2);
/// How long a registration is reused that the store keeps, until it is there; and one that no store
/// keeps.
const REGISTERED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(24 * 3600));
/// The longest pause after refused registrations. There is no option: whoever permits registrations
/// at last can wait.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The answers of authorization servers.
pub(crate) struct Peers {
    /// The discovered metadata, by the server's name and requirements.
    discovered: Outcomes<(String, Wanted), Discovered>,
    /// The registered clients, by issuer and redirect URI.
    registered: Outcomes<(String, Url), ClientRegistration>,
}

fanlight_protocol::opaque!(Peers);

impl Default for Peers {
    fn default() -> Self {
        Self {
            discovered: Outcomes::new(Pauses {
                first: |_| RECENT_FAILURE,
                longest: RECENT_FAILURE,
            }),
            registered: Outcomes::new(Pauses {
                first: OAuthError::stands_for,
                longest: LONGEST_PAUSE,
            }),
        }
    }
}

impl Peers {
    /// Discovers where a server's users sign in. `told` gets the outcome of each request, and the
    /// number of failures just before.
    pub(crate) async fn discover(
        &self,
        server: &Arc<Server>,
        wanted: &Wanted,
        told: impl Fn(u32, &Result<Discovered, OAuthError>) + Send + 'static,
    ) -> Result<Discovered, OAuthError> {
        let key = (server.name().to_owned(), wanted.clone());
        let ask = |failures| {
            let (server, challenge) = (Arc::clone(server), wanted.challenge());
            async move {
                let discovered = server.discover(&challenge).await;
                told(failures, &discovered);
                discovered
            }
        };
        self.discovered.get_or_ask(&key, RECENT, ask).await
    }

    /// The latest answer about where a server's users sign in.
    pub(crate) fn last(&self, server: &str, wanted: &Wanted) -> Option<Discovered> {
        self.discovered.last(&(server.to_owned(), wanted.clone()))
    }

    /// Forgets registrations at this issuer that are not stored yet.
    pub(crate) fn forget_clients_at(&self, issuer: &str) {
        self.registered.retain(|(known, _)| known != issuer);
    }

    /// Forgets what is known about servers whose name is not `meant`.
    pub(crate) fn retain(&self, meant: impl Fn(&str) -> bool) {
        self.discovered.retain(|(server, _)| meant(server));
    }

    /// A client whose browsers return to `redirect_uri`: from an earlier registration that the store
    /// keeps, or from a new one (2026-07-28 basic/authorization/client-registration).
    pub(crate) async fn client(
        &self,
        server: &Arc<Server>,
        provider: &Provider,
        redirect_uri: &Url,
        store: Option<&Store>,
    ) -> Result<ClientRegistration, SignInError> {
        let place = Owner::nobody(&format!("{} {redirect_uri}", provider.issuer));
        if let Some(store) = store {
            let known = store.get::<RegisteredClient>(&place).await;
            let known = known.map_err(|error| unkept(&error))?;
            if let Some(RegisteredClient(client)) =
                known.filter(|known| known.0.is_valid_at(provider))
            {
                return Ok(client);
            }
        }
        let fresh = match store {
            Some(_) => REGISTERED.0,
            None => REGISTERED.1,
        };
        let key = (provider.issuer.clone(), redirect_uri.clone());
        let ask = |_| {
            let (server, provider) = (Arc::clone(server), provider.clone());
            let redirect_uri = redirect_uri.clone();
            async move {
                let client = registered(&server, &provider, &redirect_uri).await;
                client.inspect_err(|error| _ = sign_in_error(server.name(), error))
            }
        };
        let client = self.registered.get_or_ask(&key, fresh, ask).await;
        let client = client.map_err(|error| SignInError::from(&error))?;
        if let Some(store) = store {
            let kept = store.put(&place, &RegisteredClient(client.clone())).await;
            kept.map_err(|error| unkept(&error))?;
        }
        Ok(client)
    }
}

/// Forgets a registered client that its authorization server does not know any more, so that the
/// next sign-in registers another. Returns whether it is such a client.
pub(crate) async fn forget_client(
    store: &Store,
    client: &ClientRegistration,
    refused: &OAuthError,
) -> Result<bool, StoreError> {
    // A client of a metadata document was never registered.
    let is_document = client.client_id.starts_with("https://");
    let is_unknown = matches!(
        refused.refusal(),
        Some("invalid_client" | "unauthorized_client")
    );
    if is_document || !is_unknown {
        return Ok(false);
    }
    for Exported { owner, record } in store.export::<RegisteredClient>().await? {
        if record.0.client_id == client.client_id && record.0.issuer == client.issuer {
            store.take::<RegisteredClient>(&owner).await?;
        }
    }
    Ok(true)
}

/// A client that is registered now.
pub(crate) async fn registered(
    server: &Server,
    provider: &Provider,
    redirect_uri: &Url,
) -> Result<ClientRegistration, OAuthError> {
    let metadata = ClientMetadata::new_code_client(CLIENT_NAME, redirect_uri);
    register(&server.requests, provider, &metadata).await
}
