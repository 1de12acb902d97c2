//! The meaning of an HTTP error status without an answer, for its request and for the connection.
//!
//! A server uses 400, 404 and 405 to reject an ended session (2025-11-25 basic/transports, Session
//! Management), or requests of another era (2026-07-28 streamable-http, Backward Compatibility).
//! But a server, or a proxy in front of it, may also end an executed request with them, whatever
//! the body says.
//!
//! A request that changes nothing is repeated in either case. Any other request is repeated only if
//! it certainly did not run: the server, asked in the same session, also refuses requests that it
//! must answer.
//!
//! Servers also reject ended sessions with other statuses, or with an error that has the request's
//! id. As requests have such outcomes too, the server is asked in the same session in any case.
//! Some even answer every request in an ended session with an error of any kind, or with nothing.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fanlight_protocol::{Json, Response, code};
use fanlight_telemetry::Parent;

use super::{Connection, Failure, Loss};
use crate::request::{Reply, SessionSigns};
use fanlight_canonical::{BackendError, Call};

/// How long a verdict on the era counts as fresh: a request that the server rejects meanwhile is rejected for its own sake.
const ERA_RECHECK: Duration = Duration::from_secs(5);

impl Connection {
    /// The outcome of a call whose request was rejected with `status`; `error` describes it. `body`
    /// is the JSON-RPC error in the rejection's body. If the server still answers other requests,
    /// `body` is the call's answer.
    pub(super) async fn rejection(
        &self,
        call: &Call,
        (status, signs): (u16, SessionSigns),
        error: BackendError,
        body: Option<Json>,
    ) -> Result<Response, Failure> {
        let is_of_connection = matches!(status, 400 | 404 | 405) && !signs.answers;
        if !is_of_connection {
            return self
                .unusual_rejection(call, (status, signs), error, body)
                .await;
        }
        let is_harmless = call.method.changes_nothing();
        let is_certain = !is_harmless
            && self
                .refuses_everything(Some(status), &call.context.trace)
                .await;
        // 2025-11-25 basic/transports, Session Management: start a new session.
        let has_ended = status == 404 || (is_certain && signs.is_named);
        let loss = if has_ended && self.transport.has_session() {
            Loss::SessionGone
        } else {
            Loss::EraDoubt
        };
        if is_harmless || is_certain {
            let error = if is_certain {
                error.while_connecting()
            } else {
                error
            };
            if loss == Loss::EraDoubt && self.is_confirmed() {
                return Err(Failure::Final(error));
            }
            return Err(Failure::NotRun {
                loss,
                instead: Err(error),
            });
        }
        let answer = body
            .map(|error| Response::from_error_object(&error))
            .ok_or(error);
        match loss {
            // The specification requires a new session nevertheless.
            Loss::SessionGone => Err(Failure::MayHaveRun {
                loss,
                outcome: answer,
            }),
            Loss::EraDoubt | Loss::Ended | Loss::Unused | Loss::Unresponsive => {
                answer.map_err(Failure::Final)
            }
        }
    }

    /// The outcome of a rejection that has a status for the request or an error with its id. It
    /// means an ended session only if the server refuses everything in the session.
    async fn unusual_rejection(
        &self,
        call: &Call,
        (status, signs): (u16, SessionSigns),
        error: BackendError,
        body: Option<Json>,
    ) -> Result<Response, Failure> {
        let may_concern_session = match (self.transport.http(), status) {
            (Some(http), _) if !http.has_session() => false,
            (None, _) => false,
            _ if signs.is_named => true,
            // Credentials may have expired.
            (Some(http), 401 | 403) => !http.has_credentials(),
            // The server or a proxy is overloaded.
            (_, 408 | 425 | 429 | 501..) => false,
            _ => !self.is_confirmed(),
        };
        let refuses = may_concern_session
            && self
                .refuses_everything(Some(status), &call.context.trace)
                .await;
        let outcome = match (body.filter(|_| signs.answers || status == 200), status) {
            (Some(error), _) => Ok(Response::from_error_object(&error)),
            (None, 401 | 403) => Err(BackendError::Unauthorized { status }),
            (None, _) => Err(error),
        };
        // Another replica of the server may know the session.
        let is_gone = refuses || (status == 404 && signs.is_named && may_concern_session);
        if !is_gone {
            return outcome.map_err(Failure::Final);
        }
        // A failure may come after the request ran, and last. So may an answer.
        let loss = Loss::SessionGone;
        let may_be_late = status == 200 && signs.answers;
        let did_not_run = refuses && (status < 500 || signs.is_named) && !may_be_late;
        Err(if did_not_run || call.method.changes_nothing() {
            Failure::NotRun {
                loss,
                instead: outcome.map_err(BackendError::while_connecting),
            }
        } else {
            Failure::MayHaveRun { loss, outcome }
        })
    }

    /// Whether the era has just been confirmed. If such a server rejects a request, the cause is
    /// the request's content, and another probe would not help.
    fn is_confirmed(&self) -> bool {
        self.reprobed && self.since.elapsed() < ERA_RECHECK
    }

    /// Whether the server refuses everything in the session, as it refused a stream with `status`.
    pub(crate) async fn has_lost_session(&self, status: u16) -> bool {
        self.refuses_everything(Some(status), &self.context.root)
            .await
    }

    /// Whether the outcome of a call is a reason to ask whether the server has forgotten the session:
    /// each failure of a list, which clients would miss, and every second one of other calls.
    pub(super) fn doubts_session(
        &self,
        call: &Call,
        outcome: &Result<Response, BackendError>,
    ) -> bool {
        let has_failed = match outcome {
            Ok(response) => {
                response.is_error() && response.error_code() != Some(code::METHOD_NOT_FOUND)
            }
            Err(error) => matches!(error, BackendError::Malformed { .. }),
        };
        has_failed
            && self.transport.session().is_some()
            && !self.is_confirmed()
            && (call.method.is_list() || self.has_failed.fetch_not(Ordering::Relaxed))
    }

    /// The outcome of a call, unless the server has forgotten the session. A call that may have run
    /// is not repeated.
    pub(super) async fn unless_forgotten(
        &self,
        call: &Call,
        outcome: Result<Response, BackendError>,
    ) -> Result<Response, Failure> {
        if !self.refuses_everything(None, &call.context.trace).await {
            return Ok(outcome?);
        }
        let loss = Loss::SessionGone;
        Err(if call.method.changes_nothing() {
            Failure::NotRun {
                loss,
                instead: outcome,
            }
        } else {
            Failure::MayHaveRun { loss, outcome }
        })
    }

    /// Whether the server refuses harmless requests that every server should answer, with
    /// the same status or with the 404 of an ended session. `None` also stands for errors and
    /// malformed answers with a status of success.
    async fn refuses_everything(&self, status: Option<u16>, within: &Parent) -> bool {
        for method in self.revision().harmless {
            let (refused, code) = match self.try_ask(within, method, None).await {
                Ok(Reply::Rejected {
                    status,
                    error,
                    session,
                    ..
                }) => {
                    let error = error.filter(|_| session.answers);
                    (status, error.and_then(|error| error.get("code")?.as_i64()))
                }
                Ok(Reply::Answer { response, .. }) if status.is_none() && response.is_error() => {
                    (200, response.error_code())
                }
                Err(BackendError::Malformed { .. }) if status.is_none() => (200, None),
                _ => return false,
            };
            // The server answers, but does not know the method.
            let is_unknown = code == Some(code::METHOD_NOT_FOUND);
            if is_unknown || ![404, status.unwrap_or(200)].contains(&refused) {
                return false;
            }
        }
        true
    }
}
