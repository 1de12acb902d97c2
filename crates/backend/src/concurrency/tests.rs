use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use fanlight_canonical::{Caller, Principal};
use fanlight_protocol::Json;
use futures_util::FutureExt as _;

use super::*;

fn peer(number: u8) -> Peer {
    Peer::Address(IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)))
}

fn by(caller: Caller, peer: Peer, info: &'static str) -> CallContext {
    let context = Arc::unwrap_or_clone(CallContext::internal());
    CallContext {
        caller,
        peer,
        client_info: Some(Json::literal(info)),
        ..context
    }
}

/// A modern client at an address.
fn modern(address: u8, info: &'static str) -> CallContext {
    by(
        Caller::request_of(Principal::anonymous()),
        peer(address),
        info,
    )
}

fn session(address: u8, number: u64) -> CallContext {
    by(
        Caller::session_of(Principal::anonymous(), SessionKey(number)),
        peer(address),
        "{}",
    )
}

fn named(subject: &str) -> CallContext {
    let principal = Principal::new("https://issuer.example", subject);
    by(
        Caller::request_of(principal.clone()),
        Peer::Principal(principal),
        "{}",
    )
}

/// The permits that a client gets at once.
fn all(queue: &FairQueue, context: &CallContext) -> Vec<Permit> {
    std::iter::from_fn(|| queue.claim(context).try_acquire()).collect()
}

fn is_unused(queue: &FairQueue) -> bool {
    queue.permits.is_unused()
}

#[test]
fn client_leaves_permits_to_others() {
    let pairs = [
        (session(1, 1), session(1, 2)),
        (modern(1, r#"{"name":"a"}"#), modern(1, r#"{"name":"b"}"#)),
        (modern(1, "{}"), modern(2, "{}")),
        (modern(1, "{}"), session(1, 1)),
        (named("ann"), named("bob")),
    ];
    for (one, other) in pairs {
        for (concurrency, most) in [(4, 3), (8, 6), (256, 224)] {
            let queue = FairQueue::new(concurrency);
            let held = all(&queue, &one);
            assert_eq!(held.len(), most);
            let other_held = all(&queue, &other);
            assert!(!other_held.is_empty());
            drop((held, other_held));
            assert!(is_unused(&queue));
        }
    }
}

#[test]
fn sessions_of_one_peer_leave_permits_to_other_peers() {
    let queue = FairQueue::new(16);
    let held: Vec<_> = (0..100)
        .flat_map(|number| all(&queue, &session(1, number)))
        .collect();
    assert!(held.len() < 16);
    assert!(queue.claim(&session(2, 1000)).try_acquire().is_some());
    assert!(queue.claim(&modern(2, "{}")).try_acquire().is_some());
}

#[test]
fn single_permit_is_given_to_any_client() {
    let queue = FairQueue::new(1);
    assert_eq!(all(&queue, &session(1, 1)).len(), 1);
    assert_eq!(all(&queue, &modern(1, "{}")).len(), 1);
    assert!(is_unused(&queue));
}

#[tokio::test]
async fn call_that_waits_for_its_client_holds_no_permit() {
    let queue = FairQueue::new(1);
    let (one, other) = (queue.claim(&session(1, 1)), queue.claim(&session(2, 2)));
    let call = CallPermit::default();
    call.hold(one.try_acquire().unwrap());
    assert!(other.try_acquire().is_none());
    call.give_back();
    let of_other = other.try_acquire().unwrap();
    let mut again = call.reacquire().expect("there is no permit");
    assert!(again.as_mut().now_or_never().is_none());
    drop(of_other);
    call.hold(again.now_or_never().unwrap());
    assert!(other.try_acquire().is_none());
    call.end();
    assert!(is_unused(&queue));
}
