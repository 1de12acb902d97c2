//! Checkpoints: signed heads of the tree, in the formats C2SP tlog-checkpoint and signed-note.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use fanlight_protocol::digest::short_digest;

use crate::ledger::tree::{self, Edge, Hash};

/// The number of the algorithm Ed25519 in signed notes.
const ED25519_NOTE: u8 = 1;

/// A key that signs checkpoints.
#[derive(Debug)]
pub struct CheckpointKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
}

/// A key that verifies checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    name: String,
    key: [u8; 32],
}

/// The head of a tree with this number of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The number of blocks.
    pub size: u64,
    pub(crate) root: Hash,
}

/// The reason why a text is not a valid checkpoint or key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCheckpoint {
    /// The text has another form.
    #[error("this is not a checkpoint: a name, a number of blocks, a hash, and a signature")]
    Malformed,
    /// Another key has signed it, or none.
    #[error("the key has not signed this checkpoint")]
    Signature,
    /// The text is not a key.
    #[error("this is not a key: write the line that `fanlight audit key` prints")]
    Key,
}

impl CheckpointKey {
    /// Generates a key. Also returns its bytes for storing it (PKCS #8).
    pub fn generate() -> Option<(Self, Vec<u8>)> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).ok()?;
        let bytes = document.as_ref().to_vec();
        Some((Self::from_bytes(&bytes)?, bytes))
    }

    /// Loads a key from stored bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_pkcs8(bytes).ok()?;
        let key: [u8; 32] = pair.public_key().as_ref().try_into().ok()?;
        let name = format!("fanlight-{}", short_digest(key));
        Some(Self {
            pair,
            public: PublicKey { name, key },
        })
    }

    /// The public key that verifies its checkpoints.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// Signs the head of a tree.
    pub(crate) fn sign(&self, edge: &Edge) -> String {
        let text = body(&self.public.name, edge.size(), &edge.root());
        let signature = self.pair.sign(text.as_bytes());
        let signed = [&self.public.id()[..], signature.as_ref()].concat();
        format!(
            "{text}\n— {} {}\n",
            self.public.name,
            STANDARD.encode(signed)
        )
    }
}

impl PublicKey {
    /// The key in the form of signed notes: name, id and key.
    pub fn to_text(&self) -> String {
        let key = [&[ED25519_NOTE][..], &self.key].concat();
        format!(
            "{}+{}+{}",
            self.name,
            HEXLOWER.encode(&self.id()),
            STANDARD.encode(key)
        )
    }

    /// Parses a key.
    ///
    /// # Errors
    ///
    /// If the text is not a key.
    pub fn read(text: &str) -> Result<Self, InvalidCheckpoint> {
        let mut parts = text.trim().splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(InvalidCheckpoint::Key);
        };
        let bytes = STANDARD.decode(key).map_err(|_| InvalidCheckpoint::Key)?;
        let Some((&ED25519_NOTE, key)) = bytes.split_first() else {
            return Err(InvalidCheckpoint::Key);
        };
        let key = Self {
            name: name.to_owned(),
            key: key.try_into().map_err(|_| InvalidCheckpoint::Key)?,
        };
        if HEXLOWER.encode(&key.id()) == id {
            Ok(key)
        } else {
            Err(InvalidCheckpoint::Key)
        }
    }

    fn id(&self) -> [u8; 4] {
        let text = [self.name.as_bytes(), b"\n", &[ED25519_NOTE], &self.key].concat();
        let hash = tree::hash(&text);
        [hash[0], hash[1], hash[2], hash[3]]
    }

    /// Parses a checkpoint and verifies its signature.
    ///
    /// # Errors
    ///
    /// If the text is not a checkpoint, or this key has not signed it.
    pub fn open(&self, text: &str) -> Result<Checkpoint, InvalidCheckpoint> {
        let malformed = || InvalidCheckpoint::Malformed;
        let (signed, signatures) = text.split_once("\n\n").ok_or_else(malformed)?;
        let mut lines = signed.lines();
        let (Some(_), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(malformed());
        };
        let size = size.parse().map_err(|_| malformed())?;
        let root = STANDARD
            .decode(root)
            .ok()
            .and_then(|root| root.try_into().ok())
            .ok_or_else(malformed)?;
        let own = format!("— {} ", self.name);
        let signature = signatures
            .lines()
            .find_map(|line| line.strip_prefix(&own))
            .ok_or(InvalidCheckpoint::Signature)?;
        let signature = STANDARD.decode(signature).map_err(|_| malformed())?;
        let signature = signature
            .strip_prefix(&self.id()[..])
            .ok_or(InvalidCheckpoint::Signature)?;
        let signed = format!("{signed}\n");
        let verified =
            UnparsedPublicKey::new(&ED25519, &self.key).verify(signed.as_bytes(), signature);
        verified.map_err(|_| InvalidCheckpoint::Signature)?;
        Ok(Checkpoint { size, root })
    }
}

fn body(name: &str, size: u64, root: &Hash) -> String {
    format!("{name}\n{size}\n{}\n", STANDARD.encode(root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoint_is_what_its_key_has_signed_alone() {
        let (key, bytes) = CheckpointKey::generate().unwrap();
        let (other, _) = CheckpointKey::generate().unwrap();
        let mut edge = Edge::default();
        edge.push(tree::hash(b"a"));
        let text = key.sign(&edge);
        let public = PublicKey::read(&key.public().to_text()).unwrap();
        assert_eq!(
            public.open(&text),
            Ok(Checkpoint {
                size: 1,
                root: edge.root()
            })
        );
        assert_eq!(CheckpointKey::from_bytes(&bytes).unwrap().public(), &public);
        assert_eq!(
            other.public().open(&text),
            Err(InvalidCheckpoint::Signature)
        );
        assert_eq!(
            public.open(&text.replace("\n1\n", "\n2\n")),
            Err(InvalidCheckpoint::Signature)
        );
        assert_eq!(public.open("x"), Err(InvalidCheckpoint::Malformed));
        assert_eq!(PublicKey::read("a+b+c"), Err(InvalidCheckpoint::Key));
    }
}
