//! Limits and timeouts: their fields, ranges and defaults, each said once. The parser and the schema both read these tables.

use std::time::Duration;

/// Bounds on size and number. Each has a default, and a key in `limits` of the config file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one HTTP request body. `requestBody`.
    pub request_body: usize,
    /// Bytes of one message of a backend: a line, an SSE event or a JSON body. `message`.
    pub message: usize,
    /// Bytes of the head of one HTTP request. `header`.
    pub header: usize,
    /// Levels of nesting in one JSON message. `nesting`.
    pub nesting: usize,
    /// Threads that serve clients; 0 for one for each processor. `workers`.
    pub workers: usize,
    /// Open client connections. `connections`.
    pub connections: usize,
    /// Event streams on which HTTP clients only listen, at most three quarters of `connections`. `streams`.
    pub streams: usize,
    /// Sessions of legacy clients. `sessions`.
    pub sessions: usize,
    /// Running calls per backend, where the server does not set its own. `concurrency`.
    pub concurrency: usize,
    /// Sessions that clients have of their own with one HTTP backend. `backendSessions`.
    pub backend_sessions: usize,
    /// Processes that clients have of their own of one stdio backend. `processes`.
    pub processes: usize,
    /// Notifications buffered per call. `notifications`.
    pub notifications: usize,
    /// Questions of backends that one client may have open. `questions`.
    pub questions: usize,
    /// How often a modern backend may ask for input in one call of a legacy client. `inputRounds`.
    pub input_rounds: usize,
    /// Calls of modern clients that are held until the client brings what a legacy backend asked for. `parkedCalls`.
    pub parked_calls: usize,
    /// Tasks that are remembered: whose each is, and by each backend how it is translated. `tasks`.
    pub tasks: usize,
    /// Bytes of results of one backend that are kept as tasks. `taskResults`.
    pub task_results: usize,
    /// Subscriptions of modern clients per listener; resources, and tasks, that are listened to: by one of them or by
    /// one legacy session, and of one backend. `subscriptions`.
    pub subscriptions: usize,
    /// Bytes of the capabilities of one client, and of its `clientInfo`. `clientDescription`.
    pub client_description: usize,
    /// Messages in one batch (2025-03-26). `batch`.
    pub batch: usize,
    /// Events kept per legacy session, so that a broken stream can be resumed. `replayEvents`.
    pub replay_events: usize,
    /// Bytes of those events per legacy session. `replayBytes`.
    pub replay_bytes: usize,
    /// Bytes of those events of all legacy sessions together. `replayTotalBytes`.
    pub replay_total_bytes: usize,
    /// Pages read of one list of one backend. `listPages`.
    pub list_pages: usize,
    /// Entries read of one list of one backend. `listEntries`.
    pub list_entries: usize,
    /// Entries on one page of a merged list. `pageSize`.
    pub page_size: usize,
    /// Results of `resources/read` kept to be served again; 0 for none. `cacheEntries`.
    pub cache_entries: usize,
    /// Bytes of all kept results together; 0 for none. `cacheBytes`.
    pub cache_bytes: usize,
    /// Bytes of memory kept for a moment for the next long results; 0 for none. `spareBytes`.
    pub spare_bytes: usize,
    /// Traces kept in memory; 0 for none. `traces`.
    pub traces: usize,
    /// Bytes of all kept traces together. `traceBytes`.
    pub trace_bytes: usize,
    /// Bytes of the arguments, and of the result, of a tool call that are recorded where that is on. `recordedContent`.
    pub recorded_content: usize,
    /// Open connections to the admin listener. `adminConnections`.
    pub admin_connections: usize,
    /// Pages and programs that follow `/api/events` at once. `adminFollowers`.
    pub admin_followers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request_body: 16 << 20,
            message: 64 << 20,
            header: 64 << 10,
            nesting: 128,
            workers: 0,
            connections: 16_384,
            streams: 12_288,
            sessions: 10_000,
            concurrency: 256,
            backend_sessions: 1000,
            processes: 64,
            notifications: 256,
            questions: 64,
            input_rounds: 8,
            parked_calls: 1000,
            tasks: 10_000,
            task_results: 64 << 20,
            subscriptions: 10_000,
            client_description: 128 << 10,
            batch: 100,
            replay_events: 1000,
            replay_bytes: 1 << 20,
            replay_total_bytes: 256 << 20,
            list_pages: 1000,
            list_entries: 100_000,
            page_size: 1000,
            cache_entries: 1000,
            cache_bytes: 16 << 20,
            spare_bytes: 32 << 20,
            traces: 500,
            trace_bytes: 16 << 20,
            recorded_content: 4 << 10,
            admin_connections: 128,
            admin_followers: 32,
        }
    }
}

/// Bounds on time. Each has a default, and a key in `timeouts` of the config file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// Opening a connection to a backend, or starting its process and completing its handshake. `connect`.
    pub connect: Duration,
    /// Waiting for the answer that tells a backend's era. `probe`.
    pub probe: Duration,
    /// One backend's share in a merged list. `list`.
    pub list: Duration,
    /// A whole call, where the server does not set its own. `call`.
    pub call: Duration,
    /// A client's answer to a question that a backend asks during a call; meanwhile `call` does not run. `question`.
    pub question: Duration,
    /// Waiting for the end of a task, and remembering one that nobody asks for. `task`.
    pub task: Duration,
    /// A client's own session with a backend, or its own process, without a call. `backendSessionIdle`.
    pub backend_session_idle: Duration,
    /// Receiving one request body. `body`.
    pub body: Duration,
    /// Receiving the head of one request. `header`.
    pub header: Duration,
    /// A legacy session without a request. `sessionIdle`.
    pub session_idle: Duration,
    /// Finishing what is in flight on shutdown. `drain`.
    pub drain: Duration,
    /// A client connection without a request. `idleConnection`.
    pub idle_connection: Duration,
    /// A call without an answer, before its event stream begins. `stream`.
    pub stream: Duration,
    /// An event stream without an event, before a comment keeps it alive. `keepAlive`.
    pub keep_alive: Duration,
    /// A broken event stream of a legacy session that nobody resumes. `resume`.
    pub resume: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            probe: Duration::from_secs(3),
            list: Duration::from_secs(10),
            call: Duration::from_secs(300),
            question: Duration::from_secs(600),
            task: Duration::from_secs(3600),
            backend_session_idle: Duration::from_secs(30 * 60),
            body: Duration::from_secs(30),
            header: Duration::from_secs(10),
            session_idle: Duration::from_secs(30 * 60),
            drain: Duration::from_secs(10),
            idle_connection: Duration::from_secs(75),
            stream: Duration::from_secs(5),
            keep_alive: Duration::from_secs(25),
            resume: Duration::from_secs(300),
        }
    }
}

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    Bytes,
    Count,
}

/// One field of [`Limits`].
pub(crate) struct LimitField {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) measure: Measure,
    pub(crate) min: usize,
    pub(crate) max: usize,
    pub(crate) slot: fn(&mut Limits) -> &mut usize,
}

/// One field of [`Timeouts`].
pub(crate) struct TimeoutField {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) min: Duration,
    pub(crate) max: Duration,
    pub(crate) slot: fn(&mut Timeouts) -> &mut Duration,
}

pub(crate) const LIMITS: &[LimitField] = &[
    bytes("requestBody", "Bytes of one HTTP request body.", 1 << 30, |limits| &mut limits.request_body),
    bytes("message", "Bytes of one message of a backend: a line, an SSE event or a JSON body.", 1 << 30, |limits| {
        &mut limits.message
    }),
    bytes("header", "Bytes of the head of one HTTP request.", 1 << 20, |limits| &mut limits.header),
    LimitField {
        min: 8,
        ..count("nesting", "Levels of nesting in one JSON message.", 1024, |limits| &mut limits.nesting)
    },
    LimitField {
        min: 0,
        ..count("workers", "Threads that serve clients; 0 for one for each processor.", 256, |limits| {
            &mut limits.workers
        })
    },
    count("connections", "Open client connections.", 1_000_000, |limits| &mut limits.connections),
    count(
        "streams",
        "Event streams on which HTTP clients only listen; never more than three quarters of `connections`, the rest of which is for requests.",
        1_000_000,
        |limits| &mut limits.streams,
    ),
    count("sessions", "Sessions of legacy clients.", 10_000_000, |limits| &mut limits.sessions),
    CONCURRENCY,
    count("backendSessions", "Sessions that clients have of their own with one HTTP backend.", 1_000_000, |limits| {
        &mut limits.backend_sessions
    }),
    count("processes", "Processes that clients have of their own of one stdio backend.", 10_000, |limits| {
        &mut limits.processes
    }),
    count("notifications", "Notifications buffered per call.", 1_000_000, |limits| &mut limits.notifications),
    count("questions", "Questions of backends that one client may have open.", 10_000, |limits| &mut limits.questions),
    count(
        "inputRounds",
        "How often a modern backend may ask for input in one call of a legacy client.",
        1000,
        |limits| &mut limits.input_rounds,
    ),
    count(
        "parkedCalls",
        "Calls of modern clients that are held until the client brings what a legacy backend asked for.",
        1_000_000,
        |limits| &mut limits.parked_calls,
    ),
    count(
        "tasks",
        "Tasks that are remembered: whose each is, and by each backend how it is translated, and as many waits for one.",
        1_000_000,
        |limits| &mut limits.tasks,
    ),
    bytes("taskResults", "Bytes of results of one backend that are kept as tasks.", 16 << 30, |limits| {
        &mut limits.task_results
    }),
    count(
        "subscriptions",
        "Subscriptions of modern clients per listener; resources, and tasks, that are listened to: by one of them or by one legacy session, and of one backend.",
        1_000_000,
        |limits| &mut limits.subscriptions,
    ),
    bytes(
        "clientDescription",
        "Bytes of what a client says of itself and is kept: its capabilities, and as many of its clientInfo.",
        16 << 20,
        |limits| &mut limits.client_description,
    ),
    count("batch", "Messages in one batch (2025-03-26).", 100_000, |limits| &mut limits.batch),
    count(
        "replayEvents",
        "Events kept per legacy session, so that a broken stream can be resumed.",
        1_000_000,
        |limits| &mut limits.replay_events,
    ),
    bytes("replayBytes", "Bytes of those events per legacy session.", 1 << 30, |limits| &mut limits.replay_bytes),
    bytes("replayTotalBytes", "Bytes of those events of all legacy sessions together.", 1 << 40, |limits| {
        &mut limits.replay_total_bytes
    }),
    count("listPages", "Pages read of one list of one backend.", 1_000_000, |limits| &mut limits.list_pages),
    count("listEntries", "Entries read of one list of one backend.", 10_000_000, |limits| &mut limits.list_entries),
    count("pageSize", "Entries on one page of a merged list.", 1_000_000, |limits| &mut limits.page_size),
    LimitField {
        min: 0,
        ..count("cacheEntries", "Results of resources/read kept to be served again; 0 for none.", 1_000_000, |limits| {
            &mut limits.cache_entries
        })
    },
    LimitField {
        min: 0,
        ..bytes("cacheBytes", "Bytes of all kept results together; 0 for none.", 1 << 30, |limits| {
            &mut limits.cache_bytes
        })
    },
    LimitField {
        min: 0,
        ..bytes(
            "spareBytes",
            "Bytes of memory kept for a moment for the next long results; 0 for none.",
            1 << 40,
            |limits| &mut limits.spare_bytes,
        )
    },
    LimitField {
        min: 0,
        ..count("traces", "Traces kept in memory; 0 for none.", 100_000, |limits| &mut limits.traces)
    },
    bytes("traceBytes", "Bytes of all kept traces together.", 1 << 30, |limits| &mut limits.trace_bytes),
    bytes(
        "recordedContent",
        "Bytes of the arguments, and of the result, of a tool call that are recorded where that is on.",
        1 << 20,
        |limits| &mut limits.recorded_content,
    ),
    count("adminConnections", "Open connections to the admin listener.", 10_000, |limits| {
        &mut limits.admin_connections
    }),
    count("adminFollowers", "Pages and programs that follow `/api/events` at once.", 1000, |limits| {
        &mut limits.admin_followers
    }),
];

/// Also the range of a server's own `concurrency`.
pub(crate) const CONCURRENCY: LimitField =
    count("concurrency", "Running calls per backend, where the server does not set its own.", 100_000, |limits| {
        &mut limits.concurrency
    });

pub(crate) const TIMEOUTS: &[TimeoutField] = &[
    timeout(
        "connect",
        "Opening a connection to a backend, or starting its process and completing its handshake.",
        |timeouts| &mut timeouts.connect,
    ),
    timeout("probe", "Waiting for the answer that tells a backend's era.", |timeouts| &mut timeouts.probe),
    timeout("list", "One backend's share in a merged list.", |timeouts| &mut timeouts.list),
    CALL,
    timeout(
        "question",
        "A client's answer to a question that a backend asks during a call; meanwhile `call` does not run.",
        |timeouts| &mut timeouts.question,
    ),
    TimeoutField {
        max: Duration::from_secs(30 * 86_400),
        ..timeout("task", "Waiting for the end of a task, and remembering one that nobody asks for.", |timeouts| {
            &mut timeouts.task
        })
    },
    TimeoutField {
        max: Duration::from_secs(30 * 86_400),
        ..timeout(
            "backendSessionIdle",
            "A client's own session with a backend, or its own process, without a call.",
            |timeouts| &mut timeouts.backend_session_idle,
        )
    },
    timeout("body", "Receiving one request body.", |timeouts| &mut timeouts.body),
    timeout("header", "Receiving the head of one request.", |timeouts| &mut timeouts.header),
    TimeoutField {
        max: Duration::from_secs(30 * 86_400),
        ..timeout("sessionIdle", "A legacy session without a request.", |timeouts| &mut timeouts.session_idle)
    },
    TimeoutField {
        min: Duration::ZERO,
        ..timeout("drain", "Finishing what is in flight on shutdown.", |timeouts| &mut timeouts.drain)
    },
    timeout("idleConnection", "A client connection without a request.", |timeouts| &mut timeouts.idle_connection),
    timeout("stream", "A call without an answer, before its event stream begins.", |timeouts| &mut timeouts.stream),
    timeout("keepAlive", "An event stream without an event, before a comment keeps it alive.", |timeouts| {
        &mut timeouts.keep_alive
    }),
    timeout("resume", "A broken event stream of a legacy session that nobody resumes.", |timeouts| {
        &mut timeouts.resume
    }),
];

/// Also the range of a server's own `timeout`.
pub(crate) const CALL: TimeoutField =
    timeout("call", "A whole call, where the server does not set its own.", |timeouts| &mut timeouts.call);

const fn bytes(name: &'static str, about: &'static str, max: usize, slot: fn(&mut Limits) -> &mut usize) -> LimitField {
    LimitField { name, about, measure: Measure::Bytes, min: 1024, max, slot }
}

const fn count(name: &'static str, about: &'static str, max: usize, slot: fn(&mut Limits) -> &mut usize) -> LimitField {
    LimitField { name, about, measure: Measure::Count, min: 1, max, slot }
}

const fn timeout(name: &'static str, about: &'static str, slot: fn(&mut Timeouts) -> &mut Duration) -> TimeoutField {
    TimeoutField { name, about, min: Duration::from_millis(1), max: Duration::from_secs(86_400), slot }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_within_its_range_and_every_slot_is_used_once() {
        let mut limits = Limits::default();
        for field in LIMITS {
            let slot = (field.slot)(&mut limits);
            assert!((field.min..=field.max).contains(slot), "{}", field.name);
            *slot = usize::MAX;
        }
        let mut timeouts = Timeouts::default();
        for field in TIMEOUTS {
            let slot = (field.slot)(&mut timeouts);
            assert!((field.min..=field.max).contains(slot), "{}", field.name);
            *slot = Duration::MAX;
        }
    }
}
