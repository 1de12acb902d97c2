//! `fanlight run` and `fanlight stdio`: life from start to drained end.
//!
//! Must not know: what travels through.

use std::net::SocketAddr;
use std::sync::Arc;

use fanlight_admin::{Subject, serve_admin};
use fanlight_config::{Config, Loaded};
use fanlight_frontend::{FrontendSettings, Insight, serve_http_observed, serve_stdio_observed};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::cli::{RunArgs, StdioArgs};
use crate::failure::Failure;
use crate::wiring::{Assembly, frontend_settings};
use crate::workers::Workers;
use crate::{admin, files, standard_io, telemetry, welcome};

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
    let admin = admin::listen(&mut loaded.config, args.admin).await?;
    let address = local_address(&listener)?;
    loaded.config.listen = address;
    if !address.ip().is_loopback() {
        warn!(%address, "listening beyond this machine, and clients are not authenticated: put something in front that does");
    }

    // Backends outlive the listener, so that running calls can finish.
    let backends_end = CancellationToken::new();
    let (telemetry, guard) = telemetry::start(&loaded.config, &args.trace)?;
    let assembly = Assembly::start(&loaded.config, &telemetry, &backends_end)?;
    let workers = Workers::start(loaded.config.limits.workers)?;
    let settings = frontend_settings(&loaded.config, &telemetry);
    let settings = Arc::new(FrontendSettings { workers: workers.runtimes(), ..settings });
    welcome::print(&loaded, address, admin.as_ref().and_then(|admin| admin.local_addr().ok()));

    let insight = Insight::default();
    let endpoint = format!("http://{address}{}", loaded.config.path);
    let operators = Operators::admit(admin, &loaded.config, || {
        admin::subject(&loaded.config, &assembly.gateway, &telemetry, insight.clone(), shutdown.clone(), endpoint)
    });
    let served = serve_http_observed(listener, Arc::clone(&assembly.gateway), settings, shutdown, &insight).await;
    assembly.stop().await;
    backends_end.cancel();
    drop(workers);
    operators.end().await;
    telemetry::end(guard).await;
    info!("ended");
    served.map_err(|error| Failure::other(error.to_string()))
}

/// Serves over standard input and output until the input ends or a signal comes.
pub(crate) async fn stdio(loaded: Loaded, args: &StdioArgs) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let shutdown = signals.shutdown.clone();
    signals.or_at_once(Box::pin(stdio_until(loaded, args, shutdown))).await
}

async fn stdio_until(mut loaded: Loaded, args: &StdioArgs, shutdown: CancellationToken) -> Result<(), Failure> {
    files::raise();
    let admin = admin::listen_if_asked(&mut loaded.config, args.admin).await?;
    if let Some(address) = admin.as_ref().and_then(|admin| admin.local_addr().ok()) {
        // Standard output is the client's.
        info!("admin on http://{address}, see it at {}", admin::page(address));
    }
    let backends_end = CancellationToken::new();
    let (telemetry, guard) = telemetry::start(&loaded.config, &args.trace)?;
    let assembly = Assembly::start(&loaded.config, &telemetry, &backends_end)?;
    let settings = Arc::new(frontend_settings(&loaded.config, &telemetry));
    let core = Arc::clone(&assembly.gateway);
    let insight = Insight::default();
    let operators = Operators::admit(admin, &loaded.config, || {
        admin::subject(&loaded.config, &core, &telemetry, insight.clone(), shutdown.clone(), "stdio".to_owned())
    });
    let served =
        serve_stdio_observed(standard_io::input(), standard_io::output(), core, settings, shutdown, &insight).await;
    assembly.stop().await;
    backends_end.cancel();
    operators.end().await;
    telemetry::end(guard).await;
    served.map_err(|error| Failure::other(error.to_string()))
}

/// The admin listener while it is served, if there is one.
struct Operators(Option<(JoinHandle<std::io::Result<()>>, CancellationToken)>);

impl Operators {
    fn admit(listener: Option<TcpListener>, config: &Config, subject: impl FnOnce() -> Subject) -> Self {
        Self(listener.map(|listener| {
            let end = CancellationToken::new();
            (tokio::spawn(serve_admin(listener, subject(), admin::settings(config), end.clone())), end)
        }))
    }

    async fn end(self) {
        if let Some((served, end)) = self.0 {
            end.cancel();
            // It has nothing to drain; how it ended changes nothing any more.
            let _ = served.await;
        }
    }
}

pub(crate) async fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::other(format!("cannot listen on {address}: {error}; choose another address with {flag}"))
    })
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
            first.cancel();
            info!("shutting down; a second signal ends at once");
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
