//! The telemetry of one backend, shared by all its spans.

use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::{Method, Revision};
use opentelemetry::KeyValue;

use crate::error_type::ErrorType;
use crate::message::{Moment, Transport};
use crate::metrics::{BACKEND_HTTP, BackendLabels, BackendMetrics, Metrics, SessionSide, Side, Timer};
use crate::names::{
    BACKEND_NAME, NETWORK_PROTOCOL_NAME, NETWORK_PROTOCOL_VERSION, NETWORK_TRANSPORT, SERVER_ADDRESS, SERVER_PORT,
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
        Self { arguments: false, results: false, max_bytes: 4096 }
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
}

impl BackendTelemetry {
    pub(crate) fn new(info: BackendInfo, registry: Option<Arc<Metrics>>) -> Self {
        let name: Arc<str> = Arc::from(info.name);
        let mut attributes = vec![KeyValue::new(BACKEND_NAME, Arc::clone(&name))];
        let mut address = None;
        let transport = match info.endpoint {
            Endpoint::Http { host, port } => {
                let host = Arc::<str>::from(host);
                attributes.push(KeyValue::new(NETWORK_PROTOCOL_NAME, "http"));
                attributes.push(KeyValue::new(NETWORK_PROTOCOL_VERSION, BACKEND_HTTP));
                attributes.push(KeyValue::new(SERVER_ADDRESS, Arc::clone(&host)));
                attributes.push(KeyValue::new(SERVER_PORT, i64::from(port)));
                address = Some((host, port));
                Transport::Tcp
            }
            Endpoint::Stdio => Transport::Pipe,
        };
        attributes.push(KeyValue::new(NETWORK_TRANSPORT, transport.as_str()));
        let metrics = match &registry {
            Some(registry) => registry.backend(&name),
            None => Arc::new(BackendMetrics::unregistered()),
        };
        // One of the same name may have been counted before.
        metrics.set_up(false);
        metrics.set_configured(true);
        metrics.set_address(address);
        let (trace_context, content) = (info.trace_context, info.content);
        Self(Arc::new(Shared { name, attributes, transport, trace_context, content, registry, metrics }))
    }

    /// Its counters.
    #[must_use]
    pub fn metrics(&self) -> &Arc<BackendMetrics> {
        &self.0.metrics
    }

    /// Counts a request that could not be sent, which has no span of its own.
    pub fn not_sent(&self, method: &Method, target: Target<'_>, error: ErrorType) {
        if let Some(registry) = &self.0.registry {
            let timer =
                Timer::start(Arc::clone(registry), Side::Unsent, Some(self.labels()), method, target, Moment::now());
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
        BackendLabels { index: self.metrics().index(), transport: self.0.transport }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }
}
