//! Commands that end when their user interrupts them.

use crate::failure::Failure;

/// Runs `command` until it ends or SIGINT arrives.
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
        result = command => result,
        () = interrupted => Err(Failure::ended_by_signal()),
    }
}
