//! The bounded channel from a server to the client of one call, or to one listener.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use fanlight_protocol::{Json, Method, MissingCapability, Notification, Response};
use fanlight_telemetry::Parent;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::time::Instant;

/// A message from a server to the client of one call before the response, or to a listener.
#[derive(Debug)]
pub enum ServerMessage {
    /// A notification that belongs to the call. `notifications/progress` carries the token that
    /// Fanlight made for its hop; the client edge replaces it by the client's own token.
    Notification(Notification),
    /// Progress of a task after the call that created it was answered. It carries the client's
    /// token of that call (2025-11-25 basic/utilities/tasks, Task Progress Notifications).
    TaskProgress(Notification),
    /// A request of a legacy server to the client (elicitation, sampling, roots).
    Request(ServerRequest),
    /// A request of the server that was refused without asking the client, because the client lacks
    /// a capability for it.
    Refused(MissingCapability),
    /// The state of the event stream that carries the call.
    Stream(StreamSignal),
}

/// A change of the event stream on which a legacy server answers a call. The client edge may do the
/// same with its own stream, or ignore it.
#[derive(Clone, Debug)]
pub enum StreamSignal {
    /// A stream has begun that can be resumed (2025-11-25 basic/transports, Resumability and
    /// Redelivery).
    Begun,
    /// The server has closed the stream for a while, and the server edge resumes it after `retry`
    /// (2025-11-25 basic/transports, Sending Messages to the Server).
    Paused {
        /// The delay that the server asked for, if any.
        retry: Option<Duration>,
        /// Notified by the client edge when its client asks for the stream again. The server edge
        /// then resumes the stream at once.
        resumed: Arc<Notify>,
    },
}

/// A request of a server to the client of a call, sent while the call runs.
#[derive(Debug)]
pub struct ServerRequest {
    /// The method, such as `elicitation/create`.
    pub method: Method,
    /// `params` as the server sent them.
    pub params: Option<Json>,
    /// The span of this request.
    pub trace: Parent,
    /// Takes the client's response, a result or an error, whose id does not matter. If it is
    /// dropped unused, the server gets an error that says that the client cannot be asked. It is
    /// closed once the server no longer waits.
    pub answer: oneshot::Sender<Response>,
    /// Takes client notifications that name this request, such as its progress; `None` if the
    /// server can get none.
    pub notices: Option<ClientNotices>,
    /// The time after which a response is discarded.
    pub deadline: Instant,
}

/// Takes client notifications that name one request of a server, until the request is answered.
/// They use the client's ids; the server edge puts in the server's own. Notifications that do not
/// fit are dropped.
pub type ClientNotices = mpsc::Sender<Box<Notification>>;

/// The sending half of the bounded channel from a server to the client of one call, or to one
/// listener. It keeps the order.
///
/// Most calls are answered without any message, and most listeners wait for long, so an empty
/// channel must be small. tokio allocates its queue in blocks of 32 places, hence the boxes.
#[derive(Clone, Default)]
pub struct ServerMessages {
    /// `None` discards all messages.
    sender: Option<mpsc::Sender<Box<ServerMessage>>>,
    map: Option<Arc<Map>>,
}

/// Changes a message before it is sent, or drops it by returning `None`.
type Map = dyn Fn(ServerMessage) -> Option<ServerMessage> + Send + Sync;

/// The receiving half of the channel that [`ServerMessages`] sends to.
#[derive(Debug)]
pub struct MessageReceiver(mpsc::Receiver<Box<ServerMessage>>);

impl ServerMessages {
    /// A channel that holds at most `capacity` messages.
    pub fn channel(capacity: usize) -> (Self, MessageReceiver) {
        let (sender, receiver) = mpsc::channel(capacity.clamp(1, Semaphore::MAX_PERMITS));
        (
            Self {
                sender: Some(sender),
                map: None,
            },
            MessageReceiver(receiver),
        )
    }

    /// A sender that drops every message: notifications are lost and requests stay unanswered.
    pub fn discard() -> Self {
        Self::default()
    }

    /// A sender to the same channel that passes each message through `map`, which may change or
    /// drop it. The transport calls `map` for each message as it is sent, so `map` must not block.
    /// It is not called if messages are discarded.
    pub fn with_map(
        &self,
        map: impl Fn(ServerMessage) -> Option<ServerMessage> + Send + Sync + 'static,
    ) -> Self {
        let map: Arc<Map> = match self.map.clone() {
            None => Arc::new(map),
            Some(next) => Arc::new(move |message| next(map(message)?)),
        };
        Self {
            sender: self.sender.clone(),
            map: Some(map),
        }
    }

    /// Whether the receiver still exists.
    pub fn is_connected(&self) -> bool {
        self.sender
            .as_ref()
            .is_some_and(|sender| !sender.is_closed())
    }

    /// Sends a message at once, or waits while the channel is full. For transports on which waiting
    /// delays no other call.
    pub fn send(&self, message: ServerMessage) -> impl Future<Output = ()> + Send {
        // Boxed if it has to wait, because it is part of the futures of all calls.
        let waiting =
            self.prepare(message)
                .and_then(|(sender, message)| match sender.try_send(message) {
                    Err(TrySendError::Full(message)) => Some(Box::pin(sender.send(message))),
                    // An error means that the client has gone, and its call is about to be
                    // cancelled.
                    Ok(()) | Err(TrySendError::Closed(_)) => None,
                });
        async move {
            if let Some(waiting) = waiting {
                let _ = waiting.await;
            }
        }
    }

    /// Sends a message unless the channel is full; returns false only in that case. For transports
    /// that several clients share, on which waiting for one client would delay the others.
    #[must_use = "false means that the message was lost"]
    pub fn try_send(&self, message: ServerMessage) -> bool {
        let Some((sender, message)) = self.prepare(message) else {
            return true;
        };
        !matches!(sender.try_send(message), Err(TrySendError::Full(_)))
    }

    /// The mapped message and its channel; `None` if the message is dropped.
    fn prepare(
        &self,
        message: ServerMessage,
    ) -> Option<(&mpsc::Sender<Box<ServerMessage>>, Box<ServerMessage>)> {
        let sender = self.sender.as_ref()?;
        let message = match &self.map {
            Some(map) => map(message)?,
            None => message,
        };
        Some((sender, Box::new(message)))
    }
}

impl MessageReceiver {
    /// The next message, once there is one; `None` once all senders are gone.
    pub async fn recv(&mut self) -> Option<ServerMessage> {
        self.0.recv().await.map(|message| *message)
    }

    /// Polls for the next message; ready with `None` once all senders are gone.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<ServerMessage>> {
        self.0
            .poll_recv(cx)
            .map(|message| message.map(|message| *message))
    }

    /// The next message, if one has been sent already.
    pub fn try_recv(&mut self) -> Option<ServerMessage> {
        self.0.try_recv().ok().map(|message| *message)
    }

    /// Whether no message is waiting.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fanlight_protocol::opaque!(ServerMessages);

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str) -> ServerMessage {
        ServerMessage::Notification(Notification::new(Method::from_name(name), None))
    }

    fn name(message: Option<ServerMessage>) -> Option<String> {
        match message? {
            ServerMessage::Notification(notification) => {
                Some(notification.method.as_str().to_owned())
            }
            other => panic!("unexpected {other:?}"),
        }
    }

    #[tokio::test]
    async fn messages_arrive_in_order_from_all_senders() {
        let (messages, mut receiver) = ServerMessages::channel(2);
        let other = messages.with_map(|_| Some(message("mapped")));
        let received = tokio::spawn(async move {
            let mut names = Vec::new();
            while let Some(name) = name(receiver.recv().await) {
                names.push(name);
            }
            names
        });
        messages.send(message("a")).await;
        drop(messages);
        tokio::task::yield_now().await;
        other.send(message("b")).await;
        other.send(message("c")).await;
        drop(other);
        assert_eq!(received.await.unwrap(), ["a", "mapped", "mapped"]);
    }

    #[tokio::test]
    async fn message_outlives_its_sender() {
        let (messages, mut receiver) = ServerMessages::channel(1);
        assert!(receiver.try_recv().is_none());
        assert!(messages.try_send(message("a")));
        assert!(!messages.try_send(message("b")), "the channel is full");
        drop(messages);
        assert_eq!(name(receiver.try_recv()).as_deref(), Some("a"));
        assert!(receiver.recv().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn send_to_a_dropped_receiver_returns_at_once() {
        let (messages, receiver) = ServerMessages::channel(1);
        assert!(messages.is_connected());
        assert!(messages.try_send(message("a")));
        let waits = {
            let messages = messages.clone();
            tokio::spawn(async move { messages.send(message("b")).await })
        };
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        drop(receiver);
        waits.await.unwrap();
        assert!(!messages.is_connected() && messages.try_send(message("c")));
        tokio::time::timeout(Duration::from_secs(1), messages.send(message("d")))
            .await
            .unwrap();
        assert!(
            !ServerMessages::discard().is_connected()
                && ServerMessages::discard().try_send(message("e"))
        );
    }
}
