//! The pages on which users sign in to servers and see their connections, for browsers on the
//! clients' listener.
//!
//! A link leads to a page and does nothing by itself. Fanlight does what the user agrees to only if
//! the browser is proven to be the user's: by a sign-in at the issuer of the clients' tokens, or by
//! a key or an access token. Either has to be of the same principal as the call that the link was
//! made for. If clients are not authenticated, the browser has to be on this machine. An answer
//! from an authorization server is accepted only from the browser in which the user agreed, once,
//! and within ten minutes.

mod browser;
mod connect;
mod connections;
mod html;
pub(crate) mod identify;
mod known;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use fanlight_canonical::identity::Identity;
use fanlight_credentials::{Authenticate, Denial, PageRequest, Pages, PendingPage};
use fanlight_fair::{Budget, Part};
use fanlight_protocol::seal::Seal;
use http::{Method, Response, StatusCode};
use url::{Url, form_urlencoded};

use self::browser::Browser;
use self::html::{Page, with_cookies};
use self::identify::{CALLBACK as IDENTITY_CALLBACK, Spent};
use crate::links::{CONNECT, Links, join_path};
use crate::oauth::{AuthorizationRequest, ClientMetadata};
use crate::peers::CLIENT_NAME;
use crate::sign_in::{Callback, is_issuer_name};
use crate::{Grants, Owner, SignInError, StoreError};

/// The path to which authorization servers send browsers back, each with a name below it.
const CALLBACK: &str = "/oauth/callback";
/// The path of the page with the user's connections.
const CONNECTIONS: &str = "/connections";
/// The path of Fanlight's metadata as an OAuth client, with a name below it for each issuer.
const DOCUMENT: &str = "/.well-known/fanlight-client";

/// The pages on which users sign in to servers.
pub struct SignInPages {
    grants: Grants,
    links: Arc<Links>,
    authenticate: Arc<dyn Authenticate>,
    rules: Arc<dyn SignInRules>,
    seal: Seal,
    /// Ended sign-ins at identity providers.
    spent: Spent,
    /// Permits for requests to an identity provider. One address may use as many as it leaves free.
    asking: Budget<Option<IpAddr>>,
}

/// The limit of simultaneous requests to identity providers. There is no option, since one answers
/// in less than a second.
const ASKING: usize = 32;

fanlight_protocol::opaque!(SignInPages);

impl SignInPages {
    /// The pages behind `links`. `authenticate` identifies users by their credentials for the
    /// default endpoint; `rules` decides where they may sign in.
    ///
    /// # Errors
    ///
    /// If the store's keys cannot be used.
    pub fn new(
        grants: Grants,
        links: Arc<Links>,
        authenticate: Arc<dyn Authenticate>,
        rules: Arc<dyn SignInRules>,
    ) -> Result<Self, StoreError> {
        let seal = grants.store().seal(b"page for users: ")?;
        Ok(Self {
            grants,
            links,
            authenticate,
            rules,
            seal,
            spent: Spent::default(),
            asking: Budget::new(ASKING, Part::AS_MUCH_AS_IT_LEAVES),
        })
    }

    async fn page(&self, request: PageRequest<'_>) -> Response<String> {
        let public_url = request.public_url.and_then(|url| Url::parse(url).ok());
        let Some(public_url) = public_url else {
            let text = "The operator has to configure publicUrl, the URL at which users reach this gateway.";
            return Page::refusal(StatusCode::NOT_FOUND, "This gateway has no pages", text)
                .answer();
        };
        let Some(browser) = Browser::new(request, &public_url) else {
            return Page::refusal(StatusCode::SERVICE_UNAVAILABLE, "Try again later", "").answer();
        };
        let visit = Visit {
            pages: self,
            request,
            public_url: &public_url,
            browser,
        };
        let answer = visit.answer().await;
        with_cookies(answer, visit.browser.cookies())
    }
}

impl Visit<'_> {
    async fn answer(&self) -> Response<String> {
        match (
            Place::parse(self.request.head.uri.path()),
            self.request.head.method == Method::POST,
        ) {
            (Some(Place::Offer(handle)), false) => self.show_offer(handle).await,
            (Some(Place::Offer(handle)), true) => self.accept_offer(handle).await,
            (Some(Place::Callback), false) => self.come_back().await,
            (Some(Place::IdentityCallback), false) => answer_or_page(self.end_identifying().await),
            (Some(Place::Connections), false) => self.show_connections().await,
            (Some(Place::Connections), true) => self.change_connections().await,
            (Some(Place::Document(issuer)), false) => self.document(issuer),
            _ => Page::refusal(
                StatusCode::METHOD_NOT_ALLOWED,
                "This method is not supported",
                "",
            )
            .answer(),
        }
    }
}

impl Pages for SignInPages {
    fn serves(&self, path: &str) -> bool {
        Place::parse(path).is_some()
    }

    fn answer<'a>(&'a self, request: PageRequest<'a>) -> PendingPage<'a> {
        Box::pin(self.page(request))
    }
}

/// The page at a path.
enum Place<'a> {
    /// The page behind a link.
    Offer(&'a str),
    /// The page to which an authorization server sends browsers back.
    Callback,
    /// The page to which an identity provider sends browsers back.
    IdentityCallback,
    Connections,
    /// Fanlight's metadata for the issuer with this name.
    Document(&'a str),
}

impl<'a> Place<'a> {
    fn parse(path: &'a str) -> Option<Self> {
        if let Some(handle) = path.strip_prefix(CONNECT) {
            return Some(Self::Offer(handle));
        }
        // The name of an issuer below a path; empty for the path itself.
        let below = |place: &str| {
            let is_named = |rest: &str| rest.strip_prefix('/').is_some_and(is_issuer_name);
            path.strip_prefix(place)
                .is_some_and(|rest| rest.is_empty() || is_named(rest))
        };
        let document = |rest: &'a str| rest.strip_prefix('/')?.strip_suffix(".json");
        match () {
            () if below(CALLBACK) => Some(Self::Callback),
            () if below(IDENTITY_CALLBACK) => Some(Self::IdentityCallback),
            () if path == CONNECTIONS => Some(Self::Connections),
            () => path
                .strip_prefix(DOCUMENT)
                .and_then(document)
                .filter(|issuer| is_issuer_name(issuer))
                .map(Self::Document),
        }
    }
}

/// One request for a page.
struct Visit<'a> {
    pages: &'a SignInPages,
    request: PageRequest<'a>,
    public_url: &'a Url,
    browser: Browser<'a>,
}

/// The fields of a form.
struct Fields(HashMap<String, String>);

impl Fields {
    fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }
}

impl Visit<'_> {
    fn fields(&self) -> Fields {
        Fields(
            form_urlencoded::parse(self.request.form)
                .into_owned()
                .collect(),
        )
    }

    /// The page for a user who may not sign in to a server. Writes this to the audit log.
    fn barred(&self, owner: &Owner) -> Response<String> {
        self.pages
            .grants
            .not_signed_in(owner, &SignInError::NotPermitted);
        let server = owner.server();
        let text = format!(
            "The policy of this gateway does not permit you to sign in to {server}. Its operator can change that."
        );
        Page::refusal(StatusCode::FORBIDDEN, "You may not sign in here", &text).answer()
    }

    /// The URLs to which browsers return, and Fanlight's client metadata.
    fn callback(&self) -> Option<Callback> {
        let is_readable = |url: &Url| url.scheme() == "https";
        Some(Callback {
            shared: join_path(self.public_url, CALLBACK)?,
            documents: join_path(self.public_url, DOCUMENT).filter(is_readable),
            is_for_once: false,
        })
    }

    /// Whether the browser was to return from the authorization server to the path of this request.
    fn is_redirect_of(&self, request: &AuthorizationRequest) -> bool {
        let here = join_path(self.public_url, self.request.head.uri.path());
        here.is_some_and(|here| request.returns_to(here.path()))
    }

    /// Fanlight's metadata as an OAuth client of one issuer (2026-07-28
    /// basic/authorization/client-registration, Client ID Metadata Documents).
    fn document(&self, issuer: &str) -> Response<String> {
        let why = "Authorization servers read it over https only, and publicUrl is not https.";
        self.metadata(issuer).map_or_else(
            || Page::refusal(StatusCode::NOT_FOUND, "There is no such document", why).answer(),
            html::document,
        )
    }

    fn metadata(&self, issuer: &str) -> Option<String> {
        let Callback {
            shared, documents, ..
        } = self.callback()?;
        let identity = join_path(self.public_url, IDENTITY_CALLBACK)?;
        let [shared, identity] =
            [shared, identity].map(|url| join_path(&url, &format!("/{issuer}")));
        let metadata = ClientMetadata::new_code_client(CLIENT_NAME, &shared?);
        let redirect_uris = [metadata.redirect_uris, vec![identity?.into()]].concat();
        let metadata = ClientMetadata {
            client_id: Some(join_path(&documents?, &format!("/{issuer}.json"))?.into()),
            client_uri: Some(self.public_url.to_string()),
            redirect_uris,
            ..metadata
        };
        serde_json::to_string(&metadata).ok()
    }
}

/// The page for an unidentified user.
fn denied(denial: &Denial) -> Page {
    let status = match denial {
        Denial::Missing | Denial::Invalid(_) | Denial::InvalidProof(_) => StatusCode::UNAUTHORIZED,
        Denial::Malformed(_) => StatusCode::BAD_REQUEST,
        Denial::Forbidden(_) => StatusCode::FORBIDDEN,
        Denial::Throttled { .. } => StatusCode::TOO_MANY_REQUESTS,
        Denial::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    let text = format!("This gateway does not know you: {denial}.");
    Page::refusal(status, "You are not signed in to this gateway", &text)
}

/// The page for a failed sign-in.
fn not_signed_in(error: &SignInError) -> Page {
    let status = match error {
        SignInError::NotUsed(_)
        | SignInError::NotIdentified(_)
        | SignInError::Refused(_)
        | SignInError::OfOtherServer { .. }
        | SignInError::NotPermitted => StatusCode::FORBIDDEN,
        SignInError::NoServer => StatusCode::NOT_FOUND,
        SignInError::NotRecorded => StatusCode::SERVICE_UNAVAILABLE,
        SignInError::NoClient { .. } | SignInError::Impossible(_) | SignInError::Failed { .. } => {
            StatusCode::BAD_GATEWAY
        }
    };
    Page::refusal(
        status,
        "You are not signed in",
        &sentence(&error.to_string()),
    )
}

/// The answer, or the page for its error.
fn answer_or_page(outcome: Result<Response<String>, SignInError>) -> Response<String> {
    outcome.unwrap_or_else(|error| not_signed_in(&error).answer())
}

/// A text as a sentence.
fn sentence(text: &str) -> String {
    let mut rest = text.chars();
    let first: String = rest
        .next()
        .into_iter()
        .flat_map(char::to_uppercase)
        .collect();
    format!("{first}{}.", rest.as_str())
}

/// Decides who may sign in to a server, or deposit a key for it. Pages ask this and never decide
/// themselves.
///
/// A trait because its implementation depends on this crate.
pub trait SignInRules: fmt::Debug + Send + Sync {
    /// A number that differs between different rules.
    fn number(&self) -> u64;

    /// Whether a client with this address of its browser may sign in to a server.
    fn permits(&self, identity: &Arc<Identity>, address: Option<IpAddr>, server: &str) -> bool;
}

#[cfg(test)]
mod tests;
