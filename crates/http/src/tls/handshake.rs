//! The TLS handshake of one connection.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::TlsServer;

/// The answer to HTTP without TLS.
const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 47\r\n\
    Connection: close\r\n\r\nthis port speaks https: use an https:// address\n";
/// How long a client may take to read that answer and end its request, before the connection is
/// closed. A constant: a slower client learns nothing from the answer.
const LAST_READS: Duration = Duration::from_secs(1);
/// The maximum number of bytes read of such a request.
const LONGEST_REST: usize = 64 << 10;

/// The reason why a handshake has failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The client speaks HTTP without TLS, and has been told so.
    #[error("the client speaks HTTP without TLS")]
    PlainHttp,
    /// The connection broke, or the client sent something unacceptable.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

/// Does the server's part of the handshake. `wrap` makes the stream under TLS. This may take as
/// long as the client likes, so the caller limits the time.
///
/// # Errors
///
/// If the connection breaks, or the handshake fails.
pub async fn accept_tls<S>(
    server: &TlsServer,
    stream: TcpStream,
    wrap: impl FnOnce(TcpStream) -> S,
) -> Result<TlsStream<S>, HandshakeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut first = [0];
    let is_closed = stream.peek(&mut first).await? == 0;
    // TLS begins with a record type, 22; HTTP begins with the letters of a method.
    if !is_closed && first.iter().all(u8::is_ascii_uppercase) {
        refuse_http(stream).await;
        return Err(HandshakeError::PlainHttp);
    }
    Ok(TlsAcceptor::from(Arc::clone(&server.0))
        .accept(wrap(stream))
        .await?)
}

/// Answers, and keeps reading for a moment. Closing a connection with unread bytes would lose the
/// answer.
async fn refuse_http(mut stream: TcpStream) {
    let answered = async {
        stream.write_all(NOT_TLS).await?;
        stream.shutdown().await?;
        let (mut rest, mut len) = ([0; 2 << 10], 0);
        while len < LONGEST_REST {
            match stream.read(&mut rest).await? {
                0 => break,
                read => len += read,
            }
        }
        io::Result::Ok(())
    };
    // The connection is over in any case; an error changes nothing.
    let _ = timeout(LAST_READS, answered).await;
}

/// The client's verified certificate, in DER.
pub fn client_certificate<S>(stream: &TlsStream<S>) -> Option<Arc<[u8]>> {
    let (_, session) = stream.get_ref();
    session
        .peer_certificates()?
        .first()
        .map(|certificate| Arc::from(certificate.as_ref()))
}
