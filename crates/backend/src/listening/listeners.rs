//! Adds listeners, and determines which of their interests the server accepts.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{BackendError, Backoff, Interest, Listen, Listening, ServerMessage};
use fanlight_protocol::Method;
use fanlight_protocol::result::ServerDescription;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{sleep, timeout};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::capabilities::Notifies;
use crate::connection::Connection;
use crate::connection::supervisor::State;
use crate::listening::subscription::{BackendSubscription, End, SubscriptionEvent};
use crate::listening::worker::{connected, stopped};
use crate::subscriptions::{Filter, Registration, SubscriptionRegistry};

/// Adds listeners of one server.
pub(crate) struct Listeners {
    pub(crate) registry: Arc<SubscriptionRegistry>,
    /// The state of the base connection.
    pub(crate) state: watch::Receiver<State>,
    pub(crate) tasks: TaskTracker,
    /// The longest wait for a server to acknowledge a subscription.
    pub(crate) patience: Duration,
    /// Limits the subscriptions of single listeners.
    pub(crate) dedicated: Arc<Semaphore>,
}

impl Listeners {
    /// Adds a listener. Resolves once the accepted interests are known. `ready` resolves with the
    /// base connection.
    ///
    /// A session's listener receives messages from every present and future connection. So an
    /// unreachable or slow server is no failure: the client listens once, for as long as it likes.
    pub(crate) async fn add(
        &self,
        listen: Listen,
        ready: impl Future<Output = Result<Arc<Connection>, BackendError>>,
    ) -> Result<Listening, BackendError> {
        let interest = listen.interest.clone();
        if interest.session && interest.unknown.is_none() {
            let own = Interest {
                session: true,
                ..Interest::default()
            };
            let registration = self.registry.add(listen);
            // The session's own messages need no agreement of the server.
            let honoured = if interest == own {
                None
            } else {
                match ready.await {
                    Err(BackendError::ShuttingDown) => return Err(BackendError::ShuttingDown),
                    Err(_) => None,
                    Ok(_) => self.agreed(&registration, &interest).await,
                }
            };
            return Ok(Listening::new(honoured.unwrap_or(own), registration));
        }
        let connection = ready.await?;
        if interest.unknown.is_some()
            && connection.revision().has_request(&Method::Listen)
            && let Ok(permit) = Arc::clone(&self.dedicated).try_acquire_owned()
        {
            return self.add_dedicated(listen, permit).await;
        }
        let registration = self.registry.add(listen);
        let honoured = self.agreed(&registration, &interest).await;
        let honoured = honoured.ok_or_else(|| self.timed_out())?;
        Ok(Listening::new(honoured, registration))
    }

    /// The part of a listener's interest that the server accepts; `None` if it does not answer in
    /// time. The server is asked for no more than that from now on.
    async fn agreed(&self, registration: &Registration, interest: &Interest) -> Option<Interest> {
        let honoured = timeout(self.patience, self.registry.honoured(interest)).await;
        let honoured = honoured.ok()?;
        registration.reduce_to(&honoured);
        Some(honoured)
    }

    /// Adds a listener for changed lists and for messages to its session, while the server's
    /// process rests. It receives messages from the next connection on; until then the server can
    /// send nothing.
    pub(crate) fn add_at_rest(&self, listen: Listen, description: &ServerDescription) -> Listening {
        let honoured = Interest {
            lists: Notifies::declared_by(description).lists & listen.interest.lists,
            session: listen.interest.session,
            ..Interest::default()
        };
        Listening::new(honoured, self.registry.add(listen))
    }

    async fn add_dedicated(
        &self,
        listen: Listen,
        permit: OwnedSemaphorePermit,
    ) -> Result<Listening, BackendError> {
        let of_session = listen.interest.session;
        // Messages outside of any subscription: the session's own, and notifications that Fanlight
        // does not know.
        let registration = self.registry.add(Listen {
            interest: Interest {
                session: of_session,
                ..Interest::default()
            },
            ..listen.clone()
        });
        let (sender, honoured) = oneshot::channel();
        let subscription = DedicatedSubscription {
            registry: Arc::clone(&self.registry),
            state: self.state.clone(),
            listen,
            patience: self.patience,
            honoured: Some(sender),
            _permit: permit,
            _in_use: self.registry.dedicated(),
        };
        let guard = (
            AbortOnDropHandle::new(self.tasks.spawn(subscription.run())),
            registration,
        );
        let mut honoured = match timeout(self.patience, honoured).await {
            Ok(Ok(honoured)) => honoured,
            // The server has no subscriptions, or refuses this one.
            Ok(Err(_)) => Interest::default(),
            Err(_) => return Err(self.timed_out()),
        };
        honoured.session = of_session;
        Ok(Listening::new(honoured, guard))
    }

    fn timed_out(&self) -> BackendError {
        BackendError::Timeout {
            after: self.patience,
            sent: false,
        }
    }
}

/// A subscription of a single listener.
pub(super) struct DedicatedSubscription {
    pub(super) registry: Arc<SubscriptionRegistry>,
    pub(super) state: watch::Receiver<State>,
    pub(super) listen: Listen,
    /// The longest wait for an acknowledgement.
    pub(super) patience: Duration,
    /// Receives the accepted part of the filter, once.
    pub(super) honoured: Option<oneshot::Sender<Interest>>,
    pub(super) _permit: OwnedSemaphorePermit,
    /// Keeps the base connection from being ended as unused.
    _in_use: Arc<()>,
}

impl DedicatedSubscription {
    /// Keeps up the subscription until the server ends or turns out not to support it.
    pub(super) async fn run(self) {
        let stopped = stopped(self.state.clone());
        tokio::select! {
            () = stopped => {}
            () = self.keep() => {}
        }
    }

    async fn keep(mut self) {
        let mut state = self.state.clone();
        let mut failed = None;
        while let Some(connection) = connected(&mut state, || {}).await {
            let backoff = failed.get_or_insert_with(|| Backoff::new(connection.retry_delays()));
            if connection.revision().has_request(&Method::Listen) {
                tokio::select! {
                    end = self.receive(&connection, backoff) => if !matches!(end, End::Broken) {
                        return;
                    },
                    _ = connection.lost() => {}
                }
            }
            sleep(backoff.next_delay()).await;
        }
    }

    /// Passes on all messages of one subscription.
    async fn receive(&mut self, connection: &Arc<Connection>, backoff: &mut Backoff) -> End {
        let interest = &self.listen.interest;
        let unknown = interest.unknown.as_ref();
        let mut subscription =
            BackendSubscription::begin(connection, Filter::from_interest(interest), unknown);
        let Ok(mut event) = timeout(self.patience, subscription.next()).await else {
            return End::Broken;
        };
        loop {
            match event {
                SubscriptionEvent::Acknowledged(agreed) => {
                    backoff.reset();
                    let agreed = Interest::of_filter(&agreed);
                    let mut honoured = Filter::from_interest(&agreed).honours(interest);
                    honoured.unknown = agreed.unknown;
                    match self.honoured.take() {
                        Some(sender) => drop(sender.send(honoured)),
                        None => self
                            .registry
                            .warn_of_slow(honoured.announce(&self.listen.messages)),
                    }
                }
                SubscriptionEvent::Notification(notification) => {
                    let taken = self
                        .listen
                        .messages
                        .try_send(ServerMessage::Notification(notification));
                    self.registry.warn_of_slow(usize::from(!taken));
                }
                SubscriptionEvent::Ended(end) => return end,
            }
            event = subscription.next().await;
        }
    }
}
