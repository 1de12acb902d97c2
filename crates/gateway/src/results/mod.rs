//! Large results: clients get them shortened, and Fanlight keeps them whole for a while.
//!
//! A result is kept in memory while there is room, then on disk. Its URI has a sealed handle, which
//! opens for its holder alone and names the run of the process that keeps it. The oldest results go
//! first, of the client that keeps most.

mod part;
mod shape;
mod shorten;
mod table;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use fanlight_canonical::{Caller, HandleKind, HandleSeal, Keeper, Peer, PolicySubject};
use fanlight_fair::{Claim, Member, Part as Share, PermitLimits, Semaphore};
use fanlight_protocol::seal::{KeyError, Keys};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use crate::topology::ResultRules;
pub(crate) use part::{Form, Part, PartUri, Piece, Query};
pub(crate) use shorten::{Shortened, Shortener};
use table::{Entry, Table};

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
            of_share: Share::AS_MUCH_AS_IT_LEAVES,
            of_member: Share::AS_MUCH_AS_IT_LEAVES,
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
