//! One timer for the waits of a connection's requests. Nearly all of them are over long before their
//! time is, and a timer that is set for each, and cancelled, costs more than all the looks at one that is
//! left as it is set: it goes off now and then for a wait that is over, and is set again then.
//!
//! Must not know: what is waited for.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

/// See the module. Where requests wait at the same time, as on HTTP/2, one has it and the others have
/// timers of their own.
#[derive(Debug, Default)]
pub(crate) struct Timer(Mutex<Option<Armed>>);

/// A timer, and whom it wakes.
#[derive(Debug)]
struct Armed {
    sleep: Pin<Box<Sleep>>,
    whom: Option<Waker>,
}

/// It took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Late;

impl Timer {
    /// Waits for `work`, for at most `time`.
    pub(crate) fn within<F: Future>(
        &self,
        time: Duration,
        mut work: Pin<&mut F>,
    ) -> impl Future<Output = Result<F::Output, Late>> {
        let mut wait = None;
        poll_fn(move |cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            // What is there at once needs no timer, nor a look at the clock.
            let wait = wait.get_or_insert_with(|| self.lend(Instant::now() + time));
            wait.poll(cx).map(|()| Err(Late))
        })
    }

    fn lend(&self, due: Instant) -> Wait<'_> {
        let armed = self.lock().take().unwrap_or_else(|| Armed { sleep: Box::pin(sleep_until(due)), whom: None });
        Wait { timer: self, armed: Some(armed), due }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Armed>> {
        // Nothing that can panic runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One wait, which has the timer until it is over.
struct Wait<'a> {
    timer: &'a Timer,
    /// Set for `due`, or for an earlier wait.
    armed: Option<Armed>,
    due: Instant,
}

impl Wait<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(Armed { sleep, whom }) = &mut self.armed else { return Poll::Ready(()) };
        if sleep.deadline() > self.due {
            sleep.as_mut().reset(self.due);
            *whom = None;
        }
        // It was polled for the same task, perhaps by an earlier wait, and has not gone off since.
        if !sleep.is_elapsed() && whom.as_ref().is_some_and(|whom| whom.will_wake(cx.waker())) {
            return Poll::Pending;
        }
        *whom = Some(cx.waker().clone());
        loop {
            // Time passes for work, too, that leaves nothing of its task's turn.
            ready!(Pin::new(&mut unconstrained(sleep.as_mut())).poll(cx));
            if sleep.deadline() >= self.due {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(self.due);
        }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let before = self.armed.take().and_then(|armed| self.timer.lock().replace(armed));
        drop(before);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::pin::pin;

    use tokio::time::sleep;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How long it is waited in vain.
    async fn in_vain(timer: &Timer, time: Duration) -> Duration {
        let begun = Instant::now();
        assert_eq!(timer.within(time, pin!(pending::<()>())).await, Err(Late));
        begun.elapsed()
    }

    fn deadline(timer: &Timer) -> Option<Instant> {
        timer.lock().as_ref().map(|armed| armed.sleep.deadline())
    }

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_own_time() {
        let timer = Timer::default();
        for seconds in [5, 2, 2, 9, 1] {
            assert_eq!(in_vain(&timer, SECOND * seconds).await, SECOND * seconds);
            // Set for a wait that is over before it.
            assert_eq!(timer.within(SECOND * 3, pin!(sleep(SECOND))).await, Ok(()));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_over_in_time_leaves_the_timer_as_it_is() {
        let timer = Timer::default();
        assert_eq!(timer.within(SECOND, pin!(ready(7))).await, Ok(7));
        assert_eq!(deadline(&timer), None);
        let first = Instant::now() + SECOND * 10;
        for _ in 0..5 {
            assert_eq!(timer.within(SECOND * 10, pin!(sleep(SECOND))).await, Ok(()));
            assert_eq!(deadline(&timer), Some(first));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn several_can_wait_at_once() {
        let timer = Timer::default();
        let (one, other) = tokio::join!(in_vain(&timer, SECOND * 4), in_vain(&timer, SECOND * 3));
        assert_eq!((one, other), (SECOND * 4, SECOND * 3));
        assert!(deadline(&timer).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_given_up_gives_the_timer_back() {
        let timer = Timer::default();
        tokio::select! {
            biased;
            _ = in_vain(&timer, SECOND * 4) => unreachable!(),
            () = sleep(SECOND) => {}
        }
        assert!(deadline(&timer).is_some());
        assert_eq!(in_vain(&timer, SECOND).await, SECOND);
    }
}
