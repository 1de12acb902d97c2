//! Which server has which task, as several processes know it together.

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;

/// The owners of tasks of clients without a session, known to several processes. Everything takes a bounded time, whatever
/// happens: an owner that is not known is asked for.
pub trait CommonTaskOwners: fmt::Debug + Send + Sync {
    /// The name of the server that has this task of this client, if it is known.
    fn find(&self, task: Vec<u8>) -> BoxFuture<'_, Option<String>>;

    /// Remembers the name of the server for this time. One that is known already stays, unless the task was `created` by this
    /// one.
    fn learn(&self, task: Vec<u8>, server: String, kept_for: Duration, created: bool) -> BoxFuture<'_, ()>;

    /// Forgets the server of this task.
    fn forget(&self, task: Vec<u8>) -> BoxFuture<'_, ()>;
}
