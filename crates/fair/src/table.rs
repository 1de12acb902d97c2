//! Entries that are counted per share, and the choice of one that leaves for a newcomer.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use foldhash::fast::RandomState;

type Map<K, V> = HashMap<K, V, RandomState>;
type Set<K> = HashSet<K, RandomState>;

/// Entries by key; each counts in one share. Each change updates the counts, and shares are ordered
/// by them. So a newcomer to a full table looks only at entries that it may displace.
#[derive(Debug)]
pub struct Table<S, K, V> {
    entries: Map<K, Entry<S, V>>,
    /// The keys of each share that has any.
    shares: Map<S, Set<K>>,
    /// The shares by their number of entries.
    by_count: BTreeMap<usize, Set<S>>,
}

#[derive(Debug)]
struct Entry<S, V> {
    share: S,
    value: V,
}

/// Selects the shares that lose entries to a newcomer. The largest share loses first; a share
/// without more entries than the newcomer never does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether entries of the newcomer's own share may leave, too. Among shares of the same size,
    /// that share loses first.
    own: bool,
    /// Whether only shares above an equal part of the limit lose, down to that part.
    above_equal_part: bool,
    /// Whether a share loses only if it has no less than the newcomer even afterwards.
    even_afterwards: bool,
}

impl Rule {
    /// The rule for entries that nobody uses at the moment.
    pub const UNUSED: Self = Self {
        own: true,
        above_equal_part: false,
        even_afterwards: false,
    };

    /// The rule for entries in use: two shares never take such entries from each other in turn.
    pub const IN_USE: Self = Self {
        own: false,
        above_equal_part: false,
        even_afterwards: true,
    };

    /// Restricts the rule to shares above an equal part of the limit; this does not apply to the
    /// newcomer's own share.
    #[must_use]
    pub const fn above_equal_part(self) -> Self {
        Self {
            above_equal_part: true,
            ..self
        }
    }

    /// Restricts the rule to shares other than the newcomer's.
    #[must_use]
    pub const fn restrict_to_others(self) -> Self {
        Self { own: false, ..self }
    }
}

/// An entry that may have to leave.
#[derive(Debug)]
pub struct Candidate<'a, S, K, V> {
    /// The key.
    pub key: &'a K,
    /// The share that it belongs to.
    pub share: &'a S,
    /// The value.
    pub value: &'a V,
}

/// One more entry for a share of a full table, and the entries that may leave for it.
#[derive(Debug)]
pub struct Newcomer<'a, S, K, V> {
    table: &'a Table<S, K, V>,
    share: &'a S,
    own: usize,
    /// The number of entries in an equal part of the limit.
    equal_part: usize,
}

impl<S, K, V> Default for Table<S, K, V> {
    fn default() -> Self {
        Self {
            entries: Map::default(),
            shares: Map::default(),
            by_count: BTreeMap::new(),
        }
    }
}

impl<S: Clone + Eq + Hash, K: Clone + Eq + Hash, V> Table<S, K, V> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of entries of a share.
    pub fn count(&self, share: &S) -> usize {
        self.shares.get(share).map_or(0, HashSet::len)
    }

    /// The shares that have entries.
    pub fn shares(&self) -> impl Iterator<Item = &S> {
        self.shares.keys()
    }

    /// Adds an entry; returns the previous one with this key.
    pub fn insert(&mut self, key: K, share: S, value: V) -> Option<V> {
        let replaced = self.remove(&key);
        self.shares
            .entry(share.clone())
            .or_default()
            .insert(key.clone());
        self.recount(&share, |count| count - 1);
        self.entries.insert(key, Entry { share, value });
        replaced
    }

    /// Removes an entry.
    pub fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let Entry { share, value } = self.entries.remove(key)?;
        if let Some(keys) = self.shares.get_mut(&share) {
            keys.remove(key);
            self.recount(&share, |count| count + 1);
        }
        Some(value)
    }

    /// The value of an entry.
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.entries.get(key).map(|entry| &entry.value)
    }

    /// The value of an entry, to change it.
    pub fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.entries.get_mut(key).map(|entry| &mut entry.value)
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.value))
    }

    /// All values.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|entry| &entry.value)
    }

    /// All values, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.values_mut().map(|entry| &mut entry.value)
    }

    /// The entries of a share.
    pub fn share_entries(&self, share: &S) -> impl Iterator<Item = (&K, &V)> {
        let keys = self.shares.get(share).into_iter().flatten();
        keys.filter_map(|key| Some((key, &self.entries.get(key)?.value)))
    }

    /// Removes the entries for which `is_meant` is true.
    pub fn remove_if(&mut self, is_meant: impl Fn(&K, &V) -> bool) -> Vec<V> {
        let meant = self.iter().filter(|(key, value)| is_meant(key, value));
        let keys: Vec<_> = meant.map(|(key, _)| key.clone()).collect();
        keys.iter().filter_map(|key| self.remove(key)).collect()
    }

    /// Removes all entries.
    pub fn take_all(&mut self) -> impl Iterator<Item = V> + use<S, K, V> {
        std::mem::take(self)
            .entries
            .into_values()
            .map(|entry| entry.value)
    }

    /// One more entry for `share` in a table with this limit.
    pub fn newcomer<'a>(&'a self, share: &'a S, limit: usize) -> Newcomer<'a, S, K, V> {
        let own = self.count(share);
        let shares = self.shares.len() + usize::from(own == 0);
        Newcomer {
            table: self,
            share,
            own,
            equal_part: limit.div_ceil(shares),
        }
    }

    /// Updates the order of shares after the count of a share has changed from `before`.
    fn recount(&mut self, share: &S, before: impl FnOnce(usize) -> usize) {
        let count = self.count(share);
        let before = before(count);
        if let Some(shares) = self.by_count.get_mut(&before) {
            shares.remove(share);
            if shares.is_empty() {
                self.by_count.remove(&before);
            }
        }
        if count > 0 {
            self.by_count
                .entry(count)
                .or_default()
                .insert(share.clone());
        } else {
            self.shares.remove(share);
        }
    }

    fn candidates<'a>(&'a self, share: &'a S) -> impl Iterator<Item = Candidate<'a, S, K, V>> {
        self.share_entries(share)
            .map(move |(key, value)| Candidate { key, share, value })
    }
}

impl<'a, S: Clone + Eq + Hash, K: Clone + Eq + Hash, V> Newcomer<'a, S, K, V> {
    /// The number of entries of the newcomer's share.
    pub fn own(&self) -> usize {
        self.own
    }

    /// The entry to displace by `rule`: the one with the lowest rank in the largest share that has
    /// ranked entries.
    pub fn least<R: Ord>(
        &self,
        rule: Rule,
        rank: impl Fn(Candidate<'_, S, K, V>) -> Option<R>,
    ) -> Option<K> {
        self.several(rule, 1, rank).pop()
    }

    /// Up to `most` entries to displace by `rule`: those with the lowest ranks in the largest
    /// shares that have ranked entries. Several at once, so that a flood of newcomers does not
    /// search for each.
    pub fn several<R: Ord>(
        &self,
        rule: Rule,
        most: usize,
        rank: impl Fn(Candidate<'_, S, K, V>) -> Option<R>,
    ) -> Vec<K> {
        for (count, shares) in self.table.by_count.iter().rev() {
            let own = rule
                .own
                .then_some(self.share)
                .filter(|_| *count == self.own);
            let others = match self.lost_by(rule, *count) {
                0 => None,
                lost => Some(
                    shares
                        .iter()
                        .filter(|share| *share != self.share)
                        .map(move |share| (share, lost)),
                ),
            };
            let losers = own
                .map(|share| (share, *count))
                .into_iter()
                .chain(others.into_iter().flatten());
            let found = self.lowest(losers, most, &rank);
            if !found.is_empty() {
                return found;
            }
            if *count <= self.own {
                break;
            }
        }
        Vec::new()
    }

    /// Up to `most` entries with the lowest ranks in the largest share; in the newcomer's if that
    /// is as large. Another share keeps as many as the newcomer's has.
    pub fn find_in_largest<R: Ord>(
        &self,
        most: usize,
        rank: impl Fn(Candidate<'_, S, K, V>) -> Option<R>,
    ) -> Vec<K> {
        let Some((count, shares)) = self.table.by_count.last_key_value() else {
            return Vec::new();
        };
        let largest = if *count == self.own {
            Some(self.share)
        } else {
            shares.iter().next()
        };
        let lost = most.min(count - self.own).max(1);
        self.lowest(largest.into_iter().map(|share| (share, lost)), lost, &rank)
    }

    /// The number of entries that another share of this size may lose.
    fn lost_by(&self, rule: Rule, count: usize) -> usize {
        let kept = self.own + usize::from(rule.even_afterwards);
        count.saturating_sub(if rule.above_equal_part {
            kept.max(self.equal_part)
        } else {
            kept
        })
    }

    /// The `most` entries with the lowest ranks; of each share at most the given number.
    fn lowest<'b, R: Ord>(
        &self,
        shares: impl Iterator<Item = (&'b S, usize)>,
        most: usize,
        rank: &impl Fn(Candidate<'_, S, K, V>) -> Option<R>,
    ) -> Vec<K>
    where
        'a: 'b,
    {
        let mut found = Vec::new();
        for (share, lost) in shares {
            let begin = found.len();
            let candidates = self.table.candidates(share);
            found.extend(candidates.filter_map(|one| Some((rank(Candidate { ..one })?, one.key))));
            if found.len() - begin > lost {
                found[begin..].sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
                found.truncate(begin + lost);
            }
        }
        if most == 1 {
            let least = found
                .into_iter()
                .min_by(|(one, _), (other, _)| one.cmp(other));
            return least.map(|(_, key)| key.clone()).into_iter().collect();
        }
        found.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        found
            .into_iter()
            .take(most)
            .map(|(_, key)| key.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests;
