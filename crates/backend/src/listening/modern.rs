//! One subscription at a modern server for all listeners together.
//!
//! When the demand grows, a new subscription is acknowledged before the old one ends. A subscription
//! that is not acknowledged delays no other. So nothing is
//! lost between them, though a notification may arrive on both. When the demand shrinks, the same
//! happens after a delay. Without demand the subscription ends at once.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{Backoff, Interest};
use tokio::time::{Instant, sleep_until};

use super::subscription::{BackendSubscription, End, SubscriptionEvent};
use crate::connection::Connection;
use crate::log::excerpt;
use crate::subscriptions::{Filter, Origin, SubscriptionRegistry};

/// The delay before a smaller subscription replaces a larger one. A constant: meanwhile only
/// unwanted updates arrive, which are dropped.
const SHRINK_DELAY: Duration = Duration::from_secs(1);

/// The common subscription of one connection.
pub(super) struct SharedSubscription<'a> {
    registry: &'a SubscriptionRegistry,
    backend: &'a str,
    connection: &'a Arc<Connection>,
    /// The longest wait for an acknowledgement.
    patience: Duration,
    /// The demand as of `generation`.
    demand: Filter,
    generation: u64,
    /// The acknowledged subscription, with its accepted filter.
    current: Option<(BackendSubscription, Filter)>,
    /// The unacknowledged subscription, with its deadline and the generation of its demand.
    next: Option<(BackendSubscription, Instant, u64)>,
    /// An unacknowledged subscription that does not cover the demand any more. The server may be
    /// slow to acknowledge it, which must not delay others.
    earlier: Option<(BackendSubscription, Instant, u64)>,
    /// The time since which `current` covers more than the demand.
    excess_since: Option<Instant>,
    /// The earliest time of the next attempt.
    retry_at: Option<Instant>,
    backoff: Backoff,
    /// The generation whose demand the server refused.
    refused: Option<u64>,
    /// The generation in which the server refused even what it had accepted before.
    given_up: Option<u64>,
    unsupported: bool,
    /// Whether notifications may have been missed.
    missed: bool,
    /// Whether the subscriptions have changed since their last comparison with the demand.
    is_stale: bool,
}

impl<'a> SharedSubscription<'a> {
    pub(super) fn new(
        (registry, backend): (&'a SubscriptionRegistry, &'a str),
        connection: &'a Arc<Connection>,
        patience: Duration,
        missed: bool,
    ) -> Self {
        Self {
            registry,
            backend,
            connection,
            patience,
            demand: Filter::default(),
            generation: 0,
            current: None,
            next: None,
            earlier: None,
            excess_since: None,
            retry_at: None,
            backoff: Backoff::new(connection.retry_delays()),
            refused: None,
            given_up: None,
            unsupported: false,
            missed,
            is_stale: true,
        }
    }

    /// Keeps up the subscription; never returns.
    pub(super) async fn keep(mut self) {
        let mut changed = self.registry.watch();
        loop {
            self.reconcile();
            let wake = self.next_timeout();
            tokio::select! {
                event = next_of(self.next.as_mut().map(|(next, _, _)| next)) => self.on_next(event),
                event = next_of(self.earlier.as_mut().map(|(earlier, _, _)| earlier)) => {
                    std::mem::swap(&mut self.next, &mut self.earlier);
                    self.on_next(event);
                    std::mem::swap(&mut self.next, &mut self.earlier);
                }
                event = next_of(self.current.as_mut().map(|(current, _)| current)) => self.on_current(event),
                _ = changed.changed() => {}
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => self.on_timeout(),
            }
        }
    }

    /// Compares the subscriptions with the demand, and begins a new one if needed.
    fn reconcile(&mut self) {
        if self.registry.generation() != self.generation {
            (self.generation, self.demand) = self.registry.demand();
        } else if !self.is_stale {
            return;
        }
        self.is_stale = false;
        self.retry_at = self.retry_at.filter(|until| *until > Instant::now());
        let wanted = self.wanted();
        if wanted.is_empty() || self.unsupported {
            (self.current, self.excess_since) = (None, None);
            (self.next, self.earlier) = (None, None);
            return self
                .registry
                .acknowledge(self.generation, &self.demand, &Filter::default());
        }
        let given_up = self.given_up == Some(self.generation);
        let current = self
            .current
            .as_ref()
            .filter(|(current, _)| given_up || current.asked.covers(&wanted));
        if given_up || current.is_some() {
            let none = Filter::default();
            let honoured = current.map_or(&none, |(_, honoured)| honoured);
            self.registry
                .acknowledge(self.generation, &self.demand, honoured);
            if given_up || current.is_some_and(|(current, _)| current.asked == wanted) {
                self.excess_since = None;
                (self.next, self.earlier) = (None, None);
                return;
            }
            if self.excess_since.get_or_insert_with(Instant::now).elapsed() < SHRINK_DELAY {
                return;
            }
        }
        let is_asked = |(next, _, _): &(BackendSubscription, _, _)| next.asked.covers(&wanted);
        if self.retry_at.is_none() && !self.next.as_ref().is_some_and(is_asked) {
            let unfit = self.next.take();
            self.earlier = self.earlier.take().or(unfit);
            let next = BackendSubscription::begin(self.connection, wanted, None);
            self.next = Some((next, Instant::now() + self.patience, self.generation));
        }
    }

    /// The filter to subscribe with. If the server refuses the whole demand because of one resource
    /// or task, the filter contains only those that it accepted before. So the others are not lost.
    fn wanted(&self) -> Filter {
        if self.refused != Some(self.generation) {
            return self.demand.clone();
        }
        let mut wanted = Filter {
            lists: self.demand.lists,
            ..Filter::default()
        };
        if let Some((_, honoured)) = &self.current {
            wanted.uris = self
                .demand
                .uris
                .intersection(&honoured.uris)
                .cloned()
                .collect();
            wanted.tasks = self
                .demand
                .tasks
                .intersection(&honoured.tasks)
                .cloned()
                .collect();
        }
        wanted
    }

    /// The time at which to reconcile without an event.
    fn next_timeout(&self) -> Option<Instant> {
        let pending = [&self.earlier, &self.next].into_iter().flatten();
        match (pending.map(|(_, late, _)| *late).min(), self.retry_at) {
            (Some(late), _) => Some(late),
            (None, Some(until)) => Some(until),
            (None, None) => self.excess_since.map(|since| since + SHRINK_DELAY),
        }
    }

    fn on_timeout(&mut self) {
        self.is_stale = true;
        let is_late = |(_, late, _): &mut (_, Instant, _)| *late <= Instant::now();
        let late = [&mut self.earlier, &mut self.next].map(|pending| pending.take_if(is_late));
        if late.iter().any(Option::is_some) {
            tracing::warn!(
                backend = self.backend,
                "subscription not acknowledged in time"
            );
            self.back_off();
        }
    }

    fn on_next(&mut self, event: SubscriptionEvent) {
        match event {
            SubscriptionEvent::Acknowledged(agreed) => {
                let Some((next, _, _)) = self.next.take() else {
                    return;
                };
                let is_covered = |(other, _, _): &mut (BackendSubscription, _, _)| {
                    next.asked.covers(&other.asked)
                };
                drop(self.earlier.take_if(is_covered));
                let honoured = Filter::of(&Interest::of_filter(&agreed));
                let lists = honoured.lists;
                self.registry.acknowledge_part(&next.asked, &honoured);
                self.is_stale = true;
                self.current = Some((next, honoured));
                self.excess_since = None;
                self.backoff.reset();
                if std::mem::take(&mut self.missed) {
                    self.registry.announce(&Origin::Base, lists);
                }
            }
            SubscriptionEvent::Notification(notification) => {
                self.registry.deliver(&Origin::Base, notification, None);
            }
            SubscriptionEvent::Ended(end) => {
                let generation = self.next.take().map(|(_, _, generation)| generation);
                self.is_stale = true;
                match end {
                    End::Unsupported => {
                        tracing::debug!(
                            backend = self.backend,
                            "subscription not made: the server has none"
                        );
                        self.unsupported = true;
                    }
                    End::Refused { message } => {
                        let message = excerpt(message.as_bytes(), 200);
                        tracing::warn!(backend = self.backend, message, "subscription refused");
                        if self.refused == generation {
                            self.given_up = generation;
                        }
                        self.refused = generation;
                    }
                    End::Broken => self.back_off(),
                }
            }
        }
    }

    fn on_current(&mut self, event: SubscriptionEvent) {
        match event {
            SubscriptionEvent::Acknowledged(_) => {}
            SubscriptionEvent::Notification(notification) => {
                self.registry.deliver(&Origin::Base, notification, None);
            }
            SubscriptionEvent::Ended(end) => {
                tracing::debug!(
                    backend = self.backend,
                    ?end,
                    "subscription ended by the server"
                );
                (self.current, self.missed, self.is_stale) = (None, true, true);
                self.back_off();
            }
        }
    }

    fn back_off(&mut self) {
        self.retry_at = Some(Instant::now() + self.backoff.next_delay());
    }
}

/// The next event of a subscription; never resolves if there is none.
async fn next_of(subscription: Option<&mut BackendSubscription>) -> SubscriptionEvent {
    match subscription {
        Some(subscription) => subscription.next().await,
        None => std::future::pending().await,
    }
}
