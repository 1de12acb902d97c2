//! A running request of a client's session, with its ids on both sides.

use std::sync::{Arc, OnceLock};

use fanlight_protocol::{Json, Notification};
use parking_lot::Mutex;

/// A running request of a client's session. The client edge creates it, and the server edge records
/// how the request was sent. So a client notification that names the request can follow it.
#[derive(Debug, Default)]
pub struct SessionRequest {
    progress_token: Option<Json>,
    sent: Mutex<Sent>,
    /// The client's reason for cancelling it, a string.
    pub cancel_reason: OnceLock<Json>,
}

#[derive(Debug, Default)]
enum Sent {
    #[default]
    NotYet,
    To {
        backend: Arc<str>,
        named: SentAs,
    },
    /// The request went to several servers, so an id on the client's side has no single
    /// counterpart.
    ToSeveral,
}

/// The server's ids for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentAs {
    /// The request id.
    pub id: i64,
    /// The progress token, if there is one.
    pub token: Option<i64>,
}

impl SessionRequest {
    /// A request with the client's own progress token.
    pub fn new(progress_token: Option<Json>) -> Self {
        Self {
            progress_token,
            ..Self::default()
        }
    }

    /// The client's own progress token.
    pub fn progress_token(&self) -> Option<&Json> {
        self.progress_token.as_ref()
    }

    /// Records that the request has been sent to a server.
    pub fn sent_to(&self, backend: &Arc<str>, named: SentAs) {
        let mut sent = self.sent.lock();
        *sent = match &*sent {
            Sent::To { backend: known, .. } if known != backend => Sent::ToSeveral,
            Sent::ToSeveral => Sent::ToSeveral,
            Sent::To { .. } | Sent::NotYet => Sent::To {
                backend: Arc::clone(backend),
                named,
            },
        };
    }

    /// The server's ids for the request, if it was sent to this server alone.
    pub fn ids_at(&self, backend: &str) -> Option<SentAs> {
        match &*self.sent.lock() {
            Sent::To {
                backend: known,
                named,
            } if **known == *backend => Some(*named),
            _ => None,
        }
    }
}

impl SentAs {
    /// Puts the server's ids into a notification that names the request. `None` if it names a token
    /// that the server does not have.
    #[must_use]
    pub fn rename(self, notification: &Notification) -> Option<Notification> {
        let number = |number: i64| Json::parse(number.to_string().into(), 1).ok();
        let renamed = notification.with_param("requestId", &number(self.id)?);
        if notification.param("progressToken").is_none() {
            return Some(renamed);
        }
        Some(renamed.with_param("progressToken", &number(self.token?)?))
    }
}

#[cfg(test)]
mod tests {
    use fanlight_protocol::Method;

    use super::*;

    #[test]
    fn request_is_known_to_the_only_backend_that_it_was_sent_to() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let (request, first) = (SessionRequest::new(None), SentAs { id: 1, token: None });
        assert_eq!(request.ids_at("a"), None);
        request.sent_to(&a, first);
        assert_eq!(
            (request.ids_at("a"), request.ids_at("b")),
            (Some(first), None)
        );
        let again = SentAs {
            id: 7,
            token: Some(7),
        };
        request.sent_to(&a, again);
        assert_eq!(request.ids_at("a"), Some(again));
        request.sent_to(&b, first);
        assert_eq!((request.ids_at("a"), request.ids_at("b")), (None, None));
        request.sent_to(&a, again);
        assert_eq!(request.ids_at("a"), None);
    }

    #[test]
    fn notification_gets_the_names_of_the_server() {
        let notification = |params: &'static str| {
            Notification::new(
                Method::from_name("notifications/x"),
                Some(&Json::literal(params)),
            )
        };
        let renamed = |named: SentAs, params| {
            Some(
                named
                    .rename(&notification(params))?
                    .params()?
                    .as_text()
                    .to_owned(),
            )
        };
        let both = SentAs {
            id: 7,
            token: Some(9),
        };
        let params = r#"{ "k":1E400,"progressToken":"c", "requestId":1}"#;
        assert_eq!(
            renamed(both, params).unwrap(),
            r#"{ "k":1E400,"progressToken":9, "requestId":7}"#
        );
        let no_token = SentAs { id: 7, token: None };
        assert_eq!(renamed(no_token, params), None);
        assert_eq!(
            renamed(no_token, r#"{"requestId":"r"}"#).unwrap(),
            r#"{"requestId":7}"#
        );
    }
}
