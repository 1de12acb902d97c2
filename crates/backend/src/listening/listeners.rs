//! Adds listeners, and determines which of their interests the server accepts.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{BackendError, Interest, Listen, Listening};
use fanlight_protocol::Method;
use fanlight_protocol::result::ServerDescription;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::capabilities::Notifies;
use super::modern::SharedSubscription;
use super::worker::{connected, stopped};
use crate::connection::Connection;
use crate::connection::supervisor::State;
use crate::subscriptions::SubscriptionRegistry;

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
        if interest.unknown.is_some() {
            let connection = ready.await?;
            if connection.revision().has_request(&Method::Listen)
                && let Ok(permit) = Arc::clone(&self.dedicated).try_acquire_owned()
            {
                return self.add_dedicated(listen, permit).await;
            }
            let registration = self.registry.add(listen);
            return Ok(Listening::new(
                self.agreed(&self.registry, &interest).await?,
                registration,
            ));
        }
        let registration = self.registry.add(listen);
        let own = Interest {
            session: interest.session,
            ..Interest::default()
        };
        // The session's own messages need no agreement of the server.
        if interest == own {
            return Ok(Listening::new(own, registration));
        }
        let agreed = async {
            ready.await?;
            self.agreed(&self.registry, &interest).await
        };
        let honoured = match agreed.await {
            Err(error) if !own.session || error == BackendError::ShuttingDown => return Err(error),
            agreed => agreed.unwrap_or(own),
        };
        Ok(Listening::new(honoured, registration))
    }

    /// The part of a listener's interest that the server accepts.
    async fn agreed(
        &self,
        registry: &SubscriptionRegistry,
        interest: &Interest,
    ) -> Result<Interest, BackendError> {
        let late = |_| BackendError::Timeout {
            after: self.patience,
            sent: false,
        };
        timeout(self.patience, registry.honoured(interest))
            .await
            .map_err(late)
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
        // Messages outside of any subscription: the session's own, and notifications that Fanlight
        // does not know.
        let outside = self.registry.add(Listen {
            interest: Interest {
                session: listen.interest.session,
                ..Interest::default()
            },
            ..listen.clone()
        });
        let interest = listen.interest.clone();
        let registry = self.registry.registry_for_one(interest.unknown.clone());
        let registration = registry.add(Listen {
            interest: Interest {
                session: false,
                ..interest.clone()
            },
            ..listen
        });
        let keeping = keep_apart(Arc::clone(&registry), self.state.clone(), self.patience);
        let guard = (
            AbortOnDropHandle::new(self.tasks.spawn(keeping)),
            (registration, outside),
            // The base connection is not ended as unused.
            (permit, self.registry.dedicated()),
        );
        Ok(Listening::new(
            self.agreed(&registry, &interest).await?,
            guard,
        ))
    }
}

/// Keeps up a subscription for the listeners of `registry` alone, at each connection of a modern
/// server; returns when the server ends.
async fn keep_apart(
    registry: Arc<SubscriptionRegistry>,
    mut state: watch::Receiver<State>,
    patience: Duration,
) {
    let mut is_repeated = false;
    while let Some(connection) = connected(&mut state, || {}).await {
        registry.reset_verdicts();
        let subscription = SharedSubscription::new(&registry, &connection, patience, is_repeated);
        let is_modern = connection.revision().has_request(&Method::Listen);
        tokio::select! {
            () = subscription.keep(), if is_modern => {}
            _ = connection.lost() => {}
            () = stopped(state.clone()) => {}
        }
        is_repeated = true;
    }
    registry.close();
}
