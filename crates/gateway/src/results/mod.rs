//! Large results: clients get them shortened, and Fanlight keeps them whole for a while.
//!
//! A result is kept in memory while there is room, then on disk. Its URI has a sealed handle, which
//! opens for its holder alone and names the run of the process that keeps it. The oldest results go
//! first, of the client that keeps most.

mod part;
mod shorten;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::{fmt, io};

use bytes::Bytes;
use fanlight_canonical::{Caller, HandleKind, HandleSeal, Keeper, Peer, PolicySubject};
use fanlight_fair::{Claim, Member, PermitLimits, Semaphore};
use fanlight_protocol::seal::{KeyError, Keys};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use crate::topology::ResultRules;
pub(crate) use part::{Form, Part, PartUri, Piece, Query};
pub(crate) use shorten::{Shortened, Shortener};

/// The most results that are kept, with all sections. Each takes some memory besides its bytes.
const RESULTS: usize = 16_384;

/// A section, and whether it is its disk and not its memory.
type RoomKey = (Arc<str>, bool);

/// A kept result with its owner.
struct Entry {
    handle: Box<str>,
    owner: Caller,
    peer: Peer,
    room: RoomKey,
    size: usize,
    until: Instant,
    result: Arc<KeptResult>,
}

/// The kept results, indexed so that each change touches few of them.
#[derive(Default)]
struct Table {
    /// The results by number; newer ones have greater numbers.
    entries: HashMap<u64, Entry>,
    numbers: HashMap<Box<str>, u64>,
    by_end: BTreeSet<(Instant, u64)>,
    rooms: HashMap<RoomKey, Room>,
    last: u64,
}

/// The results in memory or on disk of one section.
#[derive(Default)]
struct Room {
    size: usize,
    shares: HashMap<Peer, Share>,
}

/// The results of one peer in a room.
#[derive(Default)]
struct Share {
    size: usize,
    numbers: BTreeSet<u64>,
}

impl Table {
    fn find(&self, handle: &str) -> Option<&Entry> {
        self.entries.get(self.numbers.get(handle)?)
    }

    /// The end of the result that ends first.
    fn first_end(&self) -> Option<Instant> {
        self.by_end.first().map(|(until, _)| *until)
    }

    /// Whether a new result of a peer goes to disk: to the first of memory and disk that has free
    /// room, else to the one whose next result to leave is older. `None` if it is too large.
    fn goes_to_disk(
        &self,
        section: &Arc<str>,
        peer: &Peer,
        size: usize,
        limits: [usize; 2],
    ) -> Option<bool> {
        let rooms = [false, true].into_iter().zip(limits);
        let displaced = |on_disk: bool, limit: usize| {
            let room = self.rooms.get(&(Arc::clone(section), on_disk));
            let held = room.map_or(0, |room| room.size);
            let is_free = self.entries.len() < RESULTS && size <= limit.saturating_sub(held);
            let next = room.and_then(|room| room.next_to_leave(peer, size));
            (!is_free).then_some(next.unwrap_or(u64::MAX))
        };
        let fitting = rooms.filter(|(_, limit)| size <= *limit);
        let chosen = fitting.min_by_key(|(on_disk, limit)| displaced(*on_disk, *limit));
        chosen.map(|(on_disk, _)| on_disk)
    }

    /// Adds a result to its room, which may hold `limit` bytes; returns those that leave for it.
    /// `None` if there are too many results elsewhere.
    fn add(&mut self, entry: Entry, limit: usize) -> Option<Vec<Entry>> {
        let mut left = Vec::new();
        loop {
            let room = self.rooms.get(&entry.room);
            let held = room.map_or(0, |room| room.size);
            if self.entries.len() < RESULTS && entry.size <= limit.saturating_sub(held) {
                break;
            }
            let next = room?.next_to_leave(&entry.peer, entry.size)?;
            left.extend(self.remove(next));
        }
        self.last += 1;
        self.numbers.insert(entry.handle.clone(), self.last);
        self.by_end.insert((entry.until, self.last));
        let room = self.rooms.entry(entry.room.clone()).or_default();
        room.size += entry.size;
        let share = room.shares.entry(entry.peer.clone()).or_default();
        share.size += entry.size;
        share.numbers.insert(self.last);
        self.entries.insert(self.last, entry);
        Some(left)
    }

    fn remove(&mut self, number: u64) -> Option<Entry> {
        let entry = self.entries.remove(&number)?;
        self.numbers.remove(&entry.handle);
        self.by_end.remove(&(entry.until, number));
        let room = self.rooms.get_mut(&entry.room)?;
        room.size -= entry.size;
        let share = room.shares.get_mut(&entry.peer)?;
        share.size -= entry.size;
        share.numbers.remove(&number);
        if share.numbers.is_empty() {
            room.shares.remove(&entry.peer);
        }
        Some(entry)
    }

    /// Removes the results whose time is over.
    fn remove_ended(&mut self, now: Instant) -> Vec<Entry> {
        let mut ended = Vec::new();
        while let Some((until, number)) = self.by_end.first().copied()
            && until <= now
        {
            ended.extend(self.remove(number));
        }
        ended
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let shares = self.rooms.values().flat_map(|room| room.shares.values());
        let shared: usize = shares.map(|share| share.numbers.len()).sum();
        assert_eq!(
            [self.numbers.len(), self.by_end.len(), shared],
            [self.entries.len(); 3]
        );
        self.entries.len()
    }
}

impl Room {
    /// The oldest result of the peer that keeps most, if this peer keeps one of `size` more.
    fn next_to_leave(&self, peer: &Peer, size: usize) -> Option<u64> {
        let with_new = |(of, share): &(&Peer, &Share)| {
            let more = if *of == peer { size } else { 0 };
            (share.size + more, *of == peer)
        };
        let (_, share) = self.shares.iter().max_by_key(with_new)?;
        share.numbers.first().copied()
    }
}

#[cfg(test)]
mod tests;

/// The largest text that is cut without a thread of its own, in bytes.
const QUICK: usize = 256 << 10;
/// The longer texts that are read at the same time. Each may take several times its bytes until
/// the answer counts in the memory for answers.
const READS: usize = 4;

/// The files of kept results.
pub trait ResultFiles: fmt::Debug + Send + Sync {
    /// Writes a file.
    fn write(&self, pieces: Vec<Bytes>) -> BoxFuture<'_, io::Result<Box<dyn KeptFile>>>;
}

/// The file of a kept result, which is removed when this is dropped.
pub trait KeptFile: fmt::Debug + Send + Sync {
    /// Reads a part of the file.
    fn read(&self, range: Range<usize>) -> BoxFuture<'_, io::Result<Bytes>>;
}

/// A result that is kept.
#[derive(Debug)]
pub(crate) struct KeptResult {
    /// The call, as a policy decided about it; `None` if there was no policy.
    pub(crate) made_by: Option<Arc<PolicySubject>>,
    parts: Vec<Part>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory(Vec<Bytes>),
    Disk(Box<dyn KeptFile>),
}

/// A request to read a kept result.
#[derive(Debug)]
pub(crate) struct KeptRead {
    /// The URI as the client wrote it.
    pub(crate) uri: String,
    pub(crate) part: PartUri,
    /// The longest answer; `None` for a resource, which is read whole if the client likes.
    pub(crate) most: Option<usize>,
}

/// A client in the queue for reading long texts, in which clients take turns.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Reader(Peer);

impl Member for Reader {
    type Share = Self;

    fn share(&self) -> &Self {
        self
    }

    fn is_bounded(&self) -> bool {
        false
    }
}

/// The results that are kept.
pub(crate) struct KeptResults {
    state: Mutex<State>,
    readers: Semaphore<Reader>,
    files: Option<Arc<dyn ResultFiles>>,
    handles: HandleSeal,
    /// Whether the last file could not be written, which has been logged.
    is_full: AtomicBool,
    itself: Weak<Self>,
}

#[derive(Default)]
struct State {
    table: Table,
    /// Removes results after their time.
    sweeper: Option<AbortOnDropHandle<()>>,
}

fanlight_protocol::opaque!(KeptResults);

impl KeptResults {
    pub(crate) fn new(
        keys: &Keys,
        files: Option<Arc<dyn ResultFiles>>,
    ) -> Result<Arc<Self>, KeyError> {
        let handles = HandleSeal::new(keys)?;
        let readers = Semaphore::new(PermitLimits {
            permits: READS,
            of_share: fanlight_fair::Part::AS_MUCH_AS_IT_LEAVES,
            of_member: fanlight_fair::Part::AS_MUCH_AS_IT_LEAVES,
        });
        Ok(Arc::new_cyclic(|itself| Self {
            state: Mutex::default(),
            readers,
            files,
            handles,
            is_full: AtomicBool::new(false),
            itself: Weak::clone(itself),
        }))
    }

    /// A handle for a new result of this caller.
    pub(crate) fn handle(&self, caller: &Caller) -> Option<String> {
        self.handles
            .random_handle(HandleKind::Result, caller.holder())
    }

    /// The run of the process that keeps the result with this handle.
    pub(crate) fn keeper(&self, handle: &str, caller: &Caller) -> Keeper {
        self.handles
            .keeper(HandleKind::Result, handle, caller.holder())
    }

    /// The result with this handle, if it belongs to the caller.
    pub(crate) fn find(&self, handle: &str, caller: &Caller) -> Option<Arc<KeptResult>> {
        let state = self.state.lock();
        let entry = state.table.find(handle)?;
        let is_found = entry.until > Instant::now() && caller.owns_what_is_of(&entry.owner);
        is_found.then(|| Arc::clone(&entry.result))
    }

    /// The client's place in the queue for reading long texts.
    pub(crate) fn reader(&self, peer: &Peer) -> Claim<Reader> {
        self.readers.claim(Reader(peer.clone()))
    }

    /// Keeps a result under this handle until the instant. Returns false if there is no room.
    ///
    /// Others leave for it once it is certain to be kept: files that are being written need room
    /// besides.
    pub(crate) async fn keep(
        &self,
        handle: &str,
        (caller, peer): (&Caller, &Peer),
        rules: &ResultRules,
        until: Instant,
        made_by: Option<Arc<PolicySubject>>,
        Shortened { parts, kept, .. }: Shortened,
    ) -> bool {
        let size = parts.last().map_or(0, |part| part.place.end);
        let (memory, section) = (rules.memory, &rules.section);
        let disk = if self.files.is_some() { rules.disk } else { 0 };
        let on_disk = {
            let state = self.state.lock();
            state
                .table
                .goes_to_disk(section, peer, size, [memory, disk])
        };
        let Some(on_disk) = on_disk else {
            return false;
        };
        let place = match &self.files {
            Some(files) if on_disk => match files.write(kept).await {
                Ok(file) => {
                    self.is_full.store(false, Ordering::Relaxed);
                    Place::Disk(file)
                }
                Err(error) => {
                    if !self.is_full.swap(true, Ordering::Relaxed) {
                        tracing::error!(%error, "a large result cannot be written below stateDir: clients get such results whole");
                    }
                    return false;
                }
            },
            _ => Place::Memory(kept),
        };
        let holder = caller.holder().clone();
        let owner = match caller.session() {
            Some(session) => Caller::session_of(holder, session),
            None => Caller::request_of(holder),
        };
        let entry = Entry {
            handle: handle.into(),
            owner,
            peer: peer.clone(),
            room: (Arc::clone(section), on_disk),
            size,
            until,
            result: Arc::new(KeptResult {
                made_by,
                parts,
                place,
            }),
        };
        let mut state = self.state.lock();
        let left = state.table.add(entry, if on_disk { disk } else { memory });
        if state.table.first_end() == Some(until) {
            let sweep = Self::sweep(Weak::clone(&self.itself));
            state.sweeper = Some(AbortOnDropHandle::new(tokio::spawn(sweep)));
        }
        drop(state);
        left.is_some()
    }

    /// Removes results after their time, while there are any.
    async fn sweep(results: Weak<Self>) {
        loop {
            let next = {
                let Some(results) = results.upgrade() else {
                    return;
                };
                let mut state = results.state.lock();
                let ended = state.table.remove_ended(Instant::now());
                let next = state.table.first_end();
                drop(state);
                drop(ended);
                next
            };
            match next {
                Some(next) => sleep_until(next).await,
                None => return,
            }
        }
    }
}

/// The reason why a piece cannot be read.
#[derive(Debug)]
pub(crate) enum NoPiece {
    /// There is no such part.
    Unknown,
    /// The part has no such piece.
    Invalid(String),
    /// The file cannot be read.
    Lost(io::Error),
}

impl KeptResult {
    /// Reads a piece of the part at this path, and makes the answer of it.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        path: &str,
        query: &Query,
        reader: Claim<Reader>,
        answer: impl FnOnce(&Piece, &Part) -> T + Send + 'static,
    ) -> Result<T, NoPiece> {
        let found = self.parts.iter().position(|part| part.path == path);
        let at = found.ok_or(NoPiece::Unknown)?;
        let part = self.parts.get(at).ok_or(NoPiece::Unknown)?.clone();
        let (range, rest) = query.needed(&part).map_err(NoPiece::Invalid)?;
        let _turn = if range.len() > QUICK {
            Some(reader.acquire_again().await)
        } else {
            None
        };
        let bytes = match &self.place {
            Place::Memory(all) => {
                let bytes = all.get(at).ok_or(NoPiece::Unknown)?;
                bytes.slice(range.start - part.place.start..range.end - part.place.start)
            }
            Place::Disk(file) => file.read(range.clone()).await.map_err(NoPiece::Lost)?,
        };
        let (size, is_whole) = (range.len(), range == part.place);
        let work = move || {
            let piece = if is_whole {
                rest.cut(part.form, bytes)?
            } else {
                let form = Form::Text;
                Piece { form, bytes }.told_apart(part.form)
            };
            Ok(answer(&piece, &part))
        };
        let done = off_worker(size, work).await;
        let done = done.unwrap_or_else(|| Err("the gateway is ending".to_owned()));
        done.map_err(NoPiece::Invalid)
    }
}

/// Runs work on a text of this size, on a thread of its own if the text is large. `None` if the
/// process is ending.
pub(crate) async fn off_worker<T: Send + 'static>(
    size: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if size <= QUICK {
        return Some(work());
    }
    tokio::task::spawn_blocking(work).await.ok()
}
