//! `fanlight run` and `fanlight stdio`: from start to graceful shutdown.

use std::path::PathBuf;
use std::sync::Arc;

use fanlight_admin::{Audit, AuditedAuthentication, LiveSettings, Subject, serve_admin};
use fanlight_auth::Authenticator;
use fanlight_config::{Config, Loaded};
use fanlight_frontend::{
    FrontendSettings, Insight, ListenAddress, ListeningSocket, LiveLimits, LiveListener, SocketReceiver,
    serve_http_observed, serve_stdio_observed,
};
use fanlight_telemetry::Telemetry;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::assembly::Assembly;
use crate::cli::{CommonArgs, ReloadArgs, RunArgs, StdioArgs};
use crate::endpoints;
use crate::failure::{Failure, Unusable};
use crate::list_state::ListState;
use crate::log::Log;
use crate::reload::{Control, Keeper, Keeping, Listener, Listeners, Source, Start, Watch, warn_if_open};
use crate::service_manager::{self, Sockets};
use crate::welcome::{self, Addresses};
use crate::wiring::frontend_settings;
use crate::workers::Workers;
use crate::{admin, auth, configuration, demo, files, listening, reload, standard_io, starts, telemetry};

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
    let authenticator = auth::authenticator(&loaded.config)?;
    let hangups = reload::hangups()?;
    if let Some(listen) = &args.listen {
        loaded.config.listen = listen.clone();
    }
    let files = files::raise();
    files::fit(&mut loaded.config.limits, files);
    let mut sockets = Sockets::take();
    let socket = match sockets.clients()? {
        Some(socket) => socket,
        None => {
            // Nothing is opened that may not be served.
            listening::check_clients(&loaded.config, &loaded.config.listen).map_err(Failure::usage)?;
            let options = listening::of_clients(&loaded.config);
            listening::bind(&loaded.config.listen, "--listen", options).map_err(Failure::other)?
        }
    };
    let is_fixed = args.listen.is_some() || socket.is_passed();
    let address = address_of(&socket)?;
    listening::check_clients(&loaded.config, &address).map_err(Failure::usage)?;
    let tls = listening::tls_of_clients(&loaded.config).map_err(Failure::usage)?;
    let configured = Some(as_read.config.listen.clone());
    let (clients, client_sockets) = Listener::new("listen", Some(socket), configured, is_fixed, tls);
    let client_tls = clients.tls.clone();
    let socket = admin::listen(&mut loaded.config, args.admin.clone(), sockets.operators()?)?;
    let configured = as_read.config.admin.listen.clone();
    let operators = Operators::new(socket, configured, args.admin.is_some(), &loaded.config)?;
    loaded.config.listen = address.clone();
    warn_if_open(&loaded.config, &address);

    // Backends outlive the listener, so that running calls can finish.
    let backends_end = CancellationToken::new();
    let (telemetry, guard) = telemetry::start(&loaded.config, &args.trace, log)?;
    let lists = ListState::open(&loaded.config, files_of(&as_read, common).as_deref())?;
    let assembly = Assembly::start(&loaded.config, &telemetry, &backends_end, lists)?;
    let workers = Workers::start(loaded.config.limits.workers)?;
    let settings = frontend_settings(&loaded.config, &telemetry, &backends_end);
    let (known, audit) = (Arc::<Authenticator>::clone(&authenticator), Arc::new(Audit::default()));
    let authenticate = Arc::new(AuditedAuthentication::new(Arc::<Authenticator>::clone(&known), Arc::clone(&audit)));
    let settings = Arc::new(FrontendSettings { workers: workers.runtimes(), authenticate, ..settings });
    let of_operators = operators.listener.address();
    let addresses = Addresses {
        clients: &address,
        operators: of_operators.as_ref(),
        configured_operators: as_read.config.admin.listen.as_ref(),
    };
    welcome::print(&loaded, &addresses, common);

    let core = Arc::clone(&assembly.gateway);
    let limits = LiveLimits::new(&settings);
    let listeners = Listeners {
        clients: Some(clients),
        operators: operators.listener,
        guard: settings.guard.clone(),
        protection: settings.protection.clone(),
        limits: Some(Arc::clone(&limits)),
        admin: operators.live.clone(),
        files,
        telemetry: telemetry.clone(),
    };
    let (control, keeping) = keep(
        (as_read, &loaded.config),
        (&args.reload, common),
        hangups,
        assembly,
        &telemetry,
        (listeners, authenticator),
    );
    let insight = Insight::default();
    let subject =
        admin::subject(Arc::new(control), &core, &telemetry, insight.clone(), (known, audit), shutdown.clone());
    let admin_listener = AdminListener::start(operators.sockets, subject, operators.live);
    let shown = Arc::clone(&core);
    // Ends with the process at the latest, or when all servers have been started.
    tokio::spawn(async move { starts::show_on_terminal(&shown).await });
    let live = LiveListener { sockets: client_sockets, tls: client_tls, limits };
    service_manager::ready();
    let _watchdog = service_manager::watchdog();
    let served = serve_http_observed(live, core, settings, shutdown, &insight).await;
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
    if demo::is_demo(&loaded) {
        warn!("DEMO: {}", demo::NOTICE);
    }
    let as_read = loaded.clone();
    let authenticator = auth::authenticator(&loaded.config)?;
    let hangups = reload::hangups()?;
    let socket = admin::listen_if_configured(&mut loaded.config, args.admin.clone())?;
    let configured = as_read.config.admin.listen.clone().filter(|_| !as_read.config.admin.is_default);
    let mut operators = Operators::new(socket, configured, args.admin.is_some(), &loaded.config)?;
    operators.listener.needs_address = true;
    if let Some(address) = operators.listener.address() {
        // Standard output is the client's.
        match admin::page(&loaded.config, &address) {
            Some(page) => info!("admin on {}://{address}, page at {page}", listening::scheme(&loaded.config.admin.tls)),
            None => info!("admin on {address}"),
        }
    }
    let backends_end = CancellationToken::new();
    let (telemetry, guard) = telemetry::start(&loaded.config, &args.trace, log)?;
    let lists = ListState::open(&loaded.config, files_of(&as_read, common).as_deref())?;
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
    let (known, audit) = (Arc::<Authenticator>::clone(&authenticator), Arc::new(Audit::default()));
    let listeners = Listeners {
        clients: None,
        operators: operators.listener,
        guard: settings.guard.clone(),
        protection: settings.protection.clone(),
        limits: None,
        admin: operators.live.clone(),
        files: None,
        telemetry: telemetry.clone(),
    };
    let (control, keeping) = keep(
        (as_read, &loaded.config),
        (&args.reload, common),
        hangups,
        assembly,
        &telemetry,
        (listeners, authenticator),
    );
    let insight = Insight::default();
    let subject =
        admin::subject(Arc::new(control), &core, &telemetry, insight.clone(), (known, audit), shutdown.clone());
    let admin_listener = AdminListener::start(operators.sockets, subject, operators.live);
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
    (listeners, authenticator): (Listeners, Arc<Authenticator>),
) -> (Control, Keeping) {
    let is_demo = demo::is_demo(&loaded);
    let paths = files_of(&loaded, common);
    let source: Source = Box::new(move || match &paths {
        None => Err(Unusable::Other("the built-in demo has no configuration to reload; use --config".to_owned())),
        Some(paths) => configuration::read_again(paths),
    });
    let watch = if args.no_watch || is_demo { None } else { Watch::new() };
    let (in_force, telemetry) = (in_force.clone(), telemetry.clone());
    Keeper::start(Start { source, loaded, in_force, assembly, telemetry, listeners, authenticator, watch, hangups })
}

/// The files of the configuration; the demo has none.
fn files_of(loaded: &Loaded, common: &CommonArgs) -> Option<Vec<PathBuf>> {
    if demo::is_demo(loaded) { None } else { configuration::paths(common) }
}

/// The parts of the listener for operators.
struct Operators {
    listener: Listener,
    sockets: SocketReceiver,
    live: LiveSettings,
}

impl Operators {
    /// With this socket, if it listens; `configured` is the address that the configuration gives it.
    fn new(
        socket: Option<ListeningSocket>,
        configured: Option<ListenAddress>,
        has_flag: bool,
        config: &Config,
    ) -> Result<Self, Failure> {
        let is_fixed = has_flag || socket.as_ref().is_some_and(ListeningSocket::is_passed);
        let tls = listening::tls_of_operators(config).map_err(Failure::usage)?;
        let (listener, sockets) = Listener::new("admin.listen", socket, configured, is_fixed, tls);
        let live = LiveSettings::new(admin::settings(config, listener.address().as_ref()));
        let live = live.with_tls(listener.tls.clone());
        Ok(Self { listener, sockets, live })
    }
}

/// The running admin listener.
struct AdminListener(JoinHandle<()>, CancellationToken);

impl AdminListener {
    fn start(sockets: SocketReceiver, subject: Subject, live: LiveSettings) -> Self {
        let end = CancellationToken::new();
        Self(tokio::spawn(serve_admin(sockets, subject, live, end.clone())), end)
    }

    async fn stop(self) {
        self.1.cancel();
        // It has nothing to drain, and an error at this point changes nothing.
        let _ = self.0.await;
    }
}

fn address_of(socket: &ListeningSocket) -> Result<ListenAddress, Failure> {
    socket.address().map_err(|error| Failure::other(format!("cannot read the listening address: {error}")))
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
