//! Seals bytes so that a client that holds them can neither read nor change them.
//!
//! The cipher is AES-256-GCM-SIV. If a nonce is used twice by accident, or by two replicas with one
//! key, that only reveals whether two sealed texts are equal.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use data_encoding::HEXLOWER;

use crate::digest::sha256;

/// Secret keys. The first one seals and all of them open, so that keys can be rotated while older
/// sealed texts are in use. Without keys, each [`Seal`] makes a random one.
#[derive(Clone, Default)]
pub struct Keys(Arc<[[u8; 32]]>);

impl Keys {
    /// Uses these keys in this order.
    pub fn new(keys: impl IntoIterator<Item = [u8; 32]>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a key at the end. It only opens, unless there are no other keys.
    pub fn followed_by(&self, key: [u8; 32]) -> Self {
        Self::new(self.0.iter().copied().chain([key]))
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keys").field(&self.0.len()).finish()
    }
}

/// Seals and opens texts of one purpose.
pub struct Seal {
    first: Key,
    others: Vec<Key>,
    purpose: &'static [u8],
}

struct Key {
    key: LessSafeKey,
    tags: hmac::Key,
    name: String,
}

/// The bytes that sealing adds to a text: the nonce and the cipher's tag.
pub const SEAL_BYTES: usize = NONCE_LEN + 16;

/// The number of bytes of a message authentication code in a [`Tag`].
const TAG: usize = 6;

/// A message authentication code, shortened, as URL-safe text.
pub type Tag = [u8; TAG / 3 * 4];

/// The error that a key cannot be used, or that no random key can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot make a key for sealing")]
pub struct KeyError;

crate::opaque!(Seal);

impl Seal {
    /// Creates a seal that uses `keys`. Text sealed for one `purpose` does not open for another.
    ///
    /// # Errors
    ///
    /// If a key cannot be used, or the system has no random numbers for one.
    pub fn new(keys: &Keys, purpose: &'static [u8]) -> Result<Self, KeyError> {
        let mut keys = keys.0.iter().map(Key::new);
        let first = keys
            .next()
            .unwrap_or_else(|| Key::new(&random().ok_or(KeyError)?))?;
        Ok(Self {
            first,
            others: keys.collect::<Result<_, _>>()?,
            purpose,
        })
    }

    /// Seals `plain` into URL-safe text; `None` if the cipher fails.
    pub fn seal(&self, plain: &[u8]) -> Option<String> {
        self.seal_for(plain, b"")
    }

    /// Like [`Seal::seal`], for one owner: only [`Seal::open_for`] with equal bytes opens it.
    pub fn seal_for(&self, plain: &[u8], owner: &[u8]) -> Option<String> {
        Some(URL_SAFE_NO_PAD.encode(self.seal_bytes_for(plain, owner)?))
    }

    /// Like [`Seal::seal_for`], into [`SEAL_BYTES`] more bytes.
    pub fn seal_bytes_for(&self, plain: &[u8], owner: &[u8]) -> Option<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = random()?;
        let mut sealed = [&nonce[..], plain].concat();
        let unique = Nonce::assume_unique_for_key(nonce);
        let (_, text) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let tag = self
            .first
            .key
            .seal_in_place_separate_tag(unique, Aad::from(self.bound(owner)), text)
            .ok()?;
        sealed.extend_from_slice(tag.as_ref());
        Some(sealed)
    }

    /// Opens `text` if one of the keys sealed it for this purpose. The caller limits its length.
    pub fn open(&self, text: &str) -> Option<Vec<u8>> {
        self.open_for(text, b"")
    }

    /// Opens `text` if one of the keys sealed it for this purpose and this owner. The caller limits
    /// its length.
    pub fn open_for(&self, text: &str, owner: &[u8]) -> Option<Vec<u8>> {
        self.open_bytes_for(&URL_SAFE_NO_PAD.decode(text).ok()?, owner)
    }

    /// Opens what [`Seal::seal_bytes_for`] has sealed.
    pub fn open_bytes_for(&self, bytes: &[u8], owner: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = bytes.split_at_checked(NONCE_LEN)?;
        self.keys().find_map(|key| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut sealed = sealed.to_vec();
            let plain = key
                .key
                .open_in_place(nonce, Aad::from(self.bound(owner)), &mut sealed)
                .ok()?;
            Some(plain.to_vec())
        })
    }

    /// A short code for `content` and an owner, which nobody can compute without the key. It is for
    /// values that would be sealed too often. It hides nothing, and must not be the only protection
    /// where it is compared.
    pub fn tag_for(&self, content: &[u8], owner: &[u8]) -> Tag {
        let length = (content.len() as u64).to_be_bytes();
        let code = hmac::sign(
            &self.first.tags,
            &[&length[..], content, &self.bound(owner)].concat(),
        );
        let mut tag = Tag::default();
        // The code is longer than `TAG`, and its text has exactly the length of a tag.
        let _ =
            URL_SAFE_NO_PAD.encode_slice(code.as_ref().get(..TAG).unwrap_or_default(), &mut tag);
        tag
    }

    /// The name of the sealing key: a hash that does not reveal the key.
    pub fn name(&self) -> &str {
        &self.first.name
    }

    /// The names of all keys, beginning with the sealing key.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.keys().map(|key| key.name.as_str())
    }

    /// Purpose and owner as bytes. No purpose is the beginning of another, so the bytes identify
    /// both.
    fn bound(&self, owner: &[u8]) -> Vec<u8> {
        [self.purpose, owner].concat()
    }

    fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl Key {
    fn new(bytes: &[u8; 32]) -> Result<Self, KeyError> {
        let key = UnboundKey::new(&AES_256_GCM_SIV, bytes).map_err(|_| KeyError)?;
        let key = LessSafeKey::new(key);
        let derived = |label: &[u8]| sha256([label, &bytes[..]]);
        let (name, tags) = (derived(b"name of the key: "), derived(b"key of tags: "));
        let tags = hmac::Key::new(hmac::HMAC_SHA256, &tags);
        Ok(Self {
            key,
            tags,
            name: HEXLOWER.encode(&name[..6]),
        })
    }
}

/// Random bytes from the system. The generator of the cipher library would take some 50 ms to
/// gather its seed at the first use.
fn random<const N: usize>() -> Option<[u8; N]> {
    let mut random = [0; N];
    getrandom::fill(&mut random).ok()?;
    Some(random)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sealed_text_opens_only_with_its_key_and_purpose() {
        let seal = with(&[1], b"a");
        let text = seal.seal(b"secret").unwrap();
        assert_eq!(seal.open(&text).as_deref(), Some(&b"secret"[..]));
        assert_ne!(seal.seal(b"secret").unwrap(), text);
        assert_eq!(with(&[2], b"a").open(&text), None);
        assert_eq!(with(&[1], b"b").open(&text), None);
        assert_eq!(
            with(&[], b"a").open(&with(&[], b"a").seal(b"secret").unwrap()),
            None
        );
    }

    #[test]
    fn first_key_seals_and_all_open() {
        let (old, new, newest) = (with(&[1], b"a"), with(&[2, 1], b"a"), with(&[3, 2], b"a"));
        let (by_old, by_new) = (old.seal(b"x").unwrap(), new.seal(b"x").unwrap());
        assert_eq!(new.open(&by_old).as_deref(), Some(&b"x"[..]));
        assert_eq!(newest.open(&by_new).as_deref(), Some(&b"x"[..]));
        assert_eq!((old.open(&by_new), newest.open(&by_old)), (None, None));
        assert_eq!(new.names().collect::<Vec<_>>(), [new.name(), old.name()]);
        assert_ne!(new.name(), old.name());
    }

    #[test]
    fn text_opens_for_its_owner_alone() {
        let seal = with(&[1], b"a");
        let text = seal.seal_for(b"secret", b"ann").unwrap();
        assert_eq!(
            seal.open_for(&text, b"ann").as_deref(),
            Some(&b"secret"[..])
        );
        assert_eq!(
            (seal.open_for(&text, b"bob"), seal.open(&text)),
            (None, None)
        );
    }

    #[test]
    fn tag_depends_on_key_purpose_content_and_owner() {
        let tag = with(&[1], b"a").tag_for(b"content", b"ann");
        assert_eq!(with(&[1, 2], b"a").tag_for(b"content", b"ann"), tag);
        assert!(tag.iter().all(u8::is_ascii_graphic), "{tag:?}");
        for other in [
            with(&[2], b"a").tag_for(b"content", b"ann"),
            with(&[1], b"b").tag_for(b"content", b"ann"),
            with(&[1], b"a").tag_for(b"conten", b"tann"),
            with(&[1], b"a").tag_for(b"content", b"bob"),
        ] {
            assert_ne!(other, tag);
        }
    }

    #[test]
    fn keys_are_not_in_debug_output() {
        assert_eq!(format!("{:?}", Keys::new([[97; 32], [98; 32]])), "Keys(2)");
    }

    fn with(keys: &[u8], purpose: &'static [u8]) -> Seal {
        Seal::new(&Keys::new(keys.iter().map(|key| [*key; 32])), purpose).unwrap()
    }

    proptest! {
        #[test]
        fn text_that_was_not_sealed_does_not_open(text in ".{0,300}") {
            prop_assert_eq!(with(&[1], b"a").open(&text), None);
        }

        #[test]
        fn changed_byte_does_not_open(at in any::<prop::sample::Index>(), bit in 0..8u8) {
            let seal = with(&[1], b"a");
            let mut bytes = URL_SAFE_NO_PAD.decode(seal.seal(b"secret").unwrap()).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(seal.open(&URL_SAFE_NO_PAD.encode(bytes)), None);
        }
    }
}
