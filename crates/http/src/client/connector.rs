//! Makes connections to one server.

use std::error::Error;
use std::io;
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::time::timeout;
use tower_service::Service as _;

use crate::client::PoolSettings;
use crate::client::connection::PooledConnection;

/// The number of probes that may fail before a connection is closed.
const PROBES: u32 = 3;

/// Makes connections within a time limit that includes the address lookup.
#[derive(Clone)]
pub(crate) struct Connector {
    http: HttpConnector,
    origin: Uri,
    timeout: Duration,
}

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address was not found, or the server refused.
    #[error("{0}")]
    Refused(#[source] Box<dyn Error + Send + Sync>),
    /// The time limit was exceeded.
    #[error("no connection in time")]
    Timeout,
    /// The runtime ended before the connection was made.
    #[error("the runtime has ended")]
    Stopped,
}

impl ConnectError {
    /// Whether the process or the system has no free files. Others will be closed in time.
    pub(crate) fn is_out_of_files(&self) -> bool {
        match self {
            Self::Refused(error) => is_out_of_files(&**error),
            Self::Timeout | Self::Stopped => false,
        }
    }
}

/// Whether the cause of an error is that the process or the system has no free files.
pub fn is_out_of_files(error: &(dyn Error + 'static)) -> bool {
    /// `ENFILE` and `EMFILE`, equal on all Unix systems.
    const OUT_OF_FILES: [i32; 2] = [23, 24];
    let mut cause = Some(error);
    while let Some(error) = cause {
        let code = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::raw_os_error);
        if code.is_some_and(|code| OUT_OF_FILES.contains(&code)) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Makes TCP connections for a server, within the time for connecting and with the probes of
/// `settings`.
pub fn tcp_connector(settings: &PoolSettings) -> HttpConnector {
    let probes = settings.probes;
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(settings.connect_timeout));
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(probes.interval));
    tcp.set_keepalive_interval(Some(probes.interval));
    tcp.set_keepalive_retries(Some(PROBES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(probes.unacknowledged));
    tcp
}

impl Connector {
    pub(crate) fn new(origin: Uri, settings: &PoolSettings) -> Self {
        Self {
            http: tcp_connector(settings),
            origin,
            timeout: settings.connect_timeout,
        }
    }

    pub(crate) async fn connect(mut self) -> Result<Box<PooledConnection>, ConnectError> {
        let connecting = async {
            let refused = |error| ConnectError::Refused(Box::new(error));
            std::future::poll_fn(|cx| self.http.poll_ready(cx))
                .await
                .map_err(refused)?;
            let io = self.http.call(self.origin).await.map_err(refused)?;
            PooledConnection::connect(io.into_inner(), false)
                .await
                .map_err(|error| ConnectError::Refused(error.into()))
        };
        timeout(self.timeout, connecting)
            .await
            .unwrap_or(Err(ConnectError::Timeout))
    }
}
