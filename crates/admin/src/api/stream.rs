//! Streams of server-sent events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use fanlight_protocol::Json;
use futures_util::stream::{Stream, StreamExt as _};
use http::HeaderName;
use http::header::CACHE_CONTROL;
use tokio::sync::OwnedSemaphorePermit;

use crate::reply::Refusal;
use crate::settings::InForce;

/// A permit for a long-lived stream.
pub(super) fn permit(now: &InForce) -> Result<OwnedSemaphorePermit, Refusal> {
    Arc::clone(&now.followers).try_acquire_owned().map_err(|_| {
        let limit = now.settings.max_followers;
        let message = format!(
            "{limit} event streams are already open, which is the limit: close a page, or try later"
        );
        Refusal::unavailable(message)
    })
}

/// A response with these events.
pub(super) fn response(
    now: &InForce,
    events: impl Stream<Item = Event> + Send + 'static,
) -> Response {
    let keep_alive = KeepAlive::new()
        .interval(now.settings.keep_alive)
        .text("still here");
    let headers = [
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    (
        headers,
        Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(keep_alive),
    )
        .into_response()
}

/// An event with a name.
pub(super) fn event(name: &str, value: &Json) -> Event {
    Event::default()
        .event(name)
        .data(value.on_one_line().as_text())
}
