//! What a request shows of its client.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{HeaderMap, Method};

/// What a listener knows of a client's connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectionFacts {
    /// The address at which it arrived.
    pub local: Option<IpAddr>,
    /// The address at its other end, which may be a proxy's.
    pub peer: Option<SocketAddr>,
    /// The process at its other end, on a Unix socket.
    pub socket: Option<SocketPeer>,
    /// The client's TLS certificate in DER, which the listener has verified.
    pub certificate: Option<Arc<[u8]>>,
    /// Whether it is encrypted.
    pub is_tls: bool,
}

/// The process at the other end of a Unix socket, as the operating system names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketPeer {
    /// Its effective user.
    pub user: u32,
    /// Its effective group.
    pub group: u32,
}

/// What a request shows of its client.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// The request's method.
    pub method: &'a Method,
    /// The path of its URL, as the client has sent it.
    pub path: &'a str,
    /// The request's header fields.
    pub headers: &'a HeaderMap,
    /// Its connection.
    pub connection: &'a ConnectionFacts,
    /// The address whose share of limits it takes: that of the connection's other end, or the one that a trusted proxy has
    /// forwarded; of IPv6 a network. `None` on a Unix socket.
    pub client: Option<IpAddr>,
    /// The path of the endpoint that it came to, such as `/mcp`.
    pub endpoint: &'a str,
}

impl fmt::Debug for Credentials<'_> {
    /// Without the header fields, which hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("method", self.method)
            .field("path", &self.path)
            .field("connection", self.connection)
            .field("client", &self.client)
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// The URL of the resource at `path` of a listener that clients reach under `public_url`: what tokens for it are issued for
/// (RFC 8707), and what its metadata name (RFC 9728). Without a slash at its end (2026-07-28 basic/authorization, Canonical
/// Server URI).
#[must_use]
pub fn resource_url(public_url: &str, path: &str) -> String {
    format!(
        "{}{}",
        public_url.trim_end_matches('/'),
        path.trim_end_matches('/')
    )
}
