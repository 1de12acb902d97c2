//! Searches in blocks of 64 bytes. A result is a word with one bit for each byte, the lowest bit
//! for the first byte.

use wide::u8x16;

/// The number of bytes in a vector.
pub(super) const LANES: usize = 16;
/// The number of bytes in a block.
pub(super) const BLOCK: usize = 64;

/// Marks the bytes for which `test` sets all bits. For other bytes it must set none.
#[inline(always)]
pub(super) fn find(block: &[u8; BLOCK], test: impl Fn(u8x16) -> u8x16) -> u64 {
    let found = vectors(block).map(|bytes| u64::from(test(bytes).to_bitmask()));
    found
        .enumerate()
        .fold(0, |all, (number, some)| all | some << (number * LANES))
}

#[inline(always)]
pub(super) fn is(bytes: u8x16, byte: u8) -> u8x16 {
    bytes.simd_eq(u8x16::splat(byte))
}

/// Marks the bytes below the space.
#[inline(always)]
pub(super) fn is_control(bytes: u8x16) -> u8x16 {
    bytes.min(u8x16::splat(0x1f)).simd_eq(bytes)
}

/// The escapes in a block of string text.
pub(super) struct Escapes {
    /// The backslashes that begin an escape.
    pub(super) starts: u64,
    /// The bytes right after them.
    pub(super) escaped: u64,
}

/// Separates backslashes that begin an escape from backslashes that are escaped.
///
/// In a run of backslashes they alternate, beginning with one that begins an escape. Adding the
/// first bit of a run to the run clears it. That separates runs that begin at even offsets from the
/// others.
///
/// `carry` is one if the first byte is escaped by the last byte of the previous block. It is set
/// for the next block.
#[inline(always)]
pub(super) fn escapes(backslashes: u64, carry: &mut u64) -> Escapes {
    const EVEN: u64 = 0x5555_5555_5555_5555;
    if backslashes == 0 {
        return Escapes {
            starts: 0,
            escaped: std::mem::take(carry),
        };
    }
    let unescaped = backslashes & !*carry;
    let even_firsts = unescaped & !(unescaped << 1) & EVEN;
    let even_runs = unescaped & !unescaped.wrapping_add(even_firsts);
    let starts = (even_runs & EVEN) | (unescaped & !even_runs & !EVEN);
    let escaped = starts << 1 | *carry;
    *carry = starts >> (BLOCK - 1);
    Escapes { starts, escaped }
}

#[inline(always)]
fn vectors(block: &[u8; BLOCK]) -> impl Iterator<Item = u8x16> {
    let (parts, _) = block.as_chunks::<LANES>();
    parts.iter().map(|part| u8x16::new(*part))
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn escapes_match_a_scan_byte_by_byte(blocks in proptest::collection::vec(proptest::num::u64::ANY, 1..8)) {
            let (mut carry, mut escaped) = (0, false);
            for backslashes in blocks {
                // Long runs of backslashes, as in text that was escaped several times.
                for backslashes in [backslashes, backslashes | backslashes << 1 | backslashes << 2] {
                    let found = escapes(backslashes, &mut carry);
                    for place in 0..BLOCK {
                        let starts = !escaped && backslashes >> place & 1 == 1;
                        proptest::prop_assert_eq!(found.escaped >> place & 1 == 1, escaped);
                        proptest::prop_assert_eq!(found.starts >> place & 1 == 1, starts);
                        escaped = starts;
                    }
                }
            }
            proptest::prop_assert_eq!(carry == 1, escaped);
        }
    }
}
