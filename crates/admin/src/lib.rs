//! The listener for operators: whether the process is alive and ready, its metrics, a JSON API
//! (docs/api.md), and a page in the browser that is made of nothing but that API.
//!
//! It looks at the rest and never stands in its way: nothing here is locked or waited for by a
//! request of a client. Everything that backends and clients say is hostile text to the page.
//!
//! Must not know: how clients arrive, where the configuration comes from.

mod api;
mod guard;
mod listener;
mod ready;
mod reply;
mod router;
mod settings;
mod shown;
mod token;
mod ui;

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use fanlight_gateway::Gateway;
use fanlight_protocol::Json;
use fanlight_telemetry::Telemetry;
use fanlight_telemetry::clients::Clients;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use settings::AdminSettings;

use router::Router;

/// What there is to look at.
pub struct Subject {
    /// The core: backends, catalogue, and the way of calls.
    pub gateway: Arc<Gateway>,
    /// Traces and metrics.
    pub telemetry: Telemetry,
    /// The clients.
    pub clients: Arc<dyn Clients>,
    /// The configuration in force, without secrets.
    pub config: Json,
    /// The version of the program.
    pub version: &'static str,
    /// The URL of the MCP endpoint.
    pub endpoint: String,
    /// Cancelled once no more requests are taken: then it is ready no more.
    pub draining: CancellationToken,
}

/// Serves on `listener` until `shutdown` is cancelled. What is being answered then has a second to
/// end.
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
    let address = listener.local_addr()?;
    let settings = Arc::new(settings);
    let router = Router::new(subject, &settings, address, SystemTime::now(), shutdown.clone());
    listener::serve(listener, Arc::new(router), &settings, shutdown).await;
    Ok(())
}
