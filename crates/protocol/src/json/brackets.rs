//! Finds the brackets of a JSON text outside of its strings, 64 bytes at a time.
//!
//! Arithmetic on one bit for each byte tells which bytes are within strings. Langdale and Lemire,
//! "Parsing gigabytes of JSON per second" (2019), section 3.1, describe the method.

use wide::u8x16;

use super::block::{BLOCK, Escapes, escapes, find, is, is_control};
use super::scan_string::escape;

/// Returns the offsets of each `{`, `}`, `[` and `]` outside of strings, in order.
///
/// It also returns invalid bytes: control characters within strings, control characters between
/// tokens that are not white space, and backslashes in strings that begin no escape.
pub(super) struct Brackets<'a> {
    text: &'a [u8],
    /// The offset of the block whose bytes `left` has.
    base: usize,
    /// The bytes found in the block and not yet returned.
    left: u64,
    /// The offset of the next block.
    next: usize,
    /// All ones if the next block begins within a string.
    within: u64,
    /// 1 if the first byte of the next block belongs to an escape, else 0.
    escaped: u64,
}

impl<'a> Brackets<'a> {
    /// Begins at `start`, which must not be within a string.
    pub(super) fn new(text: &'a [u8], start: usize) -> Self {
        Self {
            text,
            base: start,
            left: 0,
            next: start,
            within: 0,
            escaped: 0,
        }
    }

    /// The offset of the next bracket or invalid byte; the length of the text if there is none.
    #[inline]
    pub(super) fn next(&mut self) -> usize {
        while self.left == 0 {
            if !self.read_block() {
                return self.text.len();
            }
        }
        let place = self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        self.base + place
    }

    #[inline(never)]
    fn read_block(&mut self) -> bool {
        let Some(rest) = self.text.get(self.next..).filter(|rest| !rest.is_empty()) else {
            return false;
        };
        self.base = self.next;
        self.next += BLOCK;
        self.left = match rest.first_chunk() {
            Some(block) => self.found_in(block),
            None => {
                let mut block = [b' '; BLOCK];
                if let Some(head) = block.get_mut(..rest.len()) {
                    head.copy_from_slice(rest);
                }
                self.found_in(&block)
            }
        };
        true
    }

    #[inline]
    fn found_in(&mut self, block: &[u8; BLOCK]) -> u64 {
        let controls = find(block, is_control);
        let backslashes = find(block, |bytes| is(bytes, b'\\'));
        let quotes = find(block, |bytes| is(bytes, b'"'));
        let Escapes { starts, escaped } = escapes(backslashes, &mut self.escaped);
        let malformed = self.malformed(starts & !((quotes | backslashes) >> 1));
        let quotes = quotes & !escaped;
        if quotes == 0 && self.within != 0 {
            return controls | malformed;
        }
        let within = below(quotes) ^ self.within;
        // The sign bit, copied to every bit.
        self.within = ((within as i64) >> (BLOCK - 1)) as u64;
        (find(block, is_bracket) & !within)
            | (malformed & within)
            | misplaced(block, controls, within)
    }

    /// Marks the backslashes that begin no valid escape.
    #[inline]
    fn malformed(&self, mut backslashes: u64) -> u64 {
        let mut malformed = 0;
        while backslashes != 0 {
            let place = backslashes.trailing_zeros();
            if escape(self.text, self.base + place as usize).is_err() {
                malformed |= 1 << place;
            }
            backslashes &= backslashes - 1;
        }
        malformed
    }
}

#[inline(always)]
fn is_bracket(bytes: u8x16) -> u8x16 {
    // This bit turns each square bracket into a brace.
    let folded = bytes | u8x16::splat(0x20);
    is(folded, b'{') | is(folded, b'}')
}

/// Marks control characters that are within strings, or that are not white space (RFC 8259, section
/// 2).
#[inline]
fn misplaced(block: &[u8; BLOCK], controls: u64, within: u64) -> u64 {
    let mut found = controls & within;
    let mut left = controls & !within;
    while left != 0 {
        let place = left.trailing_zeros();
        if !matches!(block.get(place as usize), Some(b'\t' | b'\n' | b'\r')) {
            found |= 1 << place;
        }
        left &= left - 1;
    }
    found
}

/// Sets each bit that has an odd number of set bits at or below it. Given a bit for each quote,
/// this marks the bytes within strings, including the opening quote.
#[inline]
fn below(bits: u64) -> u64 {
    let mut bits = bits;
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference implementation, byte by byte. It stops at a backslash outside of strings,
    /// which no JSON has.
    fn plainly(text: &[u8]) -> (Vec<usize>, usize) {
        let (mut found, mut within, mut escaped) = (Vec::new(), false, false);
        for (at, byte) in text.iter().enumerate() {
            let counts = match byte {
                _ if *byte < 0x20 => within || !b"\t\n\r".contains(byte),
                _ if escaped => false,
                b'"' => {
                    within = !within;
                    false
                }
                b'\\' if !within => return (found, at),
                b'\\' => escape(text, at).is_err(),
                _ => !within && b"{}[]".contains(byte),
            };
            if counts {
                found.push(at);
            }
            escaped = *byte == b'\\' && !escaped;
        }
        (found, text.len())
    }

    proptest::proptest! {
        #[test]
        fn brackets_match_a_scan_byte_by_byte(
            text in proptest::collection::vec(proptest::sample::select(&b"\"\"\"\\\\u0a{}[]:, \x01\n\x0c"[..]), 0..300),
        ) {
            let (expected, until) = plainly(&text);
            let mut brackets = Brackets::new(&text, 0);
            let found: Vec<_> = std::iter::from_fn(|| Some(brackets.next()).filter(|at| *at < until)).collect();
            proptest::prop_assert_eq!(found, expected);
        }
    }
}
