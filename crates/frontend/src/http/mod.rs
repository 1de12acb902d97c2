//! HTTP for clients: the Streamable HTTP transport of both eras, and the deprecated HTTP+SSE transport.

mod activity;
mod arrived;
mod body;
mod connection;
mod cors;
mod events;
mod fields;
mod http2;
mod listener;
mod mcp;
mod negotiate;
mod reply;
mod serve;
mod sse_transport;
mod workers;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::FrontendError;
use crate::insight::Insight;
use crate::settings::FrontendSettings;
use fanlight_canonical::Core;

/// Serves MCP clients on `listener` until `shutdown` is cancelled. Then no more connections are accepted, and this returns
/// when all running requests are answered, or after [`FrontendSettings::drain`].
///
/// # Errors
///
/// If the listening socket is unusable or the system has no random numbers. No client can end the listener.
pub async fn serve_http<C: Core>(
    listener: TcpListener,
    core: Arc<C>,
    settings: Arc<FrontendSettings>,
    shutdown: CancellationToken,
) -> Result<(), FrontendError> {
    serve_http_observed(listener, core, settings, shutdown, &Insight::default()).await
}

/// Like [`serve_http`]; meanwhile `insight` shows the clients.
///
/// # Errors
///
/// As for [`serve_http`].
pub async fn serve_http_observed<C: Core>(
    listener: TcpListener,
    core: Arc<C>,
    settings: Arc<FrontendSettings>,
    shutdown: CancellationToken,
    insight: &Insight,
) -> Result<(), FrontendError> {
    let cut = CancellationToken::new();
    let endpoint = Arc::new(mcp::Endpoint::new(core, &settings, shutdown.clone(), cut.clone())?);
    insight.begin(&endpoint);
    listener::serve(listener, endpoint, &settings, shutdown, cut).await
}
