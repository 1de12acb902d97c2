//! Requests with unknown keys, which may be new. Before such a key is refused, the reader of the
//! keys file checks whether the file has changed.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

/// The limit of requests that wait for one check of the file. Further ones are refused at once.
const MOST: usize = 64;
/// The longest wait of a request.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two checks of the file, however many unknown keys arrive.
const PAUSE: Duration = Duration::from_millis(250);

/// Receives the requests with unknown keys.
#[derive(Debug)]
pub struct UnknownKeys {
    waiting: mpsc::Receiver<oneshot::Sender<()>>,
    /// When requests are received again.
    next: Instant,
}

/// Requests with unknown keys. Dropping this makes their keys be looked up again.
#[derive(Debug)]
pub struct Shown {
    _requests: Vec<oneshot::Sender<()>>,
}

/// Notifies the receiver of [`UnknownKeys`].
#[derive(Debug)]
pub(crate) struct Asking(mpsc::Sender<oneshot::Sender<()>>);

/// A channel: its sending and receiving ends.
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
    /// Waits for requests with unknown keys, and returns at most once per pause. Can be cancelled
    /// without loss.
    pub async fn wait(&mut self) -> Shown {
        sleep_until(self.next).await;
        let mut requests = Vec::new();
        if self.waiting.recv_many(&mut requests, MOST).await == 0 {
            // Nobody is left who could send one.
            std::future::pending::<()>().await;
        }
        self.next = Instant::now() + PAUSE;
        Shown {
            _requests: requests,
        }
    }
}

impl Asking {
    /// Requests a check of the file; `None` if no check is possible now.
    pub(crate) fn ask(&self) -> Option<oneshot::Receiver<()>> {
        let (done, looked) = oneshot::channel();
        self.0.try_send(done).ok().map(|()| looked)
    }
}

/// Waits until the file was checked, or for too long.
pub(crate) async fn wait(looked: oneshot::Receiver<()>) {
    // The sender is dropped, not used: both mean that the check is done.
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
            drop(unknown.wait().await);
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
        let shown = unknown.wait().await;
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
