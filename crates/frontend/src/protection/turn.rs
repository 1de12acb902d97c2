//! What limits count, and the turn of a request that has taken from them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fanlight_canonical::Peer;
use fanlight_fair::Charge;
use tokio::time::sleep;

/// What is counted: the members that the limit does not count apart are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) peer: Option<Peer>,
    pub(super) endpoint: Option<Box<str>>,
    pub(super) server: Option<Box<str>>,
    pub(super) tool: Option<Box<str>>,
}

/// The turn of a request that waits for it. What it has taken is given back if it is dropped before its turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    wait: Duration,
    charges: Vec<Charge<Key>>,
}

/// Requests that a limit was about.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) passed: AtomicU64,
    pub(super) waited: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl Key {
    /// The same in every process, and other bytes for every other key and rule.
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
            // An absent part is as long as none can be.
            let length = part.as_ref().map_or(u64::MAX, |part| {
                u64::try_from(part.len()).unwrap_or(u64::MAX)
            });
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend(part.into_iter().flatten());
        }
        bytes
    }
}

impl Counts {
    /// Counts a request that has so long until its turn, or was refused.
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
    /// Adds what was charged.
    pub(super) fn charged(&mut self, charge: Charge<Key>, wait: Duration) {
        self.charges.push(charge);
        self.wait(wait);
    }

    /// Has it come after `wait` at the earliest.
    pub(super) fn wait(&mut self, wait: Duration) {
        self.wait = self.wait.max(wait);
    }

    /// Itself, unless it has come: then what was charged stays used.
    pub(super) fn unless_now(mut self) -> Option<Self> {
        if self.wait.is_zero() {
            self.charges.clear();
            return None;
        }
        Some(self)
    }

    /// Waits until it has come.
    pub(crate) async fn come(self) {
        sleep(self.wait).await;
        self.pass();
    }

    /// Does without it: what was charged stays used.
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
    use fanlight_identity::Principal;

    use super::*;

    #[test]
    fn bytes_of_keys_are_those_of_one_key_alone() {
        let named = |text: &str| Some(Box::from(text));
        let ann = Some(Peer::Principal(Principal::named("keys", "ann")));
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
