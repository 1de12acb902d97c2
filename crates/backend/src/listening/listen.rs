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
use crate::connection::Connection;
use crate::connection::supervisor::State;
use crate::hub::{Hub, Place};
use fanlight_canonical::BackendError;
use fanlight_canonical::{Interest, Listen, Listening};

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

    /// Takes a session's listener up. It hears on whatever connection there is or will be, so that
    /// neither a server that is not there at the moment nor one that agrees late is a failure: its
    /// client listens once and for as long as it likes. `ready` is the way to the server.
    pub(crate) async fn add_of_session(
        &self,
        listen: Listen,
        ready: impl Future<Output = Result<Arc<Connection>, BackendError>>,
    ) -> Result<Listening, BackendError> {
        let (interest, own) = (listen.interest.clone(), Interest { session: true, ..Interest::default() });
        let place = self.hub.add(listen);
        // Nothing of it is the server's to agree to.
        if interest == own {
            return Ok(Listening::new(own, place));
        }
        match ready.await {
            Ok(_) => {}
            Err(BackendError::ShuttingDown) => return Err(BackendError::ShuttingDown),
            Err(_) => return Ok(Listening::new(own, place)),
        }
        match timeout(self.patience, self.hub.honoured(&interest)).await {
            Ok(honoured) => {
                place.trim(&honoured);
                Ok(Listening::new(honoured, place))
            }
            Err(_) => Ok(Listening::new(own, place)),
        }
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
