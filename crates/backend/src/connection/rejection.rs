//! The meaning of an HTTP error status without an answer: for the request that met it, and for the connection.
//!
//! 400, 404 and 405 are how a server rejects a session that it has ended (2025-11-25 basic/transports, Session
//! Management) or requests of an era that is not its own (2026-07-28 streamable-http, Backward Compatibility). They
//! are also how a server, or what stands in front of it, may end a request that it has carried out, whatever the body
//! says. A request that changes nothing is sent again in either case. Any other is sent again only if the server, asked
//! in the same session, refuses requests that it must answer as well: then it certainly did not run this one.

use fanlight_protocol::{Era, Json, Method, Response};
use fanlight_telemetry::Parent;

use super::{Connection, Failure, Loss};
use crate::request::Reply;
use fanlight_canonical::{BackendError, Call};

impl Connection {
    /// The outcome of a call whose request was rejected with this status, which is `error`. `body` is the JSON-RPC error
    /// in the body of the rejection: if the server still answers other requests, it is the call's own answer.
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
            // The specification wants a new session all the same.
            Loss::SessionGone => Err(Failure::MayHaveRun {
                loss,
                outcome: answer,
            }),
            Loss::EraDoubt | Loss::Ended | Loss::Unused | Loss::Unresponsive => {
                answer.map_err(Failure::Final)
            }
        }
    }

    /// Whether the era has been confirmed just now. A server that then rejects a request rejects it for its content,
    /// so it is not probed again.
    pub(super) fn is_confirmed(&self) -> bool {
        self.reprobed && self.since.elapsed() < self.context.timeouts.era_recheck
    }

    /// Whether the server refuses requests that every server of its era has to answer, and that change nothing: with the
    /// same status, or with the 404 of a session that it has ended.
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
