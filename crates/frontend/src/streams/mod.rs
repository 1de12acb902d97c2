//! The event streams of a legacy session, their readers, and the events that are kept so that a
//! client can resume a stream.
//!
//! A stream outlives its connection. Its reader polls its content. After the loss of the connection
//! a background task does, until the client resumes the stream or its time is over. A stream's
//! newest reader gets all events. Among several GET streams, the newest with a reader gets new
//! messages, so no message is sent twice.
//!
//! A session without streams costs nothing, and a stream with a reader needs no task and no buffer.
//!
//! Source: 2025-11-25 basic/transports, Multiple Connections, Resumability and Redelivery.

mod notification_stream;
mod reader;
mod replay;
mod sessions;

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use fanlight_canonical::StreamSignal;
use fanlight_protocol::Json;
use fanlight_protocol::seal::Tag;
use fanlight_telemetry::clients::SessionView;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::call::{Answer, DetachedCalls, ResponseItem, ResponseStream, Responses};
use crate::insight::shown_id;
use crate::session::Session;
use crate::settings::FrontendSettings;
use notification_stream::NotificationStream;
pub(crate) use reader::{Read, StreamReader};
use replay::{Replay, ReplayLimits, to_event};
pub(crate) use sessions::{ActiveSession, OpenError, Sessions};

/// The shared settings and state of all sessions' streams on a listener.
#[derive(Debug)]
pub(crate) struct StreamPolicy {
    detached: Arc<DetachedCalls>,
    replay: Arc<ReplayLimits>,
    /// How long a stream can be resumed.
    resume: Duration,
}

impl StreamPolicy {
    pub(crate) fn new(settings: &FrontendSettings, detached: Arc<DetachedCalls>) -> Arc<Self> {
        Arc::new(Self {
            detached,
            replay: ReplayLimits::new(
                settings.replay_events,
                settings.replay_bytes,
                settings.replay_total_bytes,
            ),
            resume: settings.resume,
        })
    }
}

/// The calls that a stream carries; usually one.
type Calls = dyn ResponseStream<Answer>;

/// A session and its streams. Lock order: a call's lock, then `notifications`, then `state`.
pub(crate) struct SessionStreams {
    pub(crate) session: Arc<Session>,
    notifications: Mutex<NotificationStream>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    replay: Replay,
    /// The tag in the ids of the session's events.
    tag: Tag,
    /// Boxed, since a map's node has room for eleven, and most sessions have one.
    streams: BTreeMap<u64, Box<Stream>>,
    /// The last number given to a stream or reader.
    last: u64,
    /// The GET streams with a reader, the newest last.
    listeners: SmallVec<[u64; 1]>,
    /// Whether a task or connection reads notifications while there are no listeners, and its
    /// waker.
    is_kept: bool,
    keeper: Option<Waker>,
    /// Whether the session refuses further GET streams.
    hung_up: bool,
    ended: bool,
}

/// The content of a stream.
#[derive(Clone)]
enum Content {
    Calls(Arc<Mutex<Box<Calls>>>),
    /// Messages outside of calls, on a GET stream.
    Notifications,
}

impl Content {
    fn is_get(&self) -> bool {
        matches!(self, Self::Notifications)
    }
}

struct Stream {
    content: Content,
    /// The number of the stream's reader; 0 if it has none.
    reader: u64,
    /// Wakes the task that polls the stream.
    waker: Option<Waker>,
    /// The time when the last reader left.
    left: Instant,
    /// Whether nothing more follows.
    over: bool,
    /// Takes the news that the client has resumed the stream, if the server has paused its call.
    resumed: Option<Arc<Notify>>,
}

impl SessionStreams {
    pub(crate) fn new(session: Session, settings: &Arc<FrontendSettings>) -> Arc<Self> {
        let session = Arc::new(session);
        Arc::new(Self {
            notifications: Mutex::new(NotificationStream::new(&session, settings)),
            session,
            state: Mutex::default(),
        })
    }

    /// Sets the tag of the session's event ids; called before the first event.
    fn set_event_tag(&self, tag: Tag) {
        self.state.lock().tag = tag;
    }

    /// Begins to listen to messages outside of calls, if not done yet. The result is cancelled once
    /// the core has answered. The caller must ensure that the messages are read.
    pub(crate) fn begin_listening(&self) -> Option<CancellationToken> {
        let mut notifications = self.notifications.lock();
        // Checked under the lock that `end` takes after setting `ended`.
        if self.state.lock().ended {
            None
        } else {
            notifications.begin()
        }
    }

    /// Like [`Self::begin_listening`], with a task that reads the messages while the client has no
    /// GET stream.
    pub(crate) fn listen_in_background(
        self: &Arc<Self>,
        policy: &StreamPolicy,
    ) -> Option<CancellationToken> {
        if self.state.lock().hung_up {
            return None;
        }
        let opened = self.begin_listening()?;
        keep_notifications(self, policy);
        Some(opened)
    }

    /// Makes the caller the reader of messages outside of calls; false if there is another.
    pub(crate) fn claim_notifications(&self) -> bool {
        let mut state = self.state.lock();
        !state.ended && !std::mem::replace(&mut state.is_kept, true)
    }

    /// The next message outside of calls, for the connection that reads them; `None` after the
    /// session's end.
    pub(crate) fn poll_notification(&self, cx: &mut Context<'_>) -> Poll<Option<Json>> {
        let mut notifications = self.notifications.lock();
        let mut state = self.state.lock();
        if state.ended {
            return Poll::Ready(None);
        }
        state.keeper = Some(cx.waker().clone());
        drop(state);
        notifications.poll_next(cx).map(Some)
    }

    /// Ends all streams and listening. Some requests may still finish after this.
    pub(crate) fn end_streams(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        let streams = std::mem::take(&mut state.streams);
        let replay = std::mem::take(&mut state.replay);
        let keeper = state.keeper.take();
        drop(state);
        streams
            .into_values()
            .filter_map(|stream| stream.waker)
            .chain(keeper)
            .for_each(Waker::wake);
        drop(replay);
        self.notifications.lock().end();
    }

    /// Ends the session: cancels its requests and ends its streams.
    pub(crate) fn end(&self) {
        self.session.end();
        self.end_streams();
    }

    /// Ends the GET streams.
    pub(crate) fn hang_up(&self) {
        let mut state = self.state.lock();
        state.hung_up = true;
        let get_streams = state
            .streams
            .values_mut()
            .filter(|stream| stream.content.is_get());
        let wakers: Vec<_> = get_streams
            .filter_map(|stream| stream.waker.take())
            .collect();
        let keeper = state.keeper.take();
        drop(state);
        wakers.into_iter().chain(keeper).for_each(Waker::wake);
    }

    /// Removes streams without a reader for `resume` and without a running call.
    fn sweep(&self, resume: Duration) {
        let mut state = self.state.lock();
        let State {
            streams, replay, ..
        } = &mut *state;
        streams.retain(|number, stream| {
            let keep = stream.is_alive() || stream.left.elapsed() < resume;
            if !keep {
                replay.forget(*number);
            }
            keep
        });
    }

    /// The number of streams with a reader. Streams that the client may still resume do not count.
    fn open_count(&self) -> usize {
        self.state
            .lock()
            .streams
            .values()
            .filter(|stream| stream.reader != 0)
            .count()
    }

    /// The operators' view of the session, under a digest of `id`.
    pub(crate) fn view(&self, id: &str, transport: &'static str) -> SessionView {
        let session = &self.session;
        SessionView {
            digest: shown_id(id),
            revision: Some(session.revision().name),
            endpoint: session.endpoint().path().cloned(),
            identity: session.shown_identity(),
            transport,
            client_info: session.client_info().cloned(),
            running: session.running.count(),
            server_requests: session.server_requests.count(),
            streams: self.open_count(),
            idle: None,
        }
    }
}

impl Stream {
    /// Whether the stream has a reader or a running call.
    fn is_alive(&self) -> bool {
        self.reader != 0 || !(self.over || self.content.is_get())
    }
}

impl State {
    /// Adds a stream with a reader; returns their common number.
    fn open(&mut self, content: Content, most: usize) -> u64 {
        while self.streams.len() >= most.max(1) {
            let left = self.streams.iter().filter(|(_, stream)| !stream.is_alive());
            let Some((&oldest, _)) = left.min_by_key(|(_, stream)| stream.left) else {
                break;
            };
            self.forget(oldest);
        }
        self.last += 1;
        let (number, is_get) = (self.last, content.is_get());
        let stream = Stream {
            content,
            reader: number,
            waker: None,
            left: Instant::now(),
            over: false,
            resumed: None,
        };
        self.streams.insert(number, Box::new(stream));
        if is_get {
            self.set_newest_listener(number);
        }
        number
    }

    /// Gives a stream a new reader if all events after `id` are kept; returns the reader's number
    /// and the stream's content.
    fn resume(&mut self, id: EventId) -> Option<(u64, Content)> {
        let EventId {
            is_get,
            stream: number,
            position,
            tag,
        } = id;
        if tag != self.tag || !self.replay.has_all_after(number, position) {
            return None;
        }
        let stream = self.streams.get_mut(&number)?;
        if stream.content.is_get() != is_get {
            return None;
        }
        self.last += 1;
        stream.reader = self.last;
        if let Some(resumed) = stream.resumed.take() {
            resumed.notify_one();
        }
        if let Some(waker) = stream.waker.take() {
            waker.wake();
        }
        let content = stream.content.clone();
        if is_get {
            self.set_newest_listener(number);
        }
        Some((self.last, content))
    }

    /// Notes that the server has paused the call of stream `number`, if it has.
    fn note_paused(&mut self, number: u64, signal: &StreamSignal) {
        let stream = self.streams.get_mut(&number);
        if let (Some(stream), StreamSignal::Paused { resumed, .. }) = (stream, signal) {
            stream.resumed = Some(Arc::clone(resumed));
        }
    }

    fn set_newest_listener(&mut self, number: u64) {
        self.listeners.retain(|listener| *listener != number);
        self.listeners.push(number);
        if let Some(keeper) = self.keeper.take() {
            keeper.wake();
        }
    }

    /// Marks the end of stream `number`.
    fn finish(&mut self, number: u64) {
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.over = true;
            stream.left = Instant::now();
        }
    }

    fn forget(&mut self, number: u64) {
        self.streams.remove(&number);
        self.replay.forget(number);
    }
}

/// An empty set of calls.
fn no_calls() -> Box<Calls> {
    Box::new(Responses::default())
}

/// The id of an event, valid only within its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventId {
    pub(crate) is_get: bool,
    pub(crate) stream: u64,
    /// The event's position on the stream; 0 is before the first event.
    pub(crate) position: u64,
    /// The session's tag.
    pub(crate) tag: Tag,
}

impl EventId {
    /// Parses an event id; `None` for any other text.
    pub(crate) fn parse(id: &str) -> Option<Self> {
        let (is_get, rest) = match id.strip_prefix("get") {
            Some(rest) => (true, rest),
            None => (false, id.strip_prefix("post")?),
        };
        let (stream, rest) = rest.split_once('-')?;
        let (position, tag) = rest.split_once('-')?;
        let number = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_digit())
                .then(|| text.parse().ok())?
        };
        Some(Self {
            is_get,
            stream: number(stream)?,
            position: number(position)?,
            tag: tag.as_bytes().try_into().ok()?,
        })
    }

    /// Passes the pieces of the id to `put`.
    pub(crate) fn write(self, mut put: impl FnMut(&[u8])) {
        let (mut stream, mut position) = (itoa::Buffer::new(), itoa::Buffer::new());
        let kind = if self.is_get { "get" } else { "post" };
        for text in [
            kind,
            stream.format(self.stream),
            "-",
            position.format(self.position),
            "-",
        ] {
            put(text.as_bytes());
        }
        put(&self.tag);
    }
}

/// Polls the calls on stream `number` and keeps their events, until the client resumes the stream
/// or its time is over. Then, or if there are too many such tasks, the calls run on without a
/// stream, and no more events are kept.
fn drive(
    streams: &Arc<SessionStreams>,
    policy: &StreamPolicy,
    number: u64,
    calls: &Arc<Mutex<Box<Calls>>>,
) {
    let (streams, calls) = (Arc::clone(streams), Arc::clone(calls));
    let Some(permit) = policy.detached.permit() else {
        return abandon(&streams, number, &calls);
    };
    let (limits, resume) = (Arc::clone(&policy.replay), policy.resume);
    policy.detached.run(async move {
        let driven = timeout(
            resume,
            poll_fn(|cx| poll_drive(&streams, &limits, number, &calls, cx)),
        )
        .await;
        // The abandoned calls need it.
        drop(permit);
        if driven.is_err() {
            abandon(&streams, number, &calls);
        }
    });
}

fn poll_drive(
    streams: &SessionStreams,
    limits: &Arc<ReplayLimits>,
    number: u64,
    calls: &Mutex<Box<Calls>>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let mut calls = calls.lock();
    loop {
        match streams.state.lock().streams.get_mut(&number) {
            Some(stream) if stream.reader == 0 => stream.waker = Some(cx.waker().clone()),
            // The client has resumed the stream, or the session has ended.
            _ => return Poll::Ready(()),
        }
        let item = ready!(calls.poll_next(cx));
        let mut state = streams.state.lock();
        let (text, ending) = match item {
            None => {
                state.finish(number);
                return Poll::Ready(());
            }
            Some(ResponseItem::Stream(signal)) => {
                state.note_paused(number, &signal);
                continue;
            }
            Some(ResponseItem::Message(text)) => (text, None),
            Some(ResponseItem::Response(Answer { text, ending, .. })) => (text, ending),
        };
        // The session may have ended meanwhile.
        if state.streams.contains_key(&number) {
            state.replay.append(number, to_event(text), false, limits);
            // The span ends here: the event is kept for the client.
            ending.into_iter().for_each(|ending| ending.finish());
        }
    }
}

fn abandon(streams: &SessionStreams, number: u64, calls: &Mutex<Box<Calls>>) {
    let mut calls = calls.lock();
    let mut state = streams.state.lock();
    if state
        .streams
        .get(&number)
        .is_some_and(|stream| stream.reader != 0)
    {
        return;
    }
    state.forget(number);
    drop(state);
    let abandoned = std::mem::replace(&mut *calls, no_calls());
    drop(calls);
    drop(abandoned);
}

/// Reads messages outside of calls into the mailbox until a stream carries them.
fn keep_notifications(streams: &Arc<SessionStreams>, policy: &StreamPolicy) {
    let mut state = streams.state.lock();
    if state.is_kept || state.ended || state.hung_up || !state.listeners.is_empty() {
        return;
    }
    state.is_kept = true;
    drop(state);
    let streams = Arc::downgrade(streams);
    policy
        .detached
        .run(poll_fn(move |cx| match streams.upgrade() {
            Some(streams) => poll_keep(&streams, cx),
            None => Poll::Ready(()),
        }));
}

fn poll_keep(streams: &SessionStreams, cx: &mut Context<'_>) -> Poll<()> {
    let mut notifications = streams.notifications.lock();
    let mut state = streams.state.lock();
    if state.ended || state.hung_up || !state.listeners.is_empty() {
        state.is_kept = false;
        return Poll::Ready(());
    }
    state.keeper = Some(cx.waker().clone());
    drop(state);
    notifications.poll_keep(cx)
}

#[cfg(test)]
mod tests;
