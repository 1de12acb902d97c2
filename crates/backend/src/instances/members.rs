//! The connections of single principals: a [`Group`] for each principal that uses the server, up to
//! a limit. A group ends after it has been idle.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fanlight_canonical::{BackendError, Listen, Principal};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

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
}

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
    ) -> Arc<Self> {
        Arc::new(Self {
            places: Places::from_settings(&settings),
            settings,
            idle,
            table: Mutex::default(),
            begun: watch::Sender::default(),
            server: Arc::clone(server),
        })
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
        // Dropped after the lock is released.
        let _outdated;
        let mut table = self.table.lock();
        if let Some(member) = table.get_mut(principal)
            && (member.own.environment == own.environment || !member.is_unused())
        {
            return Ok(member.lease());
        }
        _outdated = table.remove(principal);
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
        self.begun.send_replace(());
        Ok(lease)
    }

    /// The group of a principal, if there is one.
    pub(super) fn find_group(&self, principal: &Principal) -> Option<Lease> {
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

    /// Listens at the group of `principal` (at all groups if `None`), and at each later one; never
    /// returns.
    pub(super) async fn follow(self: Arc<Self>, listen: Listen, principal: Option<Principal>) {
        let (mut begun, mut listening) = (self.begun.subscribe(), Vec::new());
        loop {
            listening.retain(|(at, _): &(Weak<Group>, _)| at.strong_count() > 0);
            for group in self.groups(principal.as_ref()) {
                let at = Arc::downgrade(&group);
                if !listening.iter().any(|(known, _)| known.ptr_eq(&at)) {
                    let pause = self.settings.timeouts.reconnect.longest;
                    let listen = listen_at(Weak::clone(&at), listen.clone(), pause);
                    listening.push((at, self.server.run(listen)));
                }
            }
            // The sender lives as long as `self`.
            let _ = begun.changed().await;
        }
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

    /// The group of a principal, or all groups, for use without the lock. Unlike a lease, this does
    /// not keep them from ending.
    pub(super) fn groups(&self, of: Option<&Principal>) -> Vec<Arc<Group>> {
        let table = self.table.lock();
        let wanted = table
            .iter()
            .filter(|(principal, _)| of.is_none_or(|of| of == *principal));
        wanted
            .map(|(_, member)| Arc::clone(&member.group))
            .collect()
    }
}

/// Listens at a group until it ends, which this does not prevent. Retries until it is accepted.
async fn listen_at(group: Weak<Group>, listen: Listen, pause: Duration) {
    while let Some(group) = group.upgrade() {
        let end = group.common.shutdown.clone();
        let listening = group.listen(listen.clone()).await;
        drop(group);
        match listening {
            Ok(_until_the_end) => return end.cancelled().await,
            Err(_) => sleep(pause).await,
        }
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
