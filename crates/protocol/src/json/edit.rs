//! Changing text by splicing: everything outside the edited ranges keeps its bytes.

use std::ops::Range;

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Json, Member};

/// Replacements to be made in a text. Ranges are those of the original text.
#[derive(Clone, Debug)]
pub struct Edits {
    base: Bytes,
    edits: SmallVec<[(Range<usize>, Bytes); FEW]>,
}

/// Edits that are stored without an allocation.
const FEW: usize = 3;
/// Up to so many bytes an edited text is copied, which costs less than sharing parts of the original.
const SHORT: usize = 8 << 10;

impl Edits {
    /// No edits yet.
    #[must_use]
    pub fn new(base: Bytes) -> Self {
        Self { base, edits: SmallVec::new() }
    }

    /// Replaces the text at `range`. Ranges must not overlap; one that does, or that lies outside
    /// the text, is ignored by [`Edits::finish`].
    pub fn replace(&mut self, range: Range<usize>, with: impl Into<Bytes>) {
        self.edits.push((range, with.into()));
    }

    /// Inserts a member, or several, at the front of the object that begins at `object_start`.
    /// `members` is their text without outer commas, e.g. `"a":1,"b":2`.
    pub fn insert_members(&mut self, object_start: usize, members: &[u8]) {
        self.insert_owned_members(object_start, Bytes::copy_from_slice(members));
    }

    /// Like [`Edits::insert_members`], for text that needs no copy.
    pub fn insert_owned_members(&mut self, object_start: usize, members: Bytes) {
        if members.is_empty() {
            return;
        }
        let at = object_start + 1;
        self.edits.push((at..at, members));
        let first = super::scan::white_space(&self.base, at);
        if self.base.get(first) != Some(&b'}') {
            self.edits.push((at..at, Bytes::from_static(b",")));
        }
    }

    /// The edited text: a short one in one piece, a longer one in pieces that share memory with the original.
    #[must_use]
    pub fn finish(mut self) -> Chunks {
        self.put_in_order();
        let (out, new) =
            self.edits.iter().fold((0, 0), |(out, new), (range, with)| (out + range.len(), new + with.len()));
        let len = self.base.len().saturating_sub(out) + new;
        if len <= SHORT {
            return self.copied(len).into();
        }
        let mut chunks = Chunks::default();
        let mut done = 0;
        for (range, with) in self.edits {
            chunks.push(self.base.slice(done..range.start));
            chunks.push(with);
            done = range.end;
        }
        chunks.push(self.base.slice(done..));
        chunks
    }

    /// The edited text, `len` bytes of it, in memory of its own.
    fn copied(&self, len: usize) -> Bytes {
        let base = |range: Range<usize>| self.base.get(range).unwrap_or_default();
        let mut whole = Vec::with_capacity(len);
        let mut done = 0;
        for (range, with) in &self.edits {
            whole.extend_from_slice(base(done..range.start));
            whole.extend_from_slice(with);
            done = range.end;
        }
        whole.extend_from_slice(base(done..self.base.len()));
        whole.into()
    }

    /// Sorts the edits, and drops those that overlap or lie outside.
    fn put_in_order(&mut self) {
        // An insertion goes before a replacement that begins at the same place.
        self.edits.sort_by_key(|(range, _)| (range.start, range.end));
        let mut done = 0;
        let end = self.base.len();
        self.edits.retain(|(range, _)| {
            let fits = done <= range.start && range.start <= range.end && range.end <= end;
            debug_assert!(fits, "overlapping edit, or one outside of the text, at {range:?}");
            done = if fits { range.end } else { done };
            fits
        });
    }

    /// The edited text as one value; the caller's edits must have kept it one.
    #[must_use]
    pub fn finish_json(self) -> Json {
        Json::trusted(self.finish().into_bytes())
    }
}

/// Pieces of text; as many as an edited message has are stored without an allocation.
type Parts = SmallVec<[Bytes; 2 * FEW]>;

/// Text in pieces, to be sent one after the other.
#[derive(Clone, Debug, Default)]
pub struct Chunks {
    parts: Parts,
    len: usize,
}

impl Chunks {
    /// Appends a piece; empty ones are left out.
    pub fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.len += part.len();
            self.parts.push(part);
        }
    }

    /// The length in bytes of all pieces together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no text at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces in order.
    #[must_use]
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// The pieces in order.
    #[must_use]
    pub fn into_parts(self) -> impl ExactSizeIterator<Item = Bytes> {
        self.parts.into_iter()
    }

    /// The text in one piece; copies only if there are several.
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        if self.parts.len() == 1 {
            return self.parts.pop().unwrap_or_default();
        }
        let mut whole = Vec::with_capacity(self.len);
        for part in &self.parts {
            whole.extend_from_slice(part);
        }
        Bytes::from(whole)
    }
}

impl From<Bytes> for Chunks {
    fn from(text: Bytes) -> Self {
        [text].into_iter().collect()
    }
}

impl FromIterator<Bytes> for Chunks {
    fn from_iter<I: IntoIterator<Item = Bytes>>(parts: I) -> Self {
        let parts = parts.into_iter();
        let mut chunks = Self { parts: Parts::with_capacity(parts.size_hint().0), len: 0 };
        parts.for_each(|part| chunks.push(part));
        chunks
    }
}

/// The object without the members for which `keep` is false, and with `added` (raw member text without
/// outer commas) appended. Kept members keep their bytes and the white space before them.
#[must_use]
pub fn rewrite_object(object: &Json, mut keep: impl FnMut(&Member) -> bool, added: &[u8]) -> Json {
    let text = object.bytes();
    let mut out = Vec::with_capacity(text.len() + added.len() + 2);
    out.push(b'{');
    for member in object.members() {
        if !keep(&member) {
            continue;
        }
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(text.get(member.lead..member.value.end).unwrap_or_default());
    }
    if !added.is_empty() {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(added);
    }
    out.push(b'}');
    Json::trusted(Bytes::from(out))
}

/// The array with only the elements for whose index `keep` is true. The text around them keeps its
/// bytes.
#[must_use]
pub fn retain_elements(array: &Json, mut keep: impl FnMut(usize) -> bool) -> Json {
    let text = array.bytes();
    let elements: Vec<Range<usize>> = array.elements().collect();
    let slice = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let (Some(first), Some(last)) = (elements.first(), elements.last()) else { return array.clone() };
    let mut out = slice(0, first.start).to_vec();
    let mut previous_end = first.start;
    let mut kept_any = false;
    for (index, element) in elements.iter().enumerate() {
        if keep(index) {
            // The comma and white space before an element go with it.
            out.extend_from_slice(slice(if kept_any { previous_end } else { element.start }, element.end));
            kept_any = true;
        }
        previous_end = element.end;
    }
    out.extend_from_slice(slice(last.end, text.len()));
    Json::trusted(Bytes::from(out))
}
