//! One reader of one stream.
//!
//! Must not know: HTTP, or how an event is written.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use fanlight_protocol::Revision;
use fanlight_protocol::json::Chunks;
use tokio::time::Instant;

use super::replay::Event;
use super::{Carried, Keeping, Place, State, pump};
use crate::session::InUse;
use crate::source::{Said, Source};
use crate::trace::Ending;

/// Events up to this size are copied to be kept: a slice would keep the whole message it was cut
/// from.
const COPIED: usize = 8 << 10;

/// Reads a stream until it is over, or another reader takes it. See the module above.
#[derive(Debug)]
pub(crate) struct Tap {
    session: InUse,
    keeping: Arc<Keeping>,
    carried: Carried,
    stream: u64,
    seat: u64,
    /// The position of the last event read.
    position: u64,
}

/// What a reader gets.
#[derive(Debug)]
pub(crate) enum Read {
    /// A message, its place if the client can come back to it, and the end of a span if it is an answer.
    Event(Option<Place>, Event, Option<Box<Ending>>),
    /// The client is to come back for the rest after this long, if somebody says how long.
    Pause(Option<Duration>),
}

enum Look {
    /// There is nothing more for this reader.
    End,
    /// This comes next.
    Kept(Event),
    /// The reader is to see for itself what comes.
    Drive,
    /// Another stream gets what is new.
    Wait,
}

/// Whether clients of `revision` can come back to a stream: event ids are of 2025-03-26.
pub(crate) fn is_resumable(revision: Revision) -> bool {
    revision >= Revision::V2025_03_26
}

/// Whether a client of `revision` can be told to come back for the rest of a call, and knows an
/// event without data (2025-11-25 basic/transports, Sending Messages to the Server).
pub(crate) fn is_pausable(revision: Revision) -> bool {
    revision >= Revision::V2025_11_25
}

impl Tap {
    /// Begins the stream of what `source` says.
    pub(crate) fn call(session: InUse, keeping: &Arc<Keeping>, source: Source) -> Self {
        Self::open(session, keeping, Carried::Call(Arc::new(Mutex::new(source))))
    }

    /// Begins a stream of what is said outside of calls.
    pub(crate) fn outside(session: InUse, keeping: &Arc<Keeping>) -> Self {
        Self::open(session, keeping, Carried::Outside)
    }

    fn open(session: InUse, keeping: &Arc<Keeping>, carried: Carried) -> Self {
        let (stream, seat) = session.streams.state().open(carried.clone(), keeping.bounds.events);
        Self { session, keeping: Arc::clone(keeping), carried, stream, seat, position: 0 }
    }

    /// Goes on with the stream of `place` after it; `None` if what followed is not there any more.
    pub(crate) fn resume(session: InUse, keeping: &Arc<Keeping>, place: Place) -> Option<Self> {
        let (seat, carried) = session.streams.state().resume(place)?;
        let Place { stream, position, .. } = place;
        Some(Self { session, keeping: Arc::clone(keeping), carried, stream, seat, position })
    }

    /// What has been read last; `None` if its client could not come back to it.
    pub(crate) fn place(&self) -> Option<Place> {
        is_resumable(self.session.revision()).then(|| self.place_of(self.position))
    }

    /// The revision of the session.
    pub(crate) fn revision(&self) -> Revision {
        self.session.revision()
    }

    /// What comes next; `None` once there is nothing more for this reader.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Read>> {
        match &self.carried {
            Carried::Call(call) => {
                let call = Arc::clone(call);
                let mut source = lock(&call);
                self.poll_call(&mut source, cx)
            }
            Carried::Outside => self.poll_outside(cx),
        }
    }

    fn poll_call(&mut self, source: &mut Source, cx: &mut Context<'_>) -> Poll<Option<Read>> {
        loop {
            match self.look(cx.waker()) {
                Look::End => return Poll::Ready(None),
                Look::Kept(event) => return Poll::Ready(Some(self.read(event))),
                Look::Drive => {}
                Look::Wait => return Poll::Pending,
            }
            match ready!(source.poll_next(cx)) {
                None => {
                    finish(&mut self.session.streams.state(), self.stream);
                    return Poll::Ready(None);
                }
                Some(Said::Pause(retry)) if is_pausable(self.session.revision()) => {
                    return Poll::Ready(Some(Read::Pause(retry)));
                }
                Some(Said::Pause(_)) => {}
                Some(Said::Message(text)) => return Poll::Ready(self.enter(to_event(text), None)),
                Some(Said::Answer(text, _, ending)) => return Poll::Ready(self.enter(to_event(text), ending)),
            }
        }
    }

    fn poll_outside(&mut self, cx: &mut Context<'_>) -> Poll<Option<Read>> {
        let session = self.session.shared();
        let mut hearing = session.streams.hearing();
        match self.look(cx.waker()) {
            Look::End => Poll::Ready(None),
            Look::Kept(event) => Poll::Ready(Some(self.read(event))),
            Look::Wait => Poll::Pending,
            Look::Drive => {
                let text = ready!(hearing.poll_next(&session, cx));
                let mut chunks = Chunks::default();
                chunks.push(text.into_bytes());
                Poll::Ready(self.enter(to_event(chunks), None))
            }
        }
    }

    /// What there is to do. If it is nothing, `waker` is woken when that may have changed.
    fn look(&self, waker: &Waker) -> Look {
        let mut state = self.session.streams.state();
        let State { replay, streams, listeners, hung_up, .. } = &mut *state;
        let Some(stream) = streams.get_mut(&self.stream).filter(|stream| stream.seat == self.seat) else {
            return Look::End;
        };
        if self.position + 1 < replay.next(self.stream) {
            return match replay.get(self.stream, self.position + 1) {
                Some(event) => Look::Kept(event),
                None => {
                    tracing::debug!("a client resumes a stream too slowly; what comes next is no longer kept");
                    Look::End
                }
            };
        }
        let outside = matches!(stream.carried, Carried::Outside);
        if stream.over || (outside && *hung_up) {
            return Look::End;
        }
        match &mut stream.driver {
            Some(driver) => driver.clone_from(waker),
            None => stream.driver = Some(waker.clone()),
        }
        if outside && listeners.last() != Some(&self.stream) { Look::Wait } else { Look::Drive }
    }

    /// What is read when it is one that was kept.
    fn read(&mut self, event: Event) -> Read {
        self.position += 1;
        Read::Event(Some(self.place_of(self.position)), event, None)
    }

    /// What is read when it is new; `None` if another reader has come meanwhile, who will read it.
    fn enter(&mut self, event: Event, ending: Option<Box<Ending>>) -> Option<Read> {
        if !is_resumable(self.session.revision()) {
            return Some(Read::Event(None, event, ending));
        }
        let mut state = self.session.streams.state();
        let taken = state.streams.get(&self.stream).is_none_or(|stream| stream.seat == self.seat);
        self.position = state.replay.append(self.stream, Arc::clone(&event), taken, &self.keeping.bounds);
        drop(state);
        if !taken {
            // It goes out on the stream that the client has come back by.
            ending.into_iter().for_each(|ending| ending.delivered());
            return None;
        }
        Some(Read::Event(Some(self.place_of(self.position)), event, ending))
    }

    fn place_of(&self, position: u64) -> Place {
        Place { outside: matches!(self.carried, Carried::Outside), stream: self.stream, position }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let session = self.session.shared();
        let mut state = session.streams.state();
        let Some(stream) = state.streams.get_mut(&self.stream).filter(|stream| stream.seat == self.seat) else {
            return;
        };
        stream.seat = 0;
        stream.driver = None;
        stream.left = Instant::now();
        let over = stream.over;
        match &self.carried {
            Carried::Call(_) if over => {}
            Carried::Call(call) => {
                drop(state);
                pump::drive(&session, &self.keeping, self.stream, call);
            }
            Carried::Outside => {
                if !is_resumable(session.revision()) {
                    state.forget(self.stream);
                }
                state.listeners.retain(|listener| *listener != self.stream);
                let newest = state.listeners.last().copied();
                let heir = newest.and_then(|newest| state.streams.get_mut(&newest)?.driver.take());
                drop(state);
                match heir {
                    Some(heir) => heir.wake(),
                    None => pump::keep_for(&session, &self.keeping),
                }
            }
        }
    }
}

/// What is kept of a message.
pub(super) fn to_event(text: Chunks) -> Event {
    if text.len() > COPIED {
        return text.into_parts().collect();
    }
    match text.parts() {
        [one] => [Bytes::copy_from_slice(one)].into(),
        // Putting them together copies them.
        _ => [text.into_bytes()].into(),
    }
}

/// Nothing more comes on `stream`.
pub(super) fn finish(state: &mut State, stream: u64) {
    if let Some(stream) = state.streams.get_mut(&stream) {
        stream.over = true;
        stream.left = Instant::now();
    }
}

pub(super) fn lock(call: &Mutex<Source>) -> MutexGuard<'_, Source> {
    call.lock().unwrap_or_else(PoisonError::into_inner)
}
