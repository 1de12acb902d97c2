//! What a scripted server over HTTP wants to be shown before it takes a message.

use std::sync::Arc;

use http::StatusCode;

use super::Received;

/// How a server is protected. Messages that it refuses are recorded as those of the method [`REFUSED`].
#[derive(Clone)]
pub struct Protection {
    /// What it says of how it is protected (RFC 9728), at the well-known place with its path; `None` for nothing.
    pub resource: Option<String>,
    /// The challenge of what it refuses.
    pub challenge: String,
    /// Whether it takes a message.
    pub accepts: Arc<dyn Fn(&Received) -> Verdict + Send + Sync>,
}

/// What becomes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is taken.
    Accepted,
    /// It is refused with 401 and the challenge.
    Unauthorized,
    /// It is refused with this status and these header fields.
    Refused(u16, Vec<(&'static str, String)>),
}

/// The method of refused messages in the record.
pub const REFUSED: &str = "refused";

impl Protection {
    /// One that takes bearer tokens that `is_valid` and names the authorization server with this issuer.
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

    /// The status and header fields with which it refuses a message, if it does.
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
