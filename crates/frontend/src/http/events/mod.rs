//! Encodes events. Events that are ready at the same time are sent together.

pub(super) mod listeners;
pub(super) mod stream;

use bytes::{Bytes, BytesMut};
use fanlight_protocol::{Chunks, sse};
use smallvec::SmallVec;

use crate::streams::EventId;
use crate::trace::Ending;

/// The largest text that is copied into one piece, which is cheaper than sending several.
pub(super) const ONE_PIECE: usize = 8 << 10;

/// A batch of this many bytes gets no further events.
const ENOUGH: usize = ONE_PIECE;

/// The maximum number of bytes around a text.
const FRAMING: usize = 80;

/// Text in the pieces in which it is sent; usually one.
pub(crate) type Pieces = SmallVec<[Bytes; 1]>;
/// The ends of the spans of answered requests; usually one.
pub(crate) type Endings = SmallVec<[Box<Ending>; 1]>;

/// Events to send together.
#[derive(Debug)]
pub(crate) struct EventBatch {
    pub(crate) pieces: Pieces,
    /// The ends of the spans of answers among the events.
    pub(crate) endings: Endings,
}

/// Builds an [`EventBatch`].
#[derive(Debug, Default)]
struct EventBatchBuilder {
    /// The pieces before `text`.
    pieces: Pieces,
    text: BytesMut,
    len: usize,
    endings: Endings,
}

/// The event with `text`.
pub(super) fn event(text: &Chunks) -> Pieces {
    let mut events = EventBatchBuilder::default();
    events.put(None, text.parts());
    events.finish().pieces
}

impl EventBatchBuilder {
    /// Appends the event `id` with the text in `parts`. The bytes equal the result of
    /// [`sse::encode_message`], but a long text without line breaks is not copied.
    fn put(&mut self, id: Option<EventId>, parts: &[Bytes]) {
        let len: usize = parts.iter().map(Bytes::len).sum();
        if let Some(id) = id {
            self.text.reserve(if len <= ONE_PIECE {
                FRAMING + len
            } else {
                FRAMING
            });
            self.text.extend_from_slice(b"id: ");
            id.write(|piece| self.text.extend_from_slice(piece));
            self.text.extend_from_slice(b"\n");
        }
        let has_break = |part: &Bytes| memchr::memchr2(b'\n', b'\r', part).is_some();
        if len <= ONE_PIECE || parts.iter().any(has_break) {
            sse::put_message(&mut self.text, parts);
        } else {
            self.text.extend_from_slice(sse::MESSAGE_START);
            self.seal();
            self.pieces.extend(parts.iter().cloned());
            self.pieces.push(Bytes::from_static(sse::MESSAGE_END));
        }
        self.len += len;
    }

    /// Appends lines that are no message.
    fn put_text(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
        self.len += text.len();
    }

    /// Adds the data with which a span ends once this batch, the end of a response, has been sent.
    fn end(&mut self, ending: Option<Box<Ending>>) {
        self.endings.extend(ending);
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the batch must be sent before more is added.
    fn is_full(&self) -> bool {
        self.len >= ENOUGH
    }

    fn finish(mut self) -> EventBatch {
        self.seal();
        EventBatch {
            pieces: self.pieces,
            endings: self.endings,
        }
    }

    fn seal(&mut self) {
        if !self.text.is_empty() {
            self.pieces.push(self.text.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(parts: &[&'static str]) -> Chunks {
        parts
            .iter()
            .map(|part| Bytes::from_static(part.as_bytes()))
            .collect()
    }

    #[test]
    fn events_of_any_size_are_those_of_the_codec() {
        let long: &'static str = format!("\"{}\"", "x".repeat(2 * ONE_PIECE)).leak();
        let broken: &'static str = format!("{long}\n\r\n").leak();
        for parts in [
            &["{\"a\":", "1}"][..],
            &["[", long, "]"][..],
            &["[", broken, "]"][..],
        ] {
            let whole = event(&chunks(parts)).concat();
            assert_eq!(whole, sse::encode_message(parts.concat().as_bytes()));
        }
        assert_eq!(event(&chunks(&["[", long, "]"])).len(), 5);
    }

    #[test]
    fn events_are_batched_in_order() {
        let long: &'static str = format!("\"{}\"", "x".repeat(2 * ONE_PIECE)).leak();
        let mut events = EventBatchBuilder::default();
        let id = EventId {
            is_get: false,
            stream: 3,
            position: 17,
            tag: *b"tag-tags",
        };
        events.put(Some(id), chunks(&["{}"]).parts());
        events.put(None, chunks(&["[", "1]"]).parts());
        assert!(!events.is_full());
        events.put(Some(id), chunks(&[long]).parts());
        assert!(events.is_full());
        events.put_text(b":\n\n");
        let pieces = events.finish().pieces;
        let (id, message) = ("id: post3-17-tag-tags\n", "event: message\ndata: ");
        let expected = format!("{id}{message}{{}}\n\n{message}[1]\n\n{id}{message}{long}\n\n:\n\n");
        assert_eq!((pieces.len(), pieces.concat()), (4, expected.into_bytes()));
    }
}
