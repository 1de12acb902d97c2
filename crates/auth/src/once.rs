//! What is good once, in several processes: whichever of them gets it first.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

/// The processes cannot be asked: whether something was used is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("what all processes have in common cannot be reached")]
pub struct NotKnown;

/// Remembers in all processes what was used.
pub trait UsedOnce: fmt::Debug + Send + Sync {
    /// Marks something as used for this time; whether it was not used before. It takes a bounded time, whatever happens.
    fn use_once(
        &self,
        what: &[u8],
        time: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<bool, NotKnown>> + Send + '_>>;
}
