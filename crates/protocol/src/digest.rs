//! SHA-256 digests.

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use data_encoding::HEXLOWER;

/// A digest.
pub type Sha256 = [u8; SHA256_OUTPUT_LEN];

/// The digest of all parts, one after another.
pub fn sha256<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Sha256 {
    let mut context = Context::new(&SHA256);
    parts
        .into_iter()
        .for_each(|part| context.update(part.as_ref()));
    finished(context)
}

/// The digest of all parts, told apart by their lengths.
pub fn sha256_of_parts<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> Sha256 {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.as_ref().len() as u64).to_be_bytes());
        context.update(part.as_ref());
    }
    finished(context)
}

/// Ends `context`, and gives the digest of all that it has read.
pub fn finished(context: Context) -> Sha256 {
    context.finish().as_ref().try_into().unwrap_or_default()
}

/// The digest of `bytes` in hexadecimal.
pub fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    HEXLOWER.encode(&sha256([bytes]))
}

/// The first eight bytes of the digest of `bytes` in hexadecimal, to show or compare.
pub fn short_digest(bytes: impl AsRef<[u8]>) -> String {
    HEXLOWER.encode(&sha256([bytes])[..8])
}
