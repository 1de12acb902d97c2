//! The parts that every HTTP listener needs: an [accept loop](accept) with a connection limit,
//! fairness among peers and graceful shutdown; TCP and Unix sockets; [TLS](TlsServer); [HTTP/1.1 on
//! one connection](serve_http1) with timeouts; and a [`Guard`] for `Host` and `Origin`. The module
//! [`client`] sends requests to one server.

mod accept;
pub mod client;
mod connection;
mod connections;
mod guard;
mod limit;
mod socket;
mod tls;

use bytes::Bytes;
pub use fanlight_config::settings::ListenAddress;
use http::HeaderMap;

pub use accept::{
    AcceptLimits, AcceptedTogether, Admission, Admissions, AdmittedConnection, Ends, Remaining,
    accept, accept_and_spawn,
};
pub use connection::{
    BoxedStream, ConnectionUse, Http1Limits, OpenedStream, Stream, open, serve_http1,
};
pub use connections::{ConnectionPeer, Endable, Usage, UsageKind};
pub use guard::{Guard, LiveGuard, Origins, PublicUrl, Rejection, TrustedProxies, peer_of};
pub use limit::{ConcurrencyLimit, Permit};
pub use socket::{ClientStream, ListeningSocket, SocketReceiver, SocketSender, sockets};
pub use tls::{
    ClientCa, HandshakeError, HttpVersions, LiveTls, LoadedTls, TlsError, TlsFiles, TlsMarks,
    TlsOption, TlsServer, accept_tls, client_certificate,
};

/// All headers, by lower-case name.
pub fn header_texts(headers: &HeaderMap) -> Vec<(Box<str>, Bytes)> {
    let text = |value: &[u8]| Bytes::copy_from_slice(value);
    let all = headers.iter();
    all.map(|(name, value)| (name.as_str().into(), text(value.as_bytes())))
        .collect()
}
