//! The interface of the endpoint behind a listener.

use std::sync::Arc;

use fanlight_credentials::ConnectionFacts;
use http::{Request, Response};
use hyper::body::Incoming;

use super::activity::ActiveRequest;
use super::reply::ReplyBody;

/// The endpoint that answers the requests of a listener.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Answers one request, which arrived on this connection and is `active` there. The future is
    /// dropped when the connection ends.
    fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        connection: Arc<ConnectionFacts>,
        active: &ActiveRequest,
    ) -> impl Future<Output = Response<ReplyBody>> + Send;

    /// Whether requests come through a load balancer, which sends the next one on any connection that is open.
    fn has_balancer(&self) -> bool {
        false
    }

    /// Removes what has expired. Called periodically.
    fn clean_up(&self) {}

    /// Ends the streams that would last as long as their clients want. Called once no more connections are accepted.
    fn drain(&self) {}

    /// Waits for work that has outlived its connection.
    fn finished(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
}
