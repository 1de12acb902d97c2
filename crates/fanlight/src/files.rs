//! How many files the process may have open: each connection is one.
//!
//! Must not know: who opens them.

use fanlight_config::Limits;
use tracing::{debug, info, warn};

/// As many as anybody needs. Where there is no limit at all, child processes would inherit a number
/// that some programs count up to when they close whatever they have inherited.
const ENOUGH: u64 = 1 << 20;

/// Raises the number of files that the process may have open as far as it may itself, and says how
/// many that are; `None` if the system does not tell. Systems start programs with 1024, for the
/// sake of those that use `select`.
pub(crate) fn raise() -> Option<u64> {
    match rlimit::increase_nofile_limit(ENOUGH) {
        Ok(files) => {
            debug!(files, "files that may be open");
            Some(files)
        }
        Err(error) => {
            warn!(%error, "cannot raise the number of files that may be open");
            rlimit::Resource::NOFILE.get_soft().ok()
        }
    }
}

/// Lowers the number of client connections to what `files` open files allow: clients that take all
/// would leave none for connections to backends, and every call would fail.
pub(crate) fn fit(limits: &mut Limits, files: Option<u64>) {
    let Some(files) = files.and_then(|files| usize::try_from(files).ok()) else { return };
    let most = (files - files.div_ceil(4)).max(1);
    if limits.connections > most {
        info!(
            files,
            connections = most,
            "only so many files may be open: limits.connections ({}) is lowered; raise the hard limit (LimitNOFILE, \
             ulimit -Hn) to have more",
            limits.connections
        );
        limits.connections = most;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_it_goes() {
        let (_, hard) = rlimit::Resource::NOFILE.get().unwrap();
        let files = raise().unwrap();
        assert!(files >= hard.min(ENOUGH), "{files} of {hard}");
        assert_eq!(rlimit::Resource::NOFILE.get_soft().unwrap(), files);
    }

    #[test]
    fn clients_leave_files_to_backends() {
        let fitted = |connections, files| {
            let mut limits = Limits { connections, ..Limits::default() };
            fit(&mut limits, files);
            limits.connections
        };
        assert_eq!(fitted(1000, Some(4000)), 1000);
        assert_eq!(fitted(16_384, Some(4000)), 3000);
        assert_eq!(fitted(16_384, None), 16_384);
        assert_eq!(fitted(16_384, Some(0)), 1);
        assert_eq!(Limits { connections: fitted(16_384, Some(ENOUGH)), ..Limits::default() }, Limits::default());
    }
}
