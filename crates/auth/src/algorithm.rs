//! Algorithms of signatures, and the keys that they need.

use jsonwebtoken as library;

/// An algorithm of asymmetric signatures (RFC 7518, 3.1; RFC 8037, 3.1). There is no other: with `none` anybody can sign,
/// and with HMAC everybody who can verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// ECDSA with P-256 and SHA-256.
    Es256,
    /// ECDSA with P-384 and SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

/// The type of a public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyType {
    Rsa,
    P256,
    P384,
    Ed25519,
}

impl Algorithm {
    /// The algorithm with this name as `alg`.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            // The second is the name by RFC 9864, which deprecates the first.
            "EdDSA" | "Ed25519" => Self::EdDsa,
            _ => return None,
        })
    }

    /// The only type of keys that it can be used with.
    pub(crate) fn key_type(self) -> KeyType {
        match self {
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512 => KeyType::Rsa,
            Self::Es256 => KeyType::P256,
            Self::Es384 => KeyType::P384,
            Self::EdDsa => KeyType::Ed25519,
        }
    }

    pub(crate) fn of_library(self) -> library::Algorithm {
        match self {
            Self::Rs256 => library::Algorithm::RS256,
            Self::Rs384 => library::Algorithm::RS384,
            Self::Rs512 => library::Algorithm::RS512,
            Self::Ps256 => library::Algorithm::PS256,
            Self::Ps384 => library::Algorithm::PS384,
            Self::Ps512 => library::Algorithm::PS512,
            Self::Es256 => library::Algorithm::ES256,
            Self::Es384 => library::Algorithm::ES384,
            Self::EdDsa => library::Algorithm::EdDSA,
        }
    }
}
