//! The peer behind a request, for limits that clients share: the peer that uses most loses first.

use std::fmt;
use std::net::IpAddr;

use crate::identity::Principal;

/// The unit by which shares of a limit are counted. For authenticated clients it is the principal,
/// otherwise the client's address, or its user on a Unix socket. Behind an untrusted reverse proxy
/// all unauthenticated clients are one peer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The process that started this one, or Fanlight itself.
    #[default]
    Local,
    /// An address; for IPv6, a network.
    Address(IpAddr),
    /// A user of this machine, by user id.
    User(u32),
    /// An authenticated client.
    Principal(Principal),
}

impl Peer {
    /// The peer of a request of `principal` from `address`.
    pub fn new(principal: &Principal, address: Option<IpAddr>) -> Self {
        match address {
            _ if !principal.is_anonymous() => Self::Principal(principal.clone()),
            Some(address) => Self::Address(address),
            None => Self::Local,
        }
    }

    /// The peer's bytes, which differ for each peer and are equal in every process.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Local => vec![0],
            Self::Address(IpAddr::V4(address)) => [&[1][..], &address.octets()].concat(),
            Self::Address(IpAddr::V6(address)) => [&[2][..], &address.octets()].concat(),
            Self::User(user) => [&[3][..], &user.to_be_bytes()].concat(),
            Self::Principal(principal) => [&[4][..], &principal.to_bytes()].concat(),
        }
    }

    /// Replaces `Local` by the user of a process that is connected by a Unix socket, which has no
    /// address.
    #[must_use]
    pub fn or_user(self, user: Option<u32>) -> Self {
        match (self, user) {
            (Self::Local, Some(user)) => Self::User(user),
            (peer, _) => peer,
        }
    }
}

/// The text for operators.
impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Address(address) => address.fmt(f),
            Self::User(user) => write!(f, "user {user}"),
            Self::Principal(principal) => f.write_str(&principal.id().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_is_the_principal_or_else_the_address() {
        let address = Some([10, 0, 0, 1].into());
        let ann = Principal::new("issuer", "ann");
        assert_eq!(
            Peer::new(&ann, address).or_user(Some(1)),
            Peer::Principal(ann)
        );
        assert_eq!(
            Peer::new(&Principal::anonymous(), address).or_user(Some(1)),
            Peer::Address([10, 0, 0, 1].into())
        );
        assert_eq!(
            Peer::new(&Principal::anonymous(), None).or_user(Some(1)),
            Peer::User(1)
        );
        assert_eq!(Peer::new(&Principal::anonymous(), None), Peer::Local);
    }
}
