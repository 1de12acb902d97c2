//! Telling clients apart towards the core.

use std::sync::atomic::{AtomicU64, Ordering};

/// A value that no other client or modern request of this process has. 0 stands for Fanlight.
pub(crate) fn new_client_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
