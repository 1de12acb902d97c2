//! `fanlight run` and `fanlight stdio`: from start to graceful shutdown.

use std::net::SocketAddr;
use std::sync::Arc;

use fanlight_admin::{Subject, serve_admin};
use fanlight_config::{Config, Loaded};
use fanlight_frontend::{FrontendSettings, Insight, serve_http_observed, serve_stdio_observed};
use fanlight_telemetry::Telemetry;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::cli::{CommonArgs, ReloadArgs, RunArgs, StdioArgs};
use crate::endpoints;
use crate::failure::Failure;
use crate::list_state::ListState;
use crate::log::Log;
use crate::reload::{Control, Keeper, Keeping, Source, Start, Unusable, Watch};
use crate::service_manager::{self, Sockets};
use crate::wiring::{self, Assembly, frontend_settings};
use crate::workers::Workers;
use crate::{admin, files, reload, standard_io, telemetry, welcome};

/// Connections that wait to be accepted, as many as `TcpListener::bind` allows.
const BACKLOG: u32 = 1024;

/// Serves over HTTP until a signal arrives.
pub(crate) async fn http(loaded: Loaded, args: &RunArgs, common: &CommonArgs, log: &Log) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let shutdown = signals.shutdown.clone();
    signals.run_until_second(Box::pin(http_until(loaded, (args, common), log, shutdown))).await
}

async fn http_until(
    mut loaded: Loaded,
    (args, common): (&RunArgs, &CommonArgs),
    log: &Log,
    shutdown: CancellationToken,
) -> Result<(), Failure> {
    let as_read = loaded.clone();
    let hangups = reload::hangups()?;
    if let Some(listen) = args.listen {
        loaded.config.listen = listen;
    }
    files::fit(&mut loaded.config.limits, files::raise());
    let mut sockets = Sockets::take();
    let listener = match sockets.clients()? {
        Some(listener) => listener,
        None => bind(loaded.config.listen, "--listen", loaded.config.reuse_port).await?,
    };
    let admin = admin::listen(&mut loaded.config, args.admin, sockets.operators()?).await?;
    let address = local_address(&listener)?;
    loaded.config.listen = address;
    if !address.ip().is_loopback() {
        warn!(%address, "listening beyond this machine without authentication of clients: put an authenticating proxy in front");
    }

    // Backends outlive the listener, so that running calls can finish.
    let backends_end = CancellationToken::new();
    let (telemetry, guard) = telemetry::start(&loaded.config, &args.trace, log)?;
    let lists = ListState::open(&loaded.config)?;
    let assembly = Assembly::start(&loaded.config, &telemetry, &backends_end, lists)?;
    let workers = Workers::start(loaded.config.limits.workers)?;
    let settings = frontend_settings(&loaded.config, &telemetry, &backends_end);
    let settings = Arc::new(FrontendSettings { workers: workers.runtimes(), ..settings });
    welcome::print(&loaded, address, admin.as_ref().and_then(|admin| admin.local_addr().ok()));

    let core = Arc::clone(&assembly.gateway);
    let (control, keeping) =
        keep((as_read, &loaded.config), (&args.reload, common), hangups, assembly, &telemetry, &settings);
    let insight = Insight::default();
    let endpoint = format!("http://{address}{}", loaded.config.shown_path());
    let admin_listener = AdminListener::start(admin, &loaded.config, || {
        admin::subject(&control, &core, &telemetry, insight.clone(), shutdown.clone(), endpoint)
    });
    service_manager::ready();
    let _watchdog = service_manager::watchdog();
    let served = serve_http_observed(listener, core, settings, shutdown, &insight).await;
    keeping.stop().await;
    backends_end.cancel();
    drop(workers);
    admin_listener.stop().await;
    telemetry::end(guard, loaded.config.timeouts.flush).await;
    info!("stopped");
    served.map_err(|error| Failure::other(error.to_string()))
}

/// Serves over standard input and output until the input ends or a signal arrives.
pub(crate) async fn stdio(loaded: Loaded, args: &StdioArgs, common: &CommonArgs, log: &Log) -> Result<(), Failure> {
    let signals = Signals::listen()?;
    let shutdown = signals.shutdown.clone();
    signals.run_until_second(Box::pin(stdio_until(loaded, (args, common), log, shutdown))).await
}

async fn stdio_until(
    mut loaded: Loaded,
    (args, common): (&StdioArgs, &CommonArgs),
    log: &Log,
    shutdown: CancellationToken,
) -> Result<(), Failure> {
    files::raise();
    let as_read = loaded.clone();
    let hangups = reload::hangups()?;
    let admin = admin::listen_if_configured(&mut loaded.config, args.admin).await?;
    if let Some(address) = admin.as_ref().and_then(|admin| admin.local_addr().ok()) {
        // Standard output is the client's.
        info!("admin on http://{address}, page at {}", admin::page(address));
    }
    let backends_end = CancellationToken::new();
    let (telemetry, guard) = telemetry::start(&loaded.config, &args.trace, log)?;
    let lists = ListState::open(&loaded.config)?;
    let assembly = Assembly::start(&loaded.config, &telemetry, &backends_end, lists)?;
    let path = args.endpoint.as_deref().unwrap_or(&loaded.config.path);
    let endpoint = match endpoints::find(&assembly.gateway, path) {
        Ok(endpoint) => endpoint,
        Err(failure) => {
            assembly.stop().await;
            backends_end.cancel();
            return Err(failure);
        }
    };
    let settings = FrontendSettings { endpoint, ..frontend_settings(&loaded.config, &telemetry, &backends_end) };
    let settings = Arc::new(settings);
    let core = Arc::clone(&assembly.gateway);
    let (control, keeping) =
        keep((as_read, &loaded.config), (&args.reload, common), hangups, assembly, &telemetry, &settings);
    let insight = Insight::default();
    let admin_listener = AdminListener::start(admin, &loaded.config, || {
        admin::subject(&control, &core, &telemetry, insight.clone(), shutdown.clone(), "stdio".to_owned())
    });
    let served =
        serve_stdio_observed(standard_io::input(), standard_io::output(), core, settings, shutdown, &insight).await;
    keeping.stop().await;
    backends_end.cancel();
    admin_listener.stop().await;
    telemetry::end(guard, loaded.config.timeouts.flush).await;
    served.map_err(|error| Failure::other(error.to_string()))
}

/// Keeps the configuration in force and up to date.
fn keep(
    (loaded, in_force): (Loaded, &Config),
    (args, common): (&ReloadArgs, &CommonArgs),
    hangups: Signal,
    assembly: Assembly,
    telemetry: &Telemetry,
    settings: &Arc<FrontendSettings>,
) -> (Control, Keeping) {
    let guard = settings.guard.clone();
    let apply = move |config: &Config| guard.replace(&config.allowed_hosts, &config.allowed_origins);
    // The demo has no file.
    let is_demo = loaded.files.is_empty();
    let paths = if is_demo { None } else { wiring::paths(common) };
    let source: Source = Box::new(move || match &paths {
        None => Err(Unusable::Other("the built-in demo has no configuration to reload; use --config".to_owned())),
        Some(paths) => wiring::read_again(paths),
    });
    let watch = if args.no_watch || is_demo { None } else { Watch::new() };
    let (in_force, telemetry, apply) = (in_force.clone(), telemetry.clone(), Box::new(apply));
    Keeper::start(Start { source, loaded, in_force, assembly, telemetry, apply, watch, hangups })
}

/// The running admin listener, if there is one.
struct AdminListener(Option<(JoinHandle<std::io::Result<()>>, CancellationToken)>);

impl AdminListener {
    fn start(listener: Option<TcpListener>, config: &Config, subject: impl FnOnce() -> Subject) -> Self {
        Self(listener.map(|listener| {
            let end = CancellationToken::new();
            (tokio::spawn(serve_admin(listener, subject(), admin::settings(config), end.clone())), end)
        }))
    }

    async fn stop(self) {
        if let Some((served, end)) = self.0 {
            end.cancel();
            // It has nothing to drain, and an error at this point changes nothing.
            let _ = served.await;
        }
    }
}

/// Listens at `address`; with `reuse_port` other processes may, too.
pub(crate) async fn bind(address: SocketAddr, flag: &str, reuse_port: bool) -> Result<TcpListener, Failure> {
    let bound = if reuse_port { bind_with_others(address) } else { TcpListener::bind(address).await };
    bound.map_err(|error| {
        Failure::other(format!("cannot listen on {address}: {error}; choose another address with {flag}"))
    })
}

fn bind_with_others(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn local_address(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| Failure::other(format!("cannot read the listening address: {error}")))
}

/// The tokens that SIGTERM and SIGINT cancel.
struct Signals {
    /// Cancelled by the first signal: finish running requests, then stop.
    shutdown: CancellationToken,
    /// Cancelled by the second signal: stop immediately.
    immediate: CancellationToken,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let cannot = |error| Failure::other(format!("cannot listen for signals: {error}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
        let (shutdown, immediate) = (CancellationToken::new(), CancellationToken::new());
        let (first, second) = (shutdown.clone(), immediate.clone());
        // Runs until the runtime ends.
        tokio::spawn(async move {
            let mut next = async || tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () };
            next().await;
            first.cancel();
            service_manager::stopping();
            info!("shutting down; a second signal stops immediately");
            next().await;
            second.cancel();
        });
        Ok(Self { shutdown, immediate })
    }

    /// Runs `work` until it ends or the second signal arrives. Dropping it then ends its child
    /// processes.
    async fn run_until_second(&self, work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
        self.immediate.run_until_cancelled(work).await.unwrap_or_else(|| Err(Failure::interrupted()))
    }
}
