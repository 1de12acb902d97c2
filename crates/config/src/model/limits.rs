//! Bounds on size, number and time.

use std::time::Duration;

use super::rates::RateRule;
use crate::option::kind::{LONG_TIME, Maybe, Range, TIME, count, size, time};
use crate::option::several::Sections;
use crate::option::{Options as _, options};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// The range of `concurrency`, of all servers and of one.
pub(crate) const CONCURRENCY: Range<usize> = count(1, 100_000);

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

options! {
    /// Limits on size and number.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Limits: "limits", "in `limits`";
    options {
        /// Bytes that Fanlight may use for what clients and servers send: requests and answers on their way, kept lists,
        /// results, events and traces. Each kind has a fixed share of it. A client may use as much of a share as it leaves
        /// free for others, and a server three times as much. Default: half of the memory that the process may use.
        "memory" => memory: Option<usize> = None, Maybe(size(MIB, 1 << 40)), example "# 1GiB";
        /// How often clients may ask. Default: no limit.
        "rates" [live] => rates: Vec<RateRule> = Vec::new(), Sections::<RateRule>::KIND, example "# [{for: [principal, tool], match: {tool: \"search/*\", server: search, endpoint: /mcp}, rate: 30/m, burst: 10, queue: 2s}]";
        /// Threads that serve clients; 0 for one per processor.
        "workers" => workers: usize = 0, count(0, 256);
        /// Open client connections. Lowered to three quarters of the files that the process may open.
        "connections" [live] => connections: usize = 16_384, count(1, 1_000_000);
        /// Sessions of legacy clients.
        "sessions" => sessions: usize = 10_000, count(1, 10_000_000);
        /// Processes of one stdio backend that each belong to one client session, and as many that each belong to one
        /// principal.
        "processes" [live] => processes: usize = 64, count(1, 10_000);
        /// Running calls per backend, unless the server sets its own limit.
        "concurrency" => concurrency: usize = 256, CONCURRENCY;
        /// Bytes of one HTTP request body, and of one line of a stdio client.
        "requestBody" => request_body: usize = 16 * MIB, size(KIB, GIB);
        /// Bytes of one message of a backend: a line, an SSE event or a JSON body.
        "message" => message: usize = 64 * MIB, size(KIB, GIB);
        /// Requests per second of one peer with wrong credentials. Above that, the peer's credentials are refused
        /// without verification unless they are cached.
        "authFailures" => auth_failures: usize = 20, count(1, 1_000_000);
        /// Traces kept in memory; 0 for none.
        "traces" => traces: usize = 500, count(0, 100_000);
    }
    fixed {
        /// Bytes of all requests of clients in memory, including those that are still arriving. A client may use as
        /// much as it leaves free for others. Default: half of `memory`.
        "requestMemory" => request_memory: Option<usize> = None, Maybe(size(MIB, 1 << 40)), example "# 1GiB";
        /// Bytes of long answers that wait for clients that read slowly. A client may use as much as it leaves free for
        /// others; further answers are refused. Default: half of `memory`.
        "answerMemory" => answer_memory: Option<usize> = None, Maybe(size(MIB, 1 << 40)), example "# 1GiB";
        /// Bytes of a refused request body that are read and discarded, so that the client reads the response.
        "refusedBody" => refused_body: usize = 64 * MIB, size(0, GIB);
        /// Bytes that a stdio backend may write to its standard output without a message among them, in addition to
        /// `message`. Then its process is ended. An invalid line counts as at least 1 KiB.
        "invalidOutput" [live] => invalid_output: usize = 64 * MIB, size(KIB, 16 * GIB);
        /// Bytes of a stdio backend's standard error that are kept and logged per second; further lines are dropped and
        /// counted. A line counts as at least 1 KiB.
        "processLog" [live] => process_log: usize = 4 * MIB, size(KIB, GIB);
        /// Bytes that are kept of what the processes of a stdio backend write to standard error, and to standard output
        /// besides messages; each line counts as 64 bytes more. 0 for none.
        "processLogKept" [live] => process_log_kept: usize = 256 * KIB, size(0, GIB);
        /// Bytes per second that a client must read on average; a slower one counts as one that reads nothing
        /// (`timeouts.write`).
        "writeRate" [live] => write_rate: usize = KIB, size(1, GIB);
        /// Bytes of the head of one HTTP request.
        "header" [live] => header: usize = 64 * KIB, size(KIB, MIB);
        /// Levels of nesting in one JSON message.
        "nesting" => nesting: usize = 128, count(8, 1024);
        /// Accepted client connections that wait for another to end when all of `connections` are in use. Further ones
        /// stay in the backlog of the socket for some seconds; then the newest ones of the peer with most are closed.
        /// Lowered to fit the number of files that the process may open.
        "waitingConnections" => waiting_connections: usize = 128, count(1, 4096);
        /// Open connections of one peer: a client address, or a /64 network of IPv6. Behind a reverse proxy all clients
        /// are one peer. 0 for no such limit: when all of `connections` are in use, the peer that has most loses one.
        "peerConnections" [live] => peer_connections: usize = 0, count(0, 1_000_000);
        /// Concurrent requests on one HTTP/2 connection.
        "http2Streams" [live] => http2_streams: usize = 100, count(1, 1_000_000);
        /// Event streams of HTTP clients that only listen. Never more than three quarters of `connections`, so that
        /// connections remain for requests.
        "streams" [live] => streams: usize = 12_288, count(1, 1_000_000);
        /// Verified access tokens that are cached.
        "tokens" => tokens: usize = 10_000, count(1, 10_000_000);
        /// Concurrent requests to each issuer about tokens.
        "introspections" => introspections: usize = 32, count(1, 10_000);
        /// Bytes of an answer of an issuer: its metadata, its keys, or its answer about a token.
        "issuerAnswer" => issuer_answer: usize = 256 * KIB, size(KIB, 64 * MIB);
        /// Keys of one issuer that are kept.
        "issuerKeys" => issuer_keys: usize = 100, count(1, 10_000);
        /// Entries of the file with keys.
        "authKeys" [live] => auth_keys: usize = 10_000, count(1, 1_000_000);
        /// Sessions of one peer: a principal, or the address of unauthenticated clients. 0 for no such limit: when all
        /// of `sessions` are in use, the peer that has most loses one.
        "peerSessions" => peer_sessions: usize = 0, count(0, 10_000_000);
        /// Sessions with one HTTP backend that each belong to one client session. Requests of clients without a session
        /// that accept server requests need one each as well, limited by `concurrency` and `suspendedCalls` together.
        "backendSessions" [live] => backend_sessions: usize = 1000, count(1, 1_000_000);
        /// Notifications buffered per call.
        "notifications" => notifications: usize = 256, count(1, 1_000_000);
        /// Requests of backends (elicitation, sampling, roots) that one client may have open.
        "serverRequests" was "questions" => server_requests: usize = 64, count(1, 10_000);
        /// Concurrent requests to the client that a legacy backend may have open during one call.
        "openServerRequests" => open_server_requests: usize = 16, count(1, 1000);
        /// Requests to the client that a legacy backend may send during one call.
        "callServerRequests" [live] => call_server_requests: usize = 1000, count(1, 1_000_000);
        /// Inputs that one task of a modern backend may request while a call waits for it.
        "taskInputs" [live] => task_inputs: usize = 256, count(1, 10_000);
        /// How often a modern backend may request input in one call of a legacy client.
        "inputRounds" => input_rounds: usize = 8, count(1, 1000);
        /// Attempts in a row to resume the broken event stream of a call at a legacy backend without receiving an
        /// event; then the call fails.
        "streamAttempts" [live] => stream_attempts: usize = 5, count(1, 1000);
        /// Suspended calls: calls of modern clients that wait for the input that a legacy backend requested.
        "suspendedCalls" was "parkedCalls" => suspended_calls: usize = 1000, count(1, 1_000_000);
        /// Suspended calls of one peer. 0 for no such limit: when all of `suspendedCalls` are in use, a new one ends
        /// one of the peer that has most.
        "peerSuspendedCalls" => peer_suspended_calls: usize = 0, count(0, 1_000_000);
        /// Tasks whose owner is remembered. Also, for each backend, tasks that are translated between the eras, and
        /// requests that wait for a task.
        "tasks" => tasks: usize = 10_000, count(1, 1_000_000);
        /// Tasks with unknown owners that one `subscriptions/listen` may look up, in Valkey and at servers; further ones are left out.
        "unknownTasks" [live] => unknown_tasks: usize = 16, count(0, 10_000);
        /// Polls of one task that may fail in a row while a call waits for the task's end.
        "taskPollFailures" [live] => task_poll_failures: usize = 14, count(1, 10_000);
        /// Notifications of clients, of kinds that Fanlight does not know, that may be on their way to backends at the
        /// same time; further ones are dropped.
        "clientNotifications" [live] => client_notifications: usize = 64, count(1, 100_000);
        /// Extensions of clients, besides those that Fanlight knows, that are declared to backends when merged lists
        /// are read. Each new one causes the lists to be read again.
        "clientExtensions" [live] => client_extensions: usize = 32, count(0, 10_000);
        /// URIs in one result whose backend is remembered, if several backends may have them; further ones get aliases.
        "resultUris" [live] => result_uris: usize = 256, count(0, 100_000);
        /// URIs in results whose backend is remembered, for all clients together; also clients whose apps (`ui://`
        /// resources) are remembered.
        "handedOutUris" => handed_out_uris: usize = 10_000, count(1, 1_000_000);
        /// Bytes of results that are kept as tasks, per backend.
        "taskResults" [live] => task_results: usize = 64 * MIB, size(KIB, 16 * GIB);
        /// Subscriptions of modern clients per listener; also resources, and tasks, subscribed to by one subscription,
        /// by one legacy session, and at one backend.
        "subscriptions" => subscriptions: usize = 10_000, count(1, 1_000_000);
        /// Bytes of a client's capabilities, and of its `clientInfo`, that are kept.
        "clientDescription" => client_description: usize = 128 * KIB, size(KIB, 16 * MIB);
        /// Bytes of the capabilities and `clientInfo` of all sessions together. A client may use as much as it leaves
        /// free for others.
        "clientDescriptions" => client_descriptions: Option<usize> = None, Maybe(size(KIB, 1 << 40));
        /// Messages in one batch (2025-03-26).
        "batch" => batch: usize = 100, count(1, 100_000);
        /// Events kept per legacy session, so that a broken stream can be resumed.
        "replayEvents" => replay_events: usize = 1000, count(1, 1_000_000);
        /// Bytes of those events per legacy session.
        "replayBytes" => replay_bytes: usize = MIB, size(KIB, GIB);
        /// Bytes of those events of all legacy sessions together.
        "replayTotalBytes" => replay_total_bytes: Option<usize> = None, Maybe(size(KIB, 1 << 40));
        /// Pages read of one list of one backend.
        "listPages" [live] => list_pages: usize = 1000, count(1, 1_000_000);
        /// Entries read of one list of one backend.
        "listEntries" [live] => list_entries: usize = 100_000, count(1, 10_000_000);
        /// Bytes read of one list of one backend, all pages together.
        "listBytes" [live] => list_bytes: usize = 64 * MIB, size(KIB, 16 * GIB);
        /// Bytes of all lists of all backends together.
        "listTotalBytes" [live] => list_total_bytes: Option<usize> = None, Maybe(size(KIB, 1 << 40));
        /// Parameters of one tool that are mirrored into headers (`x-mcp-header`). A tool with more is left out of the
        /// lists of modern HTTP servers, and clients cannot call it over HTTP.
        "mirroredParameters" => mirrored_params: usize = 64, count(1, 1024);
        /// Earlier states of a merged list that are kept for clients that are still paging through them.
        "listGenerations" [live] => list_generations: usize = 3, count(0, 1000);
        /// Bytes of a resource's URI, if several servers make it necessary to find its server.
        "uri" [live] => uri: usize = 64 * KIB, size(KIB, MIB);
        /// Entries on one page of a merged list.
        "pageSize" [live] => page_size: usize = 1000, count(1, 1_000_000);
        /// Results of `resources/read` that are cached for their `ttlMs`, if the server marks them as public; 0 for
        /// none.
        "cacheEntries" => cache_entries: usize = 1000, count(0, 1_000_000);
        /// Bytes of all cached results together; 0 for none.
        "cacheBytes" => cache_bytes: Option<usize> = None, Maybe(size(0, GIB));
        /// Bytes of memory that are kept for about a second for the next long results before they are returned to the
        /// system; 0 for none.
        "spareBytes" [live] => spare_bytes: Option<usize> = None, Maybe(size(0, 1 << 40));
        /// Bytes of all kept traces together.
        "traceBytes" => trace_bytes: Option<usize> = None, Maybe(size(KIB, GIB));
        /// Bytes after which the file of `--trace-file` is rotated.
        "traceFileBytes" => trace_file_bytes: usize = 64 * MIB, size(KIB, 1 << 40);
        /// Earlier files of `--trace-file` that are kept.
        "traceFiles" => trace_files: usize = 3, count(0, 1000);
        /// Spans that wait to be written by `--trace-file` or `--trace-console`; further ones are dropped and counted.
        "spanQueue" => span_queue: usize = 4096, count(1, 1_000_000);
        /// Bytes of log lines that wait for the reader of standard error; further lines are dropped and counted.
        "logBytes" => log_bytes: usize = MIB, size(KIB, GIB);
        /// Names of tools, and of prompts, that metrics distinguish per backend; others are counted as `_OTHER`.
        "metricNames" => metric_names: usize = 100, count(0, 100_000);
        /// Series of one histogram; others are counted as one, `otel_metric_overflow`.
        "metricSeries" => metric_series: usize = 2000, count(1, 1_000_000);
        /// Bytes recorded of the arguments, and of the result, of a tool call, if a server has `recordContent`.
        "recordedContent" [live] => recorded_content: usize = 4 * KIB, size(KIB, MIB);
        /// Open connections to the admin listener.
        "adminConnections" [live] => admin_connections: usize = 128, count(1, 10_000);
        /// Concurrent clients of `/api/events`.
        "adminFollowers" [live] => admin_followers: usize = 32, count(1, 1000);
        /// Calls of one operator that run from the page at the same time.
        "adminCalls" [live] => admin_calls: usize = 8, count(1, 1000);
        /// Operators who are signed in to the page at the same time. When the limit is reached, the peer with most
        /// sessions loses the one that was used longest ago.
        "adminSessions" [live] => admin_sessions: usize = 1024, count(1, 100_000);
        /// Operators of one peer who are signed in to the page at the same time. When the limit is reached, a new
        /// sign-in ends the peer's session that was used longest ago.
        "adminPeerSessions" [live] => admin_peer_sessions: usize = 64, count(1, 100_000);
        /// Wrong credentials of operators per minute and peer. Above that, the peer's credentials are refused without a
        /// check, except those that were accepted from it before.
        "adminSignInFailures" [live] => admin_sign_in_failures: usize = 10, count(1, 10_000);
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::defaults()
    }
}

options! {
    /// Limits on time.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Timeouts: "timeouts", "in `timeouts`";
    options {
        /// A call's wait for the approval of an operator; then its client has to send it again.
        "approval" => approval: Duration = seconds(50), TIME;
        /// Opening a connection to an HTTP backend, with its handshake, unless the server sets its own `startTimeout`; also a
        /// request's wait for a process that is being started.
        "connect" [live] => connect: Duration = seconds(10), TIME;
        /// A whole call, unless the server sets its own timeout.
        "call" [live] => call: Duration = seconds(300), TIME;
        /// A client's answer to a request of a backend during a call. `call` is paused in the meantime.
        "clientAnswer" was "question" => client_answer: Duration = seconds(600), TIME;
        /// Waiting for the end of a task, and remembering a task that no client asks for.
        "task" [live] => task: Duration = seconds(3600), LONG_TIME;
        /// A legacy session without a request.
        "sessionIdle" => session_idle: Duration = seconds(30 * 60), LONG_TIME;
        /// A client connection without a request.
        "idleConnection" [live] => idle_connection: Duration = seconds(75), TIME;
        /// Finishing running requests on shutdown.
        "drain" => drain: Duration = seconds(10), time(Duration::ZERO, seconds(86_400));
    }
    fixed {
        /// A whole attempt to start a stdio backend, however much it writes to standard error meanwhile.
        "startTotal" => start_total: Duration = seconds(15 * 60), LONG_TIME;
        /// Waiting for the answer that shows a backend's era.
        "probe" [live] => probe: Duration = seconds(3), TIME;
        /// One request to an issuer of access tokens.
        "issuer" => issuer: Duration = seconds(5), TIME;
        /// Interval at which the keys of an issuer are refreshed in the background while they are used.
        "issuerKeys" => issuer_keys: Duration = seconds(15 * 60), TIME;
        /// How long the keys of an issuer remain in use if they cannot be refreshed.
        "issuerKeysStale" => issuer_keys_stale: Duration = seconds(24 * 3600), LONG_TIME;
        /// The minimum time between two refreshes of an issuer's keys because of a token with an unknown key.
        "unknownKey" => unknown_key: Duration = seconds(60), TIME;
        /// How long an issuer's answer about an active token is cached at most.
        "introspection" => introspection: Duration = seconds(60), time(Duration::ZERO, Duration::from_secs(60));
        /// Allowed difference between the clocks of issuers and of this machine.
        "tokenLeeway" => token_leeway: Duration = seconds(30), time(Duration::ZERO, Duration::from_secs(300));
        /// Reading one backend's part of a merged list.
        "list" [live] => list: Duration = seconds(10), TIME;
        /// A whole call including the time in which `call` is paused, so that a backend that keeps asking cannot keep
        /// it open for ever. Never less than `call`.
        "callTotal" [live] => call_total: Duration = seconds(3600), LONG_TIME;
        /// The result of a legacy backend's task once the task has ended, before it is requested again. Doubles with each
        /// request.
        "taskResult" [live] => task_result: Duration = seconds(30), TIME;
        /// After a legacy backend's task needs input: the wait for its first request, before a client's `tasks/get` is
        /// answered without one.
        "taskInput" [live] => task_input: Duration = seconds(1), TIME;
        /// Between two polls of a task, if the backend suggests no interval.
        "taskPoll" [live] => task_poll: Duration = seconds(1), TIME;
        /// The shortest interval that a backend may suggest.
        "taskPollMin" [live] => task_poll_min: Duration = Duration::from_millis(50), TIME;
        /// The longest interval that a backend may suggest, and the longest pause after failed polls.
        "taskPollMax" [live] => task_poll_max: Duration = seconds(30), TIME;
        /// Remembering which backend has a task that never expires.
        "taskOwner" => task_owner: Duration = seconds(86_400), LONG_TIME;
        /// Remembering which backend has a task after the task has ended.
        "taskOwnerGrace" => task_owner_grace: Duration = seconds(300), LONG_TIME;
        /// Remembering which backend has any task.
        "taskOwnerMax" => task_owner_max: Duration = seconds(30 * 86_400), LONG_TIME;
        /// A client's own session with a backend, or its own process, without a call.
        "backendSessionIdle" [live] => backend_session_idle: Duration = seconds(30 * 60), LONG_TIME;
        /// Receiving one request body.
        "body" => body: Duration = seconds(30), TIME;
        /// Receiving the head of one request.
        "header" [live] => header: Duration = seconds(10), TIME;
        /// From the acceptance of a connection to its first request, if Fanlight stops in between or `listen` changes.
        "firstRequest" [live] => first_request: Duration = Duration::from_millis(500), time(Duration::ZERO, seconds(60));
        /// Reading and discarding a refused request body, so that the client reads the response.
        "refusedBody" => refused_body: Duration = seconds(5), time(Duration::ZERO, seconds(86_400));
        /// How long the files of the configuration must be unchanged before they are read again. A series of changes is
        /// collected for at most ten times as long.
        "configSettle" [live] => config_settle: Duration = Duration::from_millis(200), TIME;
        /// Delivering the errors of requests that were not finished within `drain`.
        "lastAnswers" => last_answers: Duration = seconds(1), time(Duration::ZERO, seconds(3600));
        /// A client that reads nothing of what it is sent, or much less than `limits.writeRate`.
        "write" [live] => write: Duration = seconds(60), TIME;
        /// A call without an answer, until its event stream begins.
        "stream" => stream: Duration = seconds(5), TIME;
        /// An event stream without an event, until a comment keeps it alive; also an HTTP/2 connection of a client,
        /// until it is pinged.
        "keepAlive" => keep_alive: Duration = seconds(25), TIME;
        /// A client's answer to a ping on its HTTP/2 connection; without one, the connection is closed.
        "http2Ping" [live] => http2_ping: Duration = seconds(20), TIME;
        /// The `retry` of event streams: the time after which a client that has lost its stream should resume it, if
        /// the backend gives none.
        "sseRetry" => sse_retry: Duration = seconds(1), TIME;
        /// The shortest accepted `retry` of a backend's event stream; a shorter one counts as this.
        "sseRetryMin" [live] => sse_retry_min: Duration = Duration::from_millis(100), TIME;
        /// The longest accepted `retry` of a backend's event stream.
        "sseRetryMax" [live] => sse_retry_max: Duration = seconds(60), TIME;
        /// Waiting for another request of a legacy backend after each one, so that a modern client gets them together.
        "collectRequests" => collect_requests: Duration = Duration::from_millis(20), time(Duration::ZERO, seconds(60));
        /// A broken event stream of a legacy session that no client resumes.
        "resume" => resume: Duration = seconds(300), TIME;
        /// Each step of ending a stdio backend: its process ending by itself, after SIGTERM, after SIGKILL.
        "processStop" [live] => process_stop: Duration = seconds(2), TIME;
        /// A stdio backend's answer to a ping, which is sent after calls have timed out; without one, its process is
        /// ended.
        "ping" [live] => ping: Duration = seconds(5), TIME;
        /// A backend's answer to the end of a session.
        "sessionEnd" [live] => session_end: Duration = seconds(1), TIME;
        /// Pause before the second attempt to connect to a backend, or to open a stream there. It doubles with each
        /// failure.
        "reconnect" [live] => reconnect: Duration = Duration::from_millis(500), TIME;
        /// The maximum of these pauses.
        "reconnectMax" [live] => reconnect_max: Duration = seconds(30), TIME;
        /// How long a connection to a backend must last to count as stable: after its end, pauses begin with the
        /// shortest again, and earlier failures to start no longer count.
        "stableConnection" [live] => stable_connection: Duration = seconds(5), TIME;
        /// After a backend has rejected a request and its era was detected again: a request that it rejects within this
        /// time is not a reason to detect the era once more.
        "eraRecheck" [live] => era_recheck: Duration = seconds(5), TIME;
        /// A call's wait for an attempt to connect to a backend that could not be reached before. Calls that find an
        /// attempt in progress wait only until a quarter of this time has passed since it began.
        "connectOnCall" [live] => connect_on_call: Duration = seconds(1), TIME;
        /// Pause after a failed attempt to connect to a backend, before a call triggers the next one.
        "reconnectOnCall" [live] => reconnect_on_call: Duration = seconds(1), TIME;
        /// The same pause for a stdio backend that has failed to start `startAttempts` times in a row. Without calls,
        /// no attempt is made.
        "failedRetry" [live] => failed_retry: Duration = seconds(60), TIME;
        /// Pause before the event stream of a call is resumed at a legacy backend that gives no time. It doubles with
        /// each failure.
        "backendResume" [live] => backend_resume: Duration = seconds(1), TIME;
        /// The maximum of these pauses.
        "backendResumeMax" [live] => backend_resume_max: Duration = seconds(30), TIME;
        /// Opening the GET stream of a legacy backend. After this time, the first call is sent and subscriptions are
        /// made without it.
        "streamOpening" [live] => stream_opening: Duration = seconds(2), TIME;
        /// Subscribing a process of a legacy stdio backend to the resources that clients listen to, before a call.
        /// After this time, the call is sent without.
        "subscribeOnCall" [live] => subscribe_on_call: Duration = seconds(2), TIME;
        /// The next message of a modern backend that has sent a request, which modern servers must not do, and got an
        /// error for it; then the call fails.
        "refusedRequest" [live] => refused_request: Duration = seconds(2), TIME;
        /// Delivering a client's answer to the backend that requested it.
        "delivery" [live] => delivery: Duration = seconds(30), TIME;
        /// A message of Fanlight's own that prepares or follows a call, such as a cancellation.
        "ownMessage" [live] => own_message: Duration = seconds(5), TIME;
        /// Interval of TCP probes on a silent connection to a backend; the third without an answer closes it.
        "tcpProbe" [live] => tcp_probe: Duration = seconds(15), time(seconds(1), seconds(32_767));
        /// Bytes sent to a backend that TCP has not acknowledged, on Linux.
        "tcpUnacknowledged" [live] => tcp_unacknowledged: Duration = seconds(30), time(seconds(1), seconds(86_400));
        /// An unused connection to an HTTP backend; it is closed after between half of this and this.
        "backendIdleConnection" [live] => backend_idle_connection: Duration = seconds(90), TIME;
        /// Pause before requesting notifications again from a backend that refused them. It doubles with each refusal.
        "listenRetry" => listen_retry: Duration = seconds(1), TIME;
        /// The maximum of these pauses.
        "listenRetryMax" => listen_retry_max: Duration = seconds(60), TIME;
        /// Collecting changes of a list, so that a burst is announced to clients once.
        "listSettle" [live] => list_settle: Duration = Duration::from_millis(100), TIME;
        /// Between two notifications of list changes that no backend has announced.
        "listUnannounced" [live] => list_unannounced: Duration = seconds(5), TIME;
        /// Serving the last complete list of a backend whose list can no longer be read; 0 for not at all.
        "staleLists" [live] => stale_lists: Duration = seconds(600), time(Duration::ZERO, seconds(86_400));
        /// How long a name that no list has is not requested from backends again.
        "unknownName" [live] => unknown_name: Duration = seconds(5), TIME;
        /// How long a client's app (`ui://`) counts as open after its last use. While apps of two servers are open, a
        /// call by a name that tools of both have is refused.
        "openApps" => open_apps: Duration = seconds(3600), TIME;
        /// Caching one result, even if its `ttlMs` is longer.
        "cache" => cache: Duration = seconds(86_400), LONG_TIME;
        /// Delivering the last spans and metrics on shutdown.
        "flush" => flush: Duration = seconds(3), time(Duration::ZERO, seconds(86_400));
        /// Finishing running requests of operators on shutdown.
        "adminDrain" => admin_drain: Duration = seconds(1), time(Duration::ZERO, seconds(86_400));
        /// Interval at which `/api/events`, and with it the page, checks for changes.
        "adminEvents" [live] => admin_events: Duration = seconds(1), TIME;
        /// Interval at which the page requests sessions, and the log of a server, while it shows them.
        "adminRefresh" [live] => admin_refresh: Duration = seconds(2), time(Duration::from_millis(100), seconds(86_400));
        /// How long the page uses the lists of the catalogue before it requests them again.
        "adminLists" [live] => admin_lists: Duration = seconds(5), TIME;
        /// How long an operator stays signed in to the page without using it.
        "adminSessionIdle" [live] => admin_session_idle: Duration = seconds(3600), LONG_TIME;
        /// How long an operator stays signed in to the page at most.
        "adminSession" [live] => admin_session: Duration = seconds(12 * 3600), LONG_TIME;
        /// How long an operator may take to sign in at the issuer of `admin.signIn`.
        "adminSignIn" [live] => admin_sign_in: Duration = seconds(600), time(seconds(10), seconds(86_400));
        /// Writing the last log lines on shutdown, if the reader of standard error is slow.
        "logFlush" => log_flush: Duration = Duration::from_millis(500), time(Duration::ZERO, seconds(3600));
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::defaults()
    }
}
