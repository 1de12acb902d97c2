//! Users with their own credentials for servers: where these are stored, and how messages to a
//! server get them.

use std::future::ready;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use fanlight_auth::Authenticator;
use fanlight_backend::credentials::{
    CredentialSource, Credentials, MessageTarget, NoCredentials, PendingCredentials,
    PendingEnvironment, PrincipalCredentials, Refusal,
};
use fanlight_canonical::{
    CallContext, Caller, DEFAULT_PATH, Endpoint, Holder, Identity, Policy as _, PolicyAction,
    PolicyItem, PolicyOutcome, Principal, SignInWish,
};
use fanlight_config::{
    Config, Issuer, ResourceParameter, Secret, Server, ServerAuth, ServerAuthKind, UserSignIn,
};
use fanlight_credentials::{PageRequest, Pages, PendingPage};
use fanlight_frontend::LiveGuard;
use fanlight_grants::fetch::Trust;
use fanlight_grants::oauth::{Message, OAuthError, Scopes};
use fanlight_grants::{
    CommonEntries, ExchangedAccess, FILE, Folder, GrantChange, GrantChangeEnd, GrantChangeKind,
    GrantRecord, Grants, KeyPlace, Links, Method, NoAccess, NotOnRecord, OperatorSignIn,
    ServerSettings, SignInMethod, SignInPages, SignInRules, Store, StoreError, UserAccess, Wanted,
};
use fanlight_policy::Policies;
use fanlight_protocol::Era;
use fanlight_protocol::seal::Keys;
use fanlight_record::{AuditEvent, AuditLog, ConnectionChange, Record as _};
use fanlight_replicas::{Replicas, keys};
use futures_util::future::BoxFuture;
use http::HeaderName;
use tokio::task::spawn_blocking;
use url::Url;

use crate::list_state::ListState;
use crate::own_credentials as own;
use crate::secrets::SystemKeyring;
use crate::server_auth::{Place, authorities, client, trust};

/// Users with credentials of their own. Their store is opened when the first server needs it.
#[derive(Clone)]
pub struct Users(Arc<Shared>);

struct Shared {
    /// The folder of the store; `None` if neither the configuration nor the user has one.
    folder: Option<PathBuf>,
    /// The store in the folder, if it is already open.
    store: Option<Store>,
    clients: Clients,
    /// The replicas' common store, used instead of the folder.
    common: Option<Arc<dyn CommonEntries>>,
    keys: Keys,
    /// The audit log for changes of users' grants.
    record: Arc<AuditLog>,
    opened: OnceLock<Result<Opened, String>>,
    /// The base URL of sign-in links comes from here.
    guard: OnceLock<LiveGuard>,
    /// The ways in which users can identify themselves.
    identities: ArcSwap<Identities>,
    /// The policies about signing in.
    rules: Arc<PolicyOfSigningIn>,
    /// Signs operators in. It is set once there is an admin listener.
    operators: OnceLock<Arc<OperatorSignIn>>,
}

/// The kind of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// One user: a command, or a client on standard input and output.
    OfOneUser,
    /// The clients of a listener.
    OfListener,
}

/// The ways in which users identify themselves on pages.
struct Identities {
    /// The issuers of clients' tokens that offer a sign-in.
    providers: Vec<ServerSettings>,
    /// Whether some users only have keys or tokens.
    takes_credentials: bool,
}

/// The opened store of users' grants.
#[derive(Clone)]
pub(crate) struct Opened {
    pub(crate) grants: Grants,
    pub(crate) links: Arc<Links>,
}

impl Users {
    /// The users whose grants are stored in the configuration's folder, or in common with other
    /// replicas. `lists` supplies the store if it is already open. Changes of grants are written to
    /// `record`.
    pub fn new(
        config: &Config,
        replicas: Option<&Replicas>,
        clients: Clients,
        lists: Option<&ListState>,
        record: Arc<AuditLog>,
    ) -> Self {
        let folder = config
            .state_dir
            .as_ref()
            .map(PathBuf::from)
            .or_else(|| config.user_state.clone());
        let store = lists
            .zip(folder.as_ref())
            .and_then(|(lists, folder)| lists.store_in(folder))
            .cloned();
        Self(Arc::new(Shared {
            folder,
            store,
            clients,
            common: replicas.map(Replicas::grants),
            keys: keys(config),
            record,
            opened: OnceLock::new(),
            guard: OnceLock::new(),
            identities: ArcSwap::from_pointee(Identities::from_config(config)),
            rules: Arc::default(),
            operators: OnceLock::new(),
        }))
    }

    /// Whether clients are authenticated, so that there can be several users.
    pub fn are_told_apart(&self, config: &Config) -> bool {
        self.0.clients == Clients::OfListener && config.auth.methods().is_some()
    }

    /// Whether the folder contains a store.
    pub(crate) fn have_file(&self) -> bool {
        self.0
            .folder
            .as_ref()
            .is_some_and(|folder| folder.join(FILE).is_file())
    }

    /// The store in the folder without the key for grants, which is enough to remove them.
    pub(crate) fn without_key(&self) -> Result<Grants, String> {
        let store = self.0.own_store(|store, _| Ok(store))?;
        Ok(self.0.grants(store))
    }

    /// Puts policies about signing in in force.
    pub fn govern(&self, policies: Option<Arc<Policies>>, config: &Config) {
        self.0.rules.set(policies, config);
    }

    /// Opens the store if a configured server needs it. A keyring may take some seconds, during
    /// which nothing else may wait.
    pub async fn prepare(&self, config: &Config) {
        let needs = |server: &Server| {
            server.enabled && (auth_of_users(server).is_some() || !server.user_env.is_empty())
        };
        if config.servers.iter().any(needs) {
            let users = self.clone();
            // Whoever needs the store gets the error.
            let _ = spawn_blocking(move || users.open().is_ok()).await;
        }
    }

    /// Opens the store. The error tells why it cannot be opened.
    pub(crate) fn open(&self) -> Result<&Opened, &str> {
        let opened = self.0.opened.get_or_init(|| {
            let opened = self.0.open()?;
            self.0.identities.load().put_in_force(&opened.grants);
            if let Some(guard) = self.0.guard.get() {
                opened.lead_to(guard);
            }
            Ok(opened)
        });
        opened.as_ref().map_err(String::as_str)
    }

    /// The store, if a server has needed it.
    pub(crate) fn opened_store(&self) -> Option<Result<&Opened, &str>> {
        self.0
            .opened
            .get()
            .map(|opened| opened.as_ref().map_err(String::as_str))
    }

    /// The credentials of a server's users, with this configuration from now on.
    pub fn credentials(&self, server: &Server, auth: &ServerAuth) -> Arc<dyn PrincipalCredentials> {
        match self.add_at(server, auth) {
            Ok((opened, url)) => Arc::new(OfServer {
                opened: opened.clone(),
                server: server.name.clone(),
                url,
                is_exchanged: auth.kind.is_exchange(),
                has_connect_tool: auth.connect_tool,
            }),
            Err(reason) => {
                tracing::error!(
                    server = server.name,
                    reason,
                    "users cannot have credentials for this server"
                );
                Arc::new(Unusable(reason))
            }
        }
    }

    /// The users of a server whose process gets their credentials in variables, for this or other
    /// servers.
    pub fn variables(&self, config: &Config, server: &Server) -> Arc<dyn PrincipalCredentials> {
        let (mut opened, mut variables) = (Err("it names no server".to_owned()), Vec::new());
        for (variable, named) in &server.user_env {
            let found = config.servers.iter().find(|one| one.name == *named);
            let found = found.and_then(|one| Some((one, auth_of_users(one)?)));
            let added = match found {
                Some((one, auth)) => self.add_at(one, auth),
                None => Err(format!("there is no server {named:?} whose users sign in")),
            };
            opened = added.map(|(opened, url)| {
                variables.push((variable.clone(), named.clone(), url));
                opened
            });
            if opened.is_err() {
                break;
            }
        }
        match opened.cloned() {
            Ok(opened) => Arc::new(OfProcess { opened, variables }),
            Err(reason) => {
                tracing::error!(
                    server = server.name,
                    reason,
                    "its process cannot get its users' credentials"
                );
                Arc::new(Unusable(reason))
            }
        }
    }

    /// Takes over the settings of a server whose users have credentials of their own.
    pub(crate) fn add(&self, server: &Server, auth: &ServerAuth) -> Result<&Opened, String> {
        Ok(self.add_at(server, auth)?.0)
    }

    /// Like [`Self::add`], but returns also the URL in these settings. Users' credentials are only
    /// for this URL.
    fn add_at(&self, server: &Server, auth: &ServerAuth) -> Result<(&Opened, Url), String> {
        let opened = self.open().map_err(str::to_owned)?;
        let settings = settings(server, auth)?;
        let url = settings.url.clone();
        opened
            .grants
            .add(settings)
            .map_err(|error| error.to_string())?;
        Ok((opened, url))
    }

    /// Takes over rotated secrets from a server's entry.
    pub fn change(&self, server: &Server) {
        let changed = auth_of_users(server).map(|auth| self.add(server, auth));
        if let Some(Err(reason)) = changed {
            tracing::error!(
                server = server.name,
                reason,
                "changed `auth` of the server is not used"
            );
        }
    }

    /// Forgets servers and identity providers that are no longer configured, and takes over the
    /// configured ones.
    pub fn retain(&self, config: &Config) {
        self.0
            .identities
            .store(Arc::new(Identities::from_config(config)));
        self.0.sign_operators_in();
        if let Some(Ok(opened)) = self.0.opened.get() {
            self.0.identities.load().put_in_force(&opened.grants);
            opened
                .grants
                .retain(|name| config.servers.iter().any(|server| server.name == name));
        }
    }

    /// The sign-in pages on the listener that `guard` guards.
    pub fn pages(&self, guard: &LiveGuard, authenticate: Arc<Authenticator>) -> Arc<dyn Pages> {
        let _ = self.0.guard.set(guard.clone());
        if let Some(Ok(opened)) = self.0.opened.get() {
            opened.lead_to(guard);
        }
        Arc::new(LazyPages {
            users: self.clone(),
            authenticate,
            pages: OnceLock::new(),
        })
    }

    /// The configured keys, which seal what browsers keep.
    pub fn keys(&self) -> Keys {
        self.0.keys.clone()
    }

    /// Signs operators in at the issuers at which users sign in.
    pub fn operators(&self, authenticate: Arc<Authenticator>) -> Arc<OperatorSignIn> {
        let users = Arc::downgrade(&self.0);
        let store = move || {
            let users = Users(users.upgrade()?);
            // A common store opens at once: it needs neither a file nor a keyring.
            let opened = match users.0.common {
                Some(_) => users.open().ok()?,
                None => users.0.opened.get()?.as_ref().ok()?,
            };
            Some(opened.grants.store().clone())
        };
        let operators = || Arc::new(OperatorSignIn::new(authenticate, store));
        let operators = Arc::clone(self.0.operators.get_or_init(operators));
        self.0.sign_operators_in();
        operators
    }

    /// Describes the encryption key of the store, if the store is in use.
    pub fn key(&self) -> Option<String> {
        let opened = self.0.opened.get()?.as_ref().ok();
        if self.0.common.is_some() {
            return opened.map(|_| {
                "users' grants are stored in Valkey, encrypted with the first of `keys`".to_owned()
            });
        }
        let (opened, folder) = opened.zip(self.0.folder.as_ref())?;
        let folder = folder.display();
        let key = match opened.grants.store().key() {
            KeyPlace::Configuration => "the first of `keys`".to_owned(),
            KeyPlace::Keyring => "a key in the system's keyring".to_owned(),
            KeyPlace::File => format!("the key in {folder}/key"),
        };
        Some(format!(
            "users' grants are stored in {folder}, encrypted with {key}"
        ))
    }

    /// Waits until pending changes are stored.
    pub async fn stop(&self) {
        if let Some(Ok(opened)) = self.0.opened.get() {
            opened.grants.stop().await;
        }
    }
}

impl Shared {
    fn open(&self) -> Result<Opened, String> {
        let store = self.store()?;
        let links = Links::new(&store).map_err(|error| error.to_string())?;
        Ok(Opened {
            grants: self.grants(store),
            links: Arc::new(links),
        })
    }

    fn grants(&self, store: Store) -> Grants {
        Grants::new(store, Arc::new(RecordOfGrants(Arc::clone(&self.record))))
    }

    /// Lets operators sign in at the issuers of the configuration in force, and at no others.
    fn sign_operators_in(&self) {
        let providers = self.identities.load().providers.clone();
        let replaced = self.operators.get().map(|known| known.replace(providers));
        if let Some(Err(error)) = replaced {
            tracing::error!(%error, "operators cannot sign in at an issuer");
        }
    }
}

impl Identities {
    fn from_config(config: &Config) -> Self {
        let auth = config.auth.methods();
        let issuers = || auth.into_iter().flat_map(|auth| &auth.oauth);
        let provider = |issuer: &Issuer| identity_provider(issuer, issuer.sign_in.as_ref()?);
        let has_others = auth.is_none_or(|auth| auth.keys.is_some())
            || issuers().any(|issuer| issuer.sign_in.is_none());
        let providers: Vec<_> = issuers().filter_map(provider).collect();
        Self {
            takes_credentials: has_others || providers.is_empty(),
            providers,
        }
    }

    fn put_in_force(&self, grants: &Grants) {
        if let Err(error) = grants.identify_at(self.providers.clone(), self.takes_credentials) {
            tracing::error!(%error, "users cannot sign in at their identity provider");
        }
    }
}

/// The settings of an issuer where users identify themselves.
fn identity_provider(issuer: &Issuer, sign_in: &UserSignIn) -> Option<ServerSettings> {
    let (ca_file, name) = (issuer.ca_file.as_deref(), issuer.issuer.clone());
    let url: Url = name.parse().ok()?;
    let client = client(
        sign_in.client_id.as_ref(),
        sign_in.client_secret.as_ref(),
        None,
    )
    .ok()?;
    let method = SignInMethod {
        client: sign_in.client_id.is_some().then_some(client),
        issuer: Some(name.clone()),
        scopes: Some(Scopes::read("openid")),
        sends_resource: false,
    };
    let trust = Trust {
        authorities: authorities(ca_file).ok()?,
        ..Trust::in_server(url.clone())
    };
    Some(ServerSettings {
        name,
        url,
        method: Method::Identity(method),
        trust,
    })
}

impl Shared {
    fn store(&self) -> Result<Store, String> {
        if let Some(common) = &self.common {
            return Store::open_common(Arc::clone(common), &self.keys)
                .map_err(|error| error.to_string());
        }
        self.own_store(|store, folder| store.for_users(folder, &self.keys, &SystemKeyring))
    }

    /// Opens the store in the folder; `made` adds the keys.
    fn own_store(
        &self,
        made: impl FnOnce(Store, &Folder) -> Result<Store, StoreError>,
    ) -> Result<Store, String> {
        let none = "no folder to store users' grants: configure stateDir";
        let folder = Folder::open(self.folder.as_deref().ok_or(none)?)?;
        let store = self
            .store
            .clone()
            .map_or_else(|| Store::open_for_lists(&folder, &self.keys), Ok);
        store
            .and_then(|store| made(store, &folder))
            .map_err(|error| error.to_string())
    }
}

impl Opened {
    /// The sign-in that a user of this server may need.
    fn wish(&self, server: &str, principal: &[u8]) -> Wish {
        Wish {
            opened: self.clone(),
            server: server.to_owned(),
            principal: principal.to_vec(),
        }
    }

    fn lead_to(&self, guard: &LiveGuard) {
        let guard = guard.clone();
        self.links
            .lead_to(move || Url::parse(guard.load().public_url()?.as_str()).ok());
    }
}

/// The server's `auth`, if its users have credentials of their own.
pub fn auth_of_users(server: &Server) -> Option<&ServerAuth> {
    server.auth.as_ref().filter(|auth| auth.is_of_users())
}

/// The settings of a server whose users have credentials of their own.
fn settings(server: &Server, auth: &ServerAuth) -> Result<ServerSettings, String> {
    // A process has no URL, and its keys are sent to none.
    let process = || Place {
        name: server.name.clone(),
        url: "process:".to_owned(),
        ca_file: None,
    };
    let place = Place::from_server(server).unwrap_or_else(process);
    let trust = trust(&place, Some(auth))?;
    Ok(ServerSettings {
        name: server.name.clone(),
        url: trust.server.clone(),
        method: method(&place, auth)?,
        trust,
    })
}

fn method(place: &Place, auth: &ServerAuth) -> Result<Method, String> {
    if auth.kind.is_exchange() {
        return Ok(Method::Exchange(Box::new(own::settings(place, auth)?)));
    }
    if auth.kind == ServerAuthKind::UserKey {
        let header = HeaderName::try_from(&auth.header).map_err(|error| error.to_string())?;
        return Ok(Method::Key {
            header,
            prefix: auth.prefix.clone(),
        });
    }
    let id = auth.client_id.as_ref();
    let client = client(id, auth.client_secret.as_ref(), auth.key.as_ref())?;
    Ok(Method::SignIn(SignInMethod {
        client: id.map(|_| client),
        issuer: auth.issuer.clone(),
        scopes: auth.scopes.clone().map(Scopes::from_iter),
        sends_resource: auth.resource_parameter == ResourceParameter::Send,
    }))
}

/// Pages that appear once a server needs the store.
struct LazyPages {
    users: Users,
    authenticate: Arc<Authenticator>,
    pages: OnceLock<Option<SignInPages>>,
}

fanlight_protocol::opaque!(LazyPages);

impl LazyPages {
    fn get(&self) -> Option<&SignInPages> {
        let opened = self.users.0.opened.get()?.as_ref().ok()?;
        let made = self.pages.get_or_init(|| {
            let Opened { grants, links } = opened.clone();
            let authenticate = Arc::clone(&self.authenticate) as _;
            let rules = Arc::clone(&self.users.0.rules) as _;
            SignInPages::new(grants, links, authenticate, rules).ok()
        });
        made.as_ref()
    }
}

impl Pages for LazyPages {
    fn serves(&self, path: &str) -> bool {
        self.get().is_some_and(|pages| pages.serves(path))
    }

    fn answer<'a>(&'a self, request: PageRequest<'a>) -> PendingPage<'a> {
        match self.get() {
            Some(pages) => pages.answer(request),
            None => Box::pin(ready(http::Response::default())),
        }
    }
}

/// The users of a server that can have no credentials for it.
#[derive(Clone)]
struct Unusable(String);

impl PrincipalCredentials for Unusable {
    fn source(&self, _: &Principal) -> Arc<dyn CredentialSource> {
        Arc::new(self.clone())
    }

    fn changed(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

impl CredentialSource for Unusable {
    fn credentials(&self, _: &MessageTarget<'_>) -> Credentials {
        Credentials::Wait(own::no_credentials(self.0.clone()))
    }

    fn replace(&self, _: Refusal) -> Option<PendingCredentials> {
        Some(own::no_credentials(self.0.clone()))
    }
}

/// A user without a sign-in at an identity provider, at a server that needs one to exchange tokens.
struct Unknown {
    server: String,
}

impl CredentialSource for Unknown {
    fn credentials(&self, _: &MessageTarget<'_>) -> Credentials {
        let reason = "its users sign in at an issuer of `auth.oauth` with `signIn`".to_owned();
        Credentials::Wait(own::no_credentials(reason))
    }

    fn replace(&self, _: Refusal) -> Option<PendingCredentials> {
        None
    }

    fn sign_in(&self) -> Option<Arc<SignInWish>> {
        let message = format!(
            "The server {:?} requires a sign-in at this gateway's identity provider",
            self.server
        );
        Some(Arc::new(SignInWish {
            url: None,
            message,
            id: format!("{:032x}", fastrand::u128(..)),
        }))
    }
}

/// The bytes that identify a user; an error for an operator.
fn user(principal: &Principal) -> Result<Vec<u8>, Arc<dyn CredentialSource>> {
    match *principal == Principal::operator() {
        true => Err(Arc::new(Unusable(
            "its users sign in, and operators are not its users".to_owned(),
        ))),
        false => Ok(principal.to_bytes()),
    }
}

/// The users of one server.
struct OfServer {
    opened: Opened,
    server: String,
    /// The server's URL when this was created. The configuration may have another by now.
    url: Url,
    /// Whether tokens of the users' sign-in are exchanged for tokens of the server.
    is_exchanged: bool,
    has_connect_tool: bool,
}

impl PrincipalCredentials for OfServer {
    fn source(&self, principal: &Principal) -> Arc<dyn CredentialSource> {
        let principal = match user(principal) {
            Ok(principal) => principal,
            Err(unusable) => return unusable,
        };
        let wish = self.opened.wish(&self.server, &principal);
        let grants = &self.opened.grants;
        if self.is_exchanged {
            return match grants.exchanged_at(&principal, &self.server, &self.url) {
                Some(access) => Arc::new(ByExchange { access, wish }),
                None => Arc::new(Unknown {
                    server: self.server.clone(),
                }),
            };
        }
        match grants.user_access_at(&principal, &self.server, &self.url) {
            Some(access) => Arc::new(OfUser { access, wish }),
            None => Arc::new(Unusable(
                "the server is no longer configured, or has another URL now".to_owned(),
            )),
        }
    }

    fn has_connect_tool(&self) -> bool {
        self.has_connect_tool
    }

    fn changed(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.opened.grants.changed())
    }
}

/// The users of a server whose process gets their credentials in variables.
struct OfProcess {
    opened: Opened,
    /// The name of each variable, with its server and that server's URL.
    variables: Vec<(String, String, Url)>,
}

impl PrincipalCredentials for OfProcess {
    fn source(&self, principal: &Principal) -> Arc<dyn CredentialSource> {
        let principal = match user(principal) {
            Ok(principal) => principal,
            Err(unusable) => return unusable,
        };
        let variable = |(name, server, url): &(String, String, Url)| {
            let access = self.opened.grants.user_access_at(&principal, server, url)?;
            let wish = self.opened.wish(server, &principal);
            Some((name.clone(), OfUser { access, wish }))
        };
        match self.variables.iter().map(variable).collect() {
            Some(variables) => Arc::new(Variables(variables)),
            None => Arc::new(Unusable(
                "a server that it names is no longer configured, or has another URL now".to_owned(),
            )),
        }
    }

    fn changed(&self) -> BoxFuture<'static, ()> {
        Box::pin(self.opened.grants.changed())
    }
}

/// The variables of one user's process.
struct Variables(Vec<(String, OfUser)>);

impl CredentialSource for Variables {
    fn credentials(&self, _: &MessageTarget<'_>) -> Credentials {
        Credentials::Ready(http::HeaderMap::new())
    }

    fn replace(&self, _: Refusal) -> Option<PendingCredentials> {
        None
    }

    fn environment(&self) -> Option<PendingEnvironment> {
        let users = self.0.clone();
        Some(Box::pin(async move {
            let mut variables = Vec::new();
            for (name, OfUser { access, wish }) in users {
                let token = wish.explain(access.token().await).await?;
                variables.push((name, Secret::new(token.as_str())));
            }
            Ok(variables)
        }))
    }

    fn are_there(&self) -> BoxFuture<'static, bool> {
        let users = self.0.clone();
        Box::pin(async move {
            for (_, user) in &users {
                if !user.access.is_there().await {
                    return false;
                }
            }
            true
        })
    }

    fn signing_in(&self) -> Option<BoxFuture<'static, ()>> {
        self.0.iter().find_map(|(_, user)| user.signing_in())
    }
}

/// One user of one server.
#[derive(Clone)]
struct OfUser {
    access: UserAccess,
    wish: Wish,
}

/// The data for asking a user to sign in.
#[derive(Clone)]
struct Wish {
    opened: Opened,
    server: String,
    principal: Vec<u8>,
}

impl Wish {
    /// The request to sign in, for the user: with a link, unless that would lead nowhere.
    fn for_user(&self, wanted: &Wanted) -> Arc<SignInWish> {
        let server = &self.server;
        let impossible = self.opened.grants.impossible_reason(server, wanted);
        let link = || self.opened.links.link(&self.principal, server, wanted);
        let url = match &impossible {
            Some(_) => None,
            None => link().map(String::from),
        };
        let message = match (&url, impossible) {
            (_, Some(reason)) => format!("Nobody can sign in to the server {server:?}: {reason}"),
            (Some(_), None) => format!("The server {server:?} requires you to sign in"),
            (None, None) => format!(
                "The server {server:?} requires you to sign in: run `fanlight login {server}`"
            ),
        };
        Arc::new(SignInWish {
            url,
            message,
            id: format!("{:032x}", fastrand::u128(..)),
        })
    }

    /// The outcome, with [`Self::known_missing`] after a look at the authorization server.
    async fn explain<T>(&self, outcome: Result<T, NoAccess>) -> Result<T, NoCredentials> {
        if let Err(NoAccess::SignIn(wanted)) = &outcome {
            self.opened.grants.look(&self.server, wanted).await;
        }
        outcome.map_err(|missing| self.known_missing(missing))
    }

    fn known_missing(&self, missing: NoAccess) -> NoCredentials {
        match missing {
            NoAccess::SignIn(wanted) => NoCredentials::SignIn(self.for_user(&wanted)),
            NoAccess::Unavailable(reason) => NoCredentials::Unavailable { reason },
        }
    }
}

impl CredentialSource for OfUser {
    fn credentials(&self, message: &MessageTarget<'_>) -> Credentials {
        let of = Message {
            method: message.method,
            url: message.url,
        };
        match self.access.ready(of) {
            Some(Ok(headers)) => Credentials::Ready(headers),
            Some(missing) => {
                let wish = self.wish.clone();
                Credentials::Wait(Box::pin(async move { wish.explain(missing).await }))
            }
            None => {
                let (access, wish) = (self.access.clone(), self.wish.clone());
                let (method, url) = (message.method.clone(), message.url.clone());
                Credentials::Wait(Box::pin(async move {
                    let loaded = access
                        .load(Message {
                            method: &method,
                            url: &url,
                        })
                        .await;
                    wish.explain(loaded).await
                }))
            }
        }
    }

    fn replace(&self, refusal: Refusal) -> Option<PendingCredentials> {
        let (access, wish) = (self.access.clone(), self.wish.clone());
        Some(Box::pin(async move {
            let replaced = access.replace(own::refused_message(&refusal)).await;
            wish.explain(replaced).await
        }))
    }

    fn give_up(&self, refusal: &Refusal) -> Option<NoCredentials> {
        self.access
            .give_up(own::refused_message(refusal))
            .map(|missing| self.wish.known_missing(missing))
    }

    fn sign_in(&self) -> Option<Arc<SignInWish>> {
        self.access
            .requirements()
            .map(|wanted| self.wish.for_user(&wanted))
    }

    fn are_there(&self) -> BoxFuture<'static, bool> {
        let access = self.access.clone();
        Box::pin(async move { access.is_there().await })
    }

    fn signing_in(&self) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(self.access.signing_in()?))
    }
}

/// A user of a server that exchanges the tokens of the user's sign-in.
struct ByExchange {
    access: ExchangedAccess,
    wish: Wish,
}

impl ByExchange {
    /// Explains why there is no token.
    fn explain(&self) -> impl FnOnce(OAuthError) -> NoCredentials + Send + use<> {
        let wish = self.wish.clone();
        move |error| match error {
            OAuthError::NoSubject => NoCredentials::SignIn(wish.for_user(&Wanted::default())),
            error => NoCredentials::Unavailable {
                reason: error.to_string(),
            },
        }
    }
}

impl CredentialSource for ByExchange {
    fn credentials(&self, message: &MessageTarget<'_>) -> Credentials {
        let (machine, explain) = (Arc::clone(self.access.machine()), self.explain());
        let Some(look) = self.access.look() else {
            return own::credentials_of(&machine, message, explain);
        };
        let (method, url) = (message.method.clone(), message.url.clone());
        Credentials::Wait(Box::pin(async move {
            look.await;
            own::credentials_of(
                &machine,
                &MessageTarget {
                    method: &method,
                    url: &url,
                },
                explain,
            )
            .headers()
            .await
        }))
    }

    fn replace(&self, refusal: Refusal) -> Option<PendingCredentials> {
        own::replace_credentials(self.access.machine(), &refusal, self.explain())
    }

    fn sign_in(&self) -> Option<Arc<SignInWish>> {
        self.access
            .is_missing()
            .then(|| self.wish.for_user(&Wanted::default()))
    }

    fn signing_in(&self) -> Option<BoxFuture<'static, ()>> {
        Some(Box::pin(self.access.signing_in()?))
    }
}

/// The audit log, as the destination of these events.
#[derive(Debug)]
struct RecordOfGrants(Arc<AuditLog>);

impl GrantRecord for RecordOfGrants {
    fn begins(&self, change: GrantChange<'_>) -> BoxFuture<'static, Result<(), NotOnRecord>> {
        let begun = with_event(change, "decided", None, |event| self.0.connects(&event));
        Box::pin(async move {
            match begun {
                Ok(Some(acknowledged)) => acknowledged.await.map_err(|_| NotOnRecord),
                Ok(None) => Ok(()),
                Err(_) => Err(NotOnRecord),
            }
        })
    }

    fn record_end(&self, change: GrantChange<'_>, end: &GrantChangeEnd<'_>) {
        // The change has already happened: a failed write is only counted.
        let _ = with_event(change, end.outcome, end.reason.as_deref(), |event| {
            self.0.record(&AuditEvent::Connection(event))
        });
    }
}

fn with_event<T>(
    change: GrantChange<'_>,
    outcome: &'static str,
    reason: Option<&str>,
    put: impl FnOnce(ConnectionChange<'_>) -> T,
) -> T {
    let action = match change.kind {
        GrantChangeKind::SignIn => "signIn",
        GrantChangeKind::KeyDeposit => "keyDeposit",
        GrantChangeKind::SignOut => "signOut",
        GrantChangeKind::End => "grantEnd",
    };
    let principal = Principal::from_bytes(change.owner.principal());
    put(ConnectionChange {
        principal: principal.as_ref(),
        server: change.owner.server(),
        action,
        outcome,
        reason,
    })
}

/// Decides who may sign in to which server.
#[derive(Debug, Default)]
struct PolicyOfSigningIn(ArcSwapOption<InForce>);

#[derive(Debug)]
struct InForce {
    policies: Arc<Policies>,
    /// The endpoints, by their paths.
    endpoints: Vec<(String, Endpoint)>,
}

impl PolicyOfSigningIn {
    /// Puts policies in force; without any, everybody may sign in everywhere.
    fn set(&self, policies: Option<Arc<Policies>>, config: &Config) {
        let default = (DEFAULT_PATH.to_owned(), Endpoint::Default);
        let others = config
            .endpoints
            .iter()
            .filter(|(path, _)| path != DEFAULT_PATH);
        let endpoints = others
            .map(|(path, _)| (path.clone(), Endpoint::from_path(path.as_str())))
            .chain([default])
            .collect();
        self.0.store(policies.map(|policies| {
            Arc::new(InForce {
                policies,
                endpoints,
            })
        }));
    }
}

impl SignInRules for PolicyOfSigningIn {
    fn number(&self) -> u64 {
        self.0
            .load()
            .as_ref()
            .map_or(0, |now| now.policies.number())
    }

    /// A grant applies at all endpoints, so signing in is permitted if it is at any endpoint that
    /// the user may use.
    fn permits(&self, identity: &Arc<Identity>, address: Option<IpAddr>, server: &str) -> bool {
        let now = self.0.load();
        let Some(InForce {
            policies,
            endpoints,
        }) = now.as_deref()
        else {
            return true;
        };
        let usable = endpoints.iter().filter(|(path, _)| identity.may_use(path));
        let mut clients = usable.map(|(_, endpoint)| {
            let holder = Holder::new(identity.principal.clone(), endpoint.clone());
            let caller = Caller::request_of(holder).with_identity(Arc::clone(identity));
            CallContext {
                caller,
                address,
                era: Era::Modern,
                ..(*CallContext::internal()).clone()
            }
        });
        clients.any(|client| {
            let rights = policies.rights_of(&client);
            let item = PolicyItem::from_server(server);
            let verdict =
                rights.and_then(|rights| rights.decide(PolicyAction::SignIn, &item, None).ok());
            verdict.is_some_and(|verdict| verdict.outcome == PolicyOutcome::Allowed)
        })
    }
}
