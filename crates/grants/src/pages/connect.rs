//! The page behind a link, and the page to which the authorization server sends the browser back.

use std::sync::Arc;
use std::time::SystemTime;

use fanlight_canonical::identity::Identity;
use fanlight_credentials::Denial;
use fanlight_protocol::digest::{sha256, sha256_hex};
use http::{Response, StatusCode};

use super::html::{Page, redirect};
use super::{SignInPages, Visit, answer_or_page, denied, not_signed_in};
use crate::error::{SignInError, unsealed, unusable};
use crate::links::Link;
use crate::oauth::CallbackParameters;
use crate::record::BegunSignIn;
use crate::{Begun, Method, Offer, Owner, UserAccess};

/// The purpose of the sealed user in the `state` of a pending sign-in.
pub(super) const BEGUN: &[u8] = b"user of a sign-in that has begun";
/// The length limit of a `state`. Principals' names are shorter.
const LONGEST_STATE: usize = 8 << 10;

/// The reason for an answer at another issuer's redirect URI (RFC 9700, 4.4.2.2).
pub(super) const ELSEWHERE: &str =
    "the browser came back to another place than the one for this authorization server";

/// The button with which a user identifies themselves.
pub(super) const IDENTIFY: &str = "identify";

/// The request to a user.
enum Asked {
    /// Sign in at the server.
    SignIn(Box<Offer>),
    /// Deposit a key.
    Key {
        /// The name of the server.
        server: String,
    },
    /// Sign in at the identity provider, whose tokens are exchanged for the server's tokens.
    Identity {
        /// The name of the server.
        server: String,
        /// The issuer of the identity provider.
        issuer: String,
    },
}

impl Asked {
    /// A digest of everything that a user sees of a request.
    fn digest(&self) -> Vec<u8> {
        match self {
            Self::SignIn(offer) => offer.digest(),
            Self::Key { server } => server.clone().into_bytes(),
            Self::Identity { server, issuer } => format!("{server}\n{issuer}").into_bytes(),
        }
    }
}

impl Visit<'_> {
    /// Shows the page behind a link.
    pub(super) async fn show_offer(&self, handle: &str) -> Response<String> {
        let (link, asked) = match self.open_link(handle).await {
            Ok(found) => found,
            Err(page) => return page.answer(),
        };
        let user = match self.user_of(&link, None).await {
            Ok(user) => Some(user),
            Err(Denial::Missing | Denial::Invalid(_)) => None,
            Err(denial) => return denied(&denial).answer(),
        };
        if user
            .as_ref()
            .is_some_and(|user| !self.may_sign_in(user, link.owner.server()))
        {
            return self.barred(&link.owner);
        }
        let token = self
            .browser
            .form_token(&self.pages.seal, handle, &asked.digest())
            .unwrap_or_default();
        let provider = self
            .pages
            .grants
            .identity_provider_of(link.owner.principal());
        let shown_by = match (&user, &provider) {
            (Some(user), _) if !matches!(asked, Asked::Identity { .. }) => ShownBy::Known(user),
            (_, Some(provider)) => ShownBy::SigningIn(provider.name()),
            (_, None) => ShownBy::Credential,
        };
        page_of(&asked, shown_by, &token).answer()
    }

    /// Does what the user agreed to.
    pub(super) async fn accept_offer(&self, handle: &str) -> Response<String> {
        let (link, asked) = match self.open_link(handle).await {
            Ok(found) => found,
            Err(page) => return page.answer(),
        };
        let fields = self.fields();
        let token = fields.get("token").unwrap_or_default();
        if !self
            .browser
            .has_been_shown(&self.pages.seal, handle, &asked.digest(), token)
        {
            let text = "This browser has not shown the request that you agreed to, or the request \
                        has changed since. Open the link again.";
            return Page::refusal(StatusCode::FORBIDDEN, "Nothing has been done", text).answer();
        }
        let provider = self
            .pages
            .grants
            .identity_provider_of(link.owner.principal());
        if let Some(provider) = provider.filter(|_| fields.get("action") == Some(IDENTIFY)) {
            let path = self.request.head.uri.path();
            let kept_for = Some(&link.owner).filter(|_| matches!(asked, Asked::Identity { .. }));
            return answer_or_page(
                self.begin_identifying(provider.name(), path, kept_for)
                    .await,
            );
        }
        let user = match self.user_of(&link, fields.get("credential")).await {
            Ok(user) => user,
            Err(denial) => return denied(&denial).answer(),
        };
        if !self.may_sign_in(&user, link.owner.server()) {
            return self.barred(&link.owner);
        }
        answer_or_page(match asked {
            Asked::SignIn(offer) => self.begin(&link, *offer).await,
            Asked::Key { server } => self.deposit(&link, &server, fields.get("key")).await,
            Asked::Identity { .. } => Err(SignInError::NotUsed("sign in at the identity provider")),
        })
    }

    async fn begin(&self, link: &Link, offer: Offer) -> Result<Response<String>, SignInError> {
        let grants = &self.pages.grants;
        let callback = self.callback().ok_or_else(unusable)?;
        let principal = link.owner.principal();
        let Begun { mut record, .. } = offer
            .begin(grants, principal, &callback, &self.browser_digest())
            .await?;
        record.rules = self.pages.rules.number();
        // The record belongs to its user, so that one user's pending sign-ins cannot displace
        // another's.
        let user = self
            .pages
            .seal
            .seal_for(principal, BEGUN)
            .ok_or_else(unsealed)?;
        record.request = record.request.with_state_for(&user);
        let place = self
            .pages
            .place_of(record.request.state.expose())
            .ok_or_else(unsealed)?;
        // Stored only now: without consent, nothing is continued.
        grants.store().put(&place, &record).await?;
        // Calls that arrive meanwhile wait for the end of the sign-in.
        self.access(&link.owner)
            .iter()
            .for_each(UserAccess::begin_sign_in);
        Ok(redirect(&record.request.url))
    }

    async fn deposit(
        &self,
        link: &Link,
        server: &str,
        key: Option<&str>,
    ) -> Result<Response<String>, SignInError> {
        let key = key.map(str::trim).filter(|key| !key.is_empty());
        let key = key.ok_or(SignInError::NotUsed("there is no key in the form"))?;
        if key.contains(char::is_control) {
            return Err(SignInError::NotUsed(
                "the key contains a line break or another control character; copy it again, without its surroundings",
            ));
        }
        self.pages.grants.keep_key(&link.owner, key).await?;
        Ok(done(&format!("Your key for {server} is stored")))
    }

    /// Handles the browser's return from the authorization server.
    pub(super) async fn come_back(&self) -> Response<String> {
        match self.finish().await {
            Ok(server) => done(&format!("You are signed in to {server}")),
            Err(error) => not_signed_in(&error).answer(),
        }
    }

    async fn finish(&self) -> Result<String, SignInError> {
        let query = self.request.head.uri.query().unwrap_or_default();
        let unknown = SignInError::NotUsed(
            "this sign-in did not begin here, is over, or took too long; start it again",
        );
        let Some(parameters) = CallbackParameters::from_query(query) else {
            return Err(unknown);
        };
        let Some(place) = parameters
            .state()
            .and_then(|state| self.pages.place_of(state))
        else {
            return Err(unknown);
        };
        let grants = &self.pages.grants;
        // Whoever brings it, it can be used only once.
        let begun = grants.store().take::<BegunSignIn>(&place).await?;
        let Some(record) = begun else {
            return Err(unknown);
        };
        let owner = Owner::new(&record.principal, &record.server);
        let refused = if SystemTime::now() >= record.expires {
            Some(unknown)
        } else if record.browser != self.browser_digest() {
            Some(SignInError::NotUsed(
                "this sign-in began in another browser",
            ))
        } else if !self.is_redirect_of(&record.request) {
            Some(SignInError::NotUsed(ELSEWHERE))
        } else if record.rules != self.pages.rules.number() {
            let why =
                "the policy of this gateway has changed since this sign-in began; start it again";
            Some(SignInError::NotUsed(why))
        } else {
            None
        };
        let outcome = match refused {
            Some(error) => {
                grants.not_signed_in(&owner, &error);
                Err(error)
            }
            None => {
                Begun {
                    location: record.request.url.clone(),
                    record,
                }
                .finish(grants, parameters)
                .await
            }
        };
        self.access(&owner).iter().for_each(UserAccess::end_sign_in);
        outcome
    }

    /// The access of the user that a sign-in is for.
    pub(super) fn access(&self, owner: &Owner) -> Option<UserAccess> {
        let kept = self.pages.grants.record_owner(owner);
        self.pages
            .grants
            .user_access(kept.principal(), kept.server())
    }

    /// Reads a link, and finds out the server's current requirements.
    async fn open_link(&self, handle: &str) -> Result<(Link, Asked), Page> {
        let Some(link) = self.pages.links.open(handle) else {
            let text = "It is too old, or incomplete. Repeat the request in your client to get a new link.";
            return Err(Page::refusal(
                StatusCode::NOT_FOUND,
                "This link is not valid",
                text,
            ));
        };
        let name = link.owner.server();
        let server = self
            .pages
            .grants
            .server(name)
            .ok_or_else(|| not_signed_in(&SignInError::NoServer))?;
        let asked = match &server.settings.method {
            Method::Key { .. } => Asked::Key {
                server: name.to_owned(),
            },
            Method::Identity(_) => return Err(not_signed_in(&SignInError::NoServer)),
            Method::Exchange(settings) => {
                let provider = self
                    .pages
                    .grants
                    .exchange_provider(link.owner.principal(), settings);
                let provider = provider.ok_or_else(|| not_signed_in(&SignInError::NoServer))?;
                Asked::Identity {
                    server: name.to_owned(),
                    issuer: provider.name().to_owned(),
                }
            }
            Method::SignIn(_) => {
                let offer = Offer::ask(&self.pages.grants, name, link.wanted.as_ref()).await;
                Asked::SignIn(Box::new(offer.map_err(|error| not_signed_in(&error))?))
            }
        };
        Ok((link, asked))
    }

    /// The browser's user, if the link is theirs.
    async fn user_of(
        &self,
        link: &Link,
        credential: Option<&str>,
    ) -> Result<Arc<Identity>, Denial> {
        let user = self.user(credential).await?;
        if user.principal.to_bytes() == link.owner.principal() {
            return Ok(user);
        }
        let other = Owner::new(&user.principal.to_bytes(), link.owner.server());
        self.pages.grants.not_signed_in(
            &other,
            &SignInError::NotUsed("the link was made for another user"),
        );
        Err(Denial::Invalid(
            "this link was made for another user".into(),
        ))
    }

    /// The digest that identifies the browser in the record of a sign-in.
    pub(super) fn browser_digest(&self) -> Vec<u8> {
        sha256([self.browser.id()]).to_vec()
    }
}

impl SignInPages {
    /// The place of a pending sign-in: a record of the user, whom the `state` names. Its name is a
    /// digest of the `state`, which only the browser and the authorization server know. `None` if
    /// the `state` was not made here.
    pub(super) fn place_of(&self, state: &str) -> Option<Owner> {
        let (_, user) = state
            .split_once('.')
            .filter(|_| state.len() <= LONGEST_STATE)?;
        let principal = self.seal.open_for(user, BEGUN)?;
        Some(Owner::new(&principal, &sha256_hex(state)))
    }
}

/// The way in which the browser's user proves that a link is theirs.
enum ShownBy<'a> {
    /// The user is already known.
    Known(&'a Identity),
    /// The user signs in at the identity provider with this issuer.
    SigningIn(&'a str),
    /// The user pastes a key or a token into the form.
    Credential,
}

fn page_of(asked: &Asked, shown_by: ShownBy<'_>, token: &str) -> Page {
    let (mut page, action) = match asked {
        Asked::SignIn(offer) => (page_of_offer(offer), "Continue and sign in"),
        Asked::Key { server } => {
            let mut page = Page::new(&format!("Store your key for {server}"));
            let text = "The gateway stores it encrypted, and uses it only for your own requests to \
                        this server.";
            page.facts([("server", server.clone())]).paragraph(text);
            (page, "Keep this key")
        }
        Asked::Identity { server, issuer } => (page_of_identity(server, issuer), ""),
    };
    match shown_by {
        ShownBy::Known(user) => {
            page.paragraph(&format!("This gateway knows you as {}.", user.name))
        }
        ShownBy::SigningIn(issuer) => {
            page.paragraph("Sign in to prove that the request is yours.");
            page.form(token)
                .button(IDENTIFY, &format!("Sign in at {issuer}"))
                .end();
            return page;
        }
        ShownBy::Credential => &mut page,
    };
    let mut form = page.form(token);
    if matches!(shown_by, ShownBy::Credential) {
        form.secret(
            "credential",
            "Your key or access token for this gateway, to prove that the request is yours",
        );
    }
    if matches!(asked, Asked::Key { .. }) {
        form.secret("key", "Your key for the server");
    }
    form.button("accept", action).end();
    page.paragraph("If you did not expect this request, close this page.");
    page
}

fn page_of_offer(offer: &Offer) -> Page {
    let mut page = Page::new(&format!("Sign in to {}", offer.server()));
    let scopes = offer
        .scopes()
        .map(ToString::to_string)
        .filter(|scopes| !scopes.is_empty());
    let scopes = scopes.unwrap_or_else(|| "the authorization server decides".to_owned());
    page.paragraph("A program that uses this gateway on your behalf wants to use a server as you.");
    let host = offer.url().host_str().unwrap_or_default();
    page.facts([
        // Path and query may hold a secret, and anybody with the link sees the page.
        ("server", format!("{} ({})", offer.server(), host)),
        ("permissions (scopes)", scopes),
        ("where you sign in", offer.issuer().to_owned()),
    ]);
    page
}

fn page_of_identity(server: &str, issuer: &str) -> Page {
    let mut page = Page::new(&format!("Sign in to {server}"));
    page.paragraph("A program that uses this gateway on your behalf wants to use a server as you.");
    page.facts([
        ("server", server.to_owned()),
        ("where you sign in", issuer.to_owned()),
    ]);
    page.paragraph(
        "The gateway stores the resulting tokens encrypted, and exchanges them for tokens for this server.",
    );
    page
}

pub(super) fn done(title: &str) -> Response<String> {
    let mut page = Page::new(title);
    page.paragraph("Go back to your client. You can close this page.");
    page.answer()
}
