//! Responses: JSON values, and refusals with advice.

use std::borrow::Cow;
use std::io;
use std::time::{Duration, SystemTime};

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use fanlight_http::Rejection;
use fanlight_protocol::{Json, epoch, visible};
use fanlight_record::NotRecorded;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;
use serde_json::value::RawValue;

use crate::operator::{Denied, Role};

/// Headers of every response, unless its handler sets them.
const DEFAULTS: [(HeaderName, HeaderValue); 6] = [
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    // Nothing here may be framed by another page.
    (
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
    ),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

/// Adds the default headers to a response.
pub(crate) async fn with_default_headers(mut response: Response) -> Response {
    for (name, value) in DEFAULTS {
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

/// A JSON value.
pub(crate) fn json(value: Json) -> Response {
    ([(CONTENT_TYPE, "application/json")], value.into_bytes()).into_response()
}

/// An answer as JSON.
pub(crate) fn answer(value: &impl Serialize) -> Response {
    json(to_json(value))
}

answers! {
    /// An error.
    pub(crate) struct Error<'a> {
        /// The problem, and a remedy.
        error: &'a str,
    }
}

/// A refusal: a status, and a message with advice.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    message: Cow<'static, str>,
    header: Option<(HeaderName, HeaderValue)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            message: message.into(),
            header: None,
        }
    }

    pub(crate) fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn unavailable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// The path exists, but not for this HTTP method.
    pub(crate) fn method(allowed: &'static str) -> Self {
        let message = format!("this path does not support this HTTP method; it supports {allowed}");
        Self {
            header: Some((ALLOW, HeaderValue::from_static(allowed))),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, message)
        }
    }

    /// The request does not identify an operator.
    pub(crate) fn denied(denied: &Denied) -> Self {
        let how = "sign in at `/ui`, or send `Authorization: Bearer <token>`: a key or token of `auth` to which \
                   `admin.roles` gives a role, or `admin.token` of the configuration";
        let unauthorized = |text: String| {
            let header = Some((
                WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer realm=\"fanlight\""),
            ));
            Self {
                header,
                ..Self::new(StatusCode::UNAUTHORIZED, text)
            }
        };
        match denied {
            Denied::Missing => unauthorized(format!("this needs an operator: {how}")),
            Denied::Invalid(text) => unauthorized(format!("{text}: {how}")),
            Denied::SessionOver => {
                unauthorized(format!("the session of the page has ended: {how}"))
            }
            Denied::Malformed(text) => {
                Self::bad_request(format!("the credentials are malformed: {text}"))
            }
            Denied::NoRole(known) => {
                let name = visible::escaped(&known.name);
                let id = known.principal.id().unwrap_or_default();
                let text = format!(
                    "{name} has no role: `admin.roles` of the configuration lists neither \
                     `user:{}` nor one of its groups; a key for certain endpoints never has a role",
                    visible::escaped(&id)
                );
                Self::new(StatusCode::FORBIDDEN, text)
            }
            Denied::Throttled(wait) => {
                let seconds = wait.as_secs().max(1);
                let text = format!(
                    "too many credentials from your address were not accepted; try again in {seconds} s"
                );
                let header = HeaderValue::try_from(seconds.to_string())
                    .ok()
                    .map(|value| (RETRY_AFTER, value));
                Self {
                    header,
                    ..Self::new(StatusCode::TOO_MANY_REQUESTS, text)
                }
            }
            Denied::Unavailable(text) => Self::unavailable(text.clone()),
        }
    }

    /// The operator's role does not allow the route.
    pub(crate) fn role(needed: Role, has: Role) -> Self {
        let text = format!(
            "this needs the role {needed}, but yours is {has}: ask an operator, or sign in as one"
        );
        Self::new(StatusCode::FORBIDDEN, text)
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        Self::new(rejection.status(), rejection.to_string())
    }
}

impl From<NotRecorded> for Refusal {
    fn from(not_recorded: NotRecorded) -> Self {
        Self::unavailable(not_recorded.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (
            self.status,
            answer(&Error {
                error: &self.message,
            }),
        )
            .into_response();
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// The nesting limit of an answer: the limit of a list of definitions, and the parts around it.
const NESTING: usize = 1024;

/// `value` as JSON, with numbers by [`ShortNumbers`].
pub(crate) fn to_json(value: &impl Serialize) -> Json {
    let mut text = Vec::new();
    // Serialization fails only for keys that are not texts, and no value here has any.
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(
        &mut text,
        ShortNumbers,
    ));
    written
        .ok()
        .and_then(|()| Json::parse(Bytes::from(text), NESTING).ok())
        .unwrap_or_default()
}

/// Milliseconds.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// A time as milliseconds since the Unix epoch.
pub(crate) fn moment(at: SystemTime) -> f64 {
    millis(epoch::since(at))
}

/// A JSON text from a client or server, whose bytes are written unchanged.
pub(crate) struct Verbatim(pub(crate) Json);

impl Serialize for Verbatim {
    /// Writes the text unchanged, or null if it is not JSON: only the structure of long messages
    /// was checked.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<&RawValue>(self.0.as_text())
            .ok()
            .serialize(serializer)
    }
}

/// Writes numbers with at most three decimals.
struct ShortNumbers;

impl Formatter for ShortNumbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let text = format!("{value:.3}");
        writer.write_all(text.trim_end_matches('0').trim_end_matches('.').as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn numbers_are_short_and_valid() {
        for (value, text) in [
            (0.0, "0"),
            (1.5, "1.5"),
            (10.0, "10"),
            (0.0004, "0"),
            (f64::NAN, "null"),
            (1e3, "1000"),
        ] {
            assert_eq!(to_json(&value).as_text(), text);
        }
        assert_eq!(
            to_json(&millis(Duration::from_micros(1234))).as_text(),
            "1.234"
        );
        assert_eq!(
            to_json(&moment(UNIX_EPOCH + Duration::from_secs(1))).as_text(),
            "1000"
        );
    }

    #[test]
    fn texts_of_others_keep_their_bytes_if_they_are_json() {
        let text = r#"{ "n": 1.50, "deep": [[]] }"#;
        assert_eq!(
            to_json(&[Verbatim(Json::literal(text))]).as_text(),
            format!("[{text}]")
        );
        let unchecked = Json::validate_structure(Bytes::from_static(b"[01]"), 8).unwrap();
        assert_eq!(to_json(&Verbatim(unchecked)).as_text(), "null");
    }
}
