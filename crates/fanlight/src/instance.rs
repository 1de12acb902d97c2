//! Which gateway is meant: a digest of where its configuration is, which tells gateways on one machine apart.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use aws_lc_rs::digest::{Context, SHA256};
use data_encoding::HEXLOWER;

/// Bytes of the digest.
const BYTES: usize = 8;
/// Characters of the digest.
pub(crate) const LENGTH: usize = 2 * BYTES;

/// The digest of the configuration in these files, in hexadecimal digits; `None` if the folder of one cannot be found.
pub(crate) fn of(files: &[PathBuf]) -> Option<String> {
    let mut digest = Context::new(&SHA256);
    for file in files {
        // The file itself may be a link that leads elsewhere after each change, as in a mounted ConfigMap.
        let file = std::path::absolute(file).ok()?;
        let path = file.parent()?.canonicalize().ok()?.join(file.file_name()?);
        digest.update(path.as_os_str().as_bytes());
        // No path has a zero byte.
        digest.update(&[0]);
    }
    Some(HEXLOWER.encode(digest.finish().as_ref().get(..BYTES)?))
}
