//! `fanlight login`, `logout` and `connections`: what the only user has at servers that each user signs in to; and `fanlight
//! state`: what is kept of all users. A running gateway takes it up by itself.

mod callback;

use fanlight_canonical::Principal;
use fanlight_config::{Config, Server, ServerAuth};
use fanlight_grants::{
    Callback, Grants, Offer, Owner, SignInError, UserConnection, all_connections, connections as connections_of,
};
use reqwest::Url;
use serde_json::{Value, json};
use tokio_util::sync::DropGuard;

use self::callback::CallbackListener;
use crate::cli::{LoginArgs, StateCommand};
use crate::failure::Failure;
use crate::inputs;
use crate::list_state::KeptServer;
use crate::out::{self, complain, counted, say};
use crate::replicas::Replicas;
use crate::show::{self, plain, table};
use crate::suggestions::did_you_mean;
use crate::users::{Clients, Users, auth_of_users};

/// Signs the only user in.
pub(crate) async fn login(config: &Config, args: &LoginArgs) -> Result<(), Failure> {
    let (grants, _connection) = grants(config).await?;
    let chosen = match &args.server {
        Some(name) => vec![known(&grants, name).await?],
        None => not_connected(&grants).await?,
    };
    if chosen.is_empty() {
        say!("signed in to all servers; name one to sign in to it anew");
    }
    for connection in chosen {
        match connection.wants_key {
            true => deposit(&grants, &connection.server).await?,
            false => sign_in(&grants, &connection.server, !args.no_browser).await?,
        }
    }
    Ok(())
}

/// Signs the only user out.
pub(crate) async fn logout(config: &Config, server: Option<&str>) -> Result<(), Failure> {
    let (grants, _connection) = grants(config).await?;
    let all = connections_of(&grants, &user()).await.map_err(other)?;
    let names: Vec<String> = match server {
        Some(name) => vec![known(&grants, name).await?.server],
        None => all.into_iter().filter(UserConnection::is_connected).map(|one| one.server).collect(),
    };
    for name in &names {
        grants.sign_out(&Owner::new(&user(), name)).await.map_err(other)?;
        say!("signed out of {name}");
    }
    if names.is_empty() {
        say!("signed in nowhere");
    }
    Ok(())
}

/// Shows where the only user is signed in.
pub(crate) async fn connections(config: &Config, as_json: bool) -> Result<(), Failure> {
    let (grants, _connection) = grants(config).await?;
    let all = connections_of(&grants, &user()).await.map_err(other)?;
    if as_json {
        out::json(&format!("{:#}", json!(all)));
        return Ok(());
    }
    let mut table = table(&["SERVER", "STATE", "SINCE", "SCOPES", "ENDS"]);
    for connection in &all {
        let facts = connection.facts();
        let fact = |name: &str| facts.iter().find(|(known, _)| *known == name).map(|(_, value)| plain(value, 200));
        let cell = |name: &str| fact(name).unwrap_or_else(|| "-".to_owned());
        table.add_row(vec![connection.server.clone(), cell("state"), cell("since"), cell("scopes"), cell("ends")]);
    }
    show::print(&table);
    Ok(())
}

/// Shows or removes what is kept of all users.
pub(crate) async fn state(config: &Config, command: &StateCommand) -> Result<(), Failure> {
    let replicas = Replicas::connected(config).await?;
    let users = Users::of(config, replicas.as_ref().map(|(replicas, _)| replicas), Clients::OfOneUser, None);
    let store = users.open().map_err(Failure::other)?.grants.store();
    match command {
        StateCommand::Purge => {
            let mut removed = store.purge(None).await.map_err(other)?;
            if let Some(lists) = users.store_of_lists() {
                removed += lists.purge(None).await.map_err(other)?;
            }
            say!("removed {}", counted(removed, "record"));
        }
        StateCommand::Export => {
            let who = |owner: &Owner| Principal::from_bytes(owner.principal()).map(|principal| principal.describe());
            let all = all_connections(store).await.map_err(other)?;
            let all = all.iter().map(|(owner, connection)| json!({ "user": who(owner), "connection": connection }));
            let mut all: Vec<Value> = all.collect();
            let lists = users.store_of_lists();
            let kept = lists.as_ref().unwrap_or(store).export::<KeptServer>().await.map_err(other)?;
            all.extend(
                kept.iter().map(|one| json!({ "server": one.owner.server(), "listsReadMs": one.record.read() })),
            );
            out::json(&format!("{:#}", json!(all)));
        }
    }
    Ok(())
}

/// The principal of everybody where clients are not authenticated.
fn user() -> Vec<u8> {
    Principal::anonymous().to_bytes()
}

/// What users have granted at the servers of the configuration, and what ends the connection to where it is kept.
async fn grants(config: &Config) -> Result<(Grants, Option<DropGuard>), Failure> {
    let replicas = Replicas::connected(config).await?;
    let users = Users::of(config, replicas.as_ref().map(|(replicas, _)| replicas), Clients::OfOneUser, None);
    let of_users = config.servers.iter().filter_map(|server| Some((server, auth_of_users(server)?)));
    // Nobody is told apart here, and so nobody signs in at an identity provider.
    let is_own = |auth: &ServerAuth| !auth.kind.is_exchange();
    for (server, auth) in of_users.filter(|(server, auth)| server.enabled && is_own(auth)) {
        let unusable = |reason: String| Failure::other(format!("server {:?}: {reason}", server.name));
        users.add(server, auth).map_err(unusable)?;
    }
    let opened = users.open().map_err(Failure::other)?;
    if opened.grants.servers().is_empty() {
        let names: Vec<&str> = config.servers.iter().map(|server: &Server| server.name.as_str()).collect();
        let help = "their users have no credentials of their own: `auth: {type: user}` gives them some";
        return Err(Failure::usage(format!("{}: {help}", names.join(", "))));
    }
    Ok((opened.grants.clone(), replicas.map(|(_, connection)| connection)))
}

/// What the only user has at the server of this name.
async fn known(grants: &Grants, name: &str) -> Result<UserConnection, Failure> {
    let found = connections_of(grants, &user()).await.map_err(other)?.into_iter().find(|one| one.server == name);
    found.ok_or_else(|| {
        let names = grants.servers();
        let hint = did_you_mean(name, names.iter().map(String::as_str));
        Failure::usage(format!("no server {name:?} whose users sign in{hint}; there are: {}", names.join(", ")))
    })
}

async fn not_connected(grants: &Grants) -> Result<Vec<UserConnection>, Failure> {
    let all = connections_of(grants, &user()).await.map_err(other)?;
    Ok(all.into_iter().filter(|connection| !connection.is_connected()).collect())
}

async fn deposit(grants: &Grants, server: &str) -> Result<(), Failure> {
    let key = inputs::line(&format!("your key for {}: ", plain(server, 60)), true);
    let key = key.map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| Failure::usage("no key was given"))?;
    grants.keep_key(&Owner::new(&user(), server), key).await.map_err(other)?;
    say!("the key for {server} is kept");
    Ok(())
}

async fn sign_in(grants: &Grants, server: &str, opens_browser: bool) -> Result<(), Failure> {
    let listener = CallbackListener::open().await?;
    let offer = Offer::ask(grants, server, None).await.map_err(refused)?;
    let scopes = offer.scopes().map_or_else(|| "what the authorization server decides".to_owned(), ToString::to_string);
    let (shown, issuer) = (plain(server, 60), plain(offer.issuer(), 200));
    complain(&format!("signing in to {shown} ({}) at {issuer}, for: {}\n", offer.url(), plain(&scopes, 500)));
    let callback = Callback { redirect_uri: listener.redirect_uri().clone(), document: None };
    let begun = offer.begin(grants, &user(), &callback, b"").await.map_err(refused)?;
    open(&begun.location, opens_browser);
    let parameters = listener.wait(&begun).await?;
    begun.finish(grants, &parameters).await.map_err(refused)?;
    say!("signed in to {server}");
    Ok(())
}

/// Opens a page in a browser: no program that an address of another kind would start, and no shell.
fn open(location: &Url, opens_browser: bool) {
    let is_web = matches!(location.scheme(), "http" | "https");
    let is_opened = opens_browser && is_web && webbrowser::open(location.as_str()).is_ok();
    let how = if is_opened { "a browser has been asked to open" } else { "open this in a browser on this machine:" };
    complain(&format!("{how} {}\n", plain(location.as_str(), 4000)));
}

/// Who signs in here is the operator, too.
fn refused(error: SignInError) -> Failure {
    match error {
        SignInError::Failed { reason } => Failure::other(format!("the sign-in cannot be carried out: {reason}")),
        error => Failure::other(error.to_string()),
    }
}

fn other(error: impl std::fmt::Display) -> Failure {
    Failure::other(error.to_string())
}
