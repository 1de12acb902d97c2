//! A Streamable HTTP server.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use fanlight_config::Secret;
use fanlight_grants::fetch::{self, Requests, Trust};
use fanlight_grants::oauth::{Challenge, protected_resource};
use fanlight_protocol::sse::{Event, EventDecoder};
use fanlight_protocol::visible::plain;
use fanlight_protocol::{Revision, header};
use http::header::{AUTHORIZATION, LOCATION, WWW_AUTHENTICATE};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;
use tokio::time::timeout;

use super::{Broken, LONGEST, is_answer, observe};
use crate::judge::observed::{Observed, shorten};

/// The time limit for reading the metadata of a server that requires credentials.
const METADATA: Duration = Duration::from_secs(5);
/// The most authorization servers that are shown.
const MOST_ISSUERS: usize = 4;

/// A Streamable HTTP server, and the session with it.
#[derive(Clone)]
pub(crate) struct Http {
    client: reqwest::Client,
    url: Url,
    asked: Revision,
    headers: HeaderMap,
    session: Option<HeaderValue>,
    pub(crate) revision: Option<String>,
}

/// The events of a response.
pub struct EventStream {
    response: Response,
    decoder: EventDecoder,
}

impl EventStream {
    /// The events of `response`, each with at most `longest` bytes.
    pub(crate) fn new(response: Response, longest: usize) -> Self {
        Self {
            response,
            decoder: EventDecoder::new(longest),
        }
    }

    /// The next event with data; `None` at the end. Can be dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, Broken> {
        loop {
            let too_long = |_| Broken::Refused("an event is too long".to_owned());
            match self.decoder.next_event().map_err(too_long)? {
                Some(event) if event.data.is_empty() => {}
                Some(event) => return Ok(Some(event)),
                None => match self.response.chunk().await? {
                    Some(chunk) => self.decoder.push(&chunk),
                    None => return Ok(None),
                },
            }
        }
    }
}

/// The message in an event. Adds a finding if the event contains none.
pub(super) fn message_in(event: &Event, observed: &mut Observed) -> Option<Value> {
    let message = serde_json::from_slice(&event.data).ok();
    if message.is_none() {
        let what = "An event of a stream is not a message.";
        observed.error("event-noise", what, String::from_utf8_lossy(&event.data));
    }
    message
}

impl Http {
    pub(crate) fn new(
        url: &str,
        headers: &[(String, Secret)],
        asked: Revision,
        connect: Duration,
    ) -> Result<Self, Broken> {
        let wrong = |what: String| Broken::Unreachable(what);
        let url =
            Url::parse(url).map_err(|error| wrong(format!("the URL cannot be read: {error}")))?;
        let client = fetch::builder()
            .connect_timeout(connect)
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|error| wrong(format!("{name:?}: {error}")))?;
            let value = fetch::secret_value(value.expose())
                .map_err(|error| wrong(format!("header {name}: {error}")))?;
            all.append(name, value);
        }
        Ok(Self {
            client,
            url,
            asked,
            headers: all,
            session: None,
            revision: None,
        })
    }

    /// The answer to a request. The caller limits the time.
    pub(super) async fn exchange(
        &mut self,
        request: &Value,
        observed: &mut Observed,
    ) -> Result<Value, Broken> {
        let response = self.post(request).await?;
        if let Some(session) = response.headers().get(header::SESSION_ID) {
            if !self.asked.has_sessions {
                let what = "It opens a session for a client of 2026-07-28, which has none.";
                observed.warn("modern-session", what, "Mcp-Session-Id in a response");
            }
            self.session = Some(session.clone());
        }
        let status = response.status();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(Broken::Unauthorized(
                self.describe_challenge(&response).await,
            ));
        }
        let kind = media_type(&response);
        match kind.as_str() {
            "text/event-stream" => self.read_stream(response, request, observed).await,
            _ => {
                let body = read(response).await?;
                let message: Option<Value> =
                    serde_json::from_slice(&body).ok().filter(Value::is_object);
                match message {
                    // A body that answers no request may be an error page, which can be JSON too.
                    Some(message) if is_elsewhere(status) && !is_answer(&message, request) => {
                        let said = message["error"]["message"].as_str();
                        let said = shorten(said.unwrap_or_default());
                        Err(Broken::NotHere {
                            status: status.as_u16(),
                            said,
                        })
                    }
                    Some(message)
                        if message.get("result").is_some() || message.get("error").is_some() =>
                    {
                        if kind != "application/json" {
                            let what = "A response has another content type than `application/json` or `text/event-stream`.";
                            observed.error("content-type", what, kind.as_str());
                        }
                        if message.get("id") != request.get("id") && message.get("error").is_none()
                        {
                            let what = "A response has another `id` than its request.";
                            observed.error("response-id", what, format!("{:?}", message.get("id")));
                        }
                        Ok(message)
                    }
                    _ => Err(refusal(status, &body)),
                }
            }
        }
    }

    /// Describes which credentials a server requires, from its challenge (RFC 9110, 11.6.1) and its
    /// metadata (RFC 9728).
    async fn describe_challenge(&self, response: &Response) -> String {
        let status = response.status().as_u16();
        let has_credentials = self.headers.contains_key(AUTHORIZATION);
        let challenges = response.headers().get_all(WWW_AUTHENTICATE);
        let Some(challenge) = Challenge::from_headers(challenges) else {
            let what = if has_credentials {
                "does not accept these credentials"
            } else {
                "requires credentials"
            };
            return format!("it {what} (status {status}): give them with --header");
        };
        let issuers = timeout(METADATA, self.issuers(&challenge)).await;
        let from = match issuers.ok().flatten().unwrap_or_default().join(" or ") {
            none if none.is_empty() => none,
            issuers => format!(" of {issuers}"),
        };
        let what = if has_credentials {
            "does not accept this access token; it requires one"
        } else {
            "requires an access token"
        };
        format!(
            "it {what}{from} (OAuth, status {status}): give one with `--header 'Authorization: Bearer …'`"
        )
    }

    /// The authorization servers in the server's metadata.
    async fn issuers(&self, challenge: &Challenge) -> Option<Vec<String>> {
        let requests = Requests::new(&Trust::in_server(self.url.clone())).ok()?;
        let metadata = challenge.resource_metadata.as_ref();
        let found = protected_resource(&requests, &self.url, metadata).await;
        let issuers = found.ok()??.authorization_servers.into_iter();
        let shown = issuers.take(MOST_ISSUERS).map(|issuer| shorten(&issuer));
        Some(shown.collect())
    }

    async fn read_stream(
        &self,
        response: Response,
        request: &Value,
        observed: &mut Observed,
    ) -> Result<Value, Broken> {
        let mut stream = EventStream::new(response, LONGEST);
        while let Some(event) = stream.next().await? {
            let Some(message) = message_in(&event, observed) else {
                continue;
            };
            if is_answer(&message, request) {
                return Ok(message);
            }
            if let Some(reply) = observe(&message, observed) {
                // A server that does not accept the reply keeps waiting for it, and then appears as
                // silent.
                let _ = timeout(Duration::from_secs(10), self.post(&reply)).await;
            }
        }
        Err(Broken::Ended(
            "its event stream ended without the response".to_owned(),
        ))
    }

    pub(crate) async fn notify(
        &mut self,
        notification: &Value,
        observed: &mut Observed,
    ) -> Result<(), Broken> {
        let response = timeout(Duration::from_secs(10), self.post(notification)).await;
        let status = response
            .map_err(|_| Broken::Silent(Duration::from_secs(10)))??
            .status();
        if status != StatusCode::ACCEPTED {
            let what = "It answers a notification with another status than 202.";
            observed.error("notification-status", what, status.as_u16().to_string());
        }
        Ok(())
    }

    /// Ends the session, which a server need not permit.
    pub(crate) async fn close(self) {
        let Some(session) = self.session.clone().filter(|_| self.asked.has_sessions) else {
            return;
        };
        let request = self
            .client
            .delete(self.url)
            .headers(self.headers)
            .header(header::SESSION_ID, session);
        let _ = timeout(Duration::from_secs(5), request.send()).await;
    }

    /// A request with the common headers.
    pub(crate) fn request_to(&self, method: Method, url: Url) -> RequestBuilder {
        self.client
            .request(method, url)
            .headers(self.headers.clone())
    }

    /// A request with this message.
    pub(crate) fn message_to(&self, url: Url, message: impl Into<Body>) -> RequestBuilder {
        let mut request = self
            .request_to(Method::POST, url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(message);
        if let Some(revision) = &self.revision {
            request = request.header(header::PROTOCOL_VERSION, revision);
        }
        request
    }

    /// The server's URL.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    async fn post(&self, message: &Value) -> Result<Response, Broken> {
        let mut request = self.message_to(self.url.clone(), message.to_string());
        if self.asked.mirrored.is_some() {
            let method = message["method"].as_str().unwrap_or_default();
            request = request.header(header::METHOD, method);
        } else if let Some(session) = &self.session {
            request = request.header(header::SESSION_ID, session.clone());
        }
        send(request).await
    }
}

/// Sends a request. Redirects are not followed: credentials go only to the URL that the user named.
pub(crate) async fn send(request: RequestBuilder) -> Result<Response, Broken> {
    let response = request.send().await?;
    let status = response.status();
    if !status.is_redirection() {
        return Ok(response);
    }
    let place = response
        .headers()
        .get(LOCATION)
        .and_then(|place| response.url().join(place.to_str().ok()?).ok());
    let place = place.map_or_else(|| "elsewhere".to_owned(), |url| plain(url.as_str(), 500));
    Err(Broken::Refused(format!(
        "it redirects to {place} (status {}), which Fanlight does not follow: name that URL if it is the one you mean",
        status.as_u16()
    )))
}

/// The body of a response.
pub(crate) async fn read(mut response: Response) -> Result<Bytes, Broken> {
    let body = fetch::body_of(&mut response, LONGEST).await;
    let too_long = || Broken::Refused("a response is too long".to_owned());
    body?.ok_or_else(too_long)
}

/// The media type of a response in lower case, without parameters; empty if there is none.
pub(crate) fn media_type(response: &Response) -> String {
    let kind = response
        .headers()
        .get("content-type")
        .and_then(|kind| kind.to_str().ok())
        .unwrap_or_default();
    kind.split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Whether a server of the deprecated transport may answer a POST to its event stream with this
/// status (2025-11-25 basic/transports, Backwards Compatibility).
fn is_elsewhere(status: StatusCode) -> bool {
    matches!(status.as_u16(), 400 | 404 | 405)
}

fn refusal(status: StatusCode, body: &[u8]) -> Broken {
    if is_elsewhere(status) {
        return Broken::NotHere {
            status: status.as_u16(),
            said: String::new(),
        };
    }
    let said = shorten(
        String::from_utf8_lossy(body)
            .lines()
            .next()
            .unwrap_or_default(),
    );
    Broken::Refused(format!(
        "it answered with status {} and no message: {said}",
        status.as_u16()
    ))
}

/// The first cause of an error.
pub(crate) fn root_cause(error: &dyn Error) -> Option<&dyn Error> {
    std::iter::successors(error.source(), |cause| (*cause).source()).last()
}

impl From<reqwest::Error> for Broken {
    fn from(error: reqwest::Error) -> Self {
        let cause = root_cause(&error).map_or_else(String::new, |cause| format!(": {cause}"));
        if error.is_connect() {
            return Self::Unreachable(format!("it cannot be reached{cause}"));
        }
        Self::Ended(format!("the connection broke{cause}"))
    }
}
