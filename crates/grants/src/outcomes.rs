//! The outcomes of questions to authorization servers: their metadata, and registrations there. Each
//! question is asked once at a time, and not again while its answer is fresh. The pause after a
//! failure grows, because anybody can open a page.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::oauth::OAuthError;

/// The limit of known outcomes.
const MOST: usize = 100;

/// The outcomes of one kind of question, by key.
pub(crate) struct Outcomes<K, T> {
    known: Mutex<HashMap<K, Known<T>>>,
    pauses: Pauses,
}

/// The times for which failures count.
pub(crate) struct Pauses {
    /// The pause after a first failure. It doubles with each further one.
    pub(crate) first: fn(&OAuthError) -> Duration,
    /// The longest pause.
    pub(crate) longest: Duration,
}

struct Known<T> {
    begun: Instant,
    /// The outcome, once there is one. The question continues even if nobody waits any more.
    outcome: Receiver<T>,
    /// The failures in a row before this question.
    failures: u32,
}

type Receiver<T> = watch::Receiver<Option<(Instant, Result<T, OAuthError>)>>;

impl<T> Known<T> {
    /// Whether the question is not to be asked again: it is running, its answer is younger than
    /// `fresh`, or its failure still stands.
    fn holds(&self, fresh: Duration, pauses: &Pauses) -> bool {
        match &*self.outcome.borrow() {
            // The sender of an interrupted question is gone.
            None => self.outcome.has_changed().is_ok(),
            Some((at, Ok(_))) => at.elapsed() < fresh,
            Some((at, Err(error))) => {
                let pause = (pauses.first)(error).saturating_mul(1 << self.failures.min(16));
                at.elapsed() < pause.min(pauses.longest)
            }
        }
    }

    /// The failures in a row with this question.
    fn failures(&self) -> u32 {
        match &*self.outcome.borrow() {
            Some((_, Ok(_))) => 0,
            Some((_, Err(_))) | None => self.failures.saturating_add(1),
        }
    }
}

impl<K: Eq + Hash + Clone, T: Clone + Send + Sync + 'static> Outcomes<K, T> {
    pub(crate) fn new(pauses: Pauses) -> Self {
        Self {
            known: Mutex::default(),
            pauses,
        }
    }

    /// The outcome of a question. `ask` asks it if there is no outcome that still holds; it gets the
    /// number of failures just before.
    pub(crate) async fn get_or_ask<F>(
        &self,
        key: &K,
        fresh: Duration,
        ask: impl FnOnce(u32) -> F,
    ) -> Result<T, OAuthError>
    where
        F: Future<Output = Result<T, OAuthError>> + Send + 'static,
    {
        let mut outcome = self.begun(key, fresh, ask);
        let ended = outcome.wait_for(Option::is_some).await;
        let ended = ended.ok().and_then(|ended| ended.clone());
        ended.map_or(Err(OAuthError::Exhausted("it was interrupted")), |ended| {
            ended.1
        })
    }

    fn begun<F>(&self, key: &K, fresh: Duration, ask: impl FnOnce(u32) -> F) -> Receiver<T>
    where
        F: Future<Output = Result<T, OAuthError>> + Send + 'static,
    {
        let mut known = self.known.lock();
        if let Some(one) = known.get(key).filter(|one| one.holds(fresh, &self.pauses)) {
            return one.outcome.clone();
        }
        let failures = known.get(key).map_or(0, Known::failures);
        if known.len() >= MOST && !known.contains_key(key) {
            let oldest = known.iter().min_by_key(|(_, one)| one.begun);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                known.remove(&oldest);
            }
        }
        let (sender, outcome) = watch::channel(None);
        let question = ask(failures);
        tokio::spawn(async move {
            let ended = question.await;
            sender.send_replace(Some((Instant::now(), ended)));
        });
        let one = Known {
            begun: Instant::now(),
            outcome: outcome.clone(),
            failures,
        };
        known.insert(key.clone(), one);
        outcome
    }

    /// The last answer to a question, however old it is.
    pub(crate) fn last(&self, key: &K) -> Option<T> {
        let known = self.known.lock();
        let ended = known.get(key)?.outcome.borrow().clone();
        ended?.1.ok()
    }

    /// Forgets the outcomes whose key is not `meant`.
    pub(crate) fn retain(&self, meant: impl Fn(&K) -> bool) {
        self.known.lock().retain(|key, _| meant(key));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    fn outcomes(pause: fn(&OAuthError) -> Duration) -> Outcomes<usize, usize> {
        Outcomes::new(Pauses {
            first: pause,
            longest: Duration::from_secs(300),
        })
    }

    #[tokio::test]
    async fn question_is_asked_once_and_its_failure_stands() {
        let outcomes = outcomes(|_| Duration::from_secs(60));
        let asked = Arc::new(AtomicUsize::new(0));
        let ask = |_| {
            let asked = Arc::clone(&asked);
            async move {
                tokio::task::yield_now().await;
                asked.fetch_add(1, Ordering::SeqCst);
                Err(OAuthError::NoRandomness)
            }
        };
        let all = join_all((0..150).map(|_| outcomes.get_or_ask(&1, Duration::ZERO, ask))).await;
        assert!(all.iter().all(Result::is_err));
        assert!(outcomes.get_or_ask(&1, Duration::ZERO, ask).await.is_err());
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert!(outcomes.get_or_ask(&2, Duration::ZERO, ask).await.is_err());
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn pause_grows_until_there_is_an_answer() {
        let outcomes = outcomes(|_| Duration::ZERO);
        for before in 0..3 {
            let ask = |failures| async move {
                assert_eq!(failures, before);
                Err(OAuthError::NoRandomness)
            };
            assert!(outcomes.get_or_ask(&1, Duration::ZERO, ask).await.is_err());
        }
        let pause = |failures| {
            let (_sender, outcome) =
                watch::channel(Some((Instant::now(), Err(OAuthError::NoRandomness))));
            let known = Known::<usize> {
                begun: Instant::now(),
                outcome,
                failures,
            };
            let pauses = Pauses {
                first: |_| Duration::from_millis(1),
                longest: Duration::from_secs(300),
            };
            std::thread::sleep(Duration::from_millis(3));
            known.holds(Duration::ZERO, &pauses)
        };
        assert!(!pause(0) && pause(20));
        assert_eq!(
            outcomes
                .get_or_ask(&1, Duration::ZERO, async |_| Ok(7))
                .await,
            Ok(7)
        );
        let ask = |failures| async move { Ok(usize::try_from(failures).unwrap()) };
        assert_eq!(outcomes.get_or_ask(&1, Duration::ZERO, ask).await, Ok(0));
    }

    #[tokio::test]
    async fn slow_peer_holds_up_no_other_and_its_answer_is_shared() {
        let outcomes = outcomes(|_| Duration::ZERO);
        let (answer, asked) = tokio::sync::oneshot::channel::<usize>();
        let slow = |_| async move { asked.await.map_err(|_| OAuthError::NoRandomness) };
        let fresh = Duration::from_secs(60);
        let waiting = outcomes.get_or_ask(&1, fresh, slow);
        let (first, ()) = tokio::join!(waiting, async {
            assert_eq!(outcomes.get_or_ask(&2, fresh, async |_| Ok(2)).await, Ok(2));
            answer.send(1).unwrap();
        });
        assert_eq!(first, Ok(1));
        assert_eq!(outcomes.get_or_ask(&1, fresh, async |_| Ok(3)).await, Ok(1));
    }

    #[tokio::test]
    async fn no_more_than_so_many_are_known() {
        let outcomes = outcomes(|_| Duration::ZERO);
        for key in 0..MOST * 2 {
            assert_eq!(
                outcomes
                    .get_or_ask(&key, Duration::ZERO, async |_| Ok(1))
                    .await,
                Ok(1)
            );
        }
        assert_eq!(outcomes.known.lock().len(), MOST);
    }
}
