//! A server with one set of credentials, at one or several endpoints.

use std::sync::Arc;

use fanlight_canonical::BackendClient;
use tokio_util::sync::CancellationToken;

use crate::backend::{Backend, BackendLife};
use crate::process_log::ProcessLog;
use crate::replicas::{Places, Replicas};
use crate::settings::{BackendSettings, KnownServer};

/// A server that all its users reach with the same credentials.
#[derive(Clone)]
pub enum Server {
    /// A process, or a server at one endpoint.
    One(Arc<Backend>),
    /// A server at several endpoints.
    Several(Arc<Replicas>),
}

impl Server {
    /// Begins to connect. `known` has facts about a server that is a process, as for
    /// [`Backend::resume`].
    ///
    /// Needs a tokio runtime around it.
    pub fn start(
        settings: BackendSettings,
        known: Option<KnownServer>,
        shutdown: CancellationToken,
    ) -> Self {
        match Places::of(&settings) {
            Some(places) => Self::Several(Replicas::start(settings, places, &shutdown)),
            None => Self::One(Backend::resume(settings, known, shutdown)),
        }
    }

    /// Begins to connect for a single client. `places` has the endpoints, if there are several. Its
    /// processes share a log with others.
    pub(crate) fn of_one(
        settings: BackendSettings,
        places: Option<Places>,
        log: Arc<ProcessLog>,
        shutdown: CancellationToken,
    ) -> Self {
        match places {
            Some(places) => Self::Several(Replicas::start(settings, places, &shutdown)),
            None => Self::One(Backend::logging_to(log, settings, None, shutdown)),
        }
    }

    /// Whether it keeps anything that its clients wait for or that would be lost with it, as far as
    /// known.
    pub(crate) fn is_needed(&self) -> bool {
        matches!(self, Self::One(backend) if backend.is_needed())
    }

    /// The server as the core sees it.
    pub fn client(&self) -> Arc<dyn BackendClient> {
        match self {
            Self::One(backend) => Arc::clone(backend) as _,
            Self::Several(replicas) => Arc::clone(replicas) as _,
        }
    }

    /// A handle that can end the server but does not keep it alive.
    pub fn life(&self) -> BackendLife {
        match self {
            Self::One(backend) => backend.life(),
            Self::Several(replicas) => replicas.life(),
        }
    }

    /// See [`Backend::use_credentials`].
    pub fn use_credentials(&self, settings: &BackendSettings) {
        match self {
            Self::One(backend) => backend.use_credentials(settings),
            Self::Several(replicas) => replicas.use_credentials(settings),
        }
    }
}
