//! The table of kept results: what each client keeps in each room, and which result leaves first.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use fanlight_canonical::{Caller, Peer};
use tokio::time::Instant;

use super::KeptResult;

/// The most results that are kept, with all sections. Each takes some memory besides its bytes.
const RESULTS: usize = 16_384;

/// A section, and whether it is its disk and not its memory.
pub(super) type RoomKey = (Arc<str>, bool);

/// A kept result with its owner.
pub(super) struct Entry {
    pub(super) handle: Box<str>,
    pub(super) owner: Caller,
    pub(super) peer: Peer,
    pub(super) room: RoomKey,
    pub(super) size: usize,
    pub(super) until: Instant,
    pub(super) result: Arc<KeptResult>,
}

/// The kept results, indexed so that each change touches few of them.
#[derive(Default)]
pub(super) struct Table {
    /// The results by number; newer ones have greater numbers.
    entries: HashMap<u64, Entry>,
    numbers: HashMap<Box<str>, u64>,
    by_end: BTreeSet<(Instant, u64)>,
    rooms: HashMap<RoomKey, Room>,
    last: u64,
}

/// The results in memory or on disk of one section.
#[derive(Default)]
struct Room {
    size: usize,
    shares: HashMap<Peer, Share>,
}

/// The results of one peer in a room.
#[derive(Default)]
struct Share {
    size: usize,
    numbers: BTreeSet<u64>,
}

impl Table {
    pub(super) fn find(&self, handle: &str) -> Option<&Entry> {
        self.entries.get(self.numbers.get(handle)?)
    }

    /// The end of the result that ends first.
    pub(super) fn first_end(&self) -> Option<Instant> {
        self.by_end.first().map(|(until, _)| *until)
    }

    /// Whether a new result of a peer goes to disk: to the first of memory and disk that has free
    /// room, else to the one whose next result to leave is older. `None` if it is too large.
    pub(super) fn goes_to_disk(
        &self,
        section: &Arc<str>,
        peer: &Peer,
        size: usize,
        limits: [usize; 2],
    ) -> Option<bool> {
        let rooms = [false, true].into_iter().zip(limits);
        let displaced = |on_disk: bool, limit: usize| {
            let room = self.rooms.get(&(Arc::clone(section), on_disk));
            let held = room.map_or(0, |room| room.size);
            let is_free = self.entries.len() < RESULTS && size <= limit.saturating_sub(held);
            let next = room.and_then(|room| room.next_to_leave(peer, size));
            (!is_free).then_some(next.unwrap_or(u64::MAX))
        };
        let fitting = rooms.filter(|(_, limit)| size <= *limit);
        let chosen = fitting.min_by_key(|(on_disk, limit)| displaced(*on_disk, *limit));
        chosen.map(|(on_disk, _)| on_disk)
    }

    /// Adds a result to its room, which may hold `limit` bytes; returns those that leave for it.
    /// `None` if there are too many results elsewhere.
    pub(super) fn add(&mut self, entry: Entry, limit: usize) -> Option<Vec<Entry>> {
        let mut left = Vec::new();
        loop {
            let room = self.rooms.get(&entry.room);
            let held = room.map_or(0, |room| room.size);
            if self.entries.len() < RESULTS && entry.size <= limit.saturating_sub(held) {
                break;
            }
            let next = room?.next_to_leave(&entry.peer, entry.size)?;
            left.extend(self.remove(next));
        }
        self.last += 1;
        self.numbers.insert(entry.handle.clone(), self.last);
        self.by_end.insert((entry.until, self.last));
        let room = self.rooms.entry(entry.room.clone()).or_default();
        room.size += entry.size;
        let share = room.shares.entry(entry.peer.clone()).or_default();
        share.size += entry.size;
        share.numbers.insert(self.last);
        self.entries.insert(self.last, entry);
        Some(left)
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.entries.remove(&number)?;
        self.numbers.remove(&entry.handle);
        self.by_end.remove(&(entry.until, number));
        let room = self.rooms.get_mut(&entry.room)?;
        room.size -= entry.size;
        let share = room.shares.get_mut(&entry.peer)?;
        share.size -= entry.size;
        share.numbers.remove(&number);
        if share.numbers.is_empty() {
            room.shares.remove(&entry.peer);
        }
        Some(entry)
    }

    /// Removes the results whose time is over.
    pub(super) fn remove_ended(&mut self, now: Instant) -> Vec<Entry> {
        let mut ended = Vec::new();
        while let Some((until, number)) = self.by_end.first().copied()
            && until <= now
        {
            ended.extend(self.remove(number));
        }
        ended
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let shares = self.rooms.values().flat_map(|room| room.shares.values());
        let shared: usize = shares.map(|share| share.numbers.len()).sum();
        assert_eq!(
            [self.numbers.len(), self.by_end.len(), shared],
            [self.entries.len(); 3]
        );
        self.entries.len()
    }
}

impl Room {
    /// The oldest result of the peer that keeps most, if this peer keeps one of `size` more.
    fn next_to_leave(&self, peer: &Peer, size: usize) -> Option<u64> {
        let with_new = |(of, share): &(&Peer, &Share)| {
            let more = if *of == peer { size } else { 0 };
            (share.size + more, *of == peer)
        };
        let (_, share) = self.shares.iter().max_by_key(with_new)?;
        share.numbers.first().copied()
    }
}
