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
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{Admin, InForce, Operator, Refusal, event_interval};

/// A long-lived answer to an operator, with the events that end it.
pub(super) struct Watch {
    pub(super) admin: Arc<Admin>,
    operator: Operator,
    disallowed: CancellationToken,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Watch {
    /// A response outside the limit of event streams.
    pub(super) fn new(admin: &Arc<Admin>, now: &InForce, operator: Operator) -> Self {
        Self {
            admin: Arc::clone(admin),
            operator,
            disallowed: now.ended.clone(),
            _permit: None,
        }
    }

    /// An event stream; refused if too many are open.
    pub(super) fn follower(
        admin: &Arc<Admin>,
        now: &InForce,
        operator: Operator,
    ) -> Result<Self, Refusal> {
        Ok(Self {
            _permit: Some(permit(now)?),
            ..Self::new(admin, now, operator)
        })
    }

    /// Waits until the answer has to end, and says why.
    pub(super) async fn ended(&self) -> &'static str {
        tokio::select! {
            biased;
            () = self.admin.shutdown.cancelled() => "gateway-ended",
            () = self.disallowed.cancelled() => "stopped",
            () = self.operator.ended() => "stopped",
        }
    }

    /// Whether the operator may still have the answer.
    pub(super) async fn is_in_force(&self) -> bool {
        self.admin.is_in_force(&self.operator).await
    }
}

/// The moments at which a stream looks for news.
pub(super) fn ticks() -> Interval {
    let mut ticks = interval(event_interval());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

fn permit(now: &InForce) -> Result<OwnedSemaphorePermit, Refusal> {
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
