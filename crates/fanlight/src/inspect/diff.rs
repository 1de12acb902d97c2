//! `fanlight diff`: does a call's result come through the whole gateway as the backend sent it?
//!
//! The call is made twice: once straight to the backend, once by HTTP to a gateway of its own on
//! loopback, as a client of the backend's era, so that nothing has to be added for the revision.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fanlight_backend::BackendClient as _;
use fanlight_config::Config;
use fanlight_frontend::serve_http;
use fanlight_gateway::catalogue::Entry;
use fanlight_protocol::json::{MAX_NESTING, ObjectBuilder};
use fanlight_protocol::message::request_text;
use fanlight_protocol::{Era, Json, Message, Response, Revision, header, meta, param_header};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{arguments, difference, show, tool_call, tools, with_assembly};
use crate::cli::CallArgs;
use crate::failure::Failure;
use crate::out::say;
use crate::wiring::{Assembly, frontend_settings};

/// Prints how the two results differ; fails if they do.
pub(crate) async fn diff(config: &Config, args: &CallArgs) -> Result<(), Failure> {
    let arguments = arguments(&args.arguments)?;
    let (direct, through) =
        with_assembly(config, async |assembly| both(config, assembly, args, &arguments).await).await?;
    if direct.is_error() != through.is_error() {
        let kind = |response: &Response| if response.is_error() { "an error" } else { "a result" };
        say!("{} directly became {} through the gateway", kind(&direct), kind(&through));
    }
    let (left, right) = (direct.body(), through.body());
    let values = difference::of_values(&left, &right);
    let bytes = difference::of_bytes(&left, &right);
    values.iter().for_each(|line| say!("json:  {line}"));
    if let Some(place) = &bytes {
        say!("bytes: {place}");
    }
    if values.is_empty() && bytes.is_none() && direct.is_error() == through.is_error() {
        say!("no difference: {} bytes, the same directly and through the gateway", left.bytes().len());
        return Ok(());
    }
    say!("\ndirect:\n{}\n\nthrough the gateway:\n{}", show::indented(&left), show::indented(&right));
    Err(Failure::other("the results differ (a tool that answers differently each time differs here too)"))
}

async fn both(
    config: &Config,
    assembly: &Assembly,
    args: &CallArgs,
    arguments: &Json,
) -> Result<(Response, Response), Failure> {
    let snapshot = tools(assembly).await;
    let tool = snapshot.find(&args.tool).ok_or_else(|| {
        Failure::usage(format!("no tool is called {:?}; `fanlight list tools` shows those there are", args.tool))
    })?;
    let (Some(backend), Some(original)) = (assembly.backends.get(tool.backend), &tool.original) else {
        return Err(Failure::other("the tool has no backend"));
    };
    let direct = backend.request(tool_call(original, arguments)).await;
    let direct = direct.map_err(|error| Failure::other(format!("backend {:?} {error}", backend.name())))?;

    let era = backend.status().era.unwrap_or(Era::Modern);
    let end = CancellationToken::new();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(other)?;
    let url = format!("http://{}{}", listener.local_addr().map_err(other)?, config.path);
    let front = tokio::spawn(serve_http(
        listener,
        Arc::clone(&assembly.gateway),
        frontend_settings(config, &fanlight_telemetry::Telemetry::off()),
        end.clone(),
    ));
    let client = Client {
        http: reqwest::Client::builder().no_proxy().build().map_err(other)?,
        url,
        timeout: config.timeouts.call,
    };
    let through = match era {
        Era::Legacy => client.call_legacy(&args.tool, arguments).await,
        Era::Modern => client.call_modern(&args.tool, tool, arguments).await,
    };
    end.cancel();
    front.await.map_err(other)?.map_err(other)?;
    Ok((direct, through?))
}

fn other(error: impl std::fmt::Display) -> Failure {
    Failure::other(error.to_string())
}

/// The least client that each era allows.
struct Client {
    http: reqwest::Client,
    url: String,
    timeout: Duration,
}

impl Client {
    async fn call_legacy(&self, tool: &str, arguments: &Json) -> Result<Response, Failure> {
        let initialize = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"fanlight diff","version":"0"}}}"#;
        let opened = self.post(Bytes::from_static(initialize.as_bytes()), Vec::new()).await?;
        let session = opened.headers().get(header::SESSION_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let headers: Vec<_> = session.into_iter().map(|id| (header::SESSION_ID.to_owned(), id)).collect();
        answer(opened).await?;
        let mut params = ObjectBuilder::new();
        params.string("name", tool).member("arguments", arguments);
        let text = request_text(&Json::literal("1"), "tools/call", Some(&params.finish()));
        answer(self.post(text.into_bytes(), headers).await?).await
    }

    async fn call_modern(&self, tool: &str, entry: &Entry, arguments: &Json) -> Result<Response, Failure> {
        let revision = Revision::NEWEST_MODERN.as_str();
        let mut own = ObjectBuilder::new();
        own.string(meta::PROTOCOL_VERSION, revision).member(meta::CLIENT_CAPABILITIES, &Json::empty_object());
        let mut params = ObjectBuilder::new();
        params.string("name", tool).member("arguments", arguments).member("_meta", &own.finish());
        let text = request_text(&Json::literal("1"), "tools/call", Some(&params.finish()));
        let mut headers = vec![
            (header::PROTOCOL_VERSION.to_owned(), revision.to_owned()),
            (header::METHOD.to_owned(), "tools/call".to_owned()),
            (header::NAME.to_owned(), header::encode(tool).into_owned()),
        ];
        headers.extend(entry.param_headers.iter().filter_map(|mirrored: &param_header::ParamHeader| {
            let value = mirrored.value(arguments)?;
            Some((format!("{}{}", header::PARAM_PREFIX, mirrored.name), header::encode(&value).into_owned()))
        }));
        answer(self.post(text.into_bytes(), headers).await?).await
    }

    async fn post(&self, body: Bytes, headers: Vec<(String, String)>) -> Result<reqwest::Response, Failure> {
        let mut request = self
            .http
            .post(&self.url)
            .timeout(self.timeout)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.send().await.map_err(other)
    }
}

/// The response in an HTTP answer, which is plain JSON unless notifications came before it.
async fn answer(http: reqwest::Response) -> Result<Response, Failure> {
    let is_stream =
        http.headers().get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let body = http.bytes().await.map_err(other)?;
    let text = if is_stream { last_event(&body)? } else { body };
    match Message::parse(text, MAX_NESTING) {
        Ok(Message::Response(response)) => Ok(response),
        Ok(_) => Err(Failure::other("the gateway answered with something else than a response")),
        Err(error) => Err(Failure::other(format!("the gateway's answer is {error}"))),
    }
}

fn last_event(stream: &[u8]) -> Result<Bytes, Failure> {
    let mut decoder = fanlight_protocol::sse::EventDecoder::new(usize::MAX - 1);
    decoder.push(stream);
    let mut last = Bytes::new();
    while let Some(event) = decoder.next_event().map_err(other)? {
        last = event.data;
    }
    Ok(last)
}
