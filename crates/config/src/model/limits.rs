//! Bounds on size, number and time.

use std::time::Duration;

use fanlight_fair::limit;

use super::rates::RateRule;
use crate::option::{LONG_TIME, Maybe, Sections, TIME, count, options, size, time};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

options! {
    /// Limits on size and number.
    pub struct Limits: "limits", "in `limits`";
    options {
        /// Bytes for the messages of clients and servers: requests and answers in transit, stored
        /// lists, results, events and traces. Each kind has a fixed share. A client may use as much
        /// of a share as it leaves free for others, and a server three times as much. Default: half
        /// of the memory that the process may use.
        "memory" => memory: Option<usize> = None, Maybe(size(MIB, 1 << 40)), example "# 1GiB";
        /// Rate limits of clients. Default: none.
        "rates" [live] => rates: Vec<RateRule> = Vec::new(), Sections::<RateRule>::KIND, example "# [{for: [principal, tool], match: {tool: \"search/*\", server: search, endpoint: /mcp}, rate: 30/m, burst: 10, queue: 2s}]";
        /// Open client connections. Lowered to three quarters of the files that the process may
        /// open.
        "connections" [live] => connections: usize = 16_384, count(1, 1_000_000);
        /// Sessions of legacy clients.
        "sessions" => sessions: usize = 10_000, count(1, 10_000_000);
        /// Processes of one stdio server that each belong to one client session, and as many that
        /// each belong to one principal.
        "processes" [live] => processes: usize = 64, count(1, 10_000);
        /// Bytes of one HTTP request body, and of one line of a stdio client.
        "requestBody" => request_body: usize = 16 * MIB, size(KIB, GIB);
        /// Traces kept in memory; 0 for none.
        "traces" => traces: usize = 500, count(0, 100_000);
    }
    fields {
        /// Accepted connections that wait while `connections` are in use. Further connections stay
        /// in the socket's backlog for some seconds; then the newest ones of the peer with most are
        /// closed. Lowered to fit the number of files that the process may open.
        waiting_connections: usize = 128;
        /// Open connections to the admin listener. Lowered likewise.
        admin_connections: usize = limit("adminConnections", 128);
    }
}

options! {
    /// Limits on time.
    pub struct Timeouts: "timeouts", "in `timeouts`";
    options {
        /// A call's wait for an operator's approval; then its client must send it again.
        "approval" => approval: Duration = seconds(50), TIME;
        /// A whole call, unless the server sets its own timeout.
        "call" [live] => call: Duration = seconds(300), TIME;
        /// A legacy session without a request.
        "sessionIdle" => session_idle: Duration = seconds(30 * 60), LONG_TIME;
        /// Finishing running requests on shutdown.
        "drain" => drain: Duration = seconds(10), time(Duration::ZERO, seconds(86_400));
    }
}

/// The bytes for each kind of data, out of the memory for messages of clients and servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// Requests of clients.
    pub requests: usize,
    /// Answers that wait for clients that read slowly.
    pub answers: usize,
    /// Messages of servers that are arriving, or that a client has not read or answered.
    pub server_messages: usize,
    /// Capabilities and `clientInfo` of all sessions.
    pub descriptions: usize,
    /// Events of all legacy sessions, for resumption.
    pub replay: usize,
    /// Lists of all servers.
    pub lists: usize,
    /// Cached results.
    pub cache: usize,
    /// Memory kept for the next long results.
    pub spare: usize,
    /// Results of one server that are kept as tasks.
    pub tasks: usize,
    /// Kept traces.
    pub traces: usize,
    /// Clients, rules and decisions that policies remember.
    pub policy: usize,
}

impl Limits {
    /// The shares of `memory`, or of `available` bytes if the file does not set it.
    pub fn budgets(&self, available: usize) -> Budgets {
        let memory = self.memory.unwrap_or(available);
        // One part of `parts`, within bounds.
        let share = |parts: usize, least, most| (memory / parts).clamp(least, most);
        Budgets {
            // The minimum holds a request of usual size. The share is large, since requests are
            // refused once it is used up.
            requests: limit("requestMemory", share(2, 4 * MIB, usize::MAX)),
            // As for requests. Kinds do not lend each other free memory, so neither can starve the
            // other.
            answers: limit("answerMemory", share(2, 4 * MIB, usize::MAX)),
            // As for answers, which most of these messages become. An answer that is also counted
            // for its client is in memory only once.
            server_messages: limit("answerMemory", share(2, 16 * MIB, usize::MAX)),
            // A few hundred bytes for each client are usual.
            descriptions: limit("clientDescriptions", share(16, 256 * KIB, 32 * MIB)),
            // Beyond the maximum, clients that lose their streams repeat their requests.
            replay: share(8, MIB, 256 * MIB),
            // The maximum holds the lists of a hundred large servers.
            lists: share(8, 4 * MIB, 256 * MIB),
            // Results are read again if they are not cached.
            cache: share(32, 256 * KIB, 16 * MIB),
            // The memory is kept for a second only.
            spare: share(32, 256 * KIB, 32 * MIB),
            // Each server has as much for the results that Fanlight keeps until a client asks for
            // them.
            tasks: share(8, 4 * MIB, 64 * MIB),
            // Traces are for diagnosis, and the oldest go first.
            traces: limit("traceBytes", share(32, 256 * KIB, 16 * MIB)),
            // Forgotten decisions are made again.
            policy: share(16, 4 * MIB, 64 * MIB),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_follow_from_the_memory_within_bounds() {
        let small = Limits::default().budgets(MIB);
        assert_eq!(
            (small.requests, small.lists, small.cache),
            (4 * MIB, 4 * MIB, 256 * KIB)
        );
        let large = Limits {
            memory: Some(64 << 30),
            ..Limits::default()
        }
        .budgets(MIB);
        assert_eq!(
            (large.requests, large.answers, large.lists),
            (32 << 30, 32 << 30, 256 * MIB)
        );
        let middle = Limits::default().budgets(1 << 30);
        assert_eq!(
            (middle.requests, middle.replay, middle.spare),
            (512 * MIB, 128 * MIB, 32 * MIB)
        );
    }
}
