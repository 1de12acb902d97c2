//! Shortages of files: what the process keeps open only for later use is given up while something waits for a file.

use std::sync::LazyLock;

use tokio::sync::watch;

/// Counts the attempts that failed for want of a file. Of the process, as the limit of files is.
static SHORTAGES: LazyLock<watch::Sender<u64>> = LazyLock::new(watch::Sender::default);

/// Announces that something waits for a file.
pub fn announce_shortage() {
    SHORTAGES.send_modify(|count| *count += 1);
}

/// Changes with each shortage.
#[must_use]
pub fn shortages() -> watch::Receiver<u64> {
    SHORTAGES.subscribe()
}
