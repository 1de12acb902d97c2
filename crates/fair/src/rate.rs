//! Limits how often something may happen per key, with the generic cell rate algorithm, which needs
//! one time per key.
//!
//! The crate `governor` (0.10) does not fit. Its limiter accepts a custom store, which could limit
//! the keys. But it only allows or refuses now: it can neither reserve a later turn
//! (`charge_within`) nor refund a charge ([`Charge::refund`]). It would replace only the few lines
//! of `Quota::next`.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// A number of events allowed at once, and again evenly over each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The number of events, at least one.
    pub most: usize,
    /// The period.
    pub per: Duration,
}

impl Quota {
    /// A quota of this many per second.
    pub const fn per_second(most: usize) -> Self {
        Self {
            most,
            per: Duration::from_secs(1),
        }
    }

    /// A quota of this many per minute.
    pub const fn per_minute(most: usize) -> Self {
        Self {
            most,
            per: Duration::from_secs(60),
        }
    }

    /// The time that one event takes.
    fn part(self) -> Duration {
        let most = u32::try_from(self.most).unwrap_or(u32::MAX).max(1);
        (self.per / most).max(Duration::from_nanos(1))
    }
}

/// Counts events by key. Keys without recent use leave when the table is full. Beyond the maximum
/// number of keys, all others share one count, so that a flood of keys gets no more than that.
#[derive(Clone, Debug)]
pub struct Rate<K>(Arc<Shared<K>>);

#[derive(Debug)]
struct Shared<K> {
    keys: usize,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    /// The time when all use of a key is forgotten.
    used: HashMap<K, Instant, RandomState>,
    /// The same for all keys without their own entry.
    others: Option<Instant>,
    swept: Option<Instant>,
}

/// The interval of removing unused keys while the table is full.
const SWEEP: Duration = Duration::from_secs(1);

/// The error for a key that has used up its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many; again in {retry_after:?}")]
pub struct TooMany {
    /// The time until it may use one more.
    pub retry_after: Duration,
}

/// A charge to a key. It stays used unless it is refunded.
#[derive(Debug)]
pub struct Charge<K> {
    rate: Rate<K>,
    key: K,
    part: Duration,
    /// The time when the key's use was forgotten right after this charge.
    until: Instant,
}

impl<K: Clone + Eq + Hash> Rate<K> {
    /// Counts at most this many keys separately.
    pub fn new(keys: usize) -> Self {
        let state = Mutex::new(State {
            used: HashMap::default(),
            others: None,
            swept: None,
        });
        Self(Arc::new(Shared { keys, state }))
    }

    /// Whether `key` may use one more; does not use it.
    ///
    /// # Errors
    ///
    /// If it has none left.
    pub fn check(&self, key: &K, quota: Quota) -> Result<(), TooMany> {
        let now = Instant::now();
        quota
            .next(
                self.swept_state(now).next_permit(key, self.0.keys),
                now,
                Duration::ZERO,
            )
            .map(drop)
    }

    /// Uses one of `key`.
    ///
    /// # Errors
    ///
    /// If it has none left.
    pub fn charge(&self, key: &K, quota: Quota) -> Result<Charge<K>, TooMany> {
        self.charge_within(key, quota, Duration::ZERO)
            .map(|(charge, _)| charge)
    }

    /// Uses one of `key`, at once or in turn after earlier charges; returns the time until then.
    ///
    /// # Errors
    ///
    /// If the turn comes later than after `longest`.
    pub fn charge_within(
        &self,
        key: &K,
        quota: Quota,
        longest: Duration,
    ) -> Result<(Charge<K>, Duration), TooMany> {
        let now = Instant::now();
        let mut state = self.swept_state(now);
        let (next, wait) = quota.next(state.next_permit(key, self.0.keys), now, longest)?;
        if state.used.len() < self.0.keys || state.used.contains_key(key) {
            state.used.insert(key.clone(), next);
        } else {
            state.others = Some(next);
        }
        Ok((
            Charge {
                rate: self.clone(),
                key: key.clone(),
                part: quota.part(),
                until: next,
            },
            wait,
        ))
    }

    /// The number of separately counted keys.
    pub fn len(&self) -> usize {
        self.0.state.lock().used.len()
    }

    /// Whether no key is counted separately.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// At most `keys` keys with the most use, each with the used part of its quota, the largest
    /// first.
    pub fn most_used(&self, quota: Quota, keys: usize) -> Vec<(K, usize)> {
        let now = Instant::now();
        let state = self.0.state.lock();
        let mut all: Vec<_> = state
            .used
            .iter()
            .filter(|(_, until)| **until > now)
            .collect();
        // Sort no more than needed: requests wait for this lock.
        if all.len() > keys {
            all.select_nth_unstable_by_key(keys, |(_, until)| Reverse(**until));
            all.truncate(keys);
        }
        all.sort_unstable_by_key(|(_, until)| Reverse(**until));
        let used = |until: Instant| {
            until
                .duration_since(now)
                .as_nanos()
                .div_ceil(quota.part().as_nanos())
        };
        all.into_iter()
            .map(|(key, until)| {
                (
                    key.clone(),
                    usize::try_from(used(*until)).unwrap_or(usize::MAX),
                )
            })
            .collect()
    }

    fn swept_state(&self, now: Instant) -> MutexGuard<'_, State<K>> {
        let mut state = self.0.state.lock();
        if state.used.len() >= self.0.keys
            && state
                .swept
                .is_none_or(|swept| now.duration_since(swept) >= SWEEP)
        {
            state.used.retain(|_, until| *until > now);
            state.swept = Some(now);
        }
        state
    }
}

impl<K: Clone + Eq + Hash> Charge<K> {
    /// Refunds the charge, unless a later one has its turn behind it: two would have the same turn
    /// then.
    pub fn refund(self) {
        let mut state = self.rate.0.state.lock();
        let state = &mut *state;
        if let Some(until) = state.used.get_mut(&self.key).or(state.others.as_mut())
            && *until == self.until
        {
            *until = until.checked_sub(self.part).unwrap_or(*until);
        }
    }
}

impl<K: Eq + Hash> State<K> {
    fn next_permit(&self, key: &K, keys: usize) -> Option<Instant> {
        match self.used.get(key) {
            Some(until) => Some(*until),
            None if self.used.len() < keys => None,
            None => self.others,
        }
    }
}

impl Quota {
    /// The time when the key's use is forgotten after one more event within `longest`, and the wait
    /// for it. `until` is that time so far.
    fn next(
        self,
        until: Option<Instant>,
        now: Instant,
        longest: Duration,
    ) -> Result<(Instant, Duration), TooMany> {
        let next = until.map_or(now, |until| until.max(now)) + self.part();
        let latest = now + self.part() * u32::try_from(self.most).unwrap_or(u32::MAX).max(1);
        let wait = next.saturating_duration_since(latest);
        match wait.checked_sub(longest).filter(|more| !more.is_zero()) {
            Some(retry_after) => Err(TooMany { retry_after }),
            None => Ok((next, wait)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 3;
    const QUOTA: Quota = Quota::per_minute(MOST);
    const PART: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn each_key_has_a_quota_of_its_own() {
        let rate = Rate::new(8);
        assert_eq!(
            (0..9).filter(|_| rate.charge(&1, QUOTA).is_ok()).count(),
            MOST
        );
        assert_eq!(rate.check(&1, QUOTA), Err(TooMany { retry_after: PART }));
        assert!(rate.charge(&2, QUOTA).is_ok());
        tokio::time::advance(PART / 2).await;
        // Refusals do not extend the wait.
        assert_eq!(
            rate.charge(&1, QUOTA).map(drop),
            Err(TooMany {
                retry_after: PART / 2
            })
        );
        tokio::time::advance(PART / 2).await;
        assert!(rate.charge(&1, QUOTA).is_ok() && rate.charge(&1, QUOTA).is_err());
        tokio::time::advance(4 * PART).await;
        assert_eq!(
            (0..9).filter(|_| rate.charge(&1, QUOTA).is_ok()).count(),
            MOST,
            "no more than at once"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_wait_have_their_turn_one_after_the_other() {
        let rate = Rate::new(8);
        let wait = |longest| rate.charge_within(&1, QUOTA, longest).map(|(_, wait)| wait);
        assert!((0..MOST).all(|_| wait(PART) == Ok(Duration::ZERO)));
        assert_eq!(
            (wait(3 * PART), wait(3 * PART), wait(3 * PART)),
            (Ok(PART), Ok(2 * PART), Ok(3 * PART))
        );
        assert_eq!(wait(3 * PART), Err(TooMany { retry_after: PART }));
        tokio::time::advance(PART).await;
        assert_eq!(wait(3 * PART), Ok(3 * PART));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_given_back_is_not_used() {
        let rate = Rate::new(8);
        for _ in 0..100 {
            rate.charge(&1, QUOTA).unwrap().refund();
        }
        assert_eq!(
            (0..9).filter(|_| rate.charge(&1, QUOTA).is_ok()).count(),
            MOST
        );
    }

    #[tokio::test(start_paused = true)]
    async fn turns_that_are_given_back_make_no_two_others_run_at_once() {
        let rate = Rate::new(8);
        let quota = Quota { most: 1, ..QUOTA };
        let mut turns = Vec::new();
        for _ in 0..6 {
            let mut waiting = Vec::new();
            while let Ok(charged) = rate.charge_within(&1, quota, 5 * quota.per) {
                waiting.push(charged);
            }
            let last = waiting.pop();
            turns.extend(last.map(|(_, wait)| Instant::now() + wait));
            // In any order, and the last one stays.
            waiting.reverse();
            waiting.into_iter().for_each(|(charge, _)| charge.refund());
            let later = rate.charge_within(&1, quota, 6 * quota.per).ok();
            turns.extend(later.map(|(_, wait)| Instant::now() + wait));
            tokio::time::advance(quota.per).await;
        }
        turns.sort_unstable();
        assert!(turns.len() > 2);
        for (one, next) in turns.iter().zip(turns.iter().skip(1)) {
            assert!(*next - *one >= quota.per, "{turns:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_have_used_most_are_known() {
        let rate = Rate::new(8);
        for key in [1, 2, 2, 3, 3, 3] {
            rate.charge(&key, QUOTA).unwrap();
        }
        assert_eq!(rate.most_used(QUOTA, 2), [(3, 3), (2, 2)]);
        tokio::time::advance(PART).await;
        assert_eq!(rate.most_used(QUOTA, 8), [(3, 2), (2, 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_beyond_the_bound_are_counted_together() {
        let rate = Rate::new(8);
        assert_eq!(
            (0..100)
                .filter(|key| rate.charge(key, QUOTA).is_ok())
                .count(),
            8 + MOST
        );
        assert!(rate.check(&999, QUOTA).is_err() && rate.check(&0, QUOTA).is_ok());
        assert_eq!(rate.len(), 8);
        tokio::time::advance(PART).await;
        assert!(rate.charge(&999, QUOTA).is_ok());
        assert_eq!(
            rate.len(),
            1,
            "those that have used nothing lately have left"
        );
    }

    proptest::proptest! {
        #[test]
        fn no_key_gets_more_than_its_quota(steps in proptest::collection::vec((0_u8..4, 0_u64..30, proptest::bool::ANY), 1..200)) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                let (rate, start) = (Rate::new(4), Instant::now());
                let mut used = [0_usize; 4];
                for (key, seconds, is_refunded) in steps {
                    tokio::time::advance(Duration::from_secs(seconds)).await;
                    if let Ok(charge) = rate.charge(&key, QUOTA) {
                        if is_refunded { charge.refund() } else { used[usize::from(key)] += 1 }
                    }
                }
                let regained = usize::try_from(start.elapsed().as_secs() / PART.as_secs()).unwrap();
                assert!(used.iter().all(|used| *used <= MOST + regained));
            });
        }
    }
}
