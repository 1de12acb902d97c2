//! The telemetry of one backend, shared by all its spans.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::{Method, Revision};
use opentelemetry::KeyValue;

use crate::error_type::ErrorType;
use crate::message::{Moment, Transport};
use crate::metrics::{
    BACKEND_HTTP, BackendLabels, BackendMetrics, Metrics, SessionSide, Side, Timer,
};
use crate::names::{
    BACKEND_NAME, NETWORK_PEER_ADDRESS, NETWORK_PEER_PORT, NETWORK_PROTOCOL_NAME,
    NETWORK_PROTOCOL_VERSION, NETWORK_TRANSPORT, SERVER_ADDRESS, SERVER_PORT,
};
use crate::subject::Target;

/// Whether trace context goes out to a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceContextPolicy {
    /// It does.
    #[default]
    Forward,
    /// It does not; the context of the client is removed too.
    Omit,
}

/// Which content of tool calls is recorded; none by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentPolicy {
    /// Record the arguments of tool calls.
    pub arguments: bool,
    /// Record the results of tool calls.
    pub results: bool,
    /// Longest text of either, in bytes.
    pub max_bytes: usize,
}

#[cfg(any(test, feature = "test-support"))]
impl Default for ContentPolicy {
    fn default() -> Self {
        Self {
            arguments: false,
            results: false,
            max_bytes: 4096,
        }
    }
}

/// How a backend is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Over HTTP.
    Http {
        /// Host, without user info.
        host: String,
        /// Port.
        port: u16,
    },
    /// As a child process.
    Stdio,
}

/// A backend, as the configuration describes it.
#[derive(Clone, Debug)]
pub struct BackendInfo {
    /// Its name in the configuration.
    pub name: String,
    /// How it is reached.
    pub endpoint: Endpoint,
    /// Whether trace context goes out to it.
    pub trace_context: TraceContextPolicy,
    /// Which content of calls is recorded.
    pub content: ContentPolicy,
}

/// The telemetry of one backend. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BackendTelemetry(Arc<Shared>);

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) name: Arc<str>,
    /// Attributes of every span of the backend.
    pub(crate) attributes: Vec<KeyValue>,
    pub(crate) transport: Transport,
    pub(crate) trace_context: TraceContextPolicy,
    pub(crate) content: ContentPolicy,
    /// `None` if nothing is counted.
    pub(crate) registry: Option<Arc<Metrics>>,
    pub(crate) metrics: Arc<BackendMetrics>,
    /// It is one of several endpoints.
    is_replica: bool,
}

impl BackendTelemetry {
    pub(crate) fn new(info: BackendInfo, registry: Option<Arc<Metrics>>) -> Self {
        let name: Arc<str> = Arc::from(info.name);
        let (attributes, transport) = attributes(&name, &info.endpoint);
        let metrics = match &registry {
            Some(registry) => registry.backend(&name),
            None => Arc::new(BackendMetrics::unregistered()),
        };
        // One of the same name may have been counted before.
        metrics.set_up(false);
        metrics.set_endpoints(0, 0);
        metrics.set_configured(true);
        metrics.set_address(match info.endpoint {
            Endpoint::Http { host, port } => Some((Arc::from(host), port)),
            Endpoint::Stdio => None,
        });
        let (trace_context, content) = (info.trace_context, info.content);
        let is_replica = false;
        Self(Arc::new(Shared {
            name,
            attributes,
            transport,
            trace_context,
            content,
            registry,
            metrics,
            is_replica,
        }))
    }

    /// That of one of its several endpoints, with the same counters. `address` is where the endpoint is, if that is not left
    /// to whoever connects.
    #[must_use]
    pub fn of_replica(&self, endpoint: &Endpoint, address: Option<SocketAddr>) -> Self {
        let Shared {
            name,
            trace_context,
            content,
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
            trace_context: *trace_context,
            content: *content,
            registry: registry.clone(),
            metrics: Arc::clone(metrics),
            is_replica: true,
        }))
    }

    /// Sets whether it can be used. Of several endpoints [`BackendMetrics::set_endpoints`] says it.
    pub fn set_up(&self, up: bool) {
        if !self.0.is_replica {
            self.0.metrics.set_up(up);
        }
    }

    /// Its counters.
    #[must_use]
    pub fn metrics(&self) -> &Arc<BackendMetrics> {
        &self.0.metrics
    }

    /// Counts a request that could not be sent, which has no span of its own.
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

    /// A session with it has ended, which lasted so long; `error` is why, unless it was ended properly.
    pub fn session_ended(&self, revision: Revision, lasted: Duration, error: Option<ErrorType>) {
        if let Some(registry) = &self.0.registry {
            registry.session_ended(SessionSide::Client(self.labels()), revision, lasted, error);
        }
    }

    /// The labels of its messages.
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

/// The attributes of every span of a backend that is reached like this, and its transport.
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
