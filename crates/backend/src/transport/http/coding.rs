//! Decodes bodies in a content coding. Requests ask for `identity`, but some servers and proxies
//! compress every answer (RFC 9110, 12.5.3).

use std::io::{self, BufRead, ErrorKind, Read};

use bytes::{Buf as _, Bytes};
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, HeaderMap};

use crate::log::excerpt;

/// The number of bytes to decode at once, so that a short body cannot fill the memory.
const PIECE: usize = 16 << 10;

/// The content coding of a body.
pub(super) enum Coding {
    Gzip,
    Deflate,
    Decoding(Decoder),
    /// A coding that cannot be decoded.
    Unknown(String),
}

/// The decoder of a body that has begun.
pub(super) enum Decoder {
    Gzip(MultiGzDecoder<Arrived>),
    Zlib(ZlibDecoder<Arrived>),
    Raw(DeflateDecoder<Arrived>),
}

/// The part of a coded body that has arrived and is not decoded yet.
pub(super) struct Arrived {
    bytes: Bytes,
    is_complete: bool,
}

impl Coding {
    /// The coding that a response declares; `None` if its body is not coded. Names of no coding,
    /// such as `utf-8`, are ignored.
    pub(super) fn declared_in(headers: &HeaderMap) -> Option<Box<Self>> {
        let name = headers.get(CONTENT_ENCODING)?.as_bytes().trim_ascii();
        let coding = match name.to_ascii_lowercase().as_slice() {
            b"gzip" | b"x-gzip" => Self::Gzip,
            b"deflate" => Self::Deflate,
            b"br" | b"zstd" | b"compress" | b"x-compress" | b"dcb" | b"dcz" => {
                Self::Unknown(excerpt(name, 40))
            }
            list if list.contains(&b',') => Self::Unknown(excerpt(name, 40)),
            _ => return None,
        };
        Some(Box::new(coding))
    }

    /// The next decoded bytes; `None` if they need more of the body.
    pub(super) fn decode(&mut self) -> Result<Option<Bytes>, String> {
        let Self::Decoding(decoder) = self else {
            return Ok(None);
        };
        let mut piece = vec![0; PIECE];
        match decoder.read(&mut piece) {
            Ok(0) => Ok(None),
            Ok(read) => {
                piece.truncate(read);
                Ok(Some(piece.into()))
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(format!("a compressed body that is broken: {error}")),
        }
    }

    /// Adds the next bytes of the body; call it once [`Coding::decode`] returns `None`.
    pub(super) fn push(&mut self, bytes: Bytes) -> Result<(), String> {
        let Some(first) = bytes.first().copied() else {
            return Ok(());
        };
        let arrived = |bytes| Arrived {
            bytes,
            is_complete: false,
        };
        *self = Self::Decoding(match self {
            Self::Decoding(decoder) => {
                decoder.arrived().bytes = bytes;
                return Ok(());
            }
            Self::Unknown(name) => {
                return Err(format!(
                    "content coding {name:?}, although the request asks for none"
                ));
            }
            Self::Gzip => Decoder::Gzip(MultiGzDecoder::new(arrived(bytes))),
            // RFC 9110, 8.4.1.2: some servers send the compressed data without the zlib format.
            Self::Deflate if first & 0x0f == 8 => Decoder::Zlib(ZlibDecoder::new(arrived(bytes))),
            Self::Deflate => Decoder::Raw(DeflateDecoder::new(arrived(bytes))),
        });
        Ok(())
    }

    /// Ends the body, and returns the rest of it.
    pub(super) fn finish(&mut self) -> Result<Option<Bytes>, String> {
        if let Self::Decoding(decoder) = self {
            decoder.arrived().is_complete = true;
        }
        self.decode()
    }
}

impl Decoder {
    fn arrived(&mut self) -> &mut Arrived {
        match self {
            Self::Gzip(decoder) => decoder.get_mut(),
            Self::Zlib(decoder) => decoder.get_mut(),
            Self::Raw(decoder) => decoder.get_mut(),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(decoder) => decoder.read(into),
            Self::Zlib(decoder) => decoder.read(into),
            Self::Raw(decoder) => decoder.read(into),
        }
    }
}

impl BufRead for Arrived {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.bytes.is_empty() && !self.is_complete {
            Err(ErrorKind::WouldBlock.into())
        } else {
            Ok(&self.bytes)
        }
    }

    fn consume(&mut self, amount: usize) {
        self.bytes.advance(amount);
    }
}

impl Read for Arrived {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use http::HeaderValue;

    use super::*;

    fn declared(name: &'static str) -> Option<Box<Coding>> {
        let name = HeaderValue::from_static(name);
        Coding::declared_in(&HeaderMap::from_iter([(CONTENT_ENCODING, name)]))
    }

    /// Decodes a body that arrives in pieces of `length` bytes.
    fn decoded(name: &'static str, body: &[u8], length: usize) -> Result<Vec<u8>, String> {
        let (mut coding, mut text) = (declared(name).unwrap(), Vec::new());
        for piece in body.chunks(length) {
            coding.push(Bytes::copy_from_slice(piece))?;
            while let Some(more) = coding.decode()? {
                text.extend_from_slice(&more);
            }
        }
        while let Some(more) = coding.finish()? {
            text.extend_from_slice(&more);
        }
        Ok(text)
    }

    #[test]
    fn compressed_body_is_decoded_however_it_arrives() {
        let text = br#"{"jsonrpc":"2.0"}"#.repeat(5000);
        let (best, all) = (Compression::best(), &text[..]);
        let mut gzip = GzEncoder::new(Vec::new(), best);
        let mut zlib = ZlibEncoder::new(Vec::new(), best);
        let mut raw = DeflateEncoder::new(Vec::new(), best);
        gzip.write_all(all).unwrap();
        zlib.write_all(all).unwrap();
        raw.write_all(all).unwrap();
        let gzip = gzip.finish().unwrap();
        let twice = [gzip.clone(), gzip.clone()].concat();
        for length in [1, 7, 1 << 20] {
            assert_eq!(decoded("gzip", &gzip, length).unwrap(), text);
            assert_eq!(decoded("X-GZip", &twice, length).unwrap(), text.repeat(2));
        }
        assert_eq!(
            decoded("deflate", &zlib.finish().unwrap(), 7),
            Ok(text.clone())
        );
        assert_eq!(decoded("deflate", &raw.finish().unwrap(), 7), Ok(text));
        assert_eq!(decoded("gzip", b"", 1), Ok(Vec::new()));
        assert!(decoded("gzip", &gzip[..gzip.len() / 2], 7).is_err());
        assert!(decoded("gzip", b"{\"jsonrpc\":\"2.0\"}", 99).is_err());
    }

    #[test]
    fn flushed_part_of_a_stream_is_decoded_at_once() {
        let mut stream = GzEncoder::new(Vec::new(), Compression::fast());
        let mut coding = declared("gzip").unwrap();
        for event in ["data: 1\n\n", "data: 2\n\n"] {
            stream.write_all(event.as_bytes()).unwrap();
            stream.flush().unwrap();
            coding
                .push(std::mem::take(stream.get_mut()).into())
                .unwrap();
            assert_eq!(coding.decode().unwrap().unwrap(), event);
            assert_eq!(coding.decode(), Ok(None));
        }
    }

    #[test]
    fn other_codings_are_named() {
        for name in ["br", "ZSTD", "gzip, gzip"] {
            assert!(decoded(name, b"x", 1).unwrap_err().contains(name));
        }
        for name in ["identity", "utf-8", ""] {
            assert!(declared(name).is_none(), "{name}");
        }
    }
}
