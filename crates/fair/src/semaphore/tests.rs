use futures_util::FutureExt as _;
use proptest::prelude::*;

use super::*;

const SHARE: Part = Part {
    for_each_free: 15,
    kept: [(8, 1), (8, 1)],
};
const MEMBER: Part = Part {
    for_each_free: 7,
    kept: [(4, 1), (8, 2)],
};

/// A member of a share; share 0 is not limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Client(u8, u64);

impl Member for Client {
    type Share = u8;

    fn share(&self) -> &u8 {
        &self.0
    }

    fn is_bounded(&self) -> bool {
        self.0 > 0
    }
}

fn semaphore(permits: usize) -> Semaphore<Client> {
    Semaphore::new(PermitLimits {
        permits,
        of_share: SHARE,
        of_member: MEMBER,
    })
}

/// The permits that a client gets at once.
fn all(semaphore: &Semaphore<Client>, client: Client) -> Vec<Permit<Client>> {
    std::iter::from_fn(|| semaphore.claim(client).try_acquire()).collect()
}

#[test]
fn member_leaves_permits_to_others_of_its_share_and_of_other_shares() {
    for other in [Client(1, 2), Client(2, 1)] {
        for (permits, most) in [(4, 3), (8, 6), (256, 224)] {
            let semaphore = semaphore(permits);
            let held = all(&semaphore, Client(1, 1));
            assert_eq!(held.len(), most);
            let other_held = all(&semaphore, other);
            assert!(!other_held.is_empty());
            drop((held, other_held));
            assert!(semaphore.is_unused());
        }
    }
}

#[test]
fn members_of_one_share_leave_permits_to_other_shares() {
    let semaphore = semaphore(16);
    let held: Vec<_> = (0..100)
        .flat_map(|member| all(&semaphore, Client(1, member)))
        .collect();
    assert!(held.len() < 16);
    assert!(semaphore.claim(Client(2, 1)).try_acquire().is_some());
    assert_eq!(
        all(&semaphore, Client(0, 1)).len(),
        16 - held.len(),
        "without a bound, what is free"
    );
}

#[tokio::test]
async fn waiting_members_are_served_in_turn() {
    let semaphore = semaphore(1);
    let (one, other) = (semaphore.claim(Client(1, 1)), semaphore.claim(Client(2, 2)));
    let held = one.try_acquire().unwrap();
    let mut waiting: Vec<_> = (0..3)
        .map(|_| Box::pin(one.clone().acquire_again()))
        .collect();
    assert!(
        waiting
            .iter_mut()
            .all(|waiting| waiting.as_mut().now_or_never().is_none())
    );
    let mut late = Box::pin(other.acquire_again());
    assert!(late.as_mut().now_or_never().is_none());
    drop(held);
    let first = waiting.remove(0).now_or_never().expect("it came first");
    drop(first);
    let of_other = late.now_or_never().expect("the other member has its turn");
    // The second leaves the queue, and the third moves up.
    drop(waiting.remove(0));
    drop(of_other);
    drop(waiting.remove(0).now_or_never().expect("nobody else waits"));
    assert!(semaphore.is_unused());
}

#[tokio::test]
async fn permit_of_a_waiter_that_has_gone_is_given_to_the_next() {
    let semaphore = semaphore(1);
    let claim = semaphore.claim(Client(1, 1));
    let held = claim.try_acquire().unwrap();
    let mut gone = Box::pin(claim.clone().acquire_again());
    let mut next = Box::pin(claim.acquire_again());
    assert!(gone.as_mut().now_or_never().is_none() && next.as_mut().now_or_never().is_none());
    drop(held);
    drop(gone);
    drop(next.now_or_never().expect("the permit was given back"));
    assert!(semaphore.is_unused());
}

#[tokio::test]
async fn waiting_requests_are_bounded_for_each_member_and_in_all() {
    let semaphore = semaphore(4);
    let claim = |member| semaphore.claim(Client(1, member));
    let _held: Vec<_> = (0..4)
        .filter_map(|member| claim(member).try_acquire())
        .collect();
    let mut waiting: Vec<_> = (0..5)
        .map(|_| Box::pin(async { claim(1).acquire().await.map(drop) }))
        .collect();
    let outcomes = waiting
        .iter_mut()
        .map(|waiting| waiting.as_mut().now_or_never());
    let refused = outcomes
        .filter(|outcome| *outcome == Some(Err(Full)))
        .count();
    assert_eq!(refused, 2, "three wait, and leave space for another member");
    let mut other = Box::pin(async { claim(2).acquire().await.map(drop) });
    assert!(other.as_mut().now_or_never().is_none());
    assert_eq!(claim(3).acquire().await.map(drop), Err(Full));
}

proptest! {
    #[test]
    fn permits_are_never_more_than_there_are_and_all_come_back(
        steps in prop::collection::vec((0_u8..4, 0_u64..3, 0_usize..8, 0_u8..4), 1..200),
        permits in 1_usize..12,
    ) {
        let semaphore = semaphore(permits);
        let (mut held, mut waiting) = (Vec::new(), Vec::new());
        for (share, member, at, action) in steps {
            let claim = semaphore.claim(Client(share, member));
            match action {
                0 => held.extend(claim.try_acquire()),
                1 => waiting.push(Box::pin(async move { claim.acquire().await.ok() })),
                2 if at < held.len() => drop(held.swap_remove(at)),
                3 if at < waiting.len() => drop(waiting.swap_remove(at)),
                _ => {}
            }
            waiting.retain_mut(|one| one.as_mut().now_or_never().is_none_or(|permit| {
                held.extend(permit);
                false
            }));
            prop_assert_eq!(held.len() + semaphore.0.state.lock().free, permits);
        }
        // Every waiting request gets a permit in the end.
        while !waiting.is_empty() {
            prop_assert!(held.pop().is_some());
            waiting.retain_mut(|one| one.as_mut().now_or_never().is_none_or(|permit| {
                held.extend(permit);
                false
            }));
        }
        drop(held);
        prop_assert!(semaphore.is_unused());
    }
}
