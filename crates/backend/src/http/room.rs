//! Where a body is put together. A long one gets pages of its own, which the system soon has back.
//!
//! The allocator keeps what large blocks leave behind: after a burst of long results a process would stay as large as
//! it was then. On the other hand pages that the system has just handed out cost as much time as copying what is put
//! there, so some are kept for what comes next, and given back once nobody has used them for a moment.
//!
//! Must not know: HTTP, what a body says.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use memmap2::MmapMut;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::runtime::Handle;
use tokio::time::sleep;

/// Bytes from which on a body gets pages.
const LONG: usize = 256 << 10;
/// How long pages are kept at least that nobody uses; at most twice that.
const KEPT: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Room {
    memory: Memory,
    most_spare: usize,
}

enum Memory {
    Block(BytesMut),
    Pages(Pages),
}

/// The beginning of some pages.
struct Pages {
    /// Taken when this is dropped.
    map: Option<MmapMut>,
    filled: usize,
    most_spare: usize,
}

impl Room {
    /// Room for `bytes`, and for more when there are more. Of the pages that are not used any more as many are kept that
    /// all of those are `most_spare` bytes.
    pub(super) fn new(bytes: usize, most_spare: usize) -> Self {
        Self { memory: Memory::new(bytes, most_spare), most_spare }
    }

    pub(super) fn len(&self) -> usize {
        match &self.memory {
            Memory::Block(block) => block.len(),
            Memory::Pages(pages) => pages.filled,
        }
    }

    pub(super) fn extend_from_slice(&mut self, bytes: &[u8]) {
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

    /// Reads once from `stream`, `most` bytes at most; gives how many, 0 at its end. Can be dropped and called again.
    pub(super) async fn read_from(&mut self, stream: &mut (impl AsyncRead + Unpin), most: usize) -> io::Result<usize> {
        self.reserve(1);
        match &mut self.memory {
            Memory::Block(block) => stream.take(most as u64).read_buf(block).await,
            Memory::Pages(pages) => {
                let free = pages.free();
                let most = free.len().min(most);
                let read = stream.read(free.get_mut(..most).unwrap_or_default()).await?;
                pages.filled += read;
                Ok(read)
            }
        }
    }

    /// What was put here.
    pub(super) fn freeze(self) -> Bytes {
        match self.memory {
            Memory::Block(block) => block.freeze(),
            Memory::Pages(pages) => Bytes::from_owner(pages),
        }
    }

    fn reserve(&mut self, more: usize) {
        let needed = self.len() + more;
        let (capacity, filled): (usize, &[u8]) = match &self.memory {
            Memory::Block(block) => (block.capacity(), block),
            Memory::Pages(pages) => (pages.map.as_ref().map_or(0, |map| map.len()), pages.as_ref()),
        };
        if needed > capacity {
            let mut larger = Self::new(needed.max(2 * capacity), self.most_spare);
            larger.extend_from_slice(filled);
            *self = larger;
        }
    }
}

impl Memory {
    fn new(bytes: usize, most_spare: usize) -> Self {
        // Without pages the allocator may still have some.
        match (bytes >= LONG).then(|| Pages::new(bytes, most_spare)) {
            Some(Ok(pages)) => Self::Pages(pages),
            Some(Err(_)) | None => Self::Block(BytesMut::with_capacity(bytes)),
        }
    }
}

impl Pages {
    fn new(bytes: usize, most_spare: usize) -> io::Result<Self> {
        // Few sizes, so that one fits the next. What nobody writes to takes no memory.
        let bytes = bytes.next_power_of_two();
        let map = match spare().take(bytes) {
            Some(map) => map,
            None => MmapMut::map_anon(bytes)?,
        };
        Ok(Self { map: Some(map), filled: 0, most_spare })
    }

    fn free(&mut self) -> &mut [u8] {
        self.map.as_mut().and_then(|map| map.get_mut(self.filled..)).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Pages {
    fn as_ref(&self) -> &[u8] {
        self.map.as_ref().and_then(|map| map.get(..self.filled)).unwrap_or_default()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // Only where they can be given back later.
        if let (Some(map), Ok(runtime)) = (self.map.take(), Handle::try_current()) {
            let mut spare = spare();
            let surplus = spare.put(map, self.most_spare);
            if !spare.maps.is_empty() && !std::mem::replace(&mut spare.swept, true) {
                runtime.spawn(Sweep.run());
            }
            drop(spare);
            drop(surplus);
        }
    }
}

/// Pages that nobody uses.
static SPARE: Mutex<Spare> = Mutex::new(Spare { maps: Vec::new(), turn: 0, swept: false });

fn spare() -> MutexGuard<'static, Spare> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Spare {
    /// With the turn in which they came.
    maps: Vec<(MmapMut, u64)>,
    turn: u64,
    /// Whether there is a [`Sweep`].
    swept: bool,
}

impl Spare {
    /// Those that came last, of which the processor may still have some.
    fn take(&mut self, bytes: usize) -> Option<MmapMut> {
        let found = self.maps.iter().rposition(|(map, _)| map.len() == bytes)?;
        Some(self.maps.remove(found).0)
    }

    /// Gives back what there is no room for.
    fn put(&mut self, map: MmapMut, most: usize) -> Option<MmapMut> {
        let all: usize = self.maps.iter().map(|(map, _)| map.len()).sum();
        if all + map.len() > most {
            return Some(map);
        }
        self.maps.push((map, self.turn));
        None
    }

    /// Those that came before the last turn.
    fn unused(&mut self) -> Vec<(MmapMut, u64)> {
        let turn = self.turn;
        self.turn += 1;
        self.maps.extract_if(.., |(_, since)| *since < turn).collect()
    }
}

/// Gives pages back, as long as there are any.
struct Sweep;

impl Sweep {
    async fn run(self) {
        loop {
            sleep(KEPT).await;
            let mut spare = spare();
            let (unused, none_left) = (spare.unused(), spare.maps.is_empty());
            drop(spare);
            drop(unused);
            if none_left {
                return;
            }
        }
    }
}

impl Drop for Sweep {
    /// Nothing is left, or the runtime has ended.
    fn drop(&mut self) {
        let mut spare = spare();
        spare.swept = false;
        let unused = std::mem::take(&mut spare.maps);
        drop(spare);
        drop(unused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(bytes: usize, most_spare: usize) -> Bytes {
        let mut room = Room::new(bytes, most_spare);
        room.extend_from_slice(&vec![b'x'; bytes]);
        room.freeze()
    }

    fn kept(bytes: usize) -> usize {
        spare().maps.iter().filter(|(map, _)| map.len() == bytes).count()
    }

    // Each test uses a size of its own, as all use the same spare pages.

    #[tokio::test]
    async fn what_is_put_there_is_there_however_much_it_is() {
        let all: Vec<u8> = (0..3_000_000).map(|index| (index % 251) as u8).collect();
        for start in [0, 100, LONG, 5 << 20] {
            let mut room = Room::new(start, 0);
            let (first, second) = all.split_at(70_000);
            room.extend_from_slice(first);
            let mut stream = second;
            while room.read_from(&mut stream, 1 << 20).await.unwrap() > 0 {}
            assert_eq!(room.len(), all.len());
            assert_eq!(room.freeze(), all);
        }
    }

    #[tokio::test]
    async fn no_more_is_read_than_asked_for() {
        for start in [10, LONG] {
            let mut room = Room::new(start, 0);
            let mut stream = &b"abcdef"[..];
            assert_eq!(room.read_from(&mut stream, 4).await.unwrap(), 4);
            assert_eq!(room.freeze(), "abcd");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pages_are_used_again_and_given_back_after_a_moment() {
        const SIZE: usize = 1 << 23;
        let address = filled(SIZE, 2 * SIZE).as_ptr();
        assert_eq!(kept(SIZE), 1);
        let (again, another) = (filled(SIZE - 5, 2 * SIZE), filled(SIZE, 2 * SIZE));
        assert_eq!((again.as_ptr(), kept(SIZE)), (address, 0));
        drop((again, another));
        assert_eq!(kept(SIZE), 2);
        // The clock stands still until all tasks wait.
        sleep(3 * KEPT).await;
        assert_eq!(kept(SIZE), 0);
    }

    #[tokio::test]
    async fn no_more_is_kept_than_allowed() {
        const SIZE: usize = 1 << 24;
        drop((filled(SIZE, SIZE - 1), filled(SIZE, 0)));
        assert_eq!(kept(SIZE), 0);
    }

    #[test]
    fn nothing_is_kept_that_nobody_would_give_back() {
        const SIZE: usize = 1 << 25;
        drop(filled(SIZE, usize::MAX));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { drop(filled(SIZE, usize::MAX)) });
        assert_eq!(kept(SIZE), 1);
        drop(runtime);
        assert_eq!(kept(SIZE), 0);
    }
}
