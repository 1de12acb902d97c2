//! The HTTP side of the front end: Streamable HTTP for clients of both eras, and beside it the
//! deprecated HTTP+SSE transport.

mod arrived;
mod body;
mod connection;
mod cors;
mod events;
mod fields;
mod listener;
mod mcp;
mod negotiate;
mod reply;
mod sse_transport;
mod workers;

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::FrontendError;
use crate::insight::Insight;
use crate::settings::FrontendSettings;
use fanlight_canonical::Core;

/// Serves MCP clients on `listener` until `shutdown` is cancelled. Then no more connections are
/// accepted, and this returns when what is in flight is done, or after [`FrontendSettings::drain`].
///
/// # Errors
///
/// If the listening socket is unusable or the system has no random numbers. What a client does never ends the listener.
pub async fn serve_http<C: Core>(
    listener: TcpListener,
    core: Arc<C>,
    settings: Arc<FrontendSettings>,
    shutdown: CancellationToken,
) -> Result<(), FrontendError> {
    serve_http_observed(listener, core, settings, shutdown, &Insight::default()).await
}

/// The same, while `insight` can be asked about the clients.
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
