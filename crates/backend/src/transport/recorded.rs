//! Gives the messages of a connection to a recording.

use bytes::Bytes;
use fanlight_telemetry::recording::{Captured, Party};

use crate::request::TransportContext;

/// The exchange of a recorded HTTP request. Without a recording, its numbers are 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecordedExchange {
    pub(crate) number: u64,
    /// The exchange with the client that caused it.
    pub(crate) cause: u64,
    pub(crate) revision: Option<&'static str>,
}

impl TransportContext {
    /// Gives a message to the recording, if there is one. `describe` adds
    /// facts to those that all messages of the connection share.
    #[inline]
    pub(crate) fn record(&self, text: &Bytes, describe: impl FnOnce(Captured) -> Captured) {
        if let Some(tap) = self.telemetry.tap() {
            tap.capture(|| {
                let name = self.name.clone();
                let peer = Party::Server { name };
                describe(Captured::line(peer, self.number, text.clone()))
            });
        }
    }
}
