//! Commands that end when their user interrupts them.

use crate::failure::Failure;

/// Runs `command` until it ends or SIGINT arrives. If the command itself waits for SIGINT, it ends
/// in its own way.
pub async fn interruptible<T>(
    command: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let interrupted = async {
        // Without a signal handler, SIGINT ends the process by default.
        match tokio::signal::ctrl_c().await {
            Ok(()) => (),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        result = command => result,
        () = interrupted => Err(Failure::ended_by_signal()),
    }
}
