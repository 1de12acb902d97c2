//! Scanning strings: most of most messages is in them, so this looks at many bytes at once.
//!
//! Must not know: what stands around a string.

use wide::u8x16;

use super::scan::{Scanned, SyntaxErrorKind, fail, unexpected};

/// Bytes looked at together.
const BLOCK: usize = 16;
/// After so many blocks without anything special, longer ones are looked at.
const QUIET: usize = 4;

/// Blocks of a string looked at on the spot; most have no more.
const FEW: usize = 4;

/// Where a string ends.
#[derive(Clone, Copy)]
pub(super) struct StringEnd {
    pub(super) at: usize,
    /// Whether it is known to have no escapes.
    pub(super) plain: bool,
}

/// Scans a string that begins at `at` with its quote; returns where it ends.
#[inline(always)]
pub(super) fn string(text: &[u8], at: usize) -> Scanned<StringEnd> {
    if text.get(at) != Some(&b'"') {
        return unexpected(text, at);
    }
    let mut at = at + 1;
    for _ in 0..FEW {
        let Some(block) = text.get(at..).and_then(<[u8]>::first_chunk) else { break };
        let found = special(*block);
        if found != 0 {
            let end = at + found.trailing_zeros() as usize;
            if text.get(end) == Some(&b'"') {
                return Ok(StringEnd { at: end + 1, plain: true });
            }
            break;
        }
        at += BLOCK;
    }
    rest_of_string(text, at)
}

/// The same from within the string.
#[inline(never)]
fn rest_of_string(text: &[u8], mut at: usize) -> Scanned<StringEnd> {
    let mut quiet = 0;
    let mut plain = true;
    while let Some((block, _)) = text.get(at..).and_then(<[u8]>::split_first_chunk) {
        let mut found = special(*block);
        if found == 0 {
            at += BLOCK;
            quiet += 1;
            if quiet == QUIET {
                at = plain_run(text, at);
                quiet = 0;
            }
            continue;
        }
        let mut behind = BLOCK;
        while found != 0 {
            let place = found.trailing_zeros() as usize;
            match block.get(place) {
                Some(b'"') => return Ok(StringEnd { at: at + place + 1, plain }),
                Some(b'\\') => {
                    let end = escape(text, at + place)? - at;
                    // What belongs to the escape is not looked at again.
                    found &= u32::MAX.checked_shl(end as u32).unwrap_or(0);
                    behind = behind.max(end);
                    plain = false;
                }
                _ => return fail(SyntaxErrorKind::Control, at + place),
            }
        }
        at += behind;
        quiet = 0;
    }
    end_of_string(text, at, plain)
}

/// The same, byte by byte, near the end of the text.
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

/// Which of the bytes mean something within a string, being a quote, a backslash or a control
/// character: a bit each, the lowest for the first.
#[inline]
fn special(block: [u8; BLOCK]) -> u32 {
    is_special(u8x16::new(block)).to_bitmask()
}

/// Steps over whole blocks from `at` on without any special byte.
fn plain_run(text: &[u8], at: usize) -> usize {
    const LONG: usize = 2 * BLOCK;
    let (blocks, _) = text.get(at..).unwrap_or_default().as_chunks::<LONG>();
    let is_plain = |block: &&[u8; LONG]| {
        let (halves, _) = block.as_chunks::<BLOCK>();
        let found = halves.iter().map(|half| is_special(u8x16::new(*half))).fold(u8x16::ZERO, |all, half| all | half);
        found.to_bitmask() == 0
    };
    at + blocks.iter().take_while(is_plain).count() * LONG
}

#[inline]
fn is_special(bytes: u8x16) -> u8x16 {
    let is = |byte: u8| bytes.simd_eq(u8x16::splat(byte));
    is_control(bytes) | is(b'"') | is(b'\\')
}

#[inline]
pub(super) fn is_control(bytes: u8x16) -> u8x16 {
    bytes.min(u8x16::splat(0x1f)).simd_eq(bytes)
}

/// Whether an escape begins at `at` with its backslash.
#[inline(always)]
pub(super) fn is_escape(text: &[u8], at: usize) -> bool {
    match text.get(at + 1) {
        Some(b'n' | b'"' | b'\\' | b'/' | b'b' | b'f' | b'r' | b't') => true,
        Some(b'u') => escape(text, at).is_ok(),
        _ => false,
    }
}

/// The escape that begins at `at` with its backslash; returns where it ends.
#[inline]
pub(super) fn escape(text: &[u8], at: usize) -> Scanned<usize> {
    match text.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => match text.get(at + 2..at + 6) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => Ok(at + 6),
            Some(_) => fail(SyntaxErrorKind::Escape, at),
            None => fail(SyntaxErrorKind::End, text.len()),
        },
        Some(_) => fail(SyntaxErrorKind::Escape, at),
        None => fail(SyntaxErrorKind::End, text.len()),
    }
}
