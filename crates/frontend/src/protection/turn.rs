//! Counters of rate limits, and the turn of a request that is counted against them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fanlight_canonical::Peer;
use fanlight_fair::Charge;
use tokio::time::sleep;

/// The key of a counter. Dimensions that the limit does not count separately are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) peer: Option<Peer>,
    pub(super) endpoint: Option<Box<str>>,
    pub(super) server: Option<Box<str>>,
    pub(super) tool: Option<Box<str>>,
}

/// A waiting request's turn. Dropping it before the turn comes refunds the charges.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    wait: Duration,
    charges: Vec<Charge<Key>>,
}

/// The numbers of requests that a limit applied to.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) passed: AtomicU64,
    pub(super) waited: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl Key {
    /// A text that is equal in every process, and different for every other key and rule.
    pub(super) fn to_bytes(&self, rule: &str) -> Vec<u8> {
        let peer = self.peer.as_ref().map(Peer::to_bytes);
        let text = |text: &Option<Box<str>>| text.as_ref().map(|text| text.as_bytes().to_vec());
        let parts = [
            Some(rule.as_bytes().to_vec()),
            peer,
            text(&self.endpoint),
            text(&self.server),
            text(&self.tool),
        ];
        let mut bytes = Vec::new();
        for part in parts {
            // An absent part has a length that no text can have.
            let length = part.as_ref().map_or(u64::MAX, |part| part.len() as u64);
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend(part.into_iter().flatten());
        }
        bytes
    }
}

impl Counts {
    /// Counts a request by its waiting time; `None` for a refused one.
    pub(super) fn add(&self, wait: Option<Duration>) {
        let count = match wait {
            Some(wait) if wait.is_zero() => &self.passed,
            Some(_) => &self.waited,
            None => &self.refused,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

impl Turn {
    /// Adds a charge and its waiting time.
    pub(super) fn charged(&mut self, charge: Charge<Key>, wait: Duration) {
        self.charges.push(charge);
        self.wait(wait);
    }

    /// Delays the turn by at least `wait`.
    pub(super) fn wait(&mut self, wait: Duration) {
        self.wait = self.wait.max(wait);
    }

    /// The turn; `None` if it has come already, which makes the charges final.
    pub(super) fn into_waiting(mut self) -> Option<Self> {
        if self.wait.is_zero() {
            self.charges.clear();
            return None;
        }
        Some(self)
    }

    /// Waits until the turn comes.
    pub(crate) async fn come(self) {
        sleep(self.wait).await;
        self.pass();
    }

    /// Gives up waiting; the charges become final.
    pub(crate) fn pass(mut self) {
        self.charges.clear();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.charges.drain(..).for_each(Charge::refund);
    }
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::identity::Principal;

    use super::*;

    #[test]
    fn bytes_of_keys_are_those_of_one_key_alone() {
        let named = |text: &str| Some(Box::from(text));
        let ann = Some(Peer::Principal(Principal::new("keys", "ann")));
        let keys = [
            Key::default(),
            Key {
                endpoint: named("ab"),
                ..Key::default()
            },
            Key {
                server: named("ab"),
                ..Key::default()
            },
            Key {
                server: named("a"),
                tool: named("b"),
                ..Key::default()
            },
            Key {
                server: named(""),
                tool: named("ab"),
                ..Key::default()
            },
            Key {
                peer: ann.clone(),
                ..Key::default()
            },
            Key {
                peer: Some(Peer::User(7)),
                ..Key::default()
            },
            Key {
                peer: Some(Peer::Local),
                ..Key::default()
            },
        ];
        let all: std::collections::HashSet<_> = keys
            .iter()
            .flat_map(|key| ["one rule", "another"].map(|rule| key.to_bytes(rule)))
            .collect();
        assert_eq!(all.len(), 2 * keys.len());
        assert_eq!(
            Key {
                peer: ann.clone(),
                ..Key::default()
            }
            .to_bytes("r"),
            Key {
                peer: ann,
                ..Key::default()
            }
            .to_bytes("r")
        );
    }
}
