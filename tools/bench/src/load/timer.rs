//! A timer that is exact to the microsecond. The runtime's timers have a resolution of a
//! millisecond, which is longer than a call.

use std::time::{Duration, Instant};

use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

use crate::error::{Doing, Result};

/// A kernel timer: a file that can be read once the time has come.
///
/// The runtime has no type for such files that needs no `unsafe`, but its pipes work the same way:
/// wait and read.
pub(crate) struct Timer(Receiver);

impl Timer {
    pub(crate) fn new() -> Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)
            .doing("making a timer")?;
        Receiver::from_owned_fd_unchecked(timer)
            .map(Self)
            .doing("watching a timer")
    }

    /// Waits until `due`, unless that has passed.
    pub(crate) async fn until(&mut self, due: Instant) -> Result<()> {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let once = Itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(left),
        };
        rustix::time::timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)
            .doing("setting a timer")?;
        // The read value is the number of expirations, which is one.
        self.0.read_u64().await.map(drop).doing("reading a timer")
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn timer_waits_until_due_and_not_for_the_past() {
        let mut timer = Timer::new().unwrap();
        let start = Instant::now();
        for _ in 0..3 {
            timer
                .until(Instant::now() + Duration::from_micros(300))
                .await
                .unwrap();
        }
        assert!(start.elapsed() >= Duration::from_micros(900));
        timer.until(start).await.unwrap();
    }
}
