//! Users' grants for all servers: one [`UserAccess`] for each user of a server, while it is used.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fanlight_canonical::identity::Principal;
use fanlight_config::settings::Secret;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::warn;
use url::Url;

use crate::access::{Looked, UserAccess};
use crate::oauth::{
    Discovered, MachineAccess, MachineGrant, MachineSettings, OAuthError, SubjectToken,
    SubjectTokens,
};
use crate::peers::Peers;
use crate::server::{Method, Server, ServerSettings, Wanted};
use crate::{
    Exported, Grant, GrantChange, GrantChangeEnd, GrantChangeKind, GrantRecord, Owner, SignInError,
    Store, StoreError, UserKey,
};

/// The limit of users' credentials in memory, besides those in use.
const MOST_HELD: usize = 10_000;

/// How long a call waits for an authorization server before its user gets a link to it.
const LONGEST_LOOK: Duration = Duration::from_secs(2);

/// Users' grants for servers.
#[derive(Clone, Debug)]
pub struct Grants(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Store,
    record: Arc<dyn GrantRecord>,
    tables: Mutex<Tables>,
    peers: Peers,
    tasks: TaskTracker,
    /// Counts sign-ins and sign-outs.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Tables {
    servers: HashMap<String, Arc<Server>>,
    held: HashMap<Owner, UserAccess>,
    exchanged: HashMap<Owner, ExchangedAccess>,
    /// Whether users may identify themselves by pasting a key or a token into a page.
    takes_credentials: bool,
}

impl Grants {
    /// The grants in a store, without servers yet. Changes of grants are written to `record`.
    pub fn new(store: Store, record: Arc<dyn GrantRecord>) -> Self {
        Self(Arc::new(Shared {
            store,
            record,
            tables: Mutex::new(Tables {
                takes_credentials: true,
                ..Tables::default()
            }),
            peers: Peers::default(),
            tasks: TaskTracker::new(),
            changes: watch::Sender::new(0),
        }))
    }

    /// The store of the grants.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Takes over the settings of a server.
    ///
    /// # Errors
    ///
    /// If the settings do not allow sending requests.
    pub fn add(&self, settings: ServerSettings) -> Result<(), OAuthError> {
        let server = Arc::new(Server::new(settings)?);
        let mut tables = self.0.tables.lock();
        if let Method::Exchange(settings) = &server.settings.method {
            let takes = |access: &ExchangedAccess| access.machine.change(settings.as_ref().clone());
            tables
                .exchanged
                .retain(|owner, access| owner.server() != server.name() || takes(access));
        }
        let held = tables
            .held
            .iter()
            .filter(|(owner, _)| owner.server() == server.name());
        held.for_each(|(_, access)| access.change(&server));
        self.0.peers.retain(|name| name != server.name());
        tables.servers.insert(server.name().to_owned(), server);
        Ok(())
    }

    /// Forgets servers that are not `is_there`.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.retain_servers(|server| server.is_identity_provider() || is_there(server.name()));
    }

    /// Uses these identity providers, and no others. `takes_credentials` tells whether users
    /// unknown to them may paste a key or a token instead.
    ///
    /// # Errors
    ///
    /// If the settings of one do not allow sending requests.
    pub fn identify_at(
        &self,
        providers: Vec<ServerSettings>,
        takes_credentials: bool,
    ) -> Result<(), OAuthError> {
        self.retain_servers(|server| {
            !server.is_identity_provider()
                || providers
                    .iter()
                    .any(|provider| provider.name == server.name())
        });
        self.0.tables.lock().takes_credentials = takes_credentials;
        providers
            .into_iter()
            .try_for_each(|provider| self.add(provider))
    }

    fn retain_servers(&self, stays: impl Fn(&Server) -> bool) {
        let mut tables = self.0.tables.lock();
        tables.servers.retain(|_, server| stays(server));
        let Tables {
            servers,
            held,
            exchanged,
            ..
        } = &mut *tables;
        held.retain(|owner, _| servers.contains_key(owner.server()));
        exchanged.retain(|owner, access| {
            let stays =
                servers.contains_key(owner.server()) && servers.contains_key(&access.user.issuer);
            // The access may still be in use.
            if !stays {
                access.machine.forget();
            }
            stays
        });
    }

    /// Whether users may identify themselves by pasting a key or a token.
    pub(crate) fn takes_credentials(&self) -> bool {
        self.0.tables.lock().takes_credentials
    }

    /// The identity provider of this principal.
    pub(crate) fn identity_provider_of(&self, principal: &[u8]) -> Option<Arc<Server>> {
        let principal = Principal::from_bytes(principal)?;
        self.identity_provider(principal.issuer_and_subject()?.0)
    }

    /// The identity provider whose token of this principal a server exchanges. A server that
    /// exchanges at one identity provider is not for users of another.
    pub(crate) fn exchange_provider(
        &self,
        principal: &[u8],
        settings: &MachineSettings,
    ) -> Option<Arc<Server>> {
        let own = self.identity_provider_of(principal)?;
        let is_foreign = matches!(settings.grant, MachineGrant::Exchange { .. })
            && settings.issuer.as_ref().is_some_and(|issuer| {
                issuer != own.name() && self.identity_provider(issuer).is_some()
            });
        (!is_foreign).then_some(own)
    }

    /// The identity provider with this issuer.
    pub(crate) fn identity_provider(&self, issuer: &str) -> Option<Arc<Server>> {
        self.server(issuer)
            .filter(|server| server.is_identity_provider())
    }

    /// The issuers of all identity providers, in order.
    pub(crate) fn identity_providers(&self) -> Vec<String> {
        self.names(Server::is_identity_provider)
    }

    /// A user's credentials for a server; `None` if the server's users need none.
    pub fn user_access(&self, principal: &[u8], server: &str) -> Option<UserAccess> {
        self.find_access(principal, server, |_| true)
    }

    /// [`Self::user_access`], if the server still has this URL. Credentials for one place are never used at
    /// another.
    pub fn user_access_at(&self, principal: &[u8], server: &str, url: &Url) -> Option<UserAccess> {
        self.find_access(principal, server, |settings| settings.url == *url)
    }

    fn find_access(
        &self,
        principal: &[u8],
        server: &str,
        is_meant: impl FnOnce(&ServerSettings) -> bool,
    ) -> Option<UserAccess> {
        let mut tables = self.0.tables.lock();
        let server = tables
            .servers
            .get(server)
            .filter(|server| is_meant(&server.settings))
            .map(Arc::clone)?;
        let owner = Owner::new(principal, server.name());
        if let Some(access) = tables
            .held
            .get(&owner)
            .filter(|access| access.is_of(&server))
        {
            return Some(access.clone());
        }
        if tables.held.len() >= MOST_HELD {
            tables.held.retain(|_, access| access.is_used());
        }
        let (store, record) = (self.0.store.clone(), Arc::clone(&self.0.record));
        let access = UserAccess::new(store, record, server, owner.clone(), self.0.tasks.clone());
        tables.held.insert(owner, access.clone());
        Some(access)
    }

    /// The access of a user who exchanges the sign-in's token, for a server at this URL. `None` if
    /// the server has another URL or method, or no identity provider knows the user.
    pub fn exchanged_at(
        &self,
        principal: &[u8],
        server: &str,
        url: &Url,
    ) -> Option<ExchangedAccess> {
        let server = self
            .server(server)
            .filter(|server| server.settings.url == *url)?;
        let Method::Exchange(settings) = &server.settings.method else {
            return None;
        };
        let issuer = self
            .exchange_provider(principal, settings)?
            .name()
            .to_owned();
        let mut tables = self.0.tables.lock();
        // The settings may have changed meanwhile.
        let now = tables.servers.get(server.name())?;
        if !Arc::ptr_eq(now, &server) {
            return None;
        }
        let owner = Owner::new(principal, server.name());
        if let Some(access) = tables.exchanged.get(&owner) {
            return Some(access.clone());
        }
        if tables.exchanged.len() >= MOST_HELD {
            tables
                .exchanged
                .retain(|_, access| Arc::strong_count(&access.machine) > 1);
        }
        let (grants, principal, looked) = (
            Arc::downgrade(&self.0),
            principal.to_vec(),
            Mutex::default(),
        );
        let user = Arc::new(UserSubject {
            grants,
            principal,
            issuer,
            looked,
        });
        let machine = MachineAccess::of_user(settings.as_ref().clone(), Some(user.clone()));
        let access = ExchangedAccess { machine, user };
        tables.exchanged.insert(owner, access.clone());
        Some(access)
    }

    /// The owner of the record that a user's access depends on. For exchanged tokens, this is the
    /// user's record at the identity provider.
    pub(crate) fn record_owner(&self, owner: &Owner) -> Owner {
        let provider = self.server(owner.server()).and_then(|server| {
            let Method::Exchange(settings) = &server.settings.method else {
                return None;
            };
            self.exchange_provider(owner.principal(), settings)
        });
        provider.map_or_else(
            || owner.clone(),
            |provider| Owner::new(owner.principal(), provider.name()),
        )
    }

    /// Makes a change that a user wants, and writes it to the audit log: before, if required, and
    /// after with its outcome. Once begun, both are completed, even if the user's browser no longer
    /// waits.
    pub(crate) async fn on_record<T: Send + 'static>(
        &self,
        kind: GrantChangeKind,
        owner: Owner,
        work: impl Future<Output = Result<T, SignInError>> + Send + 'static,
    ) -> Result<T, SignInError> {
        let record = Arc::clone(&self.0.record);
        record
            .begins(GrantChange {
                kind,
                owner: &owner,
            })
            .await
            .map_err(|_| SignInError::NotRecorded)?;
        let done = self.0.tasks.spawn(async move {
            let outcome = work.await;
            let end = outcome
                .as_ref()
                .map_or_else(GrantChangeEnd::failed, |_| GrantChangeEnd::DONE);
            record.record_end(
                GrantChange {
                    kind,
                    owner: &owner,
                },
                &end,
            );
            outcome
        });
        done.await.unwrap_or_else(|_| {
            Err(SignInError::Failed {
                reason: "it was interrupted".to_owned(),
            })
        })
    }

    /// Writes a failed sign-in to the audit log.
    pub(crate) fn not_signed_in(&self, owner: &Owner, error: &SignInError) {
        let change = GrantChange {
            kind: GrantChangeKind::SignIn,
            owner,
        };
        self.0
            .record
            .record_end(change, &GrantChangeEnd::failed(error));
    }

    /// Stores a user's grant, and starts to use it.
    pub(crate) async fn keep_grant(&self, owner: &Owner, grant: &Grant) -> Result<(), SignInError> {
        self.0.store.put(owner, grant).await?;
        // The next sign-in has to ask the server again, since its authorization server may change.
        self.0.peers.retain(|name| name != owner.server());
        self.forget(owner);
        Ok(())
    }

    /// Stores a key that a user deposits, and starts to use it.
    ///
    /// # Errors
    ///
    /// If it cannot be stored, or written to the audit log.
    pub async fn keep_key(&self, owner: &Owner, key: impl Into<String>) -> Result<(), SignInError> {
        // If the server is gone, the key is for no origin.
        let origin = self
            .server(owner.server())
            .map(|server| server.origin())
            .unwrap_or_default();
        let key = UserKey::new(key, origin);
        let (grants, of) = (self.clone(), owner.clone());
        let kept = async move {
            grants.0.store.put(&of, &key).await?;
            grants.forget(&of);
            Ok(())
        };
        self.on_record(GrantChangeKind::KeyDeposit, owner.clone(), kept)
            .await
    }

    /// A user's grants.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub async fn list_grants(&self, principal: &[u8]) -> Result<Vec<Exported<Grant>>, StoreError> {
        self.0.store.list(principal).await
    }

    /// A user's deposited keys.
    ///
    /// # Errors
    ///
    /// If they cannot be read.
    pub async fn list_keys(&self, principal: &[u8]) -> Result<Vec<Exported<UserKey>>, StoreError> {
        self.0.store.list(principal).await
    }

    /// Removes a user's grant or key for a server, and revokes the tokens (RFC 7009).
    ///
    /// # Errors
    ///
    /// If it cannot be removed.
    pub async fn sign_out(&self, owner: &Owner) -> Result<(), StoreError> {
        let grant = self.0.store.take::<Grant>(owner).await?;
        self.0.store.take::<UserKey>(owner).await?;
        self.signed_out(owner, &GrantChangeEnd::DONE);
        if let Some((grant, server)) = grant.zip(self.server(owner.server())) {
            server.revoke(&grant).await;
        }
        Ok(())
    }

    /// Notes that a user's grant or key has been removed from the store.
    pub(crate) fn signed_out(&self, owner: &Owner, end: &GrantChangeEnd<'_>) {
        self.forget(owner);
        // Written afterwards: an unwanted grant must not stay because its end cannot be written to
        // the audit log.
        self.0.record.record_end(
            GrantChange {
                kind: GrantChangeKind::SignOut,
                owner,
            },
            end,
        );
    }

    /// Discovers where a server's users sign in. The result is reused for a page and its form, so
    /// opening the page often causes no further requests.
    pub(crate) async fn discover(
        &self,
        server: &Arc<Server>,
        wanted: &Wanted,
    ) -> Result<Discovered, OAuthError> {
        let name = server.name().to_owned();
        // Anybody can open a page, so only requests are logged.
        let told = move |_, discovered: &Result<Discovered, OAuthError>| {
            if let Err(error) = discovered {
                warn!(server = name, %error, "cannot find out how users sign in");
            }
        };
        self.0.peers.discover(server, wanted, told).await
    }

    /// Finds out where a server's users sign in, unless that takes long, for [`Self::impossible_reason`].
    pub async fn look(&self, server: &str, wanted: &Wanted) {
        if let Some(server) = self.server(server).filter(|one| one.sign_in().is_some()) {
            let _ = timeout(LONGEST_LOOK, self.discover(&server, wanted)).await;
        }
    }

    /// The reason why no user can sign in to a server, if its authorization server is known to lack
    /// what that needs.
    pub fn impossible_reason(&self, server: &str, wanted: &Wanted) -> Option<String> {
        let provider = self.0.peers.last(server, wanted)?.provider;
        Some(provider.sign_in_endpoint().err()?.to_string())
    }

    /// The answers of authorization servers.
    pub(crate) fn peers(&self) -> &Peers {
        &self.0.peers
    }

    /// The servers and identity providers at other origins than this one.
    pub(crate) fn servers_elsewhere(&self, origin: &str) -> Vec<Arc<Server>> {
        let tables = self.0.tables.lock();
        let elsewhere = tables.servers.values().filter(|one| one.origin() != origin);
        elsewhere.cloned().collect()
    }

    pub(crate) fn server(&self, name: &str) -> Option<Arc<Server>> {
        self.0.tables.lock().servers.get(name).cloned()
    }

    /// The names of the servers whose users have their own credentials, in order.
    pub fn servers(&self) -> Vec<String> {
        self.names(|server| !server.is_identity_provider())
    }

    fn names(&self, is_meant: impl Fn(&Server) -> bool) -> Vec<String> {
        let tables = self.0.tables.lock();
        let mut names: Vec<_> = tables
            .servers
            .values()
            .filter(|server| is_meant(server))
            .map(|server| server.name().to_owned())
            .collect();
        drop(tables);
        names.sort();
        names
    }

    /// Makes a user's credentials be read from the store again.
    pub(crate) fn forget(&self, owner: &Owner) {
        let tables = self.0.tables.lock();
        if let Some(access) = tables.held.get(owner) {
            access.forget();
        }
        let is_of = |(of, access): &(&Owner, &ExchangedAccess)| {
            of.principal() == owner.principal() && access.user.issuer == owner.server()
        };
        tables
            .exchanged
            .iter()
            .filter(is_of)
            .for_each(|(_, access)| access.machine.forget());
        drop(tables);
        self.0
            .changes
            .send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Waits until some user has signed in or out since this call.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut changes = self.0.changes.subscribe();
        async move {
            // The sender lives as long as the grants, and nothing changes afterwards.
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until pending changes are stored.
    pub async fn stop(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

/// The access of one user to one server. Clones share it.
#[derive(Clone)]
pub struct ExchangedAccess {
    machine: Arc<MachineAccess>,
    user: Arc<UserSubject>,
}

/// A user with a sign-in at an identity provider, now or later.
struct UserSubject {
    grants: Weak<Shared>,
    principal: Vec<u8>,
    issuer: String,
    /// The last check whether the user is still signed in.
    looked: Mutex<Looked>,
}

fanlight_protocol::opaque!(ExchangedAccess);

impl ExchangedAccess {
    /// The source of the server's tokens.
    pub fn machine(&self) -> &Arc<MachineAccess> {
        &self.machine
    }

    /// Forgets the user's tokens if another process has signed the user out. `None` if no check is
    /// due: there is at most one a second, and only if something has changed.
    pub fn look(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        let grants = self.user.grants.upgrade()?;
        if !self.user.looked.lock().is_outdated(&grants.store) {
            return None;
        }
        let Self { machine, user } = self.clone();
        Some(async move {
            let has_grant = match user.access() {
                Some(access) => access.has_grant().await,
                None => Ok(false),
            };
            match has_grant {
                Ok(true) => {}
                Ok(false) => machine.forget(),
                // Check again at the next message.
                Err(_) => *user.looked.lock() = Looked::default(),
            }
        })
    }

    /// Whether the user is known to need a sign-in.
    pub fn is_missing(&self) -> bool {
        self.user
            .access()
            .is_some_and(|access| access.requirements().is_some())
    }

    /// Waits until the user has finished or given up signing in; `None` if no sign-in is running.
    #[must_use]
    pub fn signing_in(&self) -> Option<impl Future<Output = ()> + Send + use<>> {
        self.user.access()?.signing_in()
    }
}

impl UserSubject {
    /// The user's access to the identity provider, with the current configuration.
    fn access(&self) -> Option<UserAccess> {
        Grants(self.grants.upgrade()?).user_access(&self.principal, &self.issuer)
    }
}

impl SubjectTokens for UserSubject {
    fn token<'a>(
        &'a self,
        kind: &'static str,
        refused: Option<&'a Secret>,
    ) -> BoxFuture<'a, Result<SubjectToken, OAuthError>> {
        Box::pin(async move {
            let access = self.access().ok_or(OAuthError::NoSubject)?;
            access.subject(kind, refused).await
        })
    }
}
