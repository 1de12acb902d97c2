//! The choice of connections to end for others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::UsageKind::{Idle, Listens, Unused, WaitsForClient, Works};
use super::*;

struct Fake {
    usage: Usage,
    has_ended: AtomicBool,
}

impl Endable for Fake {
    fn usage(&self) -> Option<Usage> {
        Some(self.usage).filter(|_| !self.has_ended.load(Ordering::Relaxed))
    }

    fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

fn peer(last: u8) -> ConnectionPeer {
    ConnectionPeer::Address([10, 0, 0, last].into())
}

/// Adds connections; each has a peer, a use, and the seconds since its start.
fn entered(all: &Arc<Connections>, each: &[(u8, UsageKind, u64)]) -> Vec<(Arc<Fake>, Entry)> {
    let base = Instant::now();
    let enter = |&(last, kind, seconds): &(u8, UsageKind, u64)| {
        let usage = Usage {
            kind,
            since: base - Duration::from_secs(seconds),
        };
        let fake = Arc::new(Fake {
            usage,
            has_ended: AtomicBool::new(false),
        });
        let entry = all.enter(peer(last), Arc::clone(&fake) as Arc<dyn Endable>);
        (fake, entry)
    };
    each.iter().map(enter).collect()
}

fn ended(connections: &[(Arc<Fake>, Entry)]) -> Vec<usize> {
    let has_ended = |fake: &Fake| fake.has_ended.load(Ordering::Relaxed);
    connections
        .iter()
        .enumerate()
        .filter(|(_, (fake, _))| has_ended(fake))
        .map(|(at, _)| at)
        .collect()
}

/// The connections that end for new ones of `newcomer`, one after the other until none does.
fn all_ended_for(newcomer: u8, each: &[(u8, UsageKind, u64)]) -> Vec<usize> {
    let all = Arc::new(Connections::default());
    let mut open: Vec<_> = entered(&all, each).into_iter().map(Some).collect();
    let (mut order, mut own) = (Vec::new(), Vec::new());
    while all.make_space(peer(newcomer), each.len()) {
        let has_ended = |one: &Option<(Arc<Fake>, Entry)>| {
            one.as_ref()
                .is_some_and(|(fake, _)| fake.has_ended.load(Ordering::Relaxed))
        };
        let at = open.iter().position(has_ended).unwrap();
        order.push(at);
        open[at] = None;
        own.extend(entered(&all, &[(newcomer, Works, 0)]));
    }
    order
}

#[test]
fn idle_connection_of_the_peer_with_most_ends() {
    let all = Arc::new(Connections::default());
    let open = entered(
        &all,
        &[
            (1, Idle, 9),
            (1, Idle, 8),
            (1, Works, 0),
            (2, Idle, 99),
            (2, Idle, 1),
        ],
    );
    assert!(all.make_space(peer(3), 5));
    assert_eq!(ended(&open), [0]);
}

#[test]
fn connection_without_a_request_yet_ends_first() {
    let all = Arc::new(Connections::default());
    let open = entered(&all, &[(1, Idle, 99), (1, Unused, 1), (1, Unused, 2)]);
    assert!(
        all.make_space(peer(1), 3),
        "a peer loses its own to its own"
    );
    assert_eq!(ended(&open), [2]);
}

#[test]
fn peer_with_fewer_connections_loses_none() {
    let all = Arc::new(Connections::default());
    let open = entered(
        &all,
        &[(1, Works, 0), (1, Works, 0), (2, Idle, 99), (3, Idle, 9)],
    );
    assert!(!all.make_space(peer(1), 4), "all of its own are busy");
    assert!(
        all.make_space(peer(9), 4) && ended(&open).len() == 1,
        "one of those with an idle one"
    );
    assert!(!all.make_space_within(peer(1)));
}

#[test]
fn peer_above_its_share_loses_connections_up_to_its_share() {
    let noisy = [
        (1, Works, 5),
        (1, WaitsForClient, 1),
        (1, Listens, 9),
        (1, WaitsForClient, 2),
        (1, Idle, 1),
    ];
    let quiet = [(2, Listens, 99), (2, Idle, 99)];
    let each = [&noisy[..], &quiet[..]].concat();
    // First the idle one, then the one that has waited longest for its client, as long as the
    // newcomer has fewer even afterwards.
    assert_eq!(all_ended_for(3, &each), [4, 3]);
    assert_eq!(all_ended_for(1, &each), [4], "its own, if it is idle");
}

#[test]
fn idle_connection_within_a_share_outlives_busy_ones_of_the_noisiest() {
    let each = [
        (1, WaitsForClient, 1),
        (1, WaitsForClient, 2),
        (1, Listens, 3),
        (1, Listens, 4),
        (2, Idle, 9),
        (2, Idle, 8),
    ];
    assert_eq!(all_ended_for(3, &each)[0], 1);
}

#[test]
fn connection_at_work_ends_for_a_peer_without_any() {
    let each = [(1, Works, 9), (1, Works, 1), (1, Works, 5), (1, Works, 7)];
    assert_eq!(all_ended_for(2, &each), [1], "the newest, and one alone");
    assert!(all_ended_for(1, &each).is_empty());
    assert!(
        all_ended_for(9, &[(1, Works, 1), (2, Works, 1)]).is_empty(),
        "no peer is above its share"
    );
}

#[test]
fn idle_connection_that_was_just_used_outlives_those_at_work_of_the_noisiest() {
    let noisy = [(1, Works, 9), (1, Works, 5), (1, Works, 7)];
    assert_eq!(
        all_ended_for(2, &[&noisy[..], &[(3, Idle, 0)]].concat())[0],
        1
    );
    assert_eq!(
        all_ended_for(2, &[&noisy[..], &[(3, Idle, 9)]].concat())[0],
        3
    );
    assert_eq!(
        all_ended_for(2, &[(1, Works, 9), (3, Idle, 0)]),
        [1],
        "if none else can"
    );
}

#[test]
fn peers_with_equally_many_take_nothing_busy_from_each_other() {
    let each = [
        (1, Listens, 9),
        (1, Listens, 8),
        (2, WaitsForClient, 9),
        (2, Listens, 8),
    ];
    assert!(all_ended_for(1, &each).is_empty());
    assert!(all_ended_for(2, &each).is_empty());
}

#[test]
fn ended_connections_are_removed() {
    let all = Arc::new(Connections::default());
    let open = entered(&all, &[(1, Works, 1), (1, Idle, 1)]);
    assert!(
        all.make_space(peer(1), 2) && !all.make_space(peer(1), 2),
        "none ends twice"
    );
    drop(open);
    assert_eq!(all.count(peer(1)), 0);
    assert!(all.table.lock().open.is_empty());
}

#[test]
fn many_end_at_once_where_there_are_many() {
    let all = Arc::new(Connections::default());
    let each: Vec<_> = (0..1024).map(|seconds| (1, Idle, seconds)).collect();
    let open = entered(&all, &each);
    assert!(all.make_space(peer(2), 1024));
    assert_eq!(ended(&open), [1020, 1021, 1022, 1023]);
}
