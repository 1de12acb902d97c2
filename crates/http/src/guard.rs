//! Protects a listener from web pages by checking `Host`, which names a foreign site after DNS
//! rebinding, and `Origin`.
//!
//! Source: 2025-11-25 basic/transports, Security Warning; 2026-07-28 streamable-http, Security &
//! Endpoint.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use fanlight_config::settings::{FOLLOWS_METADATA, split_path};
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};

pub use forwarded::{TrustedProxies, peer_of};

mod forwarded;

const ANY: &str = "*";
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The hosts and origins that a listener serves.
#[derive(Clone, Debug)]
pub struct Guard {
    any_host: bool,
    hosts: Vec<HostPort>,
    origins: Origins,
    public_url: Option<PublicUrl>,
    proxies: TrustedProxies,
}

/// The origins that a listener serves. A request without `Origin` comes from no web page and is
/// served, unless `Sec-Fetch-Site` names another site: browsers send no `Origin` with images and
/// scripts.
#[derive(Clone, Debug)]
pub enum Origins {
    /// Only the listener's own pages: `Origin` must equal `Host`, and `Sec-Fetch-Site` must not
    /// name another site.
    Own,
    /// The listed origins and the listener's own. Other ports of this machine are other origins,
    /// since any user's program may serve a page there. A listed loopback origin includes every
    /// name of the loopback interface, and with the port `*` every port. A single `*` allows all
    /// origins.
    Listed(Vec<String>),
}

/// A [`Guard`] that can be replaced while its listener serves.
#[derive(Clone, Debug)]
pub struct LiveGuard(Arc<ArcSwap<Guard>>);

impl LiveGuard {
    /// Begins with `guard`.
    pub fn new(guard: Guard) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(guard)))
    }

    /// Applies this guard from the next request on.
    pub fn replace(&self, guard: Guard) {
        self.0.store(Arc::new(guard));
    }

    /// The current guard.
    #[must_use]
    pub fn load(&self) -> impl std::ops::Deref<Target = Arc<Guard>> + use<> {
        self.0.load()
    }
}

/// The reason why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The request names no host.
    #[error("\"Host\" is missing")]
    HostMissing,
    /// Several hosts, or a malformed one.
    #[error("\"Host\" is malformed, or there is more than one")]
    HostMalformed,
    /// A host that is not served.
    #[error("this \"Host\" is not served here; `allowedHosts` lists the names clients may use")]
    HostNotAllowed,
    /// An origin that is not allowed.
    #[error("this \"Origin\" is not allowed here; `allowedOrigins` lists those that are")]
    OriginNotAllowed,
    /// A page of another origin, at a listener that serves only its own pages.
    #[error("requests of pages of another origin are not served here")]
    OriginForeign,
}

impl Rejection {
    /// 400 for malformed requests, 403 for forbidden ones.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::HostMissing | Self::HostMalformed => StatusCode::BAD_REQUEST,
            Self::HostNotAllowed | Self::OriginNotAllowed | Self::OriginForeign => {
                StatusCode::FORBIDDEN
            }
        }
    }
}

impl Guard {
    /// Serves loopback hosts and `hosts`. Each is `host` (any port), `host:port`, or `*` for all.
    pub fn new(hosts: &[String], origins: Origins) -> Self {
        let origins = match origins {
            Origins::Own => Origins::Own,
            Origins::Listed(listed) => {
                Origins::Listed(listed.iter().map(|origin| normalized(origin)).collect())
            }
        };
        let any_host = hosts.iter().any(|host| host == ANY);
        let hosts = hosts
            .iter()
            .filter_map(|host| HostPort::parse(host))
            .collect();
        Self {
            any_host,
            hosts,
            origins,
            public_url: None,
            proxies: TrustedProxies::default(),
        }
    }

    /// Permits requests to this host at any port, and pages of this origin.
    #[must_use]
    pub fn with_public_url(mut self, url: Option<PublicUrl>) -> Self {
        self.public_url = url;
        self
    }

    /// Trusts these proxies to name their clients' addresses.
    #[must_use]
    pub fn with_trusted_proxies(mut self, proxies: TrustedProxies) -> Self {
        self.proxies = proxies;
        self
    }

    /// The trusted proxies.
    pub fn trusted_proxies(&self) -> &TrustedProxies {
        &self.proxies
    }

    /// Whether nothing suggests that a proxy forwards requests of other machines: no trusted
    /// proxy, and only hosts of the loopback interface.
    pub fn is_for_this_machine(&self) -> bool {
        let public = self.public_url.as_ref().map(|url| &url.host);
        let mut hosts = self.hosts.iter().map(|named| &named.host).chain(public);
        !self.any_host && self.proxies.0.is_empty() && hosts.all(Host::is_loopback)
    }

    /// The listener's public URL, if known.
    pub fn public_url(&self) -> Option<&PublicUrl> {
        self.public_url.as_ref()
    }

    /// Checks the host that a request names in the authority of its target (`:authority` in
    /// HTTP/2), in `Host`, or in both. Also serves `local`, the address where the request arrived,
    /// since an address cannot be rebound.
    ///
    /// # Errors
    ///
    /// If the host is missing, malformed or not allowed.
    pub fn check_host(
        &self,
        target: &Uri,
        headers: &HeaderMap,
        local: Option<IpAddr>,
    ) -> Result<(), Rejection> {
        let named = named_hosts(target, headers)?;
        if named
            .iter()
            .flatten()
            .all(|host| self.allows_host(host, local))
        {
            return Ok(());
        }
        Err(Rejection::HostNotAllowed)
    }

    /// Checks the origin of a request; returns it if there is one.
    ///
    /// # Errors
    ///
    /// If the origin is not allowed.
    pub fn check_origin<'a>(
        &self,
        target: &Uri,
        headers: &'a HeaderMap,
    ) -> Result<Option<&'a HeaderValue>, Rejection> {
        if headers.contains_key(FOLLOWS_METADATA) {
            return Err(Rejection::OriginForeign);
        }
        match &self.origins {
            Origins::Own => {
                let foreign = Rejection::OriginForeign;
                let site = single_value(headers, SEC_FETCH_SITE).map_err(|()| foreign)?;
                let origin = single_value(headers, ORIGIN).map_err(|()| foreign)?;
                let is_own_site =
                    site.is_none_or(|(_, site)| matches!(site, "same-origin" | "none"));
                let is_own =
                    origin.is_none_or(|(_, origin)| is_same_origin(origin, target, headers));
                if is_own_site && is_own {
                    Ok(origin.map(|(value, _)| value))
                } else {
                    Err(foreign)
                }
            }
            Origins::Listed(listed) => {
                let refused = Rejection::OriginNotAllowed;
                let is_any = || listed.iter().any(|one| one == ANY);
                let Some((value, origin)) = single_value(headers, ORIGIN).map_err(|()| refused)?
                else {
                    let site = single_value(headers, SEC_FETCH_SITE)
                        .map_err(|()| Rejection::OriginForeign)?;
                    let is_own_site =
                        site.is_none_or(|(_, site)| matches!(site, "same-origin" | "none"));
                    return if is_own_site || is_any() {
                        Ok(None)
                    } else {
                        Err(Rejection::OriginForeign)
                    };
                };
                let page = normalized(origin);
                let is_listed = || {
                    listed
                        .iter()
                        .any(|one| *one == page || matches_loopback(one, &page))
                };
                let is_public = || {
                    self.public_url
                        .as_ref()
                        .is_some_and(|url| url.parts().0 == page)
                };
                let is_served = is_any()
                    || is_listed()
                    || is_public()
                    || is_own_loopback_page(&page, target, headers);
                if is_served {
                    Ok(Some(value))
                } else {
                    Err(refused)
                }
            }
        }
    }

    fn allows_host(&self, named: &HostPort, local: Option<IpAddr>) -> bool {
        self.any_host
            || named.host.is_loopback()
            || local.is_some_and(|local| named.host == Host::Address(local.to_canonical()))
            || self.hosts.iter().any(|host| {
                host.host == named.host && (host.port.is_none() || host.port == named.port)
            })
            || self
                .public_url
                .as_ref()
                .is_some_and(|url| url.host == named.host)
    }
}

/// The hosts in the target and in `Host`; at least one of them.
fn named_hosts(target: &Uri, headers: &HeaderMap) -> Result<[Option<HostPort>; 2], Rejection> {
    let header = single_value(headers, HOST).map_err(|()| Rejection::HostMalformed)?;
    let texts = [
        target.authority().map(Authority::as_str),
        header.map(|(_, text)| text),
    ];
    if texts.iter().all(Option::is_none) {
        return Err(Rejection::HostMissing);
    }
    let parse = |text: Option<&str>| {
        text.map(|text| HostPort::parse(text).ok_or(Rejection::HostMalformed))
            .transpose()
    };
    let [target, header] = texts;
    Ok([parse(target)?, parse(header)?])
}

/// Whether `origin` matches every host that the request names.
fn is_same_origin(origin: &str, target: &Uri, headers: &HeaderMap) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    let implied = match scheme {
        "http" => 80,
        "https" => 443,
        _ => return false,
    };
    let (Some(origin), Ok(named)) = (HostPort::parse(authority), named_hosts(target, headers))
    else {
        return false;
    };
    let port = |of: &HostPort| of.port.unwrap_or(implied);
    named
        .iter()
        .flatten()
        .all(|host| host.host == origin.host && port(host) == port(&origin))
}

/// Whether a page has the origin of the listener, under any name of the loopback interface.
fn is_own_loopback_page(page: &str, target: &Uri, headers: &HeaderMap) -> bool {
    let (Some((scheme, port)), Ok(named)) = (loopback_page(page), named_hosts(target, headers))
    else {
        return false;
    };
    let implied = if scheme == "https" { 443 } else { 80 };
    let port = if port.is_empty() {
        Ok(implied)
    } else {
        port.parse()
    };
    let is_own =
        |host: &HostPort| host.host.is_loopback() && port == Ok(host.port.unwrap_or(implied));
    named.iter().flatten().all(is_own)
}

/// Whether `listed` is a loopback origin with the same scheme and port as `page`, another one.
fn matches_loopback(listed: &str, page: &str) -> bool {
    let (Some((scheme, port)), Some(page)) = (loopback_page(listed), loopback_page(page)) else {
        return false;
    };
    scheme == page.0 && (port == ANY || port == page.1)
}

/// The scheme and port of a loopback origin; a listed `*` stands for any port. In [`normalized`]
/// form: a port that the scheme implies is empty.
fn loopback_page(origin: &str) -> Option<(&str, &str)> {
    let (scheme, authority) = origin.split_once("://")?;
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if port == ANY || port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (host, port)
        }
        _ => (authority, ""),
    };
    let is_loopback =
        HostPort::parse(host).is_some_and(|page| page.host.is_loopback() && page.port.is_none());
    (matches!(scheme, "http" | "https") && is_loopback).then_some((scheme, port))
}

/// An origin in lower case, without a port that its scheme implies.
fn normalized(origin: &str) -> String {
    let lower = origin.trim_end_matches('/').to_ascii_lowercase();
    let implied = match lower.split_once("://") {
        Some(("http", _)) => ":80",
        Some(("https", _)) => ":443",
        _ => return lower,
    };
    lower
        .strip_suffix(implied)
        .map(str::to_owned)
        .unwrap_or(lower)
}

/// The single value of a header, also as text; an error if there are several or it is not text.
fn single_value(headers: &HeaderMap, name: HeaderName) -> Result<Option<(&HeaderValue, &str)>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value
            .to_str()
            .map(|text| Some((value, text)))
            .map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct HostPort {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    /// A name in lower case, without a final dot.
    Name(String),
}

impl HostPort {
    /// Parses a host with or without a port; `None` with user info.
    fn parse(text: &str) -> Option<Self> {
        let authority: Authority = text.parse().ok()?;
        // User info precedes the host; only a port may follow it.
        let port = match authority.as_str().strip_prefix(authority.host())? {
            "" | ":" => None,
            port => Some(
                port.strip_prefix(':')
                    .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?,
            ),
        };
        let port = port.map(str::parse).transpose().ok()?;
        Some(Self {
            host: Host::parse(authority.host())?,
            port,
        })
    }
}

impl Host {
    fn parse(text: &str) -> Option<Self> {
        if let Some(inner) = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            return Some(Self::Address(
                IpAddr::V6(inner.parse().ok()?).to_canonical(),
            ));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        (!name.is_empty()).then(|| Self::Name(name.to_ascii_lowercase()))
    }

    fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => name == "localhost",
        }
    }
}

/// A listener's public URL: `https://mcp.example.com`, with a path if a proxy removes that from
/// requests. It is configured, and never made from a request's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// Without a final slash. The origin is in lower case, without a port that the scheme implies.
    text: Arc<str>,
    /// The length of the origin.
    origin: usize,
    host: Host,
}

impl PublicUrl {
    /// Parses a URL with scheme, host, port and path; `None` if `text` has anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (origin, path) = split_path(text)?;
        let origin = normalized(origin);
        let authority = origin
            .strip_prefix("https://")
            .or_else(|| origin.strip_prefix("http://"))?;
        let HostPort { host, .. } = HostPort::parse(authority)?;
        let (text, origin) = ([&*origin, path].concat().into(), origin.len());
        Some(Self { text, origin, host })
    }

    /// The whole URL.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The scheme and authority, and the path, which is empty or begins with a slash. The first is
    /// the origin of the listener's pages.
    #[must_use]
    pub fn parts(&self) -> (&str, &str) {
        self.text.split_at(self.origin)
    }

    /// Whether it begins with `https`.
    pub fn is_https(&self) -> bool {
        self.text.starts_with("https:")
    }

    /// The URL of `path`, which begins with a slash.
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.text)
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests;
