//! HTTP/2 frames (RFC 9113, section 6) written byte by byte, so that they can be invalid.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::within;
use crate::raw_client::{JSON_HEADERS, modern_headers, modern_request};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// An error code (RFC 9113, section 7).
pub(crate) const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// The largest frame that a peer accepts by default.
pub(crate) const LARGEST_FRAME: usize = 16 << 10;

/// The time after which an attacker gives up if the gateway leaves its bytes unread; the attack has
/// failed then.
const BLOCKED: Duration = Duration::from_secs(2);

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![a, b, c, kind, flags];
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// An HPACK integer with a prefix of this many bits, and the bits before it (RFC 7541, section
/// 5.1).
fn integer(first: u8, bits: u32, value: usize) -> Vec<u8> {
    let most = (1 << bits) - 1;
    if value < most {
        return vec![first | u8::try_from(value).unwrap()];
    }
    let mut bytes = vec![first | u8::try_from(most).unwrap()];
    let mut rest = value - most;
    while rest >= 0x80 {
        bytes.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
        rest >>= 7;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes
}

fn literal(text: &[u8]) -> Vec<u8> {
    [&integer(0, 7, text.len())[..], text].concat()
}

/// A header that does not enter the connection's table.
pub(crate) fn field(name: &str, value: &str) -> Vec<u8> {
    [vec![0], literal(name.as_bytes()), literal(value.as_bytes())].concat()
}

/// A header that enters the connection's table and gets the index 62.
pub(crate) fn indexed_field(name: &str, value: &str) -> Vec<u8> {
    [
        vec![0x40],
        literal(name.as_bytes()),
        literal(value.as_bytes()),
    ]
    .concat()
}

/// A reference to the newest table entry, in one byte.
pub(crate) const NEWEST_ENTRY: u8 = 0x80 | 62;

/// The body and the header block of a call of this tool.
pub(crate) fn call(tool: &str) -> (String, Vec<u8>) {
    let body = modern_request("1", "tools/call", &format!(r#""name":"{tool}""#), "");
    let pseudo = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/mcp"),
        (":authority", "127.0.0.1"),
    ];
    let own = modern_headers(&body);
    let own = own
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let headers = pseudo.into_iter().chain(JSON_HEADERS).chain(own);
    let block = headers
        .flat_map(|(name, value)| field(&name.to_ascii_lowercase(), value))
        .collect();
    (body, block)
}

/// The outcome of a connection on which an attacker sent frames.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The kinds of the gateway's frames, as far as the attacker read them.
    pub(crate) frames: Vec<u8>,
    /// Whether the gateway closed the connection.
    pub(crate) closed: bool,
}

impl Outcome {
    /// Whether the gateway ended the connection, by GOAWAY or at once.
    pub(crate) fn is_ended(&self) -> bool {
        self.closed || self.frames.contains(&GOAWAY)
    }
}

/// Opens a connection and sends these frames while reading.
pub(crate) async fn attack(gateway: SocketAddr, frames: &[u8]) -> Outcome {
    send(gateway, frames, true).await
}

/// Sends one request on stream 1, and waits for its response, its reset, or the end of the
/// connection.
pub(crate) async fn exchange(gateway: SocketAddr, request: &[u8]) -> Outcome {
    let mut stream = TcpStream::connect(gateway).await.unwrap();
    let settings = frame(SETTINGS, 0, 0, &[]);
    stream
        .write_all(&[&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings, request].concat())
        .await
        .unwrap();
    let mut received = Vec::new();
    within("the gateway to respond", async {
        loop {
            let closed = !matches!(stream.read_buf(&mut received).await, Ok(1..));
            let frames = kinds(&received);
            if closed
                || frames
                    .iter()
                    .any(|kind| [HEADERS, RST_STREAM, GOAWAY].contains(kind))
            {
                return Outcome { frames, closed };
            }
        }
    })
    .await
}

/// [`attack`] that reads nothing until everything is sent or the gateway stops reading.
pub(crate) async fn attack_deaf(gateway: SocketAddr, frames: &[u8]) -> Outcome {
    send(gateway, frames, false).await
}

async fn send(gateway: SocketAddr, frames: &[u8], reads: bool) -> Outcome {
    let (mut reader, mut writer) = TcpStream::connect(gateway).await.unwrap().into_split();
    let mut received = Vec::new();
    let write = async {
        writer
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .await?;
        writer.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
        // After an error, the gateway has closed the connection. After a time-out, it reads no
        // more, which bounds the attack too.
        let _ = tokio::time::timeout(BLOCKED, writer.write_all(frames)).await;
        // The acknowledgement of the ping shows that the gateway has processed everything before
        // it, if the connection is still open.
        let _ =
            tokio::time::timeout(BLOCKED, writer.write_all(&frame(PING, 0, 0, b"the end!"))).await;
        std::io::Result::Ok(())
    };
    let closed = if reads {
        let (closed, _) = tokio::join!(read_to_end(&mut reader, &mut received), write);
        closed
    } else {
        let _ = write.await;
        read_to_end(&mut reader, &mut received).await
    };
    Outcome {
        frames: kinds(&received),
        closed,
    }
}

/// Reads until the gateway has acknowledged the last ping or closed the connection; returns whether
/// it has closed it. An inactive connection counts as neither.
async fn read_to_end(reader: &mut (impl AsyncReadExt + Unpin), received: &mut Vec<u8>) -> bool {
    let read = async {
        loop {
            let known = received.len();
            if !matches!(reader.read_buf(received).await, Ok(1..)) {
                return true;
            }
            if received[known.saturating_sub(8)..]
                .windows(8)
                .any(|bytes| bytes == b"the end!")
            {
                return false;
            }
        }
    };
    within("the gateway to process the frames", async {
        tokio::time::timeout(BLOCKED * 2, read).await
    })
    .await
        == Ok(true)
}

fn kinds(mut bytes: &[u8]) -> Vec<u8> {
    let mut kinds = Vec::new();
    while let [a, b, c, kind, _, _, _, _, _, rest @ ..] = bytes {
        kinds.push(*kind);
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        bytes = rest.get(length..).unwrap_or_default();
    }
    kinds
}
