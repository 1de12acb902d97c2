//! A minimal MCP client over HTTP, of either era, for commands that inspect a gateway from outside.

use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::json::{MAX_NESTING, ObjectBuilder};
use fanlight_protocol::message::request_text;
use fanlight_protocol::param_header::ParamHeader;
use fanlight_protocol::{Json, Message, Response, Revision, header, meta};

use crate::failure::Failure;

/// The `traceparent` values of a request. They name different spans, which shows which one the gateway used.
#[derive(Clone, Copy)]
pub(super) struct TraceParents<'a> {
    pub(super) meta: &'a str,
    pub(super) header: &'a str,
}

/// Headers of a request, by name.
pub(super) type Headers = Vec<(String, String)>;

pub(super) struct Client {
    http: reqwest::Client,
    url: String,
    timeout: Duration,
    /// Its authentication, if any.
    token: Option<String>,
}

impl Client {
    pub(super) fn new(url: String, timeout: Duration) -> Result<Self, Failure> {
        let http = reqwest::Client::builder().no_proxy().build().map_err(other)?;
        Ok(Self { http, url, timeout, token: None })
    }

    /// It with this key or access token.
    pub(super) fn with_token(self, token: Option<String>) -> Self {
        Self { token, ..self }
    }

    /// A tool call after `initialize`.
    pub(super) async fn call_legacy(&self, tool: &str, arguments: &Json) -> Result<Response, Failure> {
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

    /// A stateless tool call (2026-07-28). `trace` is sent in `_meta` and in the headers.
    pub(super) async fn call_modern(
        &self,
        tool: &str,
        mirrored: &[ParamHeader],
        arguments: &Json,
        trace: Option<TraceParents<'_>>,
    ) -> Result<Response, Failure> {
        let mut params = ObjectBuilder::new();
        params.string("name", tool).member("arguments", arguments);
        let mut headers = vec![(header::NAME.to_owned(), header::encode(tool).into_owned())];
        headers.extend(mirrored.iter().filter_map(|mirrored| {
            let value = mirrored.value(arguments)?;
            Some((format!("{}{}", header::PARAM_PREFIX, mirrored.name), header::encode(&value).into_owned()))
        }));
        self.modern("tools/call", params, headers, trace).await
    }

    /// Any stateless request; `_meta` is added to `params`.
    pub(super) async fn modern(
        &self,
        method: &str,
        mut params: ObjectBuilder,
        mut headers: Headers,
        trace: Option<TraceParents<'_>>,
    ) -> Result<Response, Failure> {
        let revision = Revision::NEWEST_MODERN.as_str();
        let mut own = ObjectBuilder::new();
        own.string(meta::PROTOCOL_VERSION, revision).member(meta::CLIENT_CAPABILITIES, &Json::empty_object());
        if let Some(trace) = trace {
            own.string("traceparent", trace.meta);
            headers.push(("traceparent".to_owned(), trace.header.to_owned()));
        }
        params.member("_meta", &own.finish());
        headers.push((header::PROTOCOL_VERSION.to_owned(), revision.to_owned()));
        headers.push((header::METHOD.to_owned(), method.to_owned()));
        let text = request_text(&Json::literal("1"), method, Some(&params.finish()));
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
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.send().await.map_err(other)
    }
}

/// The JSON-RPC response in an HTTP response: plain JSON, or the last event of a stream.
async fn answer(http: reqwest::Response) -> Result<Response, Failure> {
    let is_stream =
        http.headers().get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let body = http.bytes().await.map_err(other)?;
    let text = if is_stream { last_event(&body)? } else { body };
    match Message::parse(text, MAX_NESTING) {
        Ok(Message::Response(response)) => Ok(response),
        Ok(_) => Err(Failure::other("the gateway sent something other than a JSON-RPC response")),
        Err(error) => Err(Failure::other(format!("the gateway's answer is invalid: {error}"))),
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

pub(super) fn other(error: impl std::fmt::Display) -> Failure {
    Failure::other(error.to_string())
}
