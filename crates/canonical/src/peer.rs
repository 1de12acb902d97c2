//! The network a client connects from.

use std::net::{IpAddr, Ipv6Addr};

/// The network a client connects from: shares of limits are counted by it while clients are not authenticated.
///
/// An IPv4 address, or the first 64 bits of an IPv6 address: a single host usually has all addresses of such a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(IpAddr);

impl Peer {
    /// The network of this address. An IPv4 address mapped into IPv6 is that IPv4 address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
            address @ IpAddr::V4(_) => address,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_is_an_ipv4_address_or_an_ipv6_prefix() {
        let peer = |address: &str| Peer::of(address.parse().unwrap());
        assert_eq!(peer("192.0.2.1"), peer("::ffff:192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
        assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
    }
}
