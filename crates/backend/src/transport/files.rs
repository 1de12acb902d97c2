//! Waits for a free file when the process has as many open files as it may.
//!
//! All parts of the process share its files, which become free as calls end. Files that are only
//! kept for later use are closed meanwhile ([`fanlight_http::client::shortages`]).

use std::error::Error;
use std::time::Duration;

use fanlight_http::client::{announce_shortage, is_out_of_files};
use tokio::time::sleep;

/// The pause before the next attempt. A constant: the timeouts of calls and of connecting limit the
/// whole wait.
const RETRY: Duration = Duration::from_millis(50);

/// Repeats an attempt until it no longer fails for lack of a file. The caller limits the time.
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

    use fanlight_http::client::shortages;

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
