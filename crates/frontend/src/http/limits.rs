//! The limits of client connections, which can change while clients are served: what concerns one connection, for those
//! that are accepted from then on.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use fanlight_forwarding::{LARGEST_WINDOW, LONGEST_ENVELOPE};
use fanlight_http_edge::{AcceptLimits, Admissions};

use super::events::listeners::ListenOnlyStreams;
use crate::settings::FrontendSettings;

/// The limits of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// Time for the head of one request.
    pub(crate) header_timeout: Duration,
    /// How long its first request may take after it was accepted, if it is to end meanwhile.
    pub(crate) first_request: Duration,
    /// How long it may carry no request.
    pub(crate) idle_timeout: Duration,
    /// How long its client may take nothing of what it is sent.
    pub(crate) write_timeout: Duration,
    /// Bytes a second: a client that reads as many never counts as stuck.
    pub(crate) write_rate: u32,
    /// How long it may be silent before a ping, on HTTP/2.
    pub(crate) keep_alive: Duration,
    /// How long its client may take to answer a ping, on HTTP/2.
    pub(crate) http2_ping: Duration,
    /// The largest request head, in bytes.
    pub(crate) max_header: usize,
    /// Requests at once on HTTP/2.
    pub(crate) http2_streams: u32,
    /// Bytes of the bodies of all requests that are on their way or not read yet, on HTTP/2.
    pub(crate) http2_window: u32,
    /// Requests that were cancelled before they were looked at and end the connection, on HTTP/2.
    pub(crate) http2_resets: usize,
}

/// Most bytes of a response that are given to the HTTP library at once, and that wait within it for one HTTP/2 stream.
pub(crate) const PIECE: usize = 64 << 10;

/// What the HTTP/2 library has by default, against clients that cancel on and on.
const RESETS: usize = 20;

/// What the HTTP/2 library has by default, also for the body of each request.
const WINDOW: u32 = 1 << 20;

/// Bytes of a head besides the envelope.
const BESIDES_ENVELOPE: usize = 4 << 10;

impl From<&FrontendSettings> for ConnectionLimits {
    fn from(settings: &FrontendSettings) -> Self {
        Self {
            header_timeout: settings.header_timeout,
            first_request: settings.first_request,
            idle_timeout: settings.idle_connection,
            write_timeout: settings.write_timeout,
            write_rate: settings.write_rate,
            keep_alive: settings.keep_alive,
            http2_ping: settings.http2_ping,
            max_header: settings.max_header,
            http2_streams: settings.http2_streams,
            http2_window: WINDOW,
            http2_resets: RESETS,
        }
    }
}

impl ConnectionLimits {
    /// Those of a connection with the requests of many clients, which another replica passes on: none of them can have it end. How
    /// long a client may take nothing is bounded where it is connected.
    pub(crate) fn of_many(settings: &FrontendSettings) -> Self {
        let http2_streams = u32::try_from(settings.max_connections).unwrap_or(u32::MAX);
        let between = Duration::from_secs(4 * PIECE as u64) / settings.write_rate.max(1);
        Self {
            max_header: LONGEST_ENVELOPE + BESIDES_ENVELOPE,
            http2_streams,
            // No body that waits to be read holds up another.
            http2_window: LARGEST_WINDOW,
            http2_resets: settings.max_connections,
            write_timeout: settings.write_timeout.saturating_add(between),
            ..Self::from(settings)
        }
    }
}

/// The limits of an HTTP listener that can be changed while it serves.
#[derive(Debug)]
pub struct LiveLimits {
    each: ArcSwap<ConnectionLimits>,
    admissions: Admissions,
    /// Bounds the listen-only streams.
    streams: ListenOnlyStreams,
}

impl LiveLimits {
    /// Those of `settings`.
    #[must_use]
    pub fn new(settings: &FrontendSettings) -> Arc<Self> {
        Self::with(settings.into(), settings)
    }

    /// Those of the listener for other replicas, which have as many connections as they need.
    pub(crate) fn of_replicas(settings: &FrontendSettings) -> Arc<Self> {
        let any_number = FrontendSettings {
            max_peer_connections: 0,
            ..settings.clone()
        };
        Self::with(ConnectionLimits::of_many(settings), &any_number)
    }

    fn with(each: ConnectionLimits, settings: &FrontendSettings) -> Arc<Self> {
        Arc::new(Self {
            each: ArcSwap::from_pointee(each),
            admissions: Admissions::new(accept_limits(settings)),
            streams: ListenOnlyStreams::new(settings.stream_limit()),
        })
    }

    /// Has the limits of `settings` take effect: on the number of connections and streams at once, without ending any, and
    /// otherwise on connections that are accepted from now on.
    pub fn replace(&self, settings: &FrontendSettings) {
        self.each.store(Arc::new(settings.into()));
        self.admissions.set_limits(accept_limits(settings));
        self.streams.resize(settings.stream_limit());
    }

    /// The limits of a connection that is accepted now.
    pub(crate) fn of_connection(&self) -> Arc<ConnectionLimits> {
        self.each.load_full()
    }

    pub(crate) fn admissions(&self) -> &Admissions {
        &self.admissions
    }

    pub(crate) fn streams(&self) -> &ListenOnlyStreams {
        &self.streams
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
