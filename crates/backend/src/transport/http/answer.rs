//! Reads the HTTP response to a request: a JSON body, an event stream, or a rejection.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use fanlight_http::client::BodyBuffer;
use fanlight_protocol::message::without_mark;
use fanlight_protocol::{DEFAULT_NESTING, Json, Message, Response, sse};
use fanlight_telemetry::metrics::Direction;
use http::header::{self, HeaderValue};
use tokio::time::timeout;

use super::client::HttpResponse;
use super::headers::SESSION_ID;
use super::{HttpTransport, REST, drain};
use crate::log::foreign_text;
use crate::memory::Arriving;
use crate::request::{ActiveRequest, Reply, SessionSigns, messages, request_number};
use fanlight_canonical::{BackendError, Pending};

/// The number of bytes to read of a body that explains a rejection.
const EXPLANATION: usize = 1 << 10;

/// The content type of a body.
enum Form {
    Json,
    Events,
    Other(String),
}

impl HttpTransport {
    /// Reads a response that is not a JSON answer.
    pub(super) fn read_other<'a>(
        &'a self,
        http: HttpResponse,
        request: &'a ActiveRequest<'_>,
    ) -> Pending<'a, Reply> {
        // Boxed, since it is large: this keeps the future of a call with a JSON answer small.
        match form(&http) {
            Form::Events if may_answer(&http) => Box::pin(self.read_events(http, request)),
            form => Box::pin(self.read_refusal(http, form, request)),
        }
    }

    /// Reads a response that cannot report success.
    async fn read_refusal(
        &self,
        http: HttpResponse,
        form: Form,
        request: &ActiveRequest<'_>,
    ) -> Result<Reply, BackendError> {
        match (http.status.as_u16(), &form) {
            (status @ (202 | 204), _) => {
                Err(malformed_error(format!("HTTP {status} without an answer")))
            }
            (200..=299, Form::Other(found)) => Err(malformed_error(format!(
                "content type {found:?}, neither JSON nor an event stream"
            ))),
            _ => Ok(self.read_rejection(http, &form, request.id).await),
        }
    }

    /// Reads an answer that fills the whole body.
    pub(super) fn read_json(
        &self,
        http: &mut HttpResponse,
        request: &ActiveRequest<'_>,
    ) -> impl Future<Output = Result<Reply, BackendError>> + Send {
        async move {
            let body = self.read_body(http).await?;
            self.record_received(http, &body);
            // Some servers of every revision send the answer in a batch.
            let found = match messages(body.clone(), true) {
                Ok(mut messages) => messages
                    .find_map(|message| match message {
                        Message::Response(response) => {
                            Some(response).filter(|it| request_number(&it.id()) == Some(request.id))
                        }
                        _ => None,
                    })
                    .ok_or_else(|| "the body does not answer the request".into()),
                Err(error) => Err(error.to_string()),
            };
            let response = match found {
                Ok(response) => response,
                Err(why) => match unaddressed_error(body) {
                    Some(error) => Response::from_error_object(&error),
                    None => return Err(malformed_error(why)),
                },
            };
            Ok(Reply::Answer {
                response,
                session: session(http, request),
            })
        }
    }

    /// The reply to a request, as a rejection if it is an error that may mean the session. An error
    /// with the request's id, or on its stream, may end a call that ran.
    pub(super) fn doubt_session(&self, reply: Reply, is_stream: bool) -> Reply {
        let Reply::Answer { response, .. } = &reply else {
            return reply;
        };
        let answers = is_stream || request_number(&response.id()).is_some();
        let error = response.error().filter(|_| self.has_session());
        match error.filter(|error| names_session(error.bytes())) {
            None => reply,
            error => Reply::Rejected {
                status: 200,
                error,
                session: SessionSigns {
                    answers,
                    is_named: true,
                },
                pause: None,
            },
        }
    }

    /// Reads the whole body; not copied if it comes in one piece.
    fn read_body(
        &self,
        http: &mut HttpResponse,
    ) -> impl Future<Output = Result<Bytes, BackendError>> + Send {
        async move {
            let too_large = || BackendError::ResponseTooLarge {
                limit: self.context.limits.message_bytes,
            };
            if http
                .content_length()
                .is_some_and(|length| length > self.context.limits.message_bytes as u64)
            {
                return Err(too_large());
            }
            let failure = |error| self.endpoint.failure(&error);
            let Some(first) = http.chunk().await.map_err(failure)? else {
                return Ok(Bytes::new());
            };
            self.count_read(first.len());
            let second = match http.content_length() {
                Some(0) => return Ok(first),
                Some(_) => Bytes::new(),
                // The body may end here.
                None => match http.chunk().await.map_err(failure)? {
                    Some(chunk) => chunk,
                    None => return Ok(first),
                },
            };
            self.count_read(second.len());
            // Boxed, since it is large: this keeps the future of a call with a short answer small.
            Box::pin(self.read_on(http, first, second)).await
        }
    }

    /// Reads the rest of a body after these pieces.
    async fn read_on(
        &self,
        http: &mut HttpResponse,
        first: Bytes,
        second: Bytes,
    ) -> Result<Bytes, BackendError> {
        let limit = self.context.limits.message_bytes;
        let failure = |error| self.endpoint.failure(&error);
        // Allocate all of it at once. If the server sends less than announced, that costs
        // addresses, not memory.
        let left = http
            .content_length()
            .and_then(|left| usize::try_from(left).ok())
            .unwrap_or_default();
        let mut arriving = Arriving::body(&self.context.memory);
        arriving.cover(first.len() + second.len() + left).await?;
        let mut whole = BodyBuffer::new(
            first.len() + second.len() + left,
            self.context.limits.spare_bytes,
        );
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&second);
        drop((first, second));
        while whole.len() <= limit {
            arriving.cover(whole.len()).await?;
            match http.read_into(&mut whole).await.map_err(failure)? {
                Some(0) => return arriving.hold(whole.freeze()).await,
                Some(read) => self.count_read(read),
                None => {
                    let Some(chunk) = http.chunk().await.map_err(failure)? else {
                        return arriving.hold(whole.freeze()).await;
                    };
                    self.count_read(chunk.len());
                    whole.extend_from_slice(&chunk);
                }
            }
        }
        Err(BackendError::ResponseTooLarge { limit })
    }

    fn count_read(&self, bytes: usize) {
        self.context
            .telemetry
            .metrics()
            .io(Direction::Receive, bytes as u64);
    }

    /// Reads an error status. If the body answers the request, it is an ordinary answer, unless the
    /// server may have forgotten the session.
    async fn read_rejection(&self, mut http: HttpResponse, form: &Form, id: i64) -> Reply {
        let (status, pause) = (http.status.as_u16(), retry_after(&http));
        self.endpoint.note_challenge(&http);
        if self.follow(&http) {
            drain(&self.endpoint, &self.context.tasks, http);
            return Reply::Redirected;
        }
        let mut session = SessionSigns::default();
        let body = match form {
            Form::Json => {
                let body = self.read_body(&mut http).await.ok();
                body.iter()
                    .for_each(|body| self.record_received(&http, body));
                body.map(without_mark)
            }
            Form::Events | Form::Other(_) => {
                if self.has_session() {
                    session.is_named = names_session(&explanation(&mut http).await);
                }
                drain(&self.endpoint, &self.context.tasks, http);
                None
            }
        };
        let Some(body) = body else {
            return Reply::Rejected {
                status,
                error: None,
                session,
                pause,
            };
        };
        session.is_named = names_session(&body);
        match Message::parse(body.clone(), DEFAULT_NESTING) {
            Ok(Message::Response(response)) if request_number(&response.id()) == Some(id) => {
                match response.error().filter(|_| self.has_session()) {
                    None => Reply::Answer {
                        response,
                        session: None,
                    },
                    error => Reply::Rejected {
                        status,
                        error,
                        session: SessionSigns {
                            answers: true,
                            ..session
                        },
                        pause,
                    },
                }
            }
            _ => {
                let error = unaddressed_error(body);
                if let Some(message) = error.as_ref().and_then(|error| error.get("message")) {
                    let message = foreign_text(message.bytes(), 200);
                    tracing::debug!(
                        backend = &*self.context.name,
                        status,
                        message,
                        "request rejected"
                    );
                }
                Reply::Rejected {
                    status,
                    error,
                    session,
                    pause,
                }
            }
        }
    }
}

/// The error in a body that is no answer by its id. An error for no request may lack the id
/// (2026-07-28 streamable-http, Sending Messages). That makes it an invalid message, but it still
/// says what happened.
fn unaddressed_error(body: Bytes) -> Option<Json> {
    let body = Json::parse(without_mark(body), DEFAULT_NESTING).ok()?;
    body.get("error").filter(Json::is_object)
}

/// The beginning of a body that says why a request was rejected.
async fn explanation(http: &mut HttpResponse) -> Vec<u8> {
    let mut text = Vec::new();
    let reading = async {
        while text.len() < EXPLANATION
            && let Ok(Some(chunk)) = http.chunk().await
        {
            text.extend_from_slice(chunk.get(..EXPLANATION).unwrap_or(&chunk));
        }
    };
    let _ = timeout(REST.1, reading).await;
    text
}

/// Whether a rejection says that there is no such session, as `Session not found`, `Server not
/// initialized` and `expect initialize request` do.
fn names_session(text: &[u8]) -> bool {
    const MISSING: [&str; 11] = [
        "not",
        "no ",
        "unknown",
        "invalid",
        "expire",
        "missing",
        "require",
        "terminated",
        "gone",
        "closed",
        "expect",
    ];
    let text = text.get(..EXPLANATION).unwrap_or(text);
    let text = String::from_utf8_lossy(text).to_ascii_lowercase();
    let text = text.replace(['_', '-'], " ");
    (text.contains("session") || text.contains("initiali"))
        && MISSING.iter().any(|word| text.contains(word))
}

/// The pause that the server asks for: `Retry-After` of a 429 or 503 (RFC 9110, 10.2.3), limited to
/// a day.
pub(super) fn retry_after(http: &HttpResponse) -> Option<Duration> {
    const LONGEST: Duration = Duration::from_secs(86_400);
    let value = http
        .headers
        .get(header::RETRY_AFTER)
        .filter(|_| matches!(http.status.as_u16(), 429 | 503))?;
    let value = value.to_str().ok()?.trim();
    let pause = match value.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(value)
            .ok()?
            .duration_since(SystemTime::now())
            .unwrap_or_default(),
    };
    Some(pause.min(LONGEST))
}

/// The session that the server assigned with its answer to `initialize`. Copied, since a header
/// would keep the whole head in memory.
pub(super) fn session(http: &HttpResponse, request: &ActiveRequest<'_>) -> Option<HeaderValue> {
    let session = http
        .headers
        .get(SESSION_ID)
        .filter(|_| HttpTransport::is_initialize(request))?;
    HeaderValue::from_bytes(session.as_bytes()).ok()
}

/// Whether a response declares its body as a single JSON answer.
pub(super) fn answers_in_json(http: &HttpResponse) -> bool {
    may_answer(http) && matches!(form(http), Form::Json)
}

/// Whether a response reports success and has a body.
fn may_answer(http: &HttpResponse) -> bool {
    http.status.is_success() && !matches!(http.status.as_u16(), 202 | 204)
}

/// Whether a body is declared as an event stream.
pub(super) fn is_events(http: &HttpResponse) -> bool {
    matches!(form(http), Form::Events)
}

fn form(http: &HttpResponse) -> Form {
    let value = http
        .headers
        .get(header::CONTENT_TYPE)
        .map(|value| value.as_bytes())
        .unwrap_or_default();
    let essence = value
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    if essence.eq_ignore_ascii_case(b"application/json") {
        Form::Json
    } else if essence.eq_ignore_ascii_case(sse::CONTENT_TYPE.as_bytes()) {
        Form::Events
    } else {
        Form::Other(foreign_text(essence, 80))
    }
}

fn malformed_error(reason: impl Into<String>) -> BackendError {
    BackendError::Malformed {
        reason: reason.into(),
    }
}
