//! A legacy client's call. The server's notifications and requests to the client are sent on the call's
//! own stream; the client's answers arrive as other messages, through its session.
//!
//! Server requests end with a call that is cancelled or dropped: then the server gets an error that says that the client
//! cannot be asked. If the server ends the call, the client can still answer them.
//!
//! Source: 2025-11-25 basic/transports, Sending Messages to the Server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use fanlight_canonical::{ServerMessage, ServerRequest};
use fanlight_protocol::Response;
use fanlight_protocol::json::Chunks;

use super::{CoreCall, ResponseItem, ResponseStream};
use crate::eras::notifications::NotificationFilter;
use crate::session::Session;

type Item = ResponseItem<Chunks, Response>;

/// A call and the server requests that it has open.
#[derive(Debug)]
pub(crate) struct LegacyCall {
    call: CoreCall,
    filter: NotificationFilter,
    session: Arc<Session>,
    /// The numbers of the open server requests.
    open: Vec<u64>,
    /// Messages that the client gets before anything else of the call.
    outbox: VecDeque<Chunks>,
    /// The last item, if it is known.
    end: Option<Option<Item>>,
}

impl LegacyCall {
    pub(crate) fn new(call: CoreCall, filter: NotificationFilter, session: Arc<Session>) -> Self {
        Self { call, filter, session, open: Vec::new(), outbox: VecDeque::new(), end: None }
    }

    fn open_server_request(&mut self, request: ServerRequest) {
        if let Some((number, text)) = self.session.open_server_request(request) {
            self.open.push(number);
            self.outbox.push_back(text.into_bytes().into());
        }
    }

    /// Informs the client of requests that the server no longer waits for.
    fn withdraw_closed(&mut self, cx: &mut Context<'_>) {
        let Self { session, open, outbox, .. } = self;
        open.retain(|number| match session.server_requests.poll_open(*number, cx) {
            Ok(is_open) => is_open,
            Err(cancelled) => {
                outbox.push_back(cancelled.into_bytes().into());
                false
            }
        });
    }

    /// The call is over without a response: the client need not answer any more.
    fn cancelled(&mut self) {
        let withdrawn = self.open.drain(..).filter_map(|number| self.session.server_requests.withdraw(number));
        self.outbox.extend(withdrawn.map(|text| Chunks::from(text.into_bytes())));
        self.end = Some(None);
    }
}

impl ResponseStream<Response> for LegacyCall {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        loop {
            if let Some(message) = self.outbox.pop_front() {
                return Poll::Ready(Some(ResponseItem::Message(message)));
            }
            if let Some(end) = self.end.take() {
                return Poll::Ready(end);
            }
            match self.call.poll_next(cx) {
                Poll::Ready(Some(ResponseItem::Message(ServerMessage::Notification(notification)))) => {
                    if let Some(text) = self.filter.translate(notification) {
                        return Poll::Ready(Some(ResponseItem::Message(text)));
                    }
                }
                Poll::Ready(Some(ResponseItem::Message(ServerMessage::TaskProgress(progress)))) => {
                    return Poll::Ready(Some(ResponseItem::Message(progress.text.into_bytes().into())));
                }
                Poll::Ready(Some(ResponseItem::Message(ServerMessage::Request(request)))) => {
                    self.open_server_request(request);
                }
                Poll::Ready(Some(ResponseItem::Stream(signal))) => {
                    return Poll::Ready(Some(ResponseItem::Stream(signal)));
                }
                Poll::Ready(Some(ResponseItem::Message(ServerMessage::Refused(_) | ServerMessage::Stream(_)))) => {}
                // Nearly always there are no open server requests.
                Poll::Ready(Some(ResponseItem::Response(response))) if self.open.is_empty() => {
                    return Poll::Ready(Some(ResponseItem::Response(response)));
                }
                // Open server requests stay open: the client can still answer them.
                Poll::Ready(Some(ResponseItem::Response(response))) => {
                    self.withdraw_closed(cx);
                    self.open.clear();
                    self.end = Some(Some(ResponseItem::Response(response)));
                }
                Poll::Ready(None) => self.cancelled(),
                Poll::Pending => {
                    self.withdraw_closed(cx);
                    if self.outbox.is_empty() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }
}

impl Drop for LegacyCall {
    fn drop(&mut self) {
        for number in self.open.drain(..) {
            drop(self.session.server_requests.withdraw(number));
        }
    }
}
