//! What is noted of a text while it is validated, so that whoever walks it later does not read it
//! again: where the members of its outermost objects stand, and where the long values end.
//!
//! Nothing depends on a place being noted: a walk reads what it finds none for.
//!
//! Must not know: which members matter.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

/// Members are noted down to so many levels of objects and arrays: those of a message, of its
/// parameters or its result, and of the objects in these.
pub(super) const LEVELS: usize = 3;
/// Members noted at most; further ones are read when they are walked over.
const MOST_MEMBERS: usize = 64;
/// Members noted without memory of their own.
const FEW_MEMBERS: usize = 20;
/// A value shorter than this many bytes is read again as quickly as it is looked up.
pub(super) const LONG: usize = 512;
/// Long values noted at most; of more, the longest.
const MOST: usize = 64;

/// What is known of a text that may be a slice of the one that was validated.
#[derive(Clone, Debug, Default)]
pub(super) struct OffsetIndex {
    places: Option<Arc<Offsets>>,
    /// Where the slice begins.
    base: usize,
}

/// The places of what was noted, in the text that was validated.
#[derive(Debug, Default)]
struct Offsets {
    /// By where they begin.
    members: SmallVec<[MemberOffsets; FEW_MEMBERS]>,
    /// The long values, by where they begin.
    values: Vec<(usize, usize)>,
}

/// Where a member stands whose key has no escapes.
#[derive(Clone, Copy, Debug)]
struct MemberOffsets {
    /// The key with its quotes.
    key: u32,
    key_end: u32,
    value: u32,
    value_end: u32,
}

impl OffsetIndex {
    /// What is known of the slice `text`, which begins at `start`.
    #[inline]
    pub(super) fn slice(&self, start: usize, text: &[u8]) -> Self {
        // In anything else that is short there is nothing to be noted.
        if text.len() < LONG && text.first() != Some(&b'{') {
            return Self::default();
        }
        Self { places: self.places.clone(), base: self.base + start }
    }

    /// What is worth keeping with a `text` that is kept for long.
    pub(super) fn detached(&self, text: &[u8]) -> Self {
        if text.len() < LONG { Self::default() } else { self.clone() }
    }

    /// What is known of a text of `length` bytes once the value at `range` has given way to one of `new` bytes.
    pub(super) fn replaced(&self, length: usize, range: &Range<usize>, new: usize) -> Self {
        if range.start > range.end || range.end > length {
            return self.clone();
        }
        let moved = self.places.as_ref().and_then(|places| {
            let replaced = self.base + range.start..self.base + range.end;
            places.moved(&(self.base..self.base + length), &replaced, new)
        });
        Self { places: moved.map(Arc::new), base: 0 }
    }

    /// For one walk through the value that begins at `at`, from its beginning.
    #[inline]
    pub(super) fn ahead(&self, at: usize) -> Ahead<'_> {
        let Some(places) = &self.places else { return Ahead::default() };
        let base = self.base + at;
        let first = places.members.partition_point(|member| (member.key as usize) < base);
        let members = places.members.get(first..).unwrap_or_default();
        let values = if places.values.is_empty() {
            &[]
        } else {
            let first = places.values.partition_point(|(start, _)| *start < base);
            places.values.get(first..).unwrap_or_default()
        };
        Ahead { members, values, base }
    }
}

impl Offsets {
    /// The places within `whole`, counted from its beginning, once the value at `range` is one of `new` bytes: without
    /// those within that value. `None` if they cannot be told.
    fn moved(&self, whole: &Range<usize>, range: &Range<usize>, new: usize) -> Option<Self> {
        let place = |start: usize, end: usize| {
            let before = start - whole.start;
            // What begins behind the value moves as its end does; so does the end of what it stands in.
            let behind = |at: usize| (at + new).checked_sub(range.len() + whole.start);
            match (start >= range.end, end >= range.end) {
                (true, _) => behind(start).zip(behind(end)),
                (false, true) => Some(before).zip(behind(end)),
                (false, false) => Some((before, end - whole.start)),
            }
        };
        let narrow = |at: usize| u32::try_from(at).ok();
        let mut members = SmallVec::new();
        let first = self.members.partition_point(|member| (member.key as usize) < whole.start);
        for member in self.members.get(first..)?.iter().take_while(|member| (member.key as usize) < whole.end) {
            if range.contains(&(member.key as usize)) {
                continue;
            }
            let (key, key_end) = place(member.key as usize, member.key_end as usize)?;
            let (value, value_end) = place(member.value as usize, member.value_end as usize)?;
            let (key, key_end) = (narrow(key)?, narrow(key_end)?);
            members.push(MemberOffsets { key, key_end, value: narrow(value)?, value_end: narrow(value_end)? });
        }
        let inside = self.values.iter().filter(|(start, end)| *start >= whole.start && *end <= whole.end);
        let kept = inside.filter(|(start, end)| !(range.contains(start) && *end <= range.end));
        let values = kept.map(|(start, end)| place(*start, *end)).collect::<Option<_>>()?;
        Some(Self { members, values })
    }
}

/// What a walk has not come to yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead<'a> {
    members: &'a [MemberOffsets],
    values: &'a [(usize, usize)],
    base: usize,
}

impl Ahead<'_> {
    /// The key and the value of the member that begins at `start`, if it was noted. `start` must not
    /// decrease from one question to the next.
    #[inline]
    pub(super) fn member_at(&mut self, start: usize) -> Option<(Range<usize>, Range<usize>)> {
        let start = start + self.base;
        while let Some((member, rest)) = self.members.split_first() {
            let key = member.key as usize;
            if key > start {
                return None;
            }
            self.members = rest;
            if key == start {
                let place = |from: u32, to: u32| from as usize - self.base..to as usize - self.base;
                return Some((place(member.key, member.key_end), place(member.value, member.value_end)));
            }
        }
        None
    }

    /// Where the value that begins at `start` ends, if it was noted. `start` must not decrease from
    /// one question to the next.
    pub(super) fn end_of(&mut self, start: usize) -> Option<usize> {
        let start = start + self.base;
        while let Some(((begins, ends), rest)) = self.values.split_first() {
            if *begins >= start {
                return (*begins == start).then(|| ends - self.base);
            }
            self.values = rest;
        }
        None
    }
}

/// Notes members and long values while a text is validated.
#[derive(Debug)]
pub(super) struct IndexBuilder {
    places: Offsets,
    /// Which of the members is the one whose value is being read, for each level.
    open: [usize; LEVELS],
    most_members: usize,
    least: usize,
}

impl IndexBuilder {
    /// For a text of `len` bytes.
    #[inline]
    pub(super) fn new(len: usize) -> Self {
        Self {
            places: Offsets::default(),
            open: [usize::MAX; LEVELS],
            most_members: if u32::try_from(len).is_ok() { MOST_MEMBERS } else { 0 },
            least: if len < 2 * LONG { usize::MAX } else { LONG },
        }
    }

    /// The value at `value` of the member with this `key` begins, within so many levels. `plain`:
    /// there are no escapes in the key.
    #[inline]
    pub(super) fn member_begins(&mut self, level: usize, key: Range<usize>, plain: bool, value: usize) {
        let Some(open) = self.open.get_mut(level.wrapping_sub(1)) else { return };
        if !plain || self.places.members.len() >= self.most_members {
            *open = usize::MAX;
            return;
        }
        *open = self.places.members.len();
        // They fit, or there would be no room.
        let (key, key_end, value) = (key.start as u32, key.end as u32, value as u32);
        self.places.members.push(MemberOffsets { key, key_end, value, value_end: value });
    }

    /// The value of the member that is being read within so many levels ends.
    #[inline]
    pub(super) fn member_ends(&mut self, level: usize, end: usize) {
        let open = self.open.get(level.wrapping_sub(1)).and_then(|open| self.places.members.get_mut(*open));
        if let Some(member) = open {
            member.value_end = end as u32;
        }
    }

    /// A value ends.
    #[inline]
    pub(super) fn note(&mut self, value: Range<usize>) {
        if value.len() >= self.least {
            self.keep(value);
        }
    }

    #[cold]
    fn keep(&mut self, value: Range<usize>) {
        while self.places.values.len() >= MOST {
            self.least = self.least.saturating_mul(2);
            let least = self.least;
            self.places.values.retain(|(start, end)| end - start >= least);
        }
        if value.len() >= self.least {
            self.places.values.push((value.start, value.end));
        }
    }

    /// What was noted, for the slice of the text that begins at `start`.
    pub(super) fn finish(mut self, start: usize) -> OffsetIndex {
        if self.places.members.is_empty() && self.places.values.is_empty() {
            return OffsetIndex::default();
        }
        self.places.values.sort_unstable();
        OffsetIndex { places: Some(Arc::new(self.places)), base: start }
    }
}
