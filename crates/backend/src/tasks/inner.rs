//! The interface to the client that task translation decorates.

use fanlight_canonical::{BackendClient, Call, CallContext, Pending, TaskDialect};
use fanlight_protocol::Response;

use crate::request::deadline::CallProgress;
use crate::settings::Timeouts;

/// The client that [`super::TaskTranslation`] decorates.
///
/// A translated call has one deadline, but may take several requests. The inner client owns the time:
/// [`BackendClient::request`] is one request within the time of a call, [`InnerClient::limit`] runs
/// any work within the time of a call, and the exchanges are for use within such work.
pub(crate) trait InnerClient: BackendClient {
    fn timeouts(&self) -> &Timeouts;

    /// The server's dialect of tasks, if it has tasks. The outer `None` means that there is no
    /// connection at the moment.
    fn task_dialect(&self, client: &CallContext) -> Option<Option<TaskDialect>>;

    /// The same, connecting first if needed.
    fn connect<'a>(&'a self, client: &'a CallContext) -> Pending<'a, Option<TaskDialect>>;

    /// Whether a server of 2025-11-25 requires that a tool is called as a task, by its tool list;
    /// `reread` reads the list anew.
    fn requires_task<'a>(&'a self, client: &'a CallContext, tool: &'a str, reread: bool) -> Pending<'a, bool>;

    /// Runs `work` within the time of one call, and ends it with the backend.
    fn limit<'a>(&'a self, progress: &'a CallProgress, work: Pending<'a, Response>) -> Pending<'a, Response>;

    /// Sends one request, with a concurrency permit and without a deadline.
    fn exchange<'a>(&'a self, call: &'a Call, progress: &'a CallProgress) -> Pending<'a, Response>;

    /// The same without a concurrency permit, for requests that the server holds open. The caller
    /// bounds their number.
    fn exchange_unlimited<'a>(&'a self, call: &'a Call, progress: &'a CallProgress) -> Pending<'a, Response>;
}
