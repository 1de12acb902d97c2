//! The address of a client behind trusted reverse proxies, for shares of limits, policies, traces and
//! logs.
//!
//! Each proxy appends its own peer's address. So proxies wrote only the entries to the right of the
//! first address that is not a proxy's. A client may have invented the rest, and the other one of
//! two headers.
//!
//! Source: RFC 7239, 4 to 6; `X-Forwarded-For` has no specification.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The maximum number of proxy addresses to skip. A constant: chains of proxies are much shorter,
/// and it limits the cost of a request.
const MAX_PROXIES: usize = 32;

/// The networks of reverse proxies that are trusted to name their clients' addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(pub(super) Vec<IpNet>);

/// The address of a client whose proxy does not name it clearly. No client has this address, so
/// policies can tell.
const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl TrustedProxies {
    /// Trusts the proxies in these networks.
    pub fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    /// The client's address for a request that arrived from `peer`. This is `peer` if it is no
    /// trusted proxy, or names nobody but proxies; unspecified if the headers are malformed or
    /// contradict each other. An unknown port is 0.
    pub fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> SocketAddr {
        if self.0.is_empty() || !self.contains(peer.ip()) {
            return peer;
        }
        let named = (
            self.client_in(peer, headers, &FORWARDED, elements),
            self.client_in(peer, headers, &X_FORWARDED_FOR, entries),
        );
        match named {
            (None, None) => peer,
            (Some(client), None) | (None, Some(client)) => client.unwrap_or(UNKNOWN),
            // A proxy that writes one of the headers passes the client's own other one through.
            (Some(Some(one)), Some(Some(other))) if one.ip() == other.ip() => one,
            _ => UNKNOWN,
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// The last address in these fields that is no trusted proxy, else `peer`; `None` without such a
    /// field, and `Some(None)` if it is malformed. `read` returns a field's addresses, the last
    /// first.
    fn client_in(
        &self,
        peer: SocketAddr,
        headers: &HeaderMap,
        name: &HeaderName,
        read: Read,
    ) -> Option<Option<SocketAddr>> {
        let fields: Vec<_> = headers.get_all(name).iter().collect();
        if fields.is_empty() {
            return None;
        }
        let texts = fields.iter().rev().map(|field| field.to_str().ok());
        let mut addresses = texts
            .flat_map(|text| text.map_or_else(|| vec![None], read))
            .take(MAX_PROXIES);
        let client =
            addresses.find(|address| address.is_none_or(|address| !self.contains(address.ip())));
        Some(client.unwrap_or(Some(peer)))
    }
}

/// The address that identifies a peer. For IPv6 it is the 64-bit network, in which one host can use
/// any address.
pub fn peer_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        other => other,
    }
}

/// Reads a field's addresses, the last first; `None` for entries that are no address.
type Read = fn(&str) -> Vec<Option<SocketAddr>>;

/// The addresses in `X-Forwarded-For`.
fn entries(field: &str) -> Vec<Option<SocketAddr>> {
    field
        .rsplit(',')
        .take(MAX_PROXIES)
        .map(|entry| node(entry.trim_matches([' ', '\t'])))
        .collect()
}

/// The addresses in `Forwarded`. A malformed field yields none, since quotes can move the borders
/// of all its elements.
fn elements(field: &str) -> Vec<Option<SocketAddr>> {
    let mut all = parse_elements(field).unwrap_or_else(|| vec![None]);
    all.reverse();
    all.truncate(MAX_PROXIES);
    all
}

/// The `for` of each element in order; `None` if the field is malformed.
fn parse_elements(field: &str) -> Option<Vec<Option<SocketAddr>>> {
    let (mut all, mut client, mut rest) = (Vec::new(), None, field);
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        let (name, after) = rest.split_once('=')?;
        let (value, after) = value(after)?;
        if name.is_empty() || !name.bytes().all(is_token) {
            return None;
        }
        if name.eq_ignore_ascii_case("for") && client.replace(node(value)).is_some() {
            return None;
        }
        rest = after.trim_start_matches([' ', '\t']);
        match rest.split_at_checked(1) {
            None => {
                all.push(client.flatten());
                return Some(all);
            }
            Some((",", next)) => {
                all.push(client.take().flatten());
                rest = next;
            }
            Some((";", next)) => rest = next,
            Some(_) => return None,
        }
    }
}

/// The leading token or quoted string, and the rest. Addresses need no escapes.
fn value(text: &str) -> Option<(&str, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        return quoted
            .split_once('"')
            .filter(|(value, _)| !value.contains('\\'));
    }
    let end = text
        .bytes()
        .position(|byte| !is_token(byte))
        .unwrap_or(text.len());
    text.split_at_checked(end)
        .filter(|(value, _)| !value.is_empty())
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// An address with or without a port; IPv6 with a port is in brackets (RFC 7239, 6). No `unknown`,
/// and no invented name.
fn node(text: &str) -> Option<SocketAddr> {
    let address = || {
        text.strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
            .unwrap_or(text)
            .parse::<IpAddr>()
            .ok()
    };
    let address = text
        .parse::<SocketAddr>()
        .ok()
        .or_else(|| address().map(|address| (address, 0).into()))?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const PEER: &str = "10.0.0.1:4000";

    /// The client's address if 10.0.0.0/8 and fd00::/8 are proxies.
    fn client_from(peer: &str, fields: &[(&'static str, &str)]) -> String {
        let proxies = TrustedProxies::new(vec![
            "10.0.0.0/8".parse().unwrap(),
            "fd00::/8".parse().unwrap(),
        ]);
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        proxies.client(peer.parse().unwrap(), &headers).to_string()
    }

    fn client(fields: &[(&'static str, &str)]) -> String {
        client_from(PEER, fields)
    }

    const XFF: &str = "x-forwarded-for";
    const FWD: &str = "forwarded";

    #[test]
    fn client_is_the_last_address_that_is_no_proxy() {
        for (fields, expected) in [
            (&[(XFF, "192.0.2.7")][..], "192.0.2.7:0"),
            (&[(XFF, "1.1.1.1, 192.0.2.7 ,10.0.0.9")], "192.0.2.7:0"),
            (
                &[
                    (XFF, "1.1.1.1"),
                    (XFF, "192.0.2.7"),
                    (XFF, "10.0.0.9, 10.0.0.8"),
                ],
                "192.0.2.7:0",
            ),
            (&[(XFF, "192.0.2.7:55")], "192.0.2.7:55"),
            (&[(XFF, "[2001:db8::7]:55, 10.0.0.9")], "[2001:db8::7]:55"),
            (&[(XFF, "2001:db8::7")], "[2001:db8::7]:0"),
            (&[(XFF, "192.0.2.7, ::ffff:10.0.0.9")], "192.0.2.7:0"),
            (
                &[(FWD, "for=192.0.2.7;proto=https;by=10.0.0.1")],
                "192.0.2.7:0",
            ),
            (
                &[(
                    FWD,
                    "for=1.1.1.1, For=\"192.0.2.7:55\" ; host=\"a,b\", for=\"[fd00::1]\"",
                )],
                "192.0.2.7:55",
            ),
            (
                &[(FWD, "for=1.1.1.1"), (FWD, "for=\"[2001:db8::7]\"")],
                "[2001:db8::7]:0",
            ),
            (
                &[(XFF, "192.0.2.7"), (FWD, "for=\"192.0.2.7:80\"")],
                "192.0.2.7:80",
            ),
        ] {
            assert_eq!(client(fields), expected, "{fields:?}");
        }
        assert_eq!(
            client_from("[::ffff:10.0.0.1]:4000", &[(XFF, "192.0.2.7")]),
            "192.0.2.7:0"
        );
    }

    #[test]
    fn only_trusted_proxies_are_believed() {
        for peer in ["192.0.2.1:9", "[2001:db8::1]:9", "11.0.0.1:9"] {
            assert_eq!(
                client_from(peer, &[(XFF, "1.1.1.1"), (FWD, "for=1.1.1.1")]),
                peer
            );
        }
        let headers =
            HeaderMap::from_iter([(X_FORWARDED_FOR, HeaderValue::from_static("1.1.1.1"))]);
        let peer = PEER.parse().unwrap();
        assert_eq!(TrustedProxies::default().client(peer, &headers), peer);
    }

    /// An attacker writes the part to the left of the address that the proxy appends, or a header
    /// that the proxy does not know.
    #[test]
    fn spoofed_entries_do_not_count() {
        let many = "1.1.1.1, ".repeat(5_000) + "192.0.2.7";
        let of_proxies = "10.0.0.9, ".repeat(5_000) + "192.0.2.7";
        for left in [
            "1.1.1.1",
            "10.0.0.1",
            "garbage",
            "unknown",
            "",
            "\"",
            "127.0.0.1:99999",
            &many,
            &of_proxies,
        ] {
            assert_eq!(
                client(&[(XFF, &format!("{left}, 192.0.2.7"))]),
                "192.0.2.7:0",
                "{left}"
            );
            assert_eq!(
                client(&[(XFF, left), (XFF, "192.0.2.7")]),
                "192.0.2.7:0",
                "{left}"
            );
        }
        for spoofed in [
            "for=1.1.1.1",
            "for=10.0.0.9",
            "garbage",
            "for=\"1.1.1.1",
            "",
        ] {
            assert_eq!(
                client(&[(FWD, spoofed), (XFF, "192.0.2.7")]),
                UNKNOWN.to_string(),
                "{spoofed}: the two differ"
            );
            let own = client(&[(FWD, spoofed), (FWD, "for=192.0.2.7")]);
            assert_eq!(own, "192.0.2.7:0", "{spoofed}");
        }
        // A quote that the client opens may swallow the proxy's entry, or end inside it.
        for joined in [
            "for=\"1.1.1.1, for=192.0.2.7",
            "for=\"x, for=\"[2001:db8::7]\"",
            "for=1.1.1.1;for=192.0.2.7",
        ] {
            assert_eq!(client(&[(FWD, joined)]), UNKNOWN.to_string(), "{joined}");
        }
    }

    #[test]
    fn address_is_the_proxys_without_a_client_and_unknown_with_an_unclear_one() {
        let chain = "10.0.0.9, ".repeat(5_000) + "10.0.0.9";
        for fields in [&[][..], &[(XFF, "10.0.0.9")], &[(XFF, &chain)]] {
            assert_eq!(client(fields), PEER, "{fields:?}");
        }
        for fields in [
            &[(XFF, "")][..],
            &[(XFF, "unknown")],
            &[(XFF, "192.0.2.7, _hidden")],
            &[(XFF, "192.0.2.7,")],
            &[(XFF, "192.0.2.256")],
            &[(XFF, "192.0.2.7:port")],
            &[(XFF, "fe80::1%eth0")],
            &[(XFF, "192.0.2.7\u{fc}")],
            &[(FWD, "for=unknown")],
            &[(FWD, "for=_hidden")],
            &[(FWD, "proto=https")],
            &[(FWD, "for=")],
            &[(FWD, "for=192.0.2.7,")],
            &[(FWD, "for=192.0.2.7;;proto=http")],
            &[(FWD, "for=2001:db8::7")],
            &[(FWD, "for = 192.0.2.7")],
            &[(FWD, "for=\"192.0.2.\\7\"")],
            &[(FWD, "192.0.2.7")],
        ] {
            assert_eq!(client(fields), UNKNOWN.to_string(), "{fields:?}");
        }
    }

    proptest! {
        /// Only entries appended by a trusted proxy count; earlier ones may come from the client.
        #[test]
        fn appended_address_decides(left in "[ -~]{0,40}") {
            prop_assert_eq!(client(&[(XFF, &format!("{left},192.0.2.7"))]), "192.0.2.7:0");
            let joined = client(&[(FWD, &format!("{left},for=192.0.2.7"))]);
            prop_assert!(joined == "192.0.2.7:0" || joined == UNKNOWN.to_string(), "{}", joined);
        }
    }

    #[test]
    fn addresses_of_one_network_are_one_peer() {
        let of = |text: &str| peer_of(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2:3::4"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("::1"), IpAddr::V6(Ipv6Addr::LOCALHOST));
    }
}
