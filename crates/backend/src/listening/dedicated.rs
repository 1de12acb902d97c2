//! A subscription of a single listener, for filter members that Fanlight does not know. Only the
//! server knows which messages belong to them, so that listener gets all messages of the
//! subscription.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{Interest, Listen, ServerMessage};
use fanlight_protocol::Era;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::subscription::{BackendSubscription, End, SubscriptionEvent};
use super::worker::{connected, stopped};
use crate::backoff::Backoff;
use crate::connection::Connection;
use crate::connection::supervisor::State;
use crate::subscriptions::{Filter, SubscriptionRegistry};

/// A subscription of a single listener.
pub(super) struct DedicatedSubscription {
    pub(super) registry: Arc<SubscriptionRegistry>,
    pub(super) state: watch::Receiver<State>,
    pub(super) listen: Listen,
    /// The longest wait for an acknowledgement.
    pub(super) patience: Duration,
    /// Receives the accepted part of the filter, once.
    pub(super) honoured: Option<oneshot::Sender<Interest>>,
    pub(super) _permit: OwnedSemaphorePermit,
    /// Keeps the base connection from being ended as unused.
    pub(super) _in_use: Arc<()>,
}

impl DedicatedSubscription {
    /// Keeps up the subscription until the server ends or turns out not to support it.
    pub(super) async fn run(self) {
        let stopped = stopped(self.state.clone());
        tokio::select! {
            () = stopped => {}
            () = self.keep() => {}
        }
    }

    async fn keep(mut self) {
        let mut state = self.state.clone();
        let mut failed = None;
        while let Some(connection) = connected(&mut state, || {}).await {
            let backoff = failed.get_or_insert_with(|| Backoff::new(connection.retry_delays()));
            if connection.era() == Era::Modern {
                tokio::select! {
                    end = self.receive(&connection, backoff) => if !matches!(end, End::Broken) {
                        return;
                    },
                    _ = connection.lost() => {}
                }
            }
            sleep(backoff.next_delay()).await;
        }
    }

    /// Passes on all messages of one subscription.
    async fn receive(&mut self, connection: &Arc<Connection>, backoff: &mut Backoff) -> End {
        let interest = &self.listen.interest;
        let unknown = interest.unknown.as_ref();
        let mut subscription =
            BackendSubscription::begin(connection, Filter::of(interest), unknown);
        let Ok(mut event) = timeout(self.patience, subscription.next()).await else {
            return End::Broken;
        };
        loop {
            match event {
                SubscriptionEvent::Acknowledged(agreed) => {
                    backoff.reset();
                    let mut honoured = Filter::acknowledged(&agreed).honours(interest);
                    honoured.unknown = Filter::unknown(&agreed);
                    match self.honoured.take() {
                        Some(sender) => drop(sender.send(honoured)),
                        None => self.registry.announce_to(&self.listen.messages, &honoured),
                    }
                }
                SubscriptionEvent::Notification(notification) => {
                    let taken = self
                        .listen
                        .messages
                        .try_send(ServerMessage::Notification(notification));
                    self.registry.warn_of_slow(usize::from(!taken));
                }
                SubscriptionEvent::Ended(end) => return end,
            }
            event = subscription.next().await;
        }
    }
}
