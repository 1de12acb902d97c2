//! Values that may be used once across all replicas.
use std::time::Duration;

use fanlight_auth::{NotKnown, UsedOnce};
use futures_util::future::BoxFuture;

use super::{CLOCKS, Replicas, digest, millis};

script! {
    /// Marks a key for some milliseconds. Returns 1 if it was not marked before.
    MARK = "if redis.call('SET', KEYS[1], '', 'NX', 'PX', ARGV[1]) then return 1 end return 0"
}

impl UsedOnce for Replicas {
    fn use_once(&self, what: &[u8], time: Duration) -> BoxFuture<'_, Result<bool, NotKnown>> {
        let name = digest(&[what]);
        Box::pin(async move {
            // Each name has its own tag, so any server of a cluster may have it.
            let mut script = MARK.key(self.shared.key(&name, "used"));
            // A replica with a slow clock accepts the value for that much longer.
            script.arg(millis(time + CLOCKS));
            self.shared.run::<u8>(&script).await.map(|marked| marked == 1).map_err(|error| {
                tracing::warn!(%error, "cannot tell whether a proof of possession was used before");
                NotKnown
            })
        })
    }
}
