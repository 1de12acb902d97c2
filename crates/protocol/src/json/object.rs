//! Iterators over the members of an object and the elements of an array, by their ranges.
//!
//! Fully validated text has no scan errors. In text with a validated structure only, an iterator
//! ends at a scan error. All values before it are whole.

use std::ops::Range;

use super::member_name;
use super::offset_index::IndexCursor;
use super::scan;
use super::{Json, string};

/// The error that an object has a member twice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("duplicate member {key:?}")]
pub struct DuplicateMember {
    /// The member's name.
    pub key: String,
}

/// The error that two readers of an object could read a member differently.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmbiguousMember {
    /// The object has the member twice.
    #[error(transparent)]
    Duplicate(#[from] DuplicateMember),
    /// The object has another member that lenient parsers take for this one
    /// ([`crate::member_name`]).
    #[error("member {name:?} could be taken for {key:?}: leave it out, or write it exactly so")]
    Confusable {
        /// The expected name.
        key: String,
        /// The beginning of the name that could be taken for `key`.
        name: String,
    },
}

/// One member of an object, as ranges of the object's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The offset after the `{` or `,` before the key, where the white space before the key begins.
    pub lead: usize,
    /// The key with its quotes.
    pub key: Range<usize>,
    /// The value.
    pub value: Range<usize>,
    /// Set if the key certainly has no escapes.
    plain: bool,
}

impl Member {
    /// Whether the member of `object` is called `name`, whatever escapes its key contains.
    pub fn is(&self, object: &Json, name: &str) -> bool {
        self.key_in(object.bytes()).is_some_and(|key| key.is(name))
    }

    /// The characters of the key; `None` for a key with a lone surrogate.
    pub fn name(&self, object: &Json) -> Option<String> {
        object
            .slice(self.key.clone())
            .as_str()
            .map(std::borrow::Cow::into_owned)
    }

    #[inline]
    fn key_in<'a>(&self, object: &'a [u8]) -> Option<Key<'a>> {
        let inner = object.get(self.key.start + 1..self.key.end.saturating_sub(1))?;
        Some(Key {
            inner,
            plain: self.plain,
        })
    }
}

/// The key of a member, without its quotes.
struct Key<'a> {
    inner: &'a [u8],
    /// Set if the key certainly has no escapes.
    plain: bool,
}

impl Key<'_> {
    #[inline]
    fn is(&self, name: &str) -> bool {
        if self.plain {
            self.inner == name.as_bytes()
        } else {
            string::stands_for(self.inner, name)
        }
    }
}

/// The range of the value of the first member called `key` in the object `text`.
pub(super) fn value_range(text: &[u8], cursor: IndexCursor<'_>, key: &str) -> Option<Range<usize>> {
    Members::new(text, cursor)
        .find(|member| member.key_in(text).is_some_and(|found| found.is(key)))
        .map(|member| member.value)
}

pub(super) fn find<const N: usize>(
    object: &Json,
    keys: [&str; N],
) -> Result<[Option<Range<usize>>; N], DuplicateMember> {
    find_or(object, &keys, |_| Ok(()))
}

pub(super) fn find_distinct<const N: usize>(
    object: &Json,
    keys: &[&str; N],
) -> Result<[Option<Range<usize>>; N], AmbiguousMember> {
    find_or(object, keys, |other| {
        match member_name::confusable(other.inner, keys) {
            None => Ok(()),
            Some(key) => Err(AmbiguousMember::Confusable {
                key: key.to_owned(),
                name: excerpt(other.inner),
            }),
        }
    })
}

/// The ranges of the values of `keys`. Calls `check_other` with every other key.
#[inline]
fn find_or<const N: usize, E: From<DuplicateMember>>(
    object: &Json,
    keys: &[&str; N],
    check_other: impl Fn(&Key<'_>) -> Result<(), E>,
) -> Result<[Option<Range<usize>>; N], E> {
    let mut found = [const { None }; N];
    for member in object.members() {
        let Some(name) = member.key_in(object.bytes()) else {
            continue;
        };
        let Some(index) = keys.iter().position(|key| name.is(key)) else {
            check_other(&name)?;
            continue;
        };
        if let (Some(slot), Some(key)) = (found.get_mut(index), keys.get(index))
            && slot.replace(member.value).is_some()
        {
            return Err(DuplicateMember {
                key: (*key).to_owned(),
            }
            .into());
        }
    }
    Ok(found)
}

/// The beginning of a key, short enough for an error message.
fn excerpt(inner: &[u8]) -> String {
    const SHOWN: usize = 64;
    string::decoded_characters(inner).take(SHOWN).collect()
}

/// The members of an object in order. See [`Json::members`].
#[derive(Debug)]
pub struct Members<'a> {
    text: &'a [u8],
    /// The offset after the `{` or `,` before the next member; the text's length at the end.
    at: usize,
    cursor: IndexCursor<'a>,
}

impl<'a> Members<'a> {
    pub(super) fn new(text: &'a [u8], cursor: IndexCursor<'a>) -> Self {
        Self {
            text,
            at: first(text, b'{', b'}'),
            cursor,
        }
    }
}

impl Iterator for Members<'_> {
    type Item = Member;

    #[inline]
    fn next(&mut self) -> Option<Member> {
        if self.at >= self.text.len() {
            return None;
        }
        let lead = self.at;
        let key_start = scan::white_space(self.text, lead);
        let (key, value, plain) = match self.cursor.member_at(key_start) {
            Some((key, value)) => (key, value, true),
            None => self.read(key_start)?,
        };
        self.at = following(self.text, value.end);
        Some(Member {
            lead,
            key,
            value,
            plain,
        })
    }
}

impl Members<'_> {
    /// The key and the value of the member at `start`, and whether the key is plain.
    #[inline(never)]
    fn read(&mut self, start: usize) -> Option<(Range<usize>, Range<usize>, bool)> {
        let key = scan::string(self.text, start).ok()?;
        let colon = scan::white_space(self.text, key.at);
        if self.text.get(colon) != Some(&b':') {
            return None;
        }
        let value = scan::white_space(self.text, colon + 1);
        let end = value_end(self.text, value, &mut self.cursor)?;
        Some((start..key.at, value..end, key.plain))
    }
}

/// The elements of an array in order, as ranges. See [`Json::elements`].
#[derive(Debug)]
pub struct Elements<'a> {
    text: &'a [u8],
    at: usize,
    cursor: IndexCursor<'a>,
}

impl<'a> Elements<'a> {
    pub(super) fn new(text: &'a [u8], cursor: IndexCursor<'a>) -> Self {
        Self {
            text,
            at: first(text, b'[', b']'),
            cursor,
        }
    }
}

impl Iterator for Elements<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if self.at >= self.text.len() {
            return None;
        }
        let start = scan::white_space(self.text, self.at);
        let end = value_end(self.text, start, &mut self.cursor)?;
        self.at = following(self.text, end);
        Some(start..end)
    }
}

fn first(text: &[u8], open: u8, close: u8) -> usize {
    if text.first() != Some(&open) || text.get(scan::white_space(text, 1)) == Some(&close) {
        return text.len();
    }
    1
}

/// The end of a value, from the index or by reading the value.
fn value_end(text: &[u8], start: usize, cursor: &mut IndexCursor<'_>) -> Option<usize> {
    let known = cursor.end_of(start);
    known.or_else(|| scan::step_over(text, start).ok())
}

/// The offset after the comma that follows a value, or the text's length if there is no comma.
fn following(text: &[u8], end: usize) -> usize {
    let next = scan::white_space(text, end);
    if text.get(next) == Some(&b',') {
        next + 1
    } else {
        text.len()
    }
}
