//! Responses: JSON values, and refusals that say what to do.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use fanlight_http_edge::Rejection;
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, REFERRER_POLICY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, StatusCode};

/// Headers of every response, unless its handler has set them.
const DEFAULTS: [(HeaderName, HeaderValue); 4] = [
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
];

/// Adds the headers that every response has.
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

/// A refusal: a status, and a message that says what to do.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    message: Cow<'static, str>,
    header: Option<(HeaderName, &'static str)>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, message: message.into(), header: None }
    }

    pub(crate) fn bad_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// The path exists, but not for this HTTP method.
    pub(crate) fn method(allowed: &'static str) -> Self {
        let message = format!("this HTTP method is not served here; {allowed} are");
        Self { header: Some((ALLOW, allowed)), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, message) }
    }

    /// The token is missing or wrong.
    pub(crate) fn unauthorized() -> Self {
        let message =
            "this needs the token that the configuration has as `admin.token`: `Authorization: Bearer <token>`";
        let header = Some((WWW_AUTHENTICATE, "Bearer realm=\"fanlight\""));
        Self { header, ..Self::new(StatusCode::UNAUTHORIZED, message) }
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        Self::new(rejection.status(), rejection.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut object = ObjectBuilder::new();
        object.string("error", &self.message);
        let mut response = (self.status, json(object.finish())).into_response();
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}
