//! Event streams: cutting the bytes differently never changes the events, and the limit holds.
#![no_main]

use fanlight_protocol::sse::{Event, EventDecoder, EventTooLarge};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 64;

fuzz_target!(|input: (usize, &[u8])| {
    let (step, data) = input;
    let whole = decode(data.chunks(usize::MAX));
    let cut = decode(data.chunks(step % 7 + 1));
    for event in &cut.0 {
        assert!(event.data.len() <= LIMIT);
    }
    // A limit may strike earlier or later within one read, but never changes what came before.
    let common = whole.0.len().min(cut.0.len());
    assert_eq!(whole.0[..common], cut.0[..common]);
    if whole.1.is_ok() && cut.1.is_ok() {
        assert_eq!(whole.0, cut.0);
    }
});

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
