//! The store in which replicas find what they need to take a session over.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use fanlight_canonical::ProcessRun;
use tokio::sync::watch;

/// The future of what the store is asked for. It ends soon, whatever becomes of the store.
pub type Recorded<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The store of records that replicas share. One run keeps each session; only its record can be written, by it alone.
pub trait SessionRecords: Send + Sync + fmt::Debug {
    /// Writes the record of a session that this run keeps, unless another has taken it over; whether it is written.
    fn write<'a>(&'a self, name: &'a str, record: &'a str) -> Recorded<'a, bool>;

    /// Has this run keep a session that `run` kept, once that has ended, which is waited for a little. One that is unreachable
    /// counts as ended: should it live, its mark changes.
    fn claim<'a>(
        &'a self,
        name: &'a str,
        run: ProcessRun,
        is_unreachable: bool,
    ) -> Recorded<'a, Claimed>;

    /// Whether this run still keeps a session; `None` if the store does not say.
    fn is_kept<'a>(&'a self, name: &'a str) -> Recorded<'a, Option<bool>>;

    /// Lets any run claim these sessions of this one.
    fn release(&self, sessions: Vec<Released>) -> Recorded<'_, ()>;

    /// A session of this run goes on. Must not block.
    fn prolong(&self, name: &str);

    /// How long a record is kept after it was written or prolonged.
    fn lifetime(&self) -> Duration;

    /// The session has ended; tells whether this run has kept it until then, and nothing if that cannot be found out. Must not
    /// block; a record that cannot be removed expires.
    fn forget(&self, name: &str) -> watch::Receiver<Option<bool>>;

    /// Changes when others may have taken sessions over from this run, or the store may have lost records; `None` while either
    /// can happen.
    fn mark(&self) -> Option<Mark>;
}

/// A session that any run may claim.
#[derive(Clone, Debug)]
pub struct Released {
    /// Its name.
    pub name: Box<str>,
    /// Its record, which is written if the store may have none.
    pub record: Option<String>,
}

/// The epoch of this run, and the number of its connection to the store.
pub type Mark = (u64, u64);

/// A session that this run has claimed. Unless it is kept, others may claim it: the request that it was claimed for may have ended.
pub struct Claim(Option<Box<dyn FnOnce() + Send>>);

impl Claim {
    /// One that is given up so, which must not block.
    pub fn new(give_up: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(give_up)))
    }

    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(give_up) = self.0.take() {
            give_up();
        }
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Claim")
    }
}

/// Who keeps a session after an attempt to claim it.
#[derive(Debug)]
pub enum Claimed {
    /// This run, by this record.
    Ours(String, Claim),
    /// Another run.
    By(ProcessRun),
    /// Nobody: it is not on record.
    Nobody,
    /// The store is away.
    NotKnown,
}
