//! `subscriptions/listen`: one long request through which a modern client receives messages outside
//! of its other requests.
//!
//! Every message carries the id of that request, so a client can tell several subscriptions apart.
//! The client gets only what it asked for.
//!
//! Source: 2026-07-28 basic/patterns/subscriptions.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fanlight_canonical::{
    CallContext, Interest, Listening, MessageReceiver, Names, ServerMessage, ServerMessages,
};
use fanlight_gateway::{Gateway, ListenOperation};
use fanlight_protocol::capability::{
    ClientCapability, MissingCapability, missing_capability_error,
};
use fanlight_protocol::json::{Chunks, Kind, ObjectBuilder};
use fanlight_protocol::message::notification_text;
use fanlight_protocol::method::ELICITATION_COMPLETE;
use fanlight_protocol::subscription::{self, Change, subscription_meta, texts_of};
use fanlight_protocol::{Json, Method, Notification, Request, Response, RpcError, code};
use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{ResponseItem, ResponseStream};
use crate::eras::notifications::has_result;
use crate::gates::{LastingDecision, Recording, not_recorded};
use crate::guardrail::LiveHooks;
use crate::protection::Turn;
use crate::session::Cancellation;

type Opening = BoxFuture<'static, Result<Listening, RpcError>>;
type Item = ResponseItem<Chunks, Response>;

/// The subscriptions of a listener or connection.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    permits: Arc<Semaphore>,
    limit: usize,
    /// The maximum number of messages that wait for the client of one subscription.
    buffer: usize,
    hooks: LiveHooks,
}

/// The conditions of a subscription.
pub(crate) struct SubscriptionTerms {
    /// The request's turn under the rate limits, for which the subscription waits.
    pub(crate) turn: Option<Turn>,
    /// The audit record, if it is configured.
    pub(crate) recording: Option<Box<Recording>>,
    /// Cancels the request: the subscription ends without a response.
    pub(crate) cancellation: Option<Cancellation>,
    /// The policy's decision; a refusal ends the subscription with an error. `None` for an
    /// unrestricted client.
    pub(crate) decision: Option<LastingDecision>,
    /// Once this is ready, the subscription ends with a response.
    pub(crate) closing: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// A subscription. Dropping it ends it without a response.
pub(crate) struct Subscription {
    id: Json,
    /// Long parameters count in the memory for requests as long as their text is kept.
    params: Option<Json>,
    /// `None` after the end.
    state: Option<State>,
    messages: MessageReceiver,
    terms: SubscriptionTerms,
    hooks: LiveHooks,
    _permit: OwnedSemaphorePermit,
}

enum State {
    Opening(Opening),
    Open(Listening),
}

impl Subscriptions {
    /// Allows at most `limit` subscriptions with `buffer` waiting messages each.
    pub(crate) fn new(limit: usize, buffer: usize, hooks: &LiveHooks) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self {
            permits: Arc::new(Semaphore::new(limit)),
            limit,
            buffer,
            hooks: hooks.clone(),
        }
    }

    /// The number of subscriptions.
    pub(crate) fn count(&self) -> usize {
        self.limit.saturating_sub(self.permits.available_permits())
    }

    /// Has `core` resolve the filter of `request`. The context lives as long as the subscription.
    pub(crate) fn resolve(
        &self,
        core: &Gateway,
        request: &Request,
        context: &Arc<CallContext>,
    ) -> Result<ListenOperation, RpcError> {
        let interest = interest(request.params.as_ref(), self.limit)?;
        let missing = MissingCapability::check(&context.capabilities, ClientCapability::Tasks)
            .filter(|_| !interest.tasks.is_empty());
        if let Some(error) = missing.and_then(|missing| missing_capability_error(&[missing], &[])) {
            return Err(error);
        }
        Ok(core.resolve_listen(interest, Arc::clone(context)))
    }

    /// Opens the subscription of a request.
    pub(crate) fn open(
        &self,
        core: &Arc<Gateway>,
        operation: ListenOperation,
        request: &Request,
        mut terms: SubscriptionTerms,
    ) -> Result<Subscription, RpcError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| {
            let message = format!(
                "busy: {} subscriptions are open, the limit here; end one, or try later",
                self.limit
            );
            RpcError::new(code::INTERNAL, message)
        })?;
        let (messages, receiver) = ServerMessages::channel(self.buffer);
        let (core, turn) = (Arc::clone(core), terms.turn.take());
        let mut announced = None;
        if let Some(recording) = &mut terms.recording {
            announced = recording.announce()?;
            recording.begin();
        }
        let opening: Opening = Box::pin(async move {
            if let Some(turn) = turn {
                turn.come().await;
            }
            if let Some(acknowledged) = announced {
                acknowledged.await.map_err(|error| not_recorded(&error))?;
            }
            core.listen(operation, messages).await
        });
        Ok(Subscription {
            id: request.id.detached(),
            params: request.params.clone(),
            state: Some(State::Opening(opening)),
            messages: receiver,
            terms,
            hooks: self.hooks.clone(),
            _permit: permit,
        })
    }
}

impl Subscription {
    /// The response that ends the subscription (Subscriptions, Graceful Closure).
    fn close(&mut self) -> Item {
        self.state = None;
        let result = ObjectBuilder::new()
            .string("resultType", "complete")
            .member("_meta", &subscription_meta(&self.id))
            .finish();
        ResponseItem::Response(Response::from_result(&result))
    }

    /// [`ResponseStream::poll_next`] without the audit record.
    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let terms = &mut self.terms;
        if terms
            .cancellation
            .as_mut()
            .is_some_and(|cancellation| Pin::new(cancellation).poll(cx).is_ready())
        {
            terms.cancellation = None;
            self.state = None;
        }
        if self.state.is_some()
            && let Some(Poll::Ready(refused)) =
                terms.decision.as_mut().map(|decision| decision.poll(cx))
        {
            self.state = None;
            return Poll::Ready(Some(ResponseItem::Response(Response::from_error(
                &refused.error,
            ))));
        }
        let item = self.poll_open(cx);
        if item.is_pending() && self.terms.closing.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(self.close()));
        }
        item
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        Poll::Ready(match &mut self.state {
            None => None,
            Some(State::Opening(opening)) => Some(match ready!(opening.as_mut().poll(cx)) {
                Ok(listening) => {
                    let acknowledged =
                        acknowledged(&self.id, self.params.as_ref(), &listening.honoured);
                    self.state = Some(State::Open(listening));
                    ResponseItem::Message(acknowledged.into_bytes().into())
                }
                Err(error) => {
                    self.state = None;
                    ResponseItem::Response(Response::from_error(&error))
                }
            }),
            Some(State::Open(listening)) => loop {
                match ready!(self.messages.poll_recv(cx)) {
                    Some(ServerMessage::Notification(notification)) => {
                        // Drop a result that no guardrail has judged; the client gets it through
                        // `tasks/get`, which judges it.
                        let is_unjudged = has_result(&notification) && self.hooks.judge_results();
                        if !is_unjudged && is_wanted(&listening.honoured, &notification) {
                            let text = notification.with_subscription_id(&self.id);
                            break Some(ResponseItem::Message(text.into_bytes().into()));
                        }
                    }
                    // Dropping a server request tells the server that the client cannot be asked.
                    Some(_) => {}
                    None => break Some(self.close()),
                }
            },
        })
    }
}

impl ResponseStream<Response> for Subscription {
    /// The first item reports the accepted part of the filter.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let item = ready!(self.poll_item(cx));
        if let (Some(ResponseItem::Response(response)), Some(recording)) =
            (&item, &mut self.terms.recording)
        {
            recording.end(response);
        }
        Poll::Ready(item)
    }
}

/// Reads the filter in `params`, with at most `limit` resources and `limit` tasks.
fn interest(params: Option<&Json>, limit: usize) -> Result<Interest, RpcError> {
    let invalid = |message: String| RpcError::new(code::INVALID_PARAMS, message);
    let filter = params
        .and_then(|params| params.get("notifications"))
        .filter(Json::is_object);
    let filter = filter.ok_or_else(|| {
        invalid("\"notifications\" is missing from the params, or no object".to_owned())
    })?;
    let found = filter.find_distinct(&subscription::MEMBERS);
    let found = found.map_err(|ambiguous| invalid(format!("{ambiguous} in \"notifications\"")))?;
    for (range, member) in found.into_iter().zip(subscription::MEMBERS) {
        let Some(value) = range.map(|range| filter.slice(range)) else {
            continue;
        };
        let is_array = value.kind() == Kind::Array;
        let mut strings = value.elements().map(|range| value.slice(range));
        let problem = match member {
            subscription::URIS | subscription::TASKS => {
                if is_array && value.elements().nth(limit).is_some() {
                    format!("has more than {limit} entries, the limit here")
                } else if is_array && strings.all(|text| text.as_str().is_some()) {
                    continue;
                } else {
                    "must be an array of strings".to_owned()
                }
            }
            _ if matches!(value.as_text(), "true" | "false") => continue,
            _ => "must be true or false".to_owned(),
        };
        let message = format!("\"{member}\" in \"notifications\" {problem}");
        return Err(invalid(message));
    }
    Ok(Interest::from_filter(&filter))
}

/// The first message, which reports the accepted part of the filter, in the client's order.
fn acknowledged(id: &Json, params: Option<&Json>, honoured: &Interest) -> Json {
    let asked = params.and_then(|params| params.get("notifications"));
    let texts = |member, honoured: &Names| {
        let asked = asked.as_ref();
        let mut texts: Vec<_> = asked.map_or_else(Vec::new, |all| texts_of(all, member));
        texts.retain(|text| honoured.contains(text));
        texts
    };
    let filter = subscription::filter(
        honoured.lists,
        &texts(subscription::URIS, &honoured.uris),
        &texts(subscription::TASKS, &honoured.tasks),
        honoured.unknown.as_ref(),
    );
    let params = ObjectBuilder::new()
        .member("_meta", &subscription_meta(id))
        .member("notifications", &filter)
        .finish();
    notification_text(Method::Acknowledged.as_str(), Some(&params))
}

/// Whether the client asked for this notification: "The server MUST NOT send notification types the
/// client has not explicitly requested" (2026-07-28 basic/patterns/subscriptions, Opening a Stream).
/// A type that the specification does not define passes only to a client whose filter has a member
/// that it does not define either. Nothing tells which member names which type.
fn is_wanted(honoured: &Interest, notification: &Notification) -> bool {
    if let Some(change) = Change::from_method(&notification.method) {
        return honoured.lists.has(change);
    }
    match &notification.method {
        // The URI may name a part of a subscribed resource.
        Method::ResourceUpdated => !honoured.uris.is_empty(),
        Method::TaskChanged => {
            let named = notification.param("taskId").and_then(|id| id.to_str());
            named.is_some_and(|named| honoured.tasks.contains(&*named))
        }
        Method::Other(name) => {
            honoured.unknown.is_some()
                && name.starts_with("notifications/")
                && **name != *ELICITATION_COMPLETE
        }
        // Notifications of a request, of this subscription, and of the other era.
        _ => false,
    }
}

#[cfg(test)]
mod tests;
