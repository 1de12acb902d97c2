//! The shares of `limits.memory`.

use fanlight_fair::limit;

use super::limits::Limits;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

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
