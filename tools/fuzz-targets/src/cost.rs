//! Bounds on the cost of an input as a function of its length. They find costs that grow faster
//! than linearly before anybody notices the slowness.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time per byte, in an optimized build with the fuzzer's slow instrumentation.
const TIME_PER_BYTE: Duration = Duration::from_micros(2);

/// The permitted cost of an input: a fixed part, and a part for each byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The number of allocations.
    pub allocations: Linear,
    /// The total of allocated bytes: memory that is freed and allocated again counts twice.
    pub bytes: Linear,
    /// Milliseconds of processor time for any input, plus two microseconds for each byte.
    pub milliseconds: u64,
}

/// A fixed part, and a part for each byte of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear(pub u64, pub u64);

impl Linear {
    fn limit(self, length: u64) -> u64 {
        self.0.saturating_add(self.1.saturating_mul(length))
    }
}

impl Cost {
    /// For parsers that build a value for each element of an input, however short.
    pub const ELEMENTS: Self = Self {
        allocations: Linear(64, 4),
        bytes: Linear(16 << 10, 512),
        milliseconds: 10,
    };
    /// For parsers that at most copy parts of the input.
    pub const TEXT: Self = Self {
        allocations: Linear(64, 1),
        bytes: Linear(16 << 10, 32),
        milliseconds: 10,
    };
}

/// Reads an input of this length, and returns the value.
///
/// # Panics
///
/// Panics if the cost exceeds the permitted cost. Processor time only counts with the feature
/// `processor-time`, for optimized builds.
pub fn bounded<T>(length: usize, cost: Cost, read: impl Fn() -> T) -> T {
    let (mut value, mut exceeded) = attempt(length, cost, &read);
    // Several attempts: one-time initialization only costs the first one, and a page fault or
    // interrupt only one.
    for _ in 0..3 {
        if exceeded.is_none() {
            break;
        }
        (value, exceeded) = attempt(length, cost, &read);
    }
    assert!(
        exceeded.is_none(),
        "an input of {length} bytes costs too much: {}",
        exceeded.unwrap_or_default()
    );
    value
}

/// The value, and the exceeded bound if any.
fn attempt<T>(length: usize, cost: Cost, read: &impl Fn() -> T) -> (T, Option<String>) {
    let mut value = None;
    let before = processor_time();
    let allocated = allocation_counter::measure(|| value = Some(read()));
    let time = processor_time().saturating_sub(before);
    let bytes = u64::try_from(length).unwrap_or(u64::MAX);
    let longest = Duration::from_millis(cost.milliseconds)
        + TIME_PER_BYTE * u32::try_from(length).unwrap_or(u32::MAX);
    let exceeded = [
        (allocated.count_total > cost.allocations.limit(bytes))
            .then(|| format!("{} allocations", allocated.count_total)),
        (allocated.bytes_total > cost.bytes.limit(bytes))
            .then(|| format!("{} allocated bytes", allocated.bytes_total)),
        (cfg!(feature = "processor-time") && time > longest)
            .then(|| format!("{time:?} of processor time")),
    ];
    (
        value.expect("it was read"),
        exceeded.into_iter().flatten().next(),
    )
}

/// The processor time of this thread so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap_or_default(),
        time.tv_nsec.try_into().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies the rest of the text for each byte.
    fn quadratic(text: &[u8]) -> usize {
        (0..text.len()).map(|at| text[at..].to_vec().len()).sum()
    }

    #[test]
    fn linear_cost_is_within_the_bounds() {
        let text = vec![b'x'; 10_000];
        assert_eq!(
            bounded(text.len(), Cost::TEXT, || text.to_vec()).len(),
            text.len()
        );
        assert_eq!(bounded(100, Cost::TEXT, || quadratic(&text[..100])), 5050);
    }

    #[test]
    #[should_panic(expected = "an input of 10000 bytes costs too much: 50005000 allocated bytes")]
    fn quadratic_cost_is_found() {
        let text = vec![b'x'; 10_000];
        bounded(text.len(), Cost::TEXT, || quadratic(&text));
    }
}
