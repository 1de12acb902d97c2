//! Counts durations by range.
//!
//! The ranges are finer than the buckets of the conventions, because most tools answer within the
//! first of those buckets.

use std::time::Duration;

/// The upper bounds of the ranges in nanoseconds. They include each bound of [`super::BOUNDS`].
pub(super) const LIMITS: [u64; 52] = nanos([
    10,
    15,
    20,
    30,
    40,
    50,
    75, //
    100,
    150,
    200,
    300,
    400,
    500,
    750, //
    1_000,
    1_500,
    2_000,
    3_000,
    4_000,
    5_000,
    7_500, //
    10_000,
    15_000,
    20_000,
    30_000,
    40_000,
    50_000,
    75_000, //
    100_000,
    150_000,
    200_000,
    300_000,
    400_000,
    500_000,
    750_000, //
    1_000_000,
    1_500_000,
    2_000_000,
    3_000_000,
    4_000_000,
    5_000_000,
    7_500_000, //
    10_000_000,
    15_000_000,
    20_000_000,
    30_000_000,
    45_000_000,
    60_000_000, //
    90_000_000,
    120_000_000,
    180_000_000,
    300_000_000,
]);

/// The number of ranges. The last range is above all [`LIMITS`].
pub(super) const RANGES: usize = LIMITS.len() + 1;

const fn nanos<const N: usize>(mut micros: [u64; N]) -> [u64; N] {
    let mut index = 0;
    while index < N {
        micros[index] *= 1000;
        index += 1;
    }
    micros
}

/// The index of the range of a duration in nanoseconds.
pub(super) fn range_of(nanos: u64) -> usize {
    LIMITS.partition_point(|limit| *limit < nanos)
}

/// How many durations are in each range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Durations(pub(super) [u64; RANGES]);

impl Default for Durations {
    fn default() -> Self {
        Self([0; RANGES])
    }
}

impl Durations {
    pub(super) fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds the counts of `other`.
    pub(super) fn add(&mut self, other: &Self) {
        self.0
            .iter_mut()
            .zip(&other.0)
            .for_each(|(sum, one)| *sum += one);
    }

    /// The ranges in which there are more durations than in `earlier`, each with the difference.
    pub(super) fn since(&self, earlier: &Self) -> impl Iterator<Item = (usize, u64)> {
        let differences = self
            .0
            .iter()
            .zip(&earlier.0)
            .map(|(now, then)| now.saturating_sub(*then));
        differences.enumerate().filter(|(_, count)| *count > 0)
    }

    /// How many durations are in each of the ranges that end at `limits`, and then how many are
    /// above all of them. `limits` must be some of [`LIMITS`].
    pub(super) fn within(&self, limits: &[u64]) -> impl Iterator<Item = u64> {
        let mut counts = vec![0; limits.len() + 1];
        for (range, count) in self.0.iter().enumerate() {
            let place = LIMITS.get(range).map_or(limits.len(), |end| {
                limits.partition_point(|limit| limit < end)
            });
            counts
                .get_mut(place)
                .into_iter()
                .for_each(|sum| *sum += count);
        }
        counts.into_iter()
    }

    /// The quantile `of` the durations, interpolated within a range. `None` if there are no
    /// durations.
    pub(super) fn quantile(&self, of: f64) -> Option<Duration> {
        let total = self.count();
        if total == 0 {
            return None;
        }
        // Counts stay far below 2^52, so the conversion is exact.
        let wanted = of * total as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (count, limit) in self.0.iter().zip(LIMITS) {
            let (here, upper) = (*count as f64, limit as f64);
            if here > 0.0 && below + here >= wanted {
                let nanos = lower + (upper - lower) * ((wanted - below) / here);
                return Some(Duration::from_nanos(nanos as u64));
            }
            below += here;
            lower = upper;
        }
        LIMITS.last().copied().map(Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(millis: &[u64]) -> Durations {
        let mut durations = Durations::default();
        millis
            .iter()
            .for_each(|millis| durations.0[range_of(millis * 1_000_000)] += 1);
        durations
    }

    #[test]
    fn quantile_is_near_the_value() {
        assert_eq!(Durations::default().quantile(0.5), None);
        for millis in [1, 4, 9, 35, 80, 650, 9_000] {
            let found = durations(&[millis; 100])
                .quantile(0.95)
                .unwrap()
                .as_secs_f64()
                * 1000.0;
            assert!(
                (found / millis as f64 - 1.0).abs() < 0.35,
                "{millis} {found}"
            );
        }
        let mixed = durations(&[[2; 98].as_slice(), &[5_000; 2]].concat());
        assert!(mixed.quantile(0.5).unwrap() <= Duration::from_millis(2));
        assert!(mixed.quantile(0.99).unwrap() > Duration::from_secs(4));
        assert_eq!(
            durations(&[1_000_000]).quantile(0.5),
            Some(Duration::from_secs(300))
        );
    }

    #[test]
    fn ranges_are_merged_without_loss() {
        let all = durations(&[1, 4, 9, 35, 80, 650, 9_000, 1_000_000]);
        let limits = nanos([1_000, 50_000, 300_000_000]);
        assert!(limits.iter().all(|limit| LIMITS.contains(limit)));
        assert_eq!(all.within(&limits).collect::<Vec<_>>(), [1, 3, 3, 1]);
    }

    #[test]
    fn differences_are_those_of_the_time_between() {
        let (mut now, then) = (durations(&[1, 1, 400]), durations(&[1]));
        assert_eq!(
            now.since(&then).map(|(_, count)| count).collect::<Vec<_>>(),
            [1, 1]
        );
        now.add(&then);
        assert_eq!(now.count(), 4);
    }
}
