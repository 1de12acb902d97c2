//! `fanlight run` and `fanlight stdio`: the same life cycle for clients over HTTP and over standard
//! input and output.
//!
//! 1. [`Plan`] holds the configuration, and the listeners open their sockets. Everything that the
//!    configuration or the machine can refuse is refused here.
//! 2. [`Services::start`] starts telemetry, the servers and the core.
//! 3. [`Life::begin`] starts to follow changes of the configuration, and serves operators.
//! 4. Clients are served until the first signal or the end of the input, and then drained.
//! 5. [`Life::end`] ends the servers, then the admin listener and telemetry.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fanlight_admin::{LiveSettings, Subject, serve_admin};
use fanlight_auth::{Authenticator, UnknownKeys};
use fanlight_backend::enter_worker;
use fanlight_canonical::DEFAULT_PATH;
use fanlight_cli::cli::{CommonArgs, ReloadArgs, RunArgs, StdioArgs, TraceArgs};
use fanlight_cli::failure::{Failure, Result, Unusable};
use fanlight_cli::list_state::ListState;
use fanlight_cli::listeners::check_clients;
use fanlight_cli::log::Log;
use fanlight_cli::record::Recorder;
use fanlight_cli::users::{Clients, Users};
use fanlight_cli::welcome::{self, Addresses};
use fanlight_cli::{configuration, demo, endpoints, hooks, starts, telemetry};
use fanlight_config::{Config, Loaded};
use fanlight_fair::limit;
use fanlight_frontend::{
    CommonLimits, FrontendSettings, Insight, ListenAddress, ListeningSocket, LiveLimits,
    LiveListener, LiveProtection, SessionRecords, SocketReceiver, serve_http_observed,
    serve_stdio_observed,
};
use fanlight_gateway::Gateway;
use fanlight_gateway::approvals::Approvals;
use fanlight_otlp::Guard;
use fanlight_record::AuditLog;
use fanlight_replicas::{LinkCertificates, Linking, ReplicaTasks, Replicas, WITHIN};
use fanlight_telemetry::Telemetry;
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::assembly::Assembly;
use crate::reload::{
    self, Keeper, Keeping, Listener, Listeners, Source, Start, Watch, warn_if_open,
};
use crate::service_manager::{self, Sockets};
use crate::wiring::frontend_settings;
use crate::{admin, auth, content, files, listening, protection, standard_io};

/// Serves over HTTP until a signal arrives.
pub(crate) async fn http(loaded: Loaded, args: &RunArgs, common: &CommonArgs, log: &Log) -> Result {
    let signals = Signals::listen()?;
    let plan = Plan::new(loaded, common, &args.reload)?;
    signals
        .run_until_second(Box::pin(serve_http(
            plan,
            args,
            log,
            signals.shutdown.clone(),
        )))
        .await
}

/// Serves over standard input and output until the input ends or a signal arrives.
pub(crate) async fn stdio(
    loaded: Loaded,
    args: &StdioArgs,
    common: &CommonArgs,
    log: &Log,
) -> Result {
    let signals = Signals::listen()?;
    let plan = Plan::new(loaded, common, &args.reload)?;
    signals
        .run_until_second(Box::pin(serve_stdio(
            plan,
            args,
            log,
            signals.shutdown.clone(),
        )))
        .await
}

async fn serve_http(
    mut plan: Plan<'_>,
    args: &RunArgs,
    log: &Log,
    shutdown: CancellationToken,
) -> Result {
    let open_files = files::raise();
    files::fit(&mut plan.loaded.config.limits, open_files);
    let mut passed = Sockets::take();
    let clients = ClientListener::open(&mut plan, args.listen.as_ref(), passed.clients()?)?;
    let socket = admin::listen(
        &mut plan.loaded.config,
        args.admin.clone(),
        passed.operators()?,
    )?;
    let configured = plan.as_read.config.admin.listen.clone();
    let operators = Operators::new(
        socket,
        configured,
        args.admin.is_some(),
        &plan.loaded.config,
    )?;
    warn_if_open(&plan.loaded.config, &clients.address);

    let services = Services::start(&plan, &args.trace, log, Clients::OfListener, &shutdown).await?;
    let workers = Workers::start(limit("workers", 0))?;
    let settings = services.frontend_settings(&plan.loaded.config)?;
    let known = Arc::clone(&plan.authenticator);
    let pages = Some(services.users.pages(&settings.guard, known));
    let (link, replica_listener, link_certificates) = match services.link(&plan.loaded.config)? {
        Some((link, listener, certificates)) => (Some(link), Some(listener), Some(certificates)),
        None => (None, None, None),
    };
    let session_records = services.session_records(&plan.loaded.config, link.is_some());
    let settings = Arc::new(FrontendSettings {
        workers: workers.runtimes(),
        authenticate: Arc::<Authenticator>::clone(&plan.authenticator),
        pages,
        replicas: link.map(|link| link as Arc<dyn fanlight_frontend::forwarding::Replicas>),
        session_records,
        ..settings
    });
    plan.welcome(&clients.address, &operators);

    let limits = LiveLimits::new(&settings);
    let live = LiveListener {
        sockets: clients.sockets,
        tls: clients.listener.tls.clone(),
        limits: Arc::clone(&limits),
        replicas: replica_listener,
    };
    let side = ClientSide {
        settings: &settings,
        listener: Some(clients.listener),
        limits: Some(limits),
        link: link_certificates,
        open_files,
    };
    let life = Life::begin(plan, services, operators, side, shutdown.clone());
    let shown = Arc::clone(&life.core);
    // This ends when all servers have started, at the latest with the process.
    tokio::spawn(async move { starts::show_on_terminal(&shown).await });
    service_manager::ready();
    let _watchdog = service_manager::watchdog();
    let served = serve_http_observed(
        live,
        Arc::clone(&life.core),
        settings,
        shutdown,
        &life.insight,
    )
    .await;
    life.end(Some(workers)).await;
    info!("stopped");
    served.map_err(Failure::other)
}

async fn serve_stdio(
    mut plan: Plan<'_>,
    args: &StdioArgs,
    log: &Log,
    shutdown: CancellationToken,
) -> Result {
    files::raise();
    if demo::is_demo(&plan.loaded) {
        warn!("DEMO: {}", demo::NOTICE);
    }
    let socket = admin::listen_if_configured(&mut plan.loaded.config, args.admin.clone())?;
    let configured = plan
        .as_read
        .config
        .admin
        .listen
        .clone()
        .filter(|_| !plan.as_read.config.admin.is_default);
    let mut operators = Operators::new(
        socket,
        configured,
        args.admin.is_some(),
        &plan.loaded.config,
    )?;
    operators.listener.needs_address = true;
    if let Some(address) = operators.listener.address() {
        log_operators(&plan.loaded.config, &address);
    }

    let services = Services::start(&plan, &args.trace, log, Clients::OfOneUser, &shutdown).await?;
    let path = args.endpoint.as_deref().unwrap_or(DEFAULT_PATH);
    let endpoint = match endpoints::find(&services.assembly.gateway, path) {
        Ok(endpoint) => endpoint,
        Err(failure) => {
            services.stop().await;
            return Err(failure);
        }
    };
    let settings = services.frontend_settings(&plan.loaded.config)?;
    let settings = Arc::new(FrontendSettings {
        endpoint,
        ..settings
    });

    let side = ClientSide {
        settings: &settings,
        listener: None,
        limits: None,
        link: None,
        open_files: None,
    };
    let life = Life::begin(plan, services, operators, side, shutdown.clone());
    let (input, output) = (standard_io::input(), standard_io::output());
    let served = serve_stdio_observed(
        input,
        output,
        Arc::clone(&life.core),
        settings,
        None,
        shutdown,
        &life.insight,
    )
    .await;
    life.end(None).await;
    served.map_err(Failure::other)
}

/// Logs the operators' address, since standard output belongs to the client.
fn log_operators(config: &Config, address: &ListenAddress) {
    match welcome::page(config, address) {
        Some(page) => info!(
            "admin on {}://{address}, page at {page}",
            fanlight_config::scheme(&config.admin.tls)
        ),
        None => info!("admin on {address}"),
    }
}

/// The configuration and the parts that exist before anything runs.
struct Plan<'a> {
    /// The configuration as read from the files.
    as_read: Loaded,
    /// The configuration to put in force: with command-line options, and limits that fit the
    /// machine.
    loaded: Loaded,
    authenticator: Arc<Authenticator>,
    unknown_keys: UnknownKeys,
    /// The other replicas, if there are any.
    replicas: Option<Replicas>,
    /// SIGHUP, which would otherwise end the process.
    hangups: Signal,
    common: &'a CommonArgs,
    reload: &'a ReloadArgs,
}

impl<'a> Plan<'a> {
    fn new(loaded: Loaded, common: &'a CommonArgs, reload: &'a ReloadArgs) -> Result<Self> {
        let replicas = Replicas::from_config(&loaded.config)?;
        let (authenticator, unknown_keys) = auth::authenticator(&loaded.config, replicas.as_ref())?;
        let hangups = reload::hangups()?;
        Ok(Self {
            as_read: loaded.clone(),
            loaded,
            authenticator,
            unknown_keys,
            replicas,
            hangups,
            common,
            reload,
        })
    }

    /// The id of this replica, if there are others.
    fn replica(&self) -> Option<&str> {
        self.replicas
            .as_ref()
            .map(|replicas| replicas.membership.id())
    }

    fn welcome(&self, clients: &ListenAddress, operators: &Operators) {
        let operators = operators.listener.address();
        let addresses = Addresses {
            clients,
            operators: operators.as_ref(),
            configured_operators: self.as_read.config.admin.listen.as_ref(),
        };
        welcome::print(&self.loaded, &addresses, self.common);
    }
}

/// The clients' listener, open but not yet served.
struct ClientListener {
    listener: Listener,
    sockets: SocketReceiver,
    address: ListenAddress,
}

impl ClientListener {
    /// Opens the address of the option `--listen`, else of the configuration, unless the service
    /// manager has passed a socket.
    fn open(
        plan: &mut Plan<'_>,
        option: Option<&ListenAddress>,
        passed: Option<ListeningSocket>,
    ) -> Result<Self> {
        let config = &mut plan.loaded.config;
        config.listen = option.unwrap_or(&config.listen).clone();
        let socket = match passed {
            Some(socket) => socket,
            None => {
                // Open nothing that must not be served.
                check_clients(config, &config.listen).map_err(Failure::usage)?;
                listening::bind(&config.listen, "--listen")?
            }
        };
        let cannot = |error| Failure::other(format!("cannot read the listening address: {error}"));
        let address = socket.address().map_err(cannot)?;
        check_clients(config, &address).map_err(Failure::usage)?;
        let tls = listening::tls_of_clients(config).map_err(Failure::usage)?;
        config.listen = address.clone();
        let is_fixed = option.is_some() || socket.is_passed();
        let configured = Some(plan.as_read.config.listen.clone());
        let (listener, sockets) = Listener::new("listen", Some(socket), configured, is_fixed, tls);
        Ok(Self {
            listener,
            sockets,
            address,
        })
    }
}

/// The running parts behind the listeners.
struct Services {
    telemetry: Telemetry,
    /// Delivers exported telemetry.
    exports: Guard,
    record: Recorder,
    assembly: Assembly,
    users: Users,
    /// The other replicas, if there are any.
    replicas: Option<(Replicas, ReplicaTasks)>,
    /// Ends the servers. They outlive the listeners, so that running calls can finish.
    servers_end: CancellationToken,
}

impl Services {
    async fn start(
        plan: &Plan<'_>,
        trace: &TraceArgs,
        log: &Log,
        clients: Clients,
        shutdown: &CancellationToken,
    ) -> Result<Self> {
        let (config, servers_end) = (&plan.loaded.config, CancellationToken::new());
        let (telemetry, exports) = telemetry::start(config, content::settings(config), trace, log)?;
        let replicas = plan.replicas.clone().map(|replicas| {
            let keeping = replicas.start(shutdown.clone());
            (replicas, keeping)
        });
        if let Some((replicas, _)) = &replicas {
            // Servers may need common data. Without it, the process starts anyway.
            if replicas.shared.connected().await.is_ok() {
                // Join first, so that others know sessions opened here as this replica's.
                let _ = timeout(WITHIN, replicas.membership.joined()).await;
            }
        }
        let lists = ListState::open(config, files_of(&plan.as_read, plan.common).as_deref())?;
        let record = Recorder::open(config, &telemetry, plan.replica())?;
        let log = Arc::clone(&record.log);
        let users = Users::new(config, plan.replicas.as_ref(), clients, lists.as_ref(), log);
        users.prepare(config).await;
        let (of_pins, shared) = (Arc::<AuditLog>::clone(&record.log), plan.replicas.as_ref());
        let assembly = Assembly::start(
            config,
            &telemetry,
            &servers_end,
            lists,
            users.clone(),
            shared,
            of_pins,
        )?;
        Ok(Self {
            telemetry,
            exports,
            record,
            assembly,
            users,
            replicas,
            servers_end,
        })
    }

    fn frontend_settings(&self, config: &Config) -> Result<FrontendSettings> {
        let settings = frontend_settings(config, &self.telemetry, &self.servers_end);
        settings.hooks.replace(hooks::build(config)?);
        let common = self
            .replicas
            .as_ref()
            .map(|(replicas, _)| Arc::new(replicas.clone()) as Arc<dyn CommonLimits>);
        let approvals = self.replicas.as_ref().map_or_else(
            || Ok(Approvals::default()),
            |(replicas, _)| replicas.approvals(config),
        )?;
        let protection = LiveProtection::sharing(protection::settings(config), common);
        let record = Arc::<AuditLog>::clone(&self.record.log);
        Ok(FrontendSettings {
            record,
            protection,
            approvals,
            ..settings
        })
    }

    /// The link to the other replicas.
    fn link(&self, config: &Config) -> Result<Option<Linking>> {
        match &self.replicas {
            Some((replicas, _)) => Ok(replicas.link(config)?),
            None => Ok(None),
        }
    }

    /// The records of sessions for other replicas, if these can be reached.
    fn session_records(&self, config: &Config, is_linked: bool) -> Option<Arc<dyn SessionRecords>> {
        let (replicas, _) = self.replicas.as_ref().filter(|_| is_linked)?;
        Some(replicas.session_records(config.timeouts.session_idle))
    }

    /// Stops before any client was served.
    async fn stop(self) {
        self.assembly.stop().await;
        self.servers_end.cancel();
        self.record.end(Duration::ZERO).await;
        if let Some((_, keeping)) = self.replicas {
            keeping.stop().await;
        }
    }
}

/// The clients' side of the gateway, as far as reloads change it.
struct ClientSide<'a> {
    settings: &'a FrontendSettings,
    /// The clients' listener; `None` if the client uses standard input and output.
    listener: Option<Listener>,
    /// The limits of clients over HTTP.
    limits: Option<Arc<LiveLimits>>,
    /// The certificates of the link, if other replicas reach this one.
    link: Option<LinkCertificates>,
    /// The limit of open files, if clients are limited by it.
    open_files: Option<u64>,
}

/// A running gateway, apart from its clients.
struct Life {
    core: Arc<Gateway>,
    insight: Insight,
    /// The keeper, which owns the servers.
    keeping: Keeping,
    replicas: Option<ReplicaTasks>,
    operators: AdminListener,
    exports: Guard,
    servers_end: CancellationToken,
    record: Recorder,
}

impl Life {
    /// Follows changes of the configuration, and serves operators.
    fn begin(
        plan: Plan<'_>,
        services: Services,
        operators: Operators,
        clients: ClientSide<'_>,
        draining: CancellationToken,
    ) -> Self {
        let Services {
            telemetry,
            exports,
            record,
            assembly,
            servers_end,
            users,
            replicas,
        } = services;
        let (replicas, replicas_keeping) = replicas.unzip();
        let (core, insight) = (Arc::clone(&assembly.gateway), Insight::default());
        let listeners = Listeners {
            clients: clients.listener,
            operators: operators.listener,
            guard: clients.settings.guard.clone(),
            protection: clients.settings.protection.clone(),
            limits: clients.limits,
            replicas: replicas
                .as_ref()
                .and_then(|replicas| replicas.certificates(&plan.as_read.config, clients.link)),
            admin: operators.live.clone(),
            files: clients.open_files,
            telemetry: telemetry.clone(),
        };
        let files = files_of(&plan.as_read, plan.common);
        let common_pins = replicas
            .as_ref()
            .and_then(|replicas| replicas.pins(&plan.loaded.config));
        let switches = replicas
            .as_ref()
            .and_then(|replicas| replicas.switches(&plan.loaded.config));
        let (control, keeping) = Keeper::start(Start {
            watch: if plan.reload.no_watch || files.is_none() {
                None
            } else {
                Watch::new()
            },
            source: source(files),
            loaded: plan.as_read,
            in_force: plan.loaded.config,
            assembly,
            switches,
            common_pins,
            telemetry: telemetry.clone(),
            listeners,
            record: record.clone(),
            hooks: clients.settings.hooks.clone(),
            authenticator: Arc::clone(&plan.authenticator),
            unknown_keys: plan.unknown_keys,
            hangups: plan.hangups,
        });
        let sign_in = users.operators(Arc::clone(&plan.authenticator));
        let subject = Subject {
            gateway: Arc::clone(&core),
            telemetry,
            clients: Arc::new(insight.clone()),
            operations: Arc::new(control),
            sessions: replicas.is_some().then(|| Arc::clone(&sign_in) as _),
            sign_in,
            keys: users.keys(),
            authenticate: plan.authenticator,
            record: Arc::<AuditLog>::clone(&record.log),
            audit_log: Arc::clone(&record.log),
            approvals: clients.settings.approvals.clone(),
            connections: Arc::new(users),
            replicas: replicas
                .map(|replicas| Arc::new(replicas) as Arc<dyn fanlight_admin::Replicas>),
            version: env!("CARGO_PKG_VERSION"),
            draining,
        };
        let operators = AdminListener::start(operators.sockets, subject, operators.live);
        Self {
            core,
            insight,
            keeping,
            replicas: replicas_keeping,
            operators,
            exports,
            servers_end,
            record,
        }
    }

    /// Ends everything after the last client: the servers, the clients' workers, the operators'
    /// listener, telemetry.
    async fn end(self, workers: Option<Workers>) {
        self.keeping.stop().await;
        self.servers_end.cancel();
        drop(workers);
        if let Some(replicas) = self.replicas {
            replicas.stop().await;
        }
        self.operators.stop().await;
        self.record.end(telemetry::FLUSH).await;
        telemetry::end(self.exports).await;
    }
}

/// The configuration files; `None` for the demo.
fn files_of(loaded: &Loaded, common: &CommonArgs) -> Option<Vec<PathBuf>> {
    if demo::is_demo(loaded) {
        None
    } else {
        configuration::paths(common)
    }
}

/// A function that reads the configuration files again.
fn source(files: Option<Vec<PathBuf>>) -> Source {
    Box::new(move || match &files {
        None => Err(Unusable::Other(
            "the built-in demo has no configuration to reload; use --config".to_owned(),
        )),
        Some(files) => configuration::read_again(files),
    })
}

/// The operators' listener, open but not yet served.
struct Operators {
    listener: Listener,
    live: LiveSettings,
    sockets: SocketReceiver,
}

impl Operators {
    /// Creates the listener with this socket, if it listens; `configured` is its address in the
    /// configuration.
    fn new(
        socket: Option<ListeningSocket>,
        configured: Option<ListenAddress>,
        has_flag: bool,
        config: &Config,
    ) -> Result<Self> {
        let is_fixed = has_flag || socket.as_ref().is_some_and(ListeningSocket::is_passed);
        let tls = listening::tls_of_operators(config).map_err(Failure::usage)?;
        let (listener, sockets) = Listener::new("admin.listen", socket, configured, is_fixed, tls);
        let live = LiveSettings::new(admin::settings(config, listener.address().as_ref()));
        let live = live.with_tls(listener.tls.clone());
        Ok(Self {
            listener,
            live,
            sockets,
        })
    }
}

/// The running listener for operators.
struct AdminListener {
    task: JoinHandle<()>,
    end: CancellationToken,
}

impl AdminListener {
    fn start(sockets: SocketReceiver, subject: Subject, live: LiveSettings) -> Self {
        let end = CancellationToken::new();
        Self {
            task: tokio::spawn(serve_admin(sockets, subject, live, end.clone())),
            end,
        }
    }

    async fn stop(self) {
        self.end.cancel();
        // It has nothing to drain, and an error no longer matters.
        let _ = self.task.await;
    }
}

/// The tokens that SIGTERM and SIGINT cancel.
pub(super) struct Signals {
    /// Cancelled by the first signal: finish running requests, then stop.
    pub(super) shutdown: CancellationToken,
    /// Cancelled by the second signal: stop immediately.
    immediate: CancellationToken,
}

impl Signals {
    pub(super) fn listen() -> Result<Self> {
        let cannot = |error| Failure::other(format!("cannot listen for signals: {error}"));
        let mut terminate = signal(SignalKind::terminate()).map_err(cannot)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(cannot)?;
        // When a file exceeds its size limit, the writer should get an error instead of SIGXFSZ
        // ending the process.
        let file_size =
            signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map_err(cannot)?;
        let (shutdown, immediate) = (CancellationToken::new(), CancellationToken::new());
        let (first, second) = (shutdown.clone(), immediate.clone());
        // Runs until the runtime ends.
        tokio::spawn(async move {
            let mut next =
                async || tokio::select! { _ = terminate.recv() => (), _ = interrupt.recv() => () };
            next().await;
            first.cancel();
            service_manager::stopping();
            info!("shutting down; a second signal stops immediately");
            next().await;
            second.cancel();
            drop(file_size);
        });
        Ok(Self {
            shutdown,
            immediate,
        })
    }

    /// Runs `work` until it ends or the second signal arrives. Dropping `work` then ends its child
    /// processes.
    async fn run_until_second(&self, work: impl Future<Output = Result>) -> Result {
        self.immediate
            .run_until_cancelled(work)
            .await
            .unwrap_or_else(|| Err(Failure::interrupted()))
    }
}

/// The worker threads. Dropping this ends them and the tasks on them.
pub(crate) struct Workers {
    workers: Vec<Worker>,
    end: CancellationToken,
}

struct Worker {
    runtime: Handle,
    thread: Option<thread::JoinHandle<()>>,
}

impl Workers {
    /// Starts worker threads so that there are `count` in total with the calling thread; 0 means
    /// one for each processor.
    pub(crate) fn start(count: usize) -> Result<Self> {
        let count = match count {
            0 => thread::available_parallelism().map_or(1, NonZero::get),
            count => count,
        };
        enter_worker(0, count);
        let mut all = Self {
            workers: Vec::new(),
            end: CancellationToken::new(),
        };
        for number in 1..count {
            let worker = Worker::start(number, count, all.end.clone()).map_err(|error| {
                Failure::other(format!(
                    "cannot start worker thread {number} of {count}: {error}"
                ))
            })?;
            all.workers.push(worker);
        }
        Ok(all)
    }

    /// The runtimes of the worker threads.
    fn runtimes(&self) -> Vec<Handle> {
        self.workers
            .iter()
            .map(|worker| worker.runtime.clone())
            .collect()
    }
}

impl Worker {
    fn start(number: usize, count: usize, end: CancellationToken) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let thread = thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || {
                enter_worker(number, count);
                runtime.block_on(end.cancelled());
                // Drop the remaining tasks without waiting for blocked reads.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            runtime: handle,
            thread: Some(thread),
        })
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end.cancel();
        for worker in &mut self.workers {
            // A thread that panicked has ended as well.
            let _ = worker.thread.take().map(thread::JoinHandle::join);
        }
    }
}
