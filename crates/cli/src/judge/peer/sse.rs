//! A server of the deprecated HTTP+SSE transport (2024-11-05 basic/transports, HTTP with SSE). The
//! event stream of a GET names the URL for POSTing messages, and carries all messages of the
//! server.

use std::pin::pin;
use std::time::Duration;

use reqwest::{Method, Response, StatusCode, Url};
use serde_json::Value;
use tokio::time::timeout;

use super::http::{EventStream, Http, media_type, message_in};
use super::{Broken, LONGEST, is_answer, observe};
use crate::judge::observed::Observed;

/// The time limit for the answer to a notification or reply.
const ACCEPTED: Duration = Duration::from_secs(10);

/// A server of the HTTP+SSE transport.
pub(crate) struct Sse {
    pub(super) http: Http,
    messages: Url,
    stream: EventStream,
}

impl Sse {
    /// Opens the event stream at the URL of `http`, if the server has one that begins with the URL
    /// for messages.
    pub(super) async fn open(
        http: &Http,
        patience: Duration,
        observed: &mut Observed,
    ) -> Result<Option<Self>, Broken> {
        let opening = async {
            let request = http
                .request_to(Method::GET, http.url().clone())
                .header("accept", "text/event-stream");
            let response = request.send().await?;
            if response.status() != StatusCode::OK || media_type(&response) != "text/event-stream" {
                return Ok(None);
            }
            let mut stream = EventStream::new(response, LONGEST);
            let first = stream.next().await?;
            Ok::<_, Broken>(
                first
                    .filter(|event| event.name.as_ref() == b"endpoint")
                    .map(|event| (event, stream)),
            )
        };
        // A silent stream belongs to Streamable HTTP.
        let opened = timeout(patience, opening).await.unwrap_or(Ok(None))?;
        let Some((event, stream)) = opened else {
            return Ok(None);
        };
        let named = String::from_utf8_lossy(&event.data);
        // Requests to it may carry credentials.
        let own = http
            .url()
            .join(&named)
            .ok()
            .filter(|url| url.origin() == http.url().origin());
        let Some(messages) = own else {
            let what = "The `endpoint` event does not name a URL with the server's own scheme, host and port: clients must refuse it.";
            observed.error("sse-endpoint", what, &*named);
            return Err(Broken::Refused(
                "its `endpoint` event does not name a URL of its own origin".to_owned(),
            ));
        };
        Ok(Some(Self {
            http: http.clone(),
            messages,
            stream,
        }))
    }

    /// The answer to a request. The caller limits the time.
    pub(super) async fn exchange(
        &mut self,
        request: &Value,
        observed: &mut Observed,
    ) -> Result<Value, Broken> {
        let Self {
            http,
            messages,
            stream,
        } = self;
        let mut posting = pin!(
            http.message_to(messages.clone(), request.to_string())
                .send()
        );
        let (mut is_accepted, mut answer) = (false, None);
        loop {
            // Either may come first.
            if let Some(answer) = answer.take_if(|_| is_accepted) {
                return Ok(answer);
            }
            tokio::select! {
                posted = &mut posting, if !is_accepted => {
                    accepted(&posted?)?;
                    is_accepted = true;
                }
                event = stream.next(), if answer.is_none() => {
                    let ended = || Broken::Ended("its event stream ended without the response".to_owned());
                    let Some(message) = message_in(&event?.ok_or_else(ended)?, observed) else { continue };
                    if is_answer(&message, request) {
                        answer = Some(message);
                    } else if let Some(reply) = observe(&message, observed) {
                        let reply = http.message_to(messages.clone(), reply.to_string()).send();
                        let _ = timeout(ACCEPTED, reply).await;
                    }
                }
            }
        }
    }

    pub(super) async fn notify(&self, notification: &Value) -> Result<(), Broken> {
        let posting = self
            .http
            .message_to(self.messages.clone(), notification.to_string())
            .send();
        let posted = timeout(ACCEPTED, posting)
            .await
            .map_err(|_| Broken::Silent(ACCEPTED))?;
        accepted(&posted?)
    }
}

/// Checks that a message was accepted. The transport prescribes no status.
fn accepted(response: &Response) -> Result<(), Broken> {
    match response.status() {
        status if status.is_success() => Ok(()),
        status => Err(Broken::Refused(format!(
            "a message to its `endpoint` is answered with status {}",
            status.as_u16()
        ))),
    }
}
