//! One subscription at a modern server for all listeners together.
//!
//! When the demand grows, a new subscription is acknowledged before the old one ends. A
//! subscription that is not acknowledged delays no other. So nothing is lost between them, though a
//! notification may arrive on both. When the demand shrinks, the same happens after a delay.
//! Without demand the subscription ends at once.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{
    BackendError, Backoff, Call, CallContext, Interest, MessageReceiver, ServerMessage,
    ServerMessages,
};
use fanlight_protocol::meta::TASKS_EXTENSION;
use fanlight_protocol::{Json, Method, Notification, ObjectBuilder, code, subscription};
use futures_util::future::{BoxFuture, Fuse, OptionFuture};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::time::{Instant, sleep_until};

use crate::connection::Connection;
use crate::log::foreign_text;
use crate::request::Reply;
use crate::subscriptions::{Origin, SubscriptionRegistry};

/// The delay before a smaller subscription replaces a larger one. A constant: meanwhile only
/// unwanted updates arrive, which are dropped.
const SHRINK_DELAY: Duration = Duration::from_secs(1);

/// The common subscription of one connection.
pub(crate) struct SharedSubscription<'a> {
    registry: &'a SubscriptionRegistry,
    connection: &'a Arc<Connection>,
    /// The longest wait for an acknowledgement.
    patience: Duration,
    /// The demand as of `generation`.
    demand: Interest,
    generation: u64,
    /// The acknowledged subscription, if there is one, and after it those that are not yet: at most
    /// one that no longer covers the demand, and the newest. The server may be slow to acknowledge
    /// the former, which must not delay others.
    subscriptions: Vec<Held>,
    /// The time since which the acknowledged one covers more than the demand.
    excess_since: Option<Instant>,
    /// The earliest time of the next attempt.
    retry_at: Option<Instant>,
    backoff: Backoff,
    /// The time since which no subscription has been acknowledged.
    failing_since: Option<Instant>,
    /// The generation whose demand the server refused.
    refused: Option<u64>,
    /// The generation in which the server refused the previously accepted filter, too, or accepted
    /// nothing.
    given_up: Option<u64>,
    unsupported: bool,
    /// Whether notifications may have been missed.
    missed: bool,
    /// Whether the subscriptions have changed since their last comparison with the demand.
    is_stale: bool,
}

impl<'a> SharedSubscription<'a> {
    pub(crate) fn new(
        registry: &'a SubscriptionRegistry,
        connection: &'a Arc<Connection>,
        patience: Duration,
        missed: bool,
    ) -> Self {
        Self {
            registry,
            connection,
            patience,
            demand: Interest::default(),
            generation: 0,
            subscriptions: Vec::new(),
            excess_since: None,
            retry_at: None,
            backoff: Backoff::new(connection.context.timeouts.reconnect),
            failing_since: None,
            refused: None,
            given_up: None,
            unsupported: false,
            missed,
            is_stale: true,
        }
    }

    /// Keeps up the subscription; never returns.
    pub(crate) async fn keep(mut self) {
        let mut changed = self.registry.watch();
        loop {
            self.reconcile();
            let wake = OptionFuture::from(self.next_timeout().map(sleep_until));
            let events = self.subscriptions.iter_mut().enumerate();
            let mut events: FuturesUnordered<_> = events
                .map(async |(at, held)| (at, held.next().await))
                .collect();
            tokio::select! {
                Some((at, event)) = events.next() => {
                    drop(events);
                    self.on_event(at, event);
                }
                _ = changed.changed() => {}
                Some(()) = wake => self.is_stale = true,
            }
        }
    }

    /// Compares the subscriptions with the demand, and begins a new one if needed.
    fn reconcile(&mut self) {
        if self.registry.generation() != self.generation {
            (self.generation, self.demand) = self.registry.demand();
            // A new listener does not wait for the pause to end.
            self.retry_at = None;
        } else if !self.is_stale {
            return;
        }
        self.is_stale = false;
        self.retry_at = self.retry_at.filter(|until| *until > Instant::now());
        let wanted = self.filter();
        if wanted.is_empty() || self.unsupported {
            self.excess_since = None;
            self.subscriptions.clear();
            return self.answer(None);
        }
        let given_up = self.given_up == Some(self.generation);
        let current = self
            .current()
            .filter(|(asked, _)| given_up || asked.covers(&wanted));
        if given_up || current.is_some() {
            self.answer(current);
            if given_up || current.is_some_and(|(asked, _)| *asked == wanted) {
                self.excess_since = None;
                return self.subscriptions.retain(|held| !held.is_pending());
            }
            if self.excess_since.get_or_insert_with(Instant::now).elapsed() < SHRINK_DELAY {
                return;
            }
        }
        let newest = self.subscriptions.last().filter(|held| held.is_pending());
        let is_asked = newest.is_some_and(|held| held.asked.covers(&wanted));
        if self.retry_at.is_none() && !is_asked {
            let pending = self.subscriptions.iter().filter(|held| held.is_pending());
            if pending.count() > 1 {
                self.subscriptions.pop();
            }
            self.subscriptions.push(self.begin(wanted));
        }
    }

    /// The filter that the acknowledged subscription asks for, and the accepted one.
    fn current(&self) -> Option<(&Interest, &Interest)> {
        let first = self.subscriptions.first()?;
        Some((&first.asked, first.honoured.as_ref()?))
    }

    /// Answers the demand with the filter that a subscription has got accepted.
    fn answer(&self, current: Option<(&Interest, &Interest)>) {
        let none = Interest::default();
        let honoured = current.map_or(&none, |(_, honoured)| honoured);
        self.registry
            .acknowledge(self.generation, &self.demand, honoured);
    }

    /// The filter to subscribe with. If the server refuses the whole demand because of one resource
    /// or task, the filter contains only those that it accepted before. So the others are not lost.
    fn filter(&self) -> Interest {
        if self.refused != Some(self.generation) {
            return self.demand.clone();
        }
        let mut wanted = Interest {
            lists: self.demand.lists,
            unknown: self.demand.unknown.clone(),
            ..Interest::default()
        };
        if let Some((_, honoured)) = self.current() {
            wanted.uris = &self.demand.uris & &honoured.uris;
            wanted.tasks = &self.demand.tasks & &honoured.tasks;
        }
        wanted
    }

    /// The time at which to reconcile without an event.
    fn next_timeout(&self) -> Option<Instant> {
        let excess = || Some(self.excess_since? + SHRINK_DELAY);
        let is_waiting = self.subscriptions.iter().any(Held::is_pending);
        self.retry_at.or_else(excess).filter(|_| !is_waiting)
    }

    /// Handles an event of the subscription at this place.
    fn on_event(&mut self, at: usize, event: SubscriptionEvent) {
        match event {
            SubscriptionEvent::Notification(notification) => {
                self.registry.deliver(&Origin::Base, notification, None);
            }
            SubscriptionEvent::Acknowledged(agreed) => {
                if self.subscriptions.get(at).is_some_and(Held::is_pending) {
                    let held = self.subscriptions.remove(at);
                    self.on_acknowledged(held, &agreed);
                }
            }
            SubscriptionEvent::Ended(end) => {
                self.is_stale = true;
                let held = self.subscriptions.remove(at);
                if held.is_pending() {
                    self.on_refused(held.generation, end);
                } else {
                    tracing::debug!(
                        backend = &*self.registry.backend,
                        ?end,
                        "subscription ended by the server"
                    );
                    self.missed = true;
                    self.back_off();
                }
            }
        }
    }

    /// Makes an acknowledged subscription the current one.
    fn on_acknowledged(&mut self, mut held: Held, agreed: &Json) {
        self.subscriptions
            .retain(|other| other.is_pending() && !held.asked.covers(&other.asked));
        let honoured = Interest::from_filter(agreed);
        let lists = honoured.lists;
        self.registry.acknowledge_part(&held.asked, &honoured);
        if honoured.is_empty() {
            // Nothing will arrive.
            self.given_up = Some(held.generation);
        } else {
            held.honoured = Some(honoured);
            self.subscriptions.insert(0, held);
        }
        (self.is_stale, self.excess_since) = (true, None);
        self.backoff.reset();
        self.failing_since = None;
        if std::mem::take(&mut self.missed) {
            self.registry.announce(&Origin::Base, lists);
        }
    }

    /// Handles the end of a subscription that was not acknowledged.
    fn on_refused(&mut self, generation: u64, end: End) {
        match end {
            End::Unsupported => {
                tracing::debug!(
                    backend = &*self.registry.backend,
                    "subscription not made: the server has none"
                );
                self.unsupported = true;
            }
            End::Refused { message } => {
                let message = foreign_text(message.as_bytes(), 200);
                tracing::warn!(
                    backend = &*self.registry.backend,
                    message,
                    "subscription refused"
                );
                if self.refused == Some(generation) {
                    self.given_up = self.refused;
                }
                self.refused = Some(generation);
            }
            End::Late => {
                tracing::warn!(
                    backend = &*self.registry.backend,
                    "subscription not acknowledged in time"
                );
                self.fail(true);
            }
            End::Answered => self.fail(true),
            End::Broken => self.fail(false),
        }
    }

    /// Retries later. Unless another subscription is pending, clients wait no longer for the answer
    /// if the failure `is_final`, or if the server has failed for too long.
    fn fail(&mut self, is_final: bool) {
        let since = self.failing_since.get_or_insert_with(Instant::now);
        if (is_final || since.elapsed() >= self.patience)
            && !self.subscriptions.iter().any(Held::is_pending)
        {
            self.registry.leave_unanswered(self.generation);
        }
        self.back_off();
    }

    fn back_off(&mut self) {
        self.retry_at = Some(Instant::now() + self.backoff.next_delay());
    }
}

/// The number of messages that may wait for the hand-over from the transport, which is immediate.
/// Another limit applies to messages that wait for a client.
const QUEUE: usize = 256;

type Exchange = BoxFuture<'static, Result<Reply, BackendError>>;

/// A subscription at a modern server. Dropping it ends the subscription there.
struct Held {
    asked: Interest,
    /// The generation of the demand that it asks for.
    generation: u64,
    /// The deadline of its acknowledgement.
    late: Instant,
    /// The accepted filter, once it is acknowledged.
    honoured: Option<Interest>,
    exchange: Fuse<Exchange>,
    messages: MessageReceiver,
    end: End,
}

enum SubscriptionEvent {
    /// The server has agreed to this filter.
    Acknowledged(Json),
    /// A notification, without the id of the subscription.
    Notification(Notification),
    Ended(End),
}

/// How a subscription ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The server has no subscriptions.
    Unsupported,
    /// The server refuses this filter.
    Refused { message: String },
    /// The server has ended it by a result.
    Answered,
    /// The server has not acknowledged it in time.
    Late,
    /// The stream or the connection broke, or the server failed.
    Broken,
}

impl SharedSubscription<'_> {
    /// Creates a subscription; the first poll sends its request.
    fn begin(&self, asked: Interest) -> Held {
        let (sender, messages) = ServerMessages::channel(QUEUE);
        let mut context = (*CallContext::internal()).clone();
        if !asked.tasks.is_empty() {
            context.capabilities = tasks_capability();
        }
        let call = Call {
            method: Method::Listen,
            params: Some(params_of(&asked)),
            context: Arc::new(context),
            messages: sender,
        };
        let connection = Arc::clone(self.connection);
        let exchange: Exchange = Box::pin(async move { connection.subscribe(call).await });
        Held {
            asked,
            generation: self.generation,
            late: Instant::now() + self.patience,
            honoured: None,
            exchange: exchange.fuse(),
            messages,
            end: End::Broken,
        }
    }
}

impl Held {
    fn is_pending(&self) -> bool {
        self.honoured.is_none()
    }

    /// The next event. Cancel safe; must not be called after the end.
    async fn next(&mut self) -> SubscriptionEvent {
        loop {
            tokio::select! {
                biased;
                message = self.messages.recv() => match message {
                    Some(ServerMessage::Notification(notification)) => return sort(notification),
                    Some(_) => {}
                    None => return SubscriptionEvent::Ended(self.end.clone()),
                },
                outcome = &mut self.exchange => self.end = End::from_outcome(outcome),
                () = sleep_until(self.late), if self.honoured.is_none() => {
                    return SubscriptionEvent::Ended(End::Late);
                }
            }
        }
    }
}

fn sort(notification: Notification) -> SubscriptionEvent {
    if notification.method == Method::Acknowledged {
        let agreed = notification.param("notifications");
        return SubscriptionEvent::Acknowledged(agreed.unwrap_or_else(Json::empty_object));
    }
    SubscriptionEvent::Notification(notification.without_subscription_id())
}

impl End {
    fn from_outcome(outcome: Result<Reply, BackendError>) -> Self {
        match outcome {
            Ok(Reply::Answer { response, .. }) => match response.error_code() {
                Some(code::METHOD_NOT_FOUND) => Self::Unsupported,
                Some(code::INVALID_PARAMS | code::MISSING_CLIENT_CAPABILITY) => {
                    let message = response.error().and_then(|error| error.text_at("message"));
                    Self::Refused {
                        message: message.unwrap_or_default(),
                    }
                }
                Some(_) => Self::Broken,
                None => Self::Answered,
            },
            Ok(Reply::Rejected {
                status: 400 | 404 | 405 | 501,
                ..
            }) => Self::Unsupported,
            Ok(Reply::Rejected { .. } | Reply::Redirected) | Err(_) => Self::Broken,
        }
    }
}

/// The `params` of `subscriptions/listen`.
fn params_of(wanted: &Interest) -> Json {
    let unknown = wanted.unknown.as_ref();
    let filter = subscription::filter(wanted.lists, &wanted.uris, &wanted.tasks, unknown);
    ObjectBuilder::new()
        .member("notifications", &filter)
        .finish()
}

/// The capabilities with which a server may send task notifications.
fn tasks_capability() -> Json {
    Json::empty_object().with_nested("extensions", TASKS_EXTENSION, &Json::empty_object())
}
