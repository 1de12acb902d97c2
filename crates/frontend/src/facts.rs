//! What a transport knows of a message, and the principal that follows from it.

use std::net::IpAddr;
use std::sync::Arc;

use fanlight_canonical::Principal;
use fanlight_http_edge::peer_of;
use fanlight_telemetry::{Headers, Moment, Network};
use http::HeaderMap;

/// What a transport knows of a message.
#[derive(Clone, Copy, Debug)]
pub struct TransportFacts<'a> {
    pub(crate) received: Moment,
    pub(crate) network: Network,
    pub(crate) trace_context: Headers<'a>,
    pub(crate) headers: Option<&'a HeaderMap>,
}

impl TransportFacts<'_> {
    /// The address whose share of a limit the message takes; `None` on stdio.
    pub(crate) fn peer_address(&self) -> Option<IpAddr> {
        match self.network {
            Network::Http { client, .. } => client.map(|address| peer_of(address.ip())),
            Network::Stdio => None,
        }
    }

    /// The header fields of the HTTP request that carries the message; `None` on stdio.
    #[must_use]
    pub fn headers(&self) -> Option<&HeaderMap> {
        self.headers
    }
}

/// A function that tells the principal of a message. By default every client is anonymous.
#[derive(Clone, Default)]
pub struct Identify(Option<Arc<IdentifyFn>>);

type IdentifyFn = dyn Fn(&TransportFacts<'_>) -> Principal + Send + Sync;

impl Identify {
    /// Messages are of the principal that `identify` returns. Called once for each message, so it must
    /// not block.
    pub fn by(identify: impl Fn(&TransportFacts<'_>) -> Principal + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(identify)))
    }

    pub(crate) fn principal(&self, facts: &TransportFacts<'_>) -> Principal {
        self.0.as_ref().map_or(Principal::anonymous(), |identify| identify(facts))
    }
}

impl std::fmt::Debug for Identify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Identify").field(&self.0.is_some()).finish()
    }
}
