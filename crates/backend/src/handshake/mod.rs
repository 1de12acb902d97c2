//! Determines a server's era and agrees on a revision.
//!
//! 2026-07-28 basic/versioning: probe with `server/discover`; a `DiscoverResult` or a modern error
//! means modern, anything else legacy. The decisions are pure functions ([`judge_probe`],
//! [`judge_initialize`]); the rest of the module carries them out.

mod judge;

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::{Era, Json, Method, ObjectBuilder, Revision, notification_text};
use fanlight_telemetry::Parent;
use http::header::HeaderValue;

use crate::request::dialect::{Dialect, request_subject};
use crate::request::{
    ActiveRequest, OutgoingRequest, OwnRequest, Reply, RequestSpan, SentMessage, TransportContext,
    params_with, span_outcome,
};
use crate::settings::EraChoice;
use crate::transport::Transport;
use crate::transport::channel::Shared;
use crate::transport::http::{HttpTransport, MAX_REDIRECTS, too_many_redirects};
use fanlight_canonical::{BackendError, ServerSession};
use judge::{ProbeReply, Refusal, Verdict, judge_initialize, judge_probe};

/// How much later than the answer to `initialize` a process may answer the probe before it.
const LATE_ANSWER: Duration = Duration::from_millis(250);

/// The inputs of a handshake.
pub(crate) struct Handshake<'a> {
    pub(crate) context: &'a TransportContext,
    pub(crate) choice: EraChoice,
    /// Facts from the last connection.
    pub(crate) remembered: Option<Known>,
    /// Whether this connection is legacy for a client, although the base connection is modern. The
    /// handshake then only determines whether the server also has the legacy era.
    pub(crate) is_second_era: bool,
    /// Whether the configuration says that the server uses the HTTP+SSE transport.
    pub(crate) sse_first: bool,
    /// How long to wait for the answer to the probe before trying the legacy era.
    pub(crate) probe_timeout: Duration,
    /// Fanlight's own `Implementation` object.
    pub(crate) own_info: &'a Json,
    /// The span of connecting.
    pub(crate) trace: &'a Parent,
}

/// Facts about a server from an earlier connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) era: Era,
    /// Whether the server uses the deprecated HTTP+SSE transport.
    pub(crate) sse: bool,
}

impl Known {
    /// A legacy server over any transport but HTTP+SSE.
    pub(crate) const LEGACY: Self = Self {
        era: Era::Legacy,
        sse: false,
    };
}

/// The outcome of a handshake.
pub(crate) struct Agreed {
    pub(crate) transport: Transport,
    pub(crate) dialect: Dialect,
    /// The result of `initialize` or `server/discover`, as received.
    pub(crate) description: Json,
    /// Whether the handshake was taken over from another process, so that nothing was sent.
    pub(crate) is_continued: bool,
}

/// The revision that the server agreed to, and its description.
struct Opened {
    revision: Revision,
    session: Option<HeaderValue>,
    description: Json,
}

impl Handshake<'_> {
    /// Opens a transport with `open` and agrees on a revision. Calls `open` again if the server
    /// does not survive the probe. The caller limits the time.
    pub(crate) async fn run<O>(&self, open: impl Fn() -> O) -> Result<Agreed, BackendError>
    where
        O: Future<Output = Result<Transport, BackendError>>,
    {
        let transport = open().await?;
        if self.is_second_era {
            return self.open_legacy(transport, Revision::NEWEST_LEGACY).await;
        }
        let sse_first = self.sse_first || self.remembered.is_some_and(|known| known.sse);
        if sse_first && self.choice != EraChoice::Modern
            // If the transport does not fit, another server may be there by now.
            && let Some(agreed) = self.agree_by_sse(&transport).await?
        {
            return Ok(agreed);
        }
        match (self.choice, self.remembered.map(|known| known.era)) {
            (EraChoice::Legacy, _) => {
                let opened = self.initialize(&transport, Revision::NEWEST_LEGACY).await;
                self.conclude(transport, opened).await
            }
            (EraChoice::Auto, Some(Era::Legacy)) => {
                match self.initialize(&transport, Revision::NEWEST_LEGACY).await {
                    // Another server may be there by now.
                    Err(Refusal::Era(_) | Refusal::NotHere(_)) => {
                        self.detect(transport, open).await
                    }
                    opened => self.conclude(transport, opened).await,
                }
            }
            (EraChoice::Auto | EraChoice::Modern, _) => self.detect(transport, open).await,
        }
    }

    /// Agrees on a legacy revision without a probe.
    async fn open_legacy(
        &self,
        transport: Transport,
        revision: Revision,
    ) -> Result<Agreed, BackendError> {
        let opened = self.initialize(&transport, revision).await;
        self.finish(transport, opened.map_err(Refusal::into_error)?)
            .await
    }

    async fn detect<O>(
        &self,
        transport: Transport,
        open: impl Fn() -> O,
    ) -> Result<Agreed, BackendError>
    where
        O: Future<Output = Result<Transport, BackendError>>,
    {
        // A process that was modern may start slowly again.
        let was_modern = self
            .remembered
            .is_some_and(|known| known.era == Era::Modern);
        let is_patient = was_modern && transport.http().is_none();
        match self.probe(&transport, is_patient).await {
            Ok(Probed::Agreed(opened)) => self.finish(transport, opened).await,
            Ok(Probed::Late) => {
                drop(transport);
                let transport = open().await?;
                match self.probe(&transport, true).await {
                    Ok(Probed::Agreed(opened)) => self.finish(transport, opened).await,
                    Ok(Probed::Late | Probed::Crashed(_)) => Err(BackendError::ClosedEarly),
                    Err(refusal) => Err(refusal.into_error()),
                }
            }
            Ok(Probed::Crashed(revision)) => {
                // Some legacy servers exit on a request before `initialize`.
                drop(transport);
                self.open_legacy(open().await?, revision).await
            }
            Err(refusal) => self.conclude(transport, Err(refusal)).await,
        }
    }

    /// Decides by the outcome of the last attempt. A server that refuses `initialize` at this URL
    /// may use the HTTP+SSE transport (2025-11-25 basic/transports, Backwards Compatibility).
    async fn conclude(
        &self,
        transport: Transport,
        opened: Result<Opened, Refusal>,
    ) -> Result<Agreed, BackendError> {
        match opened {
            Ok(opened) => self.finish(transport, opened).await,
            Err(Refusal::NotHere(error)) => match self.agree_by_sse(&transport).await {
                Ok(Some(agreed)) => Ok(agreed),
                Err(
                    refused @ (BackendError::Malformed { .. }
                    | BackendError::InvalidHandshake { .. }),
                ) => Err(refused),
                Ok(None) | Err(_) => Err(error),
            },
            Err(refusal) => Err(refusal.into_error()),
        }
    }

    /// Agrees on a revision over the HTTP+SSE transport; `None` if the server does not have it.
    async fn agree_by_sse(&self, transport: &Transport) -> Result<Option<Agreed>, BackendError> {
        let Some(http) = transport.http() else {
            return Ok(None);
        };
        let Some(channel) = http.open_sse_transport(self.probe_timeout).await? else {
            return Ok(None);
        };
        let opened = self.open_legacy(Transport::Sse(channel), Revision::NEWEST_LEGACY);
        opened.await.map(Some)
    }

    /// Probes the server. `is_patient` waits as long as the caller, for a server that was modern.
    async fn probe(&self, transport: &Transport, is_patient: bool) -> Result<Probed, Refusal> {
        let mut asked = Revision::NEWEST_MODERN;
        let mut retried = false;
        loop {
            let mut probe = pin!(self.discover(transport, asked));
            // There is no other era to try, so a slow start may take all the time that the caller
            // allows.
            let reply = if is_patient || self.choice == EraChoice::Modern {
                Ok(probe.as_mut().await)
            } else {
                tokio::time::timeout(self.probe_timeout, probe.as_mut()).await
            };
            let silent = reply.is_err();
            let reply = reply.unwrap_or(ProbeReply::Silent {
                after: self.probe_timeout,
            });
            let crashed = matches!(reply, ProbeReply::Exited(_));
            match judge_probe(reply, self.choice, retried).map_err(Refusal::Other)? {
                Verdict::Modern {
                    revision,
                    description,
                } => {
                    return Ok(Probed::Agreed(Opened {
                        revision,
                        session: None,
                        description,
                    }));
                }
                Verdict::Retry(revision) => (asked, retried) = (revision, true),
                Verdict::Legacy(revision) if crashed => return Ok(Probed::Crashed(revision)),
                Verdict::Legacy(revision) => {
                    let opened = self.initialize(transport, revision).await;
                    // A slow modern server answers the probe late, and may refuse `initialize`.
                    let is_refused = matches!(opened, Err(Refusal::Era(_) | Refusal::NotHere(_)));
                    if silent && (opened.is_ok() || is_refused) {
                        let grace = match (transport.http(), &opened) {
                            // No other era is left.
                            (_, Err(Refusal::Era(_))) => self.probe_timeout,
                            (None, Ok(_)) => LATE_ANSWER,
                            _ => Duration::ZERO,
                        };
                        let late = tokio::time::timeout(grace, probe.as_mut()).await;
                        let late = late.map(|late| judge_probe(late, self.choice, retried));
                        if let Ok(Ok(Verdict::Modern {
                            revision,
                            description,
                        })) = late
                        {
                            // `initialize` selects the legacy era for a process (2026-07-28
                            // basic/versioning, Backward Compatibility with Initialization-Based
                            // Versions).
                            return Ok(match transport.http() {
                                None if !is_refused => Probed::Late,
                                _ => Probed::Agreed(Opened {
                                    revision,
                                    session: None,
                                    description,
                                }),
                            });
                        }
                    }
                    return match opened {
                        Ok(opened) => Ok(Probed::Agreed(opened)),
                        // A legacy server that starts slowly reads the probe late, and exits on it.
                        Err(Refusal::Other(BackendError::Exited { .. }))
                            if silent && has_read(transport) =>
                        {
                            Ok(Probed::Crashed(revision))
                        }
                        Err(refusal) => Err(refusal),
                    };
                }
            }
        }
    }

    async fn discover(&self, transport: &Transport, revision: Revision) -> ProbeReply {
        let dialect = Dialect::new(revision, self.own_info.clone());
        match self
            .send(transport, &dialect, &Method::Discover, None)
            .await
        {
            Ok(Reply::Answer { response, .. }) => ProbeReply::Answer(response),
            Ok(Reply::Redirected) => ProbeReply::Unreadable(too_many_redirects()),
            Ok(Reply::Rejected {
                status,
                error,
                pause,
                ..
            }) => ProbeReply::Rejected {
                status,
                error,
                pause,
            },
            Err(error @ BackendError::Exited { .. }) if has_read(transport) => {
                ProbeReply::Exited(error)
            }
            // The probe is not the cause of the end, so another start would end the same way.
            Err(error @ BackendError::Exited { .. }) => ProbeReply::Unreachable(error),
            Err(error) if error.is_unreachable() || error == BackendError::ShuttingDown => {
                ProbeReply::Unreachable(error)
            }
            // A modern server would refuse `initialize` for its form, which would hide that it
            // needs credentials.
            Err(error @ (BackendError::SignInWanted(_) | BackendError::NoCredentials { .. })) => {
                ProbeReply::Unreachable(error)
            }
            Err(error) => ProbeReply::Unreadable(error),
        }
    }

    async fn initialize(
        &self,
        transport: &Transport,
        revision: Revision,
    ) -> Result<Opened, Refusal> {
        let params = ObjectBuilder::new()
            .string("protocolVersion", revision.name)
            .member("capabilities", self.context.declared.capabilities())
            .member(
                "clientInfo",
                self.context
                    .declared
                    .client_info
                    .as_ref()
                    .unwrap_or(self.own_info),
            )
            .finish();
        let dialect = Dialect::new(revision, self.own_info.clone());
        let reply = self
            .send(transport, &dialect, &Method::Initialize, Some(&params))
            .await;
        match reply.map_err(Refusal::from_transport)? {
            Reply::Answer { response, session } => {
                let (revision, description) = judge_initialize(&response)?;
                Ok(Opened {
                    revision,
                    session,
                    description,
                })
            }
            Reply::Redirected => Err(Refusal::Other(too_many_redirects())),
            Reply::Rejected {
                status,
                error,
                pause,
                ..
            } => Err(Refusal::from_status(status, error.as_ref(), pause)),
        }
    }

    /// Sends `server/discover` or `initialize`, and repeats it once if the connection ends before
    /// the answer. A server may close a kept connection just as the request arrives. Both requests
    /// may safely run twice: at worst the server keeps an unused session.
    async fn send(
        &self,
        transport: &Transport,
        dialect: &Dialect,
        method: &Method,
        params: Option<&Json>,
    ) -> Result<Reply, BackendError> {
        let (mut attempt, mut redirects, mut is_repeated) = (1, 0, false);
        loop {
            let outcome = self
                .attempt(transport, dialect, method, params, attempt)
                .await;
            match outcome {
                Err(BackendError::ClosedEarly) if transport.is_http() && !is_repeated => {
                    is_repeated = true;
                }
                Ok(Reply::Redirected) if redirects < MAX_REDIRECTS => redirects += 1,
                Ok(Reply::Redirected) => return Err(too_many_redirects()),
                outcome => return outcome,
            }
            attempt += 1;
        }
    }

    async fn attempt(
        &self,
        transport: &Transport,
        dialect: &Dialect,
        method: &Method,
        params: Option<&Json>,
        attempt: u32,
    ) -> Result<Reply, BackendError> {
        let own = OwnRequest::new(self.context, self.trace);
        let departing = SentMessage {
            method,
            params,
            name: None,
            id: own.id,
            attempt,
        };
        let (mut sending, propagation) =
            RequestSpan::begin(&self.context.telemetry, self.trace, departing);
        if let Some(span) = sending.span() {
            span.set_revision(dialect.revision());
        }
        let params = params_with(&propagation, params, transport.has_headers());
        let params = params.as_deref();
        let outgoing = OutgoingRequest {
            request: ActiveRequest {
                cancellable: false,
                ..own.active(method, &sending)
            },
            task: None,
            text: dialect.request_text(own.id, method, params, &own.context),
            mirror: dialect.mirror(
                method,
                request_subject(method, params).as_ref(),
                params,
                &[],
            ),
            propagation,
        };
        // Boxed, so that the handshake's future stays small.
        let outcome = Box::pin(transport.exchange(outgoing)).await;
        // A server of the other era refuses the probe by design.
        if self.is_refused_probe(method, &outcome) {
            sending.end_without_error();
        } else {
            sending.end(method, span_outcome(&outcome));
        }
        outcome
    }

    /// Whether a server has refused a message that only asks whether it serves an era.
    fn is_refused_probe(&self, method: &Method, outcome: &Result<Reply, BackendError>) -> bool {
        let is_probe =
            self.is_second_era || (*method == Method::Discover && self.choice != EraChoice::Modern);
        is_probe
            && match outcome {
                Ok(Reply::Answer { response, .. }) => response.is_error(),
                Ok(Reply::Rejected { status, .. }) => !matches!(status, 401 | 403 | 429),
                Ok(Reply::Redirected) | Err(_) => false,
            }
    }

    async fn finish(
        &self,
        mut transport: Transport,
        opened: Opened,
    ) -> Result<Agreed, BackendError> {
        let Opened {
            revision,
            session,
            description,
        } = opened;
        transport.adopt(revision, session);
        if revision.has_sessions {
            let mut told = transport.notify(initialized_text()).await;
            // As in `send`: a server may get this twice.
            if transport.is_http() && told == Err(BackendError::ClosedEarly) {
                told = transport.notify(initialized_text()).await;
            }
            told?;
        }
        Ok(Agreed {
            transport,
            dialect: Dialect::new(revision, self.own_info.clone()),
            description: description.detached(),
            is_continued: false,
        })
    }
}

/// The agreement for a session that another process opened; `None` if it cannot be continued.
pub(crate) fn resume_session(
    mut http: HttpTransport,
    session: ServerSession,
    own_info: &Json,
) -> Option<Agreed> {
    let ServerSession {
        id,
        revision,
        description,
        moves: _,
    } = session;
    let revision = Revision::from_name(&revision).filter(|revision| revision.has_sessions)?;
    http.adopt(revision, Some(HeaderValue::from_str(&id).ok()?));
    Some(Agreed {
        transport: Transport::Http(Box::new(http)),
        dialect: Dialect::new(revision, own_info.clone()),
        description,
        is_continued: true,
    })
}

/// Whether the process may have read a message before it ended.
fn has_read(transport: &Transport) -> bool {
    !transport.channel().is_some_and(Shared::is_unread)
}

enum Probed {
    Agreed(Opened),
    /// The process ended on the probe: it is legacy, and must be started again.
    Crashed(Revision),
    /// The process has answered the probe as a modern server, but `initialize` too: it must be
    /// started again.
    Late,
}

fn initialized_text() -> Bytes {
    notification_text(Method::Initialized.as_str(), None).into_bytes()
}
