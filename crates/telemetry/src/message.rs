//! A received or sent message, as spans describe it, and its time.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use fanlight_protocol::{Json, Method};

use crate::{Carriers, Target};

/// A moment by the system clock and by the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    wall: SystemTime,
    steady: Instant,
}

impl Moment {
    /// The current moment.
    pub fn now() -> Self {
        Self {
            wall: SystemTime::now(),
            steady: Instant::now(),
        }
    }

    /// The current moment, with a system time that is derived from this moment. So the later
    /// moments of a message read one clock only, and stay in order even if somebody sets the system
    /// clock.
    pub(crate) fn later(&self) -> Self {
        let steady = Instant::now();
        Self {
            wall: self.wall + steady.saturating_duration_since(self.steady),
            steady,
        }
    }

    /// The time since this moment.
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
    /// The JSON value that a peer chose.
    Json(&'a Json),
    /// A number that Fanlight chose.
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
    /// The method of the message.
    pub method: &'a Method,
    /// The tool, prompt or resource, by the name that the sender uses.
    pub target: Target<'a>,
    /// The request's id; notifications have none.
    pub id: Option<&'a Json>,
    /// When the message arrived, before it was parsed.
    pub received: Moment,
    /// The places of its trace context.
    pub carriers: Carriers<'a>,
}

/// A message that will be sent.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// The method of the message.
    pub method: &'a Method,
    /// The tool, prompt or resource, by the name that the receiver uses.
    pub target: Target<'a>,
    /// The id of the request; notifications have none.
    pub id: Option<Id<'a>>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

/// The transport to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The message came over HTTP.
    Http {
        /// The version of HTTP, such as `1.1` or `2`.
        version: &'static str,
        /// The address of the client, if it may be recorded. If its port is unknown, it is 0.
        client: Option<SocketAddr>,
    },
    /// The message came through the pipes of a process.
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

/// A value of `network.transport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Transport {
    /// The transport of HTTP.
    Tcp,
    /// The transport of stdio.
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
