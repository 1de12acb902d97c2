//! The reasons why a request is refused.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use fanlight_credentials::Denial;
use fanlight_record::DeniedOperator;

use super::{Known, Worthless};

/// The reason why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The request has no credentials.
    Missing,
    /// The credentials are malformed.
    Malformed(Cow<'static, str>),
    /// The credentials are not accepted.
    Invalid(Cow<'static, str>),
    /// The session of the request has ended.
    SessionOver,
    /// The credentials identify somebody who has no role.
    NoRole(Known),
    /// The peer sent too many wrong credentials.
    Throttled(Duration),
    /// The credentials cannot be checked at the moment.
    Unavailable(Cow<'static, str>),
}

impl Denied {
    /// The entry for the audit log about a refused request from `peer`.
    pub(crate) fn audit_entry(&self, peer: Option<SocketAddr>) -> DeniedOperator<'_> {
        let known = match self {
            Self::NoRole(known) => Some(known),
            _ => None,
        };
        // A page that is opened or left open without a session is no attempt to sign in.
        let is_attempt = !matches!(self, Self::Missing | Self::SessionOver);
        DeniedOperator {
            reason: self.reason(),
            name: known.map(|known| &*known.name),
            principal: known.map(|known| &known.principal),
            is_attempt,
            peer,
        }
    }

    /// The name of the reason in metrics and the log.
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
