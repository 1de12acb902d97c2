//! JSON as text: validated once, then sliced by reference and spliced by edits.
//!
//! [`Json`] holds one complete JSON value exactly as it was received. Numbers, escapes, key order
//! and unknown members are only read on request, and never rewritten.

mod block;
mod brackets;
mod build;
mod edit;
pub mod member_name;
mod object;
mod offset_index;
mod scan;
mod scan_string;
mod strict;
mod string;
mod syntax_error;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
#[doc(hidden)]
pub use std::sync::LazyLock as Word;

use bytes::Bytes;
pub use memchr::memmem::Finder;

pub use build::{ArrayBuilder, ObjectBuilder, pointer_name, pointer_step, quote};
pub use edit::{Chunks, Edits, MemberChange, replace_elements, retain_elements, rewrite_object};
pub use object::{AmbiguousMember, DuplicateMember, Elements, Member, Members};
use offset_index::{IndexBuilder, OffsetIndex};
pub use scan::MAX_NESTING;
pub use strict::{STRICT_NESTING, Unreadable};
pub use syntax_error::{SyntaxError, SyntaxErrorKind};

/// The default limit for the nesting depth.
pub const DEFAULT_NESTING: usize = 128;

/// One JSON value as text.
///
/// Invariant: the bytes are UTF-8 and contain exactly one value without white space around it. The
/// value is valid by RFC 8259, or as far as [`Json::validate_structure`] checks.
#[derive(Clone)]
pub struct Json(Bytes, OffsetIndex);

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Json {}

/// The estimated number of tokens of a JSON text of this length for a model. Definitions of tools
/// have 4.3 bytes for each token of o200k_base.
pub fn estimated_tokens(bytes: usize) -> usize {
    bytes.saturating_mul(10) / 43
}

impl Json {
    /// Validates `text` as one JSON value with at most `nesting` levels of arrays and objects.
    pub fn parse(text: Bytes, nesting: usize) -> Result<Self, SyntaxError> {
        let mut index = IndexBuilder::new(text.len());
        let range = scan::document(&text, nesting, &mut index)?;
        let index = index.finish(range.start, true);
        Ok(Self(text.slice(range), index))
    }

    /// Validates only the structure of `text`, which is enough for forwarding.
    ///
    /// It checks that the text is UTF-8 and that strings end. Strings must have no control
    /// characters and no malformed escapes. Brackets must match and nest at most `nesting` levels,
    /// and nothing may follow. Tokens between brackets and strings are not checked. It takes a
    /// third to a half of the time of [`Json::parse`].
    pub fn validate_structure(text: Bytes, nesting: usize) -> Result<Self, SyntaxError> {
        let mut index = IndexBuilder::new(text.len());
        let range = scan::structure(&text, nesting, &mut index)?;
        let index = index.finish(range.start, false);
        Ok(Self(text.slice(range), index))
    }

    /// A value written in the program's own source. Text that is not JSON becomes `null`.
    pub fn literal(text: &'static str) -> Self {
        Self::parse(Bytes::from_static(text.as_bytes()), DEFAULT_NESTING)
            .unwrap_or_else(|_| Self::null())
    }

    /// `null`.
    pub fn null() -> Self {
        Self(Bytes::from_static(b"null"), OffsetIndex::default())
    }

    /// `{}`.
    pub fn empty_object() -> Self {
        Self(Bytes::from_static(b"{}"), OffsetIndex::default())
    }

    /// `text` as a JSON string.
    pub fn string(text: &str) -> Self {
        Self(Bytes::from(quote(text)), OffsetIndex::default())
    }

    /// `number` as a JSON number.
    pub fn integer(number: i64) -> Self {
        Self(Bytes::from(number.to_string()), OffsetIndex::default())
    }

    /// The elements of an array.
    pub fn items(&self) -> impl Iterator<Item = Self> {
        self.elements().map(|element| self.slice(element))
    }

    /// The characters of the string that the member `key` is.
    pub fn text_at(&self, key: &str) -> Option<String> {
        Some(self.peek(key)?.as_str()?.into_owned())
    }

    /// Whether the member `key` is `true`.
    pub fn flag(&self, key: &str) -> bool {
        self.peek(key).is_some_and(Value::is_true)
    }

    /// Whether the member `key` is the string `text`.
    pub fn says(&self, key: &str, text: &str) -> bool {
        self.peek(key).is_some_and(|value| value.is_str(text))
    }

    /// The range of the value of the first member `key`.
    pub fn place(&self, key: &str) -> Option<Range<usize>> {
        let member = self.members().find(|member| member.is(self, key))?;
        Some(member.value)
    }

    /// Whether an object has any member.
    pub fn has_members(&self) -> bool {
        self.members().next().is_some()
    }

    /// `true` or `false`.
    pub fn boolean(is_true: bool) -> Self {
        Self::literal(if is_true { "true" } else { "false" })
    }

    /// Wraps text that is one value because this module sliced or built it.
    fn from_trusted(text: Bytes) -> Self {
        debug_assert!(
            scan::structure(&text, MAX_NESTING, &mut IndexBuilder::new(0))
                .is_ok_and(|range| range == (0..text.len()))
        );
        Self(text, OffsetIndex::default())
    }

    /// The text, as received.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The text, as received.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// The text, as received.
    pub fn as_text(&self) -> &str {
        // By the invariant the text is UTF-8. If the invariant were broken, the result would be
        // empty.
        simdutf8::basic::from_utf8(&self.0).unwrap_or_default()
    }

    /// Whether a string in the text may contain this [`word`](crate::word). Almost none contains a
    /// rare word, and reading all members of a large value takes time. An escape could hide the word.
    pub fn may_contain(&self, word: &Finder<'static>) -> bool {
        let has = |word: &Finder<'_>| word.find(&self.0).is_some();
        has(word) || has(crate::word!("\\u"))
    }

    /// The type of the value, which its first byte tells.
    pub fn kind(&self) -> Kind {
        self.value().kind()
    }

    /// Whether this is an object.
    pub fn is_object(&self) -> bool {
        self.kind() == Kind::Object
    }

    /// Whether this is `null`.
    pub fn is_null(&self) -> bool {
        self.kind() == Kind::Null
    }

    /// Whether this is `true`.
    pub fn is_true(&self) -> bool {
        self.value().is_true()
    }

    /// The characters of a string, with escapes decoded. `None` for other types, and for strings
    /// with a lone surrogate, which is not Unicode text.
    pub fn as_str(&self) -> Option<Cow<'_, str>> {
        self.value().as_str()
    }

    /// The value at a JSON Pointer (RFC 6901, 4).
    pub fn at_pointer(&self, pointer: &str) -> Option<Self> {
        if pointer.is_empty() {
            return Some(self.clone());
        }
        let mut names = pointer.strip_prefix('/')?.split('/').map(pointer_name);
        names.try_fold(self.clone(), |value, name| {
            if value.is_object() {
                return value.get(&name);
            }
            let is_index = name == "0" || !name.starts_with(['0', '+']);
            value.items().nth(name.parse().ok().filter(|_| is_index)?)
        })
    }

    /// [`as_str`](Self::as_str) as an owned text.
    pub fn to_str(&self) -> Option<String> {
        self.as_str().map(Cow::into_owned)
    }

    /// Whether this is the string `text`, whatever escapes it contains.
    pub fn is_str(&self, text: &str) -> bool {
        self.value().is_str(text)
    }

    /// The value of a number that is written as a plain integer and fits.
    pub fn as_i64(&self) -> Option<i64> {
        match self.kind() {
            Kind::Number => self.as_text().parse().ok(),
            _ => None,
        }
    }

    /// Whether this is a number without exponent, whose fraction is zero if it has one.
    pub fn is_integer(&self) -> bool {
        self.value().is_integer()
    }

    /// The members of an object in order; none for other types.
    pub fn members(&self) -> Members<'_> {
        Members::new(&self.0, self.1.cursor(0))
    }

    /// The elements of an array in order; none for other types.
    pub fn elements(&self) -> Elements<'_> {
        Elements::new(&self.0, self.1.cursor(0))
    }

    /// The value of the first member called `key`.
    pub fn get(&self, key: &str) -> Option<Self> {
        Some(self.slice(object::value_range(&self.0, self.1.cursor(0), key)?))
    }

    /// The value of the first member called `key`, borrowed.
    pub fn peek(&self, key: &str) -> Option<Value<'_>> {
        self.peek_in(0..self.0.len(), key)
    }

    /// The value of the first member called `key` of the object at `range` (as for
    /// [`Json::slice`]), borrowed.
    pub fn peek_in(&self, range: Range<usize>, key: &str) -> Option<Value<'_>> {
        let cursor = self.1.cursor(range.start);
        let object = self.0.get(range)?;
        object
            .get(object::value_range(object, cursor, key)?)
            .map(Value)
    }

    /// The value itself, borrowed.
    pub fn value(&self) -> Value<'_> {
        Value(&self.0)
    }

    /// The value at `range` (as for [`Json::slice`]), borrowed.
    pub fn value_at(&self, range: Range<usize>) -> Option<Value<'_>> {
        self.0.get(range).map(Value)
    }

    /// The ranges of the values of `keys`, in one pass. A duplicate key is an error, because two
    /// readers could disagree on which one counts.
    pub fn find<const N: usize>(
        &self,
        keys: [&str; N],
    ) -> Result<[Option<Range<usize>>; N], DuplicateMember> {
        object::find(self, keys)
    }

    /// Like [`Json::find`], for an object that a less strict program will read too. A member that
    /// such a program could take for one of `keys` is an error as well.
    pub fn find_distinct<const N: usize>(
        &self,
        keys: &[&str; N],
    ) -> Result<[Option<Range<usize>>; N], AmbiguousMember> {
        object::find_distinct(self, keys)
    }

    /// The value at `range`, which must come from [`Json::members`], [`Json::elements`] or
    /// [`Json::find`] of the same value.
    pub fn slice(&self, range: Range<usize>) -> Self {
        if range.start > range.end || range.end > self.0.len() {
            return Self::null();
        }
        let start = range.start;
        let text = self.0.slice(range);
        let index = self.1.slice(start, &text);
        Self(text, index)
    }

    /// This value with the value at `range` (as for [`Json::slice`]) replaced by `value`. A range
    /// outside of it changes nothing.
    pub fn with(&self, range: Range<usize>, value: &Self) -> Self {
        self.spliced([(range, &value.0)])
            .map_or_else(|| self.clone(), Self::from_trusted)
    }

    /// Like [`Json::with`], but keeps the offset index for quick lookups in the new value, as far
    /// as it still applies. That takes some 400 bytes more.
    pub fn with_indexed(&self, range: Range<usize>, value: &Self) -> Self {
        self.with_edits_indexed([(range, &value.0)])
    }

    /// This value with other text at each range. The edits must keep it a single value. Ranges that
    /// are unordered, overlap or are outside of it change nothing. Keeps the offset index like
    /// [`Json::with_indexed`].
    pub fn with_edits_indexed<const N: usize>(&self, edits: [(Range<usize>, &[u8]); N]) -> Self {
        let sizes = edits
            .each_ref()
            .map(|(range, new)| (range.clone(), new.len()));
        match self.spliced(edits) {
            Some(text) => Self(
                Self::from_trusted(text).0,
                self.1.edited(self.0.len(), sizes),
            ),
            None => self.clone(),
        }
    }

    /// The text with other text at each range; `None` if the ranges are unordered or outside of it.
    fn spliced<const N: usize>(&self, edits: [(Range<usize>, &[u8]); N]) -> Option<Bytes> {
        let mut text = Vec::with_capacity(
            self.0.len() + edits.iter().map(|(_, new)| new.len()).sum::<usize>(),
        );
        let mut done = 0;
        for (range, new) in edits {
            text.extend_from_slice(self.0.get(done..range.start)?);
            text.extend_from_slice(new);
            if range.start > range.end {
                return None;
            }
            done = range.end;
        }
        text.extend_from_slice(self.0.get(done..)?);
        Some(text.into())
    }

    /// This value with `members` added at the front of the object that begins at `object_start`.
    /// `members` is their text without outer commas, e.g. `"a":1,"b":2`. Keeps the offset index
    /// like [`Json::with_indexed`].
    pub fn with_members_indexed(&self, object_start: usize, members: &[u8]) -> Self {
        let at = object_start + 1;
        if members.is_empty() || self.0.get(object_start) != Some(&b'{') {
            return self.clone();
        }
        self.with_edits_indexed([(at..at, members), (at..at, self.comma_at(at))])
    }

    /// The text that has to follow new members at `at`, the beginning of an object: a comma, unless
    /// the object is empty.
    pub fn comma_at(&self, at: usize) -> &'static [u8] {
        let is_empty = self.0.get(scan::white_space(&self.0, at)) == Some(&b'}');
        if is_empty { b"" } else { b"," }
    }

    /// Adds an offset index to this value. Received values have one from their validation. It is
    /// worthwhile for values that are built here and read often.
    #[must_use]
    pub fn indexed(self) -> Self {
        Self::validate_structure(self.0.clone(), MAX_NESTING).unwrap_or(self)
    }

    /// A copy of the text in its own memory. A slice keeps the whole message in memory, so a value
    /// that outlives the message should be detached.
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0), self.1.detached(&self.0))
    }

    /// The value on one line: line breaks, which can only be between tokens, are dropped. Returns
    /// the same bytes if there are none.
    pub fn on_one_line(&self) -> Self {
        let text = on_one_line(&self.0);
        let index = if text.len() == self.0.len() {
            self.1.clone()
        } else {
            OffsetIndex::default()
        };
        Self(text, index)
    }
}

/// Drops line breaks from JSON text. Strings cannot contain unescaped ones (RFC 8259, 7), so only
/// white space between tokens is lost.
pub fn on_one_line(text: &Bytes) -> Bytes {
    if memchr::memchr2(b'\n', b'\r', text).is_none() {
        return text.clone();
    }
    text.iter()
        .copied()
        .filter(|byte| !matches!(byte, b'\n' | b'\r'))
        .collect()
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 256;
        let text = self.as_text();
        match text.char_indices().nth(SHOWN) {
            Some((cut, _)) => write!(f, "{}… ({} bytes)", &text[..cut], text.len()),
            None => f.write_str(text),
        }
    }
}

/// `null`.
impl Default for Json {
    fn default() -> Self {
        Self::null()
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_text())
    }
}

/// The JSON type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// A number, whose text is kept as it is
    Number,
    /// A string
    String,
    /// An array
    Array,
    /// An object
    Object,
}

/// The text of one value without white space around it; see [`Json`].
#[derive(Clone, Copy, Debug)]
pub struct Value<'a>(&'a [u8]);

impl<'a> Value<'a> {
    /// The type of the value, which its first byte tells.
    #[must_use]
    pub fn kind(self) -> Kind {
        match self.0.first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'n') | None => Kind::Null,
            Some(_) => Kind::Number,
        }
    }

    /// Whether this is an object.
    pub fn is_object(self) -> bool {
        self.kind() == Kind::Object
    }

    /// Whether this is `true`.
    pub fn is_true(self) -> bool {
        self.0 == b"true"
    }

    /// The characters of a string, with escapes decoded. `None` for other types, and for strings
    /// with a lone surrogate, which is not Unicode text.
    #[must_use]
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        string::decode(self.0)
    }

    /// Whether this is the string `text`, whatever escapes it contains.
    #[must_use]
    pub fn is_str(self, text: &str) -> bool {
        string::is(self.0, text)
    }

    /// Whether this is a number without exponent, whose fraction is zero if it has one.
    pub fn is_integer(self) -> bool {
        let is_whole = |byte: &&u8| matches!(byte, b'-' | b'0'..=b'9');
        let mut rest = self.0.iter().skip_while(is_whole);
        self.kind() == Kind::Number && rest.all(|byte| matches!(byte, b'.' | b'0'))
    }
}

/// Joins the members of two objects recursively. Of two booleans, `true` wins; of other values that
/// differ, the first one. Names and values keep their bytes.
pub fn union(first: &Json, second: &Json) -> Json {
    if first == second {
        return first.clone();
    }
    match (first.kind(), second.kind()) {
        (Kind::Object, Kind::Object) => union_objects(first, second),
        (Kind::Bool, Kind::Bool) if second.is_true() => second.clone(),
        _ => first.clone(),
    }
}

fn union_objects(first: &Json, second: &Json) -> Json {
    let mut all: Vec<(Json, Json)> = Vec::new();
    let mut indexes = HashMap::new();
    for object in [first, second] {
        for member in object.members() {
            let key = object.slice(member.key.clone());
            let name = member
                .name(object)
                .unwrap_or_else(|| key.as_text().to_owned());
            let value = object.slice(member.value);
            match indexes
                .get(&name)
                .and_then(|index: &usize| all.get_mut(*index))
            {
                Some((_, known)) => *known = union(known, &value),
                None => {
                    indexes.insert(name, all.len());
                    all.push((key, value));
                }
            }
        }
    }
    let mut object = ObjectBuilder::new();
    for (key, value) in &all {
        object.raw_member(key, value);
    }
    object.finish()
}

#[cfg(test)]
mod tests;
