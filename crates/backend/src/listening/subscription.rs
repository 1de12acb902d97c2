//! One `subscriptions/listen` request at a modern server, from its start to its end.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use fanlight_protocol::meta::TASKS_EXTENSION;
use fanlight_protocol::{Json, Method, Notification, code};
use futures_util::future::BoxFuture;

use crate::connection::Connection;
use crate::request::Reply;
use crate::subscriptions::Filter;
use fanlight_canonical::{
    BackendError, Call, CallContext, MessageReceiver, ServerMessage, ServerMessages,
};

/// The number of messages that may wait for the hand-over from the transport, which is immediate.
/// Another limit applies to messages that wait for a client.
const QUEUE: usize = 256;

type Exchange = BoxFuture<'static, Result<Reply, BackendError>>;

/// A subscription at a modern server. Dropping it ends the subscription there.
pub(super) struct BackendSubscription {
    pub(super) asked: Filter,
    exchange: Option<Exchange>,
    messages: MessageReceiver,
    end: End,
}

pub(super) enum SubscriptionEvent {
    /// The server has agreed to this filter.
    Acknowledged(Json),
    /// A notification, without the id of the subscription.
    Notification(Notification),
    Ended(End),
}

/// How a subscription ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The server has no subscriptions.
    Unsupported,
    /// The server refuses this filter.
    Refused { message: String },
    /// The server has ended it by a response.
    Answered,
    /// The stream or the connection broke, or the server failed.
    Broken,
}

impl BackendSubscription {
    /// Creates a subscription; the first poll sends its request.
    pub(super) fn begin(connection: &Arc<Connection>, asked: Filter) -> Self {
        let (sender, messages) = ServerMessages::channel(QUEUE);
        let mut context = (*CallContext::internal()).clone();
        if !asked.tasks.is_empty() {
            context.capabilities = tasks_capability();
        }
        let call = Call {
            method: Method::Listen,
            params: Some(asked.to_params()),
            context: Arc::new(context),
            messages: sender,
        };
        let connection = Arc::clone(connection);
        let exchange: Exchange = Box::pin(async move { connection.subscribe(call).await });
        Self {
            asked,
            exchange: Some(exchange),
            messages,
            end: End::Broken,
        }
    }

    /// The next event. Cancel safe; must not be called after the end.
    pub(super) async fn next(&mut self) -> SubscriptionEvent {
        loop {
            tokio::select! {
                biased;
                message = self.messages.recv() => match message {
                    Some(ServerMessage::Notification(notification)) => return self.sort(notification),
                    Some(_) => {}
                    None => return SubscriptionEvent::Ended(self.end.clone()),
                },
                outcome = poll_exchange(&mut self.exchange) => {
                    self.exchange = None;
                    self.end = End::from_outcome(outcome);
                }
            }
        }
    }

    fn sort(&self, notification: Notification) -> SubscriptionEvent {
        if notification.method == Method::Acknowledged {
            let agreed = notification.param("notifications");
            return SubscriptionEvent::Acknowledged(agreed.unwrap_or_else(Json::empty_object));
        }
        SubscriptionEvent::Notification(notification.without_subscription_id())
    }
}

impl End {
    fn from_outcome(outcome: Result<Reply, BackendError>) -> Self {
        match outcome {
            Ok(Reply::Answer { response, .. }) => match response.error_code() {
                Some(code::METHOD_NOT_FOUND) => Self::Unsupported,
                Some(code::INVALID_PARAMS | code::MISSING_CLIENT_CAPABILITY) => {
                    let message = response.error().and_then(|error| error.text_at("message"));
                    Self::Refused {
                        message: message.unwrap_or_default(),
                    }
                }
                _ => Self::Answered,
            },
            Ok(Reply::Rejected {
                status: 400 | 404 | 405 | 501,
                ..
            }) => Self::Unsupported,
            Ok(Reply::Rejected { .. } | Reply::Redirected) | Err(_) => Self::Broken,
        }
    }
}

/// Waits for the end of an exchange; never resolves if it has already ended.
async fn poll_exchange(exchange: &mut Option<Exchange>) -> Result<Reply, BackendError> {
    poll_fn(|context| match exchange {
        Some(exchange) => exchange.as_mut().poll(context),
        None => Poll::Pending,
    })
    .await
}

/// The capabilities with which a server may send task notifications.
fn tasks_capability() -> Json {
    Json::empty_object().with_nested("extensions", TASKS_EXTENSION, &Json::empty_object())
}
