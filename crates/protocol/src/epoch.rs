//! Times since 1970. A time before counts as 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time from 1970 to `at`.
pub fn since(at: SystemTime) -> Duration {
    at.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The time from 1970 until now.
pub fn now() -> Duration {
    since(SystemTime::now())
}

/// The whole seconds from 1970 until now.
pub fn seconds() -> u64 {
    now().as_secs()
}
