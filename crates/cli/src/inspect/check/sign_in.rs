//! The requirements for signing in to each server. They come from its challenge and from the
//! metadata of the server and its authorization server. The report adds what to write into the
//! configuration.

use std::collections::HashSet;
use std::time::Duration;

use fanlight_config::{Config, Server, ServerAuth, ServerAuthKind, Transport};
use fanlight_grants::fetch::Requests;
use fanlight_grants::issuer_name;
use fanlight_grants::oauth::{Challenge, Discovered, OAuthError, discover};
use fanlight_protocol::visible::plain;
use futures_util::StreamExt as _;
use http::header::AUTHORIZATION;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::server_auth::{Place, trust};

/// The number of servers queried at the same time.
const AT_ONCE: usize = 16;

/// The time limit for all requests about one server.
const LIMIT: Duration = Duration::from_secs(20);

/// The limit of characters shown of a server's or authorization server's text.
const LONGEST: usize = 200;

/// The requirements for signing in to a server.
pub(crate) struct SignIn {
    pub(super) server: String,
    wants: Result<Wants, String>,
}

struct Wants {
    issuer: String,
    scopes: Vec<String>,
    registration: Registration,
    has_authorization_endpoint: bool,
    has_pkce: bool,
    needs_proofs: bool,
    entry: Entry,
    /// The redirect URI of the server's users, if the gateway's URL is configured.
    redirect_uri: Option<String>,
    /// Whether only a redirect URI of its own protects the codes of this authorization server. Another
    /// one could send browsers on to it (RFC 9700, 4.4), and its answers do not name it (RFC 9207).
    needs_own_redirect_uri: bool,
}

/// The way in which clients register at an authorization server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Registration {
    Document,
    Dynamic,
    ByHand,
}

/// The kind of credentials that the configuration has for a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Nothing,
    Headers,
    User {
        has_client: bool,
    },
    Other,
    /// No configuration has the server: a command names its URL.
    Missing,
}

/// The requirements for signing in to these servers, given the challenges seen when connecting.
/// Servers without a sign-in are left out.
pub(super) async fn find_requirements(
    config: &Config,
    servers: Vec<(&Server, Option<Challenge>)>,
) -> Vec<SignIn> {
    let asked = servers
        .into_iter()
        .map(|(server, said)| wanted_by(config, server, Entry::read(server), said));
    let mut all: Vec<SignIn> = futures_util::stream::iter(asked)
        .buffered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    let of_users = all.iter().filter_map(SignIn::user_wants);
    let issuers: HashSet<String> = of_users.map(|wants| wants.issuer.clone()).collect();
    for one in &mut all {
        match &mut one.wants {
            Ok(wants) if issuers.len() < 2 => wants.needs_own_redirect_uri = false,
            _ => {}
        }
    }
    all
}

/// The requirements for signing in to a server outside the configuration, given its challenge.
pub(crate) async fn wanted_at(server: &Server, challenge: Challenge) -> Option<SignIn> {
    wanted_by(&Config::default(), server, Entry::Missing, Some(challenge)).await
}

async fn wanted_by(
    config: &Config,
    server: &Server,
    entry: Entry,
    said: Option<Challenge>,
) -> Option<SignIn> {
    let wants = timeout(LIMIT, ask(config, server, entry, said)).await;
    let wants = wants
        .unwrap_or_else(|_| Err(format!("no answer about it within {LIMIT:?}")))
        .transpose()?;
    Some(SignIn {
        server: server.name.clone(),
        wants,
    })
}

/// The requirements of one server; `None` if it has none, or none can be found out here.
async fn ask(
    config: &Config,
    server: &Server,
    entry: Entry,
    said: Option<Challenge>,
) -> Result<Option<Wants>, String> {
    let Some(place) = Place::from_server(server) else {
        return Ok(None);
    };
    let trust = trust(&place, server.auth.as_ref())?;
    let requests = Requests::new(&trust).map_err(|error| error.to_string())?;
    let challenge = match said {
        // The server may accept the configured credentials. If there are none and it cannot be
        // reached, that is reported elsewhere.
        None if entry != Entry::Nothing => Challenge::fetch(&requests, &trust.server)
            .await
            .ok()
            .flatten(),
        said => said,
    };
    let Some(challenge) = challenge else {
        return Ok(None);
    };
    let issuer = server.auth.as_ref().and_then(|auth| auth.issuer.as_deref());
    let found = discover(&requests, &trust.server, Some(&challenge), issuer).await;
    found
        .map(|found| Some(Wants::new(config, server, entry, found)))
        .map_err(|error: OAuthError| error.to_string())
}

impl Wants {
    fn new(config: &Config, server: &Server, entry: Entry, found: Discovered) -> Self {
        let Discovered {
            provider,
            scopes,
            needs_proofs,
            ..
        } = found;
        // The client metadata document is served at the public URL, where the authorization server
        // reads it.
        let has_document = config
            .public_url
            .as_ref()
            .is_some_and(|url| url.starts_with("https:"));
        let registration = match () {
            () if provider.client_id_metadata_document_supported && has_document => {
                Registration::Document
            }
            () if provider.registration_endpoint.is_some() => Registration::Dynamic,
            () => Registration::ByHand,
        };
        let auth = server.auth.as_ref();
        let names_itself = provider.authorization_response_iss_parameter_supported;
        let has_client = auth.is_some_and(|auth| auth.client_id.is_some());
        let own = match has_client && names_itself {
            true => String::new(),
            false => format!("/{}", issuer_name(&provider.issuer)),
        };
        let public_url = config.public_url.as_deref();
        let redirect_uri =
            public_url.map(|url| format!("{}/oauth/callback{own}", url.trim_end_matches('/')));
        Self {
            redirect_uri,
            needs_own_redirect_uri: matches!(entry, Entry::User { .. }) && !names_itself,
            has_authorization_endpoint: provider.authorization_endpoint.is_some(),
            has_pkce: provider.has_pkce(),
            issuer: plain(&provider.issuer, LONGEST),
            scopes: scopes
                .iter()
                .flat_map(|scopes| scopes.iter())
                .map(|scope| plain(scope, LONGEST))
                .collect(),
            registration,
            needs_proofs,
            entry,
        }
    }

    /// Whether somebody has to register the client by hand.
    fn needs_client(&self) -> bool {
        let has_client = self.entry == Entry::User { has_client: true };
        let is_open = matches!(self.entry, Entry::User { .. } | Entry::Nothing);
        has_client || (is_open && self.registration == Registration::ByHand)
    }

    /// The warning about other authorization servers.
    fn warning(&self) -> Option<&'static str> {
        self.needs_own_redirect_uri.then_some(
            "that authorization server does not name itself in its answers (RFC 9207) and is not the only one: \
             only its own redirect URI keeps others from its codes, if it accepts no other for Fanlight",
        )
    }

    /// The advice, in terms of configuration options.
    fn advice(&self) -> &'static str {
        match (self.entry, self.registration) {
            (Entry::Headers, _) => "its `headers` contain one",
            (Entry::Other, _) => "its `auth` gets one",
            _ if !self.has_authorization_endpoint => {
                "that authorization server has no sign-in by browser: write `auth: {type: \
                 clientCredentials, clientId: …, clientSecret: …}`"
            }
            _ if !self.has_pkce => {
                "that authorization server lacks PKCE with S256, so signing in would not be safe: \
                 ask its operator, or put a token into `headers`"
            }
            (Entry::User { has_client: false }, Registration::ByHand) => {
                "its `auth` lacks a `clientId`: that authorization server has no automatic \
                 registration; register a client there, and set `clientId`, or `clientId`, \
                 `clientSecret` and `issuer`"
            }
            (Entry::User { .. }, _) => "each user signs in, as its `auth` says",
            (Entry::Missing, Registration::ByHand) => {
                "register a client there, and write the server into a configuration, with `auth: {type: user, issuer: …, \
                 clientId: …, clientSecret: …}`; or give a token with `--header`"
            }
            (Entry::Missing, Registration::Document | Registration::Dynamic) => {
                "`fanlight login` with its URL signs you in"
            }
            (Entry::Nothing, Registration::ByHand) => {
                "register a client there, and write `auth: {type: user, issuer: …, clientId: …, clientSecret: …}`"
            }
            (Entry::Nothing, Registration::Document | Registration::Dynamic) => {
                "write `auth: {type: user}`, and each user signs in once"
            }
        }
    }
}

impl Entry {
    fn read(server: &Server) -> Self {
        let brings = |headers: &[(String, fanlight_config::Secret)]| {
            headers
                .iter()
                .any(|(name, _)| name.eq_ignore_ascii_case(AUTHORIZATION.as_str()))
        };
        match (&server.auth, &server.transport) {
            (
                Some(ServerAuth {
                    kind: ServerAuthKind::User,
                    client_id,
                    ..
                }),
                _,
            ) => Self::User {
                has_client: client_id.is_some(),
            },
            (Some(_), _) => Self::Other,
            (None, Transport::Http { headers, .. } | Transport::Sse { headers, .. })
                if brings(headers) =>
            {
                Self::Headers
            }
            (None, _) => Self::Nothing,
        }
    }
}

impl SignIn {
    /// The requirements as a line for people.
    pub(crate) fn line(&self) -> String {
        let server = &self.server;
        let wants = match &self.wants {
            Ok(wants) => wants,
            Err(reason) => {
                return format!(
                    "{server}: asks for a token, but does not tell how to get one: {}",
                    plain(reason, LONGEST)
                );
            }
        };
        let scopes = match wants.scopes.join(" ") {
            scopes if scopes.is_empty() => String::new(),
            scopes => format!(", with the scopes {scopes}"),
        };
        let proofs = if wants.needs_proofs {
            ", bound to a key (DPoP)"
        } else {
            ""
        };
        let redirect_uri = wants.redirect_uri.iter().filter(|_| wants.needs_client());
        let redirect_uri: String = redirect_uri
            .map(|url| format!("; its redirect URI is {url}"))
            .collect();
        let warning = wants.warning();
        let warning = warning.map(|text| format!("; warning: {text}"));
        format!(
            "{server}: asks for a token from {}{scopes}{proofs}; {}{redirect_uri}{}",
            wants.issuer,
            wants.advice(),
            warning.unwrap_or_default()
        )
    }

    /// The requirements, if each user signs in.
    fn user_wants(&self) -> Option<&Wants> {
        let wants = self.wants.as_ref().ok()?;
        matches!(wants.entry, Entry::User { .. }).then_some(wants)
    }

    /// The requirements as JSON.
    pub(crate) fn to_json(&self) -> Value {
        match &self.wants {
            Err(reason) => json!({ "error": reason }),
            Ok(wants) => json!({
                "issuer": wants.issuer,
                "scopes": wants.scopes,
                "registration": match wants.registration {
                    Registration::Document => "metadataDocument",
                    Registration::Dynamic => "dynamic",
                    Registration::ByHand => "byHand",
                },
                "pkce": wants.has_pkce,
                "proofs": wants.needs_proofs,
                "advice": wants.advice(),
                "redirectUri": wants.redirect_uri,
                "warning": wants.warning(),
            }),
        }
    }
}
