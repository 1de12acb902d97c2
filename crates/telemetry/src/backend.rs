//! The telemetry of one server, which all its spans share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::{Method, Revision};
use opentelemetry::KeyValue;

use crate::message::{Moment, Transport};
use crate::metrics::{
    BACKEND_HTTP, BackendLabels, BackendMetrics, Metrics, SessionSide, Side, Timer,
};
use crate::names::{
    BACKEND_NAME, NETWORK_PEER_ADDRESS, NETWORK_PEER_PORT, NETWORK_PROTOCOL_NAME,
    NETWORK_PROTOCOL_VERSION, NETWORK_TRANSPORT, SERVER_ADDRESS, SERVER_PORT,
};
use crate::recording::Tap;
use crate::{ErrorType, Target};

/// How Fanlight reaches a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// The server is reached over HTTP.
    Http {
        /// The host, without user information.
        host: String,
        /// The port.
        port: u16,
    },
    /// The server is a child process.
    Stdio,
}

/// A server, as the configuration describes it.
#[derive(Clone, Debug)]
pub struct BackendInfo {
    /// The name of the server in the configuration.
    pub name: String,
    /// How Fanlight reaches the server.
    pub endpoint: Endpoint,
}

/// The telemetry of one server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BackendTelemetry(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: Arc<str>,
    /// The attributes of every span of the server.
    pub(crate) attributes: Vec<KeyValue>,
    pub(crate) transport: Transport,
    /// The registry of metrics; `None` if nothing is counted.
    pub(crate) registry: Option<Arc<Metrics>>,
    pub(crate) metrics: Arc<BackendMetrics>,
    tap: Option<Arc<Tap>>,
}

impl BackendTelemetry {
    pub(crate) fn new(
        info: BackendInfo,
        registry: Option<Arc<Metrics>>,
        tap: Option<Arc<Tap>>,
    ) -> Self {
        let name: Arc<str> = Arc::from(info.name);
        let (attributes, transport) = attributes(&name, &info.endpoint);
        let metrics = match &registry {
            Some(registry) => registry.backend(&name),
            None => Arc::new(BackendMetrics::unregistered()),
        };
        // A former server with this name may have used the same counters.
        metrics.set_endpoints(0, 0);
        metrics.set_configured(true);
        metrics.set_address(match info.endpoint {
            Endpoint::Http { host, port } => Some((Arc::from(host), port)),
            Endpoint::Stdio => None,
        });
        Self(Arc::new(Shared {
            name,
            attributes,
            transport,
            registry,
            metrics,
            tap,
        }))
    }

    /// The telemetry of one of several endpoints of this server, with the same counters. `address`
    /// is the fixed address of the endpoint; `None` if each connection resolves the host.
    pub fn for_replica(&self, endpoint: &Endpoint, address: Option<SocketAddr>) -> Self {
        let Shared {
            name,
            registry,
            metrics,
            ..
        } = &*self.0;
        let (mut attributes, transport) = attributes(name, endpoint);
        if let Some(address) = address {
            attributes.push(KeyValue::new(
                NETWORK_PEER_ADDRESS,
                address.ip().to_string(),
            ));
            attributes.push(KeyValue::new(NETWORK_PEER_PORT, i64::from(address.port())));
        }
        Self(Arc::new(Shared {
            name: Arc::clone(name),
            attributes,
            transport,
            registry: registry.clone(),
            metrics: Arc::clone(metrics),
            tap: self.0.tap.clone(),
        }))
    }

    /// The counters of the server.
    pub fn metrics(&self) -> &Arc<BackendMetrics> {
        &self.0.metrics
    }

    /// The tap of the running recording, if there is one.
    #[inline]
    pub fn tap(&self) -> Option<&Arc<Tap>> {
        self.0.tap.as_ref().filter(|tap| tap.is_on())
    }

    /// Counts a request that could not be sent. Such a request has no span of its own.
    pub fn not_sent(&self, method: &Method, target: Target<'_>, error: ErrorType) {
        if let Some(registry) = &self.0.registry {
            let timer = Timer::start(
                Arc::clone(registry),
                Side::Unsent,
                Some(self.labels()),
                method,
                target,
                Moment::now(),
            );
            timer.stop(Some(error), Duration::ZERO);
        }
    }

    /// Counts a session with the server that has ended, and how long it lasted. `error` is the
    /// reason; `None` after a regular end.
    pub fn session_ended(&self, revision: Revision, lasted: Duration, error: Option<ErrorType>) {
        if let Some(registry) = &self.0.registry {
            registry.session_ended(SessionSide::Client(self.labels()), revision, lasted, error);
        }
    }

    /// The labels of messages to and from the server.
    pub(crate) fn labels(&self) -> BackendLabels {
        BackendLabels {
            index: self.metrics().index(),
            transport: self.0.transport,
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }
}

/// The attributes of every span of a server with this endpoint, and its transport.
fn attributes(name: &Arc<str>, endpoint: &Endpoint) -> (Vec<KeyValue>, Transport) {
    let mut attributes = vec![KeyValue::new(BACKEND_NAME, Arc::clone(name))];
    let transport = match endpoint {
        Endpoint::Http { host, port } => {
            attributes.push(KeyValue::new(NETWORK_PROTOCOL_NAME, "http"));
            attributes.push(KeyValue::new(NETWORK_PROTOCOL_VERSION, BACKEND_HTTP));
            attributes.push(KeyValue::new(SERVER_ADDRESS, host.clone()));
            attributes.push(KeyValue::new(SERVER_PORT, i64::from(*port)));
            Transport::Tcp
        }
        Endpoint::Stdio => Transport::Pipe,
    };
    attributes.push(KeyValue::new(NETWORK_TRANSPORT, transport.as_str()));
    (attributes, transport)
}
