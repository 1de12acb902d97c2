//! Which tools a client that asks for tasks itself may call as tasks, where the server decides that in the other dialect.
//!
//! A server with the tasks extension does not say of a tool that it takes tasks, and a client of the other dialect must not
//! ask for one then. The server's edge makes a task of whatever the server answers, so each of its tools takes tasks.

use fanlight_canonical::{CallContext, TaskDialect};
use fanlight_protocol::capability::has_tasks_extension;
use fanlight_protocol::{Response, task_support};
use futures_util::FutureExt as _;

use crate::topology::{BackendId, Member, View};

/// The backends whose tools the client may call as tasks although they do not say so.
pub(crate) fn backends_that_take_tasks(view: &View, client: &CallContext) -> Vec<BackendId> {
    let backends = view
        .backends()
        .filter(|backend| takes_tasks(backend, client));
    backends.map(|backend| backend.id).collect()
}

/// The only backend's list of tools for a client.
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
    let Some(Ok(description)) = backend.client.describe_to(client).now_or_never() else {
        return false;
    };
    // What a server declares in a session holds for that session, and the extension is not declared there.
    !description.is_of_session()
        && description
            .capabilities()
            .is_some_and(|all| has_tasks_extension(&all))
}
