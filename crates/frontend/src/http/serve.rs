//! The interface of the endpoint behind a listener.

use std::sync::Arc;

use fanlight_credentials::ConnectionFacts;
use http::{Request, Response};
use hyper::body::Incoming;

use super::activity::ActiveRequest;
use super::reply::ReplyBody;

/// Answers the requests of a listener.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Answers one request of this connection; `active` is its guard there. The future is dropped
    /// when the connection ends.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: Arc<ConnectionFacts>,
        active: &ActiveRequest,
    ) -> impl Future<Output = Response<ReplyBody>> + Send;

    /// Whether a load balancer is in front. It sends the next request on any open connection.
    fn has_balancer(&self) -> bool {
        false
    }

    /// Removes expired entries. Called periodically.
    fn clean_up(&self) {}

    /// Ends streams without an end of their own. Called once no more connections are accepted.
    fn drain(&self) {}

    /// Waits for work that has outlived its connection.
    fn finished(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}
