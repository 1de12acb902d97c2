//! What spans say of a message that came or goes, and when it did.
//!
//! Must not know: how the message travels.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use fanlight_protocol::{Json, Method};

use crate::inbound::Carriers;

/// A moment by both clocks: the one of the world, and the one that never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    wall: SystemTime,
    steady: Instant,
}

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self { wall: SystemTime::now(), steady: Instant::now() }
    }

    /// Now, by what the clock of the world said at this moment: what happens within a message takes
    /// one look at a clock, and stands within it however that clock is set meanwhile.
    pub(crate) fn later(&self) -> Self {
        let steady = Instant::now();
        Self { wall: self.wall + steady.saturating_duration_since(self.steady), steady }
    }

    /// How long ago it was.
    pub(crate) fn elapsed(&self) -> Duration {
        self.steady.elapsed()
    }

    pub(crate) fn wall(&self) -> SystemTime {
        self.wall
    }
}

/// What a message is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target<'a> {
    /// Nothing that has a name.
    #[default]
    None,
    /// A tool.
    Tool(&'a str),
    /// A prompt.
    Prompt(&'a str),
    /// A resource. Its query and user info are not recorded, and it names no span.
    Resource(&'a str),
}

/// The id of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Id<'a> {
    /// As it is written.
    Json(&'a Json),
    /// A number of our own.
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

/// A message that arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its method.
    pub method: &'a Method,
    /// What it is about, by the name the sender uses.
    pub target: Target<'a>,
    /// The request's id; notifications have none.
    pub id: Option<&'a Json>,
    /// When it arrived: before it was read.
    pub received: Moment,
    /// Where its trace context may stand.
    pub carriers: Carriers<'a>,
}

/// A message that is sent.
#[derive(Clone, Copy, Debug)]
pub struct Departure<'a> {
    /// Its method.
    pub method: &'a Method,
    /// What it is about, by the name the receiver uses.
    pub target: Target<'a>,
    /// The id it is sent with; notifications have none.
    pub id: Option<Id<'a>>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

/// The network to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// HTTP.
    Http {
        /// `1.1`, `2`.
        version: &'static str,
        /// The client, where it may be recorded.
        client: Option<SocketAddr>,
    },
    /// Pipes to a process.
    Stdio,
}

impl Network {
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
