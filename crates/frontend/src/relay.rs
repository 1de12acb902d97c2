//! A legacy client's call: what a server sends meanwhile reaches the client on the call's own
//! stream, questions included.
//!
//! The answers come in by other messages of the client, through its session. Questions end with
//! their call, and when nobody relays it any more: then the server is told that the client cannot
//! be asked.
//!
//! Source: 2025-11-25 basic/transports, Sending Messages to the Server. Must not know: transports.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use fanlight_canonical::{ServerMessage, ServerRequest};
use fanlight_protocol::json::Chunks;

use crate::event::Event;
use crate::notify::Subscription;
use crate::running::{self, Running};
use crate::session::Session;

/// A call on its way, and the questions asked during it.
#[derive(Debug)]
pub(crate) struct Relay {
    running: Running,
    subscription: Subscription,
    session: Arc<Session>,
    /// The numbers of those that this call has open.
    open: Vec<u64>,
    /// What goes to the client before anything else of the call.
    outbox: VecDeque<Chunks>,
    end: Option<Event>,
}

impl Relay {
    /// Relays what comes of `running` to the client of `session`.
    pub(crate) fn new(running: Running, subscription: Subscription, session: Arc<Session>) -> Self {
        Self { running, subscription, session, open: Vec::new(), outbox: VecDeque::new(), end: None }
    }

    /// What the client is sent next.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        loop {
            if let Some(message) = self.outbox.pop_front() {
                return Poll::Ready(Event::Message(message));
            }
            if let Some(end) = self.end.take() {
                return Poll::Ready(end);
            }
            match self.running.poll_next(cx) {
                Poll::Ready(running::Event::Message(ServerMessage::Notification(notification))) => {
                    // Whatever goes before it has gone.
                    if let Some(text) = self.subscription.translate(notification) {
                        return Poll::Ready(Event::Message(text));
                    }
                }
                Poll::Ready(running::Event::Message(ServerMessage::Request(question))) => self.ask(question),
                Poll::Ready(running::Event::Message(ServerMessage::Pause { retry })) => {
                    return Poll::Ready(Event::Pause(retry));
                }
                Poll::Ready(running::Event::Message(ServerMessage::Refused(_))) => {}
                // Nearly always it has asked nothing.
                Poll::Ready(running::Event::Response(response)) if self.open.is_empty() => {
                    return Poll::Ready(Event::Response(response));
                }
                Poll::Ready(running::Event::Response(response)) => self.finish(Event::Response(response)),
                Poll::Ready(running::Event::Cancelled) => self.finish(Event::Cancelled),
                Poll::Pending => {
                    self.notice_withdrawn(cx);
                    if self.outbox.is_empty() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    fn ask(&mut self, question: ServerRequest) {
        if let Some((number, text)) = self.session.ask(question) {
            self.open.push(number);
            self.outbox.push_back(text.into_bytes().into());
        }
    }

    fn notice_withdrawn(&mut self, cx: &mut Context<'_>) {
        let Self { session, open, outbox, .. } = self;
        open.retain(|number| match session.questions.poll_open(*number, cx) {
            Ok(is_open) => is_open,
            Err(cancelled) => {
                outbox.push_back(cancelled.into_bytes().into());
                false
            }
        });
    }

    fn finish(&mut self, end: Event) {
        let withdrawn = self.open.drain(..).filter_map(|number| self.session.questions.withdraw(number));
        self.outbox.extend(withdrawn.map(|text| Chunks::from(text.into_bytes())));
        self.end = Some(end);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        for number in self.open.drain(..) {
            drop(self.session.questions.withdraw(number));
        }
    }
}
