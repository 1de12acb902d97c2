//! Values that are never shown.

use std::fmt;

/// A 256-bit key that seals what clients carry; `Debug` prints `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct SealKey([u8; 32]);

impl SealKey {
    /// A key of these bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, for their one use.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_form_of_a_key_shows_nothing_of_it() {
        assert_eq!(format!("{:?}", SealKey::new([7; 32])), "***");
    }
}
