//! A subscription of one listener alone, for what Fanlight does not know: only the server can tell
//! what on it is meant, so all of it is passed on.
//!
//! Must not know: other listeners.

use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::Era;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::time::{sleep, timeout};

use super::keeper::{connected, stopped};
use super::subscription::{End, Heard, Subscription};
use crate::backoff::Backoff;
use crate::connection::Connection;
use crate::hub::{Filter, Hub};
use crate::supervisor::State;
use fanlight_canonical::ServerMessage;
use fanlight_canonical::{Interest, Listen};

/// See the module.
pub(super) struct Dedicated {
    pub(super) hub: Arc<Hub>,
    pub(super) state: watch::Receiver<State>,
    pub(super) listen: Listen,
    pub(super) nesting: usize,
    /// How long an acknowledgement may take.
    pub(super) patience: Duration,
    /// Told once what is honoured.
    pub(super) honoured: Option<oneshot::Sender<Interest>>,
    /// There are so many at most.
    pub(super) _permit: OwnedSemaphorePermit,
}

impl Dedicated {
    /// Keeps it up until the backend ends or the server turns out not to have it.
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
                    end = self.hear(&connection, backoff) => {
                        if !matches!(end, End::Broken) {
                            return;
                        }
                    }
                    _ = connection.lost() => {}
                }
            }
            sleep(backoff.next_delay()).await;
        }
    }

    async fn hear(&mut self, connection: &Arc<Connection>, backoff: &mut Backoff) -> End {
        let interest = &self.listen.interest;
        let asked = Filter::of(interest);
        let mut subscription = Subscription::begin(connection, asked, interest.unknown.as_ref(), self.nesting);
        let Ok(first) = timeout(self.patience, subscription.next()).await else { return End::Broken };
        let mut heard = first;
        loop {
            match heard {
                Heard::Acknowledged(agreed) => {
                    backoff.reset();
                    let mut honoured = Filter::acknowledged(&agreed).honours(&self.listen.interest);
                    honoured.unknown = Filter::unknown(&agreed);
                    match self.honoured.take() {
                        Some(told) => drop(told.send(honoured)),
                        None => self.hub.announce_to(&self.listen.messages, &honoured),
                    }
                }
                Heard::Notification(notification) => {
                    let taken = self.listen.messages.try_send(ServerMessage::Notification(notification));
                    self.hub.warn_of_slow(usize::from(!taken));
                }
                Heard::Ended(end) => return end,
            }
            heard = subscription.next().await;
        }
    }
}
