//! Gives the messages of a connection to a recording.

use bytes::Bytes;
use fanlight_telemetry::recording::{Captured, Framing, Party, To};
use http::HeaderMap;

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
        let Some(tap) = self.telemetry.tap() else {
            return;
        };
        tap.capture(describe(Captured {
            peer: Party::Server {
                name: self.name.clone(),
            },
            connection: self.number,
            session: None,
            // All messages on a stream share its exchange.
            exchange: self.number,
            to: To::Client,
            kind: Framing::Line,
            transport: "stdio",
            revision: None,
            method: None,
            status: None,
            headers: Vec::new(),
            text: vec![text.clone()],
            cause: 0,
        }));
    }
}

/// All headers of a message.
pub(crate) fn texts_of(headers: &HeaderMap) -> Vec<(Box<str>, Bytes)> {
    let all = headers.iter();
    all.map(|(name, value)| {
        (
            name.as_str().into(),
            Bytes::copy_from_slice(value.as_bytes()),
        )
    })
    .collect()
}
