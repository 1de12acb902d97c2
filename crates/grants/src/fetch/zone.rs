//! The parts of the Internet that addresses belong to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// A part of the Internet, defined by who can reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zone {
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
    pub(super) fn classify(address: IpAddr) -> Self {
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
