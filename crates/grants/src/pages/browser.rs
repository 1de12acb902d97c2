//! The browser that makes a request: its cookies, and who its user is.
//!
//! A random cookie tells browsers apart: what is agreed to in one is not carried on in another. A second one spares a user
//! from showing a key or a token with each form; it is sealed for the first, and worth nothing elsewhere.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fanlight_credentials::{Credentials, Denial, PageRequest};
use fanlight_identity::{Identity, Principal, Source};
use fanlight_protocol::seal::Seal;
use http::HeaderValue;
use http::header::{AUTHORIZATION, COOKIE, FORWARDED, HOST};
use serde::{Deserialize, Serialize};
use url::{Host, Url};

use super::SignInPages;
use crate::store::seconds;

/// How long a user need not show a key or a token again.
const USER_TIME: Duration = Duration::from_secs(600);
/// The longest cookie that browsers keep (RFC 6265, 6.1), less what is written around its value.
const LONGEST_COOKIE: usize = 4_000;

/// A cookie of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cookie {
    /// Tells browsers apart.
    Browser,
    /// Who its user is.
    User,
}

/// A user, as far as it matters here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct User {
    pub(super) principal: Vec<u8>,
    /// For people.
    pub(super) name: String,
    /// The servers at which the user may not sign in.
    barred: Vec<String>,
    /// The number of the rules that say so: by others, the user has to be identified again.
    rules: u64,
    expires: u64,
}

impl User {
    /// Whether the user may sign in at a server.
    pub(super) fn may_sign_in(&self, server: &str) -> bool {
        !self.barred.iter().any(|barred| barred == server)
    }
}

/// The browser behind a request.
pub(super) struct Browser<'a> {
    request: PageRequest<'a>,
    public_url: &'a Url,
    /// The value of its own cookie, which it may have to be given.
    id: String,
    is_new: bool,
}

impl<'a> Browser<'a> {
    pub(super) fn new(request: PageRequest<'a>, public_url: &'a Url) -> Option<Self> {
        let mut browser = Self { request, public_url, id: String::new(), is_new: false };
        match browser.cookie(Cookie::Browser) {
            Some(id) => browser.id = id.to_owned(),
            None => {
                let mut id = [0; 32];
                getrandom::fill(&mut id).ok()?;
                (browser.id, browser.is_new) = (URL_SAFE_NO_PAD.encode(id), true);
            }
        }
        Some(browser)
    }

    /// What only this browser shows.
    pub(super) fn id(&self) -> &[u8] {
        self.id.as_bytes()
    }

    /// Who its user is: by a key or a token in a form, or as the user has shown it before, or as the request shows it.
    pub(super) async fn user(&self, pages: &SignInPages, credential: Option<&str>) -> Result<User, Denial> {
        if credential.is_none()
            && let Some(user) = self.known_user(&pages.seal).filter(|user| user.rules == pages.rules.number())
            && (user.principal != Principal::anonymous().to_bytes() || self.is_local())
        {
            return Ok(user);
        }
        let mut headers = self.request.head.headers.clone();
        if let Some(credential) = credential {
            let value = HeaderValue::try_from(format!("Bearer {}", credential.trim()));
            headers.insert(AUTHORIZATION, value.map_err(|_| Denial::Malformed("this cannot be a key".into()))?);
        }
        let PageRequest { connection, client, .. } = self.request;
        let (method, path) = (&self.request.head.method, self.request.head.uri.path());
        let credentials =
            Credentials { method, path, headers: &headers, connection, client, endpoint: &pages.endpoint };
        let identity = pages.authenticate.authenticate(&credentials).outcome().await?;
        // Every client is alike then, so that nobody but the person at this machine may decide for it.
        if identity.source == Source::Anonymous && !self.is_local() {
            return Err(Denial::Forbidden("this page is for the person at the gateway's own machine".into()));
        }
        Ok(self.identified(pages, &identity))
    }

    fn identified(&self, pages: &SignInPages, identity: &Arc<Identity>) -> User {
        // Before anything is decided by them.
        let rules = pages.rules.number();
        let is_barred = |server: &String| !pages.rules.permits(identity, self.request.client, server);
        User {
            principal: identity.principal.to_bytes(),
            name: identity.name.to_string(),
            barred: pages.grants.servers().into_iter().filter(is_barred).collect(),
            rules,
            expires: seconds(SystemTime::now() + USER_TIME),
        }
    }

    fn known_user(&self, seal: &Seal) -> Option<User> {
        let text = seal.open_for(self.cookie(Cookie::User)?, &self.bound(b"user "))?;
        let user: User = serde_json::from_slice(&text).ok()?;
        (seconds(SystemTime::now()) < user.expires).then_some(user)
    }

    /// The proof that a form was shown to this browser: for one place, and with this content.
    pub(super) fn form_token(&self, seal: &Seal, place: &str, content: &[u8]) -> Option<String> {
        seal.seal_for(content, &self.bound(format!("form {place} ").as_bytes()))
    }

    /// Whether a form was shown to this browser.
    pub(super) fn has_been_shown(&self, seal: &Seal, place: &str, content: &[u8], token: &str) -> bool {
        let shown = seal.open_for(token, &self.bound(format!("form {place} ").as_bytes()));
        !self.is_new && shown.is_some_and(|shown| shown == content)
    }

    fn bound(&self, purpose: &[u8]) -> Vec<u8> {
        [purpose, self.id()].concat()
    }

    /// The values of `Set-Cookie` for an answer.
    pub(super) fn set(&self, seal: &Seal, user: Option<&User>) -> Vec<HeaderValue> {
        let own = self.is_new.then(|| self.setting(Cookie::Browser, &self.id));
        let text = user.and_then(|user| serde_json::to_vec(user).ok());
        let sealed = text.and_then(|text| seal.seal_for(&text, &self.bound(b"user ")));
        // One that no browser keeps is not missed: its user is identified again.
        let sealed = sealed.filter(|sealed| sealed.len() <= LONGEST_COOKIE);
        let user = sealed.map(|sealed| self.setting(Cookie::User, &sealed));
        own.into_iter().chain(user).filter_map(|text| HeaderValue::try_from(text).ok()).collect()
    }

    /// A browser sends it when an authorization server sends it back here, and with no request of another site's page.
    fn setting(&self, cookie: Cookie, value: &str) -> String {
        let secure = if self.is_secure() { "; Secure" } else { "" };
        format!("{}={value}; Path=/; HttpOnly; SameSite=Lax{secure}", self.name(cookie))
    }

    /// A browser sends cookies to every port of a host. Over https the prefix has it refuse one of this name that another host
    /// or an unencrypted page sets.
    fn name(&self, cookie: Cookie) -> String {
        let name = match cookie {
            Cookie::Browser => "fanlight-browser",
            Cookie::User => "fanlight-user",
        };
        match self.is_secure() {
            true => format!("__Host-{name}"),
            false => format!("{name}-{}", self.public_url.port_or_known_default().unwrap_or_default()),
        }
    }

    fn is_secure(&self) -> bool {
        self.public_url.scheme() == "https"
    }

    /// A cookie of the request; `None` if there are several of its name, of which another page may have set one.
    fn cookie(&self, cookie: Cookie) -> Option<&'a str> {
        let name = self.name(cookie);
        let texts = self.request.head.headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let pairs = texts.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let mut values = pairs.filter(|(known, _)| *known == name).map(|(_, value)| value);
        values.next().filter(|_| values.next().is_none())
    }

    /// Whether the request comes from this machine, and names it: no name of another machine that leads here, and no proxy.
    fn is_local(&self) -> bool {
        let PageRequest { head, connection, .. } = self.request;
        let is_loopback = |address: Option<IpAddr>| address.is_some_and(|address| address.to_canonical().is_loopback());
        let is_forwarded =
            head.headers.keys().any(|name| *name == FORWARDED || name.as_str().starts_with("x-forwarded-"));
        let authority = head.uri.authority().map(ToString::to_string);
        let named = head.headers.get(HOST).and_then(|host| host.to_str().ok()).map(str::to_owned);
        let mut names = [authority, named].into_iter().flatten().peekable();
        is_loopback(connection.local)
            && is_loopback(connection.peer.map(|peer| peer.ip()))
            && !is_forwarded
            && names.peek().is_some()
            && names.all(|name| names_this_machine(&name))
    }
}

fn names_this_machine(authority: &str) -> bool {
    match Url::parse(&format!("http://{authority}/")).ok().and_then(|url| url.host().map(|host| host.to_owned())) {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_the_loopback_interface_name_this_machine() {
        for name in ["localhost:8080", "127.0.0.1", "[::1]:1", "a.localhost", "LOCALHOST"] {
            assert!(names_this_machine(name), "{name}");
        }
        for name in ["localhost.evil.example", "evil.example:8080", "10.0.0.1", "", "127.0.0.1.evil.example"] {
            assert!(!names_this_machine(name), "{name}");
        }
    }
}
