//! Tools that a client of the 2025-11-25 dialect may call as tasks although their server has the
//! extension.
//!
//! A server with the tasks extension does not say which tools take tasks. Without such a statement,
//! a client that asks for tasks itself must not do so. Fanlight makes a task of any answer of such
//! a server, so all its tools take tasks.

use fanlight_canonical::{CallContext, TaskDialect};
use fanlight_protocol::capability::has_tasks_extension;
use fanlight_protocol::{Response, task_support};
use futures_util::FutureExt as _;

use crate::topology::{BackendId, Member, View};

/// The servers whose tools the client may call as tasks although they do not say so.
pub(crate) fn backends_that_take_tasks(view: &View, client: &CallContext) -> Vec<BackendId> {
    let backends = view
        .backends()
        .filter(|backend| takes_tasks(backend, client));
    backends.map(|backend| backend.id).collect()
}

/// The only server's list of tools for a client.
pub(crate) fn list_for(only: &Member, client: &CallContext, response: Response) -> Response {
    if !takes_tasks(only, client) {
        return response;
    }
    match response
        .result()
        .and_then(|list| task_support::optional_for_list(&list))
    {
        Some(list) => response.with_body(&list),
        None => response,
    }
}

fn takes_tasks(backend: &Member, client: &CallContext) -> bool {
    if client.tasks != Some(TaskDialect::Requested) {
        return false;
    }
    // Lists do not wait for a disconnected server, which could take no call either.
    let Some(Ok(description)) = backend
        .serving(&client.caller)
        .describe(client)
        .now_or_never()
    else {
        return false;
    };
    // A description of a session comes from a session in which the extension is not declared.
    !description.is_of_session()
        && description
            .capabilities()
            .is_some_and(|all| has_tasks_extension(&all))
}
