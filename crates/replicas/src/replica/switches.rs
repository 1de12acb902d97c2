//! Servers that operators switched off or on, in common with all replicas.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use crate::{Script, Shared};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::warn;

use super::Replicas;

const TAG: &str = "switches";
/// The interval for repeating announcements that failed.
const AGAIN: Duration = Duration::from_secs(1);

static READ: LazyLock<Script> =
    LazyLock::new(|| Script::new("return redis.call('HGETALL', KEYS[1])"));

/// Stores a switch. `ARGV`: server; `on`, `off` or nothing for the configured state; the channel
/// for announcing it.
static TELL: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
if ARGV[2] == '' then
  redis.call('HDEL', KEYS[1], ARGV[1])
else
  redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
end
redis.call('PUBLISH', ARGV[3], '')
return 1
",
    )
});

/// The servers that operators switched at any replica.
pub struct Switches {
    shared: Shared,
    changes: watch::Receiver<u64>,
    /// Switches made here while Valkey was away or refused to write, by server; `None` means the
    /// configured state.
    untold: BTreeMap<String, Option<bool>>,
}

impl Switches {
    pub(super) fn new(replicas: &Replicas) -> Self {
        let shared = replicas.shared.clone();
        let mut changes = shared.changes();
        // Read the existing switches first.
        changes.mark_changed();
        Self {
            changes,
            shared,
            untold: BTreeMap::new(),
        }
    }

    /// Waits until something may have changed, or failed announcements can be repeated. Without
    /// other replicas it waits forever.
    pub async fn changed(switches: &mut Option<Self>) {
        let Some(switches) = switches else {
            return std::future::pending().await;
        };
        let is_told = switches.untold.is_empty();
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
    pub async fn tell(&mut self, server: &str, enabled: Option<bool>) {
        let word = enabled.map_or("", |enabled| if enabled { "on" } else { "off" });
        let mut script = TELL.key(self.shared.key(TAG, "servers"));
        script.arg(server).arg(word).arg(self.shared.channel());
        match self.shared.run::<u8>(&script).await {
            Ok(_) => drop(self.untold.remove(server)),
            Err(error) => {
                // The announcement is repeated until it succeeds.
                if self.untold.insert(server.to_owned(), enabled).is_none() {
                    warn!(server, %error, "the other replicas learn later that this server was switched");
                }
            }
        }
    }

    /// The switched servers, after repeating failed announcements; `None` if Valkey cannot be read.
    pub async fn read(&mut self) -> Option<BTreeMap<String, bool>> {
        for (server, enabled) in self.untold.clone() {
            self.tell(&server, enabled).await;
        }
        let script = READ.key(self.shared.key(TAG, "servers"));
        let all: BTreeMap<String, String> = self
            .shared
            .run(&script)
            .await
            .ok()
            .filter(|_| self.untold.is_empty())?;
        Some(
            all.into_iter()
                .map(|(server, word)| (server, word == "on"))
                .collect(),
        )
    }
}
