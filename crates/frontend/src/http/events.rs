//! Writing events: those that are there at the same time go out in one piece.
//!
//! Must not know: where events come from.

use bytes::{Bytes, BytesMut};
use fanlight_protocol::json::Chunks;
use fanlight_protocol::sse;
use smallvec::SmallVec;

use super::reply::ONE_PIECE;
use crate::streams::Place;
use crate::trace::Ending;

/// Once there are so many bytes of events, what comes next waits until they have gone.
const ENOUGH: usize = ONE_PIECE;

/// Room for what stands around a text.
const FRAMING: usize = 80;

/// Text in the pieces it is sent in; nearly always one.
pub(crate) type Pieces = SmallVec<[Bytes; 1]>;
/// The spans of what is answered; nearly always of one request.
pub(crate) type Endings = SmallVec<[Box<Ending>; 1]>;

/// Events, as they are written.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) pieces: Pieces,
    /// The spans of the answers among them.
    pub(crate) endings: Endings,
}

/// Events that are being put together.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// What has been put before `text`.
    pieces: Pieces,
    text: BytesMut,
    len: usize,
    endings: Endings,
}

/// The event that carries `text`.
pub(super) fn event(text: &Chunks) -> Pieces {
    let mut events = Events::default();
    events.put(None, text.parts());
    events.finish().pieces
}

impl Events {
    /// Appends the event at `place` that carries the text in `parts`: the same bytes as
    /// [`sse::encode_message`] makes, without copying a long text that has no line breaks.
    pub(super) fn put(&mut self, place: Option<Place>, parts: &[Bytes]) {
        let len: usize = parts.iter().map(Bytes::len).sum();
        if let Some(place) = place {
            self.text.reserve(if len <= ONE_PIECE { FRAMING + len } else { FRAMING });
            place.put_id(&mut self.text);
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
    pub(super) fn put_text(&mut self, text: &[u8]) {
        self.text.extend_from_slice(text);
        self.len += text.len();
    }

    /// What has been put last answers a request, whose span this ends.
    pub(super) fn end(&mut self, ending: Option<Box<Ending>>) {
        self.endings.extend(ending);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether what comes next is to wait until this has gone.
    pub(super) fn are_enough(&self) -> bool {
        self.len >= ENOUGH
    }

    pub(super) fn finish(mut self) -> Next {
        self.seal();
        Next { pieces: self.pieces, endings: self.endings }
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
        parts.iter().map(|part| Bytes::from_static(part.as_bytes())).collect()
    }

    #[test]
    fn events_are_those_of_the_codec_whatever_their_size() {
        let long: &'static str = format!("\"{}\"", "x".repeat(2 * ONE_PIECE)).leak();
        let broken: &'static str = format!("{long}\n\r\n").leak();
        for parts in [&["{\"a\":", "1}"][..], &["[", long, "]"][..], &["[", broken, "]"][..]] {
            let whole = event(&chunks(parts)).concat();
            assert_eq!(whole, sse::encode_message(parts.concat().as_bytes()));
        }
        assert_eq!(event(&chunks(&["[", long, "]"])).len(), 5);
    }

    #[test]
    fn events_go_out_together_in_order() {
        let long: &'static str = format!("\"{}\"", "x".repeat(2 * ONE_PIECE)).leak();
        let mut events = Events::default();
        let place = Place { outside: false, stream: 3, position: 17 };
        events.put(Some(place), chunks(&["{}"]).parts());
        events.put(None, chunks(&["[", "1]"]).parts());
        assert!(!events.are_enough());
        events.put(Some(place), chunks(&[long]).parts());
        assert!(events.are_enough());
        events.put_text(b":\n\n");
        let pieces = events.finish().pieces;
        let message = "event: message\ndata: ";
        let expected = format!("id: post3-17\n{message}{{}}\n\n{message}[1]\n\nid: post3-17\n{message}{long}\n\n:\n\n");
        assert_eq!((pieces.len(), pieces.concat()), (4, expected.into_bytes()));
    }
}
