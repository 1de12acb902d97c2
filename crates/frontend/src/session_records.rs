//! The store in which replicas find what they need to take a session over.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use fanlight_canonical::ProcessRun;

/// The future of what the store is asked for. It ends soon, whatever becomes of the store.
pub type Recorded<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The store of records that replicas share. One run keeps each session; only its record can be written, by it alone.
pub trait SessionRecords: Send + Sync + fmt::Debug {
    /// Writes the record of a session that this run keeps, unless another has taken it over.
    fn write<'a>(&'a self, name: &'a str, record: &'a str) -> Recorded<'a, ()>;

    /// Has this run keep a session that `run` kept, once that has ended, which is waited for a little. One that is unreachable
    /// counts as ended: it is told so by another epoch.
    fn claim<'a>(&'a self, name: &'a str, run: ProcessRun, is_unreachable: bool) -> Recorded<'a, Claimed>;

    /// Whether this run still keeps a session, as far as the store can say.
    fn is_kept<'a>(&'a self, name: &'a str) -> Recorded<'a, bool>;

    /// Lets any run claim these sessions of this one.
    fn release(&self, names: Vec<Box<str>>) -> Recorded<'_, ()>;

    /// A session of this run goes on. Must not block.
    fn prolong(&self, name: &str);

    /// How long a record is kept after it was written or prolonged.
    fn lifetime(&self) -> Duration;

    /// The session has ended. Must not block; a record that cannot be removed expires.
    fn forget(&self, name: &str);

    /// Changes when other replicas may have taken this run for one that has ended.
    fn epoch(&self) -> Option<u64>;
}

/// Who keeps a session after an attempt to claim it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claimed {
    /// This run, by this record.
    Ours(String),
    /// Another run.
    By(ProcessRun),
    /// Nobody: it is not on record, or the store is away.
    Nobody,
}
