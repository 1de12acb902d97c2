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
mod identify;
mod known;
mod spent;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use fanlight_credentials::{Authenticate, Denial, PageRequest, Pages, PendingPage};
use fanlight_fair::{Budget, Part};
use fanlight_protocol::seal::Seal;
use http::{Method, Response, StatusCode};
use url::{Url, form_urlencoded};

use self::browser::Browser;
use self::html::{Page, with_cookies};
use self::identify::CALLBACK as IDENTITY_CALLBACK;
use self::known::KnownUsers;
use self::spent::Spent;
use crate::error::SignInError;
use crate::grants::Grants;
use crate::links::{CONNECT, Links, below};
use crate::oauth::ClientMetadata;
use crate::rules::SignInRules;
use crate::sign_in::{CLIENT_NAME, Callback};
use crate::store::{Owner, StoreError};

/// The path to which authorization servers send browsers back.
const CALLBACK: &str = "/oauth/callback";
/// The path of the page with the user's connections.
const CONNECTIONS: &str = "/connections";
/// The path of Fanlight's metadata as an OAuth client.
const DOCUMENT: &str = "/.well-known/fanlight-client.json";

/// The pages on which users sign in to servers.
pub struct SignInPages {
    grants: Grants,
    links: Arc<Links>,
    authenticate: Arc<dyn Authenticate>,
    rules: Arc<dyn SignInRules>,
    /// The path of the endpoint that keys and tokens have to be valid for.
    endpoint: String,
    seal: Seal,
    known: KnownUsers,
    /// Ended sign-ins at identity providers.
    spent: Spent,
    /// Permits for requests to an identity provider. One address may use as many as it leaves free.
    asking: Budget<Option<IpAddr>>,
}

/// The limit of simultaneous requests to identity providers. There is no option, since one answers
/// in less than a second.
const ASKING: usize = 32;

impl fmt::Debug for SignInPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignInPages")
    }
}

impl SignInPages {
    /// The pages behind `links`. `authenticate` identifies users by their credentials for the
    /// endpoint at `endpoint`; `rules` decides where they may sign in.
    ///
    /// # Errors
    ///
    /// If the store's keys cannot be used.
    pub fn new(
        grants: Grants,
        links: Arc<Links>,
        authenticate: Arc<dyn Authenticate>,
        rules: Arc<dyn SignInRules>,
        endpoint: String,
    ) -> Result<Self, StoreError> {
        let seal = grants.store().seal(b"page for users: ")?;
        let (known, spent) = (KnownUsers::default(), Spent::default());
        let asking = Budget::new(ASKING, Part::AS_MUCH_AS_IT_LEAVES);
        Ok(Self {
            grants,
            links,
            authenticate,
            rules,
            endpoint,
            seal,
            known,
            spent,
            asking,
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
        let path = self.request.head.uri.path();
        match (
            path.strip_prefix(CONNECT),
            path,
            self.request.head.method == Method::POST,
        ) {
            (Some(handle), _, false) => self.show_offer(handle).await,
            (Some(handle), _, true) => self.accept_offer(handle).await,
            (_, CALLBACK, false) => self.come_back().await,
            (_, IDENTITY_CALLBACK, false) => answered(self.end_identifying().await),
            (_, CONNECTIONS, false) => self.show_connections().await,
            (_, CONNECTIONS, true) => self.change_connections().await,
            (_, DOCUMENT, false) => self.document(),
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
        path.starts_with(CONNECT)
            || [CALLBACK, IDENTITY_CALLBACK, CONNECTIONS, DOCUMENT].contains(&path)
    }

    fn answer<'a>(&'a self, request: PageRequest<'a>) -> PendingPage<'a> {
        Box::pin(self.page(request))
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

    /// The URL to which browsers return, and Fanlight's client metadata.
    fn callback(&self) -> Option<Callback> {
        let document = below(self.public_url, DOCUMENT).filter(|url| url.scheme() == "https");
        Some(Callback {
            redirect_uri: below(self.public_url, CALLBACK)?,
            document,
            is_for_once: false,
        })
    }

    /// Fanlight's metadata as an OAuth client (2026-07-28 basic/authorization/client-registration,
    /// Client ID Metadata Documents).
    fn document(&self) -> Response<String> {
        let text = self.callback().and_then(
            |Callback {
                 redirect_uri,
                 document,
                 ..
             }| {
                let metadata = ClientMetadata::of_code_client(CLIENT_NAME, &redirect_uri);
                let (client_id, client_uri) =
                    (Some(document?.into()), Some(self.public_url.to_string()));
                let redirect_uris = [
                    metadata.redirect_uris,
                    vec![below(self.public_url, IDENTITY_CALLBACK)?.into()],
                ]
                .concat();
                let metadata = ClientMetadata {
                    client_id,
                    client_uri,
                    redirect_uris,
                    ..metadata
                };
                serde_json::to_string(&metadata).ok()
            },
        );
        let text = text.map(html::document);
        let why = "Authorization servers read it over https only, and publicUrl is not https.";
        text.unwrap_or_else(|| {
            Page::refusal(StatusCode::NOT_FOUND, "There is no such document", why).answer()
        })
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
        | SignInError::NotPermitted => StatusCode::FORBIDDEN,
        SignInError::NoServer => StatusCode::NOT_FOUND,
        SignInError::NotRecorded => StatusCode::SERVICE_UNAVAILABLE,
        SignInError::NoClient { .. } | SignInError::Failed { .. } => StatusCode::BAD_GATEWAY,
    };
    Page::refusal(
        status,
        "You are not signed in",
        &sentence(&error.to_string()),
    )
}

/// The answer, or the page for its error.
fn answered(outcome: Result<Response<String>, SignInError>) -> Response<String> {
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

#[cfg(test)]
mod tests;
