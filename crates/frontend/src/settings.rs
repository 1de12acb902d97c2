//! The limits and names of the client side that operators can set.

use std::sync::Arc;
use std::time::Duration;

use crate::forwarding::Replicas;
use fanlight_canonical::{Endpoint, Peer};
use fanlight_credentials::{Authenticate, Pages};
use fanlight_fair::{Budget, Part, limit};
use fanlight_gateway::approvals::Approvals;
use fanlight_http::{Guard, LiveGuard, Origins};
use fanlight_protocol::input::MAX_INPUT_ROUNDS;
use fanlight_protocol::seal::Keys;
use fanlight_record::Record;
use fanlight_telemetry::{Telemetry, TrustInbound};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::{LiveHooks, LiveProtection, SessionRecords};

/// The time for delivering the errors of requests that did not finish within [`FrontendSettings::drain`].
pub(crate) const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// The largest text that is not counted. Its request takes several times as much, and other limits
/// bound the number of requests.
pub(crate) const UNCOUNTED: usize = 4 << 10;

/// The text for a client whose message does not fit into its budget.
pub(crate) const NO_MEMORY: &str =
    "busy: the memory for messages of clients is in use; try again later";

/// Bytes in memory that all clients share, so that no client can use up the limit.
pub(crate) type ByteBudget = Budget<Peer>;

/// Bytes that a peer holds until this is dropped.
pub(crate) type Reservation = fanlight_fair::Reservation<Peer>;

/// A budget of `limit` bytes.
///
/// A peer may hold as much as it leaves free for others: half of all if it is alone, a third beside
/// another such peer. Only the whole limits a peer's first reservation, so each peer can send one
/// message of any allowed size.
pub fn byte_budget(limit: usize) -> Budget<Peer> {
    Budget::new(limit, Part::AS_MUCH_AS_IT_LEAVES)
}

/// The limit of suspended calls, which are calls of modern clients that wait for the input that a legacy server requested.
pub fn max_suspended_calls() -> usize {
    limit("suspendedCalls", 1000)
}

/// The settings for serving clients. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct FrontendSettings {
    /// The endpoint of the client on stdio.
    pub endpoint: Endpoint,
    /// The path of the deprecated HTTP+SSE transport of 2024-11-05, such as `/sse`; clients POST to
    /// `message` below it. `None` turns the transport off.
    pub sse_path: Option<String>,
    /// The accepted values of `Host` and `Origin`, and the listener's public URL
    /// ([`Guard::public_url`](fanlight_http::Guard::public_url)). May change while clients are
    /// served.
    pub guard: LiveGuard,
    /// The keys that seal `requestState`. Without any, a random key is used, and states end with
    /// the process.
    pub keys: Keys,
    /// The largest HTTP request body.
    pub max_body: usize,
    /// The memory for all client requests.
    pub request_memory: ByteBudget,
    /// The memory for answers to slow clients.
    pub answer_memory: ByteBudget,
    /// The largest HTTP request head; at least 8 KiB are always allowed.
    pub max_header: usize,
    /// Further runtimes for HTTP connections, beside the listener's own. Runtimes of one thread
    /// each work best.
    pub workers: Vec<Handle>,
    /// The maximum number of open HTTP connections; further ones wait.
    pub max_connections: usize,
    /// The maximum number of waiting connections.
    pub max_waiting_connections: usize,
    /// The maximum number of open connections per peer; 0 for no limit.
    pub max_peer_connections: usize,
    /// The maximum number of listen-only event streams on HTTP; further ones are refused. Never
    /// more than three quarters of [`Self::max_connections`].
    pub max_streams: usize,
    /// The maximum number of sessions of legacy HTTP clients.
    pub max_sessions: usize,
    /// The maximum number of sessions per peer; 0 for no limit.
    pub max_peer_sessions: usize,
    /// The maximum number of concurrent requests on a stdio connection.
    pub max_concurrent: usize,
    /// The number of server messages buffered per request.
    pub notification_buffer: usize,
    /// The maximum number of open server requests of one legacy client or one modern call.
    pub max_server_requests: usize,
    /// How often a modern server may ask for input in one call of a legacy client.
    pub max_input_rounds: usize,
    /// The maximum number of suspended calls; per process on HTTP, and per connection on stdio. A
    /// suspended call of a modern client waits for input that a legacy server asked for.
    pub max_suspended_calls: usize,
    /// The maximum number of subscriptions of modern clients; per process on HTTP, and per
    /// connection on stdio.
    pub max_subscriptions: usize,
    /// The memory for the descriptions of all legacy clients.
    pub description_memory: ByteBudget,
    /// The maximum number of messages in a batch.
    pub max_batch: usize,
    /// The number of events kept per legacy HTTP session, to resume broken streams.
    pub replay_events: usize,
    /// The size of these events per session.
    pub replay_bytes: usize,
    /// The size of these events of all sessions together.
    pub replay_total_bytes: usize,
    /// How long a client may take to send requested input.
    pub input_timeout: Duration,
    /// The longest line on a stdio connection.
    pub max_line: usize,
    /// Time for the head of one HTTP request.
    pub header_timeout: Duration,
    /// Time for one HTTP request body.
    pub body_timeout: Duration,
    /// The longest time of a connection without a request.
    pub idle_connection: Duration,
    /// How long a client may read nothing, or much less than a kibibyte a second.
    pub write_timeout: Duration,
    /// The longest time of a session without a request.
    pub session_idle: Duration,
    /// The time for running requests after a shutdown request.
    pub drain: Duration,
    /// Cancelled once `drain` has passed; the core then answers running requests with errors.
    pub give_up: CancellationToken,
    /// How long a client that accepts event streams waits for its HTTP answer before a stream
    /// begins.
    pub stream_after: Duration,
    /// How long an event stream may be silent before a comment keeps it alive.
    pub keep_alive: Duration,
    /// How long a stream of a legacy session can be resumed after the loss of its connection.
    pub resume: Duration,
    /// How much of a refused body is read, so that its sender gets to read the response.
    pub refused_body: RefusedBody,
    /// Authenticates clients over HTTP.
    pub authenticate: Arc<dyn Authenticate>,
    /// Pages for people beside the endpoints.
    pub pages: Option<Arc<dyn Pages>>,
    /// Scopes, authorization servers and rate limits. May change while clients are served.
    pub protection: LiveProtection,
    /// The guardrails that judge calls.
    pub hooks: LiveHooks,
    /// The calls that wait for approval.
    pub approvals: Approvals,
    /// The longest wait of such a call for its approval; after that, its client must send it again.
    pub approval_wait: Duration,
    /// The audit log of decisions. A request that it cannot record does not run.
    pub record: Arc<dyn Record>,
    /// Whether there are other replicas, and so a load balancer.
    pub has_balancer: bool,
    /// The other replicas, which get requests about their own sessions, calls and tasks; `None` if
    /// none can be reached.
    pub replicas: Option<Arc<dyn Replicas>>,
    /// The store of session records for other replicas; `None` if none can take sessions over.
    pub session_records: Option<Arc<dyn SessionRecords>>,
    /// Records requests in traces and metrics.
    pub telemetry: Telemetry,
    /// Whether to trust trace context from clients.
    pub trust_inbound: TrustInbound,
}

/// How much of a refused request's body is read.
#[derive(Clone, Copy, Debug)]
pub struct RefusedBody {
    /// The time limit.
    pub time: Duration,
    /// The maximum number of bytes.
    pub bytes: usize,
}

impl FrontendSettings {
    /// The maximum number of listen-only streams. A quarter of the connections is reserved for
    /// requests: listening clients wait for effects of requests, which need connections.
    pub(crate) fn stream_limit(&self) -> usize {
        self.max_streams
            .min(self.max_connections - self.max_connections.div_ceil(4))
            .max(1)
    }
}

impl FrontendSettings {
    /// Default settings with this authentication and audit log. Only requests to loopback names are
    /// answered.
    pub fn new(authenticate: Arc<dyn Authenticate>, record: Arc<dyn Record>) -> Self {
        Self {
            endpoint: Endpoint::Default,
            sse_path: Some("/sse".into()),
            guard: LiveGuard::new(Guard::new(&[], Origins::Listed(Vec::new()))),
            keys: Keys::default(),
            max_body: 16 << 20,
            request_memory: byte_budget(1 << 30),
            answer_memory: byte_budget(1 << 30),
            max_header: limit("headerBytes", 64 << 10),
            workers: Vec::new(),
            max_connections: 16_384,
            max_waiting_connections: 128,
            max_peer_connections: limit("peerConnections", 0),
            max_streams: limit("streams", usize::MAX),
            max_sessions: 10_000,
            max_peer_sessions: limit("peerSessions", 0),
            max_concurrent: limit("concurrency", 256),
            notification_buffer: limit("notifications", 256),
            max_server_requests: 64,
            max_input_rounds: MAX_INPUT_ROUNDS,
            max_suspended_calls: max_suspended_calls(),
            max_subscriptions: 10_000,
            description_memory: byte_budget(32 << 20),
            max_batch: limit("batch", 100),
            replay_events: 1000,
            replay_bytes: limit("replayBytes", 1 << 20),
            replay_total_bytes: 256 << 20,
            input_timeout: limit("clientAnswer", Duration::from_secs(10 * 60)),
            max_line: 16 << 20,
            header_timeout: limit("header", Duration::from_secs(10)),
            body_timeout: limit("body", Duration::from_secs(30)),
            idle_connection: limit("idleConnection", Duration::from_secs(75)),
            write_timeout: limit("write", Duration::from_secs(60)),
            session_idle: Duration::from_secs(30 * 60),
            drain: Duration::from_secs(10),
            give_up: CancellationToken::new(),
            stream_after: limit("stream", Duration::from_secs(5)),
            keep_alive: limit("keepAlive", Duration::from_secs(25)),
            resume: Duration::from_secs(5 * 60),
            refused_body: RefusedBody {
                time: Duration::from_secs(5),
                bytes: 64 << 20,
            },
            authenticate,
            pages: None,
            protection: LiveProtection::default(),
            hooks: LiveHooks::default(),
            approvals: Approvals::default(),
            approval_wait: Duration::from_secs(50),
            record,
            has_balancer: false,
            replicas: None,
            session_records: None,
            telemetry: Telemetry::off(),
            trust_inbound: TrustInbound::Trust,
        }
    }
}

#[cfg(any(test, feature = "test-support"))]
impl Default for FrontendSettings {
    fn default() -> Self {
        let origins = Origins::Listed(vec!["http://localhost:3000".into()]);
        Self {
            guard: LiveGuard::new(Guard::new(&[], origins)),
            ..Self::new(
                Arc::new(fanlight_credentials::Open::default()),
                Arc::new(fanlight_record::AuditLog::default()),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_limit_reserves_a_quarter_of_the_connections() {
        let limit = |max_connections, max_streams| {
            FrontendSettings {
                max_connections,
                max_streams,
                ..FrontendSettings::default()
            }
            .stream_limit()
        };
        assert_eq!(limit(100, 50), 50);
        assert_eq!(limit(100, 1000), 75);
        assert_eq!(
            [1, 2, 3, 4, 5].map(|connections| limit(connections, 1000)),
            [1, 1, 2, 3, 3]
        );
    }
}
