//! Who may talk to the listener at all: `Host` and `Origin`, which keep a web page that a browser
//! shows from reaching a server on its user's machine (DNS rebinding).
//!
//! Source: 2025-11-25 basic/transports, Security Warning; 2026-07-28 streamable-http, Security &
//! Endpoint. Must not know: what is served behind it.

use std::net::IpAddr;

use http::{HeaderValue, StatusCode, Uri};

use super::fields::Fields;
use super::reply::Refusal;
use crate::settings::FrontendSettings;

const ANY: &str = "*";

/// The hosts and origins that are answered.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    any_host: bool,
    hosts: Vec<AllowedHost>,
    any_origin: bool,
    origins: Vec<String>,
}

/// A host that clients may use besides loopback.
#[derive(Clone, Debug)]
struct AllowedHost {
    authority: Authority,
    /// The same, as it was written.
    written: String,
}

impl Guard {
    /// Answers loopback hosts and origins, and those that `settings` allow.
    pub(crate) fn new(settings: &FrontendSettings) -> Self {
        let allowed = |host: &String| Some(AllowedHost { authority: Authority::parse(host)?, written: host.clone() });
        Self {
            any_host: settings.allowed_hosts.iter().any(|host| host == ANY),
            hosts: settings.allowed_hosts.iter().filter_map(allowed).collect(),
            any_origin: settings.allowed_origins.iter().any(|origin| origin == ANY),
            origins: settings.allowed_origins.iter().map(|origin| normalized(origin)).collect(),
        }
    }

    /// Checks a request that arrived at the address `local`; returns its origin, if it names one.
    pub(crate) fn admit<'a>(
        &self,
        target: &Uri,
        fields: &Fields<'a>,
        local: Option<IpAddr>,
    ) -> Result<Option<&'a HeaderValue>, Box<Refusal>> {
        self.host(target, fields, local)?;
        self.origin(fields)
    }

    fn host(&self, target: &Uri, fields: &Fields<'_>, local: Option<IpAddr>) -> Result<(), Box<Refusal>> {
        let bad = |message: &str| Refusal::invalid(StatusCode::BAD_REQUEST, message);
        // HTTP/2 has `:authority` instead, and a request line with a whole URI outranks `Host`.
        let target = target.authority().map(http::uri::Authority::as_str);
        let header = fields.host.only().map_err(|()| bad("more than one \"Host\", or an unreadable one"))?;
        let named = [target, header.map(|(_, text)| text)];
        if named.iter().all(Option::is_none) {
            return Err(bad("\"Host\" is missing"));
        }
        for text in named.into_iter().flatten() {
            if self.allows_as_written(text) {
                continue;
            }
            let host = Authority::parse(text).ok_or_else(|| bad("\"Host\" is malformed"))?;
            if !self.allows_host(&host, local) {
                let message = "this \"Host\" is not served here; `allowedHosts` lists the names clients may use";
                return Err(Refusal::invalid(StatusCode::FORBIDDEN, message));
            }
        }
        Ok(())
    }

    /// Whether a host is allowed, seen without a look at what it means: most are written the usual way.
    fn allows_as_written(&self, text: &str) -> bool {
        is_usual_loopback(text) || self.hosts.iter().any(|host| host.written == text)
    }

    fn allows_host(&self, named: &Authority, local: Option<IpAddr>) -> bool {
        self.any_host
            || named.host.is_loopback()
            // An address as such cannot have been rebound.
            || local.is_some_and(|local| named.host == Host::Address(local.to_canonical()))
            || self.hosts.iter().any(|AllowedHost { authority, .. }| {
                authority.host == named.host && (authority.port.is_none() || authority.port == named.port)
            })
    }

    fn origin<'a>(&self, fields: &Fields<'a>) -> Result<Option<&'a HeaderValue>, Box<Refusal>> {
        let forbidden = || {
            let message = "this \"Origin\" is not allowed here; `allowedOrigins` lists those that are";
            Refusal::invalid(StatusCode::FORBIDDEN, message)
        };
        let Some((value, text)) = fields.origin.only().map_err(|()| forbidden())? else { return Ok(None) };
        if self.allows_origin(text) { Ok(Some(value)) } else { Err(forbidden()) }
    }

    fn allows_origin(&self, origin: &str) -> bool {
        let loopback = || {
            let (scheme, authority) = origin.split_once("://")?;
            let is_web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
            Some(is_web && Authority::parse(authority)?.host.is_loopback())
        };
        self.any_origin || loopback() == Some(true) || self.origins.contains(&normalized(origin))
    }
}

/// Whether this is a loopback host as most clients write it, without a port or with one.
fn is_usual_loopback(text: &str) -> bool {
    let port = ["127.0.0.1", "localhost", "[::1]"].iter().find_map(|host| text.strip_prefix(host));
    port.is_some_and(|port| match port.as_bytes() {
        [] => true,
        // Nothing that could be more than a port can be.
        [b':', digits @ ..] => {
            digits.iter().all(u8::is_ascii_digit)
                && (digits.len() < 5 || digits.len() == 5 && digits.first().is_some_and(|first| *first < b'6'))
        }
        _ => false,
    })
}

/// An origin in the one way of writing it: lower case, without the port its scheme implies.
fn normalized(origin: &str) -> String {
    let lower = origin.trim_end_matches('/').to_ascii_lowercase();
    let implied = match lower.split_once("://") {
        Some(("http", _)) => ":80",
        Some(("https", _)) => ":443",
        _ => return lower,
    };
    lower.strip_suffix(implied).map(str::to_owned).unwrap_or(lower)
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Authority {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    /// In lower case, without the dot that ends a full name.
    Name(String),
}

impl Authority {
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (inner, port) = rest.split_once(']')?;
                (Host::Address(IpAddr::V6(inner.parse().ok()?).to_canonical()), port)
            }
            None => {
                let (name, port) = text.split_at(text.find(':').unwrap_or(text.len()));
                (Host::named(name)?, port)
            }
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => None,
            Some("") => None,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits.parse().ok()?),
            _ => return None,
        };
        Some(Self { host, port })
    }
}

impl Host {
    fn named(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let is_name_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        (!name.is_empty() && name.bytes().all(is_name_byte)).then_some(Self::Name(name))
    }

    fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => name == "localhost",
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use proptest::prelude::*;

    use super::*;

    fn guard(hosts: &[&str], origins: &[&str]) -> Guard {
        Guard::new(&FrontendSettings {
            allowed_hosts: hosts.iter().map(ToString::to_string).collect(),
            allowed_origins: origins.iter().map(ToString::to_string).collect(),
            ..FrontendSettings::default()
        })
    }

    fn admit(guard: &Guard, uri: &str, headers: &[(&str, &str)]) -> Result<Option<HeaderValue>, StatusCode> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let local = Some("192.0.2.7".parse().unwrap());
        let admitted = guard.admit(&head.uri, &Fields::of(&head.headers), local);
        admitted.map(Option::<&HeaderValue>::cloned).map_err(|refusal| refusal.into_response().status())
    }

    #[test]
    fn hosts() {
        let strict = guard(&[], &[]);
        for host in [
            "localhost",
            "LOCALHOST.:8080",
            "127.0.0.1",
            "127.8.9.1:1",
            "[::1]:8080",
            "[::ffff:127.0.0.1]",
            "192.0.2.7:80",
        ] {
            assert_eq!(admit(&strict, "/mcp", &[("host", host)]), Ok(None), "{host}");
        }
        for host in
            ["evil.example.com", "localhost.evil.com", "127.0.0.1.nip.io", "0.0.0.0", "192.0.2.8", "[::2]", "127.1"]
        {
            assert_eq!(admit(&strict, "/mcp", &[("host", host)]), Err(StatusCode::FORBIDDEN), "{host}");
        }
        for host in ["", "a b", "user@localhost", "localhost:x", "localhost:99999", "[::1", "[::1]x", "localhost:1:2"] {
            assert_eq!(admit(&strict, "/mcp", &[("host", host)]), Err(StatusCode::BAD_REQUEST), "{host}");
        }
        assert_eq!(admit(&strict, "/mcp", &[]), Err(StatusCode::BAD_REQUEST));
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(admit(&strict, "/mcp", &twice), Err(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn usual_hosts_are_allowed_as_written() {
        let open = guard(&["mcp.example.com:8443", "not a host"], &[]);
        for usual in ["localhost", "127.0.0.1:", "127.0.0.1:8080", "localhost:59999", "[::1]:1", "mcp.example.com:8443"]
        {
            assert!(open.allows_as_written(usual), "{usual}");
        }
        for unusual in ["", "LOCALHOST", "127.0.0.1:60000", "127.0.0.1:99999", "localhost:x", "[::1]x", "not a host"] {
            assert!(!open.allows_as_written(unusual), "{unusual}");
        }
    }

    #[test]
    fn the_target_counts_as_much_as_the_header() {
        let strict = guard(&[], &[]);
        assert_eq!(admit(&strict, "http://localhost:1/mcp", &[]), Ok(None));
        let evil = admit(&strict, "http://evil.example.com/mcp", &[("host", "localhost")]);
        assert_eq!(evil, Err(StatusCode::FORBIDDEN));
        let evil = admit(&strict, "http://localhost/mcp", &[("host", "evil.example.com")]);
        assert_eq!(evil, Err(StatusCode::FORBIDDEN));
    }

    #[test]
    fn allowed_hosts_with_and_without_a_port() {
        let open = guard(&["mcp.example.com", "other.example.com:8443"], &[]);
        assert_eq!(admit(&open, "/", &[("host", "MCP.example.com:9")]), Ok(None));
        assert_eq!(admit(&open, "/", &[("host", "other.example.com:8443")]), Ok(None));
        assert_eq!(admit(&open, "/", &[("host", "other.example.com")]), Err(StatusCode::FORBIDDEN));
        assert_eq!(admit(&guard(&["*"], &[]), "/", &[("host", "anything.example")]), Ok(None));
    }

    #[test]
    fn origins() {
        let host = ("host", "localhost");
        let listed = guard(&[], &["https://app.example.com", "vscode-webview://panel", "http://plain.example:8080"]);
        for origin in [
            "http://localhost:3000",
            "https://127.0.0.1",
            "http://[::1]:5",
            "https://app.example.com",
            "HTTPS://APP.example.com:443",
            "vscode-webview://panel",
            "http://plain.example:8080",
        ] {
            let origin_value = admit(&listed, "/", &[host, ("origin", origin)]).unwrap().unwrap();
            assert_eq!(origin_value, origin);
        }
        for origin in [
            "null",
            "",
            "http://evil.example.com",
            "http://app.example.com",
            "https://app.example.com:444",
            "https://app.example.com.evil.com",
            "http://localhost.evil.com",
            "file://localhost",
            "http://plain.example",
        ] {
            let refused = admit(&listed, "/", &[host, ("origin", origin)]);
            assert_eq!(refused, Err(StatusCode::FORBIDDEN), "{origin}");
        }
        let twice = [host, ("origin", "http://localhost"), ("origin", "http://localhost")];
        assert_eq!(admit(&listed, "/", &twice), Err(StatusCode::FORBIDDEN));
        let any = guard(&[], &["*"]);
        assert!(admit(&any, "/", &[host, ("origin", "https://anything.example")]).is_ok());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "\\PC{0,40}") {
            let _ = Authority::parse(&text);
            let _ = normalized(&text);
        }

        #[test]
        fn what_is_allowed_as_written_is_allowed_when_looked_at(
            host in "127\\.0\\.0\\.1|localhost|\\[::1\\]|mcp\\.example\\.com|[0-9a-z.:\\[\\]]{0,12}",
            port in "|:[0-9]{0,6}|\\PC{0,4}",
        ) {
            let text = format!("{host}{port}");
            for guard in [guard(&[], &[]), guard(&["mcp.example.com", "MCP.example.com:80", "a b", "*"], &[])] {
                let looked_at = Authority::parse(&text).is_some_and(|host| guard.allows_host(&host, None));
                prop_assert!(looked_at || !guard.allows_as_written(&text), "{text}");
            }
        }
    }
}
