//! GET: a legacy client listens to what is said outside of calls, or comes back for the rest of a
//! stream that broke.
//!
//! Source: 2025-11-25 basic/transports, Listening for Messages from the Server, Resumability and
//! Redelivery. Must not know: what is said.

use fanlight_protocol::{Era, Revision};
use http::StatusCode;

use super::fields::Fields;
use super::mcp::{Endpoint, Reply, bad_request};
use super::reply::{self, Refusal};
use super::stream::EventStream;
use super::{headers, negotiate};
use crate::session::InUse;
use crate::streams::tap::{Tap, is_resumable};
use crate::streams::{Place, room};
use crate::{era, modern};
use fanlight_canonical::Core;

/// What modern clients may use: "HTTP GET or DELETE to the MCP endpoint: respond with 405 Method Not
/// Allowed" (2026-07-28 streamable-http, Backward Compatibility).
const MODERN_METHODS: &str = "POST, OPTIONS";
const LAST_EVENT_ID: &str = "last-event-id";

impl<C: Core> Endpoint<C> {
    /// Opens a stream, or goes on with one.
    pub(super) fn get(&self, fields: &Fields<'_>) -> Reply {
        let version = headers::protocol_version(fields);
        if let Some(unknown) = version.filter(|version| Revision::from_name(version).is_none()) {
            return Err(bad_request(modern::unsupported(unknown)));
        }
        if era::of_message(&crate::params::Meta::default(), version) == Era::Modern {
            return Err(Refusal::method(MODERN_METHODS));
        }
        negotiate::check_get(fields)?;
        let session = self.session(fields)?;
        // Earlier revisions know no such header.
        let last = fields.all.get(LAST_EVENT_ID).filter(|_| is_resumable(session.revision()));
        let place = last.map(|id| place(id.to_str().unwrap_or_default())).transpose()?;
        // The rest of a call is no stream on which a client only listens.
        let slot = match place {
            Some(place) if !place.outside => None,
            _ => Some(self.stream_slot()?),
        };
        let tap = match place {
            Some(place) => self.resumed(session, place)?,
            None => self.listening(session)?,
        };
        let stream = EventStream::tapped(tap, self.settings.keep_alive);
        let mut response = reply::events(stream.opening(true).into_iter().collect(), Some(stream));
        if let Some(slot) = slot {
            response.body_mut().occupy(slot);
        }
        Ok(response)
    }

    /// Where a stream cannot be resumed, one that listens begins anew, for what is to come; of a
    /// call there is no such, and its client is told. Not by 404, which would end its session.
    fn resumed(&self, session: InUse, place: Place) -> Result<Tap, Box<Refusal>> {
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

/// The place that a "Last-Event-ID" names.
fn place(id: &str) -> Result<Place, Box<Refusal>> {
    Place::from_id(id).ok_or_else(|| {
        let message = "\"Last-Event-ID\" names no event of this session; leave it out to open a new stream";
        Refusal::invalid(StatusCode::BAD_REQUEST, message)
    })
}
