//! GET: a legacy client listens to what is said outside of calls, or comes back for the rest of a
//! stream that broke.
//!
//! Source: 2025-11-25 basic/transports, Listening for Messages from the Server, Resumability and
//! Redelivery. Must not know: what is said.

use fanlight_protocol::{Era, Revision};
use http::{HeaderMap, StatusCode};

use super::mcp::{Endpoint, Reply, bad_request};
use super::negotiate;
use super::reply::{self, Refusal};
use super::stream::EventStream;
use crate::port::Core;
use crate::session::InUse;
use crate::streams::tap::{Tap, is_resumable};
use crate::streams::{Place, room};
use crate::{era, modern};

/// What modern clients may use: "HTTP GET or DELETE to the MCP endpoint: respond with 405 Method Not
/// Allowed" (2026-07-28 streamable-http, Backward Compatibility).
const MODERN_METHODS: &str = "POST, OPTIONS";
const LAST_EVENT_ID: &str = "last-event-id";

impl<C: Core> Endpoint<C> {
    /// Opens a stream, or goes on with one.
    pub(super) fn get(&self, headers: &HeaderMap) -> Reply {
        let version = super::headers::protocol_version(headers);
        if let Some(unknown) = version.filter(|version| Revision::from_name(version).is_none()) {
            return Err(bad_request(modern::unsupported(unknown)));
        }
        if era::of_message(&crate::params::Meta::default(), version) == Era::Modern {
            return Err(Refusal::method(MODERN_METHODS));
        }
        negotiate::check_get(headers)?;
        let session = self.session(headers)?;
        let tap = match headers.get(LAST_EVENT_ID) {
            Some(id) if is_resumable(session.revision()) => self.resumed(session, id.to_str().unwrap_or_default())?,
            // Earlier revisions know no such header.
            _ => self.listening(session)?,
        };
        let stream = EventStream::tapped(tap, self.settings.keep_alive);
        Ok(reply::events(stream.opening(true).into_iter().collect(), Some(stream)))
    }

    /// Where a stream cannot be resumed, one that listens begins anew, for what is to come; of a
    /// call there is no such, and its client is told. Not by 404, which would end its session.
    fn resumed(&self, session: InUse, id: &str) -> Result<Tap, Box<Refusal>> {
        let Some(place) = Place::from_id(id) else {
            let message = "\"Last-Event-ID\" names no event of this session; leave it out to open a new stream";
            return Err(Refusal::invalid(StatusCode::BAD_REQUEST, message));
        };
        if place.outside {
            self.check_open()?;
        }
        match Tap::resume(session.clone(), &self.keeping, place) {
            Some(tap) => Ok(tap),
            None if place.outside => self.listening(session),
            None => {
                let message = "what followed this event is no longer kept: send the request again if that is safe";
                Err(Refusal::invalid(StatusCode::BAD_REQUEST, message))
            }
        }
    }

    fn listening(&self, session: InUse) -> Result<Tap, Box<Refusal>> {
        self.check_open()?;
        let shared = session.shared();
        let tap = Tap::outside(session, &self.keeping);
        // Whoever reads drives it.
        drop(shared.streams.begin_listening(&self.core, &shared, room(&self.settings)));
        // `hang_up` may have passed between the first look and the tap.
        self.check_open()?;
        Ok(tap)
    }

    fn check_open(&self) -> Result<(), Box<Refusal>> {
        if self.shutdown.is_cancelled() {
            return Err(Refusal::invalid(StatusCode::SERVICE_UNAVAILABLE, "shutting down; try again later"));
        }
        Ok(())
    }
}
