//! The folder for the lists of one configuration in the state folder of the user (XDG Base Directory Specification).

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fanlight_config::{Config, Transport};

use crate::instance;

/// After this time without a run, the lists of a configuration are removed.
const UNUSED: Duration = Duration::from_secs(90 * 86_400);

/// Whether kept lists would be served: the only server is asked itself, and servers without a process are not started.
pub(super) fn is_useful(config: &Config) -> bool {
    let enabled = || config.servers.iter().filter(|server| server.enabled);
    enabled().count() > 1
        && enabled().any(|server| matches!(server.transport, Transport::Stdio { .. }))
}

/// The folder for the configuration in these files, if the user has a state folder.
pub(crate) fn folder(files: &[PathBuf]) -> Option<PathBuf> {
    folder_of(&instance::of(files)?)
}

/// The folder of this name, if the user has a state folder.
pub(crate) fn folder_of(name: &str) -> Option<PathBuf> {
    Some(state_home()?.join("fanlight").join(name))
}

fn state_home() -> Option<PathBuf> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    variable("XDG_STATE_HOME").or_else(|| {
        // Under `sudo` it may be another user's, who could not use what is made there.
        let is_own = |home: &PathBuf| {
            fs::metadata(home).is_ok_and(|home| home.uid() == rustix::process::geteuid().as_raw())
        };
        Some(variable("HOME").filter(is_own)?.join(".local/state"))
    })
}

/// Removes the folders of configurations that have not been used for long, besides that of this one.
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
        // The store is changed in place.
        let used = changed(&entry.path()).max(changed(&entry.path().join(fanlight_grants::FILE)));
        let is_unused = used
            .and_then(|at| at.elapsed().ok())
            .is_some_and(|age| age > UNUSED);
        // What users have granted is not lost because nobody has used it for long.
        if is_ours
            && is_unused
            && entry.path() != own
            && !fanlight_grants::holds_users(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
