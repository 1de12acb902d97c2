//! Who reads which stream, and what is forgotten when.

use bytes::Bytes;

use super::*;

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
    assert_eq!(state.listeners, [outside, newest]);
    state.resume(place(true, outside, 0)).unwrap();
    assert_eq!(state.listeners, [newest, outside]);
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
