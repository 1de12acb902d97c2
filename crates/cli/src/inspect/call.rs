//! `fanlight call`: one tool call through the gateway.

use std::io::IsTerminal as _;

use fanlight_canonical::{Detail, ServerMessages};
use fanlight_gateway::Gateway;
use fanlight_protocol::json::{MAX_NESTING, ObjectBuilder};
use fanlight_protocol::result::CallToolResult;
use fanlight_protocol::{Json, Response};

use super::list::incomplete;
use super::{arguments, no_such_tool, tool_call, tools};
use crate::cli::CallArgs;
use crate::endpoints::find_named;
use crate::failure::Failure;
use crate::observe::Admin;
use crate::out::{self, say};
use crate::show;

/// Calls a tool of this gateway and prints the result: indented on a terminal, otherwise with the server's bytes. Fails if it is a
/// JSON-RPC error or a result with `isError`.
pub async fn call(gateway: &Gateway, args: &CallArgs) -> Result<(), Failure> {
    let arguments = arguments(&args.arguments)?;
    let endpoint = find_named(&args.endpoint, gateway)?;
    let call = tool_call(&Json::string(&args.tool), &arguments, endpoint.clone());
    let mut operation = gateway.resolve(call, Detail::Known).await;
    let response = gateway.run(&mut operation, ServerMessages::discard()).await;
    let outcome = print_response(&response, args.json);
    if response.is_error() {
        let tools = tools(gateway, &endpoint).await;
        // The tools of a server that is down are unknown.
        let is_known = tools.is_empty()
            || tools.find(&args.tool).is_some()
            || incomplete(&tools).next().is_some();
        if !is_known {
            return Err(no_such_tool(&args.tool, &tools));
        }
    }
    outcome
}

/// Prints the answer to a tool call; fails if it is an error.
pub(super) fn print_response(response: &Response, json: bool) -> Result<(), Failure> {
    print(&response.body(), json);
    let failed = response
        .view::<CallToolResult>()
        .and_then(|result| result.is_error());
    outcome(
        response.is_error(),
        failed.is_some_and(|flag| flag.is_true()),
    )
}

/// [`call`] through a running gateway.
pub async fn call_running(admin: &Admin, args: &CallArgs) -> Result<(), Failure> {
    let arguments = arguments(&args.arguments)?;
    let (mut params, mut request) = (ObjectBuilder::new(), ObjectBuilder::new());
    params
        .string("name", &args.tool)
        .member("arguments", &arguments);
    request
        .string("method", "tools/call")
        .member("params", &params.finish());
    if let Some(path) = args.endpoint.path() {
        request.string("endpoint", path);
    }
    let answer = admin
        .post_json("/api/call", request.finish().as_text().to_owned())
        .await?;
    let answer = Json::parse(answer, MAX_NESTING).map_err(Failure::other)?;
    let (result, error) = (answer.get("result"), answer.get("error"));
    let is_failed = result
        .as_ref()
        .and_then(|result| result.get("isError"))
        .is_some_and(|flag| flag.is_true());
    let is_error = error.is_some();
    print(&result.or(error).unwrap_or_else(Json::null), args.json);
    outcome(is_error, is_failed)
}

fn print(body: &Json, json: bool) {
    if std::io::stdout().is_terminal() && !json {
        say!("{}", show::indented(body));
    } else {
        out::json(body.as_text());
    }
}

fn outcome(is_error: bool, is_failed: bool) -> Result<(), Failure> {
    match (is_error, is_failed) {
        (true, _) => Err(Failure::other("the call was answered with an error")),
        (false, true) => Err(Failure::other("the tool reported an error (isError)")),
        (false, false) => Ok(()),
    }
}
