//! The metrics by name: what each is, and its values at one moment.

use super::histogram::Counts;

/// The names of labels.
pub mod label {
    use crate::names;

    /// The backend as the configuration calls it.
    pub const BACKEND: &str = names::BACKEND_NAME;
    /// The method, or `_OTHER`.
    pub const METHOD: &str = names::MCP_METHOD_NAME;
    /// The tool, if it is in the catalogue, or `_OTHER`.
    pub const TOOL: &str = names::GEN_AI_TOOL_NAME;
    /// The prompt, likewise.
    pub const PROMPT: &str = names::GEN_AI_PROMPT_NAME;
    /// What class of error it ended with; absent if with none.
    pub const ERROR: &str = names::ERROR_TYPE;
    /// The revision spoken.
    pub const REVISION: &str = names::MCP_PROTOCOL_VERSION;
    /// `tcp` or `pipe`.
    pub const TRANSPORT: &str = names::NETWORK_TRANSPORT;
    /// `receive` or `transmit`.
    pub const DIRECTION: &str = "network.io.direction";
    /// Why spans were dropped.
    pub const REASON: &str = "reason";
    /// On the one series that stands for all beyond the limit.
    pub const OVERFLOW: &str = "otel.metric.overflow";
}

/// What kind of numbers a metric has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// How often and how long.
    Histogram,
    /// A sum that only grows.
    Counter,
    /// A sum that grows and shrinks.
    UpDownCounter,
    /// A state.
    Gauge,
}

impl Shape {
    /// As OpenTelemetry calls the instrument.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Histogram => "histogram",
            Self::Counter => "counter",
            Self::UpDownCounter => "updowncounter",
            Self::Gauge => "gauge",
        }
    }
}

/// What a metric is.
#[derive(Clone, Copy, Debug)]
pub struct FamilyInfo {
    /// Its name in OpenTelemetry.
    pub name: &'static str,
    /// Its unit (UCUM); annotations in braces.
    pub unit: &'static str,
    /// What it says.
    pub help: &'static str,
    /// What kind of numbers.
    pub shape: Shape,
    /// The labels it can have.
    pub labels: &'static [&'static str],
}

const fn info(
    name: &'static str,
    unit: &'static str,
    shape: Shape,
    labels: &'static [&'static str],
    help: &'static str,
) -> FamilyInfo {
    FamilyInfo { name, unit, help, shape, labels }
}

const OPERATION: &[&str] = &[
    label::METHOD,
    label::TOOL,
    label::PROMPT,
    label::ERROR,
    label::REVISION,
    label::TRANSPORT,
    label::BACKEND,
    label::OVERFLOW,
];

/// Every metric there is.
pub const FAMILIES: &[FamilyInfo] = &[
    info(
        "mcp.server.operation.duration",
        "s",
        Shape::Histogram,
        OPERATION,
        "From the arrival of a request or notification until its answer has gone.",
    ),
    info(
        "mcp.client.operation.duration",
        "s",
        Shape::Histogram,
        OPERATION,
        "From sending a request or notification to a backend until its answer has come.",
    ),
    info("fanlight.requests.active", "{request}", Shape::UpDownCounter, &[], "Requests that have no answer yet."),
    info("fanlight.sessions.active", "{session}", Shape::UpDownCounter, &[], "Sessions that clients have open."),
    info("fanlight.calls.parked", "{call}", Shape::UpDownCounter, &[], "Calls that wait for input of a client."),
    info("fanlight.client.io", "By", Shape::Counter, &[label::DIRECTION], "Bytes of messages from and to clients."),
    info("fanlight.backend.up", "", Shape::Gauge, &[label::BACKEND], "Whether a backend can be used: 1 or 0."),
    info(
        "fanlight.backend.restarts",
        "{restart}",
        Shape::Counter,
        &[label::BACKEND],
        "Starts of a process after its first.",
    ),
    info(
        "fanlight.backend.reconnects",
        "{reconnect}",
        Shape::Counter,
        &[label::BACKEND],
        "Connections to a backend after its first.",
    ),
    info(
        "fanlight.backend.io",
        "By",
        Shape::Counter,
        &[label::BACKEND, label::DIRECTION],
        "Bytes of messages from and to a backend.",
    ),
    info(
        "fanlight.spans.dropped",
        "{span}",
        Shape::Counter,
        &[label::REASON],
        "Spans that were recorded and could not be delivered.",
    ),
];

/// The labels of a value, by name.
pub type Labels = Vec<(&'static str, String)>;
/// A value with its labels.
pub type Point = (Labels, Values);

/// The values of one metric at one moment.
#[derive(Debug)]
pub struct Family {
    /// The metric.
    pub info: &'static FamilyInfo,
    /// Its values.
    pub points: Vec<Point>,
}

/// One value.
#[derive(Debug)]
pub enum Values {
    /// Of a counter or gauge.
    Integer(i64),
    /// Of a histogram.
    Histogram(Counts),
}
