//! Definitions of servers that operators have approved, at all replicas.
//!
//! The file of pins is a file of the configuration, which a replica often cannot write. What is approved on top of it is kept in
//! Valkey, for this very file: with another file, that one alone counts.

use std::sync::LazyLock;
use std::time::Duration;

use fanlight_protocol::seal::{Keys, Seal};
use fanlight_shared::{Script, Shared};
use tracing::warn;

use super::{digest, millis};

const TAG: &str = "pins";
/// How long approvals are kept for a file that nobody uses any more.
const KEPT: Duration = Duration::from_secs(365 * 86_400);
/// What seals the approved file.
const PURPOSE: &[u8] = b"pins in common: ";

/// `ARGV`: how long what is read is kept.
static READ: LazyLock<Script> = LazyLock::new(|| {
    Script::new("redis.call('PEXPIRE', KEYS[1], ARGV[1]) return redis.call('GET', KEYS[1])")
});

/// `ARGV`: the digest of what was approved before, or nothing; what is approved now, with its digest in front; how long that is
/// kept; and where to publish it. 1 if it was put, 0 if somebody else was faster.
static APPROVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local held = redis.call('GET', KEYS[1])
if (held and string.match(held, '^%x+') or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
redis.call('PUBLISH', ARGV[4], '')
return 1
",
    )
});

/// What was approved on top of files of pins.
pub(crate) struct CommonPins {
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

    /// The text that stands in place of this file, if there is one; `None` if that is not known.
    pub(crate) async fn read(&self, file: &str) -> Option<Option<String>> {
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

    /// Has this text stand in place of the file, instead of the one `before`; whether it does.
    pub(crate) async fn approve(&self, file: &str, before: &str, text: &str) -> bool {
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
