//! Signature algorithms.

/// An asymmetric signature algorithm (RFC 7518, 3.1; RFC 8037, 3.1). Others are not supported: with
/// `none` anybody can sign, and with HMAC everybody who can verify.
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

impl Algorithm {
    /// Each algorithm with its `alg` name.
    pub const NAMES: [(&str, Self); 9] = [
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("PS384", Self::Ps384),
        ("PS512", Self::Ps512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
    ];

    /// The `alg` names, sorted.
    pub fn names() -> [&'static str; 9] {
        let mut names = Self::NAMES.map(|(name, _)| name);
        names.sort_unstable();
        names
    }

    /// The algorithm with this `alg` name.
    pub fn from_name(name: &str) -> Option<Self> {
        // RFC 9864 deprecates the name `EdDSA` in favour of this one.
        let name = if name == "Ed25519" { "EdDSA" } else { name };
        Self::NAMES
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, algorithm)| *algorithm)
    }
}
