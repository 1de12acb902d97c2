//! A minimal MCP client over HTTP for commands that inspect a gateway or a server from outside. It
//! sends and reads by the client of `fanlight check`.

use std::time::Duration;

use bytes::Bytes;
use fanlight_gateway::catalogue::ListKind;
use fanlight_grants::fetch::secret_value;
use fanlight_grants::oauth::{Challenge, Message as Asked, PROOF_NONCE, Refused};
use fanlight_protocol::param_header::ParamHeader;
use fanlight_protocol::visible::plain;
use fanlight_protocol::{
    Json, MAX_NESTING, Message, Method as Asks, ObjectBuilder, Response, Revision, code, header,
    meta, request_text,
};
use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, StatusCode};

use super::call::progress;
use super::check::sign_in::wanted_at;
use crate::failure::{Failure, Result};
use crate::judge::peer::LONGEST;
use crate::judge::peer::http::{EventStream, Http, media_type, read, send};
use crate::login::ServerByUrl;

/// The environment variable with the client's key or access token.
const TOKEN: &str = "FANLIGHT_TOKEN";
/// How often a message is sent at most. A server may refuse an old token, the renewed token, and a
/// DPoP proof without its nonce.
const MOST_SENT: usize = 4;

/// The limit of pages read of a list.
const PAGES: usize = 100;

/// The `traceparent` values of a request. They name different spans, which shows which one the
/// gateway used.
#[derive(Clone, Copy)]
pub(super) struct TraceParents<'a> {
    pub(super) meta: &'a str,
    pub(super) header: &'a str,
}

/// Headers of a request, by name.
pub(super) type Headers = Vec<(String, String)>;

/// A client of a gateway or a server, which sends stateless requests (2026-07-28).
pub struct Client {
    http: Http,
    timeout: Duration,
    credentials: Credentials,
}

/// The client's credentials.
enum Credentials {
    Nothing,
    /// A key or an access token.
    Token(String),
    /// The user's sign-in at this server, stored or requested on demand.
    Granted(Box<ServerByUrl>),
}

impl Client {
    /// A client without credentials of the server at `url`.
    pub fn new(url: &str, timeout: Duration) -> Result<Self> {
        let mut http = Http::new(url, &[], Revision::NEWEST_MODERN, timeout)?;
        http.revision = Some(Revision::NEWEST_MODERN.to_string());
        Ok(Self {
            http,
            timeout,
            credentials: Credentials::Nothing,
        })
    }

    /// The client with the key or access token of the environment.
    pub(super) fn with_token_of_environment(self) -> Self {
        match std::env::var(TOKEN).ok().filter(|token| !token.is_empty()) {
            Some(token) => self.with_token(token),
            None => self,
        }
    }

    /// The client with this key or access token.
    pub fn with_token(self, token: String) -> Self {
        Self {
            credentials: Credentials::Token(token),
            ..self
        }
    }

    /// The client with the token of the user's sign-in, unless it already has a token.
    pub(super) fn or_signed_in(self, server: ServerByUrl) -> Self {
        match self.credentials {
            Credentials::Nothing => Self {
                credentials: Credentials::Granted(Box::new(server)),
                ..self
            },
            Credentials::Token(_) | Credentials::Granted(_) => self,
        }
    }

    /// The server's challenge to sign in; `None` if the server serves this client, wants something
    /// else, or cannot be reached.
    pub(super) async fn challenge(&self) -> Result<Option<Challenge>> {
        let (body, headers) =
            modern_request("server/discover", ObjectBuilder::new(), Vec::new(), None);
        let shown = self.credential_headers().await?;
        let Ok(response) = self.send(body.clone(), &headers, &shown).await else {
            return Ok(None);
        };
        let response = self.unless_refused(response, body, &headers, shown).await?;
        let challenge = Challenge::from_headers(response.headers().get_all(WWW_AUTHENTICATE));
        Ok(challenge.filter(|_| response.status() == StatusCode::UNAUTHORIZED))
    }

    /// The token of the user's sign-in, if there is one.
    pub(super) async fn token(&self) -> Result<Option<String>> {
        match &self.credentials {
            Credentials::Granted(server) => server.token().await,
            Credentials::Nothing | Credentials::Token(_) => Ok(None),
        }
    }

    /// Waits until changes of the user's sign-in are stored.
    pub(super) async fn stop(&self) {
        if let Credentials::Granted(server) = &self.credentials {
            server.stop().await;
        }
    }

    /// A stateless tool call (2026-07-28). `trace` is sent in `_meta` and in the headers.
    pub(super) async fn call_modern(
        &self,
        tool: &str,
        mirrored: &[ParamHeader],
        arguments: &Json,
        trace: Option<TraceParents<'_>>,
    ) -> Result<Response> {
        let mut params = ObjectBuilder::new();
        params.string("name", tool).member("arguments", arguments);
        let mut headers = vec![(header::NAME.to_owned(), header::encode(tool).into_owned())];
        headers.extend(mirrored.iter().filter_map(|mirrored| {
            let value = mirrored.value(arguments)?;
            Some((
                format!("{}{}", header::PARAM_PREFIX, mirrored.name),
                header::encode(&value).into_owned(),
            ))
        }));
        self.modern("tools/call", params, headers, trace).await
    }

    /// Any stateless request; `_meta` is added to `params`.
    async fn modern(
        &self,
        method: &str,
        params: ObjectBuilder,
        headers: Headers,
        trace: Option<TraceParents<'_>>,
    ) -> Result<Response> {
        let (body, headers) = modern_request(method, params, headers, trace);
        let shown = self.credential_headers().await?;
        let response = self.send(body.clone(), &headers, &shown).await?;
        let response = self.unless_refused(response, body, &headers, shown).await?;
        self.answer(response).await
    }

    /// The entries of a list; none if the server has no such list.
    pub(super) async fn entries(&self, kind: ListKind) -> Result<Vec<Json>> {
        let (method, mut all) = (kind.method(), Vec::new());
        let mut cursor: Option<Json> = None;
        for _ in 0..PAGES {
            let mut params = ObjectBuilder::new();
            if let Some(cursor) = &cursor {
                params.member("cursor", cursor);
            }
            let page = self
                .modern(method.as_str(), params, Vec::new(), None)
                .await?;
            let Some(result) = page.result() else {
                // A server without items of this kind need not have the method.
                if page.error_code() == Some(code::METHOD_NOT_FOUND) {
                    break;
                }
                return Err(failure!(
                    "the gateway does not answer {}: {}",
                    method.as_str(),
                    plain(page.body().as_text(), 300)
                ));
            };
            let entries = result.get(kind.member()).unwrap_or_default();
            all.extend(entries.items());
            cursor = result
                .get("nextCursor")
                .filter(|cursor| cursor.as_str().is_some());
            if cursor.is_none() {
                break;
            }
        }
        Ok(all)
    }

    /// The header fields with the client's credentials.
    async fn credential_headers(&self) -> Result<HeaderMap> {
        match &self.credentials {
            Credentials::Nothing => Ok(HeaderMap::new()),
            Credentials::Granted(server) => server.headers().await,
            Credentials::Token(token) => {
                let value = secret_value(&format!("Bearer {token}"));
                let value = value.map_err(|_| {
                    usage!("{TOKEN} has characters that are not allowed in a token")
                })?;
                Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
            }
        }
    }

    /// The response to a message. While it refuses the credentials, sends the message again with
    /// others.
    async fn unless_refused(
        &self,
        mut response: reqwest::Response,
        body: Bytes,
        headers: &Headers,
        mut shown: HeaderMap,
    ) -> Result<reqwest::Response> {
        let Credentials::Granted(server) = &self.credentials else {
            return Ok(response);
        };
        for sent in 1..MOST_SENT {
            let challenges: Vec<_> = response
                .headers()
                .get_all(WWW_AUTHENTICATE)
                .iter()
                .cloned()
                .collect();
            let is_refused = match response.status() {
                StatusCode::UNAUTHORIZED => true,
                StatusCode::FORBIDDEN => !challenges.is_empty(),
                _ => false,
            };
            if !is_refused {
                break;
            }
            let refused = Refused {
                status: response.status(),
                challenges: &challenges,
                nonce: response.headers().get(PROOF_NONCE),
                shown: &shown,
                message: Asked {
                    method: &Method::POST,
                    url: server.url(),
                },
            };
            // Boxed to keep the futures of all messages small: few are refused.
            let Some(other) = Box::pin(server.replace_credentials(refused, sent > 1)).await? else {
                break;
            };
            shown = other;
            response = self.send(body.clone(), headers, &shown).await?;
        }
        Ok(response)
    }

    async fn send(
        &self,
        body: Bytes,
        headers: &Headers,
        shown: &HeaderMap,
    ) -> Result<reqwest::Response> {
        let mut request = self.http.message_to(self.http.url().clone(), body);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.timeout(self.timeout).headers(shown.clone());
        send(request).await.map_err(Failure::other)
    }

    /// The JSON-RPC response in an HTTP response: its body, or an event of its stream.
    async fn answer(&self, http: reqwest::Response) -> Result<Response> {
        let (status, challenge) = (
            http.status(),
            Challenge::from_headers(http.headers().get_all(WWW_AUTHENTICATE)),
        );
        let message = if media_type(&http) == "text/event-stream" {
            let mut stream = EventStream::new(http, LONGEST);
            loop {
                let event = stream.next().await?;
                let event =
                    event.ok_or_else(|| failure!("the event stream ended without the response"))?;
                match Message::parse(event.data, MAX_NESTING) {
                    Ok(Message::Notification(notification)) => progress(&notification),
                    Ok(Message::Request(_)) => {}
                    message => break message,
                }
            }
        } else {
            let body = read(http).await?;
            Message::parse(body, MAX_NESTING)
        };
        match message {
            Ok(Message::Response(response)) => Ok(response),
            _ if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                // Boxed to keep the futures of all messages small.
                Err(Box::pin(self.not_let_in(status, challenge)).await)
            }
            Ok(_) => Err(failure!(
                "the gateway sent something other than a JSON-RPC response",
            )),
            Err(error) => Err(failure!("the gateway's answer is invalid: {error}")),
        }
    }

    async fn not_let_in(&self, status: StatusCode, challenge: Option<Challenge>) -> Failure {
        let what = match &self.credentials {
            Credentials::Token(_) => format!("does not accept the key or access token in {TOKEN}"),
            Credentials::Granted(server) if server.has_signed_in() => {
                "does not accept the token of your sign-in".into()
            }
            Credentials::Nothing | Credentials::Granted(_) => {
                format!("requires credentials: put a key or an access token into {TOKEN}")
            }
        };
        let sign_in = match (&self.credentials, challenge) {
            (Credentials::Granted(server), Some(challenge)) if !server.has_signed_in() => {
                wanted_at(server.server(), challenge)
                    .await
                    .map(|wanted| format!("; {}", wanted.line()))
            }
            _ => None,
        };
        failure!(
            "the server {what} (status {}){}",
            status.as_u16(),
            sign_in.unwrap_or_default()
        )
    }
}

/// The body and the header fields of a stateless request.
fn modern_request(
    method: &str,
    mut params: ObjectBuilder,
    mut headers: Headers,
    trace: Option<TraceParents<'_>>,
) -> (Bytes, Headers) {
    let revision = Revision::NEWEST_MODERN.name;
    let mut own = ObjectBuilder::new();
    own.string(meta::PROTOCOL_VERSION, revision)
        .member(meta::CLIENT_CAPABILITIES, &Json::empty_object());
    if method == Asks::CallTool.as_str() {
        own.string("progressToken", "1");
    }
    if let Some(trace) = trace {
        own.string("traceparent", trace.meta);
        headers.push(("traceparent".to_owned(), trace.header.to_owned()));
    }
    params.member("_meta", &own.finish());
    headers.push((header::METHOD.to_owned(), method.to_owned()));
    (
        request_text(&Json::literal("1"), method, Some(&params.finish())).into_bytes(),
        headers,
    )
}
