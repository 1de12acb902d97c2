//! Making connections to one server.
//!
//! Must not know: requests, pools.

use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::timeout;
use tower_service::Service as _;

use super::connection::Connection;

/// A peer that is gone shows after a minute at the latest, on a connection that waits for it as well
/// as on one that has sent something.
const PROBE: (Duration, u32) = (Duration::from_secs(15), 3);
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Makes connections within a time that includes looking up the address.
#[derive(Clone)]
pub(super) struct Connector {
    http: HttpConnector,
    origin: Uri,
    patience: Duration,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(in crate::http) enum Unconnected {
    #[error("{0}")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("no connection in time")]
    TooLate,
    #[error("no connection any more")]
    Stopped,
}

impl Connector {
    pub(super) fn new(origin: Uri, patience: Duration) -> Self {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(patience));
        http.set_nodelay(true);
        http.set_keepalive(Some(PROBE.0));
        http.set_keepalive_interval(Some(PROBE.0));
        http.set_keepalive_retries(Some(PROBE.1));
        #[cfg(target_os = "linux")]
        http.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
        Self { http, origin, patience }
    }

    pub(super) async fn connect(mut self) -> Result<Box<Connection>, Unconnected> {
        let connecting = async {
            let refused = |error| Unconnected::Refused(Box::new(error));
            std::future::poll_fn(|cx| self.http.poll_ready(cx)).await.map_err(refused)?;
            let io = self.http.call(self.origin).await.map_err(refused)?;
            Connection::over(io.into_inner(), false).await.map_err(|error| Unconnected::Refused(error.into()))
        };
        timeout(self.patience, connecting).await.unwrap_or(Err(Unconnected::TooLate))
    }
}
