//! A finding about a server that holds for one base connection.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::connection::Connection;

/// A fact about a server that holds for one base connection.
pub(super) struct Finding<T>(Mutex<Option<(Weak<Connection>, T)>>);

impl<T> Default for Finding<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Finding<T> {
    /// The fact on this connection, or on the last one if there is none now.
    pub(super) fn find(&self, base: Option<&Arc<Connection>>) -> Option<T> {
        let known = self.0.lock();
        let known = known.as_ref();
        let current = known.filter(|(on, _)| base.is_none_or(|base| is_of(on, base)));
        current.map(|(_, fact)| fact.clone())
    }

    /// Records the fact, unless one is known on this connection.
    pub(super) fn record(&self, base: &Arc<Connection>, fact: T) {
        let mut known = self.0.lock();
        if !known.as_ref().is_some_and(|(on, _)| is_of(on, base)) {
            *known = Some((Arc::downgrade(base), fact));
        }
    }
}

fn is_of(on: &Weak<Connection>, base: &Arc<Connection>) -> bool {
    std::ptr::eq(on.as_ptr(), Arc::as_ptr(base))
}
