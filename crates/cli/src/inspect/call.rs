//! `fanlight call`: one tool call through the gateway.

use std::io::IsTerminal as _;
use std::sync::Arc;

use bytes::Bytes;
use fanlight_canonical::{Call, CallContext, Detail, ServerMessage, ServerMessages};
use fanlight_gateway::{Gateway, ListKind};
use fanlight_protocol::result::CallToolResult;
use fanlight_protocol::visible::{escaped, plain};
use fanlight_protocol::{Json, MAX_NESTING, Notification, ObjectBuilder, Response};

use super::list::{fetch_list, incomplete};
use super::{arguments, has_pairs, names, no_such_tool, tool_call, tools};
use crate::cli::CallArgs;
use crate::endpoints::find_named;
use crate::observe::Admin;
use crate::{Result, complain, out, say};
use itertools::Itertools as _;

/// The most messages of a call that wait to be shown.
const MESSAGES: usize = 64;

/// Calls a tool of this gateway and prints the result: as text on a terminal, otherwise with the
/// server's bytes. Fails if it is a JSON-RPC error or a result with `isError`.
pub async fn call(gateway: &Gateway, args: &CallArgs) -> Result {
    let endpoint = find_named(&args.endpoint, gateway)?;
    let schema = if has_pairs(&args.arguments) {
        let tools = tools(gateway, &endpoint).await;
        let tool = tools.find(&args.tool);
        tool.and_then(|tool| tool.visible.get("inputSchema"))
    } else {
        None
    };
    let arguments = arguments(&args.arguments, schema.as_ref())?;
    let call = tool_call(&Json::string(&args.tool), &arguments, endpoint.clone());
    let context = Arc::new(CallContext {
        wants_progress: true,
        ..(*call.context).clone()
    });
    let mut operation = gateway
        .resolve(Call { context, ..call }, Detail::Known)
        .await;
    let (messages, mut received) = ServerMessages::channel(MESSAGES);
    let shown = async {
        while let Some(message) = received.recv().await {
            if let ServerMessage::Notification(notification) = message {
                progress(&notification);
            }
        }
    };
    let (response, ()) = tokio::join!(gateway.run(&mut operation, messages), shown);
    let outcome = print_response(&response, args.json);
    if response.is_error() {
        let tools = tools(gateway, &endpoint).await;
        // The tools of a server that is down are unknown.
        let is_known = tools.is_empty()
            || tools.find(&args.tool).is_some()
            || incomplete(&tools).next().is_some();
        if !is_known {
            let names = names(&tools);
            return Err(no_such_tool(&args.tool, names.iter().map(String::as_str)));
        }
    }
    outcome
}

/// Prints the answer to a tool call; fails if it is an error.
pub(super) fn print_response(response: &Response, json: bool) -> Result {
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
pub async fn call_running(admin: &Admin, args: &CallArgs) -> Result {
    let list = async || fetch_list(admin, ListKind::Tools, args.endpoint.path()).await;
    let schema = if has_pairs(&args.arguments) {
        list()
            .await?
            .find(&args.tool)
            .and_then(|tool| tool.get("inputSchema"))
    } else {
        None
    };
    let arguments = arguments(&args.arguments, schema.as_ref())?;
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
    let request = request.finish().as_text().to_owned();
    let answer = if std::io::stderr().is_terminal() {
        attended(admin, request).await?
    } else {
        admin.post_json(&["call"], request).await?
    };
    let answer = Json::parse(answer, MAX_NESTING)?;
    let (result, error) = (answer.get("result"), answer.get("error"));
    let is_failed = result
        .as_ref()
        .and_then(|result| result.get("isError"))
        .is_some_and(|flag| flag.is_true());
    let is_error = error.is_some();
    print(&result.or(error).unwrap_or_default(), args.json);
    if is_error {
        let tools = list().await?;
        if tools.find(&args.tool).is_none() && !tools.is_incomplete() {
            return Err(no_such_tool(&args.tool, tools.names()));
        }
    }
    outcome(is_error, is_failed)
}

/// Calls a tool, and shows its progress. Declines questions of the server.
async fn attended(admin: &Admin, request: String) -> Result<Bytes> {
    let mut stream = admin.post_followed(&["call"], request).await?;
    let mut call = Json::null();
    while let Some(event) = admin.next_event(&mut stream).await? {
        if event.name.as_ref() == b"answer" {
            return Ok(event.data);
        }
        let data = Json::parse(event.data, MAX_NESTING)?;
        match event.name.as_ref() {
            b"call" => call = data.get("call").unwrap_or_default(),
            b"progress" => show_progress(&data),
            b"question" => {
                let message = data.get("params").and_then(|params| params.get("message"));
                let message = message.and_then(|text| Some(plain(&text.as_str()?, 300)));
                complain(&format!(
                    "declined what the server asks ({}); the page can answer it\n",
                    message.unwrap_or_default()
                ));
                let mut answer = ObjectBuilder::new();
                answer
                    .member("call", &call)
                    .member("question", &data.get("question").unwrap_or_default())
                    .member("result", &Json::literal(r#"{"action": "decline"}"#));
                admin
                    .post_json(&["call", "answer"], answer.finish().as_text().to_owned())
                    .await?;
            }
            b"cancelled" => return Err(failure!("the call was cancelled")),
            _ => {}
        }
    }
    Err(failure!("the gateway ended the call without an answer"))
}

fn print(body: &Json, json: bool) {
    if !std::io::stdout().is_terminal() || json {
        out::json(body.as_text());
        return;
    }
    let content = body.get("content").unwrap_or_default();
    let mut blocks = content
        .elements()
        .map(|place| content.slice(place))
        .peekable();
    if blocks.peek().is_none() {
        say!("{}", out::indented(body));
    }
    for block in blocks {
        // Colours are the terminal's owner's choice, not the server's.
        let text = block_text(&block);
        let lines = text.split('\n').map(escaped).join("\n");
        say!("{lines}");
    }
}

/// A block of content for people: its text, or its kind and size.
fn block_text(block: &Json) -> String {
    let inner = block.get("resource");
    let shown = block
        .text_at("text")
        .or_else(|| inner.as_ref()?.text_at("text"));
    shown.unwrap_or_else(|| {
        let kind = block.text_at("type").unwrap_or_default();
        let about = ["mimeType", "uri", "name"]
            .iter()
            .filter_map(|key| block.text_at(key).or_else(|| inner.as_ref()?.text_at(key)));
        let about = std::iter::once(kind).chain(about).join(" ");
        let bytes = block
            .text_at("data")
            .map(|data| format!(", {} characters of base64", data.len()));
        format!("[{about}{}; --json shows all]", bytes.unwrap_or_default())
    })
}

/// Shows the progress of a call on standard error, if that is a terminal.
pub(super) fn progress(notification: &Notification) {
    let params = notification
        .params()
        .filter(|_| notification.method.as_str() == "notifications/progress");
    params.iter().for_each(show_progress);
}

/// [`progress`] with the notification's params.
fn show_progress(params: &Json) {
    if !std::io::stderr().is_terminal() {
        return;
    }
    let number = |key: &str| params.get(key).map(|number| plain(number.as_text(), 20));
    let total = number("total").map(|total| format!(" of {total}"));
    let message = params.text_at("message").map(|text| plain(&text, 200));
    complain(&format!(
        "progress {}{}{}\n",
        number("progress").unwrap_or_default(),
        total.unwrap_or_default(),
        message.map(|text| format!(": {text}")).unwrap_or_default()
    ));
}

fn outcome(is_error: bool, is_failed: bool) -> Result {
    match (is_error, is_failed) {
        (true, _) => Err(failure!("the call was answered with an error")),
        (false, true) => Err(failure!("the tool reported an error (isError)")),
        (false, false) => Ok(()),
    }
}
