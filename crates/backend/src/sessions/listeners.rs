//! Adds listeners of a server, and determines which of their interests the server accepts.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{BackendError, Interest, Listen, Listening};
use fanlight_protocol::Method;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::SessionPool;
use crate::connection::supervised::State;
use crate::listening::{Notifies, SharedSubscription, connected, stopped};
use crate::subscriptions::SubscriptionRegistry;

impl SessionPool {
    /// Begins to listen for a client. Resolves once the accepted interests are known.
    ///
    /// A session's listener receives messages from every present and future connection. So an
    /// unreachable or slow server is no failure: the client listens once, for as long as it likes.
    pub(crate) async fn listen(&self, listen: Listen) -> Result<Listening, BackendError> {
        let interest = listen.interest.clone();
        let own = Interest {
            session: interest.session,
            ..Interest::default()
        };
        if interest.is_about_lists_and_session()
            && let Some(Ok(description)) = self.base.resting_description()
        {
            // Until the next connection the server can send nothing.
            let lists = Notifies::declared_by(&description).lists & interest.lists;
            return Ok(Listening::new(
                Interest { lists, ..own },
                self.registry.add(listen),
            ));
        }
        let ready = || self.base.ready(self.settings.timeouts.connect);
        if interest.unknown.is_some()
            && ready().await?.revision().has_request(&Method::Listen)
            && let Ok(permit) = Arc::clone(&self.dedicated).try_acquire_owned()
        {
            return self.listen_apart(listen, own, permit).await;
        }
        let registration = self.registry.add(listen);
        // The session's own messages need no agreement of the server.
        if interest == own {
            return Ok(Listening::new(own, registration));
        }
        let agreed = async {
            ready().await?;
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
        let after = self.settings.timeouts.connect;
        let late = |_| BackendError::Timeout { after, sent: false };
        timeout(after, registry.honoured(interest))
            .await
            .map_err(late)
    }

    /// Listens for a client whose filter has members that Fanlight does not know, by a subscription
    /// of its own.
    async fn listen_apart(
        &self,
        listen: Listen,
        own: Interest,
        permit: OwnedSemaphorePermit,
    ) -> Result<Listening, BackendError> {
        // Messages outside of any subscription: the session's own, and notifications that Fanlight
        // does not know.
        let outside = self.registry.add(Listen {
            interest: own,
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
        let state = self.base.state.clone();
        let keeping = keep_apart(Arc::clone(&registry), state, self.settings.timeouts.connect);
        let guard = (
            AbortOnDropHandle::new(self.settings.context.tasks.spawn(keeping)),
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
