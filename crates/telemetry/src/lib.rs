//! Spans, trace context and metrics of an MCP proxy.
//!
//! The request path uses few types: [`Telemetry`] opens a [`ServerSpan`] for each message that arrives; its [`Parent`]
//! travels with the call and opens one [`ClientSpan`] per message sent to a backend, whose [`Propagation`] is the trace
//! context that goes out. Ended spans go to a bounded ring, an exporter and writers, none of which blocks the request
//! path. Durations are counted in [`Metrics`] by the same calls. [`clients`] describes clients to operators.
//!
//! Links no HTTP: the OTLP exporter is a crate of its own, plugged in by [`Builder::export_spans`]. A span gets the
//! principal of its request, once there is one, as a field of [`Arrival`].

mod active;
mod backend;
mod begin;
mod builder;
mod client_name;
pub mod clients;
mod console;
mod content;
mod context;
mod current;
mod error_type;
mod event;
mod file;
mod inbound;
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
mod rewritten;
pub mod ring;
mod running;
mod server_spans;
mod settings;
mod span;
mod span_data;
mod stored;
mod subject;
mod telemetry;
mod text;
mod worker;

pub use backend::{BackendInfo, BackendTelemetry, ContentPolicy, Endpoint, TraceContextPolicy};
pub use builder::{Builder, StartError};
pub use client_name::ClientName;
pub use context::{TraceContext, Traceparent};
pub use current::{Ids, current};
pub use error_type::{ErrorType, Outcome};
pub use event::Event;
pub use inbound::{Carriers, Headers, TrustInbound, without_trace_context};
pub use message::{Arrival, Departure, Id, Moment, Network};
pub use metrics::Metrics;
pub use opentelemetry::trace::TraceId;
pub use parent::Parent;
pub use propagation::Propagation;
pub use rewritten::Rewritten;
pub use ring::{Ring, RingLimits};
pub use running::RunningRequest;
pub use settings::{BatchSettings, FileSettings, Propagators, Sampling, Settings};
pub use span::{ClientSpan, ConnectSpan, MirrorSpan, ServerSpan};
pub use stored::recorded_uri;
pub use subject::{Named, Subject, Target, Verdict};
pub use telemetry::{Guard, Telemetry};
