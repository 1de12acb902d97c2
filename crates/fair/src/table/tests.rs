use std::cmp::Reverse;

use proptest::prelude::*;

use super::*;

type Few = Table<u8, u32, u32>;

/// A table with this many entries of each share, whose values rise.
fn table(each: &[(u8, u32)]) -> Few {
    let (mut table, mut key) = (Few::default(), 0);
    for (share, count) in each {
        for _ in 0..*count {
            table.insert(key, *share, key);
            key += 1;
        }
    }
    table
}

fn oldest(candidate: Candidate<'_, u8, u32, u32>) -> Option<u32> {
    Some(*candidate.value)
}

#[test]
fn largest_share_loses_its_lowest_entry() {
    let table = table(&[(1, 1), (2, 3), (3, 2)]);
    assert_eq!(table.newcomer(&9, 6).least(Rule::UNUSED, oldest), Some(1));
    let not_of_largest =
        |one: Candidate<'_, u8, u32, u32>| oldest(Candidate { ..one }).filter(|_| *one.share != 2);
    assert_eq!(
        table.newcomer(&9, 6).least(Rule::UNUSED, not_of_largest),
        Some(4),
        "of the next share"
    );
    assert_eq!(
        table
            .newcomer(&9, 6)
            .least(Rule::UNUSED, |one| Some(Reverse(*one.value))),
        Some(3)
    );
}

#[test]
fn share_without_more_than_the_newcomer_loses_nothing() {
    let table = table(&[(1, 2), (2, 2)]);
    assert_eq!(
        table
            .newcomer(&1, 4)
            .least(Rule::UNUSED.restrict_to_others(), oldest),
        None
    );
    assert_eq!(
        table.newcomer(&2, 4).least(Rule::UNUSED, oldest),
        Some(2),
        "but its own"
    );
    assert_eq!(table.newcomer(&2, 4).least(Rule::IN_USE, oldest), None);
    assert_eq!(
        table.newcomer(&3, 4).least(Rule::IN_USE, oldest),
        Some(0),
        "one each is fair"
    );
    assert_eq!(table.newcomer(&3, 3).own(), 0);
}

#[test]
fn shares_of_the_same_size_are_compared_entry_by_entry() {
    let mut table = Few::default();
    for (key, share) in [(5, 1), (1, 2), (6, 1), (4, 2)] {
        table.insert(key, share, key);
    }
    assert_eq!(table.newcomer(&3, 4).least(Rule::UNUSED, oldest), Some(1));
    assert_eq!(
        table.newcomer(&3, 4).several(Rule::UNUSED, 3, oldest),
        [1, 4, 5]
    );
}

#[test]
fn several_are_lost_only_down_to_what_the_rule_leaves() {
    let table = table(&[(1, 9), (2, 1)]);
    let lost = |rule, newcomer| {
        table
            .newcomer(&newcomer, 10)
            .several(rule, 99, oldest)
            .len()
    };
    assert_eq!(
        lost(Rule::UNUSED.above_equal_part(), 3),
        5,
        "an equal part is four"
    );
    assert_eq!(
        (
            lost(Rule::UNUSED, 3),
            lost(Rule::UNUSED, 2),
            lost(Rule::IN_USE, 2)
        ),
        (9, 8, 7)
    );
    assert_eq!(lost(Rule::UNUSED, 1), 9, "all of its own may go");
}

#[test]
fn entries_of_the_largest_share_leave_even_for_the_same() {
    let table = table(&[(1, 4), (2, 1)]);
    assert_eq!(table.newcomer(&1, 5).find_in_largest(9, oldest), [0]);
    assert_eq!(table.newcomer(&2, 5).find_in_largest(9, oldest), [0, 1, 2]);
    assert_eq!(table.newcomer(&3, 5).find_in_largest(2, oldest), [0, 1]);
    assert_eq!(
        Few::default().newcomer(&3, 5).find_in_largest(2, oldest),
        [0; 0]
    );
}

#[test]
fn entries_can_be_replaced_changed_and_removed() {
    let mut table = table(&[(1, 2), (2, 1)]);
    assert_eq!(
        table.insert(0, 2, 7),
        Some(0),
        "it counts for the other share now"
    );
    assert_eq!((table.count(&1), table.count(&2), table.len()), (1, 2, 3));
    *table.get_mut(&0).unwrap() += 1;
    assert_eq!((table.remove(&9), table.get(&0)), (None, Some(&8)));
    assert_eq!(table.remove_if(|_, value| *value == 8), [8]);
    assert_eq!(
        (table.share_entries(&2).count(), table.shares().count()),
        (1, 2)
    );
    assert_eq!(
        (table.take_all().count(), table.is_empty(), table.count(&1)),
        (2, true, 0)
    );
}

#[derive(Clone, Debug)]
enum Step {
    Insert { key: u32, share: u8 },
    Remove { key: u32 },
    MakeRoom { share: u8, rule: usize, most: usize },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_u32..40, 0_u8..5).prop_map(|(key, share)| Step::Insert { key, share }),
        1 => (0_u32..40).prop_map(|key| Step::Remove { key }),
        2 => (0_u8..6, 0_usize..5, 1_usize..9).prop_map(|(share, rule, most)| Step::MakeRoom { share, rule, most }),
    ]
}

const RULES: [Rule; 5] = [
    Rule::UNUSED,
    Rule::UNUSED.restrict_to_others(),
    Rule::UNUSED.above_equal_part(),
    Rule::IN_USE,
    Rule::IN_USE.above_equal_part(),
];

/// Checks that the rest of each share is what the rule guarantees.
fn assert_fair(
    before: &BTreeMap<u8, usize>,
    after: &Few,
    newcomer: u8,
    rule: Rule,
    equal_part: usize,
) {
    let own = before.get(&newcomer).copied().unwrap_or(0);
    for (share, count) in before
        .iter()
        .filter(|(share, _)| after.count(share) < before[share])
    {
        let left = after.count(share);
        if *share == newcomer {
            assert!(rule.own, "a newcomer lost its own");
            continue;
        }
        assert!(
            *count > own && left >= own + usize::from(rule.even_afterwards),
            "{share}: {count} to {left}"
        );
        assert!(
            !rule.above_equal_part || left >= equal_part,
            "{share}: {count} to {left}, of {equal_part}"
        );
    }
}

proptest! {
    #[test]
    fn counts_are_those_of_the_entries_and_only_larger_shares_lose(steps in prop::collection::vec(step(), 1..200)) {
        const LIMIT: usize = 20;
        let mut table = Few::default();
        for step in steps {
            match step {
                Step::Insert { key, share } => drop(table.insert(key, share, key)),
                Step::Remove { key } => drop(table.remove(&key)),
                Step::MakeRoom { share, rule, most } => {
                    let before: BTreeMap<_, _> = table.shares().map(|share| (*share, table.count(share))).collect();
                    let newcomer = table.newcomer(&share, LIMIT);
                    let (rule, equal_part) = (RULES[rule], newcomer.equal_part);
                    let lost = newcomer.several(rule, most, oldest);
                    prop_assert!(lost.len() <= most);
                    lost.iter().for_each(|key| assert!(table.remove(key).is_some()));
                    assert_fair(&before, &table, share, rule, equal_part);
                }
            }
            let counted: usize = table.shares().map(|share| table.count(share)).sum();
            prop_assert_eq!(counted, table.len());
            prop_assert_eq!(table.by_count.values().map(HashSet::len).sum::<usize>(), table.shares.len());
            prop_assert!(table.by_count.iter().all(|(count, shares)| shares.iter().all(|one| table.count(one) == *count)));
            prop_assert!(table.entries.iter().all(|(key, entry)| table.shares[&entry.share].contains(key)));
        }
    }
}
