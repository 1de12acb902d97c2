//! The replicas' common knowledge of tasks: which server has a task, and which call created it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::PolicySubject;
use futures_util::future::BoxFuture;

/// The replicas' common knowledge of one task.
#[derive(Clone, Debug)]
pub struct CommonTask {
    /// The name of the server that has the task.
    pub server: Box<str>,
    /// The call that created the task, as a policy decided about it, without the tool's definition.
    /// `None` if there was no policy, or the call is unknown.
    pub made_by: Option<Arc<PolicySubject>>,
    /// How long the entry is kept.
    pub kept_for: Duration,
}

/// The task owners that replicas share, for clients without a session or with a session that any
/// replica can continue.
///
/// Each method takes a limited time; if an owner is not found, Fanlight asks the servers. An entry
/// was learnt for exactly this task, so [`find`](Self::find) ignores anything that somebody else
/// put in its place.
pub trait CommonTaskOwners: fmt::Debug + Send + Sync {
    /// The entry of this client's task.
    fn find(&self, task: Vec<u8>) -> BoxFuture<'_, Option<CommonTask>>;

    /// Stores an entry. An earlier entry stays, unless this server `created` the task.
    fn learn(&self, task: Vec<u8>, known: CommonTask, created: bool) -> BoxFuture<'_, ()>;

    /// Removes the entry of this task.
    fn forget(&self, task: Vec<u8>) -> BoxFuture<'_, ()>;
}
