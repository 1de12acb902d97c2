//! One reader of a stream.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use fanlight_canonical::StreamSignal;
use fanlight_protocol::Revision;
use fanlight_protocol::seal::Tag;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::replay::{Event, to_event};
use super::{ActiveSession, Calls, Content, EventId, State, StreamPolicy};
use crate::call::{Answer, ResponseItem};
use crate::trace::Ending;

/// Reads a stream until its end, or until another reader takes it.
pub(crate) struct StreamReader {
    session: ActiveSession,
    policy: Arc<StreamPolicy>,
    content: Content,
    stream: u64,
    reader: u64,
    /// The position of the last event read.
    position: u64,
    tag: Tag,
    /// Ends a GET stream although its session goes on.
    until: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// An event for the reader.
#[derive(Debug)]
pub(crate) struct Read {
    /// `None` if the client cannot resume the stream.
    pub(crate) id: Option<EventId>,
    pub(crate) parts: Event,
    /// The end of the span, if the event is a response.
    pub(crate) ending: Option<Box<Ending>>,
}

enum Next {
    /// The stream has ended for this reader.
    End,
    Replay(Event),
    /// The reader must poll the stream's content.
    Poll,
    /// Another stream gets new messages.
    Wait,
}

impl StreamReader {
    /// Opens a stream for `calls`.
    pub(crate) fn calls(
        session: ActiveSession,
        policy: &Arc<StreamPolicy>,
        calls: Box<Calls>,
    ) -> Self {
        Self::open(session, policy, Content::Calls(Arc::new(Mutex::new(calls))))
    }

    /// Opens a GET stream.
    pub(crate) fn notifications(session: ActiveSession, policy: &Arc<StreamPolicy>) -> Self {
        Self::open(session, policy, Content::Notifications)
    }

    fn open(session: ActiveSession, policy: &Arc<StreamPolicy>, content: Content) -> Self {
        let mut state = session.state.lock();
        let (stream, tag) = (state.open(content.clone(), policy.replay.events), state.tag);
        drop(state);
        Self {
            session,
            policy: Arc::clone(policy),
            content,
            stream,
            reader: stream,
            position: 0,
            tag,
            until: None,
        }
    }

    /// Resumes a stream after the event `id`; `None` if later events are no longer kept.
    pub(crate) fn resume(
        session: ActiveSession,
        policy: &Arc<StreamPolicy>,
        id: EventId,
    ) -> Option<Self> {
        let (reader, content) = session.state.lock().resume(id)?;
        let EventId {
            stream,
            position,
            tag,
            ..
        } = id;
        Some(Self {
            session,
            policy: Arc::clone(policy),
            content,
            stream,
            reader,
            position,
            tag,
            until: None,
        })
    }

    /// Makes the reader of a GET stream end when `shutdown` is cancelled; the stream would
    /// otherwise last as long as its client wants.
    pub(crate) fn end_on(mut self, shutdown: &CancellationToken) -> Self {
        self.until = Some(Box::pin(shutdown.clone().cancelled_owned()));
        self
    }

    /// The id of the last event read; `None` if the client cannot resume the stream.
    pub(crate) fn last_event_id(&self) -> Option<EventId> {
        self.revision()
            .resumes_streams
            .then(|| self.id_at(self.position))
    }

    /// The session's revision.
    pub(crate) fn revision(&self) -> Revision {
        self.session.session.revision()
    }

    /// The next event, or a pause after which the client should resume the stream; `None` at the
    /// end for this reader.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<ResponseItem<Read, Read>>> {
        match &self.content {
            Content::Calls(calls) => {
                let calls = Arc::clone(calls);
                let mut calls = calls.lock();
                self.poll_calls(&mut **calls, cx)
            }
            Content::Notifications => self.poll_notifications(cx),
        }
    }

    fn poll_calls(
        &mut self,
        calls: &mut Calls,
        cx: &mut Context<'_>,
    ) -> Poll<Option<ResponseItem<Read, Read>>> {
        loop {
            match self.look_up(cx.waker()) {
                Next::End => return Poll::Ready(None),
                Next::Replay(event) => return Poll::Ready(Some(self.replayed(event))),
                Next::Poll => {}
                Next::Wait => return Poll::Pending,
            }
            match ready!(calls.poll_next(cx)) {
                None => {
                    self.session.state.lock().finish(self.stream);
                    return Poll::Ready(None);
                }
                Some(ResponseItem::Stream(signal)) => {
                    self.session.state.lock().note_paused(self.stream, &signal);
                    if matches!(signal, StreamSignal::Paused { .. })
                        && self.revision().pauses_streams
                    {
                        return Poll::Ready(Some(ResponseItem::Stream(signal)));
                    }
                }
                Some(ResponseItem::Message(text)) => {
                    return Poll::Ready(
                        self.append(to_event(text), None).map(ResponseItem::Message),
                    );
                }
                Some(ResponseItem::Response(Answer { text, ending, .. })) => {
                    return Poll::Ready(
                        self.append(to_event(text), ending)
                            .map(ResponseItem::Response),
                    );
                }
            }
        }
    }

    fn poll_notifications(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<ResponseItem<Read, Read>>> {
        let streams = Arc::clone(&self.session);
        let mut notifications = streams.notifications.lock();
        match self.look_up(cx.waker()) {
            Next::End => Poll::Ready(None),
            Next::Replay(event) => Poll::Ready(Some(self.replayed(event))),
            Next::Wait => self.poll_until(cx),
            Next::Poll => {
                let Poll::Ready(text) = notifications.poll_next(cx) else {
                    drop(notifications);
                    return self.poll_until(cx);
                };
                let event = to_event(text.into_bytes().into());
                Poll::Ready(self.append(event, None).map(ResponseItem::Message))
            }
        }
    }

    /// Waits for the end of a stream that has nothing to send at the moment.
    fn poll_until<T>(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match &mut self.until {
            Some(until) => until.as_mut().poll(cx).map(|()| None),
            None => Poll::Pending,
        }
    }

    /// Finds the next step. Registers `waker` if the reader has to wait.
    fn look_up(&self, waker: &Waker) -> Next {
        let mut state = self.session.state.lock();
        let State {
            replay,
            streams,
            listeners,
            hung_up,
            ..
        } = &mut *state;
        let Some(stream) = streams
            .get_mut(&self.stream)
            .filter(|stream| stream.reader == self.reader)
        else {
            return Next::End;
        };
        if self.position + 1 < replay.next(self.stream) {
            return match replay.get(self.stream, self.position + 1) {
                Some(event) => Next::Replay(event),
                None => {
                    tracing::debug!(
                        "resumed stream ended: its client reads more slowly than events are dropped"
                    );
                    Next::End
                }
            };
        }
        let is_get = stream.content.is_get();
        if stream.over || (is_get && *hung_up) {
            return Next::End;
        }
        match &mut stream.waker {
            Some(known) => known.clone_from(waker),
            None => stream.waker = Some(waker.clone()),
        }
        if is_get && listeners.last() != Some(&self.stream) {
            Next::Wait
        } else {
            Next::Poll
        }
    }

    fn replayed(&mut self, parts: Event) -> ResponseItem<Read, Read> {
        self.position += 1;
        ResponseItem::Message(Read {
            id: Some(self.id_at(self.position)),
            parts,
            ending: None,
        })
    }

    /// Adds an event; `None` if another reader has taken the stream and will read it.
    fn append(&mut self, parts: Event, ending: Option<Box<Ending>>) -> Option<Read> {
        if !self.revision().resumes_streams {
            return Some(Read {
                id: None,
                parts,
                ending,
            });
        }
        let mut state = self.session.state.lock();
        let is_read = state
            .streams
            .get(&self.stream)
            .is_none_or(|stream| stream.reader == self.reader);
        self.position = state.replay.append(
            self.stream,
            Arc::clone(&parts),
            is_read,
            &self.policy.replay,
        );
        drop(state);
        if !is_read {
            // The other reader sends it.
            ending.into_iter().for_each(|ending| ending.finish());
            return None;
        }
        Some(Read {
            id: Some(self.id_at(self.position)),
            parts,
            ending,
        })
    }

    fn id_at(&self, position: u64) -> EventId {
        EventId {
            is_get: self.content.is_get(),
            stream: self.stream,
            position,
            tag: self.tag,
        }
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let streams = Arc::clone(&self.session);
        let mut state = streams.state.lock();
        let Some(stream) = state
            .streams
            .get_mut(&self.stream)
            .filter(|stream| stream.reader == self.reader)
        else {
            return;
        };
        stream.reader = 0;
        stream.waker = None;
        stream.left = Instant::now();
        let over = stream.over;
        match &self.content {
            Content::Calls(_) if over => {}
            Content::Calls(calls) => {
                drop(state);
                super::drive(&streams, &self.policy, self.stream, calls);
            }
            Content::Notifications => {
                if !streams.session.revision().resumes_streams {
                    state.forget(self.stream);
                }
                state.listeners.retain(|listener| *listener != self.stream);
                let newest = state.listeners.last().copied();
                let next = newest.and_then(|newest| state.streams.get_mut(&newest)?.waker.take());
                drop(state);
                match next {
                    Some(next) => next.wake(),
                    None => super::keep_notifications(&streams, &self.policy),
                }
            }
        }
    }
}
