//! Responses: whole texts, streams of events, and refusals that say what to do.
//!
//! Must not know: what is asked.

use std::convert::Infallible;

use bytes::Bytes;
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use futures_util::Stream;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, LOCATION, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;

/// What is sent.
pub(crate) type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A whole text.
pub(crate) fn text(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Reply {
    let mut response = Response::new(Full::new(text.into()).boxed_unsync());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    headers.insert(HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));
    headers.insert(HeaderName::from_static("referrer-policy"), HeaderValue::from_static("no-referrer"));
    response
}

/// A JSON value.
pub(crate) fn json(value: Json) -> Reply {
    text(StatusCode::OK, "application/json", value.into_bytes())
}

/// A stream of server-sent events.
pub(crate) fn events(stream: impl Stream<Item = Bytes> + Send + 'static) -> Reply {
    use futures_util::StreamExt as _;
    let body = StreamBody::new(stream.map(|chunk| Ok::<_, Infallible>(Frame::data(chunk))));
    let mut response = text(StatusCode::OK, "text/event-stream", Bytes::new());
    *response.body_mut() = body.boxed_unsync();
    response.headers_mut().insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// Somewhere else.
pub(crate) fn moved(to: &'static str) -> Reply {
    let mut response = text(StatusCode::PERMANENT_REDIRECT, "text/plain; charset=utf-8", to);
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    response
}

/// A refusal in words.
pub(crate) fn refused(status: StatusCode, message: &str) -> Box<Reply> {
    let mut object = ObjectBuilder::new();
    object.string("error", message);
    Box::new(text(status, "application/json", object.finish().into_bytes()))
}

/// There is something, but not by this HTTP method.
pub(crate) fn method(allow: &'static str) -> Box<Reply> {
    let message = format!("this HTTP method is not served here; {allow} are");
    let mut response = refused(StatusCode::METHOD_NOT_ALLOWED, &message);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
    response
}

/// The token is missing or another.
pub(crate) fn unauthorized() -> Box<Reply> {
    let message = "this needs the token that the configuration has as `admin.token`: `Authorization: Bearer <token>`";
    let mut response = refused(StatusCode::UNAUTHORIZED, message);
    response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"fanlight\""));
    response
}
