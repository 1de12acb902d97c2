//! Waiting for a free file, while the process has as many open as it may.
//!
//! Files are shared by all that the process does, and become free as other calls end. What is only kept for later use is
//! given up meanwhile ([`fanlight_http_pool::shortages`]).

use std::error::Error;
use std::time::Duration;

use fanlight_http_pool::{announce_shortage, is_out_of_files};
use tokio::time::sleep;

/// How long to wait before the next attempt. No option: the timeouts of calls and of connecting bound the whole wait.
const RETRY: Duration = Duration::from_millis(50);

/// Makes attempts until one does not fail for want of a file. The caller bounds the time.
pub(crate) async fn with_files<T, E: Error + 'static>(
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let mut is_first = true;
    loop {
        match attempt() {
            Err(error) if is_out_of_files(&error) => {
                if std::mem::take(&mut is_first) {
                    tracing::warn!(%error, "waiting for a file: as many are open as the limit allows");
                }
                announce_shortage();
                sleep(RETRY).await;
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use fanlight_http_pool::shortages;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn attempt_without_a_file_is_repeated_and_announced() {
        let mut shortage = shortages();
        let mut outcomes = [Err(24), Err(23), Ok(())].into_iter();
        let attempt = || {
            outcomes
                .next()
                .unwrap()
                .map_err(io::Error::from_raw_os_error)
        };
        with_files(attempt).await.unwrap();
        assert!(shortage.has_changed().unwrap());
        shortage.mark_unchanged();
        let refused = with_files(|| Err::<(), _>(io::Error::from(io::ErrorKind::NotFound))).await;
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
