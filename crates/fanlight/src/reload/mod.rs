//! The configuration in force, and its changes at run time.
//!
//! One task, [`Keeper`], owns the running servers and handles each change in turn: a reload
//! (requested by a signal, a changed file or the API), switching a server off or on, and restarting
//! a server. A configuration takes effect as a whole, or not at all if it cannot be used. Changes
//! by operators survive a reload and end with the process.

mod listeners;
mod operations;
mod outcome;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::{ArcSwap, ArcSwapOption};
use fanlight_admin::OperationError;
use fanlight_auth::{Authenticator, Shown, UnknownKeys};
use fanlight_cli::connect::Target;
use fanlight_cli::failure::{Failure, Unusable};
use fanlight_cli::known_lists::KnownLists;
use fanlight_cli::notify::Notifier;
use fanlight_cli::pins::Pins;
use fanlight_cli::record::{self, Recorder};
use fanlight_cli::shown_names::NameRules;
use fanlight_cli::{flagged, hooks, instance, secrets, unmatched};
use fanlight_config::{Config, ConfigFile, Loaded, is_live};
use fanlight_fair::limit;
use fanlight_frontend::{CallHook, LiveHooks, LiveProtection};
use fanlight_gateway::Gateway;
use fanlight_replicas::{CommonPins, Switches};
use fanlight_telemetry::Telemetry;
use serde_json::{Map, Value};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::assembly::Assembly;
use crate::{auth, content, service_manager};
pub(crate) use listeners::{Listener, Listeners, warn_if_open};
use outcome::Applied;
pub(crate) use outcome::{Outcome, State, Trigger};
pub(crate) use watch::Watch;

/// How long the files of the configuration must be unchanged before they are read again. A series of changes is collected for
/// at most ten times as long.
const SETTLE: std::time::Duration = std::time::Duration::from_millis(200);

/// The limit of queued requests. There is no option, since further requests wait as well.
const WAITING: usize = 16;

/// Reads the configuration as at the start: the same files and the same command-line options.
pub(crate) type Source = Box<dyn Fn() -> Result<Loaded, Unusable> + Send + Sync>;

/// A request to the [`Keeper`].
enum Request {
    Reload(Trigger, Option<oneshot::Sender<Arc<Outcome>>>),
    Switch(String, bool, oneshot::Sender<Result<(), NoServer>>),
    Restart(String, oneshot::Sender<Result<(), NoServer>>),
    /// Check whether unknown keys are in a changed file.
    LookForKeys(Shown),
    /// Check for operators' changes at other replicas.
    LookAtOthers,
    /// Approve a definition at all replicas.
    Approve(String, oneshot::Sender<Result<String, OperationError>>),
}

/// No server of this name is configured; for a restart, none is enabled.
#[derive(Debug)]
pub(crate) struct NoServer;

/// Owns the running servers and the configuration in force.
pub(crate) struct Keeper {
    source: Arc<Source>,
    assembly: Assembly,
    /// The configuration at the start: as read from the files, and as put in force.
    started: (Config, Config),
    /// The configuration as last read from the files.
    config: Config,
    /// The servers that operators have switched on or off.
    switched: BTreeMap<String, bool>,
    /// The switched servers in common with other replicas; `None` if there are none.
    switches: Option<Switches>,
    /// Definitions approved at all replicas beyond the file of pins; `None` if there are no other
    /// replicas.
    common_pins: Option<CommonPins>,
    /// The text of the file of pins, and the text that replaces it because more was approved.
    approved: Option<(String, String)>,
    telemetry: Telemetry,
    state: Arc<ArcSwap<State>>,
    listeners: Listeners,
    record: Recorder,
    hooks: LiveHooks,
    authenticator: Arc<Authenticator>,
    unknown_keys: UnknownKeys,
    watch: Option<Watch>,
    notifier: Notifier,
}

/// The opened parts of a configuration that does not yet take effect.
struct Prepared {
    loaded: Loaded,
    authentication: Option<fanlight_auth::Settings>,
    sockets: listeners::Change,
    record: record::Change,
    hooks: Option<Arc<dyn CallHook>>,
}

/// A handle that requests changes of the configuration in force.
#[derive(Clone)]
pub(crate) struct Control {
    requests: mpsc::Sender<Request>,
    /// The public view of the configuration in force.
    state: Arc<ArcSwap<State>>,
    gateway: Arc<Gateway>,
    pins: Arc<ArcSwapOption<Pins>>,
    protection: LiveProtection,
    /// Whether approvals also count at other replicas.
    has_common_pins: bool,
    /// The instance id of this gateway.
    instance: Option<Arc<str>>,
}

/// The running [`Keeper`].
pub(crate) struct Keeping {
    task: JoinHandle<Assembly>,
    end: CancellationToken,
}

/// The parts that a keeper starts with.
pub(crate) struct Start {
    /// Reads the configuration again.
    pub(crate) source: Source,
    /// The configuration read at the start.
    pub(crate) loaded: Loaded,
    /// The configuration in force, including command-line options.
    pub(crate) in_force: Config,
    /// The running servers.
    pub(crate) assembly: Assembly,
    /// The switched servers in common with other replicas; `None` if there are none.
    pub(crate) switches: Option<Switches>,
    /// The approved definitions in common with other replicas.
    pub(crate) common_pins: Option<CommonPins>,
    /// Counts reloads.
    pub(crate) telemetry: Telemetry,
    /// The listeners for clients and operators.
    pub(crate) listeners: Listeners,
    /// The audit log.
    pub(crate) record: Recorder,
    /// The operator's guardrails.
    pub(crate) hooks: LiveHooks,
    /// The authentication of clients.
    pub(crate) authenticator: Arc<Authenticator>,
    /// Receives requests with unknown keys, which may be new.
    pub(crate) unknown_keys: UnknownKeys,
    /// The watch on the files, if they are watched.
    pub(crate) watch: Option<Watch>,
    /// SIGHUP, from [`hangups`].
    pub(crate) hangups: Signal,
}

/// Receives SIGHUP from now on; without this, SIGHUP ends the process.
pub(crate) fn hangups() -> Result<Signal, Failure> {
    signal(SignalKind::hangup())
        .map_err(|error| Failure::other(format!("cannot listen for signals: {error}")))
}

impl Keeper {
    /// Starts to handle signals, changed files and requests.
    pub(crate) fn start(start: Start) -> (Control, Keeping) {
        let Start {
            source,
            loaded,
            in_force,
            assembly,
            switches,
            common_pins,
            telemetry,
            listeners,
            ..
        } = start;
        let Start {
            authenticator,
            unknown_keys,
            mut watch,
            hangups,
            record,
            hooks,
            ..
        } = start;
        if let Some(watch) = &mut watch {
            watch.follow(&loaded.files);
        }
        telemetry
            .metrics()
            .iter()
            .for_each(|metrics| metrics.configuration_read(1));
        let mut state = State::first(
            config_in_force(&in_force, &in_force),
            &in_force,
            &loaded.files,
            SystemTime::now(),
        );
        state.endpoint = endpoint(&listeners, &in_force);
        state.target = target(&listeners, &in_force, &loaded.files);
        let state = Arc::new(ArcSwap::from_pointee(state));
        let (requests, waiting) = mpsc::channel(WAITING);
        let instance = instance::digest(std::slice::from_ref(&loaded.path)).map(Arc::from);
        let gateway = Arc::clone(&assembly.gateway);
        let pins = Arc::clone(&assembly.pins);
        let (protection, has_common_pins) = (listeners.protection.clone(), common_pins.is_some());
        let control = Control {
            requests,
            state: Arc::clone(&state),
            gateway,
            pins,
            protection,
            has_common_pins,
            instance,
        };
        let notifier = Notifier::start(&loaded.config, &record.log, &assembly.gateway);
        let keeper = Self {
            notifier,
            source: Arc::new(source),
            assembly,
            started: (loaded.config.clone(), in_force),
            config: loaded.config,
            switched: BTreeMap::new(),
            switches,
            common_pins,
            approved: None,
            telemetry,
            state,
            listeners,
            record,
            hooks,
            authenticator,
            unknown_keys,
            watch,
        };
        let end = CancellationToken::new();
        let task = tokio::spawn(keeper.run(waiting, hangups, end.clone()));
        (control, Keeping { task, end })
    }

    async fn run(
        mut self,
        mut requests: mpsc::Receiver<Request>,
        mut hangups: Signal,
        end: CancellationToken,
    ) -> Assembly {
        loop {
            let request = tokio::select! {
                biased;
                () = end.cancelled() => break,
                Some(()) = hangups.recv() => Request::Reload(Trigger::Signal, None),
                Some(request) = requests.recv() => request,
                shown = self.unknown_keys.wait() => Request::LookForKeys(shown),
                () = Switches::changed(&mut self.switches) => Request::LookAtOthers,
                () = secrets::due() => Request::Reload(Trigger::Secrets, None),
                () = Watch::changed(&mut self.watch, limit("configSettle", SETTLE)) => Request::Reload(Trigger::Files, None),
                else => break,
            };
            // Boxed: the future is large, and waits most of the time.
            Box::pin(end.run_until_cancelled(self.carry_out(request))).await;
        }
        self.assembly
    }

    async fn carry_out(&mut self, request: Request) {
        // Nobody may be waiting for the answer any more.
        match request {
            Request::Reload(trigger, answer) => {
                let outcome = Arc::new(Box::pin(self.reload(trigger)).await);
                let _ = answer.map(|answer| answer.send(outcome));
            }
            Request::Switch(name, enabled, answer) => {
                drop(answer.send(self.switch(name, enabled).await));
            }
            Request::Restart(name, answer) => drop(answer.send(self.restart(&name).await)),
            Request::LookForKeys(shown) => {
                Box::pin(self.look_for_keys()).await;
                drop(shown);
            }
            Request::LookAtOthers => {
                self.look_for_switches().await;
                self.look_for_pins().await;
            }
            Request::Approve(id, answer) => drop(answer.send(self.approve(&id).await)),
        }
    }

    /// Reloads the configuration if its file with keys has changed.
    async fn look_for_keys(&mut self) {
        let (Some(watch), Some(file)) = (&self.watch, key_file(&self.config)) else {
            return;
        };
        if watch.has_changed(file) {
            Box::pin(self.reload(Trigger::Files)).await;
        }
    }

    async fn reload(&mut self, trigger: Trigger) -> Outcome {
        service_manager::reloading();
        // Compare later changes with this reading.
        self.watch
            .iter_mut()
            .for_each(|watch| _ = watch.take_changes());
        let source = Arc::clone(&self.source);
        // This reads files and parses up to a megabyte of text.
        let read = tokio::task::spawn_blocking(move || source()).await;
        let read =
            read.unwrap_or_else(|_| Err(Unusable::Other("reading it has failed".to_owned())));
        let prepared = read.and_then(|loaded| {
            let authentication = auth::settings(&loaded.config)?;
            let unusable = |failure: Failure| Unusable::Other(failure.to_string());
            let hooks = hooks::build(&loaded.config).map_err(Unusable::Other)?;
            let sockets = self.listeners.prepare(&loaded.config)?;
            let record = self.record.prepare(&loaded.config).map_err(unusable)?;
            Ok(Prepared {
                loaded,
                authentication,
                sockets,
                record,
                hooks,
            })
        });
        let outcome = match prepared {
            Ok(prepared) => {
                let outcome = Box::pin(self.take_over(prepared, trigger)).await;
                self.look_for_pins().await;
                outcome
            }
            Err(unusable) => {
                let outcome = Outcome::failed(trigger, &unusable);
                error!(%trigger, "configuration not reloaded; the previous one stays in force:\n{}", outcome.text());
                self.telemetry
                    .metrics()
                    .iter()
                    .for_each(|metrics| metrics.configuration_failed());
                outcome
            }
        };
        self.show(|state| state.last = Some(outcome.clone()));
        service_manager::ready();
        outcome
    }

    /// Puts a configuration in force. Its sockets and audit log are already open.
    async fn take_over(&mut self, prepared: Prepared, trigger: Trigger) -> Outcome {
        let Prepared {
            loaded,
            authentication,
            sockets,
            record,
            hooks,
        } = prepared;
        let needs_restart = needed(&self.started.0, &loaded.config);
        for problem in &loaded.warnings {
            let line = problem.position().map(|position| position.line);
            warn!(file = %problem.file().display(), line, "{}", problem.message());
        }
        let is_same = self.config == loaded.config;
        let (notify, page) = (&loaded.config.notify, &loaded.config.admin.public_url);
        if (&self.config.notify, &self.config.admin.public_url) != (notify, page) {
            let (log, gateway) = (&self.record.log, &self.assembly.gateway);
            self.notifier = Notifier::start(&loaded.config, log, gateway);
        }
        // Use the current lists; new servers' lists are unknown.
        let known = KnownLists::from_gateway(&self.assembly.gateway);
        let names = NameRules::from_config(&self.config)
            .changed_by(&NameRules::from_config(&loaded.config), &known);
        self.config = loaded.config;
        forget_agreed(&mut self.switched, &self.config);
        // Clients that lose access must not see the new servers. Clients that no longer need
        // credentials are let in only after the listener has left an address that others can reach.
        if authentication.is_some() {
            self.authenticator.replace(authentication.as_ref());
        }
        self.hooks.replace(hooks);
        self.record
            .commit(record, fanlight_cli::telemetry::FLUSH)
            .await;
        let difference = self.put_in_force(None).await;
        let moved = self.listeners.commit(sockets, &self.config).await;
        self.allow_content();
        if authentication.is_none() {
            self.authenticator.replace(None);
        }
        if let Some(watch) = &mut self.watch {
            watch.follow(&loaded.files);
        }
        let generation = self.state.load().generation + u64::from(!is_same);
        self.telemetry
            .metrics()
            .iter()
            .for_each(|metrics| metrics.configuration_read(generation));
        let outcome = if is_same {
            Outcome::unchanged(trigger)
        } else {
            let unmatched = unmatched::warnings(
                &self.effective_config(),
                &KnownLists::from_gateway(&self.assembly.gateway),
            );
            Outcome::applied(
                trigger,
                Applied {
                    servers: difference,
                    moved,
                    needs_restart,
                    names,
                    unmatched,
                },
            )
        };
        self.show(|state| {
            state.endpoint = endpoint(&self.listeners, &self.config);
            state.target = target(&self.listeners, &self.config, &loaded.files);
            state.generation = generation;
            state.files = loaded.files;
            if !is_same {
                state.since = SystemTime::now();
            }
        });
        outcome.log(generation);
        outcome
    }

    async fn switch(&mut self, name: String, enabled: bool) -> Result<(), NoServer> {
        let server = self
            .config
            .servers
            .iter()
            .find(|server| server.name == name)
            .ok_or(NoServer)?;
        if server.enabled == enabled {
            self.switched.remove(&name);
        } else {
            self.switched.insert(name.clone(), enabled);
        }
        info!(
            backend = name,
            enabled, "server switched at run time, until the next restart of Fanlight"
        );
        self.switch_as_said().await;
        if let Some(switches) = &mut self.switches {
            switches.tell(&name, enabled).await;
        }
        Ok(())
    }

    /// Takes over servers that operators switched at other replicas.
    async fn look_for_switches(&mut self) {
        let Some(switches) = &mut self.switches else {
            return;
        };
        let Some(mut said) = switches.read().await else {
            return;
        };
        forget_agreed(&mut said, &self.config);
        if said != self.switched {
            info!(switched = ?said, "servers switched at run time by another replica");
            self.switched = said;
            self.switch_as_said().await;
        }
    }

    /// Takes over definitions that were approved at other replicas beyond the file of pins.
    async fn look_for_pins(&mut self) {
        let (Some(pins), Some(file)) = (&self.common_pins, self.config.pins.text.clone()) else {
            return;
        };
        let Some(text) = pins.read(&file).await else {
            return;
        };
        let approved = text.map(|text| (file, text));
        if approved != self.approved {
            self.approved = approved;
            self.switch_as_said().await;
        }
    }

    /// Approves a definition at all replicas.
    async fn approve(&mut self, id: &str) -> Result<String, OperationError> {
        let known = flagged::gateway_definitions(&self.assembly.gateway);
        let approved = self
            .assembly
            .pins
            .load()
            .as_ref()
            .and_then(|pins| pins.approved(id, &known));
        let (about, lock) = approved.ok_or(OperationError::NoSuchDefinition)?;
        let (before, text) = (self.effective_config().pins.text, lock.to_text());
        let (Some(pins), Some(file), Some(before)) =
            (&self.common_pins, self.config.pins.text.clone(), before)
        else {
            return Err(OperationError::NotWritten);
        };
        if !pins.approve(&file, &before, &text).await {
            return Err(OperationError::NotWritten);
        }
        self.approved = Some((file, text));
        self.switch_as_said().await;
        Ok(about)
    }

    async fn switch_as_said(&mut self) {
        self.put_in_force(None).await;
        self.show(|_| ());
    }

    async fn restart(&mut self, name: &str) -> Result<(), NoServer> {
        let is_running = self
            .effective_config()
            .servers
            .iter()
            .any(|server| server.name == name && server.enabled);
        if !is_running {
            return Err(NoServer);
        }
        info!(backend = name, "server restarted at run time");
        self.put_in_force(Some(name)).await;
        Ok(())
    }

    /// Sets which content traces keep, by the addresses in force.
    fn allow_content(&self) {
        let mut config = self.config.clone();
        self.listeners.apply_to(&mut config);
        self.telemetry.set_content(content::settings(&config));
    }

    async fn put_in_force(&mut self, restarted: Option<&str>) -> crate::servers::Difference {
        self.allow_content();
        let config = self.effective_config();
        let difference = self.assembly.replace(&config, restarted).await;
        for name in &difference.removed {
            self.telemetry
                .metrics()
                .iter()
                .for_each(|metrics| metrics.retire_backend(name));
        }
        difference
    }

    /// The configuration with the operators' switches and approvals.
    fn effective_config(&self) -> Config {
        let mut config = self.config.clone();
        for server in &mut config.servers {
            server.enabled = self
                .switched
                .get(&server.name)
                .copied()
                .unwrap_or(server.enabled);
        }
        if let Some((_, text)) = self
            .approved
            .as_ref()
            .filter(|(file, _)| config.pins.text.as_ref() == Some(file))
        {
            config.pins.text = Some(text.clone());
        }
        config
    }

    /// The configuration in force, without secrets.
    fn masked_config(&self) -> Map<String, Value> {
        let (_, in_force) = &self.started;
        let mut config = self.effective_config();
        self.listeners.apply_to(&mut config);
        config_in_force(in_force, &config)
    }

    /// Shows the configuration in force, with the settings of `change`.
    fn show(&self, change: impl FnOnce(&mut State)) {
        let mut state = State::clone(&self.state.load());
        state.config = self.masked_config();
        state.effective = Arc::new(self.effective_config());
        state.switched = self.switched.clone();
        change(&mut state);
        self.state.store(Arc::new(state));
    }
}

/// Forgets each switch that the files agree with.
fn forget_agreed(switched: &mut BTreeMap<String, bool>, config: &Config) {
    switched.retain(|name, enabled| {
        let mut servers = config.servers.iter();
        servers.any(|server| server.name == *name && server.enabled != *enabled)
    });
}

/// The file with keys.
fn key_file(config: &Config) -> Option<&Path> {
    config
        .auth
        .methods()?
        .keys
        .as_ref()
        .map(|keys| Path::new(&keys.file))
}

/// The address that clients connect to.
fn endpoint(listeners: &Listeners, config: &Config) -> Arc<str> {
    match listeners.url(config) {
        Some(url) => format!("{url}{}", config.shown_path()).into(),
        None => "stdio".into(),
    }
}

/// How clients can connect.
fn target(listeners: &Listeners, config: &Config, files: &[ConfigFile]) -> Target {
    let base = listeners.url(config).filter(|url| url.starts_with("http"));
    let needs_token = config.auth.methods().is_some();
    let files = files.iter().take(1).map(|file| file.path.clone()).collect();
    Target {
        url: base.map(|base| base + config.shown_path()),
        needs_token,
        config: files,
    }
}

impl Control {
    /// The configuration in force and its history.
    pub(crate) fn state(&self) -> Arc<State> {
        self.state.load_full()
    }

    /// Reloads the configuration. `None` if Fanlight is ending.
    pub(crate) async fn reload(&self, trigger: Trigger) -> Option<Arc<Outcome>> {
        self.ask(|answer| Request::Reload(trigger, Some(answer)))
            .await
    }

    /// Switches a server on or off until the process ends. `None` if Fanlight is ending.
    pub(crate) async fn switch(&self, name: String, enabled: bool) -> Option<Result<(), NoServer>> {
        self.ask(|answer| Request::Switch(name, enabled, answer))
            .await
    }

    /// Approves a definition at all replicas. `None` if Fanlight is ending.
    pub(crate) async fn approve(&self, id: String) -> Option<Result<String, OperationError>> {
        self.ask(|answer| Request::Approve(id, answer)).await
    }

    /// Restarts a server. `None` if Fanlight is ending.
    pub(crate) async fn restart(&self, name: String) -> Option<Result<(), NoServer>> {
        self.ask(|answer| Request::Restart(name, answer)).await
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> Option<T> {
        let (answer, done) = oneshot::channel();
        self.requests.send(request(answer)).await.ok()?;
        done.await.ok()
    }
}

impl Keeping {
    /// Ends the keeper, then the running servers.
    pub(crate) async fn stop(self) {
        self.end.cancel();
        match self.task.await {
            Ok(assembly) => assembly.stop().await,
            Err(error) => error!(%error, "the task that runs the servers failed"),
        }
    }
}

/// Sections whose options are compared one by one. Some of them concern servers, too: that part
/// takes effect at once, the clients' part after a restart, so they are named.
const SECTIONS: [&str; 2] = ["limits", "timeouts"];

/// The changed options that take effect after a restart, such as `limits.sessions`.
pub(super) fn needed(old: &Config, new: &Config) -> Vec<String> {
    let (before, after) = (masked_config(old), masked_config(new));
    let mut changed = BTreeSet::new();
    for (key, value) in &after {
        let earlier = before.get(key);
        match key.as_str() {
            "mcpServers" => {}
            key if SECTIONS.contains(&key) => {
                for (option, value) in value.as_object().into_iter().flatten() {
                    let is_changed = earlier.and_then(|earlier| earlier.get(option)) != Some(value);
                    if is_changed && !is_live(key, option) {
                        changed.insert(format!("{key}.{option}"));
                    }
                }
            }
            key if is_live("", key) => {}
            key => {
                if earlier != Some(value) {
                    changed.insert(key.to_owned());
                }
            }
        }
    }
    // The shown configuration hides secrets, so compare these directly.
    if old.keys != new.keys {
        changed.insert("keys".to_owned());
    }
    changed.into_iter().collect()
}

/// The shown configuration in force, if Fanlight started with one configuration and has read
/// another since.
fn config_in_force(started: &Config, new: &Config) -> Map<String, Value> {
    let (before, mut shown) = (masked_config(started), masked_config(new));
    for option in needed(started, new) {
        let (section, key) = option.split_once('.').unwrap_or((&option, ""));
        let (Some(old), Some(new)) = (before.get(section), shown.get_mut(section)) else {
            continue;
        };
        match (old.get(key), new.get_mut(key)) {
            (Some(old), Some(new)) => *new = old.clone(),
            _ => *new = old.clone(),
        }
    }
    shown
}

fn masked_config(config: &Config) -> Map<String, Value> {
    serde_json::from_str(&config.masked_json()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_options_that_cannot_change_are_named() {
        let old = Config::default();
        let mut new = old.clone();
        new.limits.sessions += 1;
        new.limits.connections += 1;
        new.timeouts.call *= 2;
        new.allowed_hosts = vec!["x".into()];
        new.sse_path = None;
        assert_eq!(needed(&old, &new), ["limits.sessions", "ssePath"]);
        let in_force = config_in_force(&old, &new);
        assert_eq!(
            (&in_force["ssePath"], &in_force["limits"]["sessions"]),
            (&Value::from("/sse"), &Value::from(10_000))
        );
        assert_eq!(
            (
                &in_force["limits"]["connections"],
                &in_force["allowedHosts"][0]
            ),
            (&Value::from(new.limits.connections), &Value::from("x"))
        );
    }
}
