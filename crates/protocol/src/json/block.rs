//! Blocks of 64 bytes, looked at together: what is found in one is a word with a bit for each byte, the lowest for the first.
//!
//! Must not know: what is looked for.

use wide::u8x16;

/// Bytes that one vector holds.
pub(super) const LANES: usize = 16;
/// Bytes of a block.
pub(super) const BLOCK: usize = 64;

/// For which bytes `test` has all bits set; it leaves those of the others clear.
#[inline(always)]
pub(super) fn find(block: &[u8; BLOCK], test: impl Fn(u8x16) -> u8x16) -> u64 {
    let found = vectors(block).map(|bytes| u64::from(test(bytes).to_bitmask()));
    found.enumerate().fold(0, |all, (number, some)| all | some << (number * LANES))
}

/// Whether there is a byte for which `test` has all bits set.
#[inline(always)]
pub(super) fn has(block: &[u8; BLOCK], test: impl Fn(u8x16) -> u8x16) -> bool {
    vectors(block).map(test).fold(u8x16::ZERO, |all, some| all | some).to_bitmask() != 0
}

#[inline(always)]
pub(super) fn is(bytes: u8x16, byte: u8) -> u8x16 {
    bytes.simd_eq(u8x16::splat(byte))
}

/// Whether they are below the space.
#[inline(always)]
pub(super) fn is_control(bytes: u8x16) -> u8x16 {
    bytes.min(u8x16::splat(0x1f)).simd_eq(bytes)
}

#[inline(always)]
fn vectors(block: &[u8; BLOCK]) -> impl Iterator<Item = u8x16> {
    let (parts, _) = block.as_chunks::<LANES>();
    parts.iter().map(|part| u8x16::new(*part))
}
