//! `fanlight diff`: compares the bytes of a call's result from the server and through the gateway.

use std::sync::Arc;

use fanlight_canonical::{BackendClient, Call, Endpoint, ServerMessages, Unresolved};
use fanlight_gateway::catalogue::{Entry, ListView};
use fanlight_gateway::difference;
use fanlight_gateway::{BackendId, Gateway};
use fanlight_protocol::json::{ArrayBuilder, ObjectBuilder};
use fanlight_protocol::visible::plain;
use fanlight_protocol::{Era, Json, Response};

use super::{arguments, names, no_such_tool, tool_call, tools};
use crate::cli::CallArgs;
use crate::endpoints::find_named;
use crate::failure::Failure;
use crate::out::{self, say};
use crate::show;

/// A tool call directly at the tool's server.
pub struct DirectCall {
    /// The server's era.
    pub era: Era,
    /// The tool's name for clients.
    tool: Json,
    arguments: Json,
    response: Response,
}

impl DirectCall {
    /// Calls the tool. Prints the configured changes of the tool first, unless JSON is wanted.
    pub async fn run(
        gateway: &Gateway,
        mut backends: impl Iterator<Item = (BackendId, Arc<dyn BackendClient>)>,
        args: &CallArgs,
    ) -> Result<Self, Failure> {
        let endpoint = find_named(&args.endpoint, gateway)?;
        let snapshot = tools(gateway, &endpoint).await;
        let tool = snapshot
            .find(&args.tool)
            .ok_or_else(|| no_such_tool(&args.tool, names(&snapshot).iter().map(String::as_str)))?;
        let schema = tool.visible.get("inputSchema");
        let arguments = arguments(&args.arguments, schema.as_ref())?;
        let backend = backends.find(|(id, _)| *id == tool.backend);
        let (Some((_, backend)), Some(original)) = (backend, &tool.original) else {
            return Err(Failure::other("no server has this tool"));
        };
        if !args.json {
            say_intended(&snapshot, tool);
        }
        // The server gets the same arguments as from the gateway: the results are compared, not
        // the requests.
        let call = tool_call(original, &arguments, Endpoint::Everything);
        let params = call.params.map(|params| tool.rewrite_call(&params));
        let params = params
            .transpose()
            .map_err(|error| Failure::usage(error.message))?;
        let response = request(&*backend, Unresolved { params, ..call }).await?;
        Ok(Self {
            era: backend.status().era.unwrap_or(Era::Modern),
            tool: Json::string(&args.tool),
            arguments,
            response,
        })
    }

    /// The answer to the same call from the first of `gateways`.
    pub async fn through(
        &self,
        mut gateways: impl Iterator<Item = (BackendId, Arc<dyn BackendClient>)>,
    ) -> Result<Response, Failure> {
        let (_, gateway) = gateways
            .next()
            .ok_or_else(|| Failure::other("no gateway to call through"))?;
        let call = tool_call(&self.tool, &self.arguments, Endpoint::Everything);
        request(&*gateway, call).await
    }

    /// Prints the differences of this call's result and the one `through` the gateway. Fails if
    /// they differ.
    pub fn compare(&self, through: &Response, json: bool) -> Result<(), Failure> {
        let (left, right) = (self.response.body(), through.body());
        let values = difference::of_values(&left, &right).lines();
        let bytes = difference::of_bytes(&left, &right);
        let are_equal =
            values.is_empty() && bytes.is_none() && self.response.is_error() == through.is_error();
        let failure = || {
            Failure::other(
                "the results differ (a tool that answers differently each time differs here too)",
            )
        };
        if json {
            let mut report = ObjectBuilder::new();
            let mut list = ArrayBuilder::default();
            for line in values.iter().chain(&bytes) {
                list.push(&Json::string(line));
            }
            report.member(
                "identical",
                &Json::literal(if are_equal { "true" } else { "false" }),
            );
            report
                .member("differences", &list.finish())
                .member("direct", &left)
                .member("gateway", &right);
            out::json(report.finish().as_text());
            return if are_equal { Ok(()) } else { Err(failure()) };
        }
        if self.response.is_error() != through.is_error() {
            let kind = |response: &Response| {
                if response.is_error() {
                    "an error"
                } else {
                    "a result"
                }
            };
            say!(
                "{} directly became {} through the gateway",
                kind(&self.response),
                kind(through)
            );
        }
        values.iter().for_each(|line| say!("json:  {line}"));
        if let Some(place) = &bytes {
            say!("bytes: {place}");
        }
        if are_equal {
            say!(
                "no difference: {} bytes, identical directly and through the gateway",
                left.bytes().len()
            );
            return Ok(());
        }
        say!(
            "\ndirect:\n{}\n\nthrough the gateway:\n{}",
            show::indented(&left),
            show::indented(&right)
        );
        Err(failure())
    }
}

async fn request(backend: &dyn BackendClient, call: Unresolved) -> Result<Response, Failure> {
    let call = Call {
        method: call.method,
        params: call.params,
        context: call.context,
        messages: ServerMessages::discard(),
    };
    let answer = backend.request(call).await;
    answer.map_err(|error| Failure::other(format!("server {:?} {error}", backend.name())))
}

/// Prints the configured differences between the tool and its server's definition.
fn say_intended(snapshot: &ListView, tool: &Entry) {
    let Some(given) = snapshot.given(tool) else {
        return;
    };
    let differences = difference::of_values(&given, &tool.visible).lines();
    differences
        .iter()
        .for_each(|line| say!("intended: tool {line}"));
    let arguments = tool
        .changes()
        .into_iter()
        .filter(|change| change.contains("argument"));
    arguments.for_each(|change| say!("intended: the tool {}", plain(&change, 300)));
}
