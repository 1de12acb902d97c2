//! A legacy client's call. The server's notifications and requests go out on the call's own stream.
//! The client's answers arrive as separate messages, through its session.
//!
//! Cancelling or dropping a call ends its server requests: the server gets the error that the
//! client cannot be asked. After the server's answer to the call, the client can still answer them.
//!
//! Source: 2025-11-25 basic/transports, Sending Messages to the Server.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fanlight_canonical::{ServerMessage, ServerRequest};
use fanlight_protocol::json::Chunks;
use fanlight_protocol::meta::LogLevel;
use fanlight_protocol::{Response, RpcError};
use tokio::sync::oneshot;

use super::{CoreCall, ResponseItem, ResponseStream};
use crate::eras::notifications::NotificationFilter;
use crate::gates::Rights;
use crate::session::Session;

type Item = ResponseItem<Chunks, Response>;

/// A call and its open server requests.
pub(crate) struct LegacyCall {
    call: CoreCall,
    filter: NotificationFilter,
    session: Arc<Session>,
    /// The numbers of the open server requests.
    open: Vec<u64>,
    /// Decides whether the call may go on after an answer of the client; `None` if no decision is
    /// needed.
    rights: Option<Rights>,
    /// Client answers that wait for that decision.
    held: Vec<HeldAnswer>,
    /// The session's change for this call, which a refusal undoes.
    pub(crate) noted: Option<Noted>,
    /// Messages to send before anything else of the call.
    outbox: VecDeque<Chunks>,
    /// The last item, once known.
    end: Option<Option<Item>>,
}

/// A change of a session that is made before the server has answered.
pub(crate) enum Noted {
    /// The session has subscribed to this resource.
    Subscription(Box<str>),
    /// The session's log level has changed; this was the former one.
    LogLevel(Option<LogLevel>),
}

/// The client's answer to a server request, and the server that waits for it.
#[derive(Debug)]
struct HeldAnswer {
    /// The number of the server request.
    number: u64,
    answer: oneshot::Receiver<Response>,
    to_server: oneshot::Sender<Response>,
}

impl LegacyCall {
    pub(crate) fn new(
        call: CoreCall,
        filter: NotificationFilter,
        session: Arc<Session>,
        rights: Option<Rights>,
    ) -> Self {
        Self {
            call,
            filter,
            session,
            open: Vec::new(),
            rights,
            held: Vec::new(),
            noted: None,
            outbox: VecDeque::new(),
            end: None,
        }
    }

    fn open_server_request(&mut self, mut request: ServerRequest) {
        let held = self.rights.is_some().then(|| {
            let (sender, answer) = oneshot::channel();
            (answer, std::mem::replace(&mut request.answer, sender))
        });
        match (self.session.open_server_request(request), held) {
            (Some((number, text)), held) => {
                self.held.extend(held.map(|(answer, to_server)| HeldAnswer {
                    number,
                    answer,
                    to_server,
                }));
                self.open.push(number);
                self.outbox.push_back(text.into_bytes().into());
            }
            // The session refused the request and may already have answered it.
            (None, Some((mut answer, to_server))) => {
                let _ = answer.try_recv().map(|refusal| to_server.send(refusal));
            }
            (None, None) => {}
        }
    }

    /// Passes the client's answers on, unless the call may no longer go on.
    fn pass_answers(&mut self, cx: &mut Context<'_>) -> Result<(), RpcError> {
        let Some(rights) = &self.rights else {
            return Ok(());
        };
        let mut at = 0;
        while let Some(held) = self.held.get_mut(at) {
            if held.to_server.poll_closed(cx).is_ready() {
                // `withdraw_closed` informs the client.
                drop(self.held.swap_remove(at));
            } else if let Poll::Ready(answer) = Pin::new(&mut held.answer).poll(cx) {
                let HeldAnswer { to_server, .. } = self.held.swap_remove(at);
                rights.recheck()?;
                // An error means that the server no longer waits.
                let _ = answer.map(|answer| to_server.send(answer));
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// Sends later answers of the client straight to the server, since the call has ended. Does
    /// nothing if the call may no longer go on.
    fn release_answers(&mut self) {
        let rights = self.rights.as_ref();
        let may_go_on = rights.is_none_or(|rights| rights.recheck().is_ok());
        for HeldAnswer {
            number, to_server, ..
        } in self.held.drain(..).filter(|_| may_go_on)
        {
            self.session.server_requests.pass_to(number, to_server);
        }
    }

    /// Withdraws requests at the client that the server no longer waits for.
    fn withdraw_closed(&mut self, cx: &mut Context<'_>) {
        let Self {
            session,
            open,
            outbox,
            ..
        } = self;
        open.retain(
            |number| match session.server_requests.poll_open(*number, cx) {
                Ok(is_open) => is_open,
                Err(cancelled) => {
                    outbox.push_back(cancelled.into_bytes().into());
                    false
                }
            },
        );
    }

    /// Ends the call without a response and withdraws its server requests.
    fn cancelled(&mut self) {
        let withdrawn = self
            .open
            .drain(..)
            .filter_map(|number| self.session.server_requests.withdraw(number));
        self.outbox
            .extend(withdrawn.map(|text| Chunks::from(text.into_bytes())));
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
            let polled = self.call.poll_next(cx);
            if let Poll::Ready(Some(ResponseItem::Response(response))) = &polled
                && response.is_error()
                && let Some(noted) = self.noted.take()
            {
                match noted {
                    Noted::Subscription(uri) => self.session.forget_subscription(&uri),
                    Noted::LogLevel(former) => self.session.set_log_level(former),
                }
            }
            match polled {
                Poll::Ready(Some(ResponseItem::Message(ServerMessage::Notification(
                    notification,
                )))) => {
                    if let Some(text) = self.filter.translate(notification) {
                        return Poll::Ready(Some(ResponseItem::Message(text)));
                    }
                }
                Poll::Ready(Some(ResponseItem::Message(ServerMessage::TaskProgress(progress)))) => {
                    return Poll::Ready(Some(ResponseItem::Message(
                        progress.text.into_bytes().into(),
                    )));
                }
                Poll::Ready(Some(ResponseItem::Message(ServerMessage::Request(request)))) => {
                    self.open_server_request(request);
                }
                Poll::Ready(Some(ResponseItem::Stream(signal))) => {
                    return Poll::Ready(Some(ResponseItem::Stream(signal)));
                }
                Poll::Ready(Some(ResponseItem::Message(
                    ServerMessage::Refused(_) | ServerMessage::Stream(_),
                ))) => {}
                // The usual case: no open server requests.
                Poll::Ready(Some(ResponseItem::Response(response))) if self.open.is_empty() => {
                    return Poll::Ready(Some(ResponseItem::Response(response)));
                }
                // The client can still answer the open server requests.
                Poll::Ready(Some(ResponseItem::Response(response))) => {
                    self.release_answers();
                    self.withdraw_closed(cx);
                    self.open.clear();
                    self.end = Some(Some(ResponseItem::Response(response)));
                }
                Poll::Ready(None) => self.cancelled(),
                Poll::Pending => {
                    if let Err(error) = self.pass_answers(cx) {
                        let refused = self.call.refuse(&error);
                        self.cancelled();
                        self.end = Some(Some(ResponseItem::Response(refused)));
                        continue;
                    }
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
