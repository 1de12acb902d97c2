//! `fanlight diff`: compares the bytes of a call's result from the server and through the gateway.

use std::sync::Arc;

use fanlight_canonical::comparison::{
    Tolerance, compare_answers, compare_definitions, compare_exactly,
};
use fanlight_canonical::{BackendClient, Call, Endpoint};
use fanlight_gateway::catalogue::{Entry, ListView};
use fanlight_gateway::{BackendId, Gateway};
use fanlight_protocol::visible::plain;
use fanlight_protocol::{ArrayBuilder, Era, Json, ObjectBuilder, Response};

use super::{arguments, names, no_such_tool, tool_call, tools};
use crate::cli::CallArgs;
use crate::endpoints::find_named;
use crate::{Failure, Result, out, say};

/// Bytes shown around the first difference.
const CONTEXT: usize = 40;
/// The limit of characters shown of a value.
const SHOWN: usize = 80;

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
    ) -> Result<Self> {
        let endpoint = find_named(&args.endpoint, gateway)?;
        let snapshot = tools(gateway, &endpoint).await;
        let tool = snapshot
            .find(&args.tool)
            .ok_or_else(|| no_such_tool(&args.tool, names(&snapshot).iter().map(String::as_str)))?;
        let schema = tool.visible.get("inputSchema");
        let arguments = arguments(&args.arguments, schema.as_ref())?;
        let backend = backends.find(|(id, _)| *id == tool.backend);
        let (Some((_, backend)), Some(original)) = (backend, &tool.original) else {
            return Err(failure!("no server has this tool"));
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
        let response = request(&*backend, Call { params, ..call }).await?;
        Ok(Self {
            era: backend.status().era.unwrap_or(Era::Modern),
            tool: Json::string(&args.tool),
            arguments,
            response,
        })
    }

    /// The answer to the same call from the first of `gateways`.
    pub async fn send_through(
        &self,
        mut gateways: impl Iterator<Item = (BackendId, Arc<dyn BackendClient>)>,
    ) -> Result<Response> {
        let (_, gateway) = gateways
            .next()
            .ok_or_else(|| failure!("no gateway to call through"))?;
        let call = tool_call(&self.tool, &self.arguments, Endpoint::Everything);
        request(&*gateway, call).await
    }

    /// Prints the differences of this call's result and the one `through` the gateway. Fails if
    /// they differ.
    pub fn compare(&self, through: &Response, json: bool) -> Result {
        let (left, right) = (self.response.body(), through.body());
        let tolerance = Tolerance::default();
        let found = match self.response.is_error() == through.is_error() {
            true => compare_exactly("", Some(&left), Some(&right), &tolerance),
            false => compare_answers(&self.response, through, &tolerance),
        };
        let values: Vec<String> = found.iter().map(|one| one.line(shown)).collect();
        let bytes = compare_bytes(&left, &right);
        let are_equal = values.is_empty() && bytes.is_none();
        let failure = || {
            failure!(
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
            out::indented(&left),
            out::indented(&right)
        );
        Err(failure())
    }
}

async fn request(backend: &dyn BackendClient, call: Call) -> Result<Response> {
    let answer = backend.request(call).await;
    answer.map_err(|error| failure!("server {:?} {error}", backend.name()))
}

/// Prints the configured differences between the tool and its server's definition.
fn say_intended(snapshot: &ListView, tool: &Entry) {
    let Some(given) = snapshot.original_entry(tool) else {
        return;
    };
    for one in compare_definitions(Some(&given), Some(&tool.visible), &Tolerance::default()) {
        say!("intended: the tool's {}{}", one.pointer, one.values(shown));
    }
    let arguments = tool
        .changes()
        .into_iter()
        .filter(|change| change.contains("argument"));
    arguments.for_each(|change| say!("intended: the tool {}", plain(&change, 300)));
}

/// The beginning of a value, for a line about a difference.
fn shown(json: &Json) -> String {
    plain(json.as_text(), SHOWN)
}

/// The first differing byte with its context; `None` if the texts are equal.
fn compare_bytes(left: &Json, right: &Json) -> Option<String> {
    let (l, r) = (left.bytes(), right.bytes());
    if l == r {
        return None;
    }
    let at = l.iter().zip(r.iter()).take_while(|(a, b)| a == b).count();
    let around = |bytes: &[u8]| {
        let start = at.saturating_sub(CONTEXT / 2);
        let end = (at + CONTEXT).min(bytes.len());
        let shown = bytes.get(start..end).unwrap_or_default();
        shown.escape_ascii().to_string()
    };
    Some(format!(
        "first difference at byte {at} ({} bytes directly, {} through the gateway)\n  direct:  …{}\n  gateway: …{}",
        l.len(),
        r.len(),
        around(l),
        around(r)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_is_found_that_values_ignore() {
        let (left, right) = (Json::literal(r#"{"a":1}"#), Json::literal(r#"{"a": 1}"#));
        let values = compare_exactly("", Some(&left), Some(&right), &Tolerance::default());
        assert!(values.is_empty());
        let found = compare_bytes(&left, &right).unwrap();
        assert!(
            found.starts_with("first difference at byte 5 (7 bytes directly, 8"),
            "{found}"
        );
        assert_eq!(compare_bytes(&left, &left), None);
    }
}
