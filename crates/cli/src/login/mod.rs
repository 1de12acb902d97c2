//! `fanlight login`, `logout` and `connections`: the only user's grants at servers whose users sign
//! in. `fanlight state`: stored data of all users. A running gateway notices the changes by itself.

mod by_url;
mod callback;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::Principal;
use fanlight_config::{Config, Server, ServerAuth};
use fanlight_grants::{
    Callback, Exported, Grants, Offer, Owner, Purged, SignInError, UserConnection, Wanted,
    all_connections, connections as connections_of, purge, purge_of,
};
use fanlight_telemetry::Telemetry;
use itertools::Itertools as _;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;
use url::Url;

pub(crate) use self::by_url::ServerByUrl;
pub use self::by_url::is_url;
use self::callback::CallbackListener;
use crate::cli::{LoginArgs, StateCommand};
use crate::list_state::KeptServer;
use crate::observe::columns::render_rows;
use crate::record::Recorder;
use crate::suggestions::did_you_mean;
use crate::users::{Clients, Opened, Users, auth_of_users};
use crate::{Failure, Result, complain, counted, inputs, out, say};
use fanlight_protocol::visible::plain;
use fanlight_replicas::Replicas;

/// The way to show the sign-in page to the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Browser {
    /// Open it in a browser.
    Opened,
    /// Print its URL.
    Printed,
}

impl Browser {
    /// The choice made by `--no-browser`.
    pub fn from_flag(no_browser: bool) -> Self {
        if no_browser {
            Self::Printed
        } else {
            Self::Opened
        }
    }

    /// The choice for a command that may find that its user has to sign in. `None` if nobody can,
    /// for example in a script, which would wait in vain.
    pub fn from_terminal(no_browser: bool) -> Option<Self> {
        let is_attended =
            no_browser || (std::io::stdin().is_terminal() && std::io::stderr().is_terminal());
        is_attended.then(|| Self::from_flag(no_browser))
    }
}

/// The only user's grants in an open store.
struct Kept {
    grants: Grants,
    /// The audit log for changes of grants; `None` if they are only logged.
    record: Option<Recorder>,
    /// Ends the connection to the common store when dropped.
    _connection: Option<DropGuard>,
}

impl Kept {
    /// Returns the outcome after all changes are stored and written to the audit log.
    async fn finish<T>(self, outcome: Result<T>) -> Result<T> {
        self.grants.stop().await;
        if let Some(record) = self.record {
            record.end(DELIVERY).await;
        }
        outcome
    }
}

/// The time limit for delivering the audit log to a collector at the end.
const DELIVERY: Duration = Duration::from_secs(5);

/// Signs the only user in to the server at a URL.
pub async fn login_at(url: &str, browser: Browser) -> Result {
    let server = ServerByUrl::new(url, None)?;
    server.sign_in(browser).await?;
    say!("signed in to {}", server.name());
    Ok(())
}

/// Signs the only user out of the server at a URL.
pub async fn logout_at(url: &str) -> Result {
    let server = ServerByUrl::new(url, None)?;
    let grants = by_url::grants().await?;
    let grants = grants.filter(|grants| grants.servers().iter().any(|name| name == server.name()));
    let grants = grants.ok_or_else(|| usage!("you are not signed in at {}", server.name()))?;
    sign_out(&grants, server.name()).await
}

/// Signs the only user in.
pub async fn login(config: &Config, args: &LoginArgs) -> Result {
    let kept = open_store(config, true)
        .await?
        .ok_or_else(|| without_users(config))?;
    let outcome = sign_in_to(&kept.grants, args).await;
    kept.finish(outcome).await
}

async fn sign_in_to(grants: &Grants, args: &LoginArgs) -> Result {
    let chosen = match &args.server {
        Some(name) => vec![find_connection(grants, name).await?],
        None => not_connected(grants).await?,
    };
    if chosen.is_empty() {
        say!("already signed in to all servers; name one to sign in again");
    }
    for UserConnection {
        server, wants_key, ..
    } in chosen
    {
        if wants_key {
            deposit(grants, &server).await?;
        } else {
            sign_in(grants, &server, None, Browser::from_flag(args.no_browser)).await?;
            say!("signed in to {server}");
        }
    }
    Ok(())
}

/// Signs the only user out of a server of the configuration, or of all servers.
pub async fn logout(config: &Config, server: Option<&str>) -> Result {
    let all = match server {
        Some(_) => vec![
            open_store(config, true)
                .await?
                .ok_or_else(|| without_users(config))?,
        ],
        None => all_kept(config, true).await?,
    };
    let mut count = 0;
    for kept in all {
        let outcome = sign_out_of(&kept.grants, server).await;
        count += kept.finish(outcome).await?;
    }
    if count == 0 {
        say!("signed in nowhere");
    }
    Ok(())
}

/// Signs the only user out of one server, or of all. Returns how many these were.
async fn sign_out_of(grants: &Grants, server: Option<&str>) -> Result<usize> {
    let names: Vec<String> = match server {
        Some(name) => vec![find_connection(grants, name).await?.server],
        None => {
            let all = connections_of(grants, &user()).await?;
            all.into_iter()
                .filter(UserConnection::is_kept)
                .map(|one| one.server)
                .collect()
        }
    };
    for name in &names {
        sign_out(grants, name).await?;
    }
    Ok(names.len())
}

async fn sign_out(grants: &Grants, server: &str) -> Result {
    grants.sign_out(&Owner::new(&user(), server)).await?;
    say!("signed out of {server}");
    Ok(())
}

/// Shows where the only user is signed in.
pub async fn connections(config: &Config, as_json: bool) -> Result {
    let mut all = Vec::new();
    for kept in all_kept(config, false).await? {
        let of_user = connections_of(&kept.grants, &user())
            .await
            .map_err(Failure::other);
        all.extend(kept.finish(of_user).await?);
    }
    if as_json {
        out::pretty(&json!(all));
        return Ok(());
    }
    let mut rows = Vec::new();
    for connection in &all {
        let facts = connection.facts();
        let fact = |name: &str| {
            facts
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| plain(value, 200))
        };
        let cell = |name: &str| fact(name).unwrap_or_else(|| "-".to_owned());
        rows.push([
            connection.server.clone(),
            cell("state"),
            cell("since"),
            cell("scopes"),
            cell("ends"),
        ]);
    }
    say!(
        "{}",
        render_rows(["SERVER", "STATE", "SINCE", "SCOPES", "ENDS"], &rows)
    );
    Ok(())
}

/// Shows or removes stored data of all users.
pub async fn state(config: &Config, command: &StateCommand) -> Result {
    let replicas = Replicas::connect(config).await?;
    let common = replicas.as_ref().map(|(replicas, _)| replicas);
    let record = if matches!(command, StateCommand::Purge { .. }) {
        recorder(config)?
    } else {
        None
    };
    let log = record
        .as_ref()
        .map(|record| Arc::clone(&record.log))
        .unwrap_or_default();
    let users_in = |common| Users::new(config, common, Clients::OfOneUser, None, Arc::clone(&log));
    // Besides the data in Valkey, the folder has servers' lists, and users' data from before there
    // were replicas.
    let in_folder = common.map(|_| users_in(None)).filter(Users::have_file);
    let all: Vec<Users> = [users_in(common)].into_iter().chain(in_folder).collect();
    let outcome = match command {
        StateCommand::Purge { server } => {
            let must_name = common.is_some() || config.audit.required;
            purge_all(&all, server.as_deref(), must_name).await
        }
        StateCommand::Export => export(&all).await,
    };
    if let Some(record) = record {
        record.end(DELIVERY).await;
    }
    outcome
}

/// Removes stored data of all users, for one server or all. The latter needs no key, unless the
/// audit log has to name each user.
async fn purge_all(all: &[Users], server: Option<&str>, must_name: bool) -> Result {
    let (mut removed, mut outcome) = (0, Ok(()));
    for users in all {
        let purged = match server {
            Some(server) => purge_server(users, server).await,
            None => purge_users(users, must_name).await,
        };
        match purged {
            Ok(count) => removed += count,
            Err(failure) => {
                outcome = Err(failure);
                break;
            }
        }
    }
    say!("removed {}", counted(removed, "record"));
    outcome
}

/// Removes stored data about one server or authorization server from one place. Returns the number
/// of removed records.
async fn purge_server(users: &Users, server: &str) -> Result<usize> {
    let opened = users.open()?;
    let removed = purge_of(&opened.grants, server).await;
    opened.grants.stop().await;
    removed.map_err(Failure::other)
}

/// Removes stored data from one place. Returns the number of removed records.
async fn purge_users(users: &Users, must_name: bool) -> Result<usize> {
    let (grants, reason) = match users.open() {
        Ok(Opened { grants, .. }) => (grants.clone(), String::new()),
        Err(reason) if must_name => return Err(Failure::other(reason)),
        Err(reason) => (users.without_key()?, format!(": {reason}")),
    };
    let Purged { records, unnamed } = purge(&grants, must_name).await?;
    grants.stop().await;
    if unnamed > 0 {
        let removed = counted(unnamed, "record");
        complain(&format!(
            "removed {removed} of unknown users, which the audit log therefore lacks: they could \
             not be decrypted{reason}\n"
        ));
    }
    Ok(records)
}

/// Shows stored data of all users and servers.
async fn export(all: &[Users]) -> Result {
    let who = |owner: &Owner| {
        Principal::from_bytes(owner.principal()).map(|principal| principal.describe())
    };
    let mut shown: Vec<Value> = Vec::new();
    for users in all {
        let store = users.open()?.grants.store();
        let of_users = all_connections(store).await?;
        shown.extend(
            of_users
                .iter()
                .map(|(owner, one)| json!({ "user": who(owner), "connection": one })),
        );
        let of_servers = store.export::<KeptServer>().await?;
        let of_server = |one: &Exported<KeptServer>| json!({ "server": one.owner.server(), "listsReadMs": one.record.read() });
        shown.extend(of_servers.iter().map(of_server));
    }
    out::pretty(&json!(shown));
    Ok(())
}

/// The principal of every client if clients are not authenticated.
fn user() -> Vec<u8> {
    Principal::anonymous().to_bytes()
}

/// The stores of users' grants: for the configured servers, and for servers named by URL.
async fn all_kept(config: &Config, changes: bool) -> Result<Vec<Kept>> {
    let by_url = by_url::grants().await?.map(|grants| Kept {
        grants,
        record: None,
        _connection: None,
    });
    let all = [open_store(config, changes).await?, by_url]
        .into_iter()
        .flatten()
        .collect_vec();
    if all.is_empty() {
        Err(without_users(config))
    } else {
        Ok(all)
    }
}

/// The failure if no configured server has users with credentials of their own.
fn without_users(config: &Config) -> Failure {
    let names = config
        .servers
        .iter()
        .map(|server: &Server| server.name.as_str())
        .join(", ");
    let help = "no server has users with credentials of their own; set `auth: {type: user}`";
    usage!("{names}: {help}")
}

/// The store of users' grants at the configured servers; `None` if no server has such users. It has
/// an audit log if there will be changes.
async fn open_store(config: &Config, changes: bool) -> Result<Option<Kept>> {
    let of_users = config
        .servers
        .iter()
        .filter_map(|server| Some((server, auth_of_users(server)?)));
    // Commands do not tell users apart, so nobody signs in at an identity provider here.
    let is_own = |auth: &ServerAuth| !auth.kind.is_exchange();
    let of_users = of_users
        .filter(|(server, auth)| server.enabled && is_own(auth))
        .collect_vec();
    if of_users.is_empty() {
        return Ok(None);
    }
    let replicas = Replicas::connect(config).await?;
    let record = if changes { recorder(config)? } else { None };
    let log = record
        .as_ref()
        .map(|record| Arc::clone(&record.log))
        .unwrap_or_default();
    let common = replicas.as_ref().map(|(replicas, _)| replicas);
    let users = Users::new(config, common, Clients::OfOneUser, None, log);
    for (server, auth) in of_users {
        let unusable = |reason: String| failure!("server {:?}: {reason}", server.name);
        users.add(server, auth).map_err(unusable)?;
    }
    let opened = users.open()?;
    let _connection = replicas.map(|(_, connection)| connection);
    Ok(Some(Kept {
        grants: opened.grants.clone(),
        record,
        _connection,
    }))
}

/// The audit log of this process. A running gateway may have the configured file open for itself.
fn recorder(config: &Config) -> Result<Option<Recorder>> {
    match Recorder::open(config, &Telemetry::off(), None) {
        Ok(record) => Ok(Some(record)),
        Err(failure) if config.audit.required => Err(failure),
        Err(failure) => {
            complain(&format!(
                "this is not written to the audit log: {failure}\n"
            ));
            Ok(None)
        }
    }
}

/// The only user's connection to the server of this name.
async fn find_connection(grants: &Grants, name: &str) -> Result<UserConnection> {
    connection(grants, name).await?.ok_or_else(|| {
        let names = grants.servers();
        let hint = did_you_mean(name, names.iter().map(String::as_str));
        usage!(
            "no server {name:?} whose users sign in{hint}; servers with sign-in: {}",
            names.join(", ")
        )
    })
}

async fn connection(grants: &Grants, server: &str) -> Result<Option<UserConnection>> {
    Ok(connections_of(grants, &user())
        .await?
        .into_iter()
        .find(|one| one.server == server))
}

async fn not_connected(grants: &Grants) -> Result<Vec<UserConnection>> {
    let all = connections_of(grants, &user()).await?;
    Ok(all
        .into_iter()
        .filter(|connection| !connection.is_connected())
        .collect())
}

async fn deposit(grants: &Grants, server: &str) -> Result {
    let key = inputs::line(&format!("your key for {}: ", plain(server, 60)), true);
    let key = key
        .map(|key| key.trim().to_owned())
        .filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| usage!("no key was given"))?;
    grants
        .keep_key(&Owner::new(&user(), server), key)
        .await
        .map_err(sign_in_failure)?;
    say!("the key for {server} is stored");
    Ok(())
}

/// Signs the user in. Asks the server for its requirements unless `wanted` has them.
async fn sign_in(
    grants: &Grants,
    server: &str,
    wanted: Option<&Wanted>,
    browser: Browser,
) -> Result {
    let listener = CallbackListener::open().await?;
    let offer = Offer::ask(grants, server, wanted)
        .await
        .map_err(sign_in_failure)?;
    let scopes = offer.scopes().map_or_else(
        || "scopes of the authorization server's choice".to_owned(),
        ToString::to_string,
    );
    let (shown, issuer) = (plain(server, 60), plain(offer.issuer(), 200));
    let known = connection(grants, server).await?;
    if let Some(before) = known
        .and_then(|known| known.issuer)
        .filter(|before| before != offer.issuer())
    {
        complain(&format!(
            "warning: {shown} sends you to another authorization server than before ({})\n",
            plain(&before, 200)
        ));
    }
    let place = if server == offer.url().as_str() {
        String::new()
    } else {
        format!(" ({})", offer.url())
    };
    complain(&format!(
        "signing in to {shown}{place} at {issuer}, for: {}\n",
        plain(&scopes, 500)
    ));
    let callback = Callback {
        shared: listener.address().clone(),
        documents: None,
        is_for_once: true,
    };
    let begun = offer
        .begin(grants, &user(), &callback, b"")
        .await
        .map_err(sign_in_failure)?;
    open(&begun.location, browser);
    let parameters = listener.wait(&begun).await?;
    begun
        .finish(grants, parameters)
        .await
        .map_err(sign_in_failure)?;
    Ok(())
}

/// Opens a page in a browser. Only web addresses are opened, without a shell, so that no other
/// program can start.
fn open(location: &Url, browser: Browser) {
    let is_web = matches!(location.scheme(), "http" | "https");
    let is_opened =
        browser == Browser::Opened && is_web && webbrowser::open(location.as_str()).is_ok();
    let how = if is_opened {
        "opening in a browser:"
    } else {
        "open this in a browser on this machine:"
    };
    complain(&format!("{how} {}\n", plain(location.as_str(), 4000)));
}

/// The user is also the operator here, so the message includes the reason.
fn sign_in_failure(error: SignInError) -> Failure {
    match error {
        SignInError::Failed { reason } => failure!("the sign-in failed: {reason}"),
        error => Failure::other(error),
    }
}
