//! Why a request is not served.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use fanlight_canonical::credentials::Denial;
use fanlight_record::DeniedOperator;

use super::{Known, Worthless};

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// It shows nothing.
    Missing,
    /// What it shows is not well-formed.
    Malformed(Cow<'static, str>),
    /// What it shows is not accepted.
    Invalid(Cow<'static, str>),
    /// Its session has ended.
    SessionOver,
    /// Who makes it is known, and has no role.
    NoRole(Known),
    /// Too much of its peer was not accepted.
    Throttled(Duration),
    /// It cannot be checked at the moment.
    Unavailable(Cow<'static, str>),
}

impl Denied {
    /// What is put on record of it, of a request from `peer`.
    pub(crate) fn on_record(&self, peer: Option<SocketAddr>) -> DeniedOperator<'_> {
        let known = match self {
            Self::NoRole(known) => Some(known),
            _ => None,
        };
        // A page that is opened, or left open, without a session is no attempt.
        let is_attempt = !matches!(self, Self::Missing | Self::SessionOver);
        DeniedOperator {
            reason: self.reason(),
            name: known.map(|known| &*known.name),
            principal: known.map(|known| &known.principal),
            is_attempt,
            peer,
        }
    }

    /// Its name in metrics and the log.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed(_) => "malformed",
            Self::Invalid(_) => "invalid",
            Self::SessionOver => "session_over",
            Self::NoRole(_) => "no_role",
            Self::Throttled(_) => "throttled",
            Self::Unavailable(_) => "unavailable",
        }
    }
}

impl From<Worthless> for Denied {
    fn from(worthless: Worthless) -> Self {
        match worthless {
            Worthless::Unaccepted => Self::Invalid("these credentials are not accepted".into()),
            Worthless::NoRole(known) => Self::NoRole(known),
        }
    }
}

impl From<Denial> for Denied {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::Missing => Self::Missing,
            Denial::Malformed(text) => Self::Malformed(text),
            Denial::Invalid(text) | Denial::InvalidProof(text) | Denial::Forbidden(text) => {
                Self::Invalid(text)
            }
            Denial::Throttled { retry_after } => Self::Throttled(retry_after),
            Denial::Unavailable(text) => Self::Unavailable(text),
        }
    }
}
