//! `fanlight call`: one tool call through the gateway.

use fanlight_canonical::{Core as _, Detail, ServerMessages};
use std::io::IsTerminal as _;

use fanlight_config::Config;
use fanlight_protocol::Json;
use fanlight_protocol::result::CallToolResult;

use super::{arguments, no_such_tool, tool_call, tools, with_assembly};
use crate::cli::CallArgs;
use crate::failure::Failure;
use crate::out::{self, say};
use crate::show;

/// Prints the result: indented on a terminal, otherwise with the bytes of the backend. Fails if it is a
/// JSON-RPC error or a result with `isError`.
pub(crate) async fn call(config: &Config, args: &CallArgs) -> Result<(), Failure> {
    let arguments = arguments(&args.arguments)?;
    let (response, unknown) = with_assembly(config, async |assembly| {
        let endpoint = args.endpoint.find(&assembly.gateway)?;
        let call = tool_call(&Json::string(&args.tool), &arguments, endpoint.clone());
        let mut operation = assembly.gateway.resolve(call, Detail::Known).await;
        let response = assembly.gateway.run(&mut operation, ServerMessages::discard()).await;
        if !response.is_error() {
            return Ok((response, None));
        }
        let tools = tools(assembly, &endpoint).await;
        let is_known = tools.is_empty() || tools.find(&args.tool).is_some();
        Ok((response, (!is_known).then(|| no_such_tool(&args.tool, &tools))))
    })
    .await?;
    let body = response.body();
    if std::io::stdout().is_terminal() && !args.json {
        say!("{}", show::indented(&body));
    } else {
        out::json(body.as_text());
    }
    if let Some(unknown) = unknown {
        return Err(unknown);
    }
    if response.is_error() {
        return Err(Failure::other("the call was answered with an error"));
    }
    let failed =
        response.view::<CallToolResult>().and_then(|result| result.is_error()).is_some_and(|flag| flag.is_true());
    if failed { Err(Failure::other("the tool reported an error (isError)")) } else { Ok(()) }
}
