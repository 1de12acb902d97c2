//! The validating scanner, which finds the end of a JSON value and checks that it is one.
//!
//! It is iterative, so a level of hostile nesting costs one bit and no stack.

use std::ops::Range;

use super::brackets::Brackets;
use super::offset_index::IndexBuilder;
use super::scan_string::escape;
pub(super) use super::scan_string::string;
use super::syntax_error::{Scanned, SyntaxErrorKind, fail, unexpected};

/// The deepest nesting that the configuration can permit.
pub const MAX_NESTING: usize = 1024;

/// Validates `text` as exactly one value between optional white space, and returns its range. Adds
/// the offsets of members and values to `index`.
pub(super) fn document(
    text: &[u8],
    nesting: usize,
    index: &mut IndexBuilder,
) -> Scanned<Range<usize>> {
    one_value(text, |start| container(text, start, nesting, index))
}

/// Like [`document`], but checks only the properties that
/// [`Json::validate_structure`](super::Json::validate_structure) names, and adds no members to
/// `index`.
pub(super) fn structure(
    text: &[u8],
    nesting: usize,
    index: &mut IndexBuilder,
) -> Scanned<Range<usize>> {
    one_value(text, |start| match text.get(start) {
        Some(b'{' | b'[') => container_structure(text, start, nesting, index),
        _ => scalar(text, start),
    })
}

/// Checks that the text is UTF-8 and has one value between optional white space. `end_of` maps the
/// start of the value to its end.
fn one_value(text: &[u8], end_of: impl FnOnce(usize) -> Scanned<usize>) -> Scanned<Range<usize>> {
    if let Err(error) = simdutf8::compat::from_utf8(text) {
        return fail(SyntaxErrorKind::Utf8, error.valid_up_to());
    }
    let start = white_space(text, 0);
    let end = end_of(start)?;
    let rest = white_space(text, end);
    if rest != text.len() {
        return fail(SyntaxErrorKind::Trailing, rest);
    }
    Ok(start..end)
}

/// Validates the structure of the object or array at `start`, and returns its end.
fn container_structure(
    text: &[u8],
    start: usize,
    nesting: usize,
    index: &mut IndexBuilder,
) -> Scanned<usize> {
    let (mut brackets, mut open) = (Brackets::new(text, start), Open::new(nesting));
    loop {
        let at = brackets.next();
        match text.get(at) {
            Some(b'{' | b'[') if open.is_full() => return fail(SyntaxErrorKind::Depth, at),
            Some(byte @ (b'{' | b'[')) => open.push(*byte == b'{', at),
            Some(byte @ (b'}' | b']')) if open.depth > 0 && open.in_object == (*byte == b'}') => {
                if let Some(start) = open.pop() {
                    index.add_value(start..at + 1);
                }
                if open.depth == 0 {
                    return Ok(at + 1);
                }
            }
            Some(b'\\') => return escape(text, at).and_then(|_| unexpected(text, at)),
            Some(0..0x20) => return fail(SyntaxErrorKind::Control, at),
            _ => return unexpected(text, at),
        }
    }
}

/// Skips the value at `at`, and returns its end. The value must be JSON, or have passed
/// [`structure`].
pub(super) fn step_over(text: &[u8], at: usize) -> Scanned<usize> {
    match (text.get(at), text.get(at + 1)) {
        (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']')) => return Ok(at + 2),
        (Some(b'{' | b'['), _) => {}
        _ => return scalar(text, at),
    }
    let (mut brackets, mut depth) = (Brackets::new(text, at), 0_usize);
    loop {
        let at = brackets.next();
        match text.get(at) {
            Some(b'{' | b'[') => depth += 1,
            Some(b'}' | b']') if depth > 1 => depth -= 1,
            Some(b'}' | b']') => return Ok(at + 1),
            _ => return unexpected(text, at),
        }
    }
}

/// Scans the value at `at`, and returns its end.
fn container(text: &[u8], at: usize, nesting: usize, index: &mut IndexBuilder) -> Scanned<usize> {
    let mut open = Open::new(nesting);
    let mut at = at;
    loop {
        if open.in_object {
            at = key_and_colon(text, at, &open, index)?;
        }
        let start = at;
        at = match text.get(at) {
            Some(b'"') => string(text, at)?.at,
            Some(bracket @ (b'{' | b'[')) => {
                match open_container(text, at, *bracket == b'{', &mut open)? {
                    Opened::Empty(end) => end,
                    Opened::Inside(inner) => {
                        at = inner;
                        continue;
                    }
                }
            }
            _ => scalar(text, at)?,
        };
        match after_value(text, start..at, &mut open, index)? {
            After::Done(end) => return Ok(end),
            After::Next(next) => at = next,
        }
    }
}

/// The next byte that is not white space (RFC 8259, section 2).
#[inline(always)]
pub(super) fn white_space(text: &[u8], at: usize) -> usize {
    // Most JSON is compact.
    if matches!(text.get(at), Some(0..=b' ')) {
        end_of_white_space(text, at)
    } else {
        at
    }
}

#[inline(never)]
fn end_of_white_space(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
        at += 1;
    }
    at
}

fn scalar(text: &[u8], at: usize) -> Scanned<usize> {
    match text.get(at) {
        Some(b'"') => string(text, at).map(|end| end.at),
        Some(b't') => word(text, at, b"true"),
        Some(b'f') => word(text, at, b"false"),
        Some(b'n') => word(text, at, b"null"),
        Some(b'-' | b'0'..=b'9') => number(text, at),
        _ => unexpected(text, at),
    }
}

fn word(text: &[u8], at: usize, word: &[u8]) -> Scanned<usize> {
    match text.get(at..at + word.len()) {
        Some(found) if found == word => Ok(at + word.len()),
        Some(_) => fail(SyntaxErrorKind::Unexpected, at),
        None => fail(SyntaxErrorKind::End, text.len()),
    }
}

fn number(text: &[u8], start: usize) -> Scanned<usize> {
    let mut at = start;
    if text.get(at) == Some(&b'-') {
        at += 1;
    }
    at = match text.get(at) {
        Some(b'0') => at + 1,
        Some(b'1'..=b'9') => digits(text, at),
        _ => return fail(SyntaxErrorKind::Number, start),
    };
    if text.get(at) == Some(&b'.') {
        let end = digits(text, at + 1);
        if end == at + 1 {
            return fail(SyntaxErrorKind::Number, start);
        }
        at = end;
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        at += 1;
        if matches!(text.get(at), Some(b'+' | b'-')) {
            at += 1;
        }
        let end = digits(text, at);
        if end == at {
            return fail(SyntaxErrorKind::Number, start);
        }
        at = end;
    }
    Ok(at)
}

fn digits(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b'0'..=b'9')) {
        at += 1;
    }
    at
}

/// Scans the key at `at` and the colon after it. Returns the start of the value.
#[inline(always)]
fn key_and_colon(text: &[u8], at: usize, open: &Open, index: &mut IndexBuilder) -> Scanned<usize> {
    let key = string(text, at)?;
    let colon = white_space(text, key.at);
    if text.get(colon) != Some(&b':') {
        return unexpected(text, colon);
    }
    let value = white_space(text, colon + 1);
    index.member_begins(open.depth, at..key.at, key.plain, value);
    Ok(value)
}

enum Opened {
    Empty(usize),
    Inside(usize),
}

#[inline]
fn open_container(text: &[u8], at: usize, object: bool, open: &mut Open) -> Scanned<Opened> {
    if open.is_full() {
        return fail(SyntaxErrorKind::Depth, at);
    }
    let inner = white_space(text, at + 1);
    if text.get(inner) == Some(if object { &b'}' } else { &b']' }) {
        return Ok(Opened::Empty(inner + 1));
    }
    open.push(object, at);
    Ok(Opened::Inside(inner))
}

enum After {
    /// The outermost value has ended here.
    Done(usize),
    /// The next element or member begins here.
    Next(usize),
}

/// Continues after the value at `value`: closes the containers that end with it, up to the next
/// value.
#[inline]
fn after_value(
    text: &[u8],
    value: Range<usize>,
    open: &mut Open,
    index: &mut IndexBuilder,
) -> Scanned<After> {
    let mut at = value.end;
    index.add_value(value);
    while open.depth > 0 {
        let in_object = open.in_object;
        if in_object {
            index.member_ends(open.depth, at);
        }
        let next = white_space(text, at);
        match text.get(next) {
            Some(b',') => {
                return Ok(After::Next(white_space(text, next + 1)));
            }
            Some(b'}') if in_object => {}
            Some(b']') if !in_object => {}
            _ => return unexpected(text, next),
        }
        at = next + 1;
        if let Some(start) = open.pop() {
            index.add_value(start..at);
        }
    }
    Ok(After::Done(at))
}

/// The open containers, one bit each: set for an object, clear for an array.
struct Open {
    bits: [u64; MAX_NESTING / 64],
    /// The bit of the innermost container; false if none is open.
    in_object: bool,
    depth: usize,
    limit: usize,
    /// The starts of the outermost containers.
    starts: [usize; Open::STARTS],
}

impl Open {
    const STARTS: usize = 8;

    fn new(limit: usize) -> Self {
        Self {
            bits: [0; MAX_NESTING / 64],
            in_object: false,
            depth: 0,
            limit: limit.min(MAX_NESTING),
            starts: [0; Self::STARTS],
        }
    }

    fn is_full(&self) -> bool {
        self.depth >= self.limit
    }

    fn push(&mut self, object: bool, start: usize) {
        let mask = 1 << (self.depth % 64);
        if let Some(word) = self.bits.get_mut(self.depth / 64) {
            *word = if object { *word | mask } else { *word & !mask };
        }
        if let Some(slot) = self.starts.get_mut(self.depth) {
            *slot = start;
        }
        self.depth += 1;
        self.in_object = object;
    }

    /// Closes the innermost container. Returns its start, if that is known.
    fn pop(&mut self) -> Option<usize> {
        self.depth = self.depth.saturating_sub(1);
        let outer = self.depth.checked_sub(1);
        let word = outer.and_then(|outer| Some(self.bits.get(outer / 64)? >> (outer % 64)));
        self.in_object = word.is_some_and(|word| word & 1 != 0);
        self.starts.get(self.depth).copied()
    }
}
