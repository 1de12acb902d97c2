//! The upkeep of a server's endpoints: it adds and removes them, chooses the primary one, and
//! counts them. One task per server.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::super::instance::Instance;
use super::super::places::{Place, Places};
use super::Group;
use crate::settings::{BackendSettings, Endpoints, HealthPolicy};

/// The interval between checks whether a leaving endpoint is still needed. A constant, since
/// nothing waits for them.
const LOOK: Duration = Duration::from_secs(1);
/// The default interval of health checks. Without checks, an endpoint without calls would seem
/// healthy, and its listeners would hear nothing.
const CHECK: Duration = Duration::from_secs(10);

impl Group {
    /// Begins to keep the endpoints at `places`, until the shutdown. All endpoints known now have
    /// been started when this returns.
    pub(super) fn tend(self: &Arc<Self>, Places(mut places): Places) {
        let known = Arc::clone(&places.borrow_and_update());
        self.use_places(&known);
        let (group, end) = (Arc::downgrade(self), self.common.shutdown.clone());
        self.common.tasks.spawn(async move {
            end.run_until_cancelled(keep(group, places)).await;
        });
    }

    /// Uses the endpoints at these places; of the others, keeps those that something still needs.
    fn use_places(&self, places: &[Place]) {
        let known = self.members.load_full();
        let mut members: Vec<Arc<Instance>> = Vec::with_capacity(places.len());
        for place in places {
            let member = known
                .iter()
                .find(|member| member.place.as_ref() == Some(place))
                .cloned();
            members.push(member.unwrap_or_else(|| self.start_at(place.clone())));
        }
        members.iter().for_each(|member| member.set_leaving(false));
        for gone in known
            .iter()
            .filter(|known| members.iter().all(|member| member.number != known.number))
            .cloned()
            .collect::<Vec<_>>()
        {
            gone.set_leaving(true);
            members.push(gone);
        }
        self.members.store(Arc::new(members));
        self.tell();
    }

    fn start_at(&self, place: Place) -> Arc<Instance> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let settings = BackendSettings {
            transport: self.server.transport.lock().clone().with_url(&place.url),
            health: HealthPolicy {
                interval: self.settings.health.interval.or(Some(CHECK)),
                ..self.settings.health
            },
            endpoints: Endpoints::default(),
            ..self.settings.clone()
        };
        Instance::start(settings, None, Some((number, place)), &self.common)
    }

    /// Removes endpoints that have left and are gone or no longer needed.
    fn let_go(&self) {
        let members = self.members.load_full();
        let is_needed = |member: &Instance| {
            member.load.running_count() > 0
                || (member.is_connected()
                    && (member.pool.has_clients()
                        || !self.common.owners.has_none_at(member.number)))
        };
        let kept: Vec<_> = members
            .iter()
            .filter(|member| !member.is_leaving() || is_needed(member))
            .map(Arc::clone)
            .collect();
        if kept.len() < members.len() {
            self.members.store(Arc::new(kept));
        }
    }

    /// Counts the endpoints by state, chooses the primary one, and notifies waiters.
    fn note(&self, members: &[Arc<Instance>]) {
        let present = || members.iter().filter(|member| !member.is_leaving());
        let up = present().filter(|member| member.is_connected()).count();
        self.common
            .telemetry
            .metrics()
            .set_endpoints(up, present().count().saturating_sub(up));
        self.choose_primary(members);
        self.tell();
    }

    /// Chooses the primary endpoint. It changes only if the current one is gone. If none is usable,
    /// it stays, unless it has left.
    fn choose_primary(&self, members: &[Arc<Instance>]) {
        let is_usable = |member: &Instance| !member.is_leaving() && member.is_connected();
        let first = members.iter().find(|member| is_usable(member)).cloned();
        let may_stay = |primary: &Instance| match first {
            Some(_) => is_usable(primary),
            None => !primary.is_leaving(),
        };
        let mut connected = None;
        if !self.primary.load().as_deref().is_some_and(may_stay) {
            connected = first.as_ref().map(|_| Instant::now());
            self.primary.store(first);
        }
        if let Some(primary) = &*self.primary.load() {
            connected = connected.max(primary.connected());
        }
        self.common.connected.send_if_modified(|last| {
            let latest = connected.max(*last);
            std::mem::replace(last, latest) != latest
        });
    }
}

/// Adds and removes endpoints, and follows their states, until the group is gone.
async fn keep(group: Weak<Group>, mut places: watch::Receiver<Arc<[Place]>>) {
    let Some(mut states) = group.upgrade().map(|group| group.common.states.subscribe()) else {
        return;
    };
    let mut may_move = true;
    loop {
        states.mark_unchanged();
        let some_leave = {
            let Some(group) = group.upgrade() else { return };
            group.let_go();
            let members = group.members.load_full();
            group.note(&members);
            members.iter().any(|member| member.is_leaving())
        };
        tokio::select! {
            // An error means that the group has ended.
            changed = states.changed() => if changed.is_err() { return },
            moved = places.changed(), if may_move => match (moved, group.upgrade()) {
                (Ok(()), Some(group)) => {
                    let next = Arc::clone(&places.borrow_and_update());
                    group.use_places(&next);
                }
                _ => may_move = false,
            },
            () = sleep(LOOK), if some_leave => {}
        }
    }
}
