//! A bound on the bytes of lists in memory.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::topology::ByteLimits;

/// The bytes of the lists of all backends together.
#[derive(Debug, Default)]
pub(crate) struct ListMemory(AtomicUsize);

/// The bytes of one list, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct ReservedBytes {
    memory: Arc<ListMemory>,
    bytes: usize,
}

/// A bound that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooManyBytes {
    One(usize),
    All(usize),
}

impl fmt::Display for TooManyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(limit) => write!(f, "it has more than {limit} bytes"),
            Self::All(limit) => write!(f, "all lists together have more than {limit} bytes"),
        }
    }
}

impl ListMemory {
    /// Nothing yet.
    pub(crate) fn reserve(self: &Arc<Self>) -> ReservedBytes {
        ReservedBytes { memory: Arc::clone(self), bytes: 0 }
    }
}

impl ReservedBytes {
    /// Reserves `more` bytes for the same list.
    pub(crate) fn grow(&mut self, more: usize, limits: ByteLimits) -> Result<(), TooManyBytes> {
        if self.bytes.saturating_add(more) > limits.one {
            return Err(TooManyBytes::One(limits.one));
        }
        let within = |all: usize| all.checked_add(more).filter(|all| *all <= limits.all);
        let grown = self.memory.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        grown.map_err(|_| TooManyBytes::All(limits.all))?;
        self.bytes += more;
        Ok(())
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_one_list_and_of_all_are_bounded_and_given_back() {
        let memory = Arc::<ListMemory>::default();
        let limits = ByteLimits { one: 10, all: 15 };
        let (mut first, mut second) = (memory.reserve(), memory.reserve());
        assert_eq!(first.grow(10, limits), Ok(()));
        assert_eq!(first.grow(1, limits), Err(TooManyBytes::One(10)));
        assert_eq!(second.grow(6, limits), Err(TooManyBytes::All(15)));
        assert_eq!(second.grow(5, limits), Ok(()));
        drop(first);
        assert_eq!(second.grow(5, limits), Ok(()));
        drop(second);
        assert_eq!(memory.0.load(Ordering::Relaxed), 0);
    }
}
