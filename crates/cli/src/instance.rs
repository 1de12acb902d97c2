//! The identity of a gateway: a digest of the path of its configuration, which distinguishes
//! gateways on one machine.

use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use fanlight_protocol::digest::short_digest;

use crate::demo;

/// The length of the digest in characters.
pub const LENGTH: usize = 16;

/// The digest for the configuration in these files, in hexadecimal digits; `None` if the folder of
/// one cannot be found.
pub fn digest(files: &[PathBuf]) -> Option<String> {
    let mut paths = Vec::new();
    for file in files {
        // The demo is the same in every folder.
        if file.as_os_str() == demo::ORIGIN {
            paths.extend_from_slice(demo::ORIGIN.as_bytes());
            continue;
        }
        // Resolve only the folder: the file may be a link with changing targets, as in a mounted
        // ConfigMap.
        let file = std::path::absolute(file).ok()?;
        let path = file.parent()?.canonicalize().ok()?.join(file.file_name()?);
        paths.extend_from_slice(path.as_os_str().as_bytes());
        // A zero byte separates paths, which never contain one.
        paths.push(0);
    }
    Some(short_digest(paths))
}
