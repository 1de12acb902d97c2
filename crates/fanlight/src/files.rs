//! The limit of open files (RLIMIT_NOFILE). Each connection takes one.

use fanlight_config::Limits;
use tracing::{debug, info, warn};

/// The highest useful limit, more than any gateway needs. It is finite because child processes
/// inherit it, and some close every number up to it when they start.
const ENOUGH: u64 = 1 << 20;

/// Raises the soft limit of open files to the hard limit, and returns it; `None` if it is unknown.
/// The usual default of 1024 exists for programs that use `select`.
pub(crate) fn raise() -> Option<u64> {
    match rlimit::increase_nofile_limit(ENOUGH) {
        Ok(files) => {
            debug!(files, "limit of open files raised");
            Some(files)
        }
        Err(error) => {
            warn!(%error, "cannot raise the limit of open files");
            rlimit::Resource::NOFILE.get_soft().ok()
        }
    }
}

/// The number of files reserved besides clients: the process itself has some twenty.
const RESERVED: usize = 32;

/// Lowers the limit of client connections to three quarters of `files`. The rest serves connections
/// to servers, waiting connections and operators.
pub(crate) fn lower(limits: &mut Limits, files: Option<u64>) {
    let Some(files) = files.and_then(|files| usize::try_from(files).ok()) else {
        return;
    };
    let most = files.saturating_sub(files.div_ceil(4).max(RESERVED)).max(1);
    limits.connections = limits.connections.min(most);
    let rest = files.saturating_sub(most);
    limits.waiting_connections = limits.waiting_connections.min(rest / 8).max(1);
    limits.admin_connections = limits.admin_connections.min(rest / 4).max(1);
}

/// A number of connections that few gateways reach. A limit that is lowered to more than this
/// causes no notice.
const MANY: usize = 2048;

/// Lowers limits as [`lower`] does, and logs this if it may matter: if the limit was configured, or
/// is now low.
pub(crate) fn fit(limits: &mut Limits, files: Option<u64>) {
    let configured = limits.connections;
    lower(limits, files);
    let matters = configured != Limits::default().connections || limits.connections < MANY;
    if limits.connections < configured && !matters {
        debug!(
            files,
            connections = limits.connections,
            "limits.connections lowered to fit the limit of open files"
        );
    } else if limits.connections < configured {
        info!(
            files,
            connections = limits.connections,
            "limits.connections ({configured}) lowered to fit the limit of open files; to keep it, raise the hard limit \
             (LimitNOFILE, ulimit -Hn)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raise_reaches_the_hard_limit() {
        let (_, hard) = rlimit::Resource::NOFILE.get().unwrap();
        let files = raise().unwrap();
        assert!(files >= hard.min(ENOUGH), "{files} of {hard}");
        assert_eq!(rlimit::Resource::NOFILE.get_soft().unwrap(), files);
    }

    #[test]
    fn fit_leaves_files_to_backends() {
        let fitted = |connections, files| {
            let mut limits = Limits {
                connections,
                ..Limits::default()
            };
            fit(&mut limits, files);
            limits.connections
        };
        assert_eq!(fitted(1000, Some(4000)), 1000);
        assert_eq!(fitted(16_384, Some(4000)), 3000);
        assert_eq!(fitted(16_384, None), 16_384);
        assert_eq!(fitted(16_384, Some(0)), 1);
        let mut few = Limits::default();
        fit(&mut few, Some(64));
        assert_eq!(
            (
                few.connections,
                few.waiting_connections,
                few.admin_connections
            ),
            (32, 4, 8)
        );
        assert_eq!(
            Limits {
                connections: fitted(16_384, Some(ENOUGH)),
                ..Limits::default()
            },
            Limits::default()
        );
    }
}
