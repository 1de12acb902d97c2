//! Where the long values within a long text stand, noted while it is validated: whoever walks the
//! text later steps over them instead of reading them again.
//!
//! Must not know: which values matter.

use std::ops::Range;
use std::sync::Arc;

/// A value shorter than this many bytes is read again as quickly as it is looked up.
pub(super) const LONG: usize = 512;
/// Values noted at most; of more, the longest.
const MOST: usize = 64;

/// The places of long values, by where they begin, in the text that was validated.
type Places = Arc<[(usize, usize)]>;

/// The long values within a text that may be a slice of the one that was validated.
#[derive(Clone, Debug, Default)]
pub(super) struct Landmarks {
    places: Option<Places>,
    /// Where the slice begins.
    base: usize,
}

impl Landmarks {
    /// What is known of the slice that begins at `start` and has `len` bytes.
    pub(super) fn slice(&self, start: usize, len: usize) -> Self {
        if len < LONG {
            return Self::default();
        }
        Self { places: self.places.clone(), base: self.base + start }
    }

    /// For one walk through the text, from its beginning.
    pub(super) fn ahead(&self) -> Ahead<'_> {
        let all = self.places.as_deref().unwrap_or_default();
        let first = all.partition_point(|(start, _)| *start < self.base);
        Ahead { places: all.get(first..).unwrap_or_default(), base: self.base }
    }
}

/// The long values that a walk has not come to yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead<'a> {
    places: &'a [(usize, usize)],
    base: usize,
}

impl Ahead<'_> {
    /// Where the value that begins at `start` ends, if it was noted. `start` must not decrease from
    /// one question to the next.
    pub(super) fn end_of(&mut self, start: usize) -> Option<usize> {
        let start = start + self.base;
        while let Some(((begins, ends), rest)) = self.places.split_first() {
            if *begins >= start {
                return (*begins == start).then(|| ends - self.base);
            }
            self.places = rest;
        }
        None
    }
}

/// Notes long values while a text is validated.
#[derive(Debug)]
pub(super) struct Surveyor {
    places: Vec<(usize, usize)>,
    least: usize,
}

impl Surveyor {
    /// For a text of `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        Self { places: Vec::new(), least: if len < 2 * LONG { usize::MAX } else { LONG } }
    }

    #[inline]
    pub(super) fn note(&mut self, value: Range<usize>) {
        if value.len() >= self.least {
            self.keep(value);
        }
    }

    fn keep(&mut self, value: Range<usize>) {
        while self.places.len() >= MOST {
            self.least = self.least.saturating_mul(2);
            let least = self.least;
            self.places.retain(|(start, end)| end - start >= least);
        }
        if value.len() >= self.least {
            self.places.push((value.start, value.end));
        }
    }

    /// What was noted, for the slice of the text that begins at `start`.
    pub(super) fn finish(mut self, start: usize) -> Landmarks {
        if self.places.is_empty() {
            return Landmarks::default();
        }
        self.places.sort_unstable();
        Landmarks { places: Some(self.places.into()), base: start }
    }
}
