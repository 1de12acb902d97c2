//! Which server has which task, and which call has made it, as several processes know it together.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::PolicySubject;
use futures_util::future::BoxFuture;

/// What several processes know of a task.
#[derive(Clone, Debug)]
pub struct CommonTask {
    /// The name of the server that has it.
    pub server: Box<str>,
    /// The call that has made it, as a policy decided about it, without the definition of its tool; `None` if there was no
    /// policy, or that is not known.
    pub made_by: Option<Arc<PolicySubject>>,
    /// How long it is known.
    pub kept_for: Duration,
}

/// The owners of tasks of clients without a session, or with one that several processes can continue, known to them. Everything
/// takes a bounded time, whatever happens: an owner that is not known is asked for. What is found was learnt of this very task: what
/// anybody else has put in its place is not known.
pub trait CommonTaskOwners: fmt::Debug + Send + Sync {
    /// What is known of this task of this client.
    fn find(&self, task: Vec<u8>) -> BoxFuture<'_, Option<CommonTask>>;

    /// Remembers this of a task. What is known already stays, unless the task was `created` by this server.
    fn learn(&self, task: Vec<u8>, known: CommonTask, created: bool) -> BoxFuture<'_, ()>;

    /// Forgets this task.
    fn forget(&self, task: Vec<u8>) -> BoxFuture<'_, ()>;
}
