//! The folder for one configuration's lists in the user's state folder (XDG Base Directory
//! Specification).

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fanlight_config::{Config, Transport};

use crate::instance;

/// Unused lists of a configuration are removed after this time.
const UNUSED: Duration = Duration::from_secs(90 * 86_400);

/// Whether stored lists would be served. A single server is asked directly, and a server without a
/// process has nothing to start.
pub(super) fn is_useful(config: &Config) -> bool {
    let enabled = || config.servers.iter().filter(|server| server.enabled);
    enabled().count() > 1
        && enabled().any(|server| matches!(server.transport, Transport::Stdio { .. }))
}

/// The folder for the configuration in these files, if the user has a state folder.
pub fn folder(files: &[PathBuf]) -> Option<PathBuf> {
    folder_of(&instance::digest(files)?)
}

/// The folder of this name, if the user has a state folder.
pub fn folder_of(name: &str) -> Option<PathBuf> {
    Some(state_home()?.join("fanlight").join(name))
}

fn state_home() -> Option<PathBuf> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    variable("XDG_STATE_HOME").or_else(|| {
        // Under `sudo`, HOME may belong to another user, who could not use files that root creates
        // there.
        let is_own = |home: &PathBuf| {
            fs::metadata(home).is_ok_and(|home| home.uid() == rustix::process::geteuid().as_raw())
        };
        Some(variable("HOME").filter(is_own)?.join(".local/state"))
    })
}

/// Removes the folders of other configurations that were unused for long.
pub(super) fn remove_unused(own: &Path) {
    let all = own.parent().and_then(|parent| fs::read_dir(parent).ok());
    for entry in all.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours =
            name.len() == instance::LENGTH && name.as_bytes().iter().all(u8::is_ascii_hexdigit);
        let changed = |path: &Path| {
            fs::metadata(path)
                .and_then(|metadata| metadata.modified())
                .ok()
        };
        // The store is changed in place, so the folder's time is not enough.
        let used = changed(&entry.path()).max(changed(&entry.path().join(fanlight_grants::FILE)));
        let is_unused = used
            .and_then(|at| at.elapsed().ok())
            .is_some_and(|age| age > UNUSED);
        // A folder with users' grants stays, however long it was unused.
        if is_ours
            && is_unused
            && entry.path() != own
            && !fanlight_grants::holds_users(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
