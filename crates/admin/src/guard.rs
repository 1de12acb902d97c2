//! What keeps a page of another site, which a browser shows, from using this listener: the `Host`
//! that a request names (DNS rebinding), its `Origin`, and for requests that do something the JSON
//! content type, which no form of another site can send.
//!
//! Must not know: what is served behind it.

use std::net::SocketAddr;

use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, StatusCode};
use std::net::IpAddr;

use crate::reply::{Reply, refused};

const ANY: &str = "*";

/// The hosts that are answered.
pub(crate) struct Guard {
    any_host: bool,
    /// As `host` or `host:port` in lower case.
    hosts: Vec<String>,
}

impl Guard {
    /// Of a listener at `address`. One that other machines reach has a token, which a page of another
    /// site does not have: any name will do there.
    pub(crate) fn new(address: SocketAddr, allowed: &[String]) -> Self {
        let any_host = !address.ip().to_canonical().is_loopback() || allowed.iter().any(|host| host == ANY);
        Self { any_host, hosts: allowed.iter().map(|host| host.to_ascii_lowercase()).collect() }
    }

    /// Whether the host that the request names is one of this listener's.
    pub(crate) fn host(&self, head: &Parts) -> Result<(), Box<Reply>> {
        let named =
            named_host(head).ok_or_else(|| refused(StatusCode::BAD_REQUEST, "\"Host\" is missing or malformed"))?;
        if self.any_host || is_loopback(&named) || self.hosts.iter().any(|host| allows(host, &named)) {
            return Ok(());
        }
        let message = "this \"Host\" is not served here; `allowedHosts` lists the names that may be used";
        Err(refused(StatusCode::FORBIDDEN, message))
    }

    /// Whether the request comes from this listener's own page, or from no page.
    pub(crate) fn origin(&self, head: &Parts) -> Result<(), Box<Reply>> {
        let forbidden = || refused(StatusCode::FORBIDDEN, "requests of pages of another origin are not served here");
        let site = only(&head.headers, HeaderName::from_static("sec-fetch-site")).map_err(|()| forbidden())?;
        if site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
            return Err(forbidden());
        }
        let Some(origin) = only(&head.headers, ORIGIN).map_err(|()| forbidden())? else { return Ok(()) };
        let same = || {
            let (scheme, authority) = origin.split_once("://")?;
            let implied = match scheme {
                "http" => 80,
                "https" => 443,
                _ => return None,
            };
            let (origin, host) = (authority.parse::<Authority>().ok()?, named_host(head)?);
            let port = |of: &Authority| of.port_u16().unwrap_or(implied);
            Some(origin.host().eq_ignore_ascii_case(host.host()) && port(&origin) == port(&host))
        };
        if same() == Some(true) { Ok(()) } else { Err(forbidden()) }
    }

    /// Whether the body of a request is said to be JSON.
    pub(crate) fn json_body(headers: &HeaderMap) -> Result<(), Box<Reply>> {
        let kind = only(headers, CONTENT_TYPE).ok().flatten().unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if kind.eq_ignore_ascii_case("application/json") {
            return Ok(());
        }
        Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "the body must be JSON: `Content-Type: application/json`"))
    }
}

/// The host that a request line with a whole URI names, or `Host`.
fn named_host(head: &Parts) -> Option<Authority> {
    let header = only(&head.headers, HOST).ok()?;
    match (head.uri.authority(), header) {
        (Some(target), None) => Some(target.clone()),
        (None, Some(host)) => plain(host),
        // Two that differ are two readings of one request.
        (Some(target), Some(host)) => plain(host).filter(|host| host == target),
        (None, None) => None,
    }
}

fn plain(host: &str) -> Option<Authority> {
    host.parse().ok().filter(|_| !host.contains('@'))
}

fn is_loopback(named: &Authority) -> bool {
    let host = named.host();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match address.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.trim_end_matches('.').eq_ignore_ascii_case("localhost"),
    }
}

fn allows(allowed: &str, named: &Authority) -> bool {
    let Ok(allowed) = allowed.parse::<Authority>() else { return false };
    allowed.host().eq_ignore_ascii_case(named.host())
        && (allowed.port().is_none() || allowed.port_u16() == named.port_u16())
}

/// The only value of a header, as text; an error if there are several or it is not text.
fn only(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn head(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri("/api/overview");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn guard(address: &str, allowed: &[&str]) -> Guard {
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        Guard::new(address.parse().unwrap(), &allowed)
    }

    #[test]
    fn a_loopback_listener_answers_to_its_own_names() {
        let guard = guard("127.0.0.1:8081", &["admin.example.com", "other.example.com:9"]);
        for host in
            ["localhost:8081", "LOCALHOST.", "127.0.0.1:1", "[::1]:8081", "admin.example.com:7", "other.example.com:9"]
        {
            assert!(guard.host(&head(&[("host", host)])).is_ok(), "{host}");
        }
        for host in ["evil.example.com", "localhost.evil.com", "127.0.0.1.nip.io", "192.0.2.7", "other.example.com"] {
            assert_eq!(guard.host(&head(&[("host", host)])).unwrap_err().status(), StatusCode::FORBIDDEN, "{host}");
        }
        for bad in
            [&[][..], &[("host", "a b")], &[("host", "me@localhost")], &[("host", "localhost"), ("host", "localhost")]]
        {
            assert_eq!(guard.host(&head(bad)).unwrap_err().status(), StatusCode::BAD_REQUEST, "{bad:?}");
        }
    }

    #[test]
    fn where_a_token_is_needed_any_name_will_do() {
        assert!(guard("0.0.0.0:8081", &[]).host(&head(&[("host", "fanlight.svc:8081")])).is_ok());
    }

    #[test]
    fn only_the_listener_s_own_page_is_served() {
        let guard = guard("127.0.0.1:8081", &[]);
        let with = |more: &[(&'static str, &'static str)]| {
            let headers = [&[("host", "localhost:8081")], more].concat();
            guard.origin(&head(&headers)).is_ok()
        };
        assert!(with(&[]));
        assert!(with(&[("origin", "http://localhost:8081")]));
        assert!(with(&[("sec-fetch-site", "same-origin")]));
        assert!(with(&[("sec-fetch-site", "none")]));
        for origin in ["http://localhost:3000", "http://127.0.0.1:8081", "null", "https://evil.example.com", "file://"]
        {
            assert!(!with(&[("origin", origin)]), "{origin}");
        }
        assert!(!with(&[("sec-fetch-site", "cross-site")]));
        assert!(!with(&[("sec-fetch-site", "same-site"), ("origin", "http://localhost:8081")]));
        let behind_tls = head(&[("host", "admin.example.com"), ("origin", "https://admin.example.com")]);
        assert!(guard.origin(&behind_tls).is_ok());
    }

    #[test]
    fn bodies_are_json() {
        let of = |kind| Guard::json_body(&head(&[("content-type", kind)]).headers).is_ok();
        assert!(of("application/json") && of("Application/JSON; charset=utf-8"));
        assert!(!of("text/plain") && !of("application/x-www-form-urlencoded") && !of("application/jsonp") && !of(""));
    }
}
