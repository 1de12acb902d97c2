//! The metrics by name, each with its description and with its values at one moment.

/// The names of labels.
pub mod label {
    use crate::names;

    /// The server, by its name in the configuration.
    pub const BACKEND: &str = names::BACKEND_NAME;
    /// The method, or `_OTHER`.
    pub const METHOD: &str = names::MCP_METHOD_NAME;
    /// The tool. `_OTHER` if it is not in the catalogue.
    pub const TOOL: &str = names::GEN_AI_TOOL_NAME;
    /// The prompt. `_OTHER` if it is not in the catalogue.
    pub const PROMPT: &str = names::GEN_AI_PROMPT_NAME;
    /// The class of error. Successful messages lack it.
    pub const ERROR: &str = names::ERROR_TYPE;
    /// The known code of the JSON-RPC error in the response.
    pub const STATUS: &str = names::RPC_RESPONSE_STATUS_CODE;
    /// Always `execute_tool`. Only tool calls have it.
    pub const OPERATION: &str = names::GEN_AI_OPERATION_NAME;
    /// Always `http`.
    pub const PROTOCOL: &str = names::NETWORK_PROTOCOL_NAME;
    /// The version of HTTP.
    pub const PROTOCOL_VERSION: &str = names::NETWORK_PROTOCOL_VERSION;
    /// The host of the server.
    pub const ADDRESS: &str = names::SERVER_ADDRESS;
    /// The port of the server.
    pub const PORT: &str = names::SERVER_PORT;
    /// The negotiated revision.
    pub const REVISION: &str = names::MCP_PROTOCOL_VERSION;
    /// The transport: `tcp` or `pipe`.
    pub const TRANSPORT: &str = names::NETWORK_TRANSPORT;
    /// The direction: `receive` or `transmit`.
    pub const DIRECTION: &str = "network.io.direction";
    /// The state: `up` or `down`.
    pub const STATE: &str = "state";
    /// The reason why spans were dropped.
    pub const REASON: &str = "reason";
    /// The result of a request or a copy.
    pub const OUTCOME: &str = "outcome";
    /// A label of the series that counts everything beyond the limit.
    pub const OVERFLOW: &str = "otel.metric.overflow";
}

fanlight_protocol::named! {
    /// The kind of a metric.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Shape {
        /// The number of values, their sum, and their distribution.
        Histogram = "histogram",
        /// A sum that only grows.
        Counter = "counter",
        /// A sum that grows and shrinks.
        UpDownCounter = "updowncounter",
        /// A state at one moment.
        Gauge = "gauge",
    }
}

/// The description of a metric.
#[derive(Clone, Copy, Debug)]
pub struct FamilyInfo {
    /// The name of the metric in OpenTelemetry.
    pub name: &'static str,
    /// The unit (UCUM). Annotations are in braces.
    pub unit: &'static str,
    /// The meaning of the metric.
    pub help: &'static str,
    /// The kind of the metric.
    pub shape: Shape,
    /// The labels that the metric can have.
    pub labels: &'static [&'static str],
}

impl FamilyInfo {
    /// A counter.
    pub const fn counter(
        name: &'static str,
        unit: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
    ) -> Self {
        let shape = Shape::Counter;
        Self {
            name,
            unit,
            help,
            shape,
            labels,
        }
    }

    /// A gauge without labels.
    pub const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Self {
        Self {
            shape: Shape::Gauge,
            ..Self::counter(name, unit, help, &[])
        }
    }

    /// The metric with these values, each with the text of every label.
    pub fn with<const N: usize, T: Into<String>>(
        &'static self,
        values: impl IntoIterator<Item = ([T; N], u64)>,
    ) -> Family {
        let point = |(texts, count): ([T; N], u64)| {
            let labels = self.labels.iter().copied().zip(texts.map(T::into));
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            (labels.collect(), Values::Integer(count))
        };
        Family {
            info: self,
            points: values.into_iter().map(point).collect(),
        }
    }

    /// The metric with this value, without labels.
    pub fn with_value(&'static self, value: u64) -> Family {
        self.with([([""; 0], value)])
    }
}

const CLIENT_OPERATION: &[&str] = &[
    label::METHOD,
    label::TOOL,
    label::PROMPT,
    label::OPERATION,
    label::ERROR,
    label::STATUS,
    label::REVISION,
    label::TRANSPORT,
    label::PROTOCOL,
    label::PROTOCOL_VERSION,
    label::BACKEND,
    label::OVERFLOW,
    label::ADDRESS,
    label::PORT,
];

/// The labels of `CLIENT_OPERATION` without the server's address and port.
const SERVER_OPERATION: &[&str] = CLIENT_OPERATION.split_at(12).0;

const SERVER_SESSION: &[&str] = &[
    label::REVISION,
    label::TRANSPORT,
    label::PROTOCOL,
    label::PROTOCOL_VERSION,
    label::OVERFLOW,
];

const CLIENT_SESSION: &[&str] = &[
    label::ERROR,
    label::REVISION,
    label::TRANSPORT,
    label::PROTOCOL,
    label::PROTOCOL_VERSION,
    label::ADDRESS,
    label::PORT,
    label::BACKEND,
    label::OVERFLOW,
];

macro_rules! families {
    ($($name:literal, $unit:literal, $shape:ident, $labels:expr, $help:literal;)*) => {
        /// Every metric.
        pub const FAMILIES: &[FamilyInfo] = &[$(
            FamilyInfo { name: $name, unit: $unit, help: $help, shape: Shape::$shape, labels: $labels }
        ),*];
    };
}

families! {
    "mcp.server.operation.duration", "s", Histogram, SERVER_OPERATION,
        "From the arrival of a request or notification until its response is sent.";
    "mcp.client.operation.duration", "s", Histogram, CLIENT_OPERATION,
        "From sending a request or notification to a server until its response arrives.";
    "mcp.server.session.duration", "s", Histogram, SERVER_SESSION,
        "Sessions of legacy clients that have ended.";
    "mcp.client.session.duration", "s", Histogram, CLIENT_SESSION,
        "Sessions with legacy servers that have ended.";
    "fanlight.requests.active", "{request}", UpDownCounter, &[], "Requests without a response yet.";
    "fanlight.sessions.active", "{session}", UpDownCounter, &[], "Open sessions of clients.";
    "fanlight.calls.suspended", "{call}", UpDownCounter, &[], "Calls that wait for a client's input.";
    "fanlight.client.io", "By", Counter, &[label::DIRECTION], "Bytes of messages from and to clients.";
    "fanlight.backend.up", "", Gauge, &[label::BACKEND], "Whether a server can be used: 1 or 0.";
    "fanlight.backend.endpoints", "{endpoint}", Gauge, &[label::BACKEND, label::STATE],
        "Endpoints of a server that has several: connected (up) or not (down).";
    "fanlight.backend.restarts", "{restart}", Counter, &[label::BACKEND], "Restarts of a server's process.";
    "fanlight.backend.reconnects", "{reconnect}", Counter, &[label::BACKEND],
        "Reconnections to a server.";
    "fanlight.backend.ejections", "{ejection}", Counter, &[label::BACKEND],
        "How often Fanlight stopped using a server that did not answer a check or its last calls.";
    "fanlight.backend.failed_connections", "{connection}", Counter, &[label::BACKEND],
        "Failed attempts to connect to a server.";
    "fanlight.backend.stderr.dropped", "{line}", Counter, &[label::BACKEND],
        "Lines of a server's standard error dropped because it wrote too much in a second.";
    "fanlight.backend.io", "By", Counter, &[label::BACKEND, label::DIRECTION],
        "Bytes of messages from and to a server.";
    "fanlight.backend.mirrored", "{request}", Counter, &[label::BACKEND, label::OUTCOME],
        "Copies of a server's requests for its mirror: answered the same, differently or not at \
         all (failed), or not sent (dropped).";
    "fanlight.spans.dropped", "{span}", Counter, &[label::REASON],
        "Recorded spans that could not be delivered.";
    "fanlight.log.dropped", "{line}", Counter, &[], "Log lines dropped because standard error was read too slowly.";
    "fanlight.config.last_reload_successful", "", Gauge, &[],
        "Whether the configuration was valid when it was last read: 1 or 0.";
    "fanlight.config.last_reload_success_timestamp", "s", Gauge, &[],
        "When a valid configuration was last read, in Unix time.";
    "fanlight.config.generation", "{generation}", Gauge, &[],
        "How often the configuration in force has changed, counted from 1 at the start.";
}

/// The labels of a value, as pairs of name and value.
pub type Labels = Vec<(&'static str, String)>;
/// A value with its labels.
pub type Point = (Labels, Values);

/// The values of one metric at one moment.
#[derive(Debug)]
pub struct Family {
    /// The description of the metric.
    pub info: &'static FamilyInfo,
    /// The values, each with its labels.
    pub points: Vec<Point>,
}

/// A value of a metric.
#[derive(Debug)]
pub enum Values {
    /// The value of a counter or a gauge.
    Integer(i64),
    /// The values of a histogram.
    Histogram(Counts),
}

/// The values of a histogram at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// How many values are in each bucket. The buckets are not cumulative, and the last one is
    /// above all [`BOUNDS`](super::BOUNDS).
    pub buckets: Vec<u64>,
    /// The sum of all values, in seconds.
    pub sum_seconds: f64,
}
