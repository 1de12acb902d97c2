use proptest::prelude::*;

use super::*;

fn budget(limit: usize) -> Budget<u8> {
    Budget::new(limit, Part::AS_MUCH_AS_IT_LEAVES)
}

#[test]
fn share_leaves_as_much_as_it_holds() {
    let budget = budget(120);
    let hoard = |share| std::iter::from_fn(|| budget.reserve(&share, 1).ok()).collect::<Vec<_>>();
    let first = hoard(1);
    assert_eq!(first.len(), 60);
    let second = hoard(2);
    assert_eq!(second.len(), 30);
    assert_eq!(hoard(3).len(), 15);
    drop(second);
    assert_eq!(budget.held(), 60);
    drop(first);
    assert_eq!(budget.held(), 0);
    assert!(budget.0.state.lock().shares.is_empty());
}

#[test]
fn first_reservation_of_a_share_may_be_as_large_as_all_that_is_free() {
    let budget = budget(100);
    let mut first = budget.reserve(&1, 10).unwrap();
    first.resize(90).unwrap();
    assert_eq!(first.resize(101), Err(Spent));
    assert!(budget.reserve(&1, 1).is_err(), "beyond its part");
    let other = budget.reserve(&2, 10).unwrap();
    assert!(budget.reserve(&3, 1).is_err(), "beyond all");
    first.resize(20).unwrap();
    assert_eq!(budget.held(), 30);
    assert!(budget.reserve(&1, 15).is_ok());
    drop((first, other));
    assert_eq!(budget.held(), 0);
}

#[test]
fn part_may_be_more_than_half_and_keep_some_for_others() {
    let part = Part {
        for_each_free: 15,
        kept: [(8, 1), (8, 1)],
    };
    let waits = Budget::new(32, part);
    let noisy: Vec<_> = std::iter::from_fn(|| waits.reserve(&1, 1).ok()).collect();
    assert_eq!(noisy.len(), 30);
    let others = [2, 3].map(|share| waits.reserve(&share, 1));
    assert!(others.iter().all(Result::is_ok) && waits.reserve(&4, 1).is_err());
    assert!(Budget::new(1, part).reserve(&1, 1).is_ok());
}

proptest! {
    #[test]
    fn budget_is_never_exceeded_and_all_of_it_comes_back(
        steps in prop::collection::vec((0_u8..4, 1_usize..60, 0_usize..8, any::<bool>()), 1..200),
    ) {
        const LIMIT: usize = 100;
        let budget = budget(LIMIT);
        let mut held: Vec<Reservation<u8>> = Vec::new();
        for (share, amount, at, is_released) in steps {
            let of_share = |held: &[Reservation<u8>]| held.iter().filter(|one| one.share == share).count();
            if is_released && at < held.len() {
                held.swap_remove(at);
            } else if let Some(one) = held.get_mut(at) {
                let before = one.amount;
                prop_assert!(one.resize(amount).is_ok() || one.amount == before);
            } else if let Ok(one) = budget.reserve(&share, amount) {
                held.push(one);
                let own: usize = held.iter().filter(|one| one.share == share).map(|one| one.amount).sum();
                prop_assert!(of_share(&held) == 1 || own <= LIMIT - budget.held() + 1);
            }
            prop_assert!(budget.held() <= LIMIT);
            prop_assert_eq!(budget.held(), held.iter().map(|one| one.amount).sum::<usize>());
        }
        drop(held);
        prop_assert!(budget.held() == 0 && budget.0.state.lock().shares.is_empty());
    }
}
