//! Event streams: other cuts of the bytes never change the events, and the limit holds.

use fanlight_protocol::sse::{Event, EventDecoder, EventTooLarge};

use crate::cost::{Cost, bounded};
use crate::with_number;

const LIMIT: usize = 64;

pub(crate) fn check(data: &[u8]) {
    let (step, data) = with_number(data);
    let whole = bounded(data.len(), Cost::ELEMENTS, || {
        decode(data.chunks(usize::MAX))
    });
    let cut = bounded(data.len(), Cost::ELEMENTS, || {
        decode(data.chunks(step % 7 + 1))
    });
    for event in &cut.0 {
        assert!(event.data.len() <= LIMIT);
    }
    // A limit may strike earlier or later within one read, but never changes preceding events.
    let common = whole.0.len().min(cut.0.len());
    assert_eq!(whole.0[..common], cut.0[..common]);
    if whole.1.is_ok() && cut.1.is_ok() {
        assert_eq!(whole.0, cut.0);
    }
}

fn decode<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> (Vec<Event>, Result<(), EventTooLarge>) {
    let mut decoder = EventDecoder::new(LIMIT);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        loop {
            match decoder.next_event() {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(error) => return (events, Err(error)),
            }
        }
    }
    (events, Ok(()))
}
