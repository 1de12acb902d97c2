//! Ended sign-ins at identity providers. A browser's cookie for one is valid for ten minutes, and
//! could otherwise make Fanlight ask the identity provider repeatedly.

use std::collections::HashMap;

use aws_lc_rs::digest::{SHA256, digest};
use fanlight_config::settings::Secret;
use parking_lot::Mutex;

/// The limit of remembered sign-ins. There is no option, since each takes some hundred bytes.
/// Beyond the limit, the one that expires first is forgotten; only its own browser could bring it
/// again.
const MOST: usize = 10_000;

/// The expiry of each ended sign-in, in seconds since 1970, by a digest of its `state`.
#[derive(Default)]
pub(super) struct Spent(Mutex<HashMap<Vec<u8>, u64>>);

impl Spent {
    /// Ends the sign-in with this `state`, which expires at `expires`. Returns false if it had
    /// already ended.
    pub(super) fn spend(&self, state: &Secret, expires: u64, now: u64) -> bool {
        let place = digest(&SHA256, state.expose().as_bytes()).as_ref().to_vec();
        let mut all = self.0.lock();
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
        assert_eq!(spent.0.lock().len(), MOST);
        // All expired ones are removed together.
        assert!(ends(u64::MAX, u64::MAX - 1));
        assert_eq!(spent.0.lock().len(), 1);
    }
}
