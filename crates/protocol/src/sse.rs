//! Decodes and encodes Server-Sent Events: the event stream format of the HTML standard, section
//! 9.2.

use std::ops::Range;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// The media type of an event stream.
pub const CONTENT_TYPE: &str = "text/event-stream";

/// The text before the data of a message that has no line breaks.
pub const MESSAGE_START: &[u8] = b"event: message\ndata: ";
/// The text after the data of a message.
pub const MESSAGE_END: &[u8] = b"\n\n";

/// The longest event that may share memory with later ones, in bytes.
const SHARED: usize = 64 << 10;

/// One event that carries data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The event's type; empty means `message`.
    pub name: Bytes,
    /// The data lines, joined with line feeds.
    pub data: Bytes,
    /// The event id at the time when the event was complete.
    pub id: Option<Bytes>,
}

/// The error that an event exceeds the limit. The stream cannot be read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event larger than {limit} bytes")]
pub struct EventTooLarge {
    /// The limit in bytes.
    pub limit: usize,
}

/// Splits a byte stream into events.
///
/// Lines are read within the buffer, which is emptied once for each event.
#[derive(Debug)]
pub struct EventDecoder {
    buffer: BytesMut,
    /// How many bytes of the buffer were read. These are whole lines.
    read: usize,
    /// How many bytes of the buffer were searched for a line end.
    searched: usize,
    limit: usize,
    at_start: bool,
    /// Set if the last line ended with CR. An LF that follows belongs to the same line break.
    after_cr: bool,
    name: Bytes,
    data: Option<Data>,
    data_len: usize,
    /// The value of the last `id` field, which takes effect when its event is complete.
    id: Option<Bytes>,
    last_event_id: Option<Bytes>,
    retry_millis: Option<u64>,
}

/// The data of an event. Most events have one data line, which needs no copy.
#[derive(Debug)]
enum Data {
    /// The line is in the buffer.
    Here(Range<usize>),
    One(Bytes),
    Many(BytesMut),
}

impl EventDecoder {
    /// A decoder for events of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            read: 0,
            searched: 0,
            limit,
            at_start: true,
            after_cr: false,
            name: Bytes::new(),
            data: None,
            data_len: 0,
            id: None,
            last_event_id: None,
            retry_millis: None,
        }
    }

    /// Appends received bytes. Call [`EventDecoder::next_event`] until it returns `None` before
    /// appending again, so that the limit applies to the buffer.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next event with data. Comments and events without data are skipped.
    pub fn next_event(&mut self) -> Result<Option<Event>, EventTooLarge> {
        self.skip_byte_order_mark();
        while let Some(line) = self.next_line() {
            if line.is_empty() {
                if self.last_event_id != self.id {
                    self.last_event_id.clone_from(&self.id);
                }
                if let Some(event) = self.dispatch() {
                    return Ok(Some(event));
                }
                continue;
            }
            self.field(line)?;
        }
        self.drop_read();
        if self.buffered() > self.limit {
            return Err(EventTooLarge { limit: self.limit });
        }
        Ok(None)
    }

    /// How many bytes of the unfinished event are kept. Call this once there are no further events.
    pub fn buffered(&self) -> usize {
        self.buffer.len() + self.data_len
    }

    /// The id of the last complete event, even of one without data, from which the stream can be
    /// resumed. An empty id resets it.
    pub fn last_event_id(&self) -> Option<&Bytes> {
        self.last_event_id.as_ref().filter(|id| !id.is_empty())
    }

    /// The last reconnection time that the server asked for, in milliseconds.
    pub fn retry_millis(&self) -> Option<u64> {
        self.retry_millis
    }

    /// Whether the stream stopped within an event.
    #[cfg(test)]
    fn is_mid_event(&self) -> bool {
        self.data.is_some() || self.read < self.buffer.len()
    }

    /// Skips a byte order mark. It can only be at the start of the stream, perhaps in several
    /// pieces.
    fn skip_byte_order_mark(&mut self) {
        const MARK: &[u8] = b"\xef\xbb\xbf";
        if !self.at_start {
            return;
        }
        if self.buffer.starts_with(MARK) {
            self.buffer.advance(MARK.len());
            self.at_start = false;
        } else if !MARK.starts_with(&self.buffer) {
            self.at_start = false;
        }
    }

    /// The range of the next line, without its line break.
    fn next_line(&mut self) -> Option<Range<usize>> {
        // The line may still begin with a byte order mark.
        if self.at_start {
            return None;
        }
        if self.after_cr && self.read < self.buffer.len() {
            self.after_cr = false;
            if self.buffer.get(self.read) == Some(&b'\n') {
                self.read += 1;
            }
        }
        let from = self.searched.max(self.read);
        let fresh = self.buffer.get(from..).unwrap_or_default();
        let Some(found) = memchr::memchr2(b'\n', b'\r', fresh) else {
            self.searched = self.buffer.len();
            return None;
        };
        let line = self.read..from + found;
        self.after_cr = fresh.get(found) == Some(&b'\r');
        self.read = line.end + 1;
        Some(line)
    }

    fn field(&mut self, line: Range<usize>) -> Result<(), EventTooLarge> {
        let text = self.buffer.get(line.clone()).unwrap_or_default();
        let colon = memchr::memchr(b':', text).unwrap_or(text.len());
        let (name, rest) = text.split_at(colon);
        let value = rest.get(1..).unwrap_or_default();
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => {
                let start = line.end - value.len();
                self.add_data(start..line.end)?;
            }
            // This is true for nearly every event of every server.
            b"event" if value == b"message" => self.name = Bytes::from_static(b"message"),
            b"event" => self.name = Bytes::copy_from_slice(value),
            // A copy in its own memory, because it outlives the event.
            b"id" if !value.contains(&0) => self.id = Some(Bytes::copy_from_slice(value)),
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                if let Some(millis) = std::str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse().ok())
                {
                    self.retry_millis = Some(millis);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add_data(&mut self, place: Range<usize>) -> Result<(), EventTooLarge> {
        self.data_len += place.len() + 1;
        if self.data_len > self.limit + 1 {
            return Err(EventTooLarge { limit: self.limit });
        }
        let value = self.buffer.get(place.clone()).unwrap_or_default();
        let join = |first: &[u8]| {
            let mut joined = BytesMut::with_capacity(first.len() + value.len() + 1);
            joined.extend_from_slice(first);
            joined.put_u8(b'\n');
            joined.extend_from_slice(value);
            Data::Many(joined)
        };
        self.data = Some(match self.data.take() {
            None => Data::Here(place),
            Some(Data::Here(first)) => join(self.buffer.get(first).unwrap_or_default()),
            Some(Data::One(first)) => join(&first),
            Some(Data::Many(mut joined)) => {
                joined.put_u8(b'\n');
                joined.extend_from_slice(value);
                Data::Many(joined)
            }
        });
        Ok(())
    }

    fn dispatch(&mut self) -> Option<Event> {
        let name = std::mem::take(&mut self.name);
        self.data_len = 0;
        let data = match self.data.take()? {
            Data::Here(place) => self.split_read().slice(place),
            Data::One(data) => data,
            Data::Many(data) => data.freeze(),
        };
        Some(Event {
            name,
            data,
            id: self.id.clone(),
        })
    }

    /// Drops the lines that were read, except the data of an unfinished event.
    fn drop_read(&mut self) {
        if self.read == 0 {
            return;
        }
        if let Some(Data::Here(place)) = &self.data {
            let place = place.clone();
            self.data = Some(Data::One(self.split_read().slice(place)));
        } else {
            self.buffer.advance(self.read);
            self.searched = self.searched.saturating_sub(self.read);
            self.read = 0;
        }
    }

    /// Removes the lines that were read from the buffer.
    fn split_read(&mut self) -> Bytes {
        let lines = self.buffer.split_to(self.read).freeze();
        if lines.len() > SHARED {
            // The rest must not keep the memory of the removed lines.
            self.buffer = BytesMut::from(self.buffer.as_ref());
        }
        self.searched = self.searched.saturating_sub(self.read);
        self.read = 0;
        lines
    }
}

/// Encodes `data`, which may have line breaks, as one `message` event.
pub fn encode_message(data: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    put_message(&mut out, &[data]);
    out.freeze()
}

/// Appends a `message` event with the data in `parts`, which may have line breaks.
pub fn put_message(out: &mut BytesMut, parts: &[impl AsRef<[u8]>]) {
    out.reserve(
        MESSAGE_START.len()
            + parts.iter().map(|part| part.as_ref().len()).sum::<usize>()
            + MESSAGE_END.len(),
    );
    out.extend_from_slice(MESSAGE_START);
    let mut after_cr = false;
    for part in parts {
        let mut rest = part.as_ref();
        // A line break may be split between two parts.
        if !rest.is_empty() && std::mem::take(&mut after_cr) {
            rest = rest.strip_prefix(b"\n").unwrap_or(rest);
        }
        while let Some(at) = memchr::memchr2(b'\n', b'\r', rest) {
            let (line, tail) = rest.split_at(at);
            out.extend_from_slice(line);
            out.extend_from_slice(b"\ndata: ");
            after_cr = tail == b"\r";
            rest = tail
                .strip_prefix(b"\r\n")
                .or_else(|| tail.get(1..))
                .unwrap_or_default();
        }
        out.extend_from_slice(rest);
    }
    out.extend_from_slice(MESSAGE_END);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<Event> {
        let mut decoder = EventDecoder::new(1000);
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(chunk);
            while let Some(event) = decoder.next_event().unwrap() {
                events.push(event);
            }
        }
        events
    }

    fn data(events: &[Event]) -> Vec<&[u8]> {
        events.iter().map(|event| event.data.as_ref()).collect()
    }

    #[test]
    fn stream_is_decoded_as_in_the_standard() {
        let stream = b"\xef\xbb\xbf: comment\r\nevent: message\r\nid: 7\r\ndata: a\r\ndata:b\rdata\n\nretry: 50\n\nid\ndata: c\n\ndata: cut";
        let events = decode(&[stream]);
        assert_eq!(data(&events), [b"a\nb\n".as_slice(), b"c"]);
        assert_eq!(events[0].id.as_deref(), Some(b"7".as_slice()));
        assert_eq!(events[1].id.as_deref(), Some(b"".as_slice()));
    }

    #[test]
    fn last_event_id_is_that_of_a_complete_event() {
        let mut decoder = EventDecoder::new(1000);
        let mut id_after = |text: &str| {
            decoder.push(text.as_bytes());
            while decoder.next_event().unwrap().is_some() {}
            (decoder.last_event_id().cloned(), decoder.retry_millis())
        };
        assert_eq!(id_after("id: 1\ndata\n"), (None, None));
        assert_eq!(id_after("\n"), (Some("1".into()), None));
        assert_eq!(
            id_after(": no data\nid: 2\nretry: 70\n\n"),
            (Some("2".into()), Some(70))
        );
        assert_eq!(
            id_after("data: a\n\nretry: +5\nid: 3\ndata: cut"),
            (Some("2".into()), Some(70))
        );
        assert_eq!(id_after("\n\nid\n\n"), (None, Some(70)));
    }

    #[test]
    fn line_break_may_span_chunks() {
        assert_eq!(
            data(&decode(&[b"data: a\r", b"\n\r", b"\ndata: b\n\n"])),
            [b"a".as_slice(), b"b"]
        );
        assert_eq!(
            data(&decode(&[b"\xef", b"\xbb", b"\xbfdata: a\n\n"])),
            [b"a".as_slice()]
        );
    }

    #[test]
    fn byte_order_mark_is_skipped_at_the_start_alone() {
        let stream = b"\n\xef\xbb\xbfdata: a\n\ndata: b\n\n";
        let in_bytes: Vec<&[u8]> = stream.chunks(1).collect();
        for chunks in [vec![stream.as_slice()], in_bytes] {
            assert_eq!(
                data(&decode(&chunks)),
                [b"b".as_slice()],
                "a field of an unknown name"
            );
        }
    }

    #[test]
    fn event_over_the_limit_is_an_error() {
        let mut decoder = EventDecoder::new(10);
        decoder.push(b"data: 0123456789\n\n");
        assert_eq!(decoder.next_event().unwrap().unwrap().data, "0123456789");
        decoder.push(b"data: 01234567890\n\n");
        assert_eq!(decoder.next_event(), Err(EventTooLarge { limit: 10 }));
        let mut decoder = EventDecoder::new(10);
        decoder.push(b"data: 0123456789");
        assert!(decoder.next_event().is_err());
    }

    #[test]
    fn encoded_message_has_one_data_field_for_each_line() {
        assert_eq!(
            encode_message(b"{\n\"a\":1\r\n}"),
            "event: message\ndata: {\ndata: \"a\":1\ndata: }\n\n"
        );
    }

    #[test]
    fn lines_that_were_read_do_not_stay_in_the_buffer() {
        let mut decoder = EventDecoder::new(100);
        for _ in 0..100 {
            decoder.push(b": a comment of some length\nid: 7\n");
            assert_eq!(decoder.next_event(), Ok(None));
        }
        decoder.push(b"data: a\n");
        for _ in 0..100 {
            assert_eq!(decoder.next_event(), Ok(None));
            decoder.push(b": a comment of some length\n");
        }
        decoder.push(b"\n");
        let event = decoder.next_event().unwrap().unwrap();
        assert_eq!((event.data, event.id), ("a".into(), Some("7".into())));
        assert!(!decoder.is_mid_event());
    }

    proptest! {
        #[test]
        fn events_do_not_depend_on_chunks(messages in proptest::collection::vec("[a-z:\\n ]{1,20}", 0..6), cuts in proptest::collection::vec(1usize..7, 1..20)) {
            let stream = messages.iter().flat_map(|message| encode_message(message.as_bytes())).collect::<Vec<u8>>();
            let (mut chunks, mut rest, mut cuts) = (Vec::new(), stream.as_slice(), cuts.into_iter().cycle());
            while !rest.is_empty() {
                let (chunk, tail) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                chunks.push(chunk);
                rest = tail;
            }
            let events = decode(&chunks);
            prop_assert_eq!(data(&events), messages.iter().map(String::as_bytes).collect::<Vec<_>>());
        }

        #[test]
        fn message_in_parts_is_encoded_like_the_whole(parts in proptest::collection::vec("[a\\r\\n]{0,4}", 0..5)) {
            let mut out = BytesMut::new();
            put_message(&mut out, &parts);
            prop_assert_eq!(out.freeze(), encode_message(parts.concat().as_bytes()));
        }

        #[test]
        fn decoder_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = EventDecoder::new(50);
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.next_event() {}
        }
    }
}
