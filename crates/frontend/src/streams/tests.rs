//! Who reads which stream, and what is forgotten when.

use std::future::poll_fn;
use std::sync::OnceLock;

use bytes::Bytes;
use fanlight_canonical::{Listening, ServerMessage};
use fanlight_protocol::{Method, Notification};

use super::tap::{Read, Tap};
use super::*;
use crate::fake_core::Listened;
use crate::session::{InUse, Sessions};

const RESUME: Duration = Duration::from_secs(60);

fn place(outside: bool, stream: u64, position: u64) -> Place {
    Place { outside, stream, position }
}

fn call() -> Carried {
    Carried::Call(Arc::default())
}

/// Says something on `stream`.
fn say(state: &mut State, stream: u64, bounds: &Arc<Bounds>) {
    let text: replay::Event = [Bytes::from_static(b"{}")].into();
    state.replay.append(stream, text, true, bounds);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_resumed_as_what_it_is_and_by_one_reader() {
    let bounds = Bounds::new(10, 100, 100);
    let mut state = State::default();
    let (first, seat) = state.open(call(), 10);
    say(&mut state, first, &bounds);
    let (newer, _) = state.resume(place(false, first, 1)).unwrap();
    assert_ne!(seat, newer);
    assert_eq!(state.streams[&first].seat, newer);
    for wrong in [place(true, first, 1), place(false, first, 2), place(false, first + 1, 0)] {
        assert!(state.resume(wrong).is_none(), "{wrong:?}");
    }
    let (outside, _) = state.open(Carried::Outside, 10);
    let (newest, _) = state.open(Carried::Outside, 10);
    assert_eq!(state.listeners.as_slice(), [outside, newest]);
    state.resume(place(true, outside, 0)).unwrap();
    assert_eq!(state.listeners.as_slice(), [newest, outside]);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_comes_back_for_is_forgotten() {
    let streams = Streams::default();
    let bounds = Bounds::new(10, 100, 100);
    let leave = |number: u64, over: bool| {
        let mut state = streams.state();
        say(&mut state, number, &bounds);
        let stream = state.streams.get_mut(&number).unwrap();
        (stream.seat, stream.over, stream.left) = (0, over, Instant::now());
    };
    let [read, running, over, outside] =
        [call(), call(), call(), Carried::Outside].map(|carried| streams.state().open(carried, 10).0);
    leave(running, false);
    leave(over, true);
    leave(outside, false);
    streams.sweep(RESUME);
    assert_eq!(streams.state().streams.len(), 4);
    tokio::time::advance(RESUME).await;
    streams.sweep(RESUME);
    let state = streams.state();
    assert_eq!(state.streams.keys().copied().collect::<Vec<_>>(), [read, running]);
    assert_eq!((state.replay.next(over), state.replay.next(running)), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn streams_are_bounded_and_those_alive_stay() {
    let mut state = State::default();
    let (alive, _) = state.open(call(), 2);
    for _ in 0..5 {
        let (number, _) = state.open(call(), 2);
        let stream = state.streams.get_mut(&number).unwrap();
        (stream.seat, stream.over) = (0, true);
    }
    assert_eq!(state.streams.len(), 2);
    assert!(state.streams.contains_key(&alive));
}

fn keeping(bytes: usize) -> Arc<Keeping> {
    let settings = FrontendSettings { replay_bytes: bytes, ..FrontendSettings::default() };
    Keeping::new(&settings, Detached::new(4, CancellationToken::new()))
}

#[tokio::test(start_paused = true)]
async fn what_a_reader_is_given_after_it_was_replaced_is_its_successors_whatever_its_size() {
    const SMALL: usize = 8;
    let sessions = Arc::new(Sessions::new(1, RESUME));
    let id = Arc::<OnceLock<Box<str>>>::default();
    let successor = Arc::<Mutex<Option<Tap>>>::default();
    let enter = {
        let (sessions, id) = (Arc::clone(&sessions), Arc::clone(&id));
        move || -> InUse { sessions.enter(id.get().unwrap()).unwrap() }
    };
    let core = {
        let (enter, successor) = (enter.clone(), Arc::clone(&successor));
        Listened::by(move |listen| {
            // While the first reader waits for what is said, its client comes back elsewhere.
            *successor.lock().unwrap() = Tap::resume(enter(), &keeping(SMALL), place(true, 1, 0));
            let _ =
                listen.messages.try_send(ServerMessage::Notification(Notification::new(Method::ToolsChanged, None)));
            Ok(Listening::new(listen.interest, listen.messages))
        })
    };
    id.set(sessions.open(core.session()).unwrap()).unwrap();
    let (session, keeping) = (enter(), keeping(SMALL));
    let mut first = Tap::outside(session.clone(), &keeping);
    session.streams.begin_listening(&core, &session, keeping.room).unwrap();
    assert!(poll_fn(|cx| first.poll_next(cx)).await.is_none());
    let mut second = successor.lock().unwrap().take().unwrap();
    match poll_fn(|cx| second.poll_next(cx)).await {
        Some(Read::Event(Some(at), event, None)) => {
            assert_eq!(at, place(true, 1, 1));
            assert!(event.concat().len() > SMALL);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn who_subscribes_after_the_streams_have_ended_waits_for_nothing() {
    let core = Listened::by(|listen| Ok(Listening::new(listen.interest, listen.messages)));
    let session = Arc::new(core.session());
    session.streams.hang_up();
    let began = Instant::now();
    session.streams.listen(&core, &session, &keeping(1000), RESUME).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
}
