//! Tasks: clients and servers with different dialects, or without tasks.

mod awaited;
mod collector;
mod extension_client;
mod limits;
mod notifications;
mod requested_client;
mod servers;
mod stdio;
mod verbatim;

use fanlight_backend::Backend;
use fanlight_canonical::{Call, CallContext, Caller, Principal, TaskDialect};

use crate::support::{MessageReceiver, call, json, listening, send, settings, start};
use servers::Tasks;

/// A connection to this server with a call timeout that is much shorter than the tasks.
fn hurried(tasks: &Tasks) -> std::sync::Arc<Backend> {
    let mut settings = settings(tasks.server.transport());
    settings.timeouts.call = std::time::Duration::from_secs(1);
    start(settings)
}

/// A legacy client with tasks.
fn requested(key: u64) -> impl Fn(&mut CallContext) {
    move |context| {
        crate::support::of_session(key, r#"{"elicitation":{},"roots":{}}"#)(context);
        context.tasks = Some(TaskDialect::Requested);
    }
}

/// A modern client with the tasks extension.
fn extension(capabilities: &str) -> impl Fn(&mut CallContext) + use<> {
    let capabilities = json(capabilities);
    move |context| {
        context.caller = Caller::request_of(Principal::anonymous());
        context.capabilities = capabilities.clone();
        context.tasks = Some(TaskDialect::Extension);
    }
}

/// A legacy client that knows of no tasks.
fn plain(key: u64) -> impl FnOnce(&mut CallContext) {
    crate::support::of_session(key, r#"{"elicitation":{},"roots":{}}"#)
}

fn by(
    client: impl FnOnce(&mut CallContext),
    method: &str,
    params: &str,
) -> (Call, MessageReceiver) {
    listening(call(method, params), client)
}

/// The text of the result or error that a client gets.
async fn get(
    backend: &Backend,
    client: impl FnOnce(&mut CallContext),
    method: &str,
    params: &str,
) -> String {
    let (call, _inbox) = by(client, method, params);
    send(backend, call).await.unwrap()
}

fn code(error: &str) -> i64 {
    json(error)
        .get("code")
        .unwrap_or_else(|| panic!("no error: {error}"))
        .as_i64()
        .unwrap()
}
