//! A server that is reached with one set of credentials: at one endpoint, or at several.

use std::sync::Arc;

use fanlight_canonical::BackendClient;
use tokio_util::sync::CancellationToken;

use crate::backend::{Backend, BackendLife};
use crate::process_log::ProcessLog;
use crate::replicas::{Places, Replicas};
use crate::settings::{BackendSettings, KnownServer};

/// A server that all who use it reach with the same credentials.
#[derive(Clone)]
pub enum Server {
    /// At one endpoint, or as a process.
    One(Arc<Backend>),
    /// At several endpoints.
    Several(Arc<Replicas>),
}

impl Server {
    /// Begins to reach it. `known` is what is known of one that is a process, as for [`Backend::resume`].
    ///
    /// Needs a tokio runtime around it.
    #[must_use]
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

    /// Begins to reach one for a single client. Its endpoints, if it has several, are at `places`; its processes share a
    /// log with those of others.
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

    /// Whether it keeps something for its clients that would be lost with it, or that they wait for, as far as is known.
    pub(crate) fn is_needed(&self) -> bool {
        matches!(self, Self::One(backend) if backend.is_needed())
    }

    /// It as the core sees it.
    #[must_use]
    pub fn client(&self) -> Arc<dyn BackendClient> {
        match self {
            Self::One(backend) => Arc::clone(backend) as _,
            Self::Several(replicas) => Arc::clone(replicas) as _,
        }
    }

    /// Ends it without keeping it alive.
    #[must_use]
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
