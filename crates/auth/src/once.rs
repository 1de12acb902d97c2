//! Values that can be used once across several processes: the first one to use it wins.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;

/// The other processes cannot be asked, so it is unknown whether a value was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the data that all replicas share cannot be reached")]
pub struct NotKnown;

/// Remembers used values for all processes.
///
/// A trait because its implementation depends on this crate.
pub trait UsedOnce: fmt::Debug + Send + Sync {
    /// Marks a value as used for this time. Returns whether it was unused. This takes a limited
    /// time in any case.
    fn use_once(&self, what: &[u8], time: Duration) -> BoxFuture<'_, Result<bool, NotKnown>>;
}
