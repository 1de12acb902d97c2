//! Limits requests that follow a server's metadata. Otherwise a server could make Fanlight send
//! requests to anything that Fanlight can reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{Ipv4Net, Ipv6Net};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;
use url::{Host, Url};

/// The trusted server, and the places to which its metadata may lead.
#[derive(Clone, Debug)]
pub struct Trust {
    /// The URL of the server.
    pub server: Url,
    /// Further configured URLs, such as a token endpoint.
    pub configured: Vec<Url>,
    /// Certificate authorities in PEM, trusted besides the system's.
    pub authorities: Option<Vec<u8>>,
}

impl Trust {
    /// A guard that trusts only the server at `server`.
    pub fn in_server(server: Url) -> Self {
        Self {
            server,
            configured: Vec::new(),
            authorities: None,
        }
    }
}

/// Decides which URLs and addresses may get requests.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    /// The configured URLs.
    own: Vec<Url>,
}

impl Guard {
    pub(super) fn new(configured: impl IntoIterator<Item = Url>) -> Self {
        let own = configured.into_iter().collect();
        Self { own }
    }

    /// Whether a URL may get requests, and be shown to a user's browser. This checks what is
    /// visible without resolving its name.
    pub(super) fn check(&self, url: &Url) -> Result<(), &'static str> {
        let is_local = is_loopback(url) && self.is_local();
        match url.scheme() {
            "https" => {}
            "http" if is_local => {}
            "http" => {
                return Err(
                    "it must be https; http is permitted only if the server is on this machine, too",
                );
            }
            _ => return Err("its scheme is not https"),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("it has a user name");
        }
        match literal(url) {
            Some(address) if Zone::classify(address) == Zone::Special && !self.is_own(url) => {
                Err(NOT_PUBLIC)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a literal address in a URL may be connected to.
    pub(super) async fn check_literal(&self, url: &Url) -> Result<(), &'static str> {
        match literal(url) {
            Some(address) if !self.is_own(url) && !self.permits(address).await => Err(NOT_PUBLIC),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a configured URL is on this machine.
    fn is_local(&self) -> bool {
        self.own.iter().any(is_loopback)
    }

    /// Whether a configured URL has the same host, which gets requests anyway.
    fn is_own(&self, url: &Url) -> bool {
        self.own.iter().any(|own| own.host_str() == url.host_str())
    }

    /// Whether an address that is not configured may be connected to.
    async fn permits(&self, address: IpAddr) -> bool {
        match Zone::classify(address) {
            Zone::Public => true,
            Zone::Loopback => self.is_local(),
            Zone::Private => self.is_in_private_network().await,
            Zone::Special => false,
        }
    }

    /// Whether the server is in a private network. Its authorization server may then be there, too.
    async fn is_in_private_network(&self) -> bool {
        for own in &self.own {
            let is_private = match (literal(own), own.host_str()) {
                (Some(address), _) => are_private([address]),
                (None, Some(name)) => lookup_host((name, 0))
                    .await
                    .is_ok_and(|found| are_private(found.map(|at| at.ip()))),
                (None, None) => false,
            };
            if is_private {
                return true;
            }
        }
        false
    }

    /// The permitted addresses of a name.
    async fn addresses(
        &self,
        name: &str,
    ) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
        let found = lookup_host((name, 0)).await?;
        if self.own.iter().any(|own| own.host_str() == Some(name)) {
            return Ok(found.collect());
        }
        let mut permitted = Vec::new();
        for address in found {
            if self.permits(address.ip()).await {
                permitted.push(address);
            }
        }
        if permitted.is_empty() {
            Err(Box::new(NotPublic))
        } else {
            Ok(permitted)
        }
    }
}

const NOT_PUBLIC: &str = "its address is not public, but the server's address is";

/// A name has no permitted address.
#[derive(Debug, thiserror::Error)]
#[error("{NOT_PUBLIC}")]
pub(super) struct NotPublic;

/// Only checked addresses are connected to.
impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let addresses = guard.addresses(name.as_str()).await?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

/// Whether all of a server's addresses are private. A single public address would suffice to reach
/// the server, and its name could then list any private ones besides.
fn are_private(addresses: impl IntoIterator<Item = IpAddr>) -> bool {
    let mut addresses = addresses.into_iter().peekable();
    addresses.peek().is_some() && addresses.all(|address| Zone::classify(address) == Zone::Private)
}

fn literal(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        Host::Ipv4(address) => Some(address.into()),
        Host::Ipv6(address) => Some(address.into()),
        Host::Domain(_) => None,
    }
}

/// Whether a URL's host is this machine, without resolving it.
pub(crate) fn is_loopback(url: &Url) -> bool {
    url.host_str()
        .is_some_and(fanlight_config::settings::is_loopback)
}

/// A part of the Internet, defined by who can reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zone {
    /// Reachable by everybody.
    Public,
    /// Reachable in the same private network (RFC 1918, 4193 and 6598).
    Private,
    /// Reachable on this machine.
    Loopback,
    /// Addresses that no authorization server has: link-local addresses, clouds' addresses for
    /// credentials, addresses that contain others (6to4, NAT64, Teredo), multicast and reserved
    /// addresses.
    Special,
}

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(first: [u16; 4], prefix: u8) -> Ipv6Net {
    let [a, b, c, d] = first;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0), prefix)
}

const PRIVATE_V4: [Ipv4Net; 4] = [
    v4(10, 0, 0, 0, 8),
    v4(172, 16, 0, 0, 12),
    v4(192, 168, 0, 0, 16),
    v4(100, 64, 0, 0, 10),
];

/// The IANA registry of special-purpose addresses, and addresses of clouds: Alibaba's metadata,
/// Azure's host.
const SPECIAL_V4: [Ipv4Net; 13] = [
    v4(0, 0, 0, 0, 8),
    v4(169, 254, 0, 0, 16),
    v4(192, 0, 0, 0, 24),
    v4(192, 0, 2, 0, 24),
    v4(192, 31, 196, 0, 24),
    v4(192, 88, 99, 0, 24),
    v4(198, 18, 0, 0, 15),
    v4(198, 51, 100, 0, 24),
    v4(203, 0, 113, 0, 24),
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
    v4(100, 100, 100, 200, 32),
    v4(168, 63, 129, 16, 32),
];

const PRIVATE_V6: Ipv6Net = v6([0xfc00, 0, 0, 0], 7);

/// The range of globally assigned addresses; all others are reserved or link-local.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0, 0], 3);

/// Special addresses within the global range and the private one: protocol assignments with Teredo,
/// documentation, 6to4, and AWS's metadata.
const SPECIAL_V6: [Ipv6Net; 5] = [
    v6([0x2001, 0, 0, 0], 23),
    v6([0x2001, 0xdb8, 0, 0], 32),
    v6([0x2002, 0, 0, 0], 16),
    v6([0x3fff, 0, 0, 0], 20),
    v6([0xfd00, 0xec2, 0, 0], 32),
];

impl Zone {
    fn classify(address: IpAddr) -> Self {
        match address.to_canonical() {
            address if address.is_loopback() => Self::Loopback,
            IpAddr::V4(address) if SPECIAL_V4.iter().any(|net| net.contains(&address)) => {
                Self::Special
            }
            IpAddr::V4(address) if PRIVATE_V4.iter().any(|net| net.contains(&address)) => {
                Self::Private
            }
            IpAddr::V4(_) => Self::Public,
            IpAddr::V6(address) if SPECIAL_V6.iter().any(|net| net.contains(&address)) => {
                Self::Special
            }
            IpAddr::V6(address) if PRIVATE_V6.contains(&address) => Self::Private,
            IpAddr::V6(address) if GLOBAL_V6.contains(&address) => Self::Public,
            IpAddr::V6(_) => Self::Special,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(server: &str) -> Guard {
        Guard::new([server.parse().unwrap()])
    }

    async fn may_ask(server: &str, url: &str) -> bool {
        let (guard, url) = (guard(server), url.parse().unwrap());
        guard.check(&url).is_ok() && guard.check_literal(&url).await.is_ok()
    }

    #[tokio::test]
    async fn public_server_leads_to_public_addresses_by_https() {
        let server = "https://1.1.1.1/mcp";
        for url in [
            "https://8.8.8.8/token",
            "https://id.example.com",
            "https://[2606:4700::1111]/",
        ] {
            assert!(may_ask(server, url).await, "{url}");
        }
        let refused = [
            "http://id.example.com/",
            "http://127.0.0.1/",
            "https://127.0.0.1/",
            "https://[::1]/",
            "https://10.0.0.1/",
            "https://192.168.0.1:8443/",
            "https://169.254.169.254/latest/meta-data/",
            "https://[::ffff:169.254.169.254]/",
            "https://[fd00:ec2::254]/",
            "https://[2002:a00:1::]/",
            "https://[64:ff9b::a00:1]/",
            "https://0x7f.1/",
            "https://2130706433/",
            "https://user@id.example.com/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "ftp://id.example.com/",
        ];
        for url in refused {
            assert!(!may_ask(server, url).await, "{url}");
        }
    }

    #[tokio::test]
    async fn server_on_this_machine_or_in_a_private_network_leads_there() {
        assert!(may_ask("http://[::1]:1", "https://id.example.com/keys").await);
        for url in ["http://127.0.0.1.example.com/keys", "data:,{}"] {
            assert!(!may_ask("http://127.0.0.1", url).await, "{url}");
        }
        assert!(super::super::url("keys").is_err() && super::super::url("").is_err());
        for url in [
            "http://localhost:1/",
            "http://127.0.0.1:2/",
            "http://[::1]/",
            "https://127.0.0.1/",
            "https://1.1.1.1",
        ] {
            assert!(may_ask("http://localhost:9/mcp", url).await, "{url}");
        }
        assert!(may_ask("https://10.0.0.1/mcp", "https://10.0.0.2/token").await);
        assert!(may_ask("https://169.254.1.1/mcp", "https://169.254.1.1:8443/token").await);
        assert!(!may_ask("https://10.0.0.1/mcp", "https://127.0.0.1/token").await);
        assert!(!may_ask("https://10.0.0.1/mcp", "https://169.254.169.254/").await);
        assert!(!may_ask("http://localhost:9/mcp", "https://10.0.0.1/token").await);
        assert!(!may_ask("http://localhost:9/mcp", "http://10.0.0.1/token").await);
    }

    #[test]
    fn name_with_a_public_address_is_in_no_private_network() {
        let are_private =
            |found: &[&str]| are_private(found.iter().map(|address| address.parse().unwrap()));
        assert!(are_private(&["10.0.0.1"]) && are_private(&["10.0.0.1", "fd12::1"]));
        for found in [
            &["1.1.1.1", "10.0.0.1"][..],
            &["10.0.0.1", "2606:4700::1111"],
            &["10.0.0.1", "127.0.0.1"],
            &[],
        ] {
            assert!(!are_private(found), "{found:?}");
        }
    }

    #[tokio::test]
    async fn name_is_resolved_to_permitted_addresses_only() {
        let refused = guard("https://1.1.1.1/mcp")
            .addresses("localhost")
            .await
            .unwrap_err();
        assert!(refused.downcast_ref::<NotPublic>().is_some(), "{refused}");
        assert!(
            !guard("http://127.0.0.1/mcp")
                .addresses("localhost")
                .await
                .unwrap()
                .is_empty()
        );
    }

    #[tokio::test]
    async fn places_that_the_operator_names_are_asked() {
        let configured = ["https://10.0.0.5/token", "https://1.1.1.1/mcp"];
        let guard = Guard::new(configured.map(|url| url.parse().unwrap()));
        assert_eq!(
            guard
                .check_literal(&"https://10.0.0.5/token".parse().unwrap())
                .await,
            Ok(())
        );
        assert!(
            guard
                .check(&"http://127.0.0.1/token".parse().unwrap())
                .is_err()
        );
    }

    #[test]
    fn addresses_are_in_their_zones() {
        let expected = [
            (
                Zone::Public,
                &[
                    "1.1.1.1",
                    "100.128.0.1",
                    "172.32.0.1",
                    "2606:4700::1111",
                    "::ffff:8.8.8.8",
                ][..],
            ),
            (
                Zone::Private,
                &[
                    "10.1.2.3",
                    "172.16.0.1",
                    "192.168.1.1",
                    "100.64.0.1",
                    "fd12::1",
                    "::ffff:10.0.0.1",
                ],
            ),
            (
                Zone::Loopback,
                &["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"],
            ),
            (
                Zone::Special,
                &[
                    "0.0.0.0",
                    "169.254.169.254",
                    "::ffff:169.254.169.254",
                    "fe80::1",
                    "fec0::1",
                    "::",
                ],
            ),
            (
                Zone::Special,
                &[
                    "100.100.100.200",
                    "168.63.129.16",
                    "192.0.0.192",
                    "fd00:ec2::254",
                    "224.0.0.1",
                ],
            ),
            (
                Zone::Special,
                &[
                    "255.255.255.255",
                    "2002:a00:1::",
                    "64:ff9b::a00:1",
                    "64:ff9b:1::1",
                    "2001:0:1::1",
                ],
            ),
            (
                Zone::Special,
                &[
                    "2001:db8::1",
                    "ff02::1",
                    "::a00:1",
                    "::7f00:1",
                    "192.88.99.1",
                ],
            ),
        ];
        for (zone, addresses) in expected {
            for address in addresses {
                assert_eq!(Zone::classify(address.parse().unwrap()), zone, "{address}");
            }
        }
    }
}
