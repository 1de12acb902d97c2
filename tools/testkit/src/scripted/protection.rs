//! The credentials that a scripted HTTP server requires before it accepts a message.

use std::sync::Arc;

use http::StatusCode;

use super::Received;

/// The protection of a server. Refused messages are recorded with the method [`REFUSED`].
#[derive(Clone)]
pub struct Protection {
    /// The protected resource metadata (RFC 9728), published at the well-known place with its path;
    /// `None` for none.
    pub resource: Option<String>,
    /// The challenge in its refusals.
    pub challenge: String,
    /// Decides whether to accept a message.
    pub accepts: Arc<dyn Fn(&Received) -> Verdict + Send + Sync>,
}

/// The decision about a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The message is accepted.
    Accepted,
    /// The message is refused with 401 and the challenge.
    Unauthorized,
    /// The message is refused with this status and these header fields.
    Refused(u16, Vec<(&'static str, String)>),
}

/// The recorded method of refused messages.
pub const REFUSED: &str = "refused";

impl Protection {
    /// A protection by bearer tokens that `is_valid` accepts; it names the authorization server
    /// with this issuer.
    pub fn by_token(
        server: &str,
        issuer: &str,
        is_valid: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        let resource = format!(r#"{{"resource":"{server}","authorization_servers":["{issuer}"]}}"#);
        let accepts = move |received: &Received| match received.header("authorization") {
            Some(shown) if shown.strip_prefix("Bearer ").is_some_and(&is_valid) => {
                Verdict::Accepted
            }
            _ => Verdict::Unauthorized,
        };
        Self {
            resource: Some(resource),
            challenge: "Bearer".to_owned(),
            accepts: Arc::new(accepts),
        }
    }

    /// The status and header fields of the refusal, if it refuses the message.
    pub(super) fn refusal(
        &self,
        received: &Received,
    ) -> Option<(StatusCode, Vec<(&'static str, String)>)> {
        match (self.accepts)(received) {
            Verdict::Accepted => None,
            Verdict::Unauthorized => Some((
                StatusCode::UNAUTHORIZED,
                vec![("www-authenticate", self.challenge.clone())],
            )),
            Verdict::Refused(status, headers) => {
                Some((StatusCode::from_u16(status).unwrap(), headers))
            }
        }
    }
}
