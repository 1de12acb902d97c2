//! HTTP for clients: the Streamable HTTP transport of both eras, and the deprecated HTTP+SSE transport.

mod activity;
mod arrived;
mod body;
mod challenge;
mod connection;
mod cors;
mod events;
mod fields;
mod http2;
mod limits;
mod listener;
mod mcp;
mod negotiate;
mod page;
mod reply;
mod serve;
mod sse_transport;
mod workers;

use std::sync::Arc;

use fanlight_http_edge::{Ends, LiveTls, SocketReceiver};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::error::FrontendError;
use crate::insight::Insight;
use crate::settings::FrontendSettings;
use fanlight_canonical::Core;

pub use limits::LiveLimits;

/// Serves MCP clients on `listener` until `shutdown` is cancelled. Then no more connections are accepted, and this returns
/// when all running requests are answered, or after [`FrontendSettings::drain`].
///
/// # Errors
///
/// If the system has no random numbers. No client can end the listener.
pub async fn serve_http<C: Core>(
    listener: TcpListener,
    core: Arc<C>,
    settings: Arc<FrontendSettings>,
    shutdown: CancellationToken,
) -> Result<(), FrontendError> {
    let (sockets, limits) = (SocketReceiver::only(listener), LiveLimits::new(&settings));
    let live = LiveListener { sockets, tls: LiveTls::default(), limits };
    serve_http_observed(live, core, settings, shutdown, &Insight::default()).await
}

/// The parts of a listener that can change while it serves.
#[derive(Debug)]
pub struct LiveListener {
    /// Its sockets. When it gets another, clients keep their sessions: the connections of the earlier socket end like those
    /// of a listener that stops, and streams with them.
    pub sockets: SocketReceiver,
    /// Whether it speaks TLS over TCP, and how. Over Unix sockets it does not.
    pub tls: LiveTls,
    /// Its limits.
    pub limits: Arc<LiveLimits>,
}

/// Like [`serve_http`]; meanwhile `insight` shows the clients.
///
/// # Errors
///
/// As for [`serve_http`].
pub async fn serve_http_observed<C: Core>(
    LiveListener { sockets, tls, limits }: LiveListener,
    core: Arc<C>,
    settings: Arc<FrontendSettings>,
    shutdown: CancellationToken,
    insight: &Insight,
) -> Result<(), FrontendError> {
    let cut = CancellationToken::new();
    let endpoint = Arc::new(mcp::Endpoint::new(core, &settings, Arc::clone(&limits), cut.clone())?);
    insight.begin(&endpoint);
    listener::serve(sockets, tls, &limits, endpoint, &settings, Ends { shutdown: &shutdown, cut: &cut }).await;
    Ok(())
}
