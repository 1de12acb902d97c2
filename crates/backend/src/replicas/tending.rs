//! The upkeep of a server's endpoints: it adds and removes them, chooses the primary one, and
//! counts them. One task per server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{pending, select_all};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::member::Member;
use super::places::{Place, Places};
use super::{Group, Primary};
use crate::Backend;
use crate::backend::Replica;
use crate::connection::supervisor::State;
use crate::process_log::ProcessLog;
use crate::settings::{BackendSettings, Endpoints, HealthPolicy, endpoint_of, process_log_kept};

/// The interval between checks whether a leaving endpoint is still needed. A constant, since
/// nothing waits for them.
const LOOK: Duration = Duration::from_secs(1);
/// The default interval of health checks. Without checks, an endpoint without calls would seem
/// healthy, and its listeners would hear nothing.
const CHECK: Duration = Duration::from_secs(10);

impl Group {
    /// Begins to keep the endpoints at `places`, until the shutdown. All endpoints known now have
    /// been started when this returns.
    pub(super) fn tend(self: &Arc<Self>, places: Places) {
        let Places(mut places) = places;
        let known = Arc::clone(&places.borrow_and_update());
        self.use_places(&known);
        let (group, end) = (Arc::clone(self), self.shutdown.clone());
        self.life.spawn(async move {
            end.run_until_cancelled(group.keep(places)).await;
            let members = group.members.load_full();
            futures_util::future::join_all(members.iter().map(|member| member.backend.stop()))
                .await;
        });
    }

    async fn keep(&self, mut places: watch::Receiver<Arc<[Place]>>) {
        let mut watched: Vec<(Arc<Member>, watch::Receiver<State>)> = Vec::new();
        let mut may_move = true;
        loop {
            self.let_go();
            let members = self.members.load_full();
            watched.retain(|(known, _)| members.iter().any(|member| member.number == known.number));
            for member in members.iter() {
                if !watched
                    .iter()
                    .any(|(known, _)| known.number == member.number)
                {
                    watched.push((Arc::clone(member), member.backend.state()));
                }
            }
            watched
                .iter_mut()
                .for_each(|(_, state)| state.mark_unchanged());
            self.note(&members);
            let some_leave = members.iter().any(|member| member.is_leaving());
            let states = watched.iter_mut().map(|(_, state)| state.changed().boxed());
            let states: Vec<_> = states.collect();
            let any_state = async {
                match states.is_empty() {
                    true => pending().await,
                    false => select_all(states).await.0,
                }
            };
            tokio::select! {
                // A state's sender ends with its endpoint, which ends with the server or when it is
                // removed.
                ended = any_state => if ended.is_err() { sleep(LOOK).await },
                moved = places.changed(), if may_move => match moved {
                    Ok(()) => {
                        let next = Arc::clone(&places.borrow_and_update());
                        self.use_places(&next);
                    }
                    Err(_) => may_move = false,
                },
                () = sleep(LOOK), if some_leave => {}
            }
        }
    }

    /// Uses the endpoints at these places; of the others, keeps those that something still needs.
    fn use_places(&self, places: &[Place]) {
        let known = self.members.load_full();
        let mut members: Vec<Arc<Member>> = Vec::with_capacity(places.len());
        for place in places {
            let member = known.iter().find(|member| member.place == *place).cloned();
            members.push(member.unwrap_or_else(|| self.start(place.clone())));
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

    fn start(&self, place: Place) -> Arc<Member> {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let transport = self.transport.lock().clone().at(&place.url);
        let replica = Replica {
            number,
            address: place.address,
            label: format!("{} ({place})", self.name).into(),
            telemetry: self
                .telemetry
                .of_replica(&endpoint_of(&transport), place.address),
            owners: Arc::clone(&self.owners),
            subscribed: Arc::clone(&self.subscribed),
            process_log: Arc::new(ProcessLog::new(process_log_kept())),
        };
        let interval = self.settings.health.interval.or(Some(CHECK));
        let health = HealthPolicy {
            interval,
            ..self.settings.health
        };
        let settings = BackendSettings {
            transport,
            health,
            endpoints: Endpoints::default(),
            ..self.settings.clone()
        };
        Arc::new(Member::new(
            number,
            place,
            Backend::begin(settings, None, replica, self.shutdown.clone()),
        ))
    }

    /// Removes endpoints that have left and are gone or no longer needed.
    fn let_go(&self) {
        let members = self.members.load_full();
        let is_needed = |member: &Member| {
            member.load.running() > 0
                || (member.backend.is_connected()
                    && (member.backend.has_clients() || !self.owners.has_none_at(member.number)))
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
    fn note(&self, members: &[Arc<Member>]) {
        let present = || members.iter().filter(|member| !member.is_leaving());
        let up = present()
            .filter(|member| member.backend.is_connected())
            .count();
        self.telemetry
            .metrics()
            .set_endpoints(up, present().count().saturating_sub(up));
        self.choose_primary(members);
        self.tell();
    }

    /// Chooses the primary endpoint. It changes only if the current one is gone. If none is usable,
    /// it stays, unless it has left.
    fn choose_primary(&self, members: &[Arc<Member>]) {
        let usable = || {
            members
                .iter()
                .filter(|member| !member.is_leaving() && member.backend.is_connected())
        };
        let current = self.primary.load();
        let may_stay = |primary: &Primary| match usable().next() {
            Some(_) => usable().any(|member| member.number == primary.member.number),
            None => !primary.member.is_leaving(),
        };
        if !current.as_ref().is_some_and(|primary| may_stay(primary)) {
            let primary = |first| {
                Arc::new(Primary {
                    member: Arc::clone(first),
                    since: Instant::now(),
                })
            };
            self.primary.store(usable().next().map(primary));
        }
    }
}
