//! Taking up a listener.
//!
//! Must not know: lines of clients.

use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::Era;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::dedicated::Dedicated;
use crate::error::BackendError;
use crate::hub::{Hub, Place};
use crate::listen::{Interest, Listen, Listening};
use crate::supervisor::State;

/// What taking up listeners needs.
pub(crate) struct Listeners {
    hub: Arc<Hub>,
    /// Of the base line.
    state: watch::Receiver<State>,
    tasks: TaskTracker,
    nesting: usize,
    /// How long a server may take to agree.
    patience: Duration,
    /// Listeners that may have a subscription of their own.
    dedicated: Arc<Semaphore>,
}

impl Listeners {
    pub(crate) fn new(
        hub: Arc<Hub>,
        state: watch::Receiver<State>,
        tasks: TaskTracker,
        nesting: usize,
        patience: Duration,
        dedicated: usize,
    ) -> Self {
        let dedicated = Arc::new(Semaphore::new(dedicated.min(Semaphore::MAX_PERMITS)));
        Self { hub, state, tasks, nesting, patience, dedicated }
    }

    /// Takes a listener up at a server of this era; resolves once it is known what is honoured.
    pub(crate) async fn add(&self, listen: Listen, era: Era) -> Result<Listening, BackendError> {
        if listen.interest.unknown.is_some()
            && era == Era::Modern
            && let Ok(permit) = Arc::clone(&self.dedicated).try_acquire_owned()
        {
            return self.add_dedicated(listen, permit).await;
        }
        let interest = listen.interest.clone();
        let place = self.hub.add(listen);
        let honoured = timeout(self.patience, self.hub.honoured(&interest)).await.map_err(|_| self.too_late())?;
        place.trim(&honoured);
        Ok(Listening::new(honoured, place))
    }

    async fn add_dedicated(
        &self,
        listen: Listen,
        permit: tokio::sync::OwnedSemaphorePermit,
    ) -> Result<Listening, BackendError> {
        let of_session = listen.interest.session;
        // What is meant for the session comes to it in any case.
        let interest = Interest { session: of_session, ..Interest::default() };
        let place = of_session.then(|| self.hub.add(Listen { interest, ..listen.clone() }));
        let (told, honoured) = oneshot::channel();
        let dedicated = Dedicated {
            hub: Arc::clone(&self.hub),
            state: self.state.clone(),
            listen,
            nesting: self.nesting,
            patience: self.patience,
            honoured: Some(told),
            _permit: permit,
        };
        let guard = Guard { task: self.tasks.spawn(dedicated.run()).abort_handle(), _place: place };
        let mut honoured = match timeout(self.patience, honoured).await {
            Ok(Ok(honoured)) => honoured,
            // The server has no subscriptions, or not this one.
            Ok(Err(_)) => Interest::default(),
            Err(_) => return Err(self.too_late()),
        };
        honoured.session = of_session;
        Ok(Listening::new(honoured, guard))
    }

    fn too_late(&self) -> BackendError {
        BackendError::Timeout { after: self.patience, sent: false }
    }
}

/// Ends a subscription of one listener.
struct Guard {
    task: AbortHandle,
    _place: Option<Place>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.task.abort();
    }
}
