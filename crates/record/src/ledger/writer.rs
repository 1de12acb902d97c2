//! Writes the audit log: one thread takes entries from a bounded queue, writes them in batches, and
//! signs checkpoints.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::future::Future;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use data_encoding::HEXLOWER;
use fanlight_protocol::{Json, ObjectBuilder, epoch};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;
use tracing::{error, warn};

use crate::ledger::entry::{Entry, Prepared};
use crate::ledger::query::{begins_block, head_of, lines_of};
use crate::ledger::tree::{BlockHash, Edge, Hash};
use crate::ledger::verify::{CHECKPOINT_TIME, end_of_notes, notes};
use crate::ledger::{CheckpointKey, LedgerFiles, files};

/// The most entries that wait.
const QUEUE: usize = 8192;
/// The most bytes of waiting entries.
const QUEUE_BYTES: usize = 16 << 20;
/// How long entries are collected to be written together, unless a caller waits for one.
const COLLECT: Duration = Duration::from_millis(200);
/// The number of entries at which collecting ends.
const BATCH: usize = 512;
/// How long written entries may stay unsynced, unless a caller waits for one.
const SYNC: Duration = Duration::from_secs(1);
/// How long the thread sleeps if there is nothing to do.
const IDLE: Duration = Duration::from_secs(3600);
/// The number of lines after which a checkpoint is written.
const CHECKPOINT_LINES: u64 = 1000;
/// The number of checkpoints that are kept. At twice as many, the older half is dropped.
const CHECKPOINTS: usize = 1000;
/// The shortest time between two log lines about the same fault.
const LOG_PAUSE: Duration = Duration::from_secs(10);
/// How long the end of the process waits for the last entries.
const END: Duration = Duration::from_secs(5);

/// The limits on the size and age of an audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The most bytes of a file before the next one begins. Each day begins a new file too.
    pub file_bytes: u64,
    /// The most bytes of all files together; the oldest files are removed.
    pub kept_bytes: u64,
    /// How long files are kept.
    pub kept_for: Duration,
}

/// Settings for writing an audit log.
#[derive(Clone, Debug)]
pub struct LedgerSettings {
    /// The files.
    pub files: LedgerFiles,
    /// The limits on size and age.
    pub retention: Retention,
    /// Gets a copy of the lines.
    pub mirror: Option<Arc<dyn Mirror>>,
    /// Identifies this process among those whose audit logs are read together; `None` if there are
    /// no others.
    pub replica: Option<String>,
}

/// Gets a copy of the written lines. Must not block.
///
/// A trait because its implementation depends on this crate.
pub trait Mirror: fmt::Debug + Send + Sync {
    /// A line, without its end.
    fn line(&self, line: &str);

    /// A signed checkpoint.
    fn checkpoint(&self, note: &str);

    /// How many lines and checkpoints arrived, and how many were lost.
    fn counts(&self) -> Written;
}

/// Writes an audit log, with entries in the order in which they were added.
#[derive(Debug)]
pub struct Ledger {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    files: LedgerFiles,
}

/// The numbers of written and lost entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// The number of written entries.
    pub written: u64,
    /// The number of lost entries, because the queue was full or the file could not be written.
    pub lost: u64,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// Wakes the writing thread.
    wake: Condvar,
    waiting_bytes: AtomicUsize,
    retention: Mutex<Retention>,
    mirror: Mutex<Option<Arc<dyn Mirror>>>,
    written: AtomicU64,
    lost: AtomicU64,
    /// The lost entries that no line has reported yet.
    untold: AtomicU64,
}

/// The caller that waits until an entry is on the disk.
type Waiting = Option<oneshot::Sender<Result<(), NotRecorded>>>;

/// The waiting entries.
#[derive(Debug, Default)]
struct Queue {
    entries: Vec<(Prepared, Waiting)>,
    /// Whether a caller waits for one of them.
    is_urgent: bool,
    /// Whether no more entries will come.
    is_ended: bool,
}

/// The error that an event could not be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this could not be recorded, so it was not carried out; ask the gateway's operator to look at the audit log"
)]
pub struct NotRecorded;

/// Resolves once an entry is on the disk.
#[derive(Debug)]
pub struct Acknowledged(oneshot::Receiver<Result<(), NotRecorded>>);

impl Future for Acknowledged {
    type Output = Result<(), NotRecorded>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|answer| answer.unwrap_or(Err(NotRecorded)))
    }
}

impl Ledger {
    /// Opens an audit log, continues it, and starts the writing thread.
    ///
    /// # Errors
    ///
    /// If the folder or a file cannot be used, or another process writes there
    /// ([`io::ErrorKind::WouldBlock`]).
    pub fn open(settings: LedgerSettings) -> io::Result<Self> {
        let LedgerSettings {
            files,
            retention,
            mirror,
            replica,
        } = settings;
        let shared = Arc::new(Shared {
            retention: Mutex::new(retention),
            mirror: Mutex::new(mirror),
            ..Shared::default()
        });
        let writer = Writer::open(files.clone(), replica, Arc::clone(&shared))?;
        let thread = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || writer.run())?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
            files,
        })
    }

    /// The files of the audit log.
    pub fn files(&self) -> &LedgerFiles {
        &self.files
    }

    /// Sets the limits on size and age, from the next file on.
    pub fn retain(&self, retention: Retention) {
        *self.shared.retention.lock() = retention;
    }

    /// Sets or removes the mirror that gets a copy of further lines.
    pub fn copy_to(&self, mirror: Option<Arc<dyn Mirror>>) {
        *self.shared.mirror.lock() = mirror;
    }

    /// Adds an entry. If it is lost, that is counted, and the next line reports it.
    pub fn add(&self, entry: Entry<'_>) {
        let _ = self.send(entry, None);
    }

    /// Adds an entry. The result resolves once the entry is on the disk.
    ///
    /// # Errors
    ///
    /// If too many entries wait.
    pub fn add_durably(&self, entry: Entry<'_>) -> Result<Acknowledged, NotRecorded> {
        let (done, acknowledged) = oneshot::channel();
        self.send(entry, Some(done))?;
        Ok(Acknowledged(acknowledged))
    }

    fn send(&self, entry: Entry<'_>, done: Waiting) -> Result<(), NotRecorded> {
        let entry = entry.prepare();
        let size = entry.size();
        let before = self.shared.waiting_bytes.fetch_add(size, Ordering::Relaxed);
        let mut queue = self.shared.queue.lock();
        if before + size > QUEUE_BYTES || queue.entries.len() >= QUEUE || queue.is_ended {
            drop(queue);
            self.shared.waiting_bytes.fetch_sub(size, Ordering::Relaxed);
            self.shared.lose(1);
            return Err(NotRecorded);
        }
        queue.is_urgent |= done.is_some();
        queue.entries.push((entry, done));
        // The thread sleeps until there is one entry, or until there are many.
        let is_awaited = queue.is_urgent || matches!(queue.entries.len(), 1 | BATCH);
        drop(queue);
        if is_awaited {
            self.shared.wake.notify_one();
        }
        Ok(())
    }

    /// The numbers of written and lost entries.
    pub fn counts(&self) -> Written {
        Written {
            written: self.shared.written.load(Ordering::Relaxed),
            lost: self.shared.lost.load(Ordering::Relaxed),
        }
    }

    /// The numbers of entries that the mirror got and lost; `None` without a mirror.
    pub fn mirror_counts(&self) -> Option<Written> {
        self.shared.mirror().map(|mirror| mirror.counts())
    }

    /// Writes the waiting entries and a checkpoint, and ends the thread. Blocks for some seconds,
    /// so asynchronous tasks must not call it.
    pub fn end(&self) {
        let thread = self.thread.lock().take();
        let Some(thread) = thread else { return };
        let deadline = Instant::now() + END;
        self.shared.queue.lock().is_ended = true;
        self.shared.wake.notify_one();
        // A thread that hangs on a dead disk must not keep the process alive.
        while !thread.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn retention(&self) -> Retention {
        *self.retention.lock()
    }

    fn mirror(&self) -> Option<Arc<dyn Mirror>> {
        self.mirror.lock().clone()
    }

    /// Waits for entries, collects more unless a caller waits for one, and takes them. Also returns
    /// whether no more will come.
    fn take(&self, patience: Duration) -> (Vec<(Prepared, Waiting)>, bool) {
        let is_idle = |queue: &mut Queue| queue.entries.is_empty() && !queue.is_ended;
        let mut queue = self.queue.lock();
        self.wake.wait_while_for(&mut queue, is_idle, patience);
        let is_collecting = |queue: &mut Queue| {
            let is_pressing = queue.is_urgent || queue.is_ended || queue.entries.len() >= BATCH;
            !queue.entries.is_empty() && !is_pressing
        };
        self.wake.wait_while_for(&mut queue, is_collecting, COLLECT);
        queue.is_urgent = false;
        (std::mem::take(&mut queue.entries), queue.is_ended)
    }

    fn lose(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
        self.untold.fetch_add(count, Ordering::Relaxed);
    }
}

/// The writing thread.
struct Writer {
    files: LedgerFiles,
    replica: Option<String>,
    shared: Arc<Shared>,
    key: CheckpointKey,
    file: File,
    /// The size of the file in bytes.
    length: u64,
    /// The number of the file's first line.
    first_line: u64,
    /// The day of the file, counted from 1970.
    day: u64,
    /// The state of the written chain.
    chain: Chain,
    /// The number of lines at the last checkpoint.
    checkpointed: u64,
    /// The number of checkpoints in their file; `None` until they are counted.
    checkpoints: Option<usize>,
    last_checkpoint: Instant,
    last_sync: Instant,
    is_unsynced: bool,
    last_logged: Option<Instant>,
}

impl Writer {
    fn open(files: LedgerFiles, replica: Option<String>, shared: Arc<Shared>) -> io::Result<Self> {
        files.make_folder()?;
        let mut file = files::open(&files.current())?;
        lock(&file)?;
        let key = key(&files.key())?;
        let mut continued = Continued::read(&files.current())?;
        if continued.is_damaged {
            let aside = files.set_aside(epoch::seconds());
            fs::rename(files.current(), &aside)?;
            error!(file = %aside.display(), "the audit log was damaged; its file is set aside, and a new one begins");
            file = files::open(&files.current())?;
            lock(&file)?;
            continued = Continued::default();
        }
        if continued.length < file.metadata()?.len() {
            // A process ended in the middle of a line.
            file.set_len(continued.length)?;
        }
        if continued.length == 0
            && let Some(last) = files.earlier_files().last()
        {
            // A process ended before it could begin this file, which continues the last one.
            continued.chain = Continued::read(last)?.chain;
        }
        let now = Instant::now();
        let Continued {
            length,
            first_line,
            day,
            chain,
            ..
        } = continued;
        let checkpointed = chain.lines;
        let mut writer = Self {
            files,
            replica,
            shared,
            key,
            file,
            length,
            first_line,
            day,
            chain,
            checkpointed,
            checkpoints: None,
            last_checkpoint: now,
            last_sync: now,
            is_unsynced: false,
            last_logged: None,
        };
        if writer.length == 0 {
            writer.begin_file()?;
        }
        Ok(writer)
    }

    fn run(mut self) {
        loop {
            let is_done = !self.is_unsynced && self.chain.lines == self.checkpointed;
            let (batch, is_ended) = self.shared.take(if is_done { IDLE } else { SYNC });
            self.write_batch(batch);
            self.finish_batch(is_ended);
            if is_ended {
                break;
            }
        }
    }

    fn write_batch(&mut self, mut batch: Vec<(Prepared, Waiting)>) {
        while !batch.is_empty() {
            let rest = batch.split_off(self.fitting(&batch));
            self.write_part(std::mem::replace(&mut batch, rest));
        }
    }

    /// The number of the first entries that the current file has room for, or the next one if it is
    /// full; at least one.
    fn fitting(&self, batch: &[(Prepared, Waiting)]) -> usize {
        let most = self.shared.retention().file_bytes;
        let mut room = most.checked_sub(self.length).filter(|room| *room > 0);
        let room = room.get_or_insert(most);
        let fitting = batch.iter().take_while(|(entry, _)| {
            let size = entry.size() as u64;
            let left = room.checked_sub(size);
            *room = left.unwrap_or_default();
            left.is_some()
        });
        fitting.count().max(1)
    }

    fn write_part(&mut self, batch: Vec<(Prepared, Waiting)>) {
        let bytes: usize = batch.iter().map(|(entry, _)| entry.size()).sum();
        let written = self.write_block(&batch, bytes);
        self.shared
            .waiting_bytes
            .fetch_sub(bytes, Ordering::Relaxed);
        let is_waited_for = batch.iter().any(|(_, done)| done.is_some());
        let outcome = written.and_then(|()| if is_waited_for { self.sync() } else { Ok(()) });
        let count = batch.len() as u64;
        match &outcome {
            Ok(()) => drop(self.shared.written.fetch_add(count, Ordering::Relaxed)),
            Err(error) => {
                self.shared.lose(count);
                self.complain(error);
            }
        }
        let answer = outcome.map_err(|_| NotRecorded);
        for done in batch.into_iter().filter_map(|(_, done)| done) {
            // A caller that has gone does not wait.
            let _ = done.send(answer);
        }
    }

    /// Writes entries of `bytes` bytes as one block.
    fn write_block(&mut self, batch: &[(Prepared, Waiting)], bytes: usize) -> io::Result<()> {
        self.check_file()?;
        let is_full = self.length >= self.shared.retention().file_bytes || self.day != day_now();
        if is_full && self.length > 0 {
            self.rotate()?;
        }
        // Even if that failed before, because no line may come earlier.
        if self.length == 0 {
            self.begin_file()?;
        }
        let untold = self.shared.untold.swap(0, Ordering::Relaxed);
        let lost = Entry {
            event: "lost",
            outcome: "lost",
            lost: untold,
            ..Entry::default()
        };
        let lost = (untold > 0).then(|| lost.prepare());
        let (mut chain, mut text) = (self.chain.clone(), String::with_capacity(bytes));
        let mut previous = Some(&self.chain.previous);
        let replica = self.replica.as_deref();
        let mut add = |entry: &Prepared| {
            chain.lines += 1;
            entry.write(&mut text, chain.lines, replica, previous.take());
        };
        lost.iter().for_each(&mut add);
        batch.iter().for_each(|(entry, _)| add(entry));
        let written = self.append(&text, chain);
        if written.is_err() {
            self.shared.untold.fetch_add(untold, Ordering::Relaxed);
        }
        written
    }

    /// Checks that the log still has the lines that were written, which no other program may move,
    /// cut or remove. Otherwise opens it again, so that the next block is in the log.
    fn check_file(&mut self) -> io::Result<()> {
        let found = match fs::metadata(self.files.current()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            found => found.ok(),
        };
        let own = self.file.metadata()?;
        let is_own = |it: fs::Metadata| (it.dev(), it.ino()) == (own.dev(), own.ino());
        if found.is_some_and(|it| it.len() == self.length && is_own(it)) {
            return Ok(());
        }
        // Without it, nobody could tell that there were lines.
        self.checkpoint();
        let _ = self.file.unlock();
        let (files, replica) = (self.files.clone(), self.replica.clone());
        *self = Self::open(files, replica, Arc::clone(&self.shared)).inspect_err(|_| {
            let _ = self.file.try_lock();
        })?;
        Err(io::Error::other(
            "the file is not as Fanlight left it: another program has changed, moved or removed it, or a write was cut short; `fanlight audit verify` tells what is missing",
        ))
    }

    /// Writes all lines of a block, or nothing. `chain` already counts the lines.
    fn append(&mut self, block: &str, mut chain: Chain) -> io::Result<()> {
        match self.file.write_all(block.as_bytes()) {
            Ok(()) => {
                let mirror = self.shared.mirror();
                let lines = || block.lines();
                mirror
                    .iter()
                    .for_each(|mirror| lines().for_each(|line| mirror.line(line)));
                let whole = block.strip_suffix('\n').unwrap_or(block);
                chain.close(BlockHash::begin(whole.as_bytes()));
                self.chain = chain;
                self.length += block.len() as u64;
                self.is_unsynced = true;
                Ok(())
            }
            Err(error) => {
                let _ = self.file.set_len(self.length);
                Err(error)
            }
        }
    }

    /// Begins the current file with a line that contains the state of the tree.
    fn begin_file(&mut self) -> io::Result<()> {
        let heads = self.chain.edge.heads().iter();
        let heads = Json::array(heads.map(|head| Json::string(&HEXLOWER.encode(head))));
        let mut chain = self.chain.clone();
        chain.lines += 1;
        let (number, time) = (chain.lines, SystemTime::now());
        let integer = |count| i64::try_from(count).unwrap_or(i64::MAX);
        let line = ObjectBuilder::new()
            .integer("seq", integer(number))
            .string("time", &humantime::format_rfc3339_millis(time).to_string())
            .string("event", "file")
            .integer("blocks", integer(self.chain.edge.size()))
            .member("tree", &heads)
            .string("prev", &HEXLOWER.encode(&self.chain.previous))
            .finish();
        self.append(&format!("{}\n", line.as_text()), chain)?;
        (self.first_line, self.day) = (number, day_now());
        Ok(())
    }

    /// Renames the current file, and opens the next one, which is empty.
    fn rotate(&mut self) -> io::Result<()> {
        self.sync()?;
        self.checkpoint();
        let files = &self.files;
        let rotated = files.rotated_path(self.first_line);
        // Renaming would replace an existing file. No other process writes here.
        if fs::exists(&rotated)? {
            let message = format!(
                "{} exists already, which the current file is to be called",
                rotated.display()
            );
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        fs::rename(files.current(), &rotated)?;
        let next = files::open(&files.current()).and_then(|next| lock(&next).map(|()| next));
        match next {
            Ok(next) => (self.file, self.length) = (next, 0),
            Err(error) => {
                let _ = fs::rename(&rotated, files.current());
                return Err(error);
            }
        }
        // Before anything is written, because the disk may need the space.
        self.remove_old();
        Ok(())
    }

    /// Removes the oldest files beyond the limits.
    fn remove_old(&self) {
        let now = SystemTime::now();
        let Retention {
            file_bytes: mut kept,
            kept_bytes,
            kept_for,
        } = self.shared.retention();
        for path in self.files.earlier_files().into_iter().rev() {
            let Ok(about) = fs::metadata(&path) else {
                continue;
            };
            kept = kept.saturating_add(about.len());
            let age = about
                .modified()
                .ok()
                .and_then(|changed| now.duration_since(changed).ok())
                .unwrap_or_default();
            if (kept > kept_bytes || age > kept_for)
                && let Err(error) = fs::remove_file(&path)
            {
                warn!(file = %path.display(), %error, "an old file of the audit log cannot be removed");
            }
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.is_unsynced {
            self.file.sync_data()?;
            self.is_unsynced = false;
        }
        self.last_sync = Instant::now();
        Ok(())
    }

    /// Syncs and writes a checkpoint after a batch, if they are due.
    fn finish_batch(&mut self, is_end: bool) {
        if self.is_unsynced
            && (is_end || self.last_sync.elapsed() >= SYNC)
            && let Err(error) = self.sync()
        {
            self.complain(&error);
        }
        let new = self.chain.lines - self.checkpointed;
        let is_due =
            new >= CHECKPOINT_LINES || self.last_checkpoint.elapsed() >= CHECKPOINT_TIME || is_end;
        if new > 0 && is_due {
            self.checkpoint();
        }
    }

    /// Signs the current tree, once its lines are on the disk.
    fn checkpoint(&mut self) {
        self.last_checkpoint = Instant::now();
        if let Err(error) = self.sync() {
            return self.complain(&error);
        }
        let text = self.key.sign(&self.chain.edge);
        self.shared
            .mirror()
            .iter()
            .for_each(|mirror| mirror.checkpoint(&text));
        match self.append_checkpoint(&text) {
            Ok(()) => self.checkpointed = self.chain.lines,
            Err(error) => self.complain(&error),
        }
    }

    fn append_checkpoint(&mut self, text: &str) -> io::Result<()> {
        let path = self.files.checkpoints();
        let mut file = files::open(&path)?;
        let before = match self.checkpoints {
            Some(before) => before,
            None => {
                let kept = fs::read(&path)?;
                let end = end_of_notes(&kept);
                file.set_len(end as u64)?;
                notes(&String::from_utf8_lossy(
                    kept.get(..end).unwrap_or_default(),
                ))
                .count()
            }
        };
        let length = file.metadata()?.len();
        if let Err(error) = file
            .write_all(format!("{text}\n").as_bytes())
            .and_then(|()| file.sync_data())
        {
            let _ = file.set_len(length);
            return Err(error);
        }
        let count = before + 1;
        self.checkpoints = Some(count);
        if count < 2 * CHECKPOINTS {
            return Ok(());
        }
        let kept = fs::read_to_string(&path)?;
        let all: Vec<_> = notes(&kept).collect();
        let newest = all
            .get(all.len().saturating_sub(CHECKPOINTS)..)
            .unwrap_or_default();
        let next = path.with_extension("checkpoints.new");
        fs::write(
            &next,
            newest
                .iter()
                .map(|note| format!("{note}\n"))
                .collect::<String>(),
        )?;
        fs::rename(next, path)?;
        self.checkpoints = Some(newest.len());
        Ok(())
    }

    fn complain(&mut self, error: &io::Error) {
        if self
            .last_logged
            .is_none_or(|last| last.elapsed() >= LOG_PAUSE)
        {
            self.last_logged = Some(Instant::now());
            let lost = self.shared.lost.load(Ordering::Relaxed);
            error!(file = %self.files.current().display(), %error, lost, "the audit log cannot be written");
        }
    }
}

/// The state for continuing a file.
#[derive(Default)]
struct Continued {
    /// The offset after the last whole line.
    length: u64,
    first_line: u64,
    day: u64,
    chain: Chain,
    is_damaged: bool,
}

/// The state after the last block of the chain: the first line of each block has the hash of the
/// block before it.
#[derive(Clone, Default)]
struct Chain {
    /// The number of lines.
    lines: u64,
    edge: Edge,
    /// The hash of the last block.
    previous: Hash,
}

impl Chain {
    fn close(&mut self, block: BlockHash) {
        self.previous = block.finish();
        self.edge.push(self.previous);
    }
}

impl Continued {
    fn read(path: &Path) -> io::Result<Self> {
        let mut continued = Self::default();
        let mut lines = lines_of(path)?;
        let mut block: Option<BlockHash> = None;
        while let Some(line) = lines.next_line()? {
            if !line.is_whole {
                break;
            }
            if continued.length == 0 {
                let Some(head) = head_of(line.text) else {
                    continued.is_damaged = true;
                    return Ok(continued);
                };
                (continued.first_line, continued.day) = (head.number, head.day);
                continued.chain.lines = head.number - 1;
                continued.chain.edge = head.edge;
            }
            match &mut block {
                Some(block) if !begins_block(line.text) => block.push(line.text),
                _ => {
                    let ended = block.replace(BlockHash::begin(line.text));
                    ended
                        .into_iter()
                        .for_each(|block| continued.chain.close(block));
                }
            }
            continued.chain.lines += 1;
            continued.length += line.text.len() as u64 + 1;
        }
        block
            .into_iter()
            .for_each(|block| continued.chain.close(block));
        Ok(continued)
    }
}

/// Locks a file for this process alone.
fn lock(file: &File) -> io::Result<()> {
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => io::Error::new(
            io::ErrorKind::WouldBlock,
            "another process writes this audit log",
        ),
        TryLockError::Error(error) => error,
    })
}

/// The key in a file; a new key if there is no file.
fn key(path: &Path) -> io::Result<CheckpointKey> {
    let unusable = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} has no key", path.display()),
        )
    };
    match fs::read(path) {
        Ok(bytes) => CheckpointKey::from_bytes(&bytes).ok_or_else(unusable),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let (key, bytes) = CheckpointKey::generate().ok_or_else(unusable)?;
            let mut file = files::open(path)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            Ok(key)
        }
        Err(error) => Err(error),
    }
}

fn day_now() -> u64 {
    epoch::seconds() / 86_400
}
