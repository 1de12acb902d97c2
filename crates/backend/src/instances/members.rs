//! The connections of single principals: a [`Group`] for each principal that uses the server, up to
//! a limit. A group ends after it has been idle.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fanlight_canonical::{
    BackendError, CallContext, Listen, Principal, ServerMessage, ServerMessages,
};
use fanlight_protocol::subscription::Lists;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::ServerParts;
use super::group::Group;
use super::places::Places;
use crate::credentials::CredentialSource;
use crate::settings::{BackendSettings, Secret, TransportSettings};

/// The maximum number of processes per principal for sessions that cannot share one. A constant:
/// `limits.processes` limits the principals.
const SESSION_PROCESSES: usize = 8;

/// The groups of single principals.
pub(super) struct Members {
    server: Arc<ServerParts>,
    settings: BackendSettings,
    /// The locations of the endpoints, if it has several.
    places: Option<Places>,
    /// A group ends after it has been unused for this long.
    idle: Duration,
    table: Mutex<HashMap<Principal, Member>>,
    /// Notified when a group begins.
    begun: watch::Sender<()>,
    pub(super) watchers: Arc<Watchers>,
}

/// Fanlight's own listeners, which learn that lists may have changed.
#[derive(Default)]
pub(super) struct Watchers(Mutex<Vec<ServerMessages>>);

/// The parts of a group that belong to its principal alone.
pub(super) struct Own {
    pub(super) source: Option<Arc<dyn CredentialSource>>,
    /// The environment variables of its process.
    pub(super) environment: Vec<(String, Secret)>,
}

/// The group of one principal.
struct Member {
    group: Arc<Group>,
    own: Own,
    used: Instant,
    /// Held by every user of the group.
    uses: Arc<()>,
}

/// The use of a group. While this is held, the group does not end as idle.
pub(super) struct Lease {
    pub(super) group: Arc<Group>,
    _use: Arc<()>,
}

impl Member {
    fn lease(&mut self) -> Lease {
        self.used = Instant::now();
        Lease {
            group: Arc::clone(&self.group),
            _use: Arc::clone(&self.uses),
        }
    }

    fn is_unused(&self) -> bool {
        Arc::strong_count(&self.uses) == 1
    }

    /// Whether the group may be ended, although it then loses what it keeps for its principal, such
    /// as tasks.
    fn is_dispensable(&self) -> bool {
        self.is_unused() && !self.group.is_needed()
    }
}

impl Members {
    /// Creates an empty table. At most `settings.limits.sessions` principals have a group at the
    /// same time. One that has been unused for `idle` ends.
    pub(super) fn new(
        settings: BackendSettings,
        server: &Arc<ServerParts>,
        idle: Duration,
    ) -> Self {
        Self {
            places: Places::of(&settings),
            settings,
            idle,
            table: Mutex::default(),
            begun: watch::Sender::default(),
            watchers: Arc::default(),
            server: Arc::clone(server),
        }
    }

    /// The source of a principal's credentials, if it has a group.
    pub(super) fn source(&self, principal: &Principal) -> Option<Arc<dyn CredentialSource>> {
        self.table
            .lock()
            .get(principal)
            .and_then(|member| member.own.source.clone())
    }

    /// The group of a principal, started if necessary. If its process has outdated variables, it is
    /// replaced once nothing uses it.
    pub(super) fn lease(&self, principal: &Principal, own: Own) -> Result<Lease, BackendError> {
        if self.server.shutdown.is_cancelled() {
            return Err(BackendError::ShuttingDown);
        }
        let mut table = self.table.lock();
        if let Some(member) = table.get_mut(principal)
            && (member.own.environment == own.environment || !member.is_unused())
        {
            return Ok(member.lease());
        }
        // Dropped after the lock is released.
        let _outdated = table.remove(principal);
        let limit = self.settings.limits.sessions;
        let _dispensable = if table.len() >= limit.max(1) {
            Some(remove_dispensable(&mut table).ok_or(BackendError::TooManySessions { limit })?)
        } else {
            None
        };
        let mut settings = self.settings_of(&own);
        settings.processes.owner = principal.id();
        let mut member = Member {
            group: Group::start(settings, None, self.places.clone(), &self.server),
            own,
            used: Instant::now(),
            uses: Arc::default(),
        };
        let lease = member.lease();
        table.insert(principal.clone(), member);
        drop(table);
        self.watch(&lease.group);
        self.begun.send_replace(());
        Ok(lease)
    }

    /// The group of a principal, if there is one.
    pub(super) fn existing(&self, principal: &Principal) -> Option<Lease> {
        self.table.lock().get_mut(principal).map(Member::lease)
    }

    /// The settings for the group of one principal.
    fn settings_of(&self, own: &Own) -> BackendSettings {
        let mut settings = self.settings.clone();
        settings.transport = self.server.transport.lock().clone();
        settings.credentials.clone_from(&own.source);
        if let TransportSettings::Stdio { env, .. } = &mut settings.transport {
            env.extend_from_slice(&own.environment);
            settings.limits.sessions = settings.limits.sessions.min(SESSION_PROCESSES);
        }
        settings
    }

    /// Announces changes of a principal's lists.
    fn watch(&self, group: &Arc<Group>) {
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
        // The receiver lasts as long as the group.
        self.listen(group, listen, (CancellationToken::new(), receiver));
    }

    /// The group of a principal, if there is one. Unlike a lease, this does not keep it from ending.
    fn group(&self, principal: &Principal) -> Option<Arc<Group>> {
        let table = self.table.lock();
        table.get(principal).map(|member| Arc::clone(&member.group))
    }

    /// Listens for a client at its principal's group, and at each later one, until the result is
    /// dropped.
    pub(super) fn follow(self: &Arc<Self>, listen: Listen) -> DropGuard {
        let (end, mut begun) = (CancellationToken::new(), self.begun.subscribe());
        let (members, guard) = (Arc::clone(self), end.clone().drop_guard());
        self.server.spawn(async move {
            let mut at = Weak::new();
            while !end.is_cancelled() {
                let group = members.group(listen.context.caller.principal());
                if let Some(group) = group.filter(|group| !at.ptr_eq(&Arc::downgrade(group))) {
                    at = Arc::downgrade(&group);
                    members.listen(&group, listen.clone(), (end.clone(), ()));
                }
                // The sender lives as long as `members`.
                let _ = end.run_until_cancelled(begun.changed()).await;
            }
        });
        guard
    }

    /// Listens at a principal's group until `end` or the end of the group, which this does not keep
    /// alive. Retries until it is accepted. `held` is dropped afterwards.
    fn listen<T: Send + 'static>(
        &self,
        group: &Arc<Group>,
        listen: Listen,
        (end, held): (CancellationToken, T),
    ) {
        let ended = group.ended();
        let (group, pause) = (
            Arc::downgrade(group),
            self.settings.timeouts.reconnect.longest,
        );
        let listening = async move {
            while let Some(group) = group.upgrade() {
                let listening = group.listen(listen.clone()).await;
                drop(group);
                match listening {
                    Ok(_until_the_end) => std::future::pending().await,
                    Err(_) => sleep(pause).await,
                }
            }
        };
        self.server.tasks.spawn(async move {
            let listening = end.run_until_cancelled(listening);
            ended.run_until_cancelled(listening).await;
            drop(held);
        });
    }

    /// Ends the group of a principal.
    pub(super) fn forget(&self, principal: &Principal) {
        let gone = self.table.lock().remove(principal);
        drop(gone);
    }

    /// Ends idle groups.
    pub(super) fn sweep(&self) {
        let is_idle =
            |member: &Member| member.used.elapsed() >= self.idle && member.is_dispensable();
        let mut table = self.table.lock();
        let ended: Vec<_> = table.extract_if(|_, member| is_idle(member)).collect();
        drop(table);
        // Without the lock.
        drop(ended);
    }

    /// All groups, for use without the lock.
    pub(super) fn groups(&self) -> Vec<Arc<Group>> {
        let table = self.table.lock();
        table
            .values()
            .map(|member| Arc::clone(&member.group))
            .collect()
    }
}

/// Removes the least recently used member that may be ended.
fn remove_dispensable(table: &mut HashMap<Principal, Member>) -> Option<Member> {
    let dispensable = table.iter().filter(|(_, member)| member.is_dispensable());
    let oldest = dispensable
        .min_by_key(|(_, member)| member.used)
        .map(|(principal, _)| principal.clone())?;
    table.remove(&oldest)
}

impl Watchers {
    pub(super) fn add(&self, watcher: ServerMessages) {
        let mut watchers = self.0.lock();
        watchers.retain(ServerMessages::is_connected);
        watchers.push(watcher);
    }

    /// Sends an announcement to all watchers. Messages that do not fit are lost, as with any
    /// listener.
    pub(super) fn tell(&self, message: &ServerMessage) {
        let ServerMessage::Notification(notification) = message else {
            return;
        };
        let watchers = self.0.lock().clone();
        for watcher in watchers {
            let _ = watcher.try_send(ServerMessage::Notification(notification.clone()));
        }
    }
}
