//! Readers of streams, and the removal of unused streams.

use std::future::poll_fn;
use std::sync::OnceLock;

use bytes::Bytes;
use fanlight_canonical::{Listening, ServerMessage};
use fanlight_protocol::{Method, Notification};

use super::*;
use crate::call::ResponseItem;
use crate::session::testing::ListenCore;

const RESUME: Duration = Duration::from_secs(60);

fn id(is_get: bool, stream: u64, position: u64) -> EventId {
    EventId {
        is_get,
        stream,
        position,
        tag: Tag::default(),
    }
}

fn calls() -> Content {
    Content::Calls(Arc::new(Mutex::new(no_calls())))
}

/// Adds an event to `stream`.
fn append(state: &mut State, stream: u64, limits: &Arc<ReplayLimits>) {
    let text: replay::Event = [Bytes::from_static(b"{}")].into();
    state.replay.append(stream, text, true, limits);
}

#[tokio::test(start_paused = true)]
async fn stream_is_resumed_by_its_kind_and_by_one_reader() {
    let limits = ReplayLimits::new(10, 100, 100);
    let mut state = State::default();
    let first = state.open(calls(), 10);
    append(&mut state, first, &limits);
    let (newer, _) = state.resume(id(false, first, 1)).unwrap();
    assert_ne!(first, newer);
    assert_eq!(state.streams[&first].reader, newer);
    let of_another_session = EventId {
        tag: *b"otherTag",
        ..id(false, first, 1)
    };
    for wrong in [
        id(true, first, 1),
        id(false, first, 2),
        id(false, first + 1, 0),
        of_another_session,
    ] {
        assert!(state.resume(wrong).is_none(), "{wrong:?}");
    }
    let get = state.open(Content::Notifications, 10);
    let newest = state.open(Content::Notifications, 10);
    assert_eq!(state.listeners.as_slice(), [get, newest]);
    state.resume(id(true, get, 0)).unwrap();
    assert_eq!(state.listeners.as_slice(), [newest, get]);
}

#[tokio::test(start_paused = true)]
async fn stream_without_a_reader_is_forgotten_in_time() {
    let core = ListenCore::refusing();
    let streams = SessionStreams::new(core.session(), &Arc::default());
    let limits = ReplayLimits::new(10, 100, 100);
    let leave = |number: u64, over: bool| {
        let mut state = streams.state.lock();
        append(&mut state, number, &limits);
        let stream = state.streams.get_mut(&number).unwrap();
        (stream.reader, stream.over, stream.left) = (0, over, Instant::now());
    };
    let [read, running, over, get] = [calls(), calls(), calls(), Content::Notifications]
        .map(|content| streams.state.lock().open(content, 10));
    leave(running, false);
    leave(over, true);
    leave(get, false);
    streams.sweep(RESUME);
    assert_eq!(streams.open_count(), 1);
    assert_eq!(streams.state.lock().streams.len(), 4);
    tokio::time::advance(RESUME).await;
    streams.sweep(RESUME);
    let state = streams.state.lock();
    assert_eq!(
        state.streams.keys().copied().collect::<Vec<_>>(),
        [read, running]
    );
    assert_eq!(
        (state.replay.next(over), state.replay.next(running)),
        (1, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn streams_are_bounded_and_live_ones_stay() {
    let mut state = State::default();
    let alive = state.open(calls(), 2);
    for _ in 0..5 {
        let number = state.open(calls(), 2);
        let stream = state.streams.get_mut(&number).unwrap();
        (stream.reader, stream.over) = (0, true);
    }
    assert_eq!(state.streams.len(), 2);
    assert!(state.streams.contains_key(&alive));
}

fn policy(bytes: usize) -> Arc<StreamPolicy> {
    let settings = FrontendSettings {
        replay_bytes: bytes,
        ..FrontendSettings::default()
    };
    StreamPolicy::new(&settings, DetachedCalls::new(4, CancellationToken::new()))
}

#[tokio::test(start_paused = true)]
async fn event_read_by_a_replaced_reader_goes_to_the_new_one() {
    const SMALL: usize = 8;
    let session = Arc::<OnceLock<ActiveSession>>::default();
    let successor = Arc::<Mutex<Option<StreamReader>>>::default();
    let core = {
        let (session, successor) = (Arc::clone(&session), Arc::clone(&successor));
        ListenCore::new(move |listen| {
            // While the first reader waits for a message, its client resumes the stream elsewhere.
            let session = session.get().unwrap().clone();
            *successor.lock() = StreamReader::resume(session, &policy(SMALL), id(true, 1, 0));
            let _ = listen
                .messages
                .try_send(ServerMessage::Notification(Notification::new(
                    Method::ToolsChanged,
                    None,
                )));
            Ok(Listening::new(listen.interest, listen.messages))
        })
    };
    let active = ActiveSession::new(&SessionStreams::new(core.session(), &Arc::default()));
    session.set(active.clone()).ok().unwrap();
    let mut first = StreamReader::notifications(active.clone(), &policy(SMALL));
    active.begin_listening().unwrap();
    assert!(poll_fn(|cx| first.poll_next(cx)).await.is_none());
    let mut second = successor.lock().take().unwrap();
    match poll_fn(|cx| second.poll_next(cx)).await {
        Some(ResponseItem::Message(Read {
            id: Some(at),
            parts,
            ending: None,
        })) => {
            assert_eq!(at, id(true, 1, 1));
            assert!(parts.concat().len() > SMALL);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn listening_after_hang_up_has_nothing_to_wait_for() {
    let core = ListenCore::new(|listen| Ok(Listening::new(listen.interest, listen.messages)));
    let session = SessionStreams::new(core.session(), &Arc::default());
    session.hang_up();
    assert!(session.listen_in_background(&policy(1000)).is_none());
}

#[test]
fn event_id_survives_writing_and_parsing() {
    for (is_get, text) in [(true, "get3-17-tag-_Tag"), (false, "post3-17-tag-_Tag")] {
        let id = EventId {
            is_get,
            stream: 3,
            position: 17,
            tag: *b"tag-_Tag",
        };
        let mut out = Vec::new();
        id.write(|piece| out.extend_from_slice(piece));
        assert_eq!(
            (out.as_slice(), EventId::parse(text)),
            (text.as_bytes(), Some(id))
        );
    }
    for id in [
        "",
        "get",
        "get3",
        "get3-",
        "get-3",
        "get3-+1",
        "put3-1",
        "get3-1",
        "post99999999999999999999-1",
    ] {
        for id in [id.to_owned(), format!("{id}-tag")] {
            assert_eq!(EventId::parse(&id), None, "{id}");
        }
    }
    for id in [
        "get3-+1-tag-_Tag",
        "put3-1-tag-_Tag",
        "get3-1-1-tag-_Tag",
        "post99999999999999999999-1-tag-_Tag",
    ] {
        assert_eq!(EventId::parse(id), None, "{id}");
    }
}
