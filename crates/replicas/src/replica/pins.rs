//! Definitions that operators have approved, in common with all replicas.
//!
//! The file of pins belongs to the configuration, which a replica often cannot write. So further
//! approvals are stored in Valkey, for exactly this file. They do not apply to another file.

use std::time::Duration;

use fanlight_protocol::seal::{Keys, Seal};
use tracing::warn;

use super::{digest, millis};
use crate::Shared;

const TAG: &str = "pins";
/// How long approvals are stored for an unused file.
const KEPT: Duration = Duration::from_secs(365 * 86_400);
/// The purpose of the seal on approvals.
const PURPOSE: &[u8] = b"pins in common: ";

script! {
    /// Reads approvals and extends their lifetime. `ARGV`: the lifetime.
    READ = "redis.call('PEXPIRE', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])"
}

script! {
    /// Replaces approvals if they are the expected ones. `ARGV`: the digest of the previous approvals,
    /// or nothing; the new approvals, preceded by their digest; their lifetime; the channel for
    /// announcing them. Returns 1 if they were replaced, 0 if somebody else was faster.
    APPROVE = r"
local held = redis.call('GET', KEYS[1])
if (held and string.match(held, '^%x+') or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('PUBLISH', ARGV[4], '')
return 1
"
}

/// Approvals beyond the files of pins.
pub struct CommonPins {
    shared: Shared,
    seal: Seal,
}

impl CommonPins {
    pub(super) fn new(shared: Shared, keys: &Keys) -> Option<Self> {
        Some(Self {
            shared,
            seal: Seal::new(keys, PURPOSE).ok()?,
        })
    }

    /// The text that replaces this file, if there is one; `None` if that is unknown.
    pub async fn read(&self, file: &str) -> Option<Option<String>> {
        let name = digest(&[file.as_bytes()]);
        let held: Option<String> = self
            .shared
            .run(READ.key(self.shared.key(TAG, &name)).arg(millis(KEPT)))
            .await
            .ok()?;
        let Some(held) = held else { return Some(None) };
        let sealed = held.split_once(' ').map_or("", |(_, sealed)| sealed);
        let text = self
            .seal
            .open_for(sealed, name.as_bytes())
            .and_then(|text| String::from_utf8(text).ok());
        if text.is_none() {
            warn!(
                "approvals beyond the file of `pins` are ignored: no key of `keys` decrypts them"
            );
        }
        Some(text)
    }

    /// Replaces the text for this file, if it is still `before`. Returns whether it did.
    pub async fn approve(&self, file: &str, before: &str, text: &str) -> bool {
        let name = digest(&[file.as_bytes()]);
        let Some(sealed) = self.seal.seal_for(text.as_bytes(), name.as_bytes()) else {
            return false;
        };
        let expected = if before == file {
            String::new()
        } else {
            digest(&[before.as_bytes()])
        };
        let mut script = APPROVE.key(self.shared.key(TAG, &name));
        script
            .arg(expected)
            .arg(format!("{} {sealed}", digest(&[text.as_bytes()])));
        script.arg(millis(KEPT)).arg(self.shared.channel());
        let put = self.shared.run::<u8>(&script).await;
        put.inspect_err(
            |error| warn!(%error, "an approved definition was not sent to the other replicas"),
        )
        .is_ok_and(|put| put == 1)
    }
}
