//! A minimal browser for signing in. It keeps cookies, follows redirects on request, and submits a
//! page's forms with the headers of a browser.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::raw_client::Connection;

/// A browser. Its cookies belong to hosts, whatever the port.
#[derive(Default)]
pub struct Browser {
    cookies: BTreeMap<(String, String), String>,
}

/// The response at an address.
#[derive(Debug)]
pub struct Page {
    /// The address.
    pub url: String,
    /// The status.
    pub status: u16,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The text.
    pub text: String,
}

impl Page {
    /// The first value of this header, whose name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.as_str())
    }

    /// The target of its redirect.
    pub fn location(&self) -> String {
        self.header("location")
            .unwrap_or_else(|| panic!("no redirect: {self:?}"))
            .to_owned()
    }

    /// The names and values of the hidden fields in its first form.
    pub fn hidden(&self) -> Vec<(String, String)> {
        let form = self
            .text
            .split("<form")
            .nth(1)
            .unwrap_or_else(|| panic!("no form: {self:?}"));
        let form = form.split("</form>").next().unwrap();
        let inputs = form.split("<input type=\"hidden\" ").skip(1);
        inputs
            .map(|input| (attribute(input, "name"), attribute(input, "value")))
            .collect()
    }
}

fn attribute(tag: &str, name: &str) -> String {
    let text = tag
        .split(&format!("{name}=\""))
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    text.replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

impl Browser {
    /// The names of its cookies.
    pub fn cookie_names(&self) -> Vec<String> {
        self.cookies.keys().map(|(_, name)| name.clone()).collect()
    }

    /// Copies a cookie of another browser.
    pub fn steal(&mut self, from: &Self, name: &str) {
        let stolen = from.cookies.iter().filter(|((_, of), _)| of == name);
        self.cookies
            .extend(stolen.map(|(place, value)| (place.clone(), value.clone())));
    }

    /// Opens an address through a link on another site.
    pub async fn open(&mut self, url: &str) -> Page {
        self.request(
            "GET",
            url,
            &[
                ("Sec-Fetch-Site", "cross-site"),
                ("Sec-Fetch-Mode", "navigate"),
            ],
            "",
        )
        .await
    }

    /// Submits the first form of a page, with these fields besides its hidden ones.
    pub async fn submit(&mut self, page: &Page, fields: &[(&str, &str)]) -> Page {
        let hidden = page.hidden();
        let own = hidden
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let all: Vec<_> = own.chain(fields.iter().copied()).collect();
        self.post(&page.url, &origin(&page.url), &all).await
    }

    /// Submits a form from a page of this origin.
    pub async fn post(&mut self, url: &str, page_origin: &str, fields: &[(&str, &str)]) -> Page {
        let pairs: Vec<_> = fields
            .iter()
            .map(|(name, value)| format!("{}={}", encoded(name), encoded(value)))
            .collect();
        let site = if origin(url) == page_origin {
            "same-origin"
        } else {
            "cross-site"
        };
        let kind = ("Content-Type", "application/x-www-form-urlencoded");
        self.request(
            "POST",
            url,
            &[kind, ("Origin", page_origin), ("Sec-Fetch-Site", site)],
            &pairs.join("&"),
        )
        .await
    }

    /// Follows redirects from a page to the last one.
    pub async fn follow(&mut self, page: Page) -> Page {
        let mut page = page;
        while (300..400).contains(&page.status) {
            page = self.open(&page.location()).await;
        }
        page
    }

    /// Makes a request with these headers and the cookies of its host.
    pub async fn request(
        &mut self,
        method: &str,
        url: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Page {
        let (address, host, path) = parts(url);
        let own = self.cookies.iter().filter(|((of, _), _)| *of == host);
        let cookies: Vec<_> = own
            .map(|((_, name), value)| format!("{name}={value}"))
            .collect();
        let cookies = cookies.join("; ");
        let mut headers = headers.to_vec();
        if !cookies.is_empty() {
            headers.push(("Cookie", &cookies));
        }
        let mut connection = Connection::open(address).await;
        connection
            .request(method, &path, &headers, body.as_bytes())
            .await;
        let mut response = connection.response().await;
        let text = response.text().await;
        for (_, cookie) in response
            .headers
            .iter()
            .filter(|(name, _)| name == "set-cookie")
        {
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            let place = (host.clone(), name.to_owned());
            match cookie.contains("Max-Age=0") {
                true => self.cookies.remove(&place),
                false => self.cookies.insert(place, value.to_owned()),
            };
        }
        Page {
            url: url.to_owned(),
            status: response.status,
            headers: response.headers.clone(),
            text,
        }
    }
}

/// Scheme, host and port of a URL.
pub fn origin(url: &str) -> String {
    url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/")
}

/// The address, the host and the path of a URL on this machine; the URL contains the port.
fn parts(url: &str) -> (SocketAddr, String, String) {
    let rest = url
        .strip_prefix("http://")
        .unwrap_or_else(|| panic!("not http: {url}"));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (host, port) = authority.rsplit_once(':').unwrap();
    (
        SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap())),
        host.to_owned(),
        format!("/{path}"),
    )
}

fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| {
            if plain(byte) {
                char::from(byte).to_string()
            } else {
                format!("%{byte:02X}")
            }
        })
        .collect()
}
