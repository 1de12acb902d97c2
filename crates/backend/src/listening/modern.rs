//! One subscription at a modern server for all listeners together.
//!
//! When more is to be heard, a new subscription is acknowledged before the old one is ended:
//! nothing is lost between them, though a message may arrive on both. When less is to be heard,
//! the same happens after a while, and at once when there is nothing left.
//!
//! Must not know: who listens.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::subscription::{End, Heard, Subscription};
use crate::backoff::Backoff;
use crate::connection::Connection;
use crate::excerpt::excerpt;
use crate::hub::{Filter, Hub, Origin};

/// How long more is heard than is to be heard.
const SHRINK: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Shared<'a> {
    hub: &'a Hub,
    backend: &'a str,
    connection: &'a Arc<Connection>,
    nesting: usize,
    /// How long an acknowledgement may take.
    patience: Duration,
    /// What is to be heard, as of `generation`.
    demand: Filter,
    generation: u64,
    /// Acknowledged.
    current: Option<(Subscription, Filter)>,
    /// Not acknowledged yet, with when it has to be and the generation that it is for.
    next: Option<(Subscription, Instant, u64)>,
    /// Since when more is heard than needed.
    shrink: Option<Instant>,
    /// No attempt before.
    hold: Option<Instant>,
    backoff: Backoff,
    /// The server has refused what was to be heard then.
    refused: Option<u64>,
    /// Nor did it take the rest of it.
    given_up: Option<u64>,
    unsupported: bool,
    /// Something may have been missed.
    missed: bool,
    /// What is heard has changed since it was compared with what is to be heard.
    unsettled: bool,
}

impl<'a> Shared<'a> {
    pub(super) fn new(
        (hub, backend): (&'a Hub, &'a str),
        connection: &'a Arc<Connection>,
        nesting: usize,
        patience: Duration,
        missed: bool,
    ) -> Self {
        Self {
            hub,
            backend,
            connection,
            nesting,
            patience,
            demand: Filter::default(),
            generation: 0,
            current: None,
            next: None,
            shrink: None,
            hold: None,
            backoff: Backoff::new(connection.retry_delays()),
            refused: None,
            given_up: None,
            unsupported: false,
            missed,
            unsettled: true,
        }
    }

    /// Keeps it up, for ever.
    pub(super) async fn keep(mut self) {
        let mut changed = self.hub.watch();
        loop {
            self.reconsider();
            let wake = self.wake();
            tokio::select! {
                heard = next_of(self.next.as_mut().map(|(next, _, _)| next)) => self.heard_next(heard),
                heard = next_of(self.current.as_mut().map(|(current, _)| current)) => self.heard_current(heard),
                _ = changed.changed() => {}
                () = sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => self.timed_out(),
            }
        }
    }

    /// Compares what is heard with what is to be heard, and begins what that takes.
    fn reconsider(&mut self) {
        if self.hub.generation() != self.generation {
            (self.generation, self.demand) = self.hub.demand();
        } else if !self.unsettled {
            return;
        }
        self.unsettled = false;
        self.hold = self.hold.filter(|until| *until > Instant::now());
        let wanted = self.wanted();
        if wanted.is_empty() || self.unsupported {
            (self.current, self.next, self.shrink) = (None, None, None);
            return self.hub.acknowledge(self.generation, &self.demand, &Filter::default());
        }
        let given_up = self.given_up == Some(self.generation);
        let current = self.current.as_ref().filter(|(current, _)| given_up || current.asked.covers(&wanted));
        if given_up || current.is_some() {
            let none = Filter::default();
            let honoured = current.map_or(&none, |(_, honoured)| honoured);
            self.hub.acknowledge(self.generation, &self.demand, honoured);
            if given_up || current.is_some_and(|(current, _)| current.asked == wanted) {
                (self.shrink, self.next) = (None, None);
                return;
            }
            if self.shrink.get_or_insert_with(Instant::now).elapsed() < SHRINK {
                return;
            }
        }
        if self.next.is_none() && self.hold.is_none() {
            let next = Subscription::begin(self.connection, wanted, None, self.nesting);
            self.next = Some((next, Instant::now() + self.patience, self.generation));
        }
    }

    /// What the server is asked for. If it refuses all of it for the sake of some resource or task,
    /// the others must not suffer: then only those that it is known to take.
    fn wanted(&self) -> Filter {
        if self.refused != Some(self.generation) {
            return self.demand.clone();
        }
        let mut wanted = Filter { lists: self.demand.lists, ..Filter::default() };
        if let Some((_, honoured)) = &self.current {
            wanted.uris = self.demand.uris.intersection(&honoured.uris).cloned().collect();
            wanted.tasks = self.demand.tasks.intersection(&honoured.tasks).cloned().collect();
        }
        wanted
    }

    /// When to look again though nothing has happened.
    fn wake(&self) -> Option<Instant> {
        match (&self.next, self.hold) {
            (Some((_, late, _)), _) => Some(*late),
            (None, Some(until)) => Some(until),
            (None, None) => self.shrink.map(|since| since + SHRINK),
        }
    }

    fn timed_out(&mut self) {
        self.unsettled = true;
        if self.next.as_ref().is_some_and(|(_, late, _)| *late <= Instant::now()) {
            tracing::warn!(backend = self.backend, "subscription not acknowledged in time");
            self.next = None;
            self.hold_off();
        }
    }

    fn heard_next(&mut self, heard: Heard) {
        match heard {
            Heard::Acknowledged(agreed) => {
                let Some((next, _, _)) = self.next.take() else { return };
                let honoured = Filter::acknowledged(&agreed);
                let lists = honoured.lists;
                self.hub.agree(&next.asked, &honoured);
                self.unsettled = true;
                self.current = Some((next, honoured));
                self.shrink = None;
                self.backoff.reset();
                if std::mem::take(&mut self.missed) {
                    self.hub.announce(Origin::Base, lists);
                }
            }
            Heard::Notification(notification) => self.hub.deliver(Origin::Base, notification),
            Heard::Ended(end) => {
                let generation = self.next.take().map(|(_, _, generation)| generation);
                self.unsettled = true;
                match end {
                    End::Unsupported => {
                        tracing::debug!(backend = self.backend, "the server has no subscriptions");
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
                    End::Broken => self.hold_off(),
                }
            }
        }
    }

    fn heard_current(&mut self, heard: Heard) {
        match heard {
            Heard::Acknowledged(_) => {}
            Heard::Notification(notification) => self.hub.deliver(Origin::Base, notification),
            Heard::Ended(end) => {
                tracing::debug!(backend = self.backend, ?end, "subscription ended by the server");
                (self.current, self.missed, self.unsettled) = (None, true, true);
                self.hold_off();
            }
        }
    }

    fn hold_off(&mut self) {
        self.hold = Some(Instant::now() + self.backoff.next_delay());
    }
}

/// What a subscription has to say; nothing if there is none.
async fn next_of(subscription: Option<&mut Subscription>) -> Heard {
    match subscription {
        Some(subscription) => subscription.next().await,
        None => std::future::pending().await,
    }
}
