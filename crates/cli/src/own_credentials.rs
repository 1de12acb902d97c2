//! Fanlight's own credentials for one server: configured ones, or a token fetched with them.

use std::future::ready;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fanlight_backend::credentials::{
    CredentialSource, Credentials, MessageTarget, NoCredentials, PendingCredentials, Refusal,
};
use fanlight_config::{
    IdentityProvider, ResourceParameter, Secret, Server, ServerAuth, ServerAuthKind,
    SubjectTokenType,
};
use fanlight_grants::fetch::secret_value;
use fanlight_grants::oauth::{
    ACCESS_TOKEN, Headers, ID_TOKEN, JWT, MachineAccess, MachineGrant, MachineSettings, Message,
    OAuthError, PendingHeaders, REFRESH_TOKEN, Refused, Scopes, Subject, TokenFile,
};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use url::Url;

use crate::server_auth::{Place, client, trust};

/// Fanlight's own credentials for one server. Secrets may be rotated while it is connected.
pub struct OwnCredentials {
    place: Place,
    used: ArcSwap<Used>,
}

/// The credentials in use, and the configuration that they come from.
struct Used {
    auth: ServerAuth,
    kind: Kind,
}

enum Kind {
    /// The same headers for each message.
    Fixed(HeaderMap),
    /// A token from an authorization server.
    Token(Arc<MachineAccess>),
    /// The configuration cannot be used, for the given reason.
    Unusable(String),
}

impl OwnCredentials {
    /// The credentials that a server's `auth` configures; `None` if the server is not reached over
    /// HTTP.
    pub(crate) fn new(server: &Server, auth: &ServerAuth) -> Option<Arc<Self>> {
        let place = Place::from_server(server)?;
        let used = ArcSwap::from_pointee(Used {
            auth: auth.clone(),
            kind: Kind::choose(&place, auth, None),
        });
        Some(Arc::new(Self { place, used }))
    }

    /// Changes the credentials, if they differ. The next message or the next token uses them.
    pub(crate) fn change(&self, auth: &ServerAuth) {
        let earlier = self.used.load_full();
        if earlier.auth != *auth {
            let kind = Kind::choose(&self.place, auth, Some(&earlier.kind));
            self.used.store(Arc::new(Used {
                auth: auth.clone(),
                kind,
            }));
        }
    }
}

impl CredentialSource for OwnCredentials {
    fn credentials(&self, message: &MessageTarget<'_>) -> Credentials {
        match &self.used.load().kind {
            Kind::Fixed(headers) => Credentials::Ready(headers.clone()),
            Kind::Token(access) => credentials_of(access, message, unavailable),
            Kind::Unusable(reason) => Credentials::Wait(no_credentials(reason.clone())),
        }
    }

    fn replace(&self, refusal: Refusal) -> Option<PendingCredentials> {
        let used = self.used.load_full();
        let Kind::Token(access) = &used.kind else {
            return None;
        };
        replace_credentials(access, &refusal, unavailable)
    }
}

/// The credentials of a server that cannot have any, for this reason.
pub(crate) fn no_credentials(reason: String) -> PendingCredentials {
    Box::pin(ready(Err(NoCredentials::Unavailable { reason })))
}

/// A token as the credentials of a message. `explain` translates the error if there is none.
pub(crate) fn credentials_of(
    access: &Arc<MachineAccess>,
    message: &MessageTarget<'_>,
    explain: impl FnOnce(OAuthError) -> NoCredentials + Send + 'static,
) -> Credentials {
    match access.headers(message.method, message.url) {
        Headers::Ready(headers) => Credentials::Ready(headers),
        Headers::Wait(pending) => Credentials::Wait(translated(pending, explain)),
    }
}

/// The refused message, as grants describe it.
pub(crate) fn refused_message(refusal: &Refusal) -> Refused<'_> {
    Refused {
        status: refusal.status,
        challenges: &refusal.challenges,
        nonce: refusal.nonce.as_ref(),
        shown: &refusal.shown,
        message: Message {
            method: &refusal.method,
            url: &refusal.url,
        },
    }
}

/// Other credentials for repeating a refused message.
pub(crate) fn replace_credentials(
    access: &Arc<MachineAccess>,
    refusal: &Refusal,
    explain: impl FnOnce(OAuthError) -> NoCredentials + Send + 'static,
) -> Option<PendingCredentials> {
    access
        .replace(refused_message(refusal))
        .map(|pending| translated(pending, explain))
}

fn translated(
    pending: PendingHeaders,
    explain: impl FnOnce(OAuthError) -> NoCredentials + Send + 'static,
) -> PendingCredentials {
    Box::pin(async move { pending.await.map_err(explain) })
}

#[expect(clippy::needless_pass_by_value, reason = "an error is explained once")]
fn unavailable(error: OAuthError) -> NoCredentials {
    NoCredentials::Unavailable {
        reason: error.to_string(),
    }
}

impl Kind {
    fn choose(place: &Place, auth: &ServerAuth, earlier: Option<&Self>) -> Self {
        let made = match auth.kind {
            ServerAuthKind::Basic => basic(auth).map(Self::Fixed),
            _ => settings(place, auth).map(|settings| match earlier {
                Some(Self::Token(access)) if access.change(settings.clone()) => {
                    Self::Token(Arc::clone(access))
                }
                _ => Self::Token(MachineAccess::new(settings)),
            }),
        };
        made.unwrap_or_else(Self::Unusable)
    }
}

/// Basic authentication (RFC 7617, 2).
fn basic(auth: &ServerAuth) -> Result<HeaderMap, String> {
    let (name, password) = (
        auth.username.as_deref().unwrap_or_default(),
        auth.password.as_ref(),
    );
    let text = format!("{name}:{}", password.map_or("", Secret::expose));
    let value = secret_value(&format!("Basic {}", STANDARD.encode(text)))
        .map_err(|error| error.to_string())?;
    Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
}

/// The settings for fetching a token.
pub(crate) fn settings(place: &Place, auth: &ServerAuth) -> Result<MachineSettings, String> {
    let grant = grant(auth).ok_or("its `auth` cannot fetch another token")?;
    Ok(MachineSettings {
        name: place.name.clone(),
        trust: trust(place, Some(auth))?,
        grant,
        client: client(
            auth.client_id.as_ref(),
            auth.client_secret.as_ref(),
            auth.key.as_ref(),
        )?,
        issuer: auth.issuer.clone(),
        token_endpoint: endpoint(auth.token_endpoint.as_ref())?,
        scopes: auth.scopes.clone().map(Scopes::from_iter),
        sends_resource: auth.resource_parameter == ResourceParameter::Send,
    })
}

/// The grant for fetching a token; `None` if this kind of `auth` has none.
fn grant(auth: &ServerAuth) -> Option<MachineGrant> {
    let file = auth
        .token_file
        .as_ref()
        .map(|path| TokenFile(PathBuf::from(path)));
    match auth.kind {
        ServerAuthKind::ClientCredentials => Some(MachineGrant::ClientCredentials),
        ServerAuthKind::Workload => file.map(MachineGrant::Assertion),
        ServerAuthKind::Exchange => Some(MachineGrant::Exchange {
            subject: Subject {
                file,
                kind: subject_type(auth, ACCESS_TOKEN),
            },
            audience: auth.audience.clone(),
        }),
        ServerAuthKind::Enterprise => Some(MachineGrant::Enterprise {
            subject: Subject {
                file,
                kind: subject_type(auth, ID_TOKEN),
            },
            idp: auth.idp.as_ref().map(identity_provider).transpose().ok()?,
        }),
        _ => None,
    }
}

fn subject_type(auth: &ServerAuth, usual: &'static str) -> &'static str {
    match auth.subject_token_type {
        None => usual,
        Some(SubjectTokenType::AccessToken) => ACCESS_TOKEN,
        Some(SubjectTokenType::IdToken) => ID_TOKEN,
        Some(SubjectTokenType::RefreshToken) => REFRESH_TOKEN,
        Some(SubjectTokenType::Jwt) => JWT,
    }
}

fn identity_provider(
    idp: &IdentityProvider,
) -> Result<fanlight_grants::oauth::IdentityProvider, String> {
    Ok(fanlight_grants::oauth::IdentityProvider {
        issuer: idp.issuer.clone(),
        client: client(idp.client_id.as_ref(), idp.client_secret.as_ref(), None)?,
    })
}

fn endpoint(url: Option<&String>) -> Result<Option<Url>, String> {
    url.map(|url| {
        url.parse()
            .map_err(|error| format!("{url} is not a URL: {error}"))
    })
    .transpose()
}
