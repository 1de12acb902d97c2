//! Line framing of the stdio transport: one message per line, with a size limit.

use bytes::{Buf as _, Bytes, BytesMut};

/// How many bytes are kept of each end of an overlong line, to find the request that it answers.
/// Some senders write `id` first, others last.
const KEPT: usize = 4096;

/// The longest line that may share memory with later ones, in bytes.
const SHARED: usize = 64 << 10;

/// A line without its line break, or the ends of an overlong line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A whole line.
    Whole(Bytes),
    /// A line over the limit, which was dropped.
    TooLong {
        /// The first bytes.
        head: Bytes,
        /// The last bytes; they may overlap the first ones.
        tail: Bytes,
        /// The length of the whole line in bytes.
        len: usize,
    },
}

/// Splits a byte stream into lines.
#[derive(Debug)]
pub struct LineDecoder {
    buffer: BytesMut,
    /// How many bytes of the buffer were searched for a line break.
    searched: usize,
    limit: usize,
    /// Set while the rest of an overlong line is being dropped.
    dropped: Option<Dropped>,
}

/// The ends of an overlong line.
#[derive(Debug)]
struct Dropped {
    head: Bytes,
    tail: BytesMut,
    len: usize,
}

impl Dropped {
    fn new(start: &[u8]) -> Self {
        let head = Bytes::copy_from_slice(start.get(..KEPT).unwrap_or(start));
        let mut dropped = Self {
            head,
            tail: BytesMut::new(),
            len: 0,
        };
        dropped.extend(start);
        dropped
    }

    fn extend(&mut self, more: &[u8]) {
        self.len += more.len();
        self.tail.extend_from_slice(
            more.get(more.len().saturating_sub(KEPT)..)
                .unwrap_or_default(),
        );
        self.tail.advance(self.tail.len().saturating_sub(KEPT));
    }

    fn into_line(self) -> Line {
        Line::TooLong {
            head: self.head,
            tail: self.tail.freeze(),
            len: self.len,
        }
    }
}

impl LineDecoder {
    /// A decoder for lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            searched: 0,
            limit,
            dropped: None,
        }
    }

    /// The buffer for appending received bytes. Call [`LineDecoder::next_line`] until it returns
    /// `None` before appending again, so that the limit applies to the buffer.
    pub fn buffer_mut(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// How many bytes of the unfinished line are kept.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Drops the unfinished line, and the rest of it as it arrives. It ends as [`Line::TooLong`].
    pub fn drop_line(&mut self) {
        match &mut self.dropped {
            Some(dropped) => dropped.extend(&self.buffer),
            None => self.dropped = Some(Dropped::new(&self.buffer)),
        }
        // This frees the memory too.
        self.buffer = BytesMut::new();
        self.searched = 0;
    }

    /// The next complete line. Empty lines are skipped.
    pub fn next_line(&mut self) -> Option<Line> {
        loop {
            let Some(line_break) = self.find_break() else {
                self.shed();
                return None;
            };
            let mut line = self.buffer.split_to(line_break);
            self.buffer.advance(1);
            if line.len() > SHARED {
                // The rest must not keep the memory of the removed line.
                self.buffer = BytesMut::from(self.buffer.as_ref());
            }
            self.searched = 0;
            if let Some(mut dropped) = self.dropped.take() {
                dropped.extend(&line);
                return Some(dropped.into_line());
            }
            if line.len() > self.limit {
                return Some(Dropped::new(&line).into_line());
            }
            if line.last() == Some(&b'\r') {
                line.truncate(line.len() - 1);
            }
            if !line.is_empty() {
                return Some(Line::Whole(line.freeze()));
            }
        }
    }

    /// The text after the last line break, at the end of the stream.
    pub fn finish(&mut self) -> Option<Line> {
        let line = self.buffer.split().freeze();
        self.searched = 0;
        match self.dropped.take() {
            Some(mut dropped) => {
                dropped.extend(&line);
                Some(dropped.into_line())
            }
            None if line.is_empty() => None,
            None => Some(Line::Whole(line)),
        }
    }

    fn find_break(&mut self) -> Option<usize> {
        let fresh = self.buffer.get(self.searched..).unwrap_or_default();
        let found = memchr::memchr(b'\n', fresh).map(|at| self.searched + at);
        self.searched = self.buffer.len();
        found
    }

    /// Drops text that cannot become a line within the limit.
    fn shed(&mut self) {
        match &mut self.dropped {
            Some(dropped) => dropped.extend(&self.buffer),
            None if self.buffer.len() > self.limit => {
                self.dropped = Some(Dropped::new(&self.buffer));
            }
            None => return,
        }
        self.buffer.clear();
        self.searched = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn feed(decoder: &mut LineDecoder, chunk: &[u8]) -> Vec<Line> {
        decoder.buffer_mut().extend_from_slice(chunk);
        std::iter::from_fn(|| decoder.next_line()).collect()
    }

    fn whole(text: &'static str) -> Line {
        Line::Whole(Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn lines_may_span_chunks() {
        let mut decoder = LineDecoder::new(100);
        assert_eq!(feed(&mut decoder, b"ab"), []);
        assert_eq!(
            feed(&mut decoder, b"c\r\n\n\r\nd\ne"),
            [whole("abc"), whole("d")]
        );
        assert_eq!(decoder.finish(), Some(whole("e")));
        assert_eq!(decoder.finish(), None);
    }

    #[test]
    fn line_over_the_limit_does_not_affect_the_next() {
        let mut decoder = LineDecoder::new(4);
        assert_eq!(feed(&mut decoder, b"123456"), []);
        assert!(decoder.buffer_mut().is_empty());
        assert_eq!(feed(&mut decoder, b"789"), []);
        let (head, tail) = (
            Bytes::from_static(b"123456"),
            Bytes::from_static(b"1234567890"),
        );
        assert_eq!(
            feed(&mut decoder, b"0\nok\n"),
            [
                Line::TooLong {
                    head,
                    tail,
                    len: 10
                },
                whole("ok")
            ]
        );
    }

    #[test]
    fn line_over_the_limit_keeps_both_ends() {
        let mut decoder = LineDecoder::new(10);
        let text = format!("first{}last\n", "x".repeat(3 * KEPT));
        let lines: Vec<_> = text
            .as_bytes()
            .chunks(1000)
            .flat_map(|chunk| feed(&mut decoder, chunk))
            .collect();
        let [Line::TooLong { head, tail, len }] = lines.as_slice() else {
            panic!("{lines:?}")
        };
        assert_eq!((*len, tail.len()), (text.len() - 1, KEPT));
        assert!(head.starts_with(b"first") && head.len() <= KEPT && tail.ends_with(b"xlast"));
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_chunks(lines in proptest::collection::vec("[a-z]{1,12}", 0..8), cuts in proptest::collection::vec(1usize..9, 1..20)) {
            let text = lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let mut decoder = LineDecoder::new(8);
            let (mut got, mut rest, mut cuts) = (Vec::new(), text.as_bytes(), cuts.into_iter().cycle());
            while !rest.is_empty() {
                let (chunk, tail) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                got.extend(feed(&mut decoder, chunk));
                rest = tail;
            }
            prop_assert_eq!(got.len(), lines.len());
            for (line, expected) in got.iter().zip(&lines) {
                match line {
                    Line::Whole(text) => prop_assert!(text == expected && expected.len() <= 8),
                    Line::TooLong { len, .. } => prop_assert!(*len == expected.len() && *len > 8),
                }
            }
        }
    }
}
