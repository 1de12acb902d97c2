//! Responses: JSON values, and refusals with advice.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use fanlight_http::Rejection;
use fanlight_protocol::{Json, visible};
use fanlight_record::NotRecorded;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderName, HeaderValue, StatusCode};
use serde::Serialize;

use crate::operator::{Denied, Role};
use crate::values::to_json;

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
            Denied::Unavailable(text) => Self::new(StatusCode::SERVICE_UNAVAILABLE, text.clone()),
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
        Self::new(StatusCode::SERVICE_UNAVAILABLE, not_recorded.to_string())
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
