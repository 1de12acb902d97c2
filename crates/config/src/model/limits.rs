//! Bounds on size, number and time.

use std::time::Duration;

use crate::option::kind::{LONG_TIME, Maybe, Range, TIME, count, size, time};
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
    /// Bounds on size and number.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Limits: "limits", "in `limits`";
    options {
        /// Bytes of one HTTP request body, and of one line of a stdio client.
        "requestBody" => request_body: usize = 16 * MIB, size(KIB, GIB);
        /// Bytes of all requests of clients in memory, those included that are still arriving. A client's share is as
        /// much as it leaves free for others. Default: a quarter of the memory that the process may use.
        "requestMemory" => request_memory: Option<usize> = None, Maybe(size(MIB, 1 << 40)), example "# 1GiB";
        /// Bytes of long answers that wait for clients that read slowly. A client's share is as much as it leaves free for
        /// others; further answers are refused. Default: a quarter of the memory that the process may use.
        "answerMemory" => answer_memory: Option<usize> = None, Maybe(size(MIB, 1 << 40)), example "# 1GiB";
        /// Bytes of a refused request body that are read and dropped, so that its sender reads the response.
        "refusedBody" => refused_body: usize = 64 * MIB, size(0, GIB);
        /// Bytes of one message of a backend: a line, an SSE event or a JSON body.
        "message" => message: usize = 64 * MIB, size(KIB, GIB);
        /// Bytes that a stdio backend may write to its standard output, besides `message`, without a message among them;
        /// then its process is ended. An invalid line counts as 1 KiB at least.
        "invalidOutput" => invalid_output: usize = 64 * MIB, size(KIB, 16 * GIB);
        /// Bytes of the standard error of a stdio backend that are read a second; a process that writes more has to wait. A
        /// line counts as 1 KiB at least.
        "processLog" => process_log: usize = 4 * MIB, size(KIB, GIB);
        /// Bytes that are kept, for each stdio backend, of what its processes write to standard error, and to standard
        /// output besides messages; each line counts 64 bytes more. 0 for none.
        "processLogKept" => process_log_kept: usize = 256 * KIB, size(0, GIB);
        /// Bytes that a client has to take a second, on average, so as not to count as one that takes nothing
        /// (`timeouts.write`).
        "writeRate" => write_rate: usize = KIB, size(1, GIB);
        /// Bytes of the head of one HTTP request.
        "header" => header: usize = 64 * KIB, size(KIB, MIB);
        /// Levels of nesting in one JSON message.
        "nesting" => nesting: usize = 128, count(8, 1024);
        /// Threads that serve clients; 0 for one per processor.
        "workers" => workers: usize = 0, count(0, 256);
        /// Open client connections. Lowered to three quarters of the files that the process may open.
        "connections" => connections: usize = 16_384, count(1, 1_000_000);
        /// Client connections that have been accepted and wait for another to end, where all of `connections` are taken.
        /// Further ones stay in the backlog of the socket for some seconds; then the newest of the peer that has most are
        /// closed for them. Lowered to fit the files that the process may open.
        "waitingConnections" => waiting_connections: usize = 128, count(1, 4096);
        /// Open connections of one peer: a client address, of IPv6 a network of 64 bits. Behind a reverse proxy all clients
        /// are one peer. 0 for no such bound: when all of `connections` are taken, the peer that has most loses one.
        "peerConnections" => peer_connections: usize = 0, count(0, 1_000_000);
        /// Requests at the same time on one HTTP/2 connection.
        "http2Streams" => http2_streams: usize = 100, count(1, 1_000_000);
        /// Event streams of HTTP clients that only listen. Never more than three quarters of `connections`, so that
        /// requests find a connection.
        "streams" => streams: usize = 12_288, count(1, 1_000_000);
        /// Verified access tokens that are remembered.
        "tokens" => tokens: usize = 10_000, count(1, 10_000_000);
        /// Requests a second of one peer whose credentials may be found wrong. Of further ones that show something else than
        /// what is remembered, nothing is verified.
        "authFailures" => auth_failures: usize = 20, count(1, 1_000_000);
        /// Requests to issuers about tokens at the same time, of each issuer.
        "introspections" => introspections: usize = 32, count(1, 10_000);
        /// Bytes of an answer of an issuer: its metadata, its keys, or what it says of a token.
        "issuerAnswer" => issuer_answer: usize = 256 * KIB, size(KIB, 64 * MIB);
        /// Keys of one issuer that are kept.
        "issuerKeys" => issuer_keys: usize = 100, count(1, 10_000);
        /// Entries of the file with keys.
        "authKeys" => auth_keys: usize = 10_000, count(1, 1_000_000);
        /// Sessions of legacy clients.
        "sessions" => sessions: usize = 10_000, count(1, 10_000_000);
        /// Sessions of one peer: a principal, or the address of clients that are not authenticated. 0 for no such bound:
        /// when all of `sessions` are taken, the peer that has most loses one.
        "peerSessions" => peer_sessions: usize = 0, count(0, 10_000_000);
        /// Running calls per backend, where the server does not set its own limit.
        "concurrency" => concurrency: usize = 256, CONCURRENCY;
        /// Sessions with one HTTP backend that each belong to one client session. Requests of clients without a session that
        /// can be asked for input have one each as well, which are bounded by `concurrency` and `suspendedCalls` together.
        "backendSessions" => backend_sessions: usize = 1000, count(1, 1_000_000);
        /// Processes of one stdio backend that each belong to one client session.
        "processes" => processes: usize = 64, count(1, 10_000);
        /// Notifications buffered per call.
        "notifications" => notifications: usize = 256, count(1, 1_000_000);
        /// Requests of backends (elicitation, sampling, roots) that one client may have open.
        "serverRequests" was "questions" => server_requests: usize = 64, count(1, 10_000);
        /// Requests to the client that a legacy backend may have open at the same time during one call.
        "openServerRequests" => open_server_requests: usize = 16, count(1, 1000);
        /// Requests to the client that a legacy backend may send during one call.
        "callServerRequests" => call_server_requests: usize = 1000, count(1, 1_000_000);
        /// Inputs that one task of a modern backend may ask for while a call waits for it.
        "taskInputs" => task_inputs: usize = 256, count(1, 10_000);
        /// How often a modern backend may ask for input in one call of a legacy client.
        "inputRounds" => input_rounds: usize = 8, count(1, 1000);
        /// Attempts in a row to take up the broken event stream of a call at a legacy backend that bring nothing at all; then
        /// the call fails.
        "streamAttempts" => stream_attempts: usize = 5, count(1, 1000);
        /// Suspended calls: calls of modern clients that wait for the input that a legacy backend requested.
        "suspendedCalls" was "parkedCalls" => suspended_calls: usize = 1000, count(1, 1_000_000);
        /// Suspended calls of one peer. 0 for no such bound: when all of `suspendedCalls` are taken, a new one ends one of
        /// the peer that has most.
        "peerSuspendedCalls" => peer_suspended_calls: usize = 0, count(0, 1_000_000);
        /// Tasks whose owner is remembered; also, for each backend, tasks that are translated between the eras, and
        /// requests that wait for one.
        "tasks" => tasks: usize = 10_000, count(1, 1_000_000);
        /// Tasks of unknown owners that servers are asked for because of one `subscriptions/listen`; others that it
        /// names are left out.
        "unknownTasks" => unknown_tasks: usize = 16, count(0, 10_000);
        /// Polls of one task that may fail in a row while a call waits for the task's end.
        "taskPollFailures" => task_poll_failures: usize = 14, count(1, 10_000);
        /// Notifications of clients, of kinds that Fanlight does not know, that are on their way to backends at the same
        /// time; further ones are dropped.
        "clientNotifications" => client_notifications: usize = 64, count(1, 100_000);
        /// Extensions of clients, besides those that Fanlight knows, that are declared to backends when merged lists are
        /// read. Each new one has the lists read again.
        "clientExtensions" => client_extensions: usize = 32, count(0, 10_000);
        /// URIs in one result whose backend is remembered, where several backends may have them; further ones get aliases.
        "resultUris" => result_uris: usize = 256, count(0, 100_000);
        /// URIs in results whose backend is remembered, for all clients together; also clients whose apps (`ui://`
        /// resources) are remembered.
        "handedOutUris" => handed_out_uris: usize = 10_000, count(1, 1_000_000);
        /// Bytes of results that are kept as tasks, per backend.
        "taskResults" => task_results: usize = 64 * MIB, size(KIB, 16 * GIB);
        /// Subscriptions of modern clients per listener; also resources, and tasks, subscribed to by one subscription,
        /// by one legacy session, and at one backend.
        "subscriptions" => subscriptions: usize = 10_000, count(1, 1_000_000);
        /// Bytes of a client's capabilities that are kept, and of its `clientInfo`.
        "clientDescription" => client_description: usize = 128 * KIB, size(KIB, 16 * MIB);
        /// Bytes of the capabilities and `clientInfo` of all sessions together. A client's share is as much as it leaves
        /// free for others.
        "clientDescriptions" => client_descriptions: usize = 32 * MIB, size(KIB, 1 << 40);
        /// Messages in one batch (2025-03-26).
        "batch" => batch: usize = 100, count(1, 100_000);
        /// Events kept per legacy session, so that a broken stream can be resumed.
        "replayEvents" => replay_events: usize = 1000, count(1, 1_000_000);
        /// Bytes of those events per legacy session.
        "replayBytes" => replay_bytes: usize = MIB, size(KIB, GIB);
        /// Bytes of those events of all legacy sessions together.
        "replayTotalBytes" => replay_total_bytes: usize = 256 * MIB, size(KIB, 1 << 40);
        /// Pages read of one list of one backend.
        "listPages" => list_pages: usize = 1000, count(1, 1_000_000);
        /// Entries read of one list of one backend.
        "listEntries" => list_entries: usize = 100_000, count(1, 10_000_000);
        /// Bytes read of one list of one backend, all pages together.
        "listBytes" => list_bytes: usize = 64 * MIB, size(KIB, 16 * GIB);
        /// Bytes of all lists of all backends together.
        "listTotalBytes" => list_total_bytes: usize = 256 * MIB, size(KIB, 1 << 40);
        /// Parameters of one tool that are mirrored into headers (`x-mcp-header`). A tool with more is left out of the
        /// lists of modern HTTP servers, and clients cannot call it over HTTP.
        "mirroredParameters" => mirrored_params: usize = 64, count(1, 1024);
        /// Earlier states of a merged list that are kept for clients that are still paging through them.
        "listGenerations" => list_generations: usize = 3, count(0, 1000);
        /// Bytes of a resource's URI, where several servers make it necessary to find its server.
        "uri" => uri: usize = 64 * KIB, size(KIB, MIB);
        /// Entries on one page of a merged list.
        "pageSize" => page_size: usize = 1000, count(1, 1_000_000);
        /// Results of `resources/read` that are cached, where the server calls them public, for their `ttlMs`; 0 for
        /// none.
        "cacheEntries" => cache_entries: usize = 1000, count(0, 1_000_000);
        /// Bytes of all cached results together; 0 for none.
        "cacheBytes" => cache_bytes: usize = 16 * MIB, size(0, GIB);
        /// Bytes of memory that are kept for about a second for the next long results; 0 for none.
        "spareBytes" => spare_bytes: usize = 32 * MIB, size(0, 1 << 40);
        /// Traces kept in memory; 0 for none.
        "traces" => traces: usize = 500, count(0, 100_000);
        /// Bytes of all kept traces together.
        "traceBytes" => trace_bytes: usize = 16 * MIB, size(KIB, GIB);
        /// Bytes of the file of `--trace-file` before a new one is begun.
        "traceFileBytes" => trace_file_bytes: usize = 64 * MIB, size(KIB, 1 << 40);
        /// Earlier files of `--trace-file` that are kept.
        "traceFiles" => trace_files: usize = 3, count(0, 1000);
        /// Spans that wait to be written by `--trace-file`, and by `--trace-console`; further ones are dropped and counted.
        "spanQueue" => span_queue: usize = 4096, count(1, 1_000_000);
        /// Bytes of log lines that wait for the reader of standard error; further lines are dropped and counted.
        "logBytes" => log_bytes: usize = MIB, size(KIB, GIB);
        /// Names of tools, and of prompts, that metrics tell apart per backend; others are counted as `_OTHER`.
        "metricNames" => metric_names: usize = 100, count(0, 100_000);
        /// Series of one histogram; others are counted as one, `otel_metric_overflow`.
        "metricSeries" => metric_series: usize = 2000, count(1, 1_000_000);
        /// Bytes recorded of the arguments, and of the result, of a tool call, where a server has `recordContent`.
        "recordedContent" => recorded_content: usize = 4 * KIB, size(KIB, MIB);
        /// Open connections to the admin listener.
        "adminConnections" => admin_connections: usize = 128, count(1, 10_000);
        /// Clients that follow `/api/events` at the same time.
        "adminFollowers" => admin_followers: usize = 32, count(1, 1000);
        /// Operators who are signed in to the page at the same time. Where all places are taken, the session of the peer with
        /// most that was used longest ago ends.
        "adminSessions" => admin_sessions: usize = 1024, count(1, 100_000);
        /// Operators of one peer who are signed in to the page at the same time; further ones end its session that was used
        /// longest ago.
        "adminPeerSessions" => admin_peer_sessions: usize = 64, count(1, 100_000);
        /// Credentials of operators that are not accepted, of one peer in a minute; then its further ones are refused without
        /// a look, except those that were accepted from it before.
        "adminSignInFailures" => admin_sign_in_failures: usize = 10, count(1, 10_000);
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::defaults()
    }
}

options! {
    /// Bounds on time.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Timeouts: "timeouts", "in `timeouts`";
    options {
        /// Opening a connection to a backend, or starting its process and completing its handshake.
        "connect" => connect: Duration = seconds(10), TIME;
        /// Waiting for the answer that tells a backend's era.
        "probe" => probe: Duration = seconds(3), TIME;
        /// One request to an issuer of access tokens.
        "issuer" => issuer: Duration = seconds(5), TIME;
        /// Until the keys of an issuer are read again, in the background, while they are used.
        "issuerKeys" => issuer_keys: Duration = seconds(15 * 60), TIME;
        /// How long keys of an issuer that cannot be read again are used.
        "issuerKeysStale" => issuer_keys_stale: Duration = seconds(24 * 3600), LONG_TIME;
        /// The least time between two readings of an issuer's keys because of a token with an unknown one.
        "unknownKey" => unknown_key: Duration = seconds(60), TIME;
        /// How long what an issuer says of an active token is remembered, at most.
        "introspection" => introspection: Duration = seconds(60), time(Duration::ZERO, Duration::from_secs(60));
        /// How far clocks of issuers may differ: added to the expiry of tokens.
        "tokenLeeway" => token_leeway: Duration = seconds(30), time(Duration::ZERO, Duration::from_secs(300));
        /// Reading one backend's part of a merged list.
        "list" => list: Duration = seconds(10), TIME;
        /// A whole call, where the server does not set its own timeout.
        "call" => call: Duration = seconds(300), TIME;
        /// A whole call with the time in which `call` is paused, so that a backend that keeps asking does not keep it for
        /// ever. Never less than `call`.
        "callTotal" => call_total: Duration = seconds(3600), LONG_TIME;
        /// A client's answer to a request that a backend makes during a call. `call` is paused meanwhile.
        "clientAnswer" was "question" => client_answer: Duration = seconds(600), TIME;
        /// Waiting for the end of a task, and remembering a task that no client asks for.
        "task" => task: Duration = seconds(3600), LONG_TIME;
        /// The result of a legacy backend's task once the task has ended, before it is requested again. Doubles with each
        /// request.
        "taskResult" => task_result: Duration = seconds(30), TIME;
        /// The first request to the client of a legacy backend's task that needs input, before the answer to a client's
        /// `tasks/get` goes out without one.
        "taskInput" => task_input: Duration = seconds(1), TIME;
        /// Between two polls of a task, where the backend suggests no interval.
        "taskPoll" => task_poll: Duration = seconds(1), TIME;
        /// The shortest interval that a backend may suggest.
        "taskPollMin" => task_poll_min: Duration = Duration::from_millis(50), TIME;
        /// The longest interval that a backend may suggest, and the longest pause after failed polls.
        "taskPollMax" => task_poll_max: Duration = seconds(30), TIME;
        /// Remembering which backend has a task that has no end.
        "taskOwner" => task_owner: Duration = seconds(86_400), LONG_TIME;
        /// Remembering which backend has a task after the task has ended.
        "taskOwnerGrace" => task_owner_grace: Duration = seconds(300), LONG_TIME;
        /// Remembering which backend has any task.
        "taskOwnerMax" => task_owner_max: Duration = seconds(30 * 86_400), LONG_TIME;
        /// A client's own session with a backend, or its own process, without a call.
        "backendSessionIdle" => backend_session_idle: Duration = seconds(30 * 60), LONG_TIME;
        /// Receiving one request body.
        "body" => body: Duration = seconds(30), TIME;
        /// Receiving the head of one request.
        "header" => header: Duration = seconds(10), TIME;
        /// From the acceptance of a connection to its first request, where Fanlight stops in between, or `listen` moves.
        "firstRequest" => first_request: Duration = Duration::from_millis(500), time(Duration::ZERO, seconds(60));
        /// Reading and dropping a refused request body, so that its sender reads the response.
        "refusedBody" => refused_body: Duration = seconds(5), time(Duration::ZERO, seconds(86_400));
        /// A legacy session without a request.
        "sessionIdle" => session_idle: Duration = seconds(30 * 60), LONG_TIME;
        /// Files of the configuration without a further change, before they are read again. A series of changes is
        /// collected for at most ten times as long.
        "configSettle" => config_settle: Duration = Duration::from_millis(200), TIME;
        /// Finishing running requests on shutdown.
        "drain" => drain: Duration = seconds(10), time(Duration::ZERO, seconds(86_400));
        /// Delivering the errors of requests that were not finished within `drain`.
        "lastAnswers" => last_answers: Duration = seconds(1), time(Duration::ZERO, seconds(3600));
        /// A client connection without a request.
        "idleConnection" => idle_connection: Duration = seconds(75), TIME;
        /// A client that takes nothing of what it is sent, or much less than `limits.writeRate`.
        "write" => write: Duration = seconds(60), TIME;
        /// A call without an answer, before its event stream begins.
        "stream" => stream: Duration = seconds(5), TIME;
        /// An event stream without an event, before a comment keeps it alive; also an HTTP/2 connection of a client, before it
        /// is pinged.
        "keepAlive" => keep_alive: Duration = seconds(25), TIME;
        /// A client's answer to a ping on its HTTP/2 connection; then that is closed.
        "http2Ping" => http2_ping: Duration = seconds(20), TIME;
        /// The `retry` of event streams: when a client that has lost its stream is to come for the rest, where the backend
        /// names no time.
        "sseRetry" => sse_retry: Duration = seconds(1), TIME;
        /// The shortest `retry` of a backend's event stream that is followed; a shorter one counts as this.
        "sseRetryMin" => sse_retry_min: Duration = Duration::from_millis(100), TIME;
        /// The longest `retry` of a backend's event stream that is followed.
        "sseRetryMax" => sse_retry_max: Duration = seconds(60), TIME;
        /// Waiting for another request of a legacy backend after each, so that a modern client gets them together.
        "collectRequests" => collect_requests: Duration = Duration::from_millis(20), time(Duration::ZERO, seconds(60));
        /// A broken event stream of a legacy session that no client resumes.
        "resume" => resume: Duration = seconds(300), TIME;
        /// Each step of ending a stdio backend: its process ending by itself, after SIGTERM, after SIGKILL.
        "processStop" => process_stop: Duration = seconds(2), TIME;
        /// A stdio backend's answer to a ping, which it gets after calls have timed out; then its process is ended.
        "ping" => ping: Duration = seconds(5), TIME;
        /// A backend's answer to the end of a session.
        "sessionEnd" => session_end: Duration = seconds(1), TIME;
        /// Pause before the second attempt to connect to a backend, or to open a stream there. It doubles with each
        /// failure.
        "reconnect" => reconnect: Duration = Duration::from_millis(500), TIME;
        /// The longest of these pauses.
        "reconnectMax" => reconnect_max: Duration = seconds(30), TIME;
        /// A connection to a backend that lasts this long has not failed at its start: after its end, the pauses begin with the
        /// shortest again, and earlier failures to start do not count any more.
        "stableConnection" => stable_connection: Duration = seconds(5), TIME;
        /// After a backend's era was found out again because it had rejected a request: a request that it rejects within
        /// this time is rejected for its own sake.
        "eraRecheck" => era_recheck: Duration = seconds(5), TIME;
        /// A call's wait for an attempt to connect to a backend that could not be connected to before. Calls that find an
        /// attempt under way wait until a quarter of it has passed since it began.
        "connectOnCall" => connect_on_call: Duration = seconds(1), TIME;
        /// Pause after a failed attempt to connect to a backend, before a call has the next one made.
        "reconnectOnCall" => reconnect_on_call: Duration = seconds(1), TIME;
        /// The same pause for a stdio backend that has failed to start `startAttempts` times in a row, for which no attempt is
        /// made without a call.
        "failedRetry" => failed_retry: Duration = seconds(60), TIME;
        /// Pause before the event stream of a call is taken up again at a legacy backend that names no time. It doubles
        /// with each failure.
        "backendResume" => backend_resume: Duration = seconds(1), TIME;
        /// The longest of these pauses.
        "backendResumeMax" => backend_resume_max: Duration = seconds(30), TIME;
        /// Opening the GET stream of a legacy backend, before the first call is sent, and subscriptions are made, without it.
        "streamOpening" => stream_opening: Duration = seconds(2), TIME;
        /// Subscribing, on a process of a legacy stdio backend that serves a call, to the resources that clients listen to,
        /// before the call is sent without.
        "subscribeOnCall" => subscribe_on_call: Duration = seconds(2), TIME;
        /// The next message of a modern backend that has sent a request, which it must not, and got an error for it; then
        /// the call fails.
        "refusedRequest" => refused_request: Duration = seconds(2), TIME;
        /// Delivering a client's answer to the backend that asked for it.
        "delivery" => delivery: Duration = seconds(30), TIME;
        /// A message of Fanlight's own that prepares or follows a call, such as a cancellation.
        "ownMessage" => own_message: Duration = seconds(5), TIME;
        /// Interval of TCP probes on a silent connection to a backend; the third without an answer closes it.
        "tcpProbe" => tcp_probe: Duration = seconds(15), time(seconds(1), seconds(32_767));
        /// Bytes sent to a backend without an acknowledgement by TCP, on Linux.
        "tcpUnacknowledged" => tcp_unacknowledged: Duration = seconds(30), time(seconds(1), seconds(86_400));
        /// A connection to an HTTP backend without a request; it is closed between half of this and this.
        "backendIdleConnection" => backend_idle_connection: Duration = seconds(90), TIME;
        /// Pause before asking again for notifications of a backend that refused them. It doubles with each refusal.
        "listenRetry" => listen_retry: Duration = seconds(1), TIME;
        /// The longest of these pauses.
        "listenRetryMax" => listen_retry_max: Duration = seconds(60), TIME;
        /// Collecting changes of a list, so that a burst is announced to clients once.
        "listSettle" => list_settle: Duration = Duration::from_millis(100), TIME;
        /// Between two announcements of list changes that no backend announced.
        "listUnannounced" => list_unannounced: Duration = seconds(5), TIME;
        /// Serving the last whole list of a backend whose list cannot be read any more; 0 for not at all.
        "staleLists" => stale_lists: Duration = seconds(600), time(Duration::ZERO, seconds(86_400));
        /// A name that no list has, before backends are asked for it again.
        "unknownName" => unknown_name: Duration = seconds(5), TIME;
        /// A client's app (`ui://`) counts as open for this long after its last use: while apps of two servers are open, a call by
        /// a name that tools of both have is refused.
        "openApps" => open_apps: Duration = seconds(3600), TIME;
        /// Caching one result, whatever its `ttlMs`.
        "cache" => cache: Duration = seconds(86_400), LONG_TIME;
        /// Delivering the last spans and metrics on shutdown.
        "flush" => flush: Duration = seconds(3), time(Duration::ZERO, seconds(86_400));
        /// Finishing running requests of operators on shutdown.
        "adminDrain" => admin_drain: Duration = seconds(1), time(Duration::ZERO, seconds(86_400));
        /// Between two checks for changes that `/api/events`, and with it the page, shows.
        "adminEvents" => admin_events: Duration = seconds(1), TIME;
        /// Between two requests of the page for sessions, and for the log of a server, while it shows them.
        "adminRefresh" => admin_refresh: Duration = seconds(2), time(Duration::from_millis(100), seconds(86_400));
        /// For how long the page uses the lists of the catalogue before it requests them again.
        "adminLists" => admin_lists: Duration = seconds(5), TIME;
        /// For how long an operator stays signed in to the page without using it.
        "adminSessionIdle" => admin_session_idle: Duration = seconds(3600), LONG_TIME;
        /// For how long an operator stays signed in to the page at most.
        "adminSession" => admin_session: Duration = seconds(12 * 3600), LONG_TIME;
        /// For how long an operator may take to sign in at the issuer of `admin.signIn`.
        "adminSignIn" => admin_sign_in: Duration = seconds(600), time(seconds(10), seconds(86_400));
        /// Writing the last log lines on shutdown, where the reader of standard error is slow.
        "logFlush" => log_flush: Duration = Duration::from_millis(500), time(Duration::ZERO, seconds(3600));
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::defaults()
    }
}
