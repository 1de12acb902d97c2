//! The shared store of session records, from which replicas take sessions over.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use fanlight_canonical::ProcessRun;
use tokio::sync::watch;

/// The store of session records that replicas share. One run keeps each session, and only that run
/// can write its record. Each operation ends soon, whatever happens to the store.
///
/// A trait because its implementation depends on this crate.
#[async_trait]
pub trait SessionRecords: Send + Sync + fmt::Debug {
    /// Writes the record of a session that this run keeps; returns whether it is written. It is not
    /// if another run has taken the session over.
    async fn write(&self, name: &str, record: &str) -> bool;

    /// Claims a session from `run` once that run has ended; waits for that a little. An unreachable
    /// run counts as ended; if it is still alive, its mark changes.
    async fn claim(&self, name: &str, run: ProcessRun, is_unreachable: bool) -> Claimed;

    /// Whether this run still keeps a session; `None` if the store does not answer.
    async fn is_kept(&self, name: &str) -> Option<bool>;

    /// Lets any run claim these sessions of this run.
    async fn release(&self, sessions: Vec<Released>);

    /// Extends the record of a session of this run. Must not block.
    fn prolong(&self, name: &str);

    /// How long the store keeps a record after a write or an extension.
    fn lifetime(&self) -> Duration;

    /// Removes the record of an ended session. The result tells whether this run kept the session
    /// until then, or nothing if that is unknown. Must not block; a record that cannot be removed
    /// expires.
    fn forget(&self, name: &str) -> watch::Receiver<Option<bool>>;

    /// A mark that changes when other runs may have taken over sessions of this run, or the store
    /// may have lost records. `None` while either can happen.
    fn mark(&self) -> Option<Mark>;
}

/// A session that any run may claim.
#[derive(Clone, Debug)]
pub struct Released {
    /// The name of the session in the store.
    pub name: Box<str>,
    /// The record, which is written in case the store has none.
    pub record: Option<String>,
}

/// The epoch of this run, and the number of its connection to the store.
pub type Mark = (u64, u64);

/// A session that this run has claimed. Unless `keep` is called, other runs may claim it again: the
/// request behind the claim may have ended.
pub struct Claim(Option<Box<dyn FnOnce() + Send>>);

impl Claim {
    /// A claim that calls `give_up` when it is dropped. `give_up` must not block.
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

fanlight_protocol::opaque!(Claim);

/// The session's keeper after an attempted claim.
#[derive(Debug)]
pub enum Claimed {
    /// This run keeps the session, with this record.
    Ours(String, Claim),
    /// Another run.
    By(ProcessRun),
    /// Nobody: the store has no record.
    Nobody,
    /// The store is unavailable.
    NotKnown,
}
