//! The limits and names that an operator can set for the client side.

use std::sync::Arc;
use std::time::Duration;

use fanlight_approvals::Approvals;
use fanlight_audit::Record;
use fanlight_canonical::{Endpoint, RetryDelays};
use fanlight_credentials::{Authenticate, Pages};
use fanlight_forwarding::Replicas;
use fanlight_http_edge::LiveGuard;
#[cfg(any(test, feature = "test-support"))]
use fanlight_http_edge::{Guard, Origins};
use fanlight_protocol::seal::Keys;
use fanlight_telemetry::{Telemetry, TrustInbound};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::guardrail::LiveHooks;
use crate::memory::ByteBudget;
use crate::protection::LiveProtection;
use crate::session_records::SessionRecords;

/// How clients are served. Sizes are in bytes.
#[derive(Clone, Debug)]
pub struct FrontendSettings {
    /// The path of the default endpoint, such as `/mcp`, as messages name it.
    pub path: String,
    /// The endpoint of the client on stdio.
    pub endpoint: Endpoint,
    /// Where the deprecated HTTP+SSE transport of 2024-11-05 is served, such as `/sse`; clients POST
    /// to `message` below it. Not served if absent.
    pub sse_path: Option<String>,
    /// The values of `Host` and `Origin` that are answered, and the URL under which clients reach the listener
    /// ([`Guard::public_url`](fanlight_http_edge::Guard::public_url)); may change while clients are served.
    pub guard: LiveGuard,
    /// The keys that seal `requestState`; made at random if there are none, so that states then end
    /// with the process.
    pub keys: Keys,
    /// The largest HTTP request body.
    pub max_body: usize,
    /// Holds all requests of clients.
    pub request_memory: ByteBudget,
    /// Holds answers for clients that read slowly.
    pub answer_memory: ByteBudget,
    /// The largest HTTP request head; at least 8 KiB are always allowed.
    pub max_header: usize,
    /// Levels of arrays and objects in one message.
    pub nesting: usize,
    /// Runtimes beside the one that listens: each HTTP connection is served on one of them all. A
    /// runtime of one thread each serves best.
    pub workers: Vec<Handle>,
    /// HTTP connections open at once; further ones wait until others have ended.
    pub max_connections: usize,
    /// Connections that wait.
    pub max_waiting_connections: usize,
    /// Most open connections of one peer; 0 for no such bound.
    pub max_peer_connections: usize,
    /// Requests at once on one HTTP/2 connection.
    pub http2_streams: u32,
    /// Event streams open at once on which HTTP clients only listen; further ones are refused. Never
    /// more than three quarters of [`Self::max_connections`], whatever this says.
    pub max_streams: usize,
    /// Sessions of legacy HTTP clients.
    pub max_sessions: usize,
    /// Most sessions of one peer; 0 for no such bound.
    pub max_peer_sessions: usize,
    /// Requests running at once on a stdio connection.
    pub max_concurrent: usize,
    /// Messages of servers buffered per request.
    pub notification_buffer: usize,
    /// ServerRequests of servers that one legacy client, or one modern call, may have open at once.
    pub max_server_requests: usize,
    /// How often a modern server may ask for input in one call of a legacy client.
    pub max_input_rounds: usize,
    /// Suspended calls: calls of modern clients that wait for the input that a legacy server asked
    /// for; per process on HTTP, and per connection on stdio.
    pub max_suspended_calls: usize,
    /// Most suspended calls of one peer; 0 for no such bound.
    pub max_peer_suspended_calls: usize,
    /// Subscriptions of modern clients; per process on HTTP, and per connection on stdio.
    pub max_subscriptions: usize,
    /// The capabilities of a legacy client, and its `clientInfo`.
    pub max_description: usize,
    /// Holds the descriptions of all legacy clients.
    pub description_memory: ByteBudget,
    /// Messages in one batch.
    pub max_batch: usize,
    /// Parameters of one tool that clients mirror into headers.
    pub max_mirrored_params: usize,
    /// Events kept per legacy HTTP session, so that a broken stream can be resumed.
    pub replay_events: usize,
    /// The size of those events per session.
    pub replay_bytes: usize,
    /// The size of those events of all sessions together.
    pub replay_total_bytes: usize,
    /// How long a client may take to send the input that it was asked for.
    pub input_timeout: Duration,
    /// The longest line on a stdio connection.
    pub max_line: usize,
    /// Time for the head of one HTTP request.
    pub header_timeout: Duration,
    /// Time from the acceptance of a connection to its first request, where the listener stops in between.
    pub first_request: Duration,
    /// Time for one HTTP request body.
    pub body_timeout: Duration,
    /// How long a connection may carry no request.
    pub idle_connection: Duration,
    /// How long a client may take nothing of what it is sent, or much less than a kibibyte a second.
    pub write_timeout: Duration,
    /// Bytes a second: a client that takes as many is not one that takes nothing.
    pub write_rate: u32,
    /// How long a client may take to answer a ping on an HTTP/2 connection.
    pub http2_ping: Duration,
    /// How long the errors of what did not finish within `drain` may take to reach their clients.
    pub last_answers: Duration,
    /// How long a session may have no request.
    pub session_idle: Duration,
    /// Time to finish what is in flight after shutdown was asked for.
    pub drain: Duration,
    /// Cancelled when that time is over: the core then answers what still runs with errors.
    pub give_up: CancellationToken,
    /// How long an HTTP client that accepts event streams waits for its answer before one begins.
    pub stream_after: Duration,
    /// How long an event stream may be silent before a comment keeps it alive.
    pub keep_alive: Duration,
    /// How long a stream of a legacy session can be resumed after its connection is gone.
    pub resume: Duration,
    /// When a client that has lost its event stream is to come for the rest, where a server names no time.
    pub sse_retry: Duration,
    /// How much of a refused body is read, so that its sender reads the response.
    pub refused_body: RefusedBody,
    /// How long a call of a modern client waits for another server request after each, before it is suspended.
    pub collect_requests: Duration,
    /// Pauses before a backend that refused to send notifications is asked again.
    pub listen_retry: RetryDelays,
    /// Tells who a client over HTTP is.
    pub authenticate: Arc<dyn Authenticate>,
    /// Pages for people beside the endpoints.
    pub pages: Option<Arc<dyn Pages>>,
    /// What clients need to use the endpoints; may change while they are served.
    pub protection: LiveProtection,
    /// Guardrails that are asked about calls; `None` for none.
    pub hooks: LiveHooks,
    /// The calls that wait for an approver's word.
    pub approvals: Approvals,
    /// How long such a call waits; then its client has to send it again.
    pub approval_wait: Duration,
    /// Where it is put on record what clients are allowed and refused: what cannot be is not carried out.
    pub record: Arc<dyn Record>,
    /// Whether there are other replicas, and so a load balancer.
    pub has_balancer: bool,
    /// The other replicas to which requests are passed on that are about what they keep; `None` if none can be reached.
    pub replicas: Option<Arc<dyn Replicas>>,
    /// Where sessions are on record for other replicas; `None` if none can take them over.
    pub session_records: Option<Arc<dyn SessionRecords>>,
    /// What records requests.
    pub telemetry: Telemetry,
    /// What the trace context of clients is worth.
    pub trust_inbound: TrustInbound,
}

/// How much is read of the body of a refused request.
#[derive(Clone, Copy, Debug)]
pub struct RefusedBody {
    /// For how long.
    pub time: Duration,
    /// How many bytes.
    pub bytes: usize,
}

impl FrontendSettings {
    /// Most listen-only streams. A quarter of the connections is reserved for requests: listening clients wait for
    /// effects of requests, and those need connections.
    pub(crate) fn stream_limit(&self) -> usize {
        self.max_streams
            .min(self.max_connections - self.max_connections.div_ceil(4))
            .max(1)
    }
}

#[cfg(any(test, feature = "test-support"))]
impl Default for FrontendSettings {
    fn default() -> Self {
        Self {
            path: "/mcp".into(),
            endpoint: Endpoint::Default,
            sse_path: Some("/sse".into()),
            guard: LiveGuard::new(Guard::new(
                &[],
                Origins::Listed(vec!["http://localhost:3000".into()]),
            )),
            keys: Keys::default(),
            max_body: 16 << 20,
            request_memory: ByteBudget::new(1 << 30),
            answer_memory: ByteBudget::new(1 << 30),
            max_header: 64 << 10,
            nesting: 128,
            workers: Vec::new(),
            max_connections: 16_384,
            max_waiting_connections: 128,
            max_peer_connections: 0,
            http2_streams: 100,
            max_streams: 12_288,
            max_sessions: 10_000,
            max_peer_sessions: 0,
            max_concurrent: 256,
            notification_buffer: 256,
            max_server_requests: 64,
            max_input_rounds: 8,
            max_suspended_calls: 1000,
            max_peer_suspended_calls: 0,
            max_subscriptions: 10_000,
            max_description: 128 << 10,
            description_memory: ByteBudget::new(32 << 20),
            max_batch: 100,
            max_mirrored_params: 64,
            replay_events: 1000,
            replay_bytes: 1 << 20,
            replay_total_bytes: 256 << 20,
            input_timeout: Duration::from_secs(10 * 60),
            max_line: 16 << 20,
            header_timeout: Duration::from_secs(10),
            first_request: Duration::from_millis(500),
            body_timeout: Duration::from_secs(30),
            idle_connection: Duration::from_secs(75),
            write_timeout: Duration::from_secs(60),
            write_rate: 1 << 10,
            http2_ping: Duration::from_secs(20),
            last_answers: Duration::from_secs(1),
            session_idle: Duration::from_secs(30 * 60),
            drain: Duration::from_secs(10),
            give_up: CancellationToken::new(),
            stream_after: Duration::from_secs(5),
            keep_alive: Duration::from_secs(25),
            resume: Duration::from_secs(5 * 60),
            sse_retry: Duration::from_secs(1),
            refused_body: RefusedBody {
                time: Duration::from_secs(5),
                bytes: 64 << 20,
            },
            collect_requests: Duration::from_millis(20),
            listen_retry: RetryDelays {
                shortest: Duration::from_secs(1),
                longest: Duration::from_secs(60),
            },
            authenticate: Arc::new(fanlight_credentials::Open::default()),
            pages: None,
            protection: LiveProtection::default(),
            hooks: LiveHooks::default(),
            approvals: Approvals::default(),
            approval_wait: Duration::from_secs(50),
            record: Arc::new(fanlight_audit::AuditLog::default()),
            has_balancer: false,
            replicas: None,
            session_records: None,
            telemetry: Telemetry::off(),
            trust_inbound: TrustInbound::Trust,
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
