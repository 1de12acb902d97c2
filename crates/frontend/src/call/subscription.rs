//! `subscriptions/listen`: what a modern client receives outside of its requests, as one long request.
//!
//! Every message of it carries the id of that request, so that a client with several can tell them
//! apart, and only what the client asked for is sent.
//!
//! Source: 2026-07-28 basic/patterns/subscriptions.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use fanlight_canonical::{
    CallContext, Caller, Core, Interest, Listening, MessageReceiver, ServerMessage, ServerMessages,
};
use fanlight_protocol::capability::{
    ClientCapability, MissingCapability, missing_capability_error,
};
use fanlight_protocol::json::{ArrayBuilder, Chunks, Edits, ObjectBuilder, rewrite_object};
use fanlight_protocol::message::notification_text;
use fanlight_protocol::{Json, Method, Notification, Request, Response, RpcError, code, meta};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{ResponseItem, ResponseStream};
use crate::decision::LastingDecision;
use crate::eras::notifications::has_result;
use crate::guardrail::LiveHooks;
use crate::protection::Turn;
use crate::recording::{RequestRecording, not_recorded};
use crate::session::Cancellation;

const TOOLS: &str = "toolsListChanged";
const PROMPTS: &str = "promptsListChanged";
const RESOURCES: &str = "resourcesListChanged";
const URIS: &str = "resourceSubscriptions";
const TASKS: &str = "taskIds";

type Opening = Pin<Box<dyn Future<Output = Result<Listening, RpcError>> + Send>>;
type Item = ResponseItem<Chunks, Response>;

/// Bounds the number of subscriptions. Returns at once: a store that replicas share counts on its own.
pub(crate) trait SubscriptionStore: std::fmt::Debug + Send + Sync {
    /// Enters a subscription of `caller`, until the result is dropped; `None` if there are too many.
    fn enter(&self, caller: &Caller) -> Option<Box<dyn Any + Send>>;

    /// The number of subscriptions.
    fn count(&self) -> usize;
}

/// Bounds the number of subscriptions of all callers of this process together.
#[derive(Debug)]
pub(crate) struct InMemorySubscriptions {
    permits: Arc<Semaphore>,
    limit: usize,
}

impl InMemorySubscriptions {
    pub(crate) fn new(limit: usize) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self {
            permits: Arc::new(Semaphore::new(limit)),
            limit,
        }
    }
}

impl SubscriptionStore for InMemorySubscriptions {
    fn enter(&self, _: &Caller) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(
            Arc::clone(&self.permits).try_acquire_owned().ok()?,
        ))
    }

    fn count(&self) -> usize {
        self.limit.saturating_sub(self.permits.available_permits())
    }
}

/// The subscriptions of a listener or connection.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    store: Box<dyn SubscriptionStore>,
    limit: usize,
    /// Messages that wait for the client of one subscription.
    buffer: usize,
    hooks: LiveHooks,
}

/// What a subscription waits for before it is opened, and what puts it on record.
pub(crate) struct SubscriptionBegins {
    /// Its turn.
    pub(crate) turn: Option<Turn>,
    /// `None` if that is not wanted.
    pub(crate) recording: Option<Box<RequestRecording>>,
}

/// What ends a subscription.
pub(crate) struct SubscriptionEnds {
    /// Of its request: it ends without a response.
    pub(crate) cancellation: Option<Cancellation>,
    /// It ends with an error; `None` if nothing restricts its client.
    pub(crate) decision: Option<LastingDecision>,
    /// It ends with a response when this is cancelled.
    pub(crate) closing: CancellationToken,
}

/// A subscription. Dropping it ends it without a response.
pub(crate) struct Subscription {
    id: Json,
    /// `None` once it is over.
    state: Option<State>,
    messages: MessageReceiver,
    cancellation: Option<Cancellation>,
    /// `None` if nothing restricts its client.
    decision: Option<LastingDecision>,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    recording: Option<Box<RequestRecording>>,
    hooks: LiveHooks,
    _entry: Box<dyn Any + Send>,
}

enum State {
    Opening(Opening),
    Open(Listening),
}

impl Subscriptions {
    /// At most `limit` subscriptions with `buffer` waiting messages each.
    pub(crate) fn new(limit: usize, buffer: usize, hooks: &LiveHooks) -> Self {
        Self {
            store: Box::new(InMemorySubscriptions::new(limit)),
            limit,
            buffer,
            hooks: hooks.clone(),
        }
    }

    /// The number of subscriptions.
    pub(crate) fn count(&self) -> usize {
        self.store.count()
    }

    /// What `request` asks for, resolved by `core`. The context is kept for as long as the subscription lasts.
    pub(crate) fn resolve<C: Core>(
        &self,
        core: &C,
        request: &Request,
        context: &Arc<CallContext>,
    ) -> Result<C::ResolvedListen, RpcError> {
        let interest = interest(request.params.as_ref(), self.limit)?;
        let missing = MissingCapability::of(&context.capabilities, ClientCapability::Tasks)
            .filter(|_| !interest.tasks.is_empty());
        if let Some(error) = missing.and_then(|missing| missing_capability_error(&[missing], &[])) {
            return Err(error);
        }
        Ok(core.resolve_listen(interest, Arc::clone(context)))
    }

    /// Opens the subscription of `caller` that has this id.
    pub(crate) fn open<C: Core>(
        &self,
        core: &Arc<C>,
        operation: C::ResolvedListen,
        (caller, id): (&Caller, &Json),
        begins: SubscriptionBegins,
        ends: SubscriptionEnds,
    ) -> Result<Subscription, RpcError> {
        let entry = self.store.enter(caller).ok_or_else(|| {
            let message = format!(
                "busy: {} subscriptions are open, the limit here; end one, or try later",
                self.limit
            );
            RpcError::new(code::INTERNAL, message)
        })?;
        let (messages, receiver) = ServerMessages::channel(self.buffer);
        let core = Arc::clone(core);
        let SubscriptionBegins {
            turn,
            mut recording,
        } = begins;
        let announced = recording
            .as_ref()
            .map_or(Ok(None), |recording| recording.announce())?;
        if let Some(recording) = &mut recording {
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
            id: id.detached(),
            decision: ends.decision,
            state: Some(State::Opening(opening)),
            messages: receiver,
            cancellation: ends.cancellation,
            closing: Box::pin(ends.closing.cancelled_owned()),
            recording,
            hooks: self.hooks.clone(),
            _entry: entry,
        })
    }
}

impl Subscription {
    /// The response that ends it (Subscriptions, Graceful Closure).
    fn close(&mut self) -> Item {
        self.state = None;
        let mut result = ObjectBuilder::new();
        result
            .string("resultType", "complete")
            .member("_meta", &meta_of(&self.id));
        ResponseItem::Response(Response::from_result(&result.finish()))
    }

    /// What [`ResponseStream::poll_next`] returns, before it is put on record.
    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        if self
            .cancellation
            .as_mut()
            .is_some_and(|cancellation| Pin::new(cancellation).poll(cx).is_ready())
        {
            self.cancellation = None;
            self.state = None;
        }
        if self.state.is_some()
            && let Some(Poll::Ready(refused)) =
                self.decision.as_mut().map(|decision| decision.poll(cx))
        {
            self.state = None;
            return Poll::Ready(Some(ResponseItem::Response(Response::from_error(
                &refused.to_error(),
            ))));
        }
        match &mut self.state {
            None => Poll::Ready(None),
            Some(State::Opening(opening)) => {
                let opened = match opening.as_mut().poll(cx) {
                    Poll::Ready(opened) => opened,
                    Poll::Pending => {
                        ready!(self.closing.as_mut().poll(cx));
                        return Poll::Ready(Some(self.close()));
                    }
                };
                Poll::Ready(Some(match opened {
                    Ok(listening) => {
                        let acknowledged = acknowledged(&self.id, &listening.honoured);
                        self.state = Some(State::Open(listening));
                        ResponseItem::Message(acknowledged.into_bytes().into())
                    }
                    Err(error) => {
                        self.state = None;
                        ResponseItem::Response(Response::from_error(&error))
                    }
                }))
            }
            Some(State::Open(listening)) => loop {
                match self.messages.poll_recv(cx) {
                    Poll::Ready(Some(ServerMessage::Notification(notification))) => {
                        // A result that nobody has judged is had by `tasks/get`, which has it judged.
                        let is_unjudged = has_result(&notification) && self.hooks.judge_results();
                        if !is_unjudged && is_wanted(&listening.honoured, &notification) {
                            let text = with_id(&notification, &self.id);
                            return Poll::Ready(Some(ResponseItem::Message(
                                text.into_bytes().into(),
                            )));
                        }
                    }
                    // Dropping a server request tells the server that the client cannot be asked.
                    Poll::Ready(Some(
                        ServerMessage::Request(_)
                        | ServerMessage::TaskProgress(_)
                        | ServerMessage::Stream(_)
                        | ServerMessage::Refused(_),
                    )) => {}
                    Poll::Ready(None) => return Poll::Ready(Some(self.close())),
                    Poll::Pending => {
                        ready!(self.closing.as_mut().poll(cx));
                        return Poll::Ready(Some(self.close()));
                    }
                }
            },
        }
    }
}

impl ResponseStream<Response> for Subscription {
    /// The first item says which part of the filter is honoured.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        let item = ready!(self.poll_item(cx));
        if let (Some(ResponseItem::Response(response)), Some(recording)) =
            (&item, &mut self.recording)
        {
            recording.end(response);
        }
        Poll::Ready(item)
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// The filter in `params`, which may name `limit` resources, and as many tasks.
fn interest(params: Option<&Json>, limit: usize) -> Result<Interest, RpcError> {
    let invalid = |message: String| RpcError::new(code::INVALID_PARAMS, message);
    let filter = params
        .and_then(|params| params.get("notifications"))
        .filter(Json::is_object);
    let filter = filter.ok_or_else(|| {
        invalid("\"notifications\" is missing from the params, or no object".to_owned())
    })?;
    let keys = [TOOLS, PROMPTS, RESOURCES, URIS, TASKS];
    let found = filter.find_distinct(&keys);
    let found = found.map_err(|ambiguous| invalid(format!("{ambiguous} in \"notifications\"")))?;
    let [tools, prompts, resources, uris, tasks] =
        found.map(|range| range.map(|range| filter.slice(range)));
    let flag = |value: Option<Json>, name: &str| match value {
        None => Ok(false),
        Some(value) if matches!(value.as_text(), "true" | "false") => Ok(value.is_true()),
        Some(_) => Err(invalid(format!(
            "\"{name}\" in \"notifications\" must be true or false"
        ))),
    };
    let strings = |value: Option<Json>, name: &str| -> Result<Vec<Arc<str>>, RpcError> {
        let wrong = || {
            invalid(format!(
                "\"{name}\" in \"notifications\" must be an array of strings"
            ))
        };
        let Some(value) = value else {
            return Ok(Vec::new());
        };
        if value.kind() != fanlight_protocol::json::Kind::Array {
            return Err(wrong());
        }
        if value.elements().nth(limit).is_some() {
            let message = format!(
                "\"{name}\" in \"notifications\" has more than {limit} entries, the limit here"
            );
            return Err(invalid(message));
        }
        let text = |range| value.slice(range).as_str().map(Arc::from).ok_or_else(wrong);
        value.elements().map(text).collect()
    };
    let unknown = rewrite_object(
        &filter,
        |member| !keys.iter().any(|key| member.is(&filter, key)),
        b"",
    );
    Ok(Interest {
        tools: flag(tools, TOOLS)?,
        prompts: flag(prompts, PROMPTS)?,
        resources: flag(resources, RESOURCES)?,
        uris: strings(uris, URIS)?,
        tasks: strings(tasks, TASKS)?,
        session: false,
        unknown: unknown
            .members()
            .next()
            .is_some()
            .then(|| unknown.detached()),
    })
}

/// The first message: the part of the filter that is honoured.
fn acknowledged(id: &Json, honoured: &Interest) -> Json {
    let mut filter = ObjectBuilder::new();
    let yes = Json::literal("true");
    for (key, set) in [
        (TOOLS, honoured.tools),
        (PROMPTS, honoured.prompts),
        (RESOURCES, honoured.resources),
    ] {
        if set {
            filter.member(key, &yes);
        }
    }
    for (key, texts) in [(URIS, &honoured.uris), (TASKS, &honoured.tasks)] {
        if !texts.is_empty() {
            let mut array = ArrayBuilder::default();
            for text in texts {
                array.push(&Json::string(text));
            }
            filter.member(key, &array.finish());
        }
    }
    for unknown in honoured.unknown.iter() {
        for member in unknown.members() {
            filter.raw_member(&unknown.slice(member.key), &unknown.slice(member.value));
        }
    }
    let mut params = ObjectBuilder::new();
    params
        .member("_meta", &meta_of(id))
        .member("notifications", &filter.finish());
    notification_text(Method::Acknowledged.as_str(), Some(&params.finish()))
}

/// "The server MUST NOT send notification types the client has not explicitly requested." No filter can name one that this
/// specification does not define: such a notification passes, as the server has sent it to all that listen.
fn is_wanted(honoured: &Interest, notification: &Notification) -> bool {
    match &notification.method {
        Method::ToolsChanged => honoured.tools,
        Method::PromptsChanged => honoured.prompts,
        Method::ResourcesChanged => honoured.resources,
        // The URI may be of a part of a resource that the filter names.
        Method::ResourceUpdated => !honoured.uris.is_empty(),
        Method::TaskChanged => {
            let named = notification
                .params()
                .and_then(|params| params.get("taskId"));
            let named = named.as_ref().and_then(Json::as_str);
            named.is_some_and(|named| honoured.tasks.iter().any(|task| **task == *named))
        }
        Method::Other(name) => name.starts_with("notifications/"),
        // Notifications of a request, of this subscription, and of the other era.
        _ => false,
    }
}

fn meta_of(id: &Json) -> Json {
    let mut object = ObjectBuilder::new();
    object.member(meta::SUBSCRIPTION_ID, id);
    object.finish()
}

/// The notification with the subscription's id in `params._meta`, and no other byte changed.
fn with_id(notification: &Notification, id: &Json) -> Json {
    if let Some(place) = id_range(notification) {
        return notification.with_value(place, id);
    }
    let own_meta = meta_of(id);
    let inner = |object: &Json| object.bytes().slice(1..object.bytes().len() - 1);
    let mut edits = Edits::new(notification.text.bytes().clone());
    let mut member = ObjectBuilder::new();
    member.member("_meta", &own_meta);
    let text = &notification.text;
    let params = text
        .members()
        .find(|member| member.is(text, "params"))
        .map(|member| member.value);
    match (notification.param_range("_meta"), params) {
        (Some(place), _) if text.slice(place.clone()).is_object() => {
            edits.insert_members(place.start, &inner(&own_meta));
        }
        // The member has no metadata in it.
        (Some(place), _) => edits.replace(place, own_meta.into_bytes()),
        (None, Some(params)) => edits.insert_members(params.start, &inner(&member.finish())),
        (None, None) => {
            let mut params = ObjectBuilder::new();
            params.member("params", &member.finish());
            edits.insert_members(0, &inner(&params.finish()));
        }
    }
    edits.finish_json()
}

/// The notification without a subscription's id, which means nothing to a legacy client.
pub(crate) fn without_id(notification: &Notification) -> Json {
    let (Some(_), Some(place)) = (id_range(notification), notification.param_range("_meta")) else {
        return notification.text.clone();
    };
    let own_meta = notification.text.slice(place.clone());
    let rest = rewrite_object(
        &own_meta,
        |member| !member.is(&own_meta, meta::SUBSCRIPTION_ID),
        b"",
    );
    notification.with_value(place, &rest)
}

/// The range of the subscription's id in the text, if there is one.
fn id_range(notification: &Notification) -> Option<std::ops::Range<usize>> {
    // Almost no notification has it. An escape could hide the key.
    let text = notification.text.as_text();
    if !text.contains(meta::SUBSCRIPTION_ID) && !text.contains("\\u") {
        return None;
    }
    let place = notification.param_range("_meta")?;
    let own_meta = notification.text.slice(place.clone());
    let member = own_meta
        .members()
        .find(|member| member.is(&own_meta, meta::SUBSCRIPTION_ID))?;
    Some(place.start + member.value.start..place.start + member.value.end)
}

#[cfg(test)]
mod tests;
