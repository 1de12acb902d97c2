//! What a listener needs of the endpoint behind it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::{Request, Response};
use hyper::body::Incoming;

use super::activity::ActiveRequest;
use super::reply::ReplyBody;

/// The addresses of a connection, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Addresses {
    /// The address at which it arrived.
    pub(crate) local: Option<IpAddr>,
    /// The other end's.
    pub(crate) peer: Option<SocketAddr>,
}

/// What answers the requests of a listener.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Answers one request, which arrived on a connection with these addresses and is `active` there. The future is
    /// dropped when the connection ends.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        addresses: Addresses,
        active: &ActiveRequest,
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
