//! What a listener needs of the endpoint behind it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use super::reply::ReplyBody;

/// The addresses of a connection, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Addresses {
    /// The address at which it arrived.
    pub(crate) local: Option<IpAddr>,
    /// The other end's.
    pub(crate) peer: Option<SocketAddr>,
}

/// How a request arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    /// The address at which it arrived.
    pub(crate) local: Option<IpAddr>,
    /// The address that it was sent from.
    pub(crate) peer: Option<SocketAddr>,
    /// Cancelled when its connection is to end: the listener stops, or has got another socket.
    pub(crate) shutdown: &'a CancellationToken,
}

/// What answers the requests of a listener.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Answers one request. The future is dropped when the connection ends.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        arrival: Arrival<'_>,
    ) -> impl Future<Output = Response<ReplyBody>> + Send;

    /// Removes what has expired. Called periodically.
    fn clean_up(&self) {}

    /// Ends the streams that would last as long as their clients want. Called once no more connections are accepted.
    fn drain(&self) {}

    /// Waits for work that has outlived its connection.
    fn finished(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}
