//! Measures the duration of a message for its histogram.

use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::{Method, Revision};

use super::Metrics;
use super::histogram::Key;
use crate::message::{Moment, Network, Transport};
use crate::{ErrorType, Target};

/// The histogram that counts a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The histogram of received messages.
    Server,
    /// The histogram of sent messages.
    Client,
    /// Counts requests that could not be sent because there was no connection. It has no durations,
    /// and only operators see it.
    Unsent,
}

/// The labels of messages to and from a server.
#[derive(Clone, Copy, Debug)]
pub struct BackendLabels {
    /// The number of the server in the registry.
    pub(crate) index: u16,
    pub(crate) transport: Transport,
}

/// The version of HTTP that Fanlight speaks with servers.
pub(crate) const BACKEND_HTTP: &str = "1.1";

impl BackendLabels {
    pub(super) fn http(self) -> Option<&'static str> {
        (self.transport == Transport::Tcp).then_some(BACKEND_HTTP)
    }
}

/// The kind of a session that has ended.
#[derive(Clone, Copy, Debug)]
pub enum SessionSide {
    /// A session of a client, over this network.
    Server(Network),
    /// A session with a server.
    Client(BackendLabels),
}

/// The running timer of a message. A request of a client counts as active until its timer is
/// dropped.
#[derive(Debug)]
pub(crate) struct Timer {
    metrics: Arc<Metrics>,
    side: Side,
    began: Moment,
    /// The labels of the message. `None` after it has been counted.
    key: Option<Key>,
}

impl Timer {
    pub(crate) fn start(
        metrics: Arc<Metrics>,
        side: Side,
        backend: Option<BackendLabels>,
        method: &Method,
        target: Target<'_>,
        began: Moment,
    ) -> Self {
        let index = backend.map_or(0, |backend| backend.index);
        let key = Key {
            backend: index,
            method: match method {
                Method::Other(_) => Method::Other(Box::default()),
                known => known.clone(),
            },
            name: metrics.known_names().id(index, target),
            error: None,
            revision: None,
            transport: backend.map(|backend| backend.transport),
            http: backend.and_then(BackendLabels::http),
        };
        if side == Side::Server {
            metrics.add_active(1);
        }
        Self {
            metrics,
            side,
            began,
            key: Some(key),
        }
    }

    pub(crate) fn registry(&self) -> &Metrics {
        &self.metrics
    }

    pub(crate) fn set_network(&mut self, network: Network) {
        if let Some(key) = &mut self.key {
            (key.transport, key.http) = (Some(network.transport()), network.http_version());
        }
    }

    pub(crate) fn set_revision(&mut self, revision: Revision) {
        if let Some(key) = &mut self.key {
            key.revision = Some(revision);
        }
    }

    /// Sets the tool, which a list has.
    pub(crate) fn set_tool(&mut self, name: &str) {
        if let Some(key) = &mut self.key {
            key.name = self.metrics.known_names().listed_id(key.backend, name);
        }
    }

    pub(crate) fn began(&self) -> Moment {
        self.began
    }

    pub(crate) fn stop(mut self, error: Option<ErrorType>, lasted: Duration) {
        if let Some(mut key) = self.key.take() {
            key.error = error.map(ErrorType::bounded);
            self.metrics.series(self.side).record(key, lasted);
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if self.side == Side::Server {
            self.metrics.add_active(-1);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Counts a call of a tool.
    pub(crate) fn record(
        metrics: &Metrics,
        side: Side,
        backend: &str,
        tool: &str,
        error: Option<ErrorType>,
        lasted: Duration,
    ) {
        let backend = metrics.backend(backend).index();
        let name = metrics.known_names().id(backend, Target::Tool(tool));
        let key = Key {
            backend,
            method: Method::CallTool,
            name,
            error,
            revision: None,
            transport: None,
            http: None,
        };
        metrics.series(side).record(key, lasted);
    }
}
