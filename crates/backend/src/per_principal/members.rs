//! The servers of single principals: one for each principal that uses it, up to a limit. A server
//! ends after it has been idle.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fanlight_canonical::{
    BackendClient, BackendError, CallContext, Listen, Principal, ServerMessage, ServerMessages,
};
use fanlight_protocol::subscription::Lists;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::backend::BackendLife;
use crate::credentials::CredentialSource;
use crate::process_log::ProcessLog;
use crate::replicas::Places;
use crate::server::Server;
use crate::settings::{BackendSettings, Secret, TransportSettings};

/// The maximum number of processes per principal for sessions that cannot share one. A constant:
/// `limits.processes` limits the principals.
const SESSION_PROCESSES: usize = 8;

/// The servers of single principals.
pub(crate) struct Members {
    pub(crate) settings: BackendSettings,
    /// The locations of the endpoints, if it has several.
    places: Option<Places>,
    /// The transport in `settings`, with the current secrets.
    transport: Mutex<TransportSettings>,
    table: Mutex<Table>,
    pub(crate) watchers: Arc<Watchers>,
    /// The output of all their processes.
    pub(crate) process_log: Arc<ProcessLog>,
    pub(crate) life: BackendLife,
    shutdown: CancellationToken,
}

#[derive(Default)]
struct Table {
    members: HashMap<Principal, Member>,
    /// The number of the last started member.
    last: u64,
}

/// Fanlight's own listeners, which learn that lists may have changed.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<Vec<ServerMessages>>);

/// The parts of a principal's server that only it has.
pub(crate) struct Own {
    pub(crate) source: Option<Arc<dyn CredentialSource>>,
    /// The environment variables of its process.
    pub(crate) environment: Vec<(String, Secret)>,
}

/// The server of one principal.
struct Member {
    /// Distinguishes it from an earlier one of the same principal.
    number: u64,
    server: Server,
    own: Own,
    used: Instant,
    /// Held by every user of the server.
    uses: Arc<()>,
}

/// The server of one principal. While this is held, the server does not end as idle.
pub(crate) struct Lease {
    /// Distinguishes it from an earlier one of the same principal.
    pub(crate) number: u64,
    pub(crate) backend: Arc<dyn BackendClient>,
    pub(crate) life: BackendLife,
    _use: Arc<()>,
}

impl Member {
    fn lease(&mut self) -> Lease {
        self.used = Instant::now();
        let (backend, life) = (self.server.client(), self.server.life());
        Lease {
            number: self.number,
            backend,
            life,
            _use: Arc::clone(&self.uses),
        }
    }

    fn is_unused(&self) -> bool {
        Arc::strong_count(&self.uses) == 1
    }

    /// Whether the server may be ended, although it then loses what it keeps for its principal,
    /// such as tasks.
    fn is_dispensable(&self) -> bool {
        self.is_unused() && !self.server.is_needed()
    }

    fn is_idle(&self, idle: Duration) -> bool {
        self.used.elapsed() >= idle && self.is_dispensable()
    }
}

impl Members {
    /// Creates an empty table. At most `settings.limits.sessions` principals have a server at the
    /// same time. `shutdown` ends all of them.
    pub(crate) fn new(
        settings: BackendSettings,
        process_log: Arc<ProcessLog>,
        shutdown: CancellationToken,
    ) -> Self {
        let name: Arc<str> = settings.name.as_str().into();
        Self {
            transport: Mutex::new(settings.transport.clone()),
            places: Places::of(&settings),
            life: BackendLife::new(&name, shutdown.clone()),
            table: Mutex::default(),
            watchers: Arc::default(),
            process_log,
            settings,
            shutdown,
        }
    }

    /// Sends the headers in `settings` from the next message on, as `Backend::use_credentials`
    /// does.
    pub(crate) fn use_credentials(&self, settings: &BackendSettings) {
        *self.transport.lock() = settings.transport.clone();
        self.servers()
            .iter()
            .for_each(|server| server.use_credentials(settings));
    }

    /// The source of a principal's credentials, if it has a server.
    pub(crate) fn source(&self, principal: &Principal) -> Option<Arc<dyn CredentialSource>> {
        self.table
            .lock()
            .members
            .get(principal)
            .and_then(|member| member.own.source.clone())
    }

    /// The server of a principal, started if necessary. If its process has outdated variables, it
    /// is replaced once nothing uses it.
    pub(crate) fn lease(&self, principal: &Principal, own: Own) -> Result<Lease, BackendError> {
        if self.shutdown.is_cancelled() {
            return Err(BackendError::ShuttingDown);
        }
        let mut table = self.table.lock();
        if let Some(member) = table.members.get_mut(principal)
            && (member.own.environment == own.environment || !member.is_unused())
        {
            return Ok(member.lease());
        }
        // Dropped after the lock is released.
        let _outdated = table.members.remove(principal);
        let limit = self.settings.limits.sessions;
        let _dispensable = match table.members.len() >= limit.max(1) {
            true => Some(
                table
                    .remove_dispensable()
                    .ok_or(BackendError::TooManySessions { limit })?,
            ),
            false => None,
        };
        let mut settings = self.settings_of(&own);
        settings.processes.owner = principal.id();
        let log = Arc::clone(&self.process_log);
        let server = Server::of_one(settings, self.places.clone(), log, self.shutdown.clone());
        table.last += 1;
        let mut member = Member {
            number: table.last,
            server,
            own,
            used: Instant::now(),
            uses: Arc::default(),
        };
        let lease = member.lease();
        table.members.insert(principal.clone(), member);
        drop(table);
        self.watch(&lease);
        Ok(lease)
    }

    /// The server of a principal, if there is one.
    pub(crate) fn existing(&self, principal: &Principal) -> Option<Lease> {
        self.table
            .lock()
            .members
            .get_mut(principal)
            .map(Member::lease)
    }

    /// The settings for the server of one principal.
    fn settings_of(&self, own: &Own) -> BackendSettings {
        let mut settings = self.settings.clone();
        settings.transport = self.transport.lock().clone();
        settings.credentials.clone_from(&own.source);
        if let TransportSettings::Stdio { env, .. } = &mut settings.transport {
            env.extend_from_slice(&own.environment);
            settings.limits.sessions = settings.limits.sessions.min(SESSION_PROCESSES);
        }
        settings
    }

    /// Announces changes of a principal's lists, and waits for the end of its server.
    fn watch(&self, lease: &Lease) {
        let watchers = Arc::clone(&self.watchers);
        let (messages, receiver) = ServerMessages::channel(1);
        let messages = messages.mapped(move |message| {
            watchers.tell(&message);
            None
        });
        let listen = Listen {
            interest: Lists::ALL.into(),
            context: CallContext::internal(),
            messages,
        };
        let listening = self.listen(lease, listen);
        let life = lease.life.clone();
        self.life.spawn(async move {
            let _receiver = receiver;
            tokio::select! {
                () = listening => {}
                () = life.unused() => {}
            }
            life.stop().await;
        });
    }

    /// Listens at the server of one principal. Retries until it is accepted; never returns. Does
    /// not keep the server alive.
    pub(crate) fn listen(
        &self,
        lease: &Lease,
        listen: Listen,
    ) -> impl Future<Output = ()> + Send + use<> {
        let (backend, pause) = (
            Arc::downgrade(&lease.backend),
            self.settings.timeouts.reconnect.longest,
        );
        async move {
            while let Some(backend) = backend.upgrade() {
                let listening = backend.listen(listen.clone()).await;
                drop(backend);
                match listening {
                    Ok(_until_the_end) => std::future::pending().await,
                    Err(_) => sleep(pause).await,
                }
            }
        }
    }

    /// Ends idle servers periodically, until `of` is gone.
    pub(crate) async fn tend<T>(of: Weak<T>, idle: Duration, members: impl Fn(&T) -> &Self) {
        loop {
            sleep(idle / 2).await;
            let Some(of) = of.upgrade() else { return };
            members(&of).end_idle(idle);
        }
    }

    fn end_idle(&self, idle: Duration) {
        // Dropped after the lock is released.
        let ended: Vec<_> = self
            .table
            .lock()
            .members
            .extract_if(|_, member| member.is_idle(idle))
            .collect();
        drop(ended);
    }

    /// Ends the server of a principal.
    pub(crate) fn forget(&self, principal: &Principal) {
        let gone = self.table.lock().members.remove(principal);
        drop(gone);
    }

    /// All running servers, for use without the lock.
    pub(crate) fn servers(&self) -> Vec<Server> {
        self.table
            .lock()
            .members
            .values()
            .map(|member| member.server.clone())
            .collect()
    }
}

impl Table {
    /// Removes the least recently used member that may be ended.
    fn remove_dispensable(&mut self) -> Option<Member> {
        let dispensable = self
            .members
            .iter()
            .filter(|(_, member)| member.is_dispensable());
        let oldest = dispensable
            .min_by_key(|(_, member)| member.used)
            .map(|(principal, _)| principal.clone())?;
        self.members.remove(&oldest)
    }
}

impl Watchers {
    pub(crate) fn add(&self, watcher: ServerMessages) {
        let mut watchers = self.0.lock();
        watchers.retain(ServerMessages::is_connected);
        watchers.push(watcher);
    }

    /// Sends an announcement to all watchers. Messages that do not fit are lost, as with any
    /// listener.
    pub(crate) fn tell(&self, message: &ServerMessage) {
        let ServerMessage::Notification(notification) = message else {
            return;
        };
        let watchers = self.0.lock().clone();
        for watcher in watchers {
            let _ = watcher.try_send(ServerMessage::Notification(notification.clone()));
        }
    }
}
