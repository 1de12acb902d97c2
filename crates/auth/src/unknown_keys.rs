//! Keys that are shown and not known: one may have been made a moment ago. Before it is refused, whoever reads the file with
//! keys is asked whether that has changed.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

/// Requests that may wait for one look at the file. Those beyond are refused at once.
const MOST: usize = 64;
/// The longest that a request waits.
const PATIENCE: Duration = Duration::from_secs(2);
/// From one look at the file to the next, however many unknown keys are shown.
const PAUSE: Duration = Duration::from_millis(250);

/// Receives the requests with unknown keys.
#[derive(Debug)]
pub struct UnknownKeys {
    waiting: mpsc::Receiver<oneshot::Sender<()>>,
    /// When they are received again.
    next: Instant,
}

/// Requests with unknown keys. When this is dropped, their keys are looked up again.
#[derive(Debug)]
pub struct Shown {
    _requests: Vec<oneshot::Sender<()>>,
}

/// Asks the receiver of [`UnknownKeys`].
#[derive(Debug)]
pub(crate) struct Asking(mpsc::Sender<oneshot::Sender<()>>);

/// The two ends.
pub(crate) fn channel() -> (Asking, UnknownKeys) {
    let (asking, waiting) = mpsc::channel(MOST);
    (
        Asking(asking),
        UnknownKeys {
            waiting,
            next: Instant::now(),
        },
    )
}

impl UnknownKeys {
    /// Waits for requests with unknown keys, which are given at most once in a while. Can be cancelled without a loss.
    pub async fn shown(&mut self) -> Shown {
        sleep_until(self.next).await;
        let mut requests = Vec::new();
        if self.waiting.recv_many(&mut requests, MOST).await == 0 {
            // Nobody is left who could ask.
            std::future::pending::<()>().await;
        }
        self.next = Instant::now() + PAUSE;
        Shown {
            _requests: requests,
        }
    }
}

impl Asking {
    /// Whether somebody can be asked now.
    pub(crate) fn ask(&self) -> Option<oneshot::Receiver<()>> {
        let (done, looked) = oneshot::channel();
        self.0.try_send(done).ok().map(|()| looked)
    }
}

/// Waits until the file has been looked at, or for too long.
pub(crate) async fn wait(looked: oneshot::Receiver<()>) {
    // Dropped, not sent: either way it is done.
    let _ = timeout(PATIENCE, looked).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn file_is_looked_at_once_in_a_while_however_many_keys_are_shown() {
        let (asking, mut unknown) = channel();
        let begin = Instant::now();
        for look in 0..3 {
            let requests: Vec<_> = (0..MOST).map(|_| asking.ask().unwrap()).collect();
            assert!(asking.ask().is_none(), "refused at once");
            drop(unknown.shown().await);
            assert_eq!(begin.elapsed().as_millis() / PAUSE.as_millis(), look);
            for request in requests {
                wait(request).await;
            }
        }
        assert_eq!(
            begin.elapsed().as_millis() / PAUSE.as_millis(),
            2,
            "nobody waited for more than the looks"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn request_does_not_wait_for_ever() {
        let (asking, mut unknown) = channel();
        let begin = Instant::now();
        wait(asking.ask().unwrap()).await;
        let shown = unknown.shown().await;
        wait(asking.ask().unwrap()).await;
        assert_eq!(
            begin.elapsed().as_secs() / PATIENCE.as_secs(),
            2,
            "{shown:?}"
        );
        drop(unknown);
        assert!(asking.ask().is_none(), "there is nobody to ask");
    }
}
