//! Spans, trace context and metrics of an MCP proxy, and where they go.
//!
//! The request path sees few types: [`Telemetry`] opens a [`ServerSpan`] for each message that
//! arrives; its [`Parent`] travels with the call and opens one [`ClientSpan`] per message sent to a
//! backend, which says by its [`Propagation`] what goes out. Whatever ends is handed to a bounded
//! ring, to an exporter and to writers, none of which the request path ever waits for. Durations
//! are counted in [`Metrics`] by the same calls. [`clients`] is what an operator sees of the clients.
//!
//! Must not know: HTTP servers, transports, the configuration file, any other crate but `protocol`.

mod backend;
mod builder;
pub mod clients;
mod console;
mod context;
mod current;
mod error_type;
mod event;
mod file;
mod inbound;
mod kept;
mod live;
mod message;
pub mod metrics;
pub mod names;
pub mod otlp_json;
mod parent;
mod pipeline;
mod propagation;
mod record;
mod recorder;
mod redact;
pub mod ring;
mod settings;
mod span;
mod span_data;
mod subject;
mod telemetry;
mod worker;

pub use backend::{BackendInfo, BackendTelemetry, ContentPolicy, Endpoint, TraceContextPolicy};
pub use builder::{Builder, StartError};
pub use context::{TraceContext, Traceparent};
pub use current::{Ids, current};
pub use error_type::{ErrorType, Outcome};
pub use event::Event;
pub use inbound::{Carriers, Headers, TrustInbound};
pub use message::{Arrival, Departure, Id, Moment, Network, Target};
pub use metrics::Metrics;
pub use opentelemetry::trace::TraceId;
pub use parent::Parent;
pub use propagation::Propagation;
pub use ring::{Ring, RingLimits};
pub use settings::{BatchSettings, FileSettings, Sampling, Settings};
pub use span::{ClientSpan, ConnectSpan, ServerSpan};
pub use subject::{Subject, Verdict};
pub use telemetry::{Guard, Telemetry};
