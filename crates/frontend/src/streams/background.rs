//! Tasks that replace a stream's reader. One kind polls calls whose client has disconnected; the
//! other keeps messages outside of calls while no stream carries them.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::time::timeout;

use super::replay::{ReplayLimits, to_event};
use super::{Calls, SessionStreams, StreamPolicy, no_calls};
use crate::call::{Answer, ResponseItem};

/// Polls the calls on stream `number` and keeps their events, until the client resumes the stream
/// or its time is over. Then, or if there are too many such tasks, the calls run on without a
/// stream, and no more events are kept.
pub(super) fn drive(
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
pub(super) fn keep_notifications(streams: &Arc<SessionStreams>, policy: &StreamPolicy) {
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
