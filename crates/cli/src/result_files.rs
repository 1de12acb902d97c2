//! Large results on disk, in `results` below `stateDir`.
//!
//! Each run of a process has a folder of its own, and seals what it writes with a key that it alone
//! has. So a run that has ended leaves nothing that anybody can read, and the next one removes it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use fanlight_canonical::ProcessRun;
use fanlight_config::Config;
use fanlight_gateway::{KeptFile, ResultFiles};
use fanlight_protocol::seal::{Keys, SEAL_BYTES, Seal};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tracing::warn;

use crate::failure::Failure;

const FOLDER: &str = "results";
/// The file that is locked while folders of runs are made or removed.
const LOCK: &str = "lock";
/// The ending of the file that a run locks while it lives.
const OF_RUN: &str = ".run";
/// The purpose of the seal on results.
const PURPOSE: &[u8] = b"kept result: ";
/// The bytes that are sealed together, so that a part can be read without the rest.
const CHUNK: usize = 1 << 20;
/// The operations that may wait for the disk at the same time.
const AT_ONCE: usize = 4;

/// The files of one run.
#[derive(Debug)]
pub struct DiskResults(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    root: PathBuf,
    run: String,
    seal: Seal,
    next: AtomicU64,
    turns: Arc<Semaphore>,
    /// The lock of this run's folder, once it has one.
    lock: Mutex<Option<File>>,
}

/// One file.
#[derive(Debug)]
struct OnDisk {
    shared: Arc<Shared>,
    number: u64,
    size: usize,
}

impl DiskResults {
    /// The files below `stateDir`, if there is one. Removes the files of earlier runs. Blocks.
    pub fn open(config: &Config) -> Result<Option<Arc<dyn ResultFiles>>, Failure> {
        let Some(state) = &config.state_dir else {
            return Ok(None);
        };
        let root = Path::new(state).join(FOLDER);
        if root.exists()
            && let Err(error) = remove_former(&root)
        {
            warn!(%error, folder = %root.display(), "results of earlier runs not removed");
        }
        let run = ProcessRun::current()?.to_string();
        let seal = Seal::new(&Keys::default(), PURPOSE)?;
        Ok(Some(Arc::new(Self(Arc::new(Shared {
            root,
            run,
            seal,
            next: AtomicU64::new(0),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            lock: Mutex::default(),
        })))))
    }
}

impl ResultFiles for DiskResults {
    fn write(&self, pieces: Vec<Bytes>) -> BoxFuture<'_, io::Result<Box<dyn KeptFile>>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let number = shared.next.fetch_add(1, Ordering::Relaxed);
            let size = pieces.iter().map(Bytes::len).sum();
            // Made first, so that dropping it removes what was written before an error.
            let file = OnDisk {
                shared: Arc::clone(&shared),
                number,
                size,
            };
            let turn = Arc::clone(&shared.turns).acquire_owned().await;
            let turn = turn.map_err(io::Error::other)?;
            // The thread has the file and the turn, for this future may be dropped meanwhile.
            let written = spawn_blocking(move || {
                let _turn = turn;
                shared.write(&file.path(), number, &pieces)?;
                Ok(Box::new(file) as Box<dyn KeptFile>)
            });
            written.await.map_err(io::Error::other)?
        })
    }
}

impl KeptFile for OnDisk {
    fn read(&self, range: Range<usize>) -> BoxFuture<'_, io::Result<Bytes>> {
        let (shared, path, number) = (Arc::clone(&self.shared), self.path(), self.number);
        let range = range.start.min(self.size)..range.end.min(self.size);
        Box::pin(async move {
            let _turn = self
                .shared
                .turns
                .acquire()
                .await
                .map_err(io::Error::other)?;
            let read = spawn_blocking(move || shared.read(&path, number, range)).await;
            read.map_err(io::Error::other)?
        })
    }
}

impl OnDisk {
    fn path(&self) -> PathBuf {
        self.shared.folder().join(self.number.to_string())
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        let path = self.path();
        let remove = move || drop(fs::remove_file(path));
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

impl Shared {
    fn folder(&self) -> PathBuf {
        self.root.join(&self.run)
    }

    /// Makes the folder of this run, unless it exists.
    fn prepare(&self) -> io::Result<()> {
        let mut lock = self.lock.lock();
        if lock.is_none() {
            let folder = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
            folder(&self.root)?;
            let making = open(&self.root.join(LOCK))?;
            making.lock()?;
            let own = open(&self.root.join(format!("{}{OF_RUN}", self.run)))?;
            own.lock()?;
            folder(&self.folder())?;
            *lock = Some(own);
        }
        Ok(())
    }

    fn write(&self, path: &Path, number: u64, pieces: &[Bytes]) -> io::Result<()> {
        self.prepare()?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        let mut chunk = Vec::with_capacity(CHUNK);
        let mut index = 0;
        for piece in pieces {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(CHUNK - chunk.len()));
                chunk.extend_from_slice(now);
                rest = later;
                if chunk.len() == CHUNK {
                    self.write_chunk(&mut file, number, &mut index, &mut chunk)?;
                }
            }
        }
        if !chunk.is_empty() {
            self.write_chunk(&mut file, number, &mut index, &mut chunk)?;
        }
        Ok(())
    }

    fn write_chunk(
        &self,
        file: &mut File,
        number: u64,
        index: &mut u64,
        chunk: &mut Vec<u8>,
    ) -> io::Result<()> {
        let sealed = self.seal.seal_bytes_for(chunk, &place(number, *index));
        file.write_all(&sealed.ok_or_else(|| io::Error::other("cannot encrypt"))?)?;
        *index += 1;
        chunk.clear();
        Ok(())
    }

    fn read(&self, path: &Path, number: u64, range: Range<usize>) -> io::Result<Bytes> {
        let mut file = File::open(path)?;
        let first = range.start / CHUNK;
        let start =
            u64::try_from(first.saturating_mul(CHUNK + SEAL_BYTES)).map_err(io::Error::other)?;
        file.seek(SeekFrom::Start(start))?;
        let mut text = Vec::with_capacity(range.len().saturating_add(CHUNK));
        for index in first..range.end.div_ceil(CHUNK) {
            let mut sealed = Vec::with_capacity(CHUNK + SEAL_BYTES);
            let longest = u64::try_from(CHUNK + SEAL_BYTES).map_err(io::Error::other)?;
            Read::by_ref(&mut file)
                .take(longest)
                .read_to_end(&mut sealed)?;
            let index = u64::try_from(index).map_err(io::Error::other)?;
            let plain = self.seal.open_bytes_for(&sealed, &place(number, index));
            text.extend(plain.ok_or(io::ErrorKind::InvalidData)?);
        }
        let (start, end) = (range.start - first * CHUNK, range.end - first * CHUNK);
        if end > text.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Bytes::from(text).slice(start..end))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.lock.get_mut().is_some() {
            let _ = fs::remove_dir_all(self.folder());
            let _ = fs::remove_file(self.root.join(format!("{}{OF_RUN}", self.run)));
        }
    }
}

/// The place of a chunk, which is sealed with it.
fn place(number: u64, index: u64) -> Vec<u8> {
    [number.to_be_bytes(), index.to_be_bytes()].concat()
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.mode(0o600).open(path)
}

/// Removes the folders of runs that have ended.
fn remove_former(root: &Path) -> io::Result<()> {
    let removing = open(&root.join(LOCK))?;
    removing.lock()?;
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        let Some(run) = path.to_str().and_then(|path| path.strip_suffix(OF_RUN)) else {
            continue;
        };
        // Another process that lives has the lock.
        if open(&path)?.try_lock().is_ok() {
            match fs::remove_dir_all(run) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => fs::remove_file(&path)?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn open_in(folder: &Path) -> Arc<dyn ResultFiles> {
        let state_dir = Some(folder.to_str().unwrap().to_owned());
        let config = Config {
            state_dir,
            ..Config::default()
        };
        DiskResults::open(&config).unwrap().unwrap()
    }

    fn files_in(folder: &Path) -> Vec<PathBuf> {
        let read = |path: &Path| {
            fs::read_dir(path).map(|all| all.map(|one| one.unwrap().path()).collect::<Vec<_>>())
        };
        let all = read(&folder.join(FOLDER)).unwrap_or_default();
        let in_folders = all.iter().filter_map(|path| read(path).ok());
        in_folders.flatten().collect()
    }

    #[tokio::test]
    async fn parts_are_read_from_sealed_files_that_are_removed_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let files = open_in(folder.path());
        let text: Bytes = (0..3_000_000u32)
            .map(|n| u8::try_from(n % 251).unwrap())
            .collect();
        let pieces = vec![
            text.slice(..10),
            text.slice(10..2_500_000),
            text.slice(2_500_000..),
        ];
        let file = files.write(pieces).await.unwrap();
        for range in [
            0..10,
            0..3_000_000,
            CHUNK - 1..CHUNK + 1,
            2_999_999..3_000_000,
            CHUNK..CHUNK,
        ] {
            assert_eq!(file.read(range.clone()).await.unwrap(), text.slice(range));
        }
        let written = files_in(folder.path());
        assert_eq!(written.len(), 1);
        let sealed = fs::read(&written[0]).unwrap();
        assert_eq!(sealed.len(), 3_000_000 + 3 * SEAL_BYTES);
        assert!(!sealed.windows(64).any(|window| window == &text[..64]));
        fs::write(
            &written[0],
            [&sealed[..100], &[sealed[100] ^ 1], &sealed[101..]].concat(),
        )
        .unwrap();
        assert_eq!(
            file.read(0..1).await.unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
        drop(file);
        // Removed on another thread, which a runtime waits for when it ends.
        while !files_in(folder.path()).is_empty() {
            tokio::task::yield_now().await;
        }
        drop(files);
    }

    #[tokio::test]
    async fn file_whose_writing_nobody_awaits_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let files = open_in(folder.path());
        for _ in 0..200 {
            let writing = files.write(vec![Bytes::from_static(b"text")]);
            drop(writing.now_or_never());
        }
        // The threads take the turns of the last writings until they have ended.
        let removed = async {
            drop(files.write(vec![Bytes::new()]).await.unwrap());
            while !files_in(folder.path()).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let patience = std::time::Duration::from_secs(60);
        let removed = tokio::time::timeout(patience, removed).await;
        removed.expect("no file is left");
    }

    #[test]
    fn files_of_ended_runs_are_removed_and_those_of_running_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join(FOLDER);
        for run in ["0000000000000001", "0000000000000002"] {
            fs::create_dir_all(root.join(run)).unwrap();
            fs::write(root.join(run).join("0"), "x").unwrap();
        }
        let living = open(&root.join(format!("0000000000000001{OF_RUN}"))).unwrap();
        living.lock().unwrap();
        open(&root.join(format!("0000000000000002{OF_RUN}"))).unwrap();
        drop(open_in(folder.path()));
        assert_eq!(files_in(folder.path()), [root.join("0000000000000001/0")]);
    }
}
