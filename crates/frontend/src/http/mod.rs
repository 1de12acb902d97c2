//! HTTP for clients: the Streamable HTTP transport of both eras, and the deprecated HTTP+SSE
//! transport.

mod activity;
mod body;
mod challenge;
mod connection;
mod cors;
mod events;
mod http2;
mod limits;
mod listener;
mod mcp;
mod recorded;
mod reply;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fanlight_gateway::Gateway;
use fanlight_http::{Ends, LiveTls, SocketReceiver};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{FrontendError, FrontendSettings, Insight};
pub use limits::LiveLimits;
use mcp::forward::ForwardedRequests;

/// Serves MCP clients on `listener` until `shutdown` is cancelled. Then it accepts no more
/// connections, and returns once all running requests are answered, at the latest after
/// [`FrontendSettings::drain`].
///
/// # Errors
///
/// If the system has no random numbers. No client can end the listener.
pub async fn serve_http(
    listener: TcpListener,
    core: Arc<Gateway>,
    settings: Arc<FrontendSettings>,
    shutdown: CancellationToken,
) -> Result<(), FrontendError> {
    let live = LiveListener {
        sockets: SocketReceiver::fixed(listener),
        tls: LiveTls::default(),
        limits: LiveLimits::new(&settings),
        replicas: None,
    };
    serve_http_observed(live, core, settings, shutdown, &Insight::default()).await
}

/// The parts of a listener that can change while it serves.
#[derive(Debug)]
pub struct LiveListener {
    /// The sockets. When a socket is replaced, clients keep their sessions. Connections and streams
    /// of the old socket end as if the listener stopped.
    pub sockets: SocketReceiver,
    /// The TLS settings for TCP, if it is on. Unix sockets never use TLS.
    pub tls: LiveTls,
    /// The limits.
    pub limits: Arc<LiveLimits>,
    /// The listener for requests that other replicas forward.
    pub replicas: Option<ReplicaListener>,
}

/// The listener for other replicas. It serves until the listener for clients has drained.
#[derive(Debug)]
pub struct ReplicaListener {
    /// The sockets.
    pub sockets: SocketReceiver,
    /// The TLS settings, which demand a replica's certificate.
    pub tls: LiveTls,
}

/// Like [`serve_http`]; `insight` shows the clients meanwhile.
///
/// # Errors
///
/// As for [`serve_http`].
pub async fn serve_http_observed(
    LiveListener {
        sockets,
        tls,
        limits,
        replicas: listener,
    }: LiveListener,
    core: Arc<Gateway>,
    settings: Arc<FrontendSettings>,
    shutdown: CancellationToken,
    insight: &Insight,
) -> Result<(), FrontendError> {
    let cut = CancellationToken::new();
    let (of_endpoint, ending) = (Arc::clone(&limits), shutdown.clone());
    let endpoint = Arc::new(mcp::Endpoint::new(
        core,
        &settings,
        of_endpoint,
        ending,
        cut.clone(),
    )?);
    insight.begin(&endpoint);
    let (drained, began) = (CancellationToken::new(), OnceLock::new());
    // Both listeners together have this time.
    let drain = || {
        if shutdown.is_cancelled() {
            settings
                .drain
                .saturating_sub(began.get_or_init(Instant::now).elapsed())
        } else {
            settings.drain
        }
    };
    let clients = async {
        let ends = Ends {
            shutdown: &shutdown,
            cut: &cut,
        };
        listener::serve(
            sockets,
            tls,
            &limits,
            Arc::clone(&endpoint),
            &settings,
            drain,
            ends,
        )
        .await;
        drained.cancel();
    };
    let replicas = async {
        if let Some((listener, replicas)) = listener.zip(settings.replicas.clone()) {
            let forwarded = ForwardedRequests {
                endpoint: Arc::clone(&endpoint),
                replicas,
            };
            serve_replicas(listener, forwarded, &settings, drain, &drained).await;
        }
    };
    tokio::select! {
        _ = async { tokio::join!(clients, replicas) } => {}
        never = endpoint.give_up_what_is_lost() => match never {},
    }
    // By now, forwarded requests have been answered, too.
    endpoint.end_sessions().await;
    Ok(())
}

async fn serve_replicas(
    ReplicaListener { sockets, tls }: ReplicaListener,
    forwarded: ForwardedRequests,
    settings: &Arc<FrontendSettings>,
    drain: impl Fn() -> Duration,
    drained: &CancellationToken,
) {
    let limits = LiveLimits::for_replicas(settings);
    let cut = CancellationToken::new();
    let ends = Ends {
        shutdown: drained,
        cut: &cut,
    };
    listener::serve(
        sockets,
        tls,
        &limits,
        Arc::new(forwarded),
        settings,
        drain,
        ends,
    )
    .await;
}
