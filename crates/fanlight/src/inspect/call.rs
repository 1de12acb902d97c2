//! `fanlight call`: one tool call through the gateway.

use std::io::IsTerminal as _;

use fanlight_canonical::{Detail, ServerMessages};
use fanlight_cli::cli::CallArgs;
use fanlight_cli::failure::Failure;
use fanlight_cli::observe::Admin;
use fanlight_cli::out::{self, say};
use fanlight_cli::show;
use fanlight_config::Config;
use fanlight_protocol::Json;
use fanlight_protocol::json::{MAX_NESTING, ObjectBuilder};
use fanlight_protocol::result::CallToolResult;

use super::list::incomplete;
use super::{arguments, no_such_tool, tool_call, tools, with_assembly};
use crate::endpoints::find_named;

/// Prints the result: indented on a terminal, otherwise with the server's bytes. Fails if it is a
/// JSON-RPC error or a result with `isError`.
pub(crate) async fn call(config: &Config, args: &CallArgs) -> Result<(), Failure> {
    let arguments = arguments(&args.arguments)?;
    let (response, unknown) = with_assembly(config, async |assembly| {
        let endpoint = find_named(&args.endpoint, &assembly.gateway)?;
        let call = tool_call(&Json::string(&args.tool), &arguments, endpoint.clone());
        let mut operation = assembly.gateway.resolve(call, Detail::Known).await;
        let response = assembly
            .gateway
            .run(&mut operation, ServerMessages::discard())
            .await;
        if !response.is_error() {
            return Ok((response, None));
        }
        let tools = tools(assembly, &endpoint).await;
        // The tools of a server that is down are unknown.
        let is_known = tools.is_empty()
            || tools.find(&args.tool).is_some()
            || incomplete(&tools).next().is_some();
        Ok((
            response,
            (!is_known).then(|| no_such_tool(&args.tool, &tools)),
        ))
    })
    .await?;
    print(&response.body(), args.json);
    if let Some(unknown) = unknown {
        return Err(unknown);
    }
    let failed = response
        .view::<CallToolResult>()
        .and_then(|result| result.is_error());
    outcome(
        response.is_error(),
        failed.is_some_and(|flag| flag.is_true()),
    )
}

/// [`call`] through a running gateway.
pub(crate) async fn call_running(admin: &Admin, args: &CallArgs) -> Result<(), Failure> {
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
    let answer =
        Json::parse(answer, MAX_NESTING).map_err(|error| Failure::other(error.to_string()))?;
    let (result, error) = (answer.get("result"), answer.get("error"));
    let is_failed = result
        .as_ref()
        .and_then(|result| result.get("isError"))
        .is_some_and(|flag| flag.is_true());
    let is_error = error.is_some();
    print(&result.or(error).unwrap_or_else(Json::null), args.json);
    outcome(is_error, is_failed)
}

pub(super) fn print(body: &Json, json: bool) {
    if std::io::stdout().is_terminal() && !json {
        say!("{}", show::indented(body));
    } else {
        out::json(body.as_text());
    }
}

pub(super) fn outcome(is_error: bool, is_failed: bool) -> Result<(), Failure> {
    match (is_error, is_failed) {
        (true, _) => Err(Failure::other("the call was answered with an error")),
        (false, true) => Err(Failure::other("the tool reported an error (isError)")),
        (false, false) => Ok(()),
    }
}
