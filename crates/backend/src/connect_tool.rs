//! The tool `connect`, which represents a server in the tool list of a user who has not signed in.
//! A client that knows only listed tools then has something to call; the answer contains the
//! sign-in link.

use std::sync::Arc;

use fanlight_canonical::{BackendClient, BackendError, Call, CallContext, ServerMessages};
use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};
use fanlight_protocol::result::{ListToolsResult, ResultView as _};
use fanlight_protocol::{Json, Method, Response};

pub(crate) const NAME: &str = "connect";

/// The tool list of a server whose user has not signed in. It is private to that user (2026-07-28
/// server/utilities/caching), as is the list that replaces it.
pub(crate) fn list(server: &str) -> Response {
    let mut tool = ObjectBuilder::new();
    tool.string("name", NAME)
        .string("title", &format!("Connect to {server}"))
        .string(
            "description",
            &format!(
                "Asks the user to sign in to {server:?}. Its tools are listed once the user has."
            ),
        )
        .member(
            "inputSchema",
            &Json::literal(r#"{"type":"object","properties":{}}"#),
        );
    let mut result = ObjectBuilder::new();
    result
        .member("tools", &only(&tool.finish()))
        .integer("ttlMs", 0)
        .string("cacheScope", "private");
    Response::from_result(&result.finish())
}

/// A list of one element.
fn only(element: &Json) -> Json {
    let mut list = ArrayBuilder::default();
    list.push(element);
    list.finish()
}

/// Whether a call is to this tool.
pub(crate) fn is_called(call: &Call) -> bool {
    call.method == Method::CallTool
        && call
            .params
            .as_ref()
            .and_then(|params| params.get("name"))
            .is_some_and(|name| name.is_str(NAME))
}

/// The answer to a call of a user who has already signed in.
pub(crate) fn connected(server: &str) -> Response {
    let mut text = ObjectBuilder::new();
    text.string("type", "text").string(
        "text",
        &format!("Already connected to {server:?}: its tools can be used."),
    );
    let mut result = ObjectBuilder::new();
    result.member("content", &only(&text.finish()));
    Response::from_result(&result.finish())
}

/// Whether this user's server itself lists a tool with this name. Reads at most `pages` pages of
/// its list.
pub(crate) async fn is_listed(
    server: &impl BackendClient,
    context: &CallContext,
    pages: usize,
) -> Result<bool, BackendError> {
    let capabilities = CallContext::list_capabilities();
    let context =
        CallContext::for_lists_of(context.caller.principal(), capabilities, &context.trace);
    let mut params = None;
    for _ in 0..pages {
        let (method, context) = (Method::ListTools, Arc::clone(&context));
        let asked = server
            .request(Call {
                method,
                params,
                context,
                messages: ServerMessages::discard(),
            })
            .await?;
        let Some(page) = asked.view::<ListToolsResult>() else {
            return Ok(false);
        };
        if page.json().get("tools").is_some_and(|tools| has_it(&tools)) {
            return Ok(true);
        }
        let Some(cursor) = page.next_cursor().filter(|cursor| !cursor.is_null()) else {
            return Ok(false);
        };
        let mut next = ObjectBuilder::new();
        next.member("cursor", &cursor);
        params = Some(next.finish());
    }
    Ok(false)
}

fn has_it(tools: &Json) -> bool {
    let mut named = tools.elements().map(|tool| tools.slice(tool).get("name"));
    named.any(|name| name.is_some_and(|name| name.is_str(NAME)))
}
