//! Facts about a message that its transport knows.

use std::net::IpAddr;

use fanlight_canonical::{Principal, SameClient};
use fanlight_http::peer_of;
use fanlight_telemetry::{Headers, Moment, Network};

/// Facts about a message that its transport knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransportFacts<'a> {
    pub(crate) received: Moment,
    /// The number of the exchange in the running recording; 0 if nothing records it.
    pub(crate) exchange: u64,
    pub(crate) network: Network,
    /// The user id of the client's process, on a Unix socket.
    pub(crate) user: Option<u32>,
    /// Whether another replica forwarded the message.
    pub(crate) is_forwarded: bool,
    /// Whether another program forwarded the message, which may do so for several clients.
    pub(crate) is_proxied: bool,
    pub(crate) trace_context: Headers<'a>,
}

impl TransportFacts<'_> {
    /// The address of the client; `None` on stdio and Unix sockets.
    pub(crate) fn client_address(&self) -> Option<IpAddr> {
        match self.network {
            Network::Http { client, .. } => client.map(|address| address.ip()),
            Network::Stdio => None,
        }
    }

    /// The sign that tells the client of a message without a session.
    pub(crate) fn client_of(&self, principal: &Principal) -> Option<SameClient> {
        match self.network {
            Network::Stdio => Some(SameClient::Connection),
            _ if !principal.is_anonymous() => Some(SameClient::Principal),
            _ if self.is_proxied => None,
            Network::Http { client, .. } => {
                let number = match client.map(|address| address.ip().to_canonical()) {
                    Some(IpAddr::V4(address)) if address.is_loopback() => address.to_bits(),
                    // Only `::1` is a loopback address.
                    Some(IpAddr::V6(address)) if address.is_loopback() => 1,
                    Some(_) => return None,
                    // No address begins with this bit.
                    None => self.user.map_or(0, |user| user | 1 << 31),
                };
                Some(SameClient::Machine(number))
            }
        }
    }

    /// The address that the message counts for under limits; `None` on stdio.
    pub(crate) fn peer_address(&self) -> Option<IpAddr> {
        self.client_address().map(peer_of)
    }
}
