//! Shortages of files. While something waits for a file, the process closes files that it only
//! keeps for later use.

use std::sync::LazyLock;

use tokio::sync::watch;

/// Counts the attempts that failed for lack of a file. One counter per process, as for the limit of
/// files.
static SHORTAGES: LazyLock<watch::Sender<u64>> = LazyLock::new(watch::Sender::default);

/// Announces that something waits for a file.
pub fn announce_shortage() {
    SHORTAGES.send_modify(|count| *count += 1);
}

/// Observes shortages; the value changes with each.
pub fn shortages() -> watch::Receiver<u64> {
    SHORTAGES.subscribe()
}
