//! A body that is read and decoded without hyper, and uses no memory while nothing arrives.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderMap, header};
use memchr::memchr;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio::net::TcpStream;

/// The size of one read in bytes.
const READ: usize = 8 << 10;
/// The maximum length of the line before a chunk, with its extensions, in bytes.
const LONGEST_LINE: usize = 4 << 10;
/// The maximum size of all trailers, which are ignored, in bytes.
const MOST_TRAILERS: usize = 16 << 10;

/// The rest of a body, from its first undecoded byte.
pub(crate) struct SocketBody {
    stream: TcpStream,
    framing: Framing,
    /// Bytes that were read but not decoded.
    unread: BytesMut,
}

/// How to find the end of a body (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The body ends after this many bytes.
    Length(u64),
    Chunked(Chunk),
    /// The body ends with the connection.
    UntilClose,
}

/// The next part of a chunked body (RFC 9112, section 7.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    Size,
    Data(u64),
    DataEnd,
    /// Trailers, of which this many bytes have been skipped.
    Trailers(usize),
}

/// The result of decoding the bytes read so far.
#[derive(Debug, PartialEq, Eq)]
enum Decoded {
    Data(Bytes),
    End,
    Nothing,
}

impl Framing {
    /// The framing of a response with these headers; hyper has determined this length.
    pub(crate) fn determine(headers: &HeaderMap, length: Option<u64>) -> Self {
        if let Some(length) = length {
            return Self::Length(length);
        }
        let last = headers
            .get_all(header::TRANSFER_ENCODING)
            .into_iter()
            .next_back();
        let last = last.and_then(|line| line.to_str().ok()?.rsplit(',').next());
        let is_chunked =
            last.is_some_and(|encoding| encoding.trim().eq_ignore_ascii_case("chunked"));
        if is_chunked {
            Self::Chunked(Chunk::Size)
        } else {
            Self::UntilClose
        }
    }

    /// Decodes the next part of the body.
    fn decode(&mut self, unread: &mut BytesMut) -> io::Result<Decoded> {
        loop {
            let next = match *self {
                Self::Length(0) => return Ok(Decoded::End),
                Self::UntilClose if unread.is_empty() => return Ok(Decoded::Nothing),
                Self::UntilClose => return Ok(Decoded::Data(unread.split().freeze())),
                Self::Length(left) => match take(unread, left) {
                    None => return Ok(Decoded::Nothing),
                    Some((data, left)) => {
                        *self = Self::Length(left);
                        return Ok(Decoded::Data(data));
                    }
                },
                Self::Chunked(Chunk::Size) => match chunk_size(unread)? {
                    None => return Ok(Decoded::Nothing),
                    Some(0) => Chunk::Trailers(0),
                    Some(size) => Chunk::Data(size),
                },
                Self::Chunked(Chunk::Data(0)) => Chunk::DataEnd,
                Self::Chunked(Chunk::Data(left)) => match take(unread, left) {
                    None => return Ok(Decoded::Nothing),
                    Some((data, left)) => {
                        *self = Self::Chunked(Chunk::Data(left));
                        return Ok(Decoded::Data(data));
                    }
                },
                Self::Chunked(Chunk::DataEnd) => match unread.get(..2) {
                    None => return Ok(Decoded::Nothing),
                    Some(b"\r\n") => {
                        unread.advance(2);
                        Chunk::Size
                    }
                    Some(_) => return Err(invalid_data("a chunk is longer than announced")),
                },
                Self::Chunked(Chunk::Trailers(passed)) => match trailer(unread, passed)? {
                    None => return Ok(Decoded::Nothing),
                    Some(2) => {
                        *self = Self::Length(0);
                        return Ok(Decoded::End);
                    }
                    Some(length) => Chunk::Trailers(passed + length),
                },
            };
            *self = Self::Chunked(next);
        }
    }
}

/// Takes at most `left` bytes; also returns the number left then. `None` if there are none.
fn take(unread: &mut BytesMut, left: u64) -> Option<(Bytes, u64)> {
    let count = unread
        .len()
        .min(usize::try_from(left).unwrap_or(usize::MAX));
    (count > 0).then(|| (unread.split_to(count).freeze(), left - count as u64))
}

/// Takes the line before a chunk; `None` if it is incomplete.
fn chunk_size(unread: &mut BytesMut) -> io::Result<Option<u64>> {
    let invalid = || invalid_data("invalid chunk size");
    match (
        httparse::parse_chunk_size(unread).map_err(|_| invalid())?,
        unread.first(),
    ) {
        (httparse::Status::Partial, _) if unread.len() > LONGEST_LINE => {
            Err(invalid_data("a chunk extension too long"))
        }
        (httparse::Status::Partial, _) => Ok(None),
        (httparse::Status::Complete((end, size)), Some(first)) if first.is_ascii_hexdigit() => {
            let line = unread.split_to(end);
            // No line may end inside an extension.
            if memchr(b'\n', &line) == Some(line.len() - 1) {
                Ok(Some(size))
            } else {
                Err(invalid())
            }
        }
        (httparse::Status::Complete(_), _) => Err(invalid()),
    }
}

/// Takes one line of the trailers; returns its length, 2 for the empty line at their end. `None` if
/// it is incomplete.
fn trailer(unread: &mut BytesMut, passed: usize) -> io::Result<Option<usize>> {
    let end = memchr(b'\n', unread);
    if passed + end.unwrap_or(unread.len()) > MOST_TRAILERS {
        return Err(invalid_data("trailers too long"));
    }
    let Some(end) = end else { return Ok(None) };
    let line = unread.split_to(end + 1);
    if line.ends_with(b"\r\n") {
        Ok(Some(line.len()))
    } else {
        Err(invalid_data("invalid trailers"))
    }
}

fn invalid_data(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl SocketBody {
    /// The rest of a body; `unread` has been read already.
    pub(crate) fn new(stream: TcpStream, unread: BytesMut, framing: Framing) -> Self {
        Self {
            stream,
            framing,
            unread,
        }
    }

    /// The number of remaining bytes, if known.
    pub(crate) fn length(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(left) => Some(left),
            Framing::Chunked(_) | Framing::UntilClose => None,
        }
    }

    /// The next bytes; `None` at the end.
    pub(crate) fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            match self.framing.decode(&mut self.unread)? {
                Decoded::Data(data) => return Poll::Ready(Ok(Some(data))),
                Decoded::End => return Poll::Ready(Ok(None)),
                Decoded::Nothing => {}
            }
            if self.unread.is_empty() {
                // A returned chunk may share its memory.
                self.unread = BytesMut::new();
            }
            let mut space = [MaybeUninit::uninit(); READ];
            let mut read = ReadBuf::uninit(&mut space);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                let is_end = self.framing == Framing::UntilClose;
                return Poll::Ready(if is_end {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                });
            }
            self.unread.extend_from_slice(read.filled());
        }
    }

    /// The socket, if the body has been read to its announced end and nothing followed.
    pub(crate) fn into_reusable(self) -> Option<TcpStream> {
        (self.framing == Framing::Length(0) && self.unread.is_empty()).then_some(self.stream)
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const CHUNKED: Framing = Framing::Chunked(Chunk::Size);

    /// Decodes text that arrives in pieces of `cut` bytes; `None` if the body is incomplete.
    fn decode(
        mut framing: Framing,
        text: &[u8],
        cut: usize,
    ) -> io::Result<Option<(Vec<u8>, Vec<u8>)>> {
        let (mut unread, mut body) = (BytesMut::new(), Vec::new());
        let mut pieces = text.chunks(cut);
        loop {
            match framing.decode(&mut unread)? {
                Decoded::Data(data) => body.extend_from_slice(&data),
                Decoded::End => {
                    return Ok(Some((
                        body,
                        [&unread[..], &pieces.collect::<Vec<_>>().concat()].concat(),
                    )));
                }
                Decoded::Nothing => match pieces.next() {
                    Some(piece) => unread.extend_from_slice(piece),
                    None => return Ok(None),
                },
            }
        }
    }

    #[test]
    fn chunks_are_decoded_however_they_arrive() {
        let text = b"5\r\nhello\r\nA ; x=\"y\"\r\n, my world.\r\n0\r\nA: b\r\n\r\nrest";
        // The second chunk is one byte longer than announced.
        assert!(decode(CHUNKED, text, 7).is_err());
        let text = b"5\r\nhello\r\nB ; x=\"y\"\r\n, my world.\r\n0\r\nA: b\r\n\r\nrest";
        for cut in 1..=text.len() {
            let (body, rest) = decode(CHUNKED, text, cut).unwrap().unwrap();
            assert_eq!(
                (&body[..], &rest[..]),
                (&b"hello, my world."[..], &b"rest"[..]),
                "{cut}"
            );
        }
        for end in 0..text.len() - 4 {
            assert_eq!(decode(CHUNKED, &text[..end], 3).unwrap(), None, "{end}");
        }
    }

    #[test]
    fn invalid_chunks_are_errors() {
        let long_extension = [b"5;".as_slice(), &[b'x'; 2 * LONGEST_LINE], b"\r\n"].concat();
        let long_trailers = [
            b"0\r\n".as_slice(),
            &b"a: b\r\n".repeat(MOST_TRAILERS / 6 + 1),
        ]
        .concat();
        let endless_trailer = [b"0\r\n".as_slice(), &[b'a'; 2 * MOST_TRAILERS]].concat();
        let invalid: [&[u8]; 12] = [
            b"\r\n",
            b" 5\r\nhello\r\n",
            b"x\r\n",
            b"-1\r\n",
            b"0x5\r\nhello\r\n",
            b"5\nhello\r\n",
            b"5\r\nhello0\r\n\r\n",
            b"5;a\nb\r\nhello\r\n",
            b"11111111111111111\r\n",
            &long_extension,
            &long_trailers,
            &endless_trailer,
        ];
        for text in invalid {
            for cut in [1, 5, 4000] {
                assert!(
                    decode(CHUNKED, text, cut).is_err(),
                    "{}",
                    String::from_utf8_lossy(text)
                );
            }
        }
        assert!(decode(CHUNKED, b"0\r\na: b\n\r\n", 9).is_err());
    }

    #[test]
    fn length_and_the_end_of_the_connection_end_a_body() {
        assert_eq!(
            decode(Framing::Length(3), b"abcd", 2).unwrap(),
            Some((b"abc".to_vec(), b"d".to_vec()))
        );
        assert_eq!(decode(Framing::Length(5), b"abcd", 2).unwrap(), None);
        assert_eq!(decode(Framing::UntilClose, b"abcd", 2).unwrap(), None);
    }

    #[test]
    fn framing_is_that_of_the_last_coding() {
        let of = |encodings: &[&'static str], length| {
            let mut headers = HeaderMap::new();
            for encoding in encodings {
                headers.append(
                    header::TRANSFER_ENCODING,
                    HeaderValue::from_static(encoding),
                );
            }
            Framing::determine(&headers, length)
        };
        assert_eq!(of(&["gzip, Chunked"], None), CHUNKED);
        assert_eq!(of(&["gzip", "chunked"], None), CHUNKED);
        assert_eq!(of(&["chunked", "gzip"], None), Framing::UntilClose);
        assert_eq!(of(&[], None), Framing::UntilClose);
        assert_eq!(of(&[], Some(7)), Framing::Length(7));
    }
}
