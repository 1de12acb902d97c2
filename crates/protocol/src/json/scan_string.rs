//! Scans strings, 16 or 64 bytes at a time. They are the largest part of most messages.

use wide::u8x16;

use super::block::{BLOCK, Escapes, LANES, escapes, find, is, is_control};
use super::syntax_error::{Scanned, SyntaxErrorKind, fail, unexpected};

/// How many vectors of a string are scanned inline. Most strings have no more.
const FEW: usize = 4;

/// The end of a string.
#[derive(Clone, Copy)]
pub(super) struct StringEnd {
    pub(super) at: usize,
    /// Set if the string certainly has no escapes.
    pub(super) plain: bool,
}

/// Scans a string whose opening quote is at `at`, and returns its end.
#[inline(always)]
pub(super) fn string(text: &[u8], at: usize) -> Scanned<StringEnd> {
    if text.get(at) != Some(&b'"') {
        return unexpected(text, at);
    }
    let mut at = at + 1;
    for _ in 0..FEW {
        let Some(lanes) = text.get(at..).and_then(<[u8]>::first_chunk::<LANES>) else {
            break;
        };
        let found = special(u8x16::new(*lanes)).to_bitmask();
        if found != 0 {
            let end = at + found.trailing_zeros() as usize;
            if text.get(end) == Some(&b'"') {
                return Ok(StringEnd {
                    at: end + 1,
                    plain: true,
                });
            }
            break;
        }
        at += LANES;
    }
    rest_of_string(text, at)
}

/// Continues at `at`, which is within the string and not within an escape.
#[inline(never)]
fn rest_of_string(text: &[u8], mut at: usize) -> Scanned<StringEnd> {
    let (mut plain, mut carry) = (true, 0);
    while let Some(block) = text.get(at..).and_then(<[u8]>::first_chunk::<BLOCK>) {
        let found = find(block, special);
        if found != 0 || carry != 0 {
            let start = at + carry as usize;
            let (quotes, backslashes) = (
                find(block, |bytes| is(bytes, b'"')),
                find(block, |bytes| is(bytes, b'\\')),
            );
            let controls = found & !(quotes | backslashes);
            let Escapes { starts, escaped } = escapes(backslashes, &mut carry);
            let ends = quotes & !escaped;
            // All bits below the lowest set bit of `ends`; all bits if there is none.
            let inside = ends.wrapping_sub(1) & !ends;
            if controls & inside != 0
                || !are_escapes(text, at, starts & !((quotes | backslashes) >> 1) & inside)
            {
                return end_of_string(text, start, plain);
            }
            plain &= starts & inside == 0;
            if ends != 0 {
                return Ok(StringEnd {
                    at: at + ends.trailing_zeros() as usize + 1,
                    plain,
                });
            }
        }
        at += BLOCK;
    }
    end_of_string(text, at + carry as usize, plain)
}

/// Whether each of these backslashes in the block at `at` begins an escape.
#[inline(always)]
fn are_escapes(text: &[u8], at: usize, mut backslashes: u64) -> bool {
    while backslashes != 0 {
        if escape(text, at + backslashes.trailing_zeros() as usize).is_err() {
            return false;
        }
        backslashes &= backslashes - 1;
    }
    true
}

/// Continues byte by byte, near the end of the text or to find the invalid byte.
fn end_of_string(text: &[u8], mut at: usize, mut plain: bool) -> Scanned<StringEnd> {
    loop {
        at = match text.get(at) {
            Some(b'"') => return Ok(StringEnd { at: at + 1, plain }),
            Some(b'\\') => {
                plain = false;
                escape(text, at)?
            }
            Some(0..0x20) => return fail(SyntaxErrorKind::Control, at),
            Some(_) => at + 1,
            None => return fail(SyntaxErrorKind::End, at),
        }
    }
}

/// Marks the bytes with a meaning in strings: quotes, backslashes and control characters.
#[inline(always)]
fn special(bytes: u8x16) -> u8x16 {
    is_control(bytes) | is(bytes, b'"') | is(bytes, b'\\')
}

/// The bytes that complete an escape after a backslash.
static SIMPLE: [bool; 256] = {
    let mut simple = [false; 256];
    let mut all: &[u8] = b"\"\\/bfnrt";
    while let [one, rest @ ..] = all {
        simple[*one as usize] = true;
        all = rest;
    }
    simple
};

/// Scans the escape whose backslash is at `at` (RFC 8259, section 7), and returns its end.
#[inline(always)]
pub(super) fn escape(text: &[u8], at: usize) -> Scanned<usize> {
    match text.get(at + 1) {
        Some(byte) if SIMPLE.get(usize::from(*byte)) == Some(&true) => Ok(at + 2),
        _ => code(text, at),
    }
}

/// Scans an escape at `at` that is longer, or malformed.
#[inline(never)]
fn code(text: &[u8], at: usize) -> Scanned<usize> {
    match text.get(at + 1) {
        Some(b'u') => match text.get(at + 2..at + 6) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => Ok(at + 6),
            Some(_) => fail(SyntaxErrorKind::Escape, at),
            None => fail(SyntaxErrorKind::End, text.len()),
        },
        Some(_) => fail(SyntaxErrorKind::Escape, at),
        None => fail(SyntaxErrorKind::End, text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn string_end_matches_a_scan_byte_by_byte(
            run in 0..200_usize,
            text in proptest::collection::vec(proptest::sample::select(&b"\\\\\\\"nu0aF/x\x01 \xc3\xa9"[..]), 0..200),
            more in 0..200_usize,
        ) {
            let text = [b"\"", vec![b'x'; run].as_slice(), &text, &vec![b'y'; more], b"\""].concat();
            let found = string(&text, 0).map(|end| (end.at, end.plain));
            let expected = end_of_string(&text, 1, true).map(|end| (end.at, end.plain));
            proptest::prop_assert_eq!(found, expected);
        }
    }
}
