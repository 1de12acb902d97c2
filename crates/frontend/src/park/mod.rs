//! A modern client's call. The server behind it may ask something while it runs, which this client
//! cannot be asked: it is told by the answer, a wish for input, and comes back with the input in a
//! new request. Between the two the call is *parked*: held, and read, but answered to nobody.
//!
//! docs/eras.md has the states of a parked call. Source: 2026-07-28 basic/patterns/mrtr. Must not
//! know: transports.

mod again;
mod held;
mod state;
mod table;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use fanlight_canonical::ServerMessage;
use fanlight_protocol::{Json, Method};
use fanlight_telemetry::Parent;
use tokio::time::{Sleep, sleep};

use self::held::Held;
pub(crate) use self::table::{Parking, Resumed, Retry};
use crate::cancel::Stop;
use crate::event::Event;
use crate::notify::Subscription;
use crate::running::{self, Running};

/// How long it is waited for another question after each: a server that asks for several things at once
/// sends them one after the other.
const MORE: Duration = Duration::from_millis(20);

/// A call on its way that can be parked when the server asks something.
#[derive(Debug)]
pub(crate) struct Parkable {
    /// `None` once it is answered or parked.
    held: Option<Box<Held>>,
    /// What the client wants of notifications; `None` if there is no way to give it any.
    subscription: Option<Subscription>,
    /// Where it is parked; `None` if the method is none that may be answered with a wish for input.
    parking: Option<Arc<Parking>>,
    /// Runs while more questions may follow.
    more: Option<Pin<Box<Sleep>>>,
}

impl Parkable {
    /// A call that begins: `running` is that of `method` with `params`.
    pub(crate) fn new(
        running: Running,
        method: Method,
        params: Option<Json>,
        subscription: Option<Subscription>,
        parking: Option<Arc<Parking>>,
    ) -> Self {
        let held = Box::new(Held::new(running, method, params));
        Self { held: Some(held), subscription, parking, more: None }
    }

    /// A call that goes on, for the request that brought the input; that one may have other
    /// capabilities, want other notifications, and be cancelled by another id.
    pub(crate) fn resumed(
        mut held: Box<Held>,
        capabilities: Json,
        subscription: Option<Subscription>,
        stop: Option<Stop>,
        parking: Arc<Parking>,
    ) -> Self {
        held.renew(capabilities);
        held.running.set_stop(stop);
        Self { held: Some(held), subscription, parking: Some(parking), more: None }
    }

    /// What the server sends from now on is told on this span.
    pub(crate) fn set_trace(&mut self, trace: Parent) {
        if let Some(held) = &mut self.held {
            held.running.set_trace(trace);
        }
    }

    /// What the client is sent next.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        loop {
            let Some(held) = &mut self.held else { return Poll::Ready(Event::Cancelled) };
            let next = match held.next_kept() {
                Some(kept) => Poll::Ready(kept),
                None => held.running.poll_next(cx),
            };
            match next {
                Poll::Ready(running::Event::Message(ServerMessage::Notification(notification))) => {
                    let text = self.subscription.as_ref().and_then(|wanted| wanted.translate(notification));
                    if let Some(text) = text {
                        return Poll::Ready(Event::Message(text));
                    }
                }
                Poll::Ready(running::Event::Message(ServerMessage::Request(question))) => {
                    // Without a place to park, dropping it tells the server that nobody can be asked.
                    if let Some(parking) = &self.parking {
                        held.ask(question, parking.max_questions());
                        self.more = None;
                    }
                }
                Poll::Ready(running::Event::Message(ServerMessage::Refused(missing))) => held.note_missing(missing),
                Poll::Ready(running::Event::Message(ServerMessage::Pause { .. })) => {}
                Poll::Ready(running::Event::Response(response)) => {
                    let response = again::concluded(held, response, self.parking.as_deref());
                    self.held = None;
                    return Poll::Ready(Event::Response(response));
                }
                Poll::Ready(running::Event::Cancelled) => {
                    self.held = None;
                    return Poll::Ready(Event::Cancelled);
                }
                // What is asked at once goes out together.
                Poll::Pending if held.has_questions() => {
                    ready!(self.more.get_or_insert_with(|| Box::pin(sleep(MORE))).as_mut().poll(cx));
                    self.more = None;
                    match self.park() {
                        Some(event) => return Poll::Ready(event),
                        None => continue,
                    }
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Parks the call and answers with what is asked; `None` if that cannot be, and then the
    /// server has been told so.
    fn park(&mut self) -> Option<Event> {
        match self.parking.as_ref()?.park(self.held.take()?) {
            Ok(response) => Some(Event::Response(response)),
            Err(mut held) => {
                held.refuse_questions();
                self.held = Some(held);
                None
            }
        }
    }
}
