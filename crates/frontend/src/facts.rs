//! Facts about a message that its transport knows.

use std::net::IpAddr;

use fanlight_http::peer_of;
use fanlight_telemetry::{Headers, Moment, Network};

/// Facts about a message that its transport knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransportFacts<'a> {
    pub(crate) received: Moment,
    pub(crate) network: Network,
    /// The user id of the client's process, on a Unix socket.
    pub(crate) user: Option<u32>,
    /// Whether another replica forwarded the message.
    pub(crate) is_forwarded: bool,
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

    /// The address that the message counts for under limits; `None` on stdio.
    pub(crate) fn peer_address(&self) -> Option<IpAddr> {
        match self.network {
            Network::Http { client, .. } => client.map(|address| peer_of(address.ip())),
            Network::Stdio => None,
        }
    }
}
