//! The sign-ins at identity providers that have ended. What a browser brings to end one is good for ten minutes, and would have
//! the identity provider asked again each time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use fanlight_settings::Secret;

/// Most that are remembered. No option: each takes some hundred bytes. Beyond that the one that ends first is forgotten, which
/// its own browser alone could bring again.
const MOST: usize = 10_000;

/// When each expires that was ended, in seconds since 1970, by a digest of its `state`.
#[derive(Default)]
pub(super) struct Spent(Mutex<HashMap<Vec<u8>, u64>>);

impl Spent {
    /// Ends the sign-in with this `state`, which expires then; whether it had not ended before.
    pub(super) fn spend(&self, state: &Secret, expires: u64, now: u64) -> bool {
        let place = digest(&SHA256, state.expose().as_bytes()).as_ref().to_vec();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.contains_key(&place) {
            return false;
        }
        if all.len() >= MOST {
            all.retain(|_, end| *end > now);
        }
        if all.len() >= MOST
            && let Some(first) = all
                .iter()
                .min_by_key(|(_, end)| **end)
                .map(|(first, _)| first.clone())
        {
            all.remove(&first);
        }
        all.insert(place, expires).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sign_in_ends_once_and_no_more_than_so_many_are_remembered() {
        let spent = Spent::default();
        let ends = |number: u64, now| spent.spend(&Secret::new(number.to_string()), number, now);
        assert!((100..).take(MOST + 5).all(|number| ends(number, 0)));
        assert!(!ends(110, 0));
        assert_eq!(spent.0.lock().unwrap().len(), MOST);
        // Those that have expired leave together.
        assert!(ends(u64::MAX, u64::MAX - 1));
        assert_eq!(spent.0.lock().unwrap().len(), 1);
    }
}
