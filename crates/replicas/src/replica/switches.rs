//! Servers that operators switched off or on, in common with all replicas.
//!
//! Each switch is sealed with a number that only grows. So whoever can write to Valkey can neither
//! make one nor bring back an earlier one at a replica that knows a later one.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Shared;
use fanlight_protocol::epoch;
use fanlight_protocol::seal::{Keys, Seal};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::warn;

use super::millis;

const TAG: &str = "switches";
/// The purpose of the seal on switches.
const PURPOSE: &[u8] = b"switches in common: ";
/// The interval for repeating announcements that failed.
const AGAIN: Duration = Duration::from_secs(1);

script! {
    READ = "return redis.call('HGETALL', KEYS[1])"
}

script! {
    /// Stores a switch. `ARGV`: server, the sealed switch, the channel for announcing it.
    TELL = "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) redis.call('PUBLISH', ARGV[3], '') return 1"
}

/// The servers that operators switched at any replica.
pub struct Switches {
    shared: Shared,
    seal: Seal,
    changes: watch::Receiver<u64>,
    /// The latest switches, by server.
    known: BTreeMap<String, Switch>,
}

/// The latest switch of a server.
#[derive(Clone, Copy)]
struct Switch {
    number: u64,
    is_on: bool,
    /// Whether it was made here.
    is_own: bool,
    /// Whether Valkey has it.
    is_told: bool,
}

impl Switch {
    /// Switches at the same moment differ by their effect; that which stops the server wins.
    fn rank(self) -> (u64, bool) {
        (self.number, !self.is_on)
    }
}

impl Switches {
    pub(super) fn new(shared: Shared, keys: &Keys) -> Option<Self> {
        let mut changes = shared.changes();
        // Read the existing switches first.
        changes.mark_changed();
        Some(Self {
            changes,
            shared,
            seal: Seal::new(keys, PURPOSE).ok()?,
            known: BTreeMap::new(),
        })
    }

    /// Waits until something may have changed, or failed announcements can be repeated. Without
    /// other replicas it waits forever.
    pub async fn changed(switches: &mut Option<Self>) {
        let Some(switches) = switches else {
            return std::future::pending().await;
        };
        let is_told = switches.known.values().all(|switch| switch.is_told);
        let changed = switches.changes.changed();
        let changed = if is_told {
            changed.await
        } else {
            timeout(AGAIN, changed).await.unwrap_or(Ok(()))
        };
        if changed.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Announces a switched server to the others, now or when Valkey is back.
    pub async fn tell(&mut self, server: &str, is_on: bool) {
        let after = self.known.get(server).map_or(0, |known| known.number + 1);
        let switch = Switch {
            number: millis(epoch::now()).max(after),
            is_on,
            is_own: true,
            is_told: false,
        };
        self.known.insert(server.to_owned(), switch);
        if let Err(error) = self.send(server, switch).await {
            warn!(server, %error, "the other replicas learn later that this server was switched");
        }
    }

    /// Stores a switch in Valkey.
    async fn send(&mut self, server: &str, switch: Switch) -> Result<(), String> {
        let key = self.shared.key(TAG, "servers");
        let word = if switch.is_on { "on" } else { "off" };
        let text = format!("{} {word}", switch.number);
        let sealed = self
            .seal
            .seal_for(text.as_bytes(), format!("{key} {server}").as_bytes())
            .ok_or("it cannot be sealed")?;
        let mut script = TELL.key(key);
        script.arg(server).arg(sealed).arg(self.shared.channel());
        let told = self.shared.run::<u8>(&script).await;
        told.map_err(|error| error.to_string())?;
        if let Some(known) = self.known.get_mut(server) {
            known.is_told = true;
        }
        Ok(())
    }

    /// The switch of a server as Valkey has it, if a replica has sealed it.
    fn open_switch(&self, key: &str, server: &str, sealed: &str) -> Option<Switch> {
        let owner = format!("{key} {server}");
        let text = self.seal.open_for(sealed, owner.as_bytes())?;
        let (number, word) = std::str::from_utf8(&text).ok()?.split_once(' ')?;
        Some(Switch {
            number: number.parse().ok()?,
            is_on: word == "on",
            is_own: false,
            is_told: true,
        })
    }

    /// The servers that were switched off at any replica, and those that were switched on at this
    /// one; `None` if Valkey cannot be read. Valkey gets switches that it lacks.
    pub async fn read(&mut self) -> Option<BTreeMap<String, bool>> {
        let key = self.shared.key(TAG, "servers");
        let stored: BTreeMap<String, String> =
            self.shared.run(&READ.key(key.as_str())).await.ok()?;
        for (server, sealed) in &stored {
            let Some(switch) = self.open_switch(&key, server, sealed) else {
                continue;
            };
            let is_newer = |known: &Switch| switch.rank() > known.rank();
            if self.known.get(server).is_none_or(is_newer) {
                self.known.insert(server.clone(), switch);
            }
        }
        for (server, switch) in self.known.clone() {
            let held = stored.get(&server);
            let held = held.and_then(|sealed| self.open_switch(&key, &server, sealed));
            if held.is_none_or(|held| held.rank() < switch.rank()) {
                let told = self.send(&server, switch).await;
                if let Some(known) = self.known.get_mut(&server) {
                    known.is_told = told.is_ok();
                }
            }
        }
        let known = self.known.iter();
        let counts = known.filter(|(_, switch)| switch.is_own || !switch.is_on);
        Some(
            counts
                .map(|(server, switch)| (server.clone(), switch.is_on))
                .collect(),
        )
    }
}
