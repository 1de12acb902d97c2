//! The time limit of all waits.

use std::future::Future;
use std::time::Duration;

/// The timeout of every wait; much longer than a loaded machine needs, so exceeding it is a
/// failure.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for `future`, at most [`PATIENCE`].
///
/// # Panics
///
/// Panics if the time expires; `what` names the event in the message.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} in vain for {what}"),
    }
}
