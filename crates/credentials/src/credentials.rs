//! The credentials in a request.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{HeaderMap, Method};

/// The properties of a client's connection that a listener knows.
#[derive(Clone, Debug, Default)]
pub struct ConnectionFacts {
    /// The number of the connection in recordings.
    pub number: u64,
    /// The local address that the connection arrived at.
    pub local: Option<IpAddr>,
    /// The remote address, which may be a proxy's.
    pub peer: Option<SocketAddr>,
    /// The remote process, on a Unix socket.
    pub socket: Option<SocketPeer>,
    /// The client's TLS certificate in DER, which the listener has verified.
    pub certificate: Option<Arc<[u8]>>,
    /// Whether the connection uses TLS.
    pub is_tls: bool,
}

/// The process at the other end of a Unix socket, as reported by the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketPeer {
    /// The process's effective user.
    pub user: u32,
    /// The process's effective group.
    pub group: u32,
}

/// The parts of a request that can identify its client.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// The path of its URL, as the client sent it.
    pub path: &'a str,
    /// The request's header fields.
    pub headers: &'a HeaderMap,
    /// The request's connection.
    pub connection: &'a ConnectionFacts,
    /// The address whose share of limits the request uses: the remote address, or the one that a
    /// trusted proxy has forwarded. For IPv6 it is a network. `None` on a Unix socket.
    pub client: Option<IpAddr>,
    /// The path of the requested endpoint, such as `/mcp`.
    pub endpoint: &'a str,
}

fanlight_protocol::opaque!(Credentials<'_>);

/// The URL of the resource at `path` of a listener that clients reach at `public_url`. Tokens are
/// issued for it (RFC 8707) and metadata name it (RFC 9728). It has no slash at the end (2026-07-28
/// basic/authorization, Canonical Server URI).
pub fn resource_url(public_url: &str, path: &str) -> String {
    format!(
        "{}{}",
        public_url.trim_end_matches('/'),
        path.trim_end_matches('/')
    )
}
