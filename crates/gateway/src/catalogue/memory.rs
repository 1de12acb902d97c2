//! Limits on the bytes of lists in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fanlight_fair::{Budget, Part, Reservation, Spent};

use crate::topology::{ByteLimits, Reader};

/// The bytes that the common lists of all servers take together.
#[derive(Debug, Default)]
pub(crate) struct ListMemory(AtomicUsize);

/// The bytes of lists that belong to single principals. One principal may use at most as many as
/// remain free.
pub(super) struct ReaderMemory {
    budget: Budget<Reader>,
    /// Drops the lists of a principal other than the given one; returns whether there were any.
    evict: Box<dyn Fn(&Reader) -> bool + Send + Sync>,
}

/// How many principals may lose their lists for one reservation.
const EVICTED: usize = 4;

/// The bytes reserved for one list. Dropping the value frees them.
#[derive(Debug)]
pub(crate) struct ReservedBytes {
    memory: Memory,
    bytes: usize,
}

/// The budget that a list's bytes count against.
enum Memory {
    ForAll(Arc<ListMemory>),
    ForOne {
        memory: Arc<ReaderMemory>,
        reader: Reader,
        held: Option<Reservation<Reader>>,
    },
}

fanlight_protocol::opaque!(Memory);

/// The limit that a list exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooManyBytes {
    #[error("it has more than {0} bytes")]
    One(usize),
    #[error("all lists together have more than {0} bytes")]
    All(usize),
}

impl ListMemory {
    /// Begins a reservation of zero bytes for a common list.
    pub(crate) fn reserve(self: &Arc<Self>) -> ReservedBytes {
        ReservedBytes {
            memory: Memory::ForAll(Arc::clone(self)),
            bytes: 0,
        }
    }
}

impl ReaderMemory {
    /// Creates a budget of `bytes`. `evict` drops the lists of a principal other than the one it is
    /// given.
    pub(super) fn new(
        bytes: usize,
        evict: impl Fn(&Reader) -> bool + Send + Sync + 'static,
    ) -> Self {
        Self {
            budget: Budget::new(bytes, Part::AS_MUCH_AS_IT_LEAVES),
            evict: Box::new(evict),
        }
    }

    /// Begins a reservation of zero bytes for a list of this principal.
    pub(super) fn reserve(self: &Arc<Self>, reader: &Reader) -> ReservedBytes {
        let memory = Memory::ForOne {
            memory: Arc::clone(self),
            reader: reader.clone(),
            held: None,
        };
        ReservedBytes { memory, bytes: 0 }
    }

    /// Resizes `held` to `bytes`. Other principals may lose their lists for it.
    fn take(
        &self,
        reader: &Reader,
        held: &mut Option<Reservation<Reader>>,
        bytes: usize,
    ) -> Result<(), Spent> {
        let mut attempt = || match held {
            Some(held) => held.resize(bytes),
            None => self
                .budget
                .reserve(reader, bytes)
                .map(|reservation| *held = Some(reservation)),
        };
        for _ in 0..EVICTED {
            if attempt().is_ok() {
                return Ok(());
            }
            if !(self.evict)(reader) {
                break;
            }
        }
        attempt()
    }
}

impl ReservedBytes {
    /// Reserves `more` bytes for the same list.
    pub(crate) fn grow(&mut self, more: usize, limits: ByteLimits) -> Result<(), TooManyBytes> {
        if self.bytes.saturating_add(more) > limits.one {
            return Err(TooManyBytes::One(limits.one));
        }
        match &mut self.memory {
            Memory::ForAll(memory) => {
                let within = |all: usize| all.checked_add(more).filter(|all| *all <= limits.all);
                let grown = memory
                    .0
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
                grown.map_err(|_| TooManyBytes::All(limits.all))?;
            }
            Memory::ForOne {
                memory,
                reader,
                held,
            } => {
                let all = memory.budget.limit();
                memory
                    .take(reader, held, self.bytes + more)
                    .map_err(|_| TooManyBytes::All(all))?;
            }
        }
        self.bytes += more;
        Ok(())
    }
}

impl Drop for ReservedBytes {
    fn drop(&mut self) {
        if let Memory::ForAll(memory) = &self.memory {
            memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use fanlight_canonical::Principal;

    use super::*;

    #[test]
    fn principal_leaves_bytes_for_others_and_lists_of_others_leave_for_its_first() {
        let evicted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&evicted);
        let evict = move |_: &Reader| count.fetch_add(1, Ordering::Relaxed) < 2;
        let memory = Arc::new(ReaderMemory::new(100, evict));
        let limits = ByteLimits {
            one: 1000,
            all: 1000,
        };
        let [ann, bob] = ["ann", "bob"].map(|name| Reader::from(Principal::new("issuer", name)));
        let mut lists = [&ann, &ann, &bob].map(|reader| memory.reserve(reader));
        assert_eq!(lists[0].grow(40, limits), Ok(()));
        assert_eq!(
            lists[1].grow(40, limits),
            Err(TooManyBytes::All(100)),
            "half of all for one"
        );
        assert_eq!(evicted.load(Ordering::Relaxed), 3);
        assert_eq!(lists[2].grow(60, limits), Ok(()));
        drop(lists);
        assert_eq!(memory.budget.held(), 0);
    }

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
