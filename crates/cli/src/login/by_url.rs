//! Servers that a command line names by URL. Each counts as a server of its own configuration, with
//! `auth: {type: user}`. The only user's grants there are stored beside the grants of configuration
//! files.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fanlight_config::{Config, Server, ServerAuth, ServerAuthKind, Transport};
use fanlight_grants::fetch::{Requests, Trust};
use fanlight_grants::oauth::{Challenge, Message, Refused};
use fanlight_grants::{FILE, Grants, NoAccess, UserAccess};
use http::{HeaderMap, Method};
use url::Url;

use super::{Browser, sign_in, user};
use crate::list_state::user_state_of;
use crate::users::{Clients, Users, auth_of_users};
use crate::{Failure, Result, complain};

/// The name of the folder with these grants.
const FOLDER: &str = "by-url";

/// A server at a URL, with the only user's credentials.
pub(crate) struct ServerByUrl {
    url: Url,
    server: Server,
    users: Users,
    /// How to show the sign-in page; `None` if the user cannot be asked to sign in.
    browser: Option<Browser>,
    has_signed_in: AtomicBool,
}

impl ServerByUrl {
    /// The server at this URL.
    pub(crate) fn new(url: &str, browser: Option<Browser>) -> Result<Self> {
        let wrong = || usage!("{url:?} is not an http or https URL");
        let mut url = Url::parse(url).map_err(|_| wrong())?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong());
        }
        url.set_fragment(None);
        let server = server(url.as_str());
        let config = Config {
            servers: vec![server.clone()],
            user_state: folder(),
            ..Config::default()
        };
        Ok(Self {
            url,
            server,
            users: users(&config),
            browser,
            has_signed_in: AtomicBool::new(false),
        })
    }

    /// The server's name: the URL without its fragment.
    pub(crate) fn name(&self) -> &str {
        &self.server.name
    }

    /// The server as an entry of a configuration.
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// The server's URL.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Whether the user has signed in to the server during this command.
    pub(crate) fn has_signed_in(&self) -> bool {
        self.has_signed_in.load(Ordering::Relaxed)
    }

    /// The header fields of the next message; empty unless the user has signed in before.
    pub(crate) async fn headers(&self) -> Result<HeaderMap> {
        if !is_kept() || self.permitted().is_err() {
            return Ok(HeaderMap::new());
        }
        self.access()?
            .load(self.message())
            .await
            .map_err(unavailable)
    }

    /// The user's access token for other uses than messages; `None` if there is none.
    pub(crate) async fn token(&self) -> Result<Option<String>> {
        if !is_kept() || self.permitted().is_err() {
            return Ok(None);
        }
        match self.access()?.token().await {
            Ok(token) => Ok(Some(token.to_string())),
            Err(NoAccess::SignIn(_)) => Ok(None),
            Err(missing) => Err(unavailable(missing)),
        }
    }

    /// The new header fields for a refused message. If nothing else helps, the user signs in.
    /// `None` if the server wants something else, or the user cannot be asked. `is_again` means
    /// that the refused fields were replacements, too.
    pub(crate) async fn replace_credentials(
        &self,
        refused: Refused<'_>,
        is_again: bool,
    ) -> Result<Option<HeaderMap>> {
        let wants_token =
            refused.challenges.is_empty() || Challenge::from_headers(refused.challenges).is_some();
        if !wants_token || (self.browser.is_none() && !is_kept()) {
            return Ok(None);
        }
        self.permitted()?;
        let access = self.access()?;
        let replaced = match is_again.then(|| access.give_up(refused)).flatten() {
            Some(missing) => Err(missing),
            None => access.replace(refused).await,
        };
        match (replaced, self.browser) {
            (Ok(headers), _) => Ok(Some(headers)),
            (Err(NoAccess::SignIn(wanted)), Some(browser))
                if !self.has_signed_in.swap(true, Ordering::Relaxed) =>
            {
                complain(
                    "the server requires credentials and FANLIGHT_TOKEN is not set: signing in …\n",
                );
                sign_in(self.grants()?, self.name(), Some(&wanted), browser).await?;
                self.headers().await.map(Some)
            }
            (Err(NoAccess::SignIn(_)), _) => Ok(None),
            (Err(missing), _) => Err(unavailable(missing)),
        }
    }

    /// Signs the user in, even if it is not necessary.
    pub(crate) async fn sign_in(&self, browser: Browser) -> Result {
        self.permitted()?;
        sign_in(self.grants()?, self.name(), None, browser).await
    }

    /// Waits until changes of the user's grants are stored.
    pub(crate) async fn stop(&self) {
        self.users.stop().await;
    }

    /// The store of grants, with this server added.
    pub(super) fn grants(&self) -> Result<&Grants> {
        if let Some(opened) = self.users.opened_store() {
            return opened.map(|opened| &opened.grants).map_err(Failure::other);
        }
        if folder().is_none() {
            return Err(failure!(
                "no folder to store your sign-in: set XDG_STATE_HOME or HOME",
            ));
        }
        add(&self.users, &self.server)
    }

    fn access(&self) -> Result<UserAccess> {
        let access = self.grants()?.user_access(&user(), self.name());
        access.ok_or_else(|| failure!("unknown server"))
    }

    fn message(&self) -> Message<'_> {
        Message {
            method: &Method::POST,
            url: &self.url,
        }
    }

    /// Whether a token may be sent to the server: nobody may be able to read it in transit
    /// (2026-07-28 basic/authorization, Communication Security).
    fn permitted(&self) -> Result {
        let requests = Requests::new(&Trust::in_server(self.url.clone()))?;
        requests
            .permits(&self.url)
            .map_err(|error| failure!("users cannot sign in to this server: {error}"))
    }
}

/// The only user's grants at servers named by URL; `None` if there are none.
pub(super) async fn grants() -> Result<Option<Grants>> {
    if !is_kept() {
        return Ok(None);
    }
    let users = users(&Config {
        user_state: folder(),
        ..Config::default()
    });
    let grants = users.open()?.grants.clone();
    for granted in grants.list_grants(&user()).await? {
        add(&users, &server(granted.owner.server()))?;
    }
    Ok(Some(grants).filter(|grants| !grants.servers().is_empty()))
}

/// Whether a command-line argument is a URL instead of a configured server's name.
pub fn is_url(text: &str) -> bool {
    text.starts_with("https://") || text.starts_with("http://")
}

fn server(url: &str) -> Server {
    let auth = Some(ServerAuth::new(ServerAuthKind::User));
    Server {
        auth,
        ..Server::new(
            url,
            Transport::Http {
                url: url.to_owned(),
                headers: Vec::new(),
            },
        )
    }
}

/// Users whose changes are only logged, since no configuration names an audit log.
fn users(config: &Config) -> Users {
    Users::new(config, None, Clients::OfOneUser, None, Arc::default())
}

fn add<'a>(users: &'a Users, server: &Server) -> Result<&'a Grants> {
    let auth = auth_of_users(server).ok_or_else(|| failure!("its users do not sign in"))?;
    users
        .add(server, auth)
        .map(|opened| &opened.grants)
        .map_err(Failure::other)
}

fn folder() -> Option<PathBuf> {
    user_state_of(FOLDER)
}

fn is_kept() -> bool {
    folder().is_some_and(|folder| folder.join(FILE).exists())
}

fn unavailable(missing: NoAccess) -> Failure {
    Failure::other(match missing {
        NoAccess::SignIn(_) => "you need to sign in to the server".to_owned(),
        NoAccess::Unavailable(reason) => {
            format!("your sign-in at this server cannot be used: {reason}")
        }
    })
}
