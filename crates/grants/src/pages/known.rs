//! Users of browsers that were identified a moment ago. Only this process remembers them, so that
//! they are forgotten when their proof ends: a key is revoked, or an issuer is no longer
//! configured.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use fanlight_canonical::identity::Identity;

/// How long a user need not identify themselves again.
const USER_TIME: Duration = Duration::from_secs(600);
/// The limit of remembered browsers. There is no option, since each takes some hundred bytes.
const MOST: usize = 10_000;
/// The limit of browsers per user.
const MOST_OF_ONE: usize = 16;

/// Users of browsers, by digests of the browsers' cookies.
#[derive(Default)]
pub(super) struct KnownUsers(Mutex<HashMap<Vec<u8>, Known>>);

struct Known {
    /// The secret that only this browser has.
    browser: Vec<u8>,
    identity: Arc<Identity>,
    /// The identity provider where the user signed in.
    provider: Option<String>,
    until: Instant,
}

impl KnownUsers {
    /// Remembers a browser's user. Returns a new secret for the browser's cookie, which nobody else
    /// can know; `None` without random numbers.
    pub(super) fn remember(
        &self,
        browser: &[u8],
        identity: Arc<Identity>,
        provider: Option<String>,
    ) -> Option<String> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).ok()?;
        let secret = URL_SAFE_NO_PAD.encode(secret);
        let mut all = self.lock();
        all.retain(|_, known| known.holds());
        let of_user = all
            .values()
            .filter(|known| known.identity.principal == identity.principal)
            .count();
        if of_user >= MOST_OF_ONE {
            remove_oldest(&mut all, |known| {
                known.identity.principal == identity.principal
            });
        }
        if all.len() >= MOST {
            remove_oldest(&mut all, |_| true);
        }
        let until = Instant::now() + USER_TIME;
        all.insert(
            place_of(&secret),
            Known {
                browser: browser.to_vec(),
                identity,
                provider,
                until,
            },
        );
        Some(secret)
    }

    /// The user of the browser with this secret, and the identity provider where the user signed
    /// in.
    pub(super) fn of(
        &self,
        browser: &[u8],
        secret: &str,
    ) -> Option<(Arc<Identity>, Option<String>)> {
        let all = self.lock();
        let known = all
            .get(&place_of(secret))
            .filter(|known| known.browser == browser && known.holds())?;
        Some((Arc::clone(&known.identity), known.provider.clone()))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn holds(&self) -> bool {
        Instant::now() < self.until && self.identity.validity.holds_at(SystemTime::now())
    }
}

fn place_of(secret: &str) -> Vec<u8> {
    digest(&SHA256, secret.as_bytes()).as_ref().to_vec()
}

fn remove_oldest(all: &mut HashMap<Vec<u8>, Known>, is_meant: impl Fn(&Known) -> bool) {
    let oldest = all
        .iter()
        .filter(|(_, known)| is_meant(known))
        .min_by_key(|(_, known)| known.until);
    if let Some(place) = oldest.map(|(place, _)| place.clone()) {
        all.remove(&place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_known_to_one_browser_until_what_has_shown_it_ends() {
        let known = KnownUsers::default();
        let identity = Arc::new(Identity::anonymous());
        let secret = known
            .remember(b"browser", Arc::clone(&identity), None)
            .unwrap();
        assert!(known.of(b"browser", &secret).is_some());
        assert!(
            known.of(b"another", &secret).is_none() && known.of(b"browser", "secret").is_none()
        );
        identity.validity.revoked.cancel();
        assert!(known.of(b"browser", &secret).is_none());
    }

    #[test]
    fn one_user_takes_no_place_of_others() {
        let known = KnownUsers::default();
        let ann = Identity {
            principal: fanlight_canonical::identity::Principal::named("a", "ann"),
            ..Identity::anonymous()
        };
        let of_ann = known.remember(b"browser", Arc::new(ann), None).unwrap();
        let secrets: Vec<_> = (0..MOST_OF_ONE * 2)
            .map(|_| {
                known
                    .remember(b"browser", Arc::new(Identity::anonymous()), None)
                    .unwrap()
            })
            .collect();
        assert!(known.of(b"browser", &of_ann).is_some());
        assert!(known.of(b"browser", secrets.last().unwrap()).is_some());
        assert!(known.lock().len() == MOST_OF_ONE + 1);
    }
}
