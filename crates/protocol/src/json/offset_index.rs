//! An index of a validated text, so that later lookups do not read the text again. It contains the
//! offsets of the members of its outermost objects, and the ends of its long values.
//!
//! It is only an optimisation: anything that it lacks is found by reading the text.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

/// How many levels of objects and arrays have their members indexed: the message, its parameters or
/// result, and the objects in these.
pub(super) const LEVELS: usize = 3;
/// The most members in an index.
const MOST_MEMBERS: usize = 64;
/// The number of members that are stored without a further allocation.
const FEW_MEMBERS: usize = 20;
/// The shortest value that is indexed, in bytes. Reading a shorter one is as quick as a lookup.
pub(super) const LONG: usize = 512;
/// The most long values in an index. If there are more, the longest ones are kept.
const MOST: usize = 64;

/// The index of a text, which may be a slice of the validated text.
#[derive(Clone, Debug, Default)]
pub(super) struct OffsetIndex {
    offsets: Option<Arc<Offsets>>,
    /// The offset of the slice in the validated text.
    base: usize,
}

/// The offsets in the validated text.
#[derive(Debug, Default)]
struct Offsets {
    /// The members, sorted by offset.
    members: SmallVec<[MemberOffsets; FEW_MEMBERS]>,
    /// The start and the end of each long value, sorted by start.
    values: Vec<(usize, usize)>,
    /// Whether the text was parsed. Otherwise only its structure was validated, or it was edited.
    is_parsed: bool,
}

/// The offsets of a member whose key has no escapes.
#[derive(Clone, Copy, Debug)]
struct MemberOffsets {
    /// The key with its quotes.
    key: u32,
    key_end: u32,
    value: u32,
    value_end: u32,
}

impl OffsetIndex {
    /// The index of the slice `text`, which begins at `start`.
    #[inline]
    pub(super) fn slice(&self, start: usize, text: &[u8]) -> Self {
        // Other short texts have nothing to index.
        if text.len() < LONG && text.first() != Some(&b'{') {
            return Self::default();
        }
        Self {
            offsets: self.offsets.clone(),
            base: self.base + start,
        }
    }

    /// The index for a stored copy of `text`. Short texts get none, because it is not worth its
    /// memory.
    pub(super) fn detached(&self, text: &[u8]) -> Self {
        if text.len() < LONG {
            Self::default()
        } else {
            self.clone()
        }
    }

    /// The index of a text of `length` bytes after edits. Each edit gives a range and the length of
    /// its new text. Ranges must be in order, within the text, and must not overlap.
    pub(super) fn edited<const N: usize>(
        &self,
        length: usize,
        edits: [(Range<usize>, usize); N],
    ) -> Self {
        let moved = self.offsets.as_ref().and_then(|offsets| {
            let base = self.base;
            let edits = edits.map(|(range, new)| (base + range.start..base + range.end, new));
            offsets.moved(&(base..base + length), &edits)
        });
        Self {
            offsets: moved.map(Arc::new),
            base: 0,
        }
    }

    /// Whether the text is a slice of parsed text, as far as known.
    pub(super) fn is_of_parsed_text(&self) -> bool {
        self.offsets
            .as_ref()
            .is_some_and(|offsets| offsets.is_parsed)
    }

    /// A cursor for one pass over the value that begins at `at`.
    #[inline]
    pub(super) fn cursor(&self, at: usize) -> IndexCursor<'_> {
        let Some(offsets) = &self.offsets else {
            return IndexCursor::default();
        };
        let base = self.base + at;
        let first = offsets
            .members
            .partition_point(|member| (member.key as usize) < base);
        let members = offsets.members.get(first..).unwrap_or_default();
        let values = if offsets.values.is_empty() {
            &[]
        } else {
            let first = offsets.values.partition_point(|(start, _)| *start < base);
            offsets.values.get(first..).unwrap_or_default()
        };
        IndexCursor {
            members,
            values,
            base,
        }
    }
}

impl Offsets {
    /// The offsets within `whole` after `edits`, relative to its start. Offsets within replaced
    /// values are left out. `None` if an offset does not fit.
    fn moved(&self, whole: &Range<usize>, edits: &[(Range<usize>, usize)]) -> Option<Self> {
        let mut pass = Moving {
            edits,
            by: 0usize.wrapping_sub(whole.start),
        };
        let narrow = |at: usize| u32::try_from(at).ok();
        let mut members = SmallVec::new();
        let first = self
            .members
            .partition_point(|member| (member.key as usize) < whole.start);
        for member in self
            .members
            .get(first..)?
            .iter()
            .take_while(|member| (member.key as usize) < whole.end)
        {
            if !pass.reach(member.key as usize) {
                continue;
            }
            let moved = |at: u32| narrow(pass.moved(at as usize));
            let (key, key_end, value) = (
                moved(member.key)?,
                moved(member.key_end)?,
                moved(member.value)?,
            );
            let value_end = narrow(pass.moved_end(member.value_end as usize))?;
            members.push(MemberOffsets {
                key,
                key_end,
                value,
                value_end,
            });
        }
        pass = Moving {
            edits,
            by: 0usize.wrapping_sub(whole.start),
        };
        let mut values = Vec::new();
        for (start, end) in self
            .values
            .iter()
            .filter(|(start, end)| *start >= whole.start && *end <= whole.end)
        {
            if pass.reach(*start) {
                values.push((pass.moved(*start), pass.moved_end(*end)));
            }
        }
        Some(Self {
            members,
            values,
            is_parsed: false,
        })
    }
}

/// Moves offsets by the edits before them, in one pass over a text.
struct Moving<'a> {
    /// The edits that are not passed yet.
    edits: &'a [(Range<usize>, usize)],
    /// The distance by which the passed edits move later text; it wraps.
    by: usize,
}

impl Moving<'_> {
    /// Passes the edits that end at or before `at`. Returns whether the text at `at` stays, which
    /// means that it is not within the next edit.
    #[inline]
    fn reach(&mut self, at: usize) -> bool {
        while let Some(((range, new), rest)) = self.edits.split_first() {
            if at < range.end {
                return at < range.start;
            }
            (self.edits, self.by) = (rest, self.by.wrapping_add(*new).wrapping_sub(range.len()));
        }
        true
    }

    /// The new place of an offset that has been reached, or of a later one before the next edit.
    #[inline]
    fn moved(&self, at: usize) -> usize {
        at.wrapping_add(self.by)
    }

    /// The new end of a value that has been reached and may contain edits.
    #[inline]
    fn moved_end(&self, end: usize) -> usize {
        let within = self.edits.iter().take_while(|(range, _)| range.end <= end);
        within.fold(self.moved(end), |to, (range, new)| {
            to.wrapping_add(*new).wrapping_sub(range.len())
        })
    }
}

/// The part of an index after the current position of a pass.
#[derive(Clone, Debug, Default)]
pub(super) struct IndexCursor<'a> {
    members: &'a [MemberOffsets],
    values: &'a [(usize, usize)],
    base: usize,
}

impl IndexCursor<'_> {
    /// The key and the value of the member at `start`, if it is indexed. `start` must not decrease
    /// from one call to the next.
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
                return Some((
                    place(member.key, member.key_end),
                    place(member.value, member.value_end),
                ));
            }
        }
        None
    }

    /// The end of the value at `start`, if it is indexed. `start` must not decrease from one call
    /// to the next.
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

/// Builds an index while a text is validated.
#[derive(Debug)]
pub(super) struct IndexBuilder {
    offsets: Offsets,
    /// The index of the member whose value is being read, for each level.
    open: [usize; LEVELS],
    most_members: usize,
    least: usize,
}

impl IndexBuilder {
    /// A builder for a text of `len` bytes.
    #[inline]
    pub(super) fn new(len: usize) -> Self {
        Self {
            offsets: Offsets::default(),
            open: [usize::MAX; LEVELS],
            most_members: if u32::try_from(len).is_ok() {
                MOST_MEMBERS
            } else {
                0
            },
            least: if len < 2 * LONG { usize::MAX } else { LONG },
        }
    }

    /// Notes that a member with this `key` has a value at `value`, at this level of nesting.
    /// `plain` means that the key has no escapes.
    #[inline]
    pub(super) fn member_begins(
        &mut self,
        level: usize,
        key: Range<usize>,
        plain: bool,
        value: usize,
    ) {
        let Some(open) = self.open.get_mut(level.wrapping_sub(1)) else {
            return;
        };
        if !plain || self.offsets.members.len() >= self.most_members {
            *open = usize::MAX;
            return;
        }
        *open = self.offsets.members.len();
        // The numbers fit, because `most_members` is zero for a longer text.
        let (key, key_end, value) = (key.start as u32, key.end as u32, value as u32);
        self.offsets.members.push(MemberOffsets {
            key,
            key_end,
            value,
            value_end: value,
        });
    }

    /// Notes the end of the current member's value at this level.
    #[inline]
    pub(super) fn member_ends(&mut self, level: usize, end: usize) {
        let open = self
            .open
            .get(level.wrapping_sub(1))
            .and_then(|open| self.offsets.members.get_mut(*open));
        if let Some(member) = open {
            member.value_end = end as u32;
        }
    }

    /// Adds a value that has ended, if it is long.
    #[inline]
    pub(super) fn add_value(&mut self, value: Range<usize>) {
        if value.len() >= self.least {
            self.add_long_value(value);
        }
    }

    #[cold]
    fn add_long_value(&mut self, value: Range<usize>) {
        while self.offsets.values.len() >= MOST {
            self.least = self.least.saturating_mul(2);
            let least = self.least;
            self.offsets
                .values
                .retain(|(start, end)| end - start >= least);
        }
        if value.len() >= self.least {
            self.offsets.values.push((value.start, value.end));
        }
    }

    /// The index for the slice of the text that begins at `start`. `is_parsed` says whether more
    /// than the structure was validated.
    pub(super) fn finish(mut self, start: usize, is_parsed: bool) -> OffsetIndex {
        if self.offsets.members.is_empty() && self.offsets.values.is_empty() {
            return OffsetIndex::default();
        }
        self.offsets.values.sort_unstable();
        self.offsets.is_parsed = is_parsed;
        OffsetIndex {
            offsets: Some(Arc::new(self.offsets)),
            base: start,
        }
    }
}
