//! Bounds on size, number and time.

use std::time::Duration;

use fanlight_fair::limit;

use super::rates::RateRule;
use crate::option::kind::{LONG_TIME, Maybe, TIME, count, size, time};
use crate::option::several::Sections;
use crate::option::{Options as _, options};

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

impl Default for Limits {
    fn default() -> Self {
        Self::defaults()
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

impl Default for Timeouts {
    fn default() -> Self {
        Self::defaults()
    }
}
