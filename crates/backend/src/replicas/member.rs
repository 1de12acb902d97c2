//! One endpoint of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fanlight_canonical::{BackendClient as _, BackendError, Call, EndpointStatus};
use fanlight_protocol::Response;

use super::load::Load;
use super::places::Place;
use crate::Backend;
use crate::health::Item;
use crate::sessions::is_no_answer;

/// One endpoint of a server.
pub(super) struct Member {
    /// The endpoint's number, which is unique among all present and earlier endpoints of the
    /// server.
    pub(super) number: u64,
    pub(super) place: Place,
    pub(super) backend: Arc<Backend>,
    pub(super) load: Load,
    /// Whether the server no longer has the endpoint. It then gets only requests that belong to it.
    is_leaving: AtomicBool,
}

impl Member {
    pub(super) fn new(number: u64, place: Place, backend: Arc<Backend>) -> Self {
        Self {
            number,
            place,
            backend,
            load: Load::new(),
            is_leaving: AtomicBool::new(false),
        }
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    pub(super) fn set_leaving(&self, is_leaving: bool) {
        self.is_leaving.store(is_leaving, Ordering::Relaxed);
    }

    /// Sends a request to the endpoint; it was sent `earlier` times before.
    pub(super) async fn request(&self, call: Call, earlier: u32) -> Result<Response, BackendError> {
        let running = self.load.begin(Item::is_of(&call.method));
        let outcome = self.backend.send(call, earlier).await;
        // Perhaps no call comes here for a while, and nothing else would notice the loss.
        if outcome
            .as_ref()
            .is_err_and(|error| error.is_unreachable() || *error == BackendError::ClosedEarly)
        {
            self.backend.doubt();
        }
        match &outcome {
            Ok(_) => running.answered(),
            Err(error) if is_no_answer(error) => running.failed(),
            Err(_) => drop(running),
        }
        outcome
    }

    pub(super) fn status(&self) -> EndpointStatus {
        EndpointStatus {
            place: self.place.to_string(),
            state: self.backend.status().state,
            running: self.load.running(),
            latency: self.load.latency(),
            is_leaving: self.is_leaving(),
        }
    }
}
