//! The event streams of one session: which there are, who reads them, and what is kept of them so
//! that a client can come back for the rest.
//!
//! A stream outlives its connection. Whoever reads it drives what it carries; when its connection
//! is gone, a task does, until the client is back or has had its time. The newest reader of a
//! stream has it alone. Of several streams outside of calls, the newest that is read gets what is
//! new, so that no message is sent twice.
//!
//! A session without streams costs nothing, and a stream that is read has no task and no buffer.
//!
//! Source: 2025-11-25 basic/transports, Multiple Connections, Resumability and Redelivery. Must not
//! know: HTTP, or how an event is written.

pub(crate) mod mailbox;
mod pump;
pub(crate) mod replay;
pub(crate) mod tap;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fanlight_protocol::Json;
use smallvec::SmallVec;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::mailbox::Room;
use self::replay::{Bounds, Replay};
use crate::hearing::Hearing;
use crate::running::Detached;
use crate::session::Session;
use crate::settings::FrontendSettings;
use crate::source::Source;
use fanlight_canonical::Core;

/// What the streams of all sessions of a listener share.
#[derive(Debug)]
pub(crate) struct Keeping {
    pub(crate) detached: Arc<Detached>,
    pub(crate) bounds: Arc<Bounds>,
    /// How long a stream waits to be resumed.
    pub(crate) resume: Duration,
    /// What may wait for a session without a stream.
    pub(crate) room: Room,
}

impl Keeping {
    pub(crate) fn new(settings: &FrontendSettings, detached: Arc<Detached>) -> Arc<Self> {
        let bounds = Bounds::new(settings.replay_events, settings.replay_bytes, settings.replay_total_bytes);
        Arc::new(Self { detached, bounds, resume: settings.resume, room: room(settings) })
    }
}

/// What may wait for a client that has no way to hear it.
pub(crate) fn room(settings: &FrontendSettings) -> Room {
    Room { messages: settings.notification_buffer, bytes: settings.replay_bytes }
}

/// See the module. Locks are taken in the order: that of a call, `hearing`, `state`.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    hearing: Mutex<Hearing>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    replay: Replay,
    /// In boxes, since a map has room for eleven at once, and most sessions have one.
    streams: BTreeMap<u64, Box<Stream>>,
    /// The last number given to a stream, and to a reader.
    last: u64,
    /// The streams outside of calls that are read, the newest last.
    listeners: SmallVec<[u64; 1]>,
    /// Whether there is a task that keeps what comes while there are none, and what wakes it.
    kept: bool,
    keeper: Option<Waker>,
    /// No more streams outside of calls.
    hung_up: bool,
    ended: bool,
}

/// What one stream carries.
#[derive(Clone, Debug)]
enum Carried {
    /// A call, or several.
    Call(Arc<Mutex<Source>>),
    /// What is said outside of calls.
    Outside,
}

#[derive(Debug)]
struct Stream {
    carried: Carried,
    /// The number of its reader; 0 if there is none.
    seat: u64,
    /// Wakes whoever drives it.
    driver: Option<Waker>,
    /// Since when there is no reader.
    left: Instant,
    /// Nothing more comes.
    over: bool,
}

/// Which event a client has received last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Whether the stream carries what is said outside of calls.
    pub(crate) outside: bool,
    pub(crate) stream: u64,
    /// 0 is before the first event.
    pub(crate) position: u64,
}

impl Streams {
    /// Begins to listen to what is said outside of calls, unless that has been done, and waits for
    /// at most `patience` until the core knows.
    pub(crate) async fn listen<C: Core>(
        &self,
        core: &Arc<C>,
        session: &Arc<Session>,
        keeping: &Arc<Keeping>,
        patience: Duration,
    ) {
        if self.state().hung_up {
            // Nobody would drive it.
            return;
        }
        let Some(opened) = self.begin_listening(core, session, keeping.room) else { return };
        pump::keep_for(session, keeping);
        // Late is better than never: what a server sends meanwhile waits with it.
        let _ = tokio::time::timeout(patience, opened.cancelled()).await;
    }

    /// Begins to listen to what is said outside of calls, unless that has been done.
    pub(crate) fn begin_listening<C: Core>(
        &self,
        core: &Arc<C>,
        session: &Session,
        room: Room,
    ) -> Option<CancellationToken> {
        let mut hearing = self.hearing();
        // Under the lock that `end` takes after it has said so.
        if self.state().ended { None } else { hearing.begin(core, session, room) }
    }

    /// Whether nobody has taken it upon itself to drive what is said outside of calls. Whoever asks
    /// has, from now on.
    pub(crate) fn claim(&self) -> bool {
        let mut state = self.state();
        !state.ended && !std::mem::replace(&mut state.kept, true)
    }

    /// The next thing said outside of calls, for a connection that carries everything; `None` once
    /// the session has ended.
    pub(crate) fn poll_heard(&self, session: &Session, cx: &mut Context<'_>) -> Poll<Option<Json>> {
        let mut hearing = self.hearing();
        let mut state = self.state();
        if state.ended {
            return Poll::Ready(None);
        }
        state.keeper = Some(cx.waker().clone());
        drop(state);
        hearing.poll_next(session, cx).map(Some)
    }

    /// Ends every stream, and listening.
    pub(crate) fn end(&self, session: &Session) {
        let mut state = self.state();
        state.ended = true;
        let streams = std::mem::take(&mut state.streams);
        let replay = std::mem::take(&mut state.replay);
        let keeper = state.keeper.take();
        drop(state);
        let drivers = streams.into_values().filter_map(|stream| stream.driver);
        drivers.chain(keeper).for_each(Waker::wake);
        drop(replay);
        self.hearing().end(session);
    }

    /// Ends the streams that carry what is said outside of calls.
    pub(crate) fn hang_up(&self) {
        let mut state = self.state();
        state.hung_up = true;
        let outside = |stream: &&mut Box<Stream>| matches!(stream.carried, Carried::Outside);
        let drivers = state.streams.values_mut().filter(outside).filter_map(|stream| stream.driver.take());
        let wake: Vec<_> = drivers.collect();
        let keeper = state.keeper.take();
        drop(state);
        wake.into_iter().chain(keeper).for_each(Waker::wake);
    }

    /// Forgets the streams that have had no reader for `resume` and carry nothing that still runs.
    pub(crate) fn sweep(&self, resume: Duration) {
        let mut state = self.state();
        let State { streams, replay, .. } = &mut *state;
        streams.retain(|number, stream| {
            let keep = stream.is_alive() || stream.left.elapsed() < resume;
            if !keep {
                replay.forget(*number);
            }
            keep
        });
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.state().streams.len()
    }

    fn hearing(&self) -> MutexGuard<'_, Hearing> {
        self.hearing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    /// Whether it is read, or carries a call that runs.
    fn is_alive(&self) -> bool {
        self.seat != 0 || (!self.over && matches!(self.carried, Carried::Call(_)))
    }
}

impl State {
    /// Enters a stream with a reader; returns the numbers of both.
    fn open(&mut self, carried: Carried, most: usize) -> (u64, u64) {
        while self.streams.len() >= most.max(1) {
            let left = self.streams.iter().filter(|(_, stream)| !stream.is_alive());
            let Some((&oldest, _)) = left.min_by_key(|(_, stream)| stream.left) else { break };
            self.forget(oldest);
        }
        self.last += 1;
        let (number, outside) = (self.last, matches!(carried, Carried::Outside));
        let stream = Stream { carried, seat: number, driver: None, left: Instant::now(), over: false };
        self.streams.insert(number, Box::new(stream));
        if outside {
            self.attend(number);
        }
        (number, number)
    }

    /// Gives a stream a new reader, if all that followed `place` is there; returns its number, and
    /// what the stream carries.
    fn resume(&mut self, place: Place) -> Option<(u64, Carried)> {
        let Place { outside, stream: number, position } = place;
        if !self.replay.has_all_after(number, position) {
            return None;
        }
        let stream = self.streams.get_mut(&number)?;
        if matches!(stream.carried, Carried::Outside) != outside {
            return None;
        }
        self.last += 1;
        stream.seat = self.last;
        if let Some(driver) = stream.driver.take() {
            driver.wake();
        }
        let carried = stream.carried.clone();
        if outside {
            self.attend(number);
        }
        Some((self.last, carried))
    }

    /// Makes a stream the newest of those outside of calls.
    fn attend(&mut self, number: u64) {
        self.listeners.retain(|listener| *listener != number);
        self.listeners.push(number);
        if let Some(keeper) = self.keeper.take() {
            keeper.wake();
        }
    }

    fn forget(&mut self, number: u64) {
        self.streams.remove(&number);
        self.replay.forget(number);
    }
}

#[cfg(test)]
mod tests;
