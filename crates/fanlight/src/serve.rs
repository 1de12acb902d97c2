//! `fanlight run` and `fanlight stdio`: life from start to drained end.
//!
//! Must not know: what travels through.

use std::net::SocketAddr;
use std::sync::Arc;

use fanlight_backend::BackendState;
use fanlight_config::{Config, Loaded};
use fanlight_frontend::{Health, serve_admin, serve_http, serve_stdio};
use fanlight_gateway::Gateway;
use fanlight_protocol::json::{ArrayBuilder, Json, ObjectBuilder};
use fanlight_telemetry::Telemetry;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::cli::{Admin, RunArgs, TraceArgs};
use crate::failure::Failure;
use crate::wiring::{Assembly, frontend_settings};
use crate::{files, telemetry, welcome};

/// Serves over HTTP until a signal comes.
pub(crate) async fn http(loaded: Loaded, args: &RunArgs) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let shutdown = signals.shutdown.clone();
    signals.or_at_once(http_until(loaded, args, shutdown)).await
}

async fn http_until(mut loaded: Loaded, args: &RunArgs, shutdown: CancellationToken) -> Result<(), Failure> {
    if let Some(listen) = args.listen {
        loaded.config.listen = listen;
    }
    files::fit(&mut loaded.config.limits, files::raise());
    let listener = bind(loaded.config.listen, "--listen").await?;
    let admin = bind_admin(&mut loaded.config, args.admin).await?;
    let address = local_address(&listener)?;
    loaded.config.listen = address;
    if !address.ip().is_loopback() {
        warn!(%address, "listening beyond this machine, and clients are not authenticated: put something in front that does");
    }

    // Backends outlive the listener, so that running calls can finish.
    let backends_end = CancellationToken::new();
    let (telemetry, guard) = telemetry::start(&loaded.config, &args.trace)?;
    let assembly = Assembly::start(&loaded.config, &telemetry, &backends_end)?;
    let settings = frontend_settings(&loaded.config, &telemetry);
    welcome::print(&loaded, address, admin.as_ref().and_then(|admin| admin.local_addr().ok()));

    let gateway = Arc::clone(&assembly.gateway);
    let health = Arc::new(Readiness { gateway, telemetry, shutdown: shutdown.clone() });
    let admin_end = CancellationToken::new();
    let admin =
        admin.map(|listener| tokio::spawn(serve_admin(listener, health, Arc::clone(&settings), admin_end.clone())));
    let served = serve_http(listener, Arc::clone(&assembly.gateway), settings, shutdown).await;
    assembly.stop().await;
    backends_end.cancel();
    admin_end.cancel();
    if let Some(admin) = admin {
        // It has nothing to drain; how it ended changes nothing any more.
        let _ = admin.await;
    }
    telemetry::end(guard).await;
    info!("ended");
    served.map_err(|error| Failure::other(error.to_string()))
}

/// Serves over standard input and output until the input ends or a signal comes.
pub(crate) async fn stdio(loaded: Loaded, args: &TraceArgs) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let shutdown = signals.shutdown.clone();
    signals.or_at_once(Box::pin(stdio_until(loaded, args, shutdown))).await
}

async fn stdio_until(loaded: Loaded, args: &TraceArgs, shutdown: CancellationToken) -> Result<(), Failure> {
    files::raise();
    let backends_end = CancellationToken::new();
    let (telemetry, guard) = telemetry::start(&loaded.config, args)?;
    let assembly = Assembly::start(&loaded.config, &telemetry, &backends_end)?;
    let settings = frontend_settings(&loaded.config, &telemetry);
    let core = Arc::clone(&assembly.gateway);
    let served = serve_stdio(tokio::io::stdin(), tokio::io::stdout(), core, settings, shutdown).await;
    assembly.stop().await;
    backends_end.cancel();
    telemetry::end(guard).await;
    served.map_err(|error| Failure::other(error.to_string()))
}

async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::other(format!("cannot listen on {address}: {error}; choose another address with {flag}"))
    })
}

/// The admin listener. One that was not asked for on the command line is not worth failing for:
/// a second Fanlight on the same machine finds the default address taken.
async fn bind_admin(config: &mut Config, flag: Option<Admin>) -> Result<Option<TcpListener>, Failure> {
    match flag {
        Some(Admin::Off) => Ok(None),
        Some(Admin::At(address)) => bind(address, "--admin").await.map(Some),
        None => match config.admin.listen {
            None => Ok(None),
            Some(address) => match bind(address, "--admin").await {
                Ok(listener) => Ok(Some(listener)),
                Err(failure) => {
                    warn!("no admin listener: {failure}");
                    Ok(None)
                }
            },
        },
    }
}

fn local_address(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| Failure::other(format!("cannot tell the listening address: {error}")))
}

/// What SIGTERM and SIGINT ask for.
struct Signals {
    /// Cancelled by the first: finish what is in flight and end.
    shutdown: CancellationToken,
    /// Cancelled by the second: end now.
    at_once: CancellationToken,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let cannot = |error| Failure::other(format!("cannot listen for signals: {error}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
        let (shutdown, at_once) = (CancellationToken::new(), CancellationToken::new());
        let (first, second) = (shutdown.clone(), at_once.clone());
        // Ends with the runtime, as the process does.
        tokio::spawn(async move {
            let mut next = async || tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () };
            next().await;
            info!("shutting down; a second signal ends at once");
            first.cancel();
            next().await;
            second.cancel();
        });
        Ok(Self { shutdown, at_once })
    }

    /// Does `work` to its end, unless there is no time for that. What is dropped then takes its
    /// child processes with it.
    async fn or_at_once(&self, work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
        self.at_once.run_until_cancelled(work).await.unwrap_or_else(|| Err(Failure::cut_short()))
    }
}

/// Ready once every backend's first attempt to connect has ended, and while one of them can be
/// used.
struct Readiness {
    gateway: Arc<Gateway>,
    telemetry: Telemetry,
    shutdown: CancellationToken,
}

impl Health for Readiness {
    fn is_ready(&self) -> bool {
        let status = self.gateway.status();
        let usable = status.iter().any(|(_, status)| matches!(status.state, BackendState::Ready | BackendState::Idle));
        // Later attempts do not count: a backend that comes and goes must not take the others with it.
        let attempted = status.iter().all(|(_, status)| status.attempted);
        usable && attempted && !self.shutdown.is_cancelled()
    }

    fn metrics(&self) -> String {
        self.telemetry.prometheus()
    }

    fn report(&self) -> String {
        let mut backends = ArrayBuilder::default();
        for (name, status) in self.gateway.status() {
            let mut backend = ObjectBuilder::new();
            backend.string("name", &name).string("transport", status.transport);
            let state = match &status.state {
                BackendState::Idle => "idle",
                BackendState::Connecting => "connecting",
                BackendState::Ready => "ready",
                BackendState::Down { .. } => "down",
            };
            backend.string("state", state);
            if let (Some(era), Some(revision)) = (status.era, status.revision) {
                backend.string("era", &era.to_string()).string("revision", revision);
            }
            if let BackendState::Down { error, .. } = &status.state {
                backend.string("error", &error.to_string());
            }
            backends.push(&backend.finish());
        }
        let mut report = ObjectBuilder::new();
        report.member("ready", &Json::literal(if self.is_ready() { "true" } else { "false" }));
        report.member("backends", &backends.finish());
        report.finish().as_text().to_owned()
    }
}
