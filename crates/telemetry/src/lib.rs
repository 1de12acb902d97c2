//! Spans, trace context and metrics of an MCP proxy.
//!
//! Requests use few types. [`Telemetry`] opens a [`ServerSpan`] for each message that arrives. Its
//! [`Parent`] travels with the call and opens a [`ClientSpan`] for each message to a server. The
//! [`Propagation`] of that span is the trace context that goes out.
//!
//! Ended spans go to a bounded ring, to an exporter and to writers. None of them blocks a request.
//! The same calls count durations in [`Metrics`]. [`clients`] describes clients to operators.
//!
//! The crate links no HTTP: the OTLP exporter is a crate of its own, and [`Builder::export_spans`]
//! accepts it.

mod active;
mod backend;
mod begin;
mod builder;
mod client_name;
pub mod clients;
mod console;
mod content;
mod content_rules;
mod context;
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
pub mod recording;
mod redact;
mod rewritten;
pub mod ring;
mod rounds;
mod running;
mod settings;
mod span;
mod span_data;
mod stored;
mod subject;
mod telemetry;
mod text;
mod worker;

pub use opentelemetry::trace::TraceId;
pub use opentelemetry_sdk::trace::SpanData;

pub use backend::{BackendInfo, BackendTelemetry, Endpoint};
pub use builder::{Builder, StartError};
pub use client_name::ClientName;
pub use content::{ContentKind, Level};
pub use content_rules::{ContentScope, ContentSettings, ContentWindow};
pub use context::{TraceContext, Traceparent};
pub use error_type::{ErrorType, Outcome};
pub use event::Event;
pub use inbound::{Carriers, Headers, TrustInbound, without_trace_context};
pub use message::{Arrival, Departure, Id, Moment, Network};
pub use metrics::Metrics;
pub use parent::{Ids, Parent, current};
pub use propagation::Propagation;
pub use rewritten::Rewritten;
pub use ring::{Ring, RingLimits, Side, TraceContent};
pub use running::RunningRequest;
pub use settings::{BatchSettings, FileSettings, Propagators, Sampling, Settings};
pub use span::{ClientSpan, InternalSpan, ServerSpan};
pub use stored::recorded_uri;
pub use subject::{Named, Subject, Target, Verdict};
pub use telemetry::{Guard, Telemetry};
