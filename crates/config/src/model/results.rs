//! Large results, which clients get shortened while Fanlight keeps them whole.

use std::time::Duration;

use crate::option::kind::{TIME, size};
use crate::option::options;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

options! {
    /// The bounds of large results. Clients get a longer answer shortened, and read the rest in
    /// parts. `results: {}` suffices.
    pub struct Results: "results", "in `results`";
    options {
        /// The longest answer to a tool call that passes unchanged.
        "inline" => inline: usize = 32 * KIB, size(4 * KIB, 1 << 30);
        /// The time for which whole results are kept at most. The oldest go earlier if there is no
        /// room.
        "keepFor" => keep_for: Duration = Duration::from_secs(3600), TIME;
        /// The memory for whole results.
        "memory" => memory: usize = 64 * MIB, size(MIB, 1 << 40);
        /// The room below `stateDir` for whole results, encrypted, once `memory` is full. Without
        /// `stateDir` there is none.
        "disk" => disk: usize = 1 << 30, size(0, 1 << 50);
    }
}
