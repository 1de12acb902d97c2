//! The memory for assembling a body. A long body gets separate pages, which soon return to the
//! system.
//!
//! The allocator keeps large freed blocks, so after a burst of long results the process would stay
//! as large as it was. Fresh pages from the system cost as much time as the copy into them. So some
//! are kept for the next body, and returned after a moment without use.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use memmap2::MmapMut;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::runtime::Handle;
use tokio::time::sleep;

/// The size from which a body gets pages, in bytes.
const LONG: usize = 256 << 10;
/// Unused pages are returned after at least this time, and at most twice this time.
const SPARE_TIME: Duration = Duration::from_secs(1);

/// A growing buffer.
pub struct BodyBuffer {
    memory: Memory,
    max_spare: usize,
}

enum Memory {
    Block(BytesMut),
    Pages(Pages),
}

/// Pages that are filled from the beginning.
struct Pages {
    /// `None` after the drop.
    map: Option<MmapMut>,
    filled: usize,
    max_spare: usize,
}

impl BodyBuffer {
    /// Creates a buffer for `bytes` that grows if necessary. Its unused memory is kept as spare if
    /// all spare pages of the process stay within `max_spare` bytes.
    pub fn new(bytes: usize, max_spare: usize) -> Self {
        Self {
            memory: Memory::new(bytes, max_spare),
            max_spare,
        }
    }

    /// The number of bytes in it.
    #[expect(clippy::len_without_is_empty, reason = "no caller has a use for it")]
    pub fn len(&self) -> usize {
        match &self.memory {
            Memory::Block(block) => block.len(),
            Memory::Pages(pages) => pages.filled,
        }
    }

    /// Appends bytes.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.reserve(bytes.len());
        match &mut self.memory {
            Memory::Block(block) => block.extend_from_slice(bytes),
            Memory::Pages(pages) => {
                if let Some(free) = pages.free().get_mut(..bytes.len()) {
                    free.copy_from_slice(bytes);
                    pages.filled += bytes.len();
                }
            }
        }
    }

    /// Reads once from `stream`, at most `max` bytes; returns the number, 0 at the end. Cancel
    /// safe.
    pub(crate) async fn read_from(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        max: usize,
    ) -> io::Result<usize> {
        self.reserve(1);
        match &mut self.memory {
            Memory::Block(block) => stream.take(max as u64).read_buf(block).await,
            Memory::Pages(pages) => {
                let free = pages.free();
                let max = free.len().min(max);
                let read = stream.read(free.get_mut(..max).unwrap_or_default()).await?;
                pages.filled += read;
                Ok(read)
            }
        }
    }

    /// Returns the bytes without a copy.
    #[must_use]
    pub fn freeze(self) -> Bytes {
        match self.memory {
            Memory::Block(block) => block.freeze(),
            Memory::Pages(pages) => Bytes::from_owner(pages),
        }
    }

    fn reserve(&mut self, more: usize) {
        let needed = self.len() + more;
        let (capacity, filled): (usize, &[u8]) = match &self.memory {
            Memory::Block(block) => (block.capacity(), block),
            Memory::Pages(pages) => (
                pages.map.as_ref().map_or(0, |map| map.len()),
                pages.as_ref(),
            ),
        };
        if needed > capacity {
            let mut larger = Self::new(needed.max(2 * capacity), self.max_spare);
            larger.extend_from_slice(filled);
            *self = larger;
        }
    }
}

impl Memory {
    fn new(bytes: usize, max_spare: usize) -> Self {
        // If the system has no pages, the allocator may still have some.
        match (bytes >= LONG).then(|| Pages::new(bytes, max_spare)) {
            Some(Ok(pages)) => Self::Pages(pages),
            Some(Err(_)) | None => Self::Block(BytesMut::with_capacity(bytes)),
        }
    }
}

impl Pages {
    fn new(bytes: usize, max_spare: usize) -> io::Result<Self> {
        // Few different sizes, so that spare pages fit the next body. Pages without writes take no
        // memory.
        let bytes = bytes.next_power_of_two();
        let map = match SPARE.lock().take(bytes) {
            Some(map) => map,
            None => MmapMut::map_anon(bytes)?,
        };
        Ok(Self {
            map: Some(map),
            filled: 0,
            max_spare,
        })
    }

    fn free(&mut self) -> &mut [u8] {
        self.map
            .as_mut()
            .and_then(|map| map.get_mut(self.filled..))
            .unwrap_or_default()
    }
}

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        self.map
            .as_ref()
            .and_then(|map| map.get(..self.filled))
            .unwrap_or_default()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // Without a runtime, no sweeper could return the pages later.
        if let (Some(map), Ok(runtime)) = (self.map.take(), Handle::try_current()) {
            let mut spare = SPARE.lock();
            let surplus = spare.put(map, self.max_spare);
            let needs_sweeper =
                !spare.maps.is_empty() && !std::mem::replace(&mut spare.has_sweeper, true);
            // A runtime that has ended drops the sweeper here, which locks the spare pages.
            drop(spare);
            drop(surplus);
            if needs_sweeper {
                runtime.spawn(Sweeper.run());
            }
        }
    }
}

/// The spare pages of the process.
static SPARE: Mutex<Spare> = Mutex::new(Spare {
    maps: Vec::new(),
    round: 0,
    has_sweeper: false,
});

struct Spare {
    /// Pages, each with the sweeper's round in which they became unused.
    maps: Vec<(MmapMut, u64)>,
    round: u64,
    has_sweeper: bool,
}

impl Spare {
    /// The most recently used pages, which the processor may still have in its caches.
    fn take(&mut self, bytes: usize) -> Option<MmapMut> {
        let found = self.maps.iter().rposition(|(map, _)| map.len() == bytes)?;
        Some(self.maps.remove(found).0)
    }

    /// Keeps pages; returns them if that would exceed `max`.
    fn put(&mut self, map: MmapMut, max: usize) -> Option<MmapMut> {
        let total: usize = self.maps.iter().map(|(map, _)| map.len()).sum();
        if total + map.len() > max {
            return Some(map);
        }
        self.maps.push((map, self.round));
        None
    }

    /// Removes the pages that were unused for a whole round.
    fn take_unused(&mut self) -> Vec<(MmapMut, u64)> {
        let round = self.round;
        self.round += 1;
        self.maps
            .extract_if(.., |(_, since)| *since < round)
            .collect()
    }
}

/// A task that returns spare pages to the system, and ends when there are none.
struct Sweeper;

impl Sweeper {
    async fn run(self) {
        loop {
            sleep(SPARE_TIME).await;
            let mut spare = SPARE.lock();
            let (unused, is_empty) = (spare.take_unused(), spare.maps.is_empty());
            drop(spare);
            drop(unused);
            if is_empty {
                return;
            }
        }
    }
}

impl Drop for Sweeper {
    /// No pages are left, or the runtime has ended.
    fn drop(&mut self) {
        let mut spare = SPARE.lock();
        spare.has_sweeper = false;
        let unused = std::mem::take(&mut spare.maps);
        drop(spare);
        drop(unused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(bytes: usize, max_spare: usize) -> Bytes {
        let mut buffer = BodyBuffer::new(bytes, max_spare);
        buffer.extend_from_slice(&vec![b'x'; bytes]);
        buffer.freeze()
    }

    fn spare_of(bytes: usize) -> usize {
        SPARE
            .lock()
            .maps
            .iter()
            .filter(|(map, _)| map.len() == bytes)
            .count()
    }

    /// Runs a test with a paused clock. The spare pages belong to the process, and the end of a
    /// runtime returns all of them. So only one test runs at a time, until its runtime has ended.
    fn run_alone(test: impl Future<Output = ()>) {
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(test);
    }

    #[test]
    fn buffer_holds_all_that_was_put_there() {
        run_alone(async {
            let all: Vec<u8> = (0..3_000_000).map(|index| (index % 251) as u8).collect();
            for start in [0, 100, LONG, 5 << 20] {
                let mut buffer = BodyBuffer::new(start, 0);
                let (first, second) = all.split_at(70_000);
                buffer.extend_from_slice(first);
                let mut stream = second;
                while buffer.read_from(&mut stream, 1 << 20).await.unwrap() > 0 {}
                assert_eq!(buffer.len(), all.len());
                assert_eq!(buffer.freeze(), all);
            }
        });
    }

    #[test]
    fn read_takes_no_more_than_asked_for() {
        run_alone(async {
            for start in [10, LONG] {
                let mut buffer = BodyBuffer::new(start, 0);
                let mut stream = &b"abcdef"[..];
                assert_eq!(buffer.read_from(&mut stream, 4).await.unwrap(), 4);
                assert_eq!(buffer.freeze(), "abcd");
            }
        });
    }

    #[test]
    fn pages_are_reused_and_returned_after_a_moment() {
        run_alone(async {
            const SIZE: usize = 1 << 23;
            let address = filled(SIZE, 2 * SIZE).as_ptr();
            assert_eq!(spare_of(SIZE), 1);
            let (again, another) = (filled(SIZE - 5, 2 * SIZE), filled(SIZE, 2 * SIZE));
            assert_eq!((again.as_ptr(), spare_of(SIZE)), (address, 0));
            drop((again, another));
            assert_eq!(spare_of(SIZE), 2);
            // The paused clock advances when all tasks wait.
            sleep(3 * SPARE_TIME).await;
            assert_eq!(spare_of(SIZE), 0);
        });
    }

    #[test]
    fn spare_pages_stay_within_their_limit() {
        run_alone(async {
            const SIZE: usize = 1 << 24;
            drop((filled(SIZE, SIZE - 1), filled(SIZE, 0)));
            assert_eq!(spare_of(SIZE), 0);
        });
    }

    #[test]
    fn pages_are_not_kept_without_a_runtime() {
        const SIZE: usize = 1 << 25;
        run_alone(async {
            let without_runtime = std::thread::spawn(|| drop(filled(SIZE, usize::MAX)));
            without_runtime.join().unwrap();
            assert_eq!(spare_of(SIZE), 0);
            let inner = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap();
            let pages = filled(SIZE, usize::MAX);
            let entered = inner.enter();
            drop(pages);
            drop(entered);
            assert_eq!(spare_of(SIZE), 1);
            let handle = inner.handle().clone();
            inner.shutdown_background();
            assert_eq!(spare_of(SIZE), 0);
            let pages = filled(SIZE, usize::MAX);
            let entered = handle.enter();
            drop(pages);
            drop(entered);
            assert_eq!(spare_of(SIZE), 0);
        });
    }
}
