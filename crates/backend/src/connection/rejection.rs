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

use std::time::Duration;

use fanlight_protocol::{Era, Json, Method, Response};
use fanlight_telemetry::Parent;

use super::{Connection, Failure, Loss};
use crate::request::Reply;
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
        status: u16,
        error: BackendError,
        body: Option<Json>,
    ) -> Result<Response, Failure> {
        if matches!(status, 401 | 403) {
            return Err(Failure::Final(BackendError::Unauthorized { status }));
        }
        if !matches!(status, 400 | 404 | 405) {
            return Err(Failure::Final(error));
        }
        // 2025-11-25 basic/transports, Session Management: start a new session.
        let has_ended = status == 404 && self.transport.has_session();
        let loss = if has_ended {
            Loss::SessionGone
        } else {
            Loss::EraDoubt
        };
        let is_harmless = call.method.changes_nothing();
        let is_certain = !is_harmless && self.refuses_everything(status, &call.context.trace).await;
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

    /// Whether the era has just been confirmed. If such a server rejects a request, the cause is
    /// the request's content, and another probe would not help.
    pub(super) fn is_confirmed(&self) -> bool {
        self.reprobed && self.since.elapsed() < ERA_RECHECK
    }

    /// Whether the server refuses harmless requests that every server of its era must answer, with
    /// the same status or with the 404 of an ended session.
    async fn refuses_everything(&self, status: u16, within: &Parent) -> bool {
        let mandatory: &[Method] = match self.dialect.era() {
            Era::Modern => &[Method::Discover],
            // Some servers have no `ping`.
            Era::Legacy => &[Method::Ping, Method::ListTools],
        };
        for method in mandatory {
            match self.try_ask(within, method, None).await {
                Ok(Reply::Rejected {
                    status: refused, ..
                }) if refused == status || refused == 404 => {}
                _ => return false,
            }
        }
        true
    }
}
