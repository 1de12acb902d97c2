//! The limits of servers' lists, for all that read them. There are no options for these.

use std::time::Duration;

/// The most pages of one list.
pub const LIST_PAGES: usize = 1000;

/// The most entries of one list.
pub const LIST_ENTRIES: usize = 100_000;

/// The most bytes of one list.
pub const LIST_BYTES: usize = 64 << 20;

/// How long changes of a list are collected, so that a burst is read and announced once.
pub const LIST_SETTLE: Duration = Duration::from_millis(100);
