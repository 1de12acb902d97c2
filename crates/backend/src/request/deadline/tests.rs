use std::future::pending;
use std::net::{IpAddr, Ipv4Addr};

use fanlight_canonical::{Caller, Principal};
use fanlight_protocol::Json;
use futures_util::FutureExt as _;

use super::*;

const LIMIT: Duration = Duration::from_secs(10);
const LIMITS: CallLimits = CallLimits {
    active: LIMIT,
    total: Duration::from_secs(1000),
};

const fn at_once(open: usize) -> PauseLimits {
    PauseLimits {
        open,
        ever: usize::MAX,
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_does_not_pass_while_any_pause_exists() {
    let deadline = Arc::<PausableDeadline>::default();
    let began = Instant::now();
    let pauses = async {
        sleep(Duration::from_secs(4)).await;
        let first = deadline.pause(at_once(2)).unwrap();
        sleep(Duration::from_secs(100)).await;
        let second = deadline.pause(at_once(2)).unwrap();
        assert!(deadline.pause(at_once(2)).is_none());
        drop(first);
        sleep(Duration::from_secs(100)).await;
        drop(second);
        pending::<()>().await;
    };
    assert_eq!(
        deadline.limit(LIMITS, pin!(pauses)).await,
        Err(Expired(LIMIT))
    );
    assert_eq!(began.elapsed().as_secs(), 210);
}

#[tokio::test(start_paused = true)]
async fn pauses_do_not_extend_the_total() {
    let total = Duration::from_secs(50);
    for (pause, between) in [(60, 1), (7, 3), (1000, 0)] {
        let deadline = Arc::<PausableDeadline>::default();
        let began = Instant::now();
        let pauses = async {
            loop {
                let pause_now = deadline.pause(at_once(1));
                sleep(Duration::from_secs(pause)).await;
                drop(pause_now);
                sleep(Duration::from_secs(between)).await;
            }
        };
        let outcome: Result<(), _> = deadline
            .limit(
                CallLimits {
                    active: LIMIT,
                    total,
                },
                pin!(pauses),
            )
            .await;
        assert!(
            outcome.is_err() && began.elapsed() <= total,
            "{:?}",
            began.elapsed()
        );
    }
}

#[tokio::test]
async fn future_that_always_continues_is_limited() {
    let active = Duration::from_millis(1);
    let limits = CallLimits { active, ..LIMITS };
    let mut busy = pin!(async {
        loop {
            tokio::task::consume_budget().await;
        }
    });
    let deadline = PausableDeadline::default();
    let limited = deadline.limit(limits, busy.as_mut());
    let outcome: Result<Result<(), _>, _> = tokio::time::timeout(LIMIT, limited).await;
    assert_eq!(outcome, Ok(Err(Expired(active))));
}

#[tokio::test]
async fn pauses_of_one_call_are_counted() {
    let deadline = Arc::<PausableDeadline>::default();
    let limits = PauseLimits { open: 2, ever: 3 };
    for _ in 0..3 {
        drop(deadline.pause(limits).unwrap());
    }
    assert!(deadline.pause(limits).is_none());
}

#[tokio::test(start_paused = true)]
async fn deadline_without_pauses_is_a_timeout() {
    let deadline = PausableDeadline::default();
    let began = Instant::now();
    assert_eq!(deadline.limit(LIMITS, pin!(async { 7 })).await, Ok(7));
    assert!(!deadline.has_expired());
    assert_eq!(
        deadline.limit(LIMITS, pin!(pending::<()>())).await,
        Err(Expired(LIMIT))
    );
    assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs());
    assert!(deadline.has_expired());
}

/// Another thread pauses and resumes while the call is polled for other reasons.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadline_passes_after_pauses_of_another_thread() {
    let deadline = Arc::<PausableDeadline>::default();
    let pausing = Arc::clone(&deadline);
    let pauses = tokio::task::spawn_blocking(move || {
        for _ in 0..10_000 {
            drop(pausing.pause(at_once(1)));
        }
    });
    let polled = async {
        loop {
            tokio::task::yield_now().await;
            if pauses.is_finished() {
                return pending::<()>().await;
            }
        }
    };
    let active = Duration::from_millis(20);
    let limits = CallLimits {
        active,
        total: Duration::from_secs(60),
    };
    assert_eq!(
        deadline.limit(limits, pin!(polled)).await,
        Err(Expired(active))
    );
}

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
