//! GET: a legacy client listens to messages outside of calls, or resumes a broken stream.
//!
//! Source: 2025-11-25 basic/transports, Listening for Messages from the Server, Resumability and
//! Redelivery.

use http::StatusCode;
use tokio_util::sync::CancellationToken;

use super::super::arrived::{Arrived, stream_permit};
use super::super::events::stream::EventStream;
use super::super::fields::Fields;
use super::super::negotiate;
use super::super::reply::{self, Refusal, Reply};
use super::{Endpoint, NamedSession, headers};
use crate::eras::{self, modern};
use crate::ingress::Origin;
use crate::streams::{ActiveSession, EventId, StreamReader};

/// The HTTP methods for modern clients: "HTTP GET or DELETE to the MCP endpoint: respond with 405
/// Method Not Allowed" (2026-07-28 streamable-http, Backward Compatibility).
const MODERN_METHODS: &str = "POST, OPTIONS";

impl Endpoint {
    /// Opens or resumes a stream.
    pub(super) async fn get(
        &self,
        arrived: &Arrived<'_>,
        origin: &Origin<'_>,
        named: NamedSession,
    ) -> Reply {
        let (fields, shutdown) = (&arrived.fields, arrived.active.shutdown());
        negotiate::check_get(fields)?;
        let session = super::require_session(named)?;
        // Earlier revisions do not have this header.
        let last = fields
            .last_event_id
            .first_value()
            .filter(|_| session.session.revision().resumes_streams);
        let last = last
            .map(|id| event_id(id.to_str().unwrap_or_default()))
            .transpose()?;
        // The rest of a call's stream does not count as listen-only.
        let permit = match last {
            Some(id) if !id.is_get => None,
            _ => Some(stream_permit(self.limits.streams(), &origin.peer())?),
        };
        let reader = match last {
            Some(id) => self.resume(session, id, shutdown)?,
            None => self.listen(session, shutdown)?,
        };
        let stream = EventStream::read(reader, (&*self.settings).into());
        let mut response = reply::events(stream.opening(true).into_iter().collect(), Some(stream));
        if let Some(permit) = permit {
            response.body_mut().listen(permit, &origin.identity);
        }
        Ok(response)
    }

    /// Resumes a stream. A GET stream that cannot be resumed starts over with new messages. For a
    /// call's stream the client gets an error; not 404, which would end its session.
    fn resume(
        &self,
        session: ActiveSession,
        id: EventId,
        shutdown: &CancellationToken,
    ) -> Result<StreamReader, Box<Refusal>> {
        if id.is_get {
            check_open(shutdown)?;
        }
        match StreamReader::resume(session.clone(), &self.policy, id) {
            Some(reader) if id.is_get => Ok(reader.end_on(shutdown)),
            Some(reader) => Ok(reader),
            None if id.is_get => self.listen(session, shutdown),
            None => {
                let message = "what followed this event is no longer kept: send the request again if that is safe";
                Err(Refusal::invalid(StatusCode::BAD_REQUEST, message))
            }
        }
    }

    fn listen(
        &self,
        session: ActiveSession,
        shutdown: &CancellationToken,
    ) -> Result<StreamReader, Box<Refusal>> {
        check_open(shutdown)?;
        let reader = StreamReader::notifications(session.clone(), &self.policy).end_on(shutdown);
        drop(session.begin_listening());
        Ok(reader)
    }
}

/// Checks that a request other than a POST is of a revision with sessions.
pub(super) fn check_revision(fields: &Fields<'_>) -> Result<(), Box<Refusal>> {
    let Some(version) = headers::protocol_version(fields) else {
        return Ok(());
    };
    match eras::revision(version) {
        Some(revision) if revision.has_sessions => Ok(()),
        Some(_) => Err(Refusal::method(MODERN_METHODS)),
        None => Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            modern::unsupported_revision(version),
        )),
    }
}

fn check_open(shutdown: &CancellationToken) -> Result<(), Box<Refusal>> {
    if shutdown.is_cancelled() {
        return Err(Refusal::invalid(
            StatusCode::SERVICE_UNAVAILABLE,
            "shutting down; try again later",
        ));
    }
    Ok(())
}

fn event_id(id: &str) -> Result<EventId, Box<Refusal>> {
    EventId::parse(id).ok_or_else(|| {
        let message =
            "\"Last-Event-ID\" names no event of this session; leave it out to open a new stream";
        Refusal::invalid(StatusCode::BAD_REQUEST, message)
    })
}
