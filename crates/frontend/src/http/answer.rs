//! The form of the answer to a POST: one JSON text, or an event stream if something precedes the
//! answer or it takes long.
//!
//! Must not know: what is asked.

use fanlight_protocol::json::Chunks;
use fanlight_protocol::{Era, code};
use http::{Response, StatusCode};
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use super::events::{self, Pieces};
use super::mcp::Endpoint;
use super::negotiate::Accepts;
use super::reply::{self, ReplyBody};
use super::request::Kept;
use super::stream::EventStream;
use crate::session::InUse;
use crate::source::{Call, Said, Source};
use crate::streams::tap::{Tap, is_pausable, is_resumable};
use fanlight_canonical::Core;

impl<C: Core> Endpoint<C> {
    /// Waits for what comes of a call first; an error if it takes long, and its client is to hear
    /// something meanwhile.
    pub(super) async fn first(&self, call: &mut Call, kept: &Kept, accepts: Accepts) -> Result<Option<Said>, Elapsed> {
        let revision = kept.revision();
        let is_told_of_pauses = revision.era() == Era::Legacy && accepts.events && is_pausable(revision);
        loop {
            let next = if accepts.events {
                // Whoever waits longer is to see signs of life, and be able to come back.
                timeout(self.settings.stream_after, call.next()).await
            } else {
                Ok(call.next().await)
            };
            if is_told_of_pauses || !matches!(next, Ok(Some(Said::Pause(_)))) {
                return next;
            }
        }
    }

    /// The response to a call of which `first` came first, in the form that suits that.
    pub(super) fn response_to(
        &self,
        call: Box<Call>,
        first: Result<Option<Said>, Elapsed>,
        kept: Kept,
        accepts: Accepts,
    ) -> Response<ReplyBody> {
        let era = kept.revision().era();
        let Kept { session, slot } = kept;
        let mut response = match first {
            Ok(Some(Said::Answer(text, error, ending))) => {
                let status = match era {
                    Era::Modern => modern_status(error),
                    Era::Legacy => StatusCode::OK,
                };
                if accepts.json || status != StatusCode::OK || session.is_none() {
                    let mut response = only(text, status, accepts);
                    response.body_mut().ends(ending);
                    response
                } else {
                    self.streamed(Some(Said::Answer(text, error, ending)), call, session)
                }
            }
            Ok(Some(said)) => self.streamed(Some(said), call, session),
            // A cancelled request gets no response (2025-11-25 basic/utilities/cancellation), and
            // what answers a POST with a request is a JSON object or a stream (basic/transports):
            // so it is a stream with nothing on it.
            Ok(None) => reply::events(Pieces::new(), None),
            Err(_) => self.streamed(None, call, session),
        };
        if let Some(slot) = slot {
            response.body_mut().occupy(slot);
        }
        response
    }

    /// The event stream of what `call` has `said` and will say; nothing yet if it takes long.
    fn streamed(&self, said: Option<Said>, call: Box<Call>, session: Option<InUse>) -> Response<ReplyBody> {
        let quiet = said.is_none();
        // Nothing comes after an answer.
        let mut source = if matches!(said, Some(Said::Answer(..))) { Source::default() } else { Source::from(*call) };
        if let Some(said) = said {
            source.put_back(said);
        }
        self.stream(source, session, quiet)
    }

    /// The event stream of what `source` says; `quiet` if it may be a while until it says anything.
    pub(super) fn stream(&self, source: Source, session: Option<InUse>, quiet: bool) -> Response<ReplyBody> {
        let keep_alive = self.settings.keep_alive;
        let stream = match session.filter(|session| is_resumable(session.revision())) {
            Some(session) => EventStream::tapped(Tap::call(session, &self.keeping, source), keep_alive),
            None => EventStream::plain(source, keep_alive),
        };
        reply::events(stream.opening(quiet).into_iter().collect(), Some(stream))
    }
}

/// A response that nothing precedes.
pub(super) fn only(text: Chunks, status: StatusCode, accepts: Accepts) -> Response<ReplyBody> {
    if accepts.json || status != StatusCode::OK {
        reply::json(status, text)
    } else {
        reply::events(events::event(&text), None)
    }
}

/// The HTTP status that a modern revision gives an error (2026-07-28 streamable-http, Protocol
/// Version Header and Server Validation; basic/index, Per-request protocol fields).
pub(super) fn modern_status(error: Option<i64>) -> StatusCode {
    match error {
        Some(code::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(code::HEADER_MISMATCH | code::MISSING_CLIENT_CAPABILITY | code::UNSUPPORTED_PROTOCOL_VERSION) => {
            StatusCode::BAD_REQUEST
        }
        _ => StatusCode::OK,
    }
}
