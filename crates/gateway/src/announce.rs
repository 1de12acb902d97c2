//! Telling clients that a merged list has changed: who wants to hear of it, and how often at most.
//!
//! Must not know: what changed, or how that was found.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fanlight_canonical::{Interest, ServerMessage, ServerMessages};
use fanlight_protocol::Notification;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::catalogue::Change;
use crate::settings::ListLimits;

/// How a change came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A backend announced it.
    Announced,
    /// A client's request had a backend asked.
    Asked,
}

/// Who listens for changes of merged lists, and what is still to be told.
pub(crate) struct Announcer {
    settle: Duration,
    unannounced: Duration,
    state: Mutex<State>,
    /// Something has become due.
    pub(crate) woken: Notify,
}

#[derive(Default)]
struct State {
    listeners: HashMap<u64, Listener>,
    next: u64,
    timing: [Timing; 3],
}

struct Listener {
    wants: [bool; 3],
    messages: ServerMessages,
}

#[derive(Clone, Copy, Default)]
struct Timing {
    due: Option<Instant>,
    told: Option<Instant>,
}

/// A listener's place; it hears nothing more once this is dropped.
pub(crate) struct Registered {
    announcer: Arc<Announcer>,
    number: u64,
}

impl Announcer {
    pub(crate) fn new(limits: &ListLimits) -> Arc<Self> {
        let ListLimits { settle, unannounced, .. } = *limits;
        Arc::new(Self { settle, unannounced, state: Mutex::default(), woken: Notify::new() })
    }

    /// Lets somebody hear of the changes in `interest`.
    pub(crate) fn register(self: &Arc<Self>, interest: &Interest, messages: ServerMessages) -> Registered {
        let wants = Change::ALL.map(|change| change.is_in(interest));
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.listeners.insert(number, Listener { wants, messages });
        drop(state);
        Registered { announcer: Arc::clone(self), number }
    }

    /// Has a change told, as soon as the least time since the last one has passed.
    pub(crate) fn announce(&self, change: Change, found: Found) {
        let pause = if found == Found::Announced { self.settle } else { self.unannounced };
        let now = Instant::now();
        if let Some(timing) = self.lock().timing.get_mut(change.index()) {
            let due = timing.told.map_or(now, |told| now.max(told + pause));
            timing.due = Some(timing.due.map_or(due, |earlier| earlier.min(due)));
        }
        self.woken.notify_one();
    }

    /// When [`Announcer::tell`] is to be called next.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.lock().timing.iter().filter_map(|timing| timing.due).min()
    }

    /// Tells what is due. Whoever has no room for it misses it.
    pub(crate) fn tell(&self) {
        let now = Instant::now();
        let mut state = self.lock();
        for change in Change::ALL {
            let Some(timing) = state.timing.get_mut(change.index()) else { continue };
            if timing.due.is_none_or(|due| due > now) {
                continue;
            }
            *timing = Timing { due: None, told: Some(now) };
            let notification = Notification::new(change.method(), None);
            let wanting = state.listeners.values().filter(|listener| listener.wants.get(change.index()) == Some(&true));
            for listener in wanting {
                let _ = listener.messages.try_send(ServerMessage::Notification(notification.clone()));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    /// Leaves only what is in `interest`.
    pub(crate) fn narrow(&self, interest: &Interest) {
        if let Some(listener) = self.announcer.lock().listeners.get_mut(&self.number) {
            listener.wants = Change::ALL.map(|change| change.is_in(interest));
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        let gone = self.announcer.lock().listeners.remove(&self.number);
        drop(gone);
    }
}
