//! Sealing bytes so that a client that carries them can neither read nor change them.
//!
//! AES-256-GCM-SIV: a nonce that is used twice by accident, or by two replicas with one key, tells
//! nothing but that two sealed texts are equal.
//!
//! Must not know: what is sealed, or who carries it.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Seals and opens texts of one purpose with one key.
pub struct Seal {
    key: RandomizedNonceKey,
    purpose: &'static [u8],
}

/// The key cannot be used, or no random key can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot make a key for sealing")]
pub struct KeyError;

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// Seals with `key`. What is sealed for one `purpose` does not open for another.
    ///
    /// # Errors
    ///
    /// If the key cannot be used.
    pub fn new(key: &[u8; 32], purpose: &'static [u8]) -> Result<Self, KeyError> {
        let key = RandomizedNonceKey::new(&AES_256_GCM_SIV, key).map_err(|_| KeyError)?;
        Ok(Self { key, purpose })
    }

    /// `plain` as URL-safe text; `None` if the cipher fails, which it has no reason to.
    #[must_use]
    pub fn seal(&self, plain: &[u8]) -> Option<String> {
        let mut sealed = plain.to_vec();
        let nonce = self.key.seal_in_place_append_tag(Aad::from(self.purpose), &mut sealed).ok()?;
        let mut whole = nonce.as_ref().to_vec();
        whole.append(&mut sealed);
        Some(URL_SAFE_NO_PAD.encode(whole))
    }

    /// What `text` holds, if this key sealed it for this purpose. The caller bounds its length.
    #[must_use]
    pub fn open(&self, text: &str) -> Option<Vec<u8>> {
        let mut nonce = URL_SAFE_NO_PAD.decode(text).ok()?;
        if nonce.len() < NONCE_LEN {
            return None;
        }
        let mut sealed = nonce.split_off(NONCE_LEN);
        let nonce = Nonce::try_assume_unique_for_key(&nonce).ok()?;
        let plain = self.key.open_in_place(nonce, Aad::from(self.purpose), &mut sealed).ok()?;
        Some(plain.to_vec())
    }
}

/// A key that nobody can guess.
///
/// # Errors
///
/// If the system has no random numbers.
pub fn random_key() -> Result<[u8; 32], KeyError> {
    let mut random = [0; 32];
    aws_lc_rs::rand::fill(&mut random).map_err(|_| KeyError)?;
    Ok(random)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn opens_only_with_the_key_and_for_the_purpose_it_was_sealed_with() {
        let seal = Seal::new(&[1; 32], b"a").unwrap();
        let text = seal.seal(b"secret").unwrap();
        assert_eq!(seal.open(&text).as_deref(), Some(&b"secret"[..]));
        assert_ne!(seal.seal(b"secret").unwrap(), text);
        assert_eq!(Seal::new(&[2; 32], b"a").unwrap().open(&text), None);
        assert_eq!(Seal::new(&[1; 32], b"b").unwrap().open(&text), None);
        assert_ne!(random_key().unwrap(), random_key().unwrap());
    }

    proptest! {
        #[test]
        fn refuses_what_it_did_not_seal(text in ".{0,300}") {
            prop_assert_eq!(Seal::new(&[1; 32], b"a").unwrap().open(&text), None);
        }

        #[test]
        fn every_byte_counts(at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let seal = Seal::new(&[1; 32], b"a").unwrap();
            let mut bytes = URL_SAFE_NO_PAD.decode(seal.seal(b"secret").unwrap()).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(seal.open(&URL_SAFE_NO_PAD.encode(bytes)), None);
        }
    }
}
