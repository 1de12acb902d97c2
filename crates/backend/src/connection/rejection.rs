//! The meaning of an HTTP error status without an answer: for the request that met it, and for the connection.
//!
//! 400, 404 and 405 are how a server rejects a session that it has ended (2025-11-25 basic/transports, Session
//! Management) or requests of an era that is not its own (2026-07-28 streamable-http, Backward Compatibility). They
//! are also how a server, or what stands in front of it, may end a request that it has carried out. A request that
//! changes nothing is sent again in either case. Any other is sent again only if the server says that it is about the
//! session, or rejects requests that it must answer in the same way, so that it certainly did not run this one.

use fanlight_protocol::{Era, Method};
use fanlight_telemetry::Parent;

use super::{Connection, Failure, Loss};
use crate::request::Reply;
use fanlight_canonical::{BackendError, Call};

impl Connection {
    /// The failure of a call whose request was rejected with this status, which is `error`. `names_session`: the server
    /// speaks of a session with it.
    pub(super) async fn rejection(
        &self,
        call: &Call,
        status: u16,
        error: BackendError,
        names_session: bool,
    ) -> Failure {
        if matches!(status, 401 | 403) {
            return Failure::Final(BackendError::Unauthorized { status });
        }
        if !matches!(status, 400 | 404 | 405) {
            return Failure::Final(error);
        }
        // 2025-11-25 basic/transports, Session Management: start a new session.
        let has_ended = status == 404 && self.transport.has_session();
        let loss = if has_ended { Loss::SessionGone } else { Loss::EraDoubt };
        // The session is what the server rejects, and without one it runs nothing.
        let knows_no_session = names_session && status != 405 && self.transport.has_session();
        let is_harmless = call.method.changes_nothing();
        let is_certain = knows_no_session || (!is_harmless && self.rejects_everything(&call.context.trace).await);
        if is_harmless || is_certain {
            let error = if is_certain { error.while_connecting() } else { error };
            if loss == Loss::EraDoubt && self.is_confirmed() {
                return Failure::Final(error);
            }
            return Failure::NotRun { loss, instead: Err(error) };
        }
        match loss {
            // The specification wants a new session all the same.
            Loss::SessionGone => Failure::MayHaveRun { loss, error },
            Loss::EraDoubt | Loss::Ended | Loss::Unused | Loss::Unresponsive => Failure::Final(error),
        }
    }

    /// Whether the era has been confirmed just now. A server that then rejects a request means the request, and is not
    /// probed again and again for the sake of it.
    pub(super) fn is_confirmed(&self) -> bool {
        self.reprobed && self.since.elapsed() < self.context.timeouts.era_recheck
    }

    /// Whether the server rejects requests that every server of its era has to answer.
    async fn rejects_everything(&self, within: &Parent) -> bool {
        let mandatory: &[Method] = match self.dialect.era() {
            Era::Modern => &[Method::Discover],
            // Some servers have no `ping`.
            Era::Legacy => &[Method::Ping, Method::ListTools],
        };
        for method in mandatory {
            if !matches!(self.try_ask(within, method, None).await, Ok(Reply::Rejected { status: 400 | 404 | 405, .. }))
            {
                return false;
            }
        }
        true
    }
}
