//! The servers of the configuration in force: starting them, and draining those that a new
//! configuration removes.

use std::sync::Arc;
use std::time::Duration;

use fanlight_backend::{Backend, BackendLife, BackendSettings, MessageMemory, Serves};
use fanlight_canonical::{BackendClient, BackendState, DefinitionGuard, HandleSeal};
use fanlight_cli::endpoints::result_rules;
use fanlight_cli::list_state::{ListState, ServerLists};
use fanlight_cli::rewriting::{approval, canary_rule, filter, place, rewriting};
use fanlight_cli::server_credentials::{ServerCredentials, are_same};
use fanlight_cli::users::Users;
use fanlight_config::{Config, ContentChoice, Server, ServerAuth};
use fanlight_gateway::{BackendEntry, BackendId, Canary, ListStore, Mirror, MirrorSettings};
use fanlight_telemetry::Telemetry;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::info;

use crate::wiring::backend_settings;

/// The running servers.
pub(crate) struct Servers {
    telemetry: Telemetry,
    handles: Arc<HandleSeal>,
    /// The memory shared by messages of all servers.
    memory: MessageMemory,
    shutdown: CancellationToken,
    /// Stores lists beyond the end of the process.
    lists: Option<ListState>,
    users: Users,
    /// The running servers in configuration order.
    running: Vec<Running>,
    /// Removed servers, until their calls have ended.
    draining: TaskTracker,
    end: CancellationToken,
}

/// One running server.
#[derive(Clone)]
struct Running {
    settings: Arc<BackendSettings>,
    backend: Arc<Backend>,
    /// The credentials from when the server was started; their secrets may have been rotated since.
    credentials: ServerCredentials,
    /// The configuration of the credentials.
    auth: Option<ServerAuth>,
    /// The variables of its process that differ between users.
    user_env: Vec<(String, String)>,
    /// The server in the core, without a guard.
    entry: BackendEntry,
}

/// Starts to connect to a server. Stored lists are used only for a server that all reach in the
/// same way.
fn start(
    settings: BackendSettings,
    credentials: &ServerCredentials,
    lists: Option<&Arc<ServerLists>>,
    shutdown: &CancellationToken,
) -> Arc<Backend> {
    if let ServerCredentials::PerPrincipal(source) = credentials {
        return Backend::start_per_principal(settings, Arc::clone(source), shutdown);
    }
    let settings = BackendSettings {
        credentials: credentials.shared(),
        ..settings
    };
    let backend = Backend::resume(settings, lists.and_then(|lists| lists.facts()), shutdown);
    lists.iter().for_each(|lists| lists.attach(&backend));
    backend
}

impl Running {
    /// Whether the server can continue with these settings. After a rotation of secrets, a
    /// connected server gets the new one with the next message. A server that is not connected may
    /// have failed because of the old one, and is replaced.
    fn may_stay(&self, settings: &BackendSettings, server: &Server) -> bool {
        let auth = server.auth.as_ref();
        let is_rotated =
            self.settings.transport != settings.transport || self.auth.as_ref() != auth;
        self.settings.is_same_server(settings)
            && are_same(self.auth.as_ref(), auth)
            && self.user_env == server.user_env
            && (!is_rotated
                || matches!(
                    self.backend.status().state,
                    BackendState::Ready | BackendState::Ejected { .. }
                ))
    }
}

/// The servers of a changed configuration, not yet in force.
pub(crate) struct Change {
    next: Vec<Running>,
    pub(crate) difference: Difference,
}

/// How the servers of two configurations differ, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) added: Vec<String>,
    pub(crate) changed: Vec<String>,
    pub(crate) removed: Vec<String>,
    /// Servers that keep their connections, even if their names or tools now look different.
    pub(crate) kept: Vec<String>,
}

impl Servers {
    pub(crate) fn new(
        telemetry: &Telemetry,
        handles: HandleSeal,
        memory: MessageMemory,
        shutdown: &CancellationToken,
        lists: Option<ListState>,
        users: Users,
    ) -> Self {
        Self {
            telemetry: telemetry.clone(),
            handles: Arc::new(handles),
            memory,
            shutdown: shutdown.clone(),
            lists,
            users,
            running: Vec::new(),
            draining: TaskTracker::new(),
            end: CancellationToken::new(),
        }
    }

    /// The users' credentials.
    pub(crate) fn users(&self) -> &Users {
        &self.users
    }

    /// The store of lists.
    pub(crate) fn lists(&self) -> Option<&ListState> {
        self.lists.as_ref()
    }

    /// Starts the new and changed servers of `config`, without waiting for connections. A server
    /// with an unchanged definition keeps running, unless it is to be `restarted`.
    pub(crate) fn prepare(&self, config: &Config, restarted: Option<&str>) -> Change {
        let mut difference = Difference::default();
        self.users.retain(config);
        let enabled = config.servers.iter().filter(|server| server.enabled);
        let next: Vec<_> = enabled
            .map(|server| self.next(config, server, restarted, &mut difference))
            .collect();
        let next = self.with_versions(config, next);
        let is_gone = |running: &&Running| {
            next.iter()
                .all(|next| next.settings.name != running.settings.name)
        };
        difference.removed = self
            .running
            .iter()
            .filter(is_gone)
            .map(|running| running.settings.name.clone())
            .collect();
        Change { next, difference }
    }

    /// Adds the canaries and mirrors to the servers that have them. A disabled one gets no share.
    fn with_versions(&self, config: &Config, mut next: Vec<Running>) -> Vec<Running> {
        let named = |name: &str| {
            let version = next.iter().find(|running| running.settings.name == name)?;
            Some((version.entry.id, Arc::clone(&version.entry.client)))
        };
        let versions = |running: &Running| {
            let server = config
                .servers
                .iter()
                .find(|server| server.name == running.settings.name)?;
            let canary = server.canary.as_ref().and_then(|canary| {
                let (id, client) = named(&canary.server)?;
                let rule = Arc::new(canary_rule(&server.name, canary));
                Some(Canary { id, client, rule })
            });
            let mirror = server.mirror.as_ref().and_then(|mirror| {
                let (_, client) = named(&mirror.server)?;
                let settings = MirrorSettings {
                    client,
                    share: mirror.share.as_f64(),
                    keeps_values: server.content == Some(ContentChoice::On),
                    telemetry: self.telemetry.clone(),
                };
                let BackendEntry { client, mirror, .. } = &running.entry;
                Some(Mirror::new(Arc::clone(client), settings, mirror.as_ref()))
            });
            Some((canary, mirror))
        };
        let all: Vec<_> = next.iter().map(versions).collect();
        for (running, versions) in next.iter_mut().zip(all) {
            (running.entry.canary, running.entry.mirror) = versions.unwrap_or_default();
        }
        next
    }

    fn next(
        &self,
        config: &Config,
        server: &Server,
        restarted: Option<&str>,
        difference: &mut Difference,
    ) -> Running {
        let mut settings =
            backend_settings(config, server, &self.telemetry, &self.handles, &self.memory);
        let is_hidden = config.version_of(&server.name).is_some();
        settings.processes.keeps_lists &=
            self.lists.is_some() && server.user_env.is_empty() && !is_hidden;
        if self.users.are_told_apart(config) && server.keeps_principals_apart() {
            settings.processes.serves = Serves::Lists;
        }
        settings.processes.rests_while_known = settings.processes.keeps_lists
            && self.lists.as_ref().is_some_and(ListState::spares_processes);
        let known = self
            .running
            .iter()
            .find(|running| running.settings.name == server.name);
        let (name, auth) = (server.name.clone(), server.auth.clone());
        let section = format!("server {name}");
        let entry = |id, client: Arc<dyn BackendClient>, store, mirror| BackendEntry {
            id,
            client,
            prefix: server.prefix.clone(),
            tools: filter(config, server),
            rewriting: rewriting(server),
            approval: approval(config, server),
            place: place(config, server),
            guard: None,
            store,
            canary: None,
            mirror,
            results: server
                .results
                .as_ref()
                .map(|rules| result_rules(&section, rules)),
            is_hidden,
        };
        match known {
            Some(known) if known.may_stay(&settings, server) && restarted != Some(&name) => {
                difference.kept.push(name);
                if known.auth != auth {
                    self.users.change(server);
                }
                let old = known.entry.clone();
                Running {
                    settings: Arc::new(settings),
                    auth,
                    entry: entry(old.id, old.client, old.store, old.mirror),
                    ..known.clone()
                }
            }
            _ => {
                if known.is_some() {
                    &mut difference.changed
                } else {
                    &mut difference.added
                }
                .push(name);
                // A restarted server needs a new process.
                let is_new = restarted == Some(&server.name);
                let keeping = self
                    .lists
                    .as_ref()
                    .filter(|_| settings.processes.keeps_lists);
                let lists = keeping.map(|lists| lists.load(server, is_new));
                let credentials = ServerCredentials::new(config, server, &self.users);
                let backend = start(
                    settings.clone(),
                    &credentials,
                    lists.as_ref(),
                    &self.shutdown,
                );
                let store = lists.map(|lists| lists as Arc<dyn ListStore>);
                let id = BackendId::generate();
                Running {
                    settings: Arc::new(settings),
                    entry: entry(id, Arc::clone(&backend) as _, store, None),
                    backend,
                    credentials,
                    auth,
                    user_env: server.user_env.clone(),
                }
            }
        }
    }

    /// Puts a change in force that the core has taken over. A removed server ends once its running
    /// calls have ended, after `drain` at the latest.
    pub(crate) fn commit(&mut self, change: Change, drain: Duration) {
        let old = std::mem::replace(&mut self.running, change.next);
        for running in &self.running {
            running.backend.use_credentials(&running.settings);
            running.credentials.change(running.auth.as_ref());
        }
        for gone in old {
            if self
                .running
                .iter()
                .all(|running| running.entry.id != gone.entry.id)
            {
                let end = self.end.clone();
                self.draining
                    .spawn(drained(gone.backend.life(), drain, end));
            }
        }
    }

    /// The servers in configuration order.
    pub(crate) fn backends(&self) -> impl Iterator<Item = (BackendId, Arc<dyn BackendClient>)> {
        self.running
            .iter()
            .map(|running| (running.entry.id, Arc::clone(&running.entry.client)))
    }

    /// Ends all servers concurrently, including those that still drain.
    pub(crate) async fn stop(&self) {
        self.end.cancel();
        let mut stopping = tokio::task::JoinSet::new();
        for running in &self.running {
            let life = running.backend.life();
            stopping.spawn(async move { life.stop().await });
        }
        self.draining.close();
        self.draining.wait().await;
        stopping.join_all().await;
        if let Some(lists) = &self.lists {
            lists.stop().await;
        }
        self.users.stop().await;
    }
}

/// Ends a removed server when nothing uses it any more, after `drain`, or at `end`.
async fn drained(life: BackendLife, drain: Duration, end: CancellationToken) {
    let unused = end.run_until_cancelled(life.unused());
    if timeout(drain, unused).await.is_err() {
        info!(backend = life.name(), drain = ?drain, "ending the calls of a server that is no \
                                                      longer configured");
    }
    life.stop().await;
}

impl Change {
    /// The servers as the core needs them; `guard` judges their definitions.
    pub(crate) fn entries(&self, guard: Option<&Arc<dyn DefinitionGuard>>) -> Vec<BackendEntry> {
        let entry = |running: &Running| BackendEntry {
            guard: guard.cloned(),
            ..running.entry.clone()
        };
        self.next.iter().map(entry).collect()
    }
}
