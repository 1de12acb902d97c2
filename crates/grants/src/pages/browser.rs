//! The browser that makes a request: its cookies and its user.
//!
//! There are three cookies. The first is random and tells browsers apart, so that consent in one is
//! not used in another. The second saves the user from identifying themselves with each form. The
//! third holds the data that a sign-in at an identity provider needs when it returns. The other two
//! are valid only together with the first.

use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fanlight_canonical::{DEFAULT_PATH, Identity, Source};
use fanlight_credentials::{Credentials, Denial, PageRequest, cookies};
use fanlight_protocol::seal::Seal;
use http::HeaderValue;
use http::header::{AUTHORIZATION, FORWARDED, HOST};
use parking_lot::Mutex;
use url::{Host, Url};

use super::SignInPages;

/// A cookie of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cookie {
    /// Identifies the browser.
    Browser,
    /// Identifies the browser's user.
    User,
    /// The sign-in at an identity provider that this browser has begun.
    Attempt,
}

/// The browser behind a request.
pub(super) struct Browser<'a> {
    request: PageRequest<'a>,
    public_url: &'a Url,
    /// The value of the browser's own cookie, which may still have to be set.
    id: String,
    is_new: bool,
    /// The cookies to set with the answer; an empty value removes one.
    given: Mutex<Vec<(Cookie, String)>>,
}

impl<'a> Browser<'a> {
    pub(super) fn new(request: PageRequest<'a>, public_url: &'a Url) -> Option<Self> {
        let mut browser = Self {
            request,
            public_url,
            id: String::new(),
            is_new: false,
            given: Mutex::default(),
        };
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

    /// The secret that only this browser has.
    pub(super) fn id(&self) -> &[u8] {
        self.id.as_bytes()
    }

    /// The browser's user, identified by a key or token in a form, or by the request itself.
    pub(super) async fn user(
        &self,
        pages: &SignInPages,
        credential: Option<&str>,
    ) -> Result<Arc<Identity>, Denial> {
        let mut headers = self.request.head.headers.clone();
        if let Some(credential) = credential {
            let value = HeaderValue::try_from(format!("Bearer {}", credential.trim()));
            headers.insert(
                AUTHORIZATION,
                value.map_err(|_| {
                    Denial::Malformed("this does not have the form of a key".into())
                })?,
            );
        }
        let PageRequest {
            connection, client, ..
        } = self.request;
        let (method, path) = (&self.request.head.method, self.request.head.uri.path());
        let credentials = Credentials {
            method,
            path,
            headers: &headers,
            connection,
            client,
            endpoint: DEFAULT_PATH,
        };
        let identity = pages
            .authenticate
            .authenticate(&credentials)
            .outcome()
            .await?;
        // Without authentication all clients are alike, so only the person at this machine may
        // decide.
        if identity.source == Source::Anonymous && !self.is_local() {
            return Err(Denial::Forbidden(
                "this page can be used only on the gateway's own machine".into(),
            ));
        }
        Ok(identity)
    }

    /// The proof that this browser was shown a form: for one place, and with this content.
    pub(super) fn form_token(&self, seal: &Seal, place: &str, content: &[u8]) -> Option<String> {
        seal.seal_for(content, &self.bound(format!("form {place} ").as_bytes()))
    }

    /// Whether this browser was shown a form.
    pub(super) fn has_been_shown(
        &self,
        seal: &Seal,
        place: &str,
        content: &[u8],
        token: &str,
    ) -> bool {
        let shown = seal.open_for(token, &self.bound(format!("form {place} ").as_bytes()));
        !self.is_new && shown.is_some_and(|shown| shown == content)
    }

    /// The context for sealing data that only this browser may return, for one purpose.
    pub(super) fn bound(&self, purpose: &[u8]) -> Vec<u8> {
        [purpose, self.id()].concat()
    }

    /// Sets a cookie with the answer; an empty value removes it.
    pub(super) fn give(&self, cookie: Cookie, value: String) {
        self.given.lock().push((cookie, value));
    }

    /// The values of `Set-Cookie` for the answer.
    pub(super) fn cookies(self) -> Vec<HeaderValue> {
        let own = self.is_new.then(|| self.setting(Cookie::Browser, &self.id));
        let given = self.given.lock();
        let given = given
            .iter()
            .map(|(cookie, value)| self.setting(*cookie, value));
        own.into_iter()
            .chain(given)
            .filter_map(|text| HeaderValue::try_from(text).ok())
            .collect()
    }

    /// The cookie is sent when an authorization server redirects back here, but not with requests
    /// from other sites' pages.
    fn setting(&self, cookie: Cookie, value: &str) -> String {
        let secure = if self.is_secure() { "; Secure" } else { "" };
        let end = if value.is_empty() { "; Max-Age=0" } else { "" };
        format!(
            "{}={value}; Path={}; HttpOnly; SameSite=Lax{secure}{end}",
            self.name(cookie),
            self.public_url.path()
        )
    }

    /// Browsers send cookies to every port of a host. Over https, the prefix makes them refuse such
    /// a cookie from an unencrypted page and, unless the cookie is for one path, another host.
    fn name(&self, cookie: Cookie) -> String {
        let name = match cookie {
            Cookie::Browser => "fanlight-browser",
            Cookie::User => "fanlight-user",
            Cookie::Attempt => "fanlight-sign-in",
        };
        match self.is_secure() {
            true if self.public_url.path() == "/" => format!("__Host-{name}"),
            true => format!("__Secure-{name}"),
            false => format!(
                "{name}-{}",
                self.public_url.port_or_known_default().unwrap_or_default()
            ),
        }
    }

    fn is_secure(&self) -> bool {
        self.public_url.scheme() == "https"
    }

    /// A cookie of the request; `None` if there are several with its name, of which another page
    /// may have set one.
    pub(super) fn cookie(&self, cookie: Cookie) -> Option<&'a str> {
        let name = self.name(cookie);
        let mut values = cookies(&self.request.head.headers, &name);
        values.next().filter(|_| values.next().is_none())
    }

    /// Whether the request comes from this machine and addresses it directly: not through another
    /// name that resolves here, nor a proxy.
    fn is_local(&self) -> bool {
        let PageRequest {
            head, connection, ..
        } = self.request;
        let is_loopback = |address: Option<IpAddr>| {
            address.is_some_and(|address| address.to_canonical().is_loopback())
        };
        let is_forwarded = head
            .headers
            .keys()
            .any(|name| *name == FORWARDED || name.as_str().starts_with("x-forwarded-"));
        let authority = head.uri.authority().map(ToString::to_string);
        let named = head
            .headers
            .get(HOST)
            .and_then(|host| host.to_str().ok())
            .map(str::to_owned);
        let mut names = [authority, named].into_iter().flatten().peekable();
        is_loopback(connection.local)
            && is_loopback(connection.peer.map(|peer| peer.ip()))
            && !is_forwarded
            && names.peek().is_some()
            && names.all(|name| names_this_machine(&name))
    }
}

fn names_this_machine(authority: &str) -> bool {
    match Url::parse(&format!("http://{authority}/"))
        .ok()
        .and_then(|url| url.host().map(|host| host.to_owned()))
    {
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
        for name in [
            "localhost:8080",
            "127.0.0.1",
            "[::1]:1",
            "a.localhost",
            "LOCALHOST",
        ] {
            assert!(names_this_machine(name), "{name}");
        }
        for name in [
            "localhost.evil.example",
            "evil.example:8080",
            "10.0.0.1",
            "",
            "127.0.0.1.evil.example",
        ] {
            assert!(!names_this_machine(name), "{name}");
        }
    }
}
