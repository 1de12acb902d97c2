//! A message as spans describe it: received or sent, and when.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use fanlight_protocol::{Json, Method};

use crate::inbound::Carriers;
use crate::subject::Target;

/// A moment by the system clock and by the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    wall: SystemTime,
    steady: Instant,
}

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self {
            wall: SystemTime::now(),
            steady: Instant::now(),
        }
    }

    /// Now, with the system time derived from this moment: later moments of a message read one clock only, and stay in
    /// order even if the system clock is set meanwhile.
    pub(crate) fn later(&self) -> Self {
        let steady = Instant::now();
        Self {
            wall: self.wall + steady.saturating_duration_since(self.steady),
            steady,
        }
    }

    /// How long ago it was.
    pub(crate) fn elapsed(&self) -> Duration {
        self.steady.elapsed()
    }

    pub(crate) fn wall(&self) -> SystemTime {
        self.wall
    }
}

/// The id of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Id<'a> {
    /// The JSON value of a peer.
    Json(&'a Json),
    /// A number of Fanlight.
    Number(i64),
}

impl<'a> From<&'a Json> for Id<'a> {
    fn from(id: &'a Json) -> Self {
        Self::Json(id)
    }
}

impl From<i64> for Id<'_> {
    fn from(id: i64) -> Self {
        Self::Number(id)
    }
}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its method.
    pub method: &'a Method,
    /// The tool, prompt or resource, by the name that the sender uses.
    pub target: Target<'a>,
    /// The request's id; notifications have none.
    pub id: Option<&'a Json>,
    /// When it arrived, before it was parsed.
    pub received: Moment,
    /// Where its trace context may be.
    pub carriers: Carriers<'a>,
}

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// Its method.
    pub method: &'a Method,
    /// The tool, prompt or resource, by the name that the receiver uses.
    pub target: Target<'a>,
    /// The id of the request; notifications have none.
    pub id: Option<Id<'a>>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

/// The transport to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// HTTP.
    Http {
        /// `1.1`, `2`.
        version: &'static str,
        /// The address of the client, if it may be recorded; with port 0 where that is unknown.
        client: Option<SocketAddr>,
    },
    /// Pipes to a process.
    Stdio,
}

impl Network {
    /// The version of HTTP.
    pub(crate) fn http_version(self) -> Option<&'static str> {
        match self {
            Self::Http { version, .. } => Some(version),
            Self::Stdio => None,
        }
    }

    pub(crate) fn transport(self) -> Transport {
        match self {
            Self::Http { .. } => Transport::Tcp,
            Self::Stdio => Transport::Pipe,
        }
    }
}

/// `network.transport`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transport {
    /// For HTTP.
    Tcp,
    /// For stdio.
    Pipe,
}

impl Transport {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Pipe => "pipe",
        }
    }
}
