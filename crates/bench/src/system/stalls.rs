//! How long the machine lets threads stand still that want nothing but to run: no system on it can be steadier than that.
//!
//! Must not know: what else is measured.

use std::time::{Duration, Instant};

use super::process::{Cores, on_cores};
use crate::error::{BenchError, Result};

/// A thread that reads the clock again after so long has stood still.
const GAP: Duration = Duration::from_micros(500);

/// How a thread stood still.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stalls {
    pub(crate) longest: Duration,
    pub(crate) all: Duration,
}

/// Has a thread on each of `cores` do nothing but read the clock for `time`; how the worst of them stood still.
pub(crate) async fn stalls(cores: [Cores; 2], time: Duration) -> Result<Stalls> {
    let threads = cores.map(|cores| tokio::task::spawn_blocking(move || on_cores(cores, || Ok(watch(time)))));
    let mut worst = Stalls::default();
    for thread in threads {
        let stalls = thread.await.map_err(|error| BenchError::Other(error.to_string()))??;
        if stalls.longest > worst.longest {
            worst = stalls;
        }
    }
    Ok(worst)
}

fn watch(time: Duration) -> Stalls {
    let (mut stalls, start) = (Stalls::default(), Instant::now());
    let mut last = start;
    while last - start < time {
        let now = Instant::now();
        let gap = now - last;
        if gap > GAP {
            stalls.longest = stalls.longest.max(gap);
            stalls.all += gap;
        }
        last = now;
    }
    stalls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gaps_are_part_of_the_time() {
        let time = Duration::from_millis(20);
        let stalls = stalls([Cores::Any; 2], time).await.unwrap();
        assert!(stalls.longest <= stalls.all);
    }
}
