//! Properties of signature algorithms: the type of key, and the library's name.

use fanlight_config::settings::Algorithm;
use jsonwebtoken as library;

/// The type of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyType {
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl KeyType {
    /// The type of keys for `algorithm`.
    pub(crate) fn for_algorithm(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Rs256 | Algorithm::Rs384 | Algorithm::Rs512 => Self::Rsa,
            Algorithm::Ps256 | Algorithm::Ps384 | Algorithm::Ps512 => Self::Rsa,
            Algorithm::Es256 => Self::P256,
            Algorithm::Es384 => Self::P384,
            Algorithm::EdDsa => Self::Ed25519,
        }
    }
}

/// The library's name for an algorithm.
pub(crate) fn library_algorithm(algorithm: Algorithm) -> library::Algorithm {
    match algorithm {
        Algorithm::Rs256 => library::Algorithm::RS256,
        Algorithm::Rs384 => library::Algorithm::RS384,
        Algorithm::Rs512 => library::Algorithm::RS512,
        Algorithm::Ps256 => library::Algorithm::PS256,
        Algorithm::Ps384 => library::Algorithm::PS384,
        Algorithm::Ps512 => library::Algorithm::PS512,
        Algorithm::Es256 => library::Algorithm::ES256,
        Algorithm::Es384 => library::Algorithm::ES384,
        Algorithm::EdDsa => library::Algorithm::EdDSA,
    }
}
