//! `fanlight call`: one tool call through the gateway.

use fanlight_canonical::Core as _;
use std::io::IsTerminal as _;

use fanlight_config::Config;
use fanlight_protocol::Json;
use fanlight_protocol::result::CallToolResult;

use super::{arguments, show, tool_call, with_assembly};
use crate::cli::CallArgs;
use crate::failure::Failure;
use crate::out::{self, say};

/// Prints the result: indented on a terminal, otherwise with the bytes of the backend. Fails if it is a
/// JSON-RPC error or a result with `isError`.
pub(crate) async fn call(config: &Config, args: &CallArgs) -> Result<(), Failure> {
    let arguments = arguments(&args.arguments)?;
    let response = with_assembly(config, async |assembly| {
        let endpoint = args.endpoint.find(&assembly.gateway)?;
        Ok(assembly.gateway.handle(tool_call(&Json::string(&args.tool), &arguments, endpoint)).await)
    })
    .await?;
    let body = response.body();
    if std::io::stdout().is_terminal() {
        say!("{}", show::indented(&body));
    } else {
        out::json(body.as_text());
    }
    if response.is_error() {
        return Err(Failure::other("the call was answered with an error"));
    }
    let failed =
        response.view::<CallToolResult>().and_then(|result| result.is_error()).is_some_and(|flag| flag.is_true());
    if failed { Err(Failure::other("the tool reported an error (isError)")) } else { Ok(()) }
}
