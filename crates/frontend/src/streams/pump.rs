//! Tasks that stand in for a reader: one for a call whose client is gone, and one for what is said
//! outside of calls while no stream carries it.
//!
//! Must not know: HTTP, or what is said.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use tokio::time::timeout;

use super::Keeping;
use super::replay::Bounds;
use super::tap::{finish, lock, to_event};
use crate::session::Session;
use crate::source::Source;

/// Drives the call on `stream`, keeping what it says, until its client is back or has had its time.
/// Then, or if there are too many of these, nothing more is kept, and the call goes on as one that
/// nobody hears.
pub(super) fn drive(session: &Arc<Session>, keeping: &Keeping, stream: u64, call: &Arc<Mutex<Source>>) {
    let (session, call) = (Arc::clone(session), Arc::clone(call));
    let Some(slot) = keeping.detached.slot() else { return abandon(&session, stream, &call) };
    let (bounds, resume) = (Arc::clone(&keeping.bounds), keeping.resume);
    keeping.detached.run(async move {
        let driven = timeout(resume, poll_fn(|cx| poll_drive(&session, &bounds, stream, &call, cx))).await;
        // What goes on needs it.
        drop(slot);
        if driven.is_err() {
            abandon(&session, stream, &call);
        }
    });
}

fn poll_drive(
    session: &Session,
    bounds: &Arc<Bounds>,
    number: u64,
    call: &Mutex<Source>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let mut source = lock(call);
    loop {
        match session.streams.state().streams.get_mut(&number) {
            Some(stream) if stream.seat == 0 => stream.driver = Some(cx.waker().clone()),
            // Its client is back, or the session has ended.
            _ => return Poll::Ready(()),
        }
        let said = ready!(source.poll_next(cx));
        let mut state = session.streams.state();
        match said {
            None => {
                finish(&mut state, number);
                return Poll::Ready(());
            }
            Some(said) => {
                let Some((text, ending)) = said.into_text() else { continue };
                // The session may have ended meanwhile; then nothing is to be kept of it.
                if state.streams.contains_key(&number) {
                    state.replay.append(number, to_event(text), false, bounds);
                    // It is kept for its client to come back for.
                    ending.into_iter().for_each(|ending| ending.delivered());
                }
            }
        }
    }
}

fn abandon(session: &Session, number: u64, call: &Mutex<Source>) {
    let mut source = lock(call);
    let mut state = session.streams.state();
    if state.streams.get(&number).is_some_and(|stream| stream.seat != 0) {
        return;
    }
    state.forget(number);
    drop(state);
    let abandoned = std::mem::take(&mut *source);
    drop(source);
    drop(abandoned);
}

/// Keeps what `session` is told outside of calls until a stream carries it.
pub(super) fn keep_for(session: &Arc<Session>, keeping: &Keeping) {
    let mut state = session.streams.state();
    if state.kept || state.ended || state.hung_up || !state.listeners.is_empty() {
        return;
    }
    state.kept = true;
    drop(state);
    let session = Arc::downgrade(session);
    keeping.detached.run(poll_fn(move |cx| match session.upgrade() {
        Some(session) => poll_keep(&session, cx),
        None => Poll::Ready(()),
    }));
}

fn poll_keep(session: &Session, cx: &mut Context<'_>) -> Poll<()> {
    let mut hearing = session.streams.hearing();
    let mut state = session.streams.state();
    if state.ended || state.hung_up || !state.listeners.is_empty() {
        state.kept = false;
        return Poll::Ready(());
    }
    state.keeper = Some(cx.waker().clone());
    drop(state);
    hearing.poll_keep(session, cx)
}
