//! The limits of client connections. They can change while clients are served; new per-connection
//! limits apply to connections accepted afterwards.

use std::sync::Arc;
use std::time::Duration;

use crate::forwarding::{LARGEST_WINDOW, LONGEST_ENVELOPE};
use arc_swap::ArcSwap;
use fanlight_fair::limit;
use fanlight_http::{AcceptLimits, Admissions};

use super::events::listeners::ListenOnlyStreams;
use crate::settings::FrontendSettings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// Time for the head of one request.
    pub(crate) header_timeout: Duration,
    /// How long the first request of a new connection may take if the server shuts down meanwhile.
    pub(crate) first_request: Duration,
    /// The longest time without a request.
    pub(crate) idle_timeout: Duration,
    /// How long the client may read nothing of a response.
    pub(crate) write_timeout: Duration,
    /// Bytes per second; a client that reads this fast never counts as stuck.
    pub(crate) write_rate: u32,
    /// The longest silence before a ping, on HTTP/2.
    pub(crate) keep_alive: Duration,
    /// The longest time for the answer to a ping, on HTTP/2.
    pub(crate) http2_ping: Duration,
    /// The largest request head, in bytes.
    pub(crate) max_header: usize,
    /// The maximum number of concurrent requests on HTTP/2.
    pub(crate) http2_streams: u32,
    /// The maximum number of body bytes of all requests in flight or unread, on HTTP/2.
    pub(crate) http2_window: u32,
    /// The number of requests cancelled before processing that ends the connection, on HTTP/2.
    pub(crate) http2_resets: usize,
}

/// The maximum size of a piece that hyper gets at once, and that waits inside hyper for one HTTP/2
/// stream.
pub(crate) const PIECE: usize = 64 << 10;

/// The h2 crate's default, against clients that cancel again and again.
const RESETS: usize = 20;

/// The h2 crate's default, also for the body of each request.
const WINDOW: u32 = 1 << 20;

/// The bytes of a head besides the envelope.
const BESIDES_ENVELOPE: usize = 4 << 10;

/// Bytes per second that a client must read on average; a slower one counts as one that reads nothing.
const WRITE_RATE: u32 = 1 << 10;

/// The time for a client's answer to a ping on its HTTP/2 connection; without one, the connection is closed.
const HTTP2_PING: Duration = Duration::from_secs(20);

/// The maximum number of concurrent requests on one HTTP/2 connection.
const HTTP2_STREAMS: u32 = 100;

impl From<&FrontendSettings> for ConnectionLimits {
    fn from(settings: &FrontendSettings) -> Self {
        Self {
            header_timeout: settings.header_timeout,
            first_request: limit("firstRequest", Duration::from_millis(500)),
            idle_timeout: settings.idle_connection,
            write_timeout: settings.write_timeout,
            write_rate: WRITE_RATE,
            keep_alive: settings.keep_alive,
            http2_ping: HTTP2_PING,
            max_header: settings.max_header,
            http2_streams: HTTP2_STREAMS,
            http2_window: WINDOW,
            http2_resets: RESETS,
        }
    }
}

impl ConnectionLimits {
    /// The limits of another replica's connection, which carries the requests of many clients. No
    /// single client can end it. The replica that has the client's connection bounds how long the
    /// client may read nothing.
    fn new_shared(settings: &FrontendSettings) -> Self {
        let http2_streams = u32::try_from(settings.max_connections).unwrap_or(u32::MAX);
        let between = Duration::from_secs(4 * PIECE as u64) / WRITE_RATE;
        Self {
            max_header: LONGEST_ENVELOPE + BESIDES_ENVELOPE,
            http2_streams,
            // An unread body must not block another.
            http2_window: LARGEST_WINDOW,
            http2_resets: settings.max_connections,
            write_timeout: settings.write_timeout.saturating_add(between),
            ..Self::from(settings)
        }
    }
}

/// The limits of an HTTP listener that can change while it serves.
#[derive(Debug)]
pub struct LiveLimits {
    each: ArcSwap<ConnectionLimits>,
    pub(crate) admissions: Admissions,
    pub(crate) streams: ListenOnlyStreams,
}

impl LiveLimits {
    /// The limits in `settings`.
    pub fn new(settings: &FrontendSettings) -> Arc<Self> {
        Self::with(settings.into(), settings)
    }

    /// The limits of the listener for other replicas, which may open as many connections as they
    /// need.
    pub(crate) fn for_replicas(settings: &FrontendSettings) -> Arc<Self> {
        let any_number = FrontendSettings {
            max_peer_connections: 0,
            ..settings.clone()
        };
        Self::with(ConnectionLimits::new_shared(settings), &any_number)
    }

    fn with(each: ConnectionLimits, settings: &FrontendSettings) -> Arc<Self> {
        Arc::new(Self {
            each: ArcSwap::from_pointee(each),
            admissions: Admissions::new(accept_limits(settings)),
            streams: ListenOnlyStreams::new(settings.stream_limit()),
        })
    }

    /// Applies the limits in `settings`. The maximum numbers of connections and streams change at
    /// once, without ending any; other limits apply to new connections.
    pub fn replace(&self, settings: &FrontendSettings) {
        self.each.store(Arc::new(settings.into()));
        self.admissions.set_limits(accept_limits(settings));
        self.streams.resize(settings.stream_limit());
    }

    /// The limits for a connection that is accepted now.
    pub(crate) fn connection_limits(&self) -> Arc<ConnectionLimits> {
        self.each.load_full()
    }
}

fn accept_limits(settings: &FrontendSettings) -> AcceptLimits {
    AcceptLimits {
        connections: settings.max_connections,
        waiting: settings.max_waiting_connections,
        longest_wait: settings.idle_connection,
        reserve: 0,
        per_peer: settings.max_peer_connections,
        name: "limits.connections client",
    }
}
