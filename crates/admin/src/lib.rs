//! The listener for operators: liveness, readiness, metrics, a JSON API (docs/api.md), and a page in the browser that
//! uses only that API.
//!
//! No request of a client locks or waits for anything here. What operators change is done by [`Operations`]. The page treats everything that backends
//! and clients say as hostile text.

mod access;
mod api;
mod operations;
mod ready;
mod reply;
mod router;
mod settings;
mod token;
mod ui;
mod values;

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use fanlight_gateway::Gateway;
use fanlight_http_edge::{AcceptLimits, Http1Limits, accept_and_spawn, serve_http1};
use fanlight_telemetry::Telemetry;
use fanlight_telemetry::clients::Clients;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use operations::{OperationError, Operations, Reloaded};
pub use settings::AdminSettings;

use router::{Admin, health_router, router};

/// Connections beyond `limits.adminConnections`, on which only health is told: an orchestrator that gets no answer
/// restarts the gateway. No option: orchestrators ask one at a time.
const HEALTH_CONNECTIONS: usize = 8;

/// Connections that wait for another to end.
const WAITING_CONNECTIONS: usize = 32;

/// What operators can look at.
pub struct Subject {
    /// The core: backends, catalogue and calls.
    pub gateway: Arc<Gateway>,
    /// Traces and metrics.
    pub telemetry: Telemetry,
    /// The clients.
    pub clients: Arc<dyn Clients>,
    /// The configuration in force, and changes of it.
    pub operations: Arc<dyn Operations>,
    /// The version of the program.
    pub version: &'static str,
    /// The URL of the MCP endpoint.
    pub endpoint: String,
    /// Cancelled when draining begins; from then on the process is not ready.
    pub draining: CancellationToken,
}

/// Serves on `listener` until `shutdown` is cancelled; running responses then have a second to end.
///
/// # Errors
///
/// If the listening socket is unusable.
pub async fn serve_admin(
    listener: TcpListener,
    subject: Subject,
    settings: AdminSettings,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let (address, drain) = (listener.local_addr()?, settings.drain);
    let connections = AcceptLimits {
        connections: settings.max_connections,
        waiting: WAITING_CONNECTIONS.min(settings.max_connections.div_ceil(2)),
        longest_wait: settings.header_timeout,
        reserve: HEALTH_CONNECTIONS,
        per_peer: 0,
        name: "limits.adminConnections",
    };
    let limits = Http1Limits {
        head: settings.max_header,
        head_timeout: settings.header_timeout,
        write_timeout: settings.write_timeout,
    };
    let admin = Arc::new(Admin::new(subject, settings, address, SystemTime::now(), shutdown.clone()));
    let all = TowerToHyperService::new(router(&admin));
    let health = TowerToHyperService::new(health_router(&admin));
    let ending = shutdown.clone();
    let serve = move |stream, usage, is_reserve| {
        let service = if is_reserve { health.clone() } else { all.clone() };
        let serving = serve_http1(stream, service, limits, usage, ending.clone());
        async move {
            if let Err(error) = serving.await {
                tracing::debug!(%error, "connection to the admin listener broke");
            }
        }
    };
    accept_and_spawn(listener, connections, drain, shutdown, serve).await;
    Ok(())
}
