//! A Streamable HTTP server.

use std::time::Duration;

use fanlight_protocol::sse::{Event, EventDecoder};
use fanlight_protocol::{Era, header};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;
use tokio::time::timeout;

use super::{Broken, LONGEST, is_answer, observe};
use crate::judge::Patience;
use crate::judge::observed::{Observed, shortened};

/// The time limit for reading the metadata of a server that requires credentials.
const METADATA: Duration = Duration::from_secs(5);
/// The most authorization servers that are shown.
const MOST_ISSUERS: usize = 4;

/// A Streamable HTTP server, and the session with it.
#[derive(Clone)]
pub(crate) struct Http {
    client: reqwest::Client,
    url: Url,
    era: Era,
    headers: HeaderMap,
    session: Option<HeaderValue>,
    pub(super) revision: Option<String>,
}

/// The events of a response.
pub(super) struct EventStream {
    response: Response,
    decoder: EventDecoder,
}

impl EventStream {
    pub(super) fn new(response: Response) -> Self {
        Self {
            response,
            decoder: EventDecoder::new(LONGEST),
        }
    }

    /// The next event with data; `None` at the end. Can be dropped and called again.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Broken> {
        loop {
            let too_long = |_| Broken::Refused("an event is too long".to_owned());
            match self.decoder.next_event().map_err(too_long)? {
                Some(event) if event.data.is_empty() => {}
                Some(event) => return Ok(Some(event)),
                None => match self
                    .response
                    .chunk()
                    .await
                    .map_err(|error| broken(&error))?
                {
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
        headers: &[(String, String)],
        era: Era,
        patience: Patience,
    ) -> Result<Self, Broken> {
        let wrong = |what: String| Broken::Unreachable(what);
        let url =
            Url::parse(url).map_err(|error| wrong(format!("the URL cannot be read: {error}")))?;
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(patience.start)
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes())
                .map_err(|error| wrong(format!("{name:?}: {error}")))?;
            let mut value = HeaderValue::from_str(value)
                .map_err(|error| wrong(format!("header {name}: {error}")))?;
            value.set_sensitive(true);
            all.append(name, value);
        }
        Ok(Self {
            client,
            url,
            era,
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
            if self.era == Era::Modern {
                let what = "It opens a session for a client of 2026-07-28, which has none.";
                observed.warn("modern-session", what, "Mcp-Session-Id in a response");
            }
            self.session = Some(session.clone());
        }
        let status = response.status();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(Broken::Unauthorized(self.wanted(&response).await));
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
                        let said = message
                            .get("error")
                            .and_then(|error| error.get("message"))
                            .and_then(Value::as_str);
                        let said = shortened(said.unwrap_or_default());
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
    async fn wanted(&self, response: &Response) -> String {
        let status = response.status().as_u16();
        let challenge = response
            .headers()
            .get("www-authenticate")
            .and_then(|value| value.to_str().ok());
        let challenge = challenge.unwrap_or_default().to_owned();
        let has_credentials = self.headers.contains_key("authorization");
        if !challenge
            .trim_start()
            .to_ascii_lowercase()
            .starts_with("bearer")
        {
            let what = if has_credentials {
                "does not accept these credentials"
            } else {
                "requires credentials"
            };
            return format!("it {what} (status {status}): give them with --header");
        }
        let issuers = self.issuers(&challenge).await;
        let from = if issuers.is_empty() {
            String::new()
        } else {
            format!(" of {}", issuers.join(" or "))
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

    /// The authorization servers in the server's metadata, which are only read from the server
    /// itself.
    async fn issuers(&self, challenge: &str) -> Vec<String> {
        let named = challenge
            .split_once("resource_metadata=\"")
            .and_then(|(_, rest)| rest.split('"').next());
        let usual = || {
            self.url.join(&format!(
                "/.well-known/oauth-protected-resource{}",
                self.url.path()
            ))
        };
        let url = named
            .map_or_else(usual, Url::parse)
            .ok()
            .filter(|url| url.origin() == self.url.origin());
        let Some(url) = url else { return Vec::new() };
        let metadata = async { read(self.client.get(url).send().await.ok()?).await.ok() };
        let metadata = timeout(METADATA, metadata)
            .await
            .ok()
            .flatten()
            .unwrap_or_default();
        let metadata: Value = serde_json::from_slice(&metadata).unwrap_or_default();
        let all = metadata
            .get("authorization_servers")
            .and_then(Value::as_array);
        all.into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .take(MOST_ISSUERS)
            .map(shortened)
            .collect()
    }

    async fn read_stream(
        &self,
        response: Response,
        request: &Value,
        observed: &mut Observed,
    ) -> Result<Value, Broken> {
        let mut stream = EventStream::new(response);
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
        let Some(session) = self.session.clone().filter(|_| self.era == Era::Legacy) else {
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
    pub(super) fn request_to(&self, method: Method, url: Url) -> RequestBuilder {
        self.client
            .request(method, url)
            .headers(self.headers.clone())
    }

    /// A request with this message.
    pub(super) fn message_to(&self, url: Url, message: &Value) -> RequestBuilder {
        let mut request = self
            .request_to(Method::POST, url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(message.to_string());
        if let Some(revision) = &self.revision {
            request = request.header(header::PROTOCOL_VERSION, revision);
        }
        request
    }

    /// The server's URL.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    async fn post(&self, message: &Value) -> Result<Response, Broken> {
        let mut request = self.message_to(self.url.clone(), message);
        match (self.era, &self.session) {
            (Era::Legacy, Some(session)) => {
                request = request.header(header::SESSION_ID, session.clone());
            }
            (Era::Modern, _) => {
                let method = message
                    .get("method")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                request = request.header(header::METHOD, method);
            }
            _ => {}
        }
        request.send().await.map_err(|error| broken(&error))
    }
}

async fn read(mut response: Response) -> Result<Vec<u8>, Broken> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| broken(&error))? {
        if body.len() + chunk.len() > LONGEST {
            return Err(Broken::Refused("a response is too long".to_owned()));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The media type of a response in lower case, without parameters; empty if there is none.
pub(super) fn media_type(response: &Response) -> String {
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
    let said = shortened(
        String::from_utf8_lossy(body)
            .lines()
            .next()
            .unwrap_or_default(),
    );
    Broken::Refused(match status.as_u16() {
        status @ 300..=399 => format!("it redirects elsewhere (status {status}): name that URL"),
        status => format!("it answered with status {status} and no message: {said}"),
    })
}

pub(super) fn broken(error: &reqwest::Error) -> Broken {
    use std::error::Error as _;
    let cause = std::iter::successors(error.source(), |cause| (*cause).source()).last();
    let cause = cause.map_or_else(String::new, |cause| format!(": {cause}"));
    if error.is_connect() {
        return Broken::Unreachable(format!("it cannot be reached{cause}"));
    }
    Broken::Ended(format!("the connection broke{cause}"))
}
