//! Making connections to one server.

use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::timeout;
use tower_service::Service as _;

use crate::TcpProbes;
use crate::connection::Connection;

/// Probes that may fail.
const PROBES: u32 = 3;

/// Makes connections within a time that includes the look-up of the address.
#[derive(Clone)]
pub(crate) struct Connector {
    http: HttpConnector,
    origin: Uri,
    timeout: Duration,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address was not found, or the server refused.
    #[error("{0}")]
    Refused(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The time was up.
    #[error("no connection in time")]
    Timeout,
    /// The runtime that was to make it has ended.
    #[error("the runtime has ended")]
    Stopped,
}

impl Connector {
    pub(crate) fn new(origin: Uri, timeout: Duration, probes: TcpProbes) -> Self {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(timeout));
        http.set_nodelay(true);
        http.set_keepalive(Some(probes.interval));
        http.set_keepalive_interval(Some(probes.interval));
        http.set_keepalive_retries(Some(PROBES));
        #[cfg(target_os = "linux")]
        http.set_tcp_user_timeout(Some(probes.unacknowledged));
        Self { http, origin, timeout }
    }

    pub(crate) async fn connect(mut self) -> Result<Box<Connection>, ConnectError> {
        let connecting = async {
            let refused = |error| ConnectError::Refused(Box::new(error));
            std::future::poll_fn(|cx| self.http.poll_ready(cx)).await.map_err(refused)?;
            let io = self.http.call(self.origin).await.map_err(refused)?;
            Connection::over(io.into_inner(), false).await.map_err(|error| ConnectError::Refused(error.into()))
        };
        timeout(self.timeout, connecting).await.unwrap_or(Err(ConnectError::Timeout))
    }
}
