//! The lists of servers in `stateDir`, so that a server with a process need not be started for them after a restart of
//! Fanlight.
//!
//! One file for each server, written a moment after a list has been read, and read when the server is set up. It has what
//! Fanlight itself read for all clients, never what a client was given.
//!
//! Without `stateDir`, lists are kept in the state folder of the user, if there is one. They are then served until the
//! servers have been started, which is done at once: nobody has asked for servers to be left alone.

mod definition;
mod file;
mod of_user;

pub(crate) use of_user::{folder as user_state_folder, folder_of as user_state_of};

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use fanlight_backend::{Backend, BackendSettings, KnownServer};
use fanlight_config::{Config, MAX_FILE_SIZE};
use fanlight_gateway::catalogue::ListKind;
use fanlight_gateway::{KeptList, ListStore};
use fanlight_grants::Folder;
use serde_json::Value;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::failure::Failure;
use crate::wiring::budgets;
use definition::Definition;
use file::Contents;

/// Lists that are read within this time are written together.
const COLLECT: Duration = Duration::from_millis(250);
/// The file with the rules of names.
const NAMES: &str = "names.json";
/// Bytes of a file besides lists and the server's description.
const OVERHEAD: usize = 64 << 10;

/// The files in `stateDir`.
#[derive(Clone)]
pub(crate) struct ListState {
    folder: Arc<Folder>,
    /// The configuration names the folder.
    is_named: bool,
    /// Bytes of the longest file.
    longest: usize,
    writing: TaskTracker,
    /// Has what waits written at once.
    end: CancellationToken,
}

/// The lists of one server, and its file.
pub(crate) struct ServerLists {
    state: ListState,
    server: String,
    definition: Definition,
    backend: OnceLock<Weak<Backend>>,
    kept: Mutex<Kept>,
    itself: Weak<Self>,
}

#[derive(Default)]
struct Kept {
    known: Option<KnownServer>,
    lists: HashMap<ListKind, KeptList>,
    /// Lists that were read in this run.
    read: HashSet<ListKind>,
    is_unwritten: bool,
    is_writing: bool,
    /// The last attempt to write failed, which has been logged.
    has_failed: bool,
}

impl ListState {
    /// The state in the folder that the configuration names, else in that of the user for the configuration in these files;
    /// makes the folder if there is none.
    pub(crate) fn open(config: &Config, files: Option<&[PathBuf]>) -> Result<Option<Self>, Failure> {
        if let Some(path) = &config.state_dir {
            let folder = Folder::open(Path::new(path));
            let folder = folder.map_err(|problem| Failure::other(format!("stateDir: {problem}")))?;
            return Ok(Some(Self::in_folder(folder, true, config)));
        }
        let Some(path) = files.filter(|_| of_user::is_useful(config)).and_then(of_user::folder) else {
            return Ok(None);
        };
        match Folder::open(&path) {
            Ok(folder) => {
                of_user::remove_unused(&path);
                Ok(Some(Self::in_folder(folder, false, config)))
            }
            // Nobody has asked for it.
            Err(problem) => {
                debug!(problem, "lists are not kept");
                Ok(None)
            }
        }
    }

    /// The state that earlier runs have left for the configuration in these files; makes no folder.
    pub(crate) fn left_for(config: &Config, files: &[PathBuf]) -> Option<Self> {
        let named = config.state_dir.as_ref().map(PathBuf::from);
        let is_named = named.is_some();
        let path = named.or_else(|| of_user::folder(files)).filter(|path| path.is_dir())?;
        Some(Self::in_folder(Folder::open(&path).ok()?, is_named, config))
    }

    fn in_folder(folder: Folder, is_named: bool, config: &Config) -> Self {
        let limits = &config.limits;
        let lists = limits.list_bytes.saturating_mul(ListKind::ALL.len()).min(budgets(config).lists);
        let longest = lists.saturating_add(limits.message).saturating_add(OVERHEAD);
        let (writing, end) = (TaskTracker::new(), CancellationToken::new());
        Self { folder: Arc::new(folder), is_named, longest, writing, end }
    }

    /// Whether servers are not started while their lists are known.
    pub(crate) fn spares_processes(&self) -> bool {
        self.is_named
    }

    /// The lists of the server with these settings; with those of earlier runs, unless it `is_new`.
    pub(crate) fn of(&self, settings: &BackendSettings, is_new: bool) -> Arc<ServerLists> {
        let server = settings.name.clone();
        let definition = Definition::of(settings, self.folder.key());
        let contents = if is_new { None } else { self.read(&server, &definition) };
        let kept = contents.map_or_else(Kept::default, |Contents { known, lists }| Kept {
            known: Some(known),
            lists,
            ..Kept::default()
        });
        Arc::new_cyclic(|itself| ServerLists {
            state: self.clone(),
            server,
            definition,
            backend: OnceLock::new(),
            kept: Mutex::new(kept),
            itself: Weak::clone(itself),
        })
    }

    fn read(&self, server: &str, definition: &Definition) -> Option<Contents> {
        let name = file::name_of(server);
        let contents = match self.folder.read(&name, self.longest) {
            Ok(Some(bytes)) => file::decode(bytes, server, definition, self.folder.key()),
            Ok(None) => return None,
            Err(problem) => Err(file::Unusable::Unreadable(problem)),
        };
        match contents {
            Ok(contents) => Some(contents),
            Err(file::Unusable::OtherDefinition) => {
                info!(backend = server, file = name, "kept lists ignored: the server's definition has changed");
                None
            }
            Err(reason) => {
                warn!(backend = server, file = name, %reason, "kept lists ignored");
                None
            }
        }
    }

    /// The rules of names that were in force last, as they were kept.
    pub(crate) fn names(&self) -> Option<Value> {
        let text = self.folder.read(NAMES, MAX_FILE_SIZE.saturating_mul(2)).ok()??;
        serde_json::from_slice(&text).ok()
    }

    /// Keeps the rules of names that are in force, for the next start and for `fanlight check`.
    pub(crate) fn keep_names(&self, names: &Value) {
        let (folder, text) = (Arc::clone(&self.folder), names.to_string());
        self.writing.spawn(async move {
            if let Ok(Err(error)) = spawn_blocking(move || folder.write(NAMES, text.as_bytes())).await {
                warn!(%error, "names of now not kept in stateDir");
            }
        });
    }

    /// Writes what is not written yet, and waits for that.
    pub(crate) async fn stop(&self) {
        self.end.cancel();
        self.writing.close();
        self.writing.wait().await;
    }
}

impl ServerLists {
    /// Facts about the server from an earlier run.
    pub(crate) fn known(&self) -> Option<KnownServer> {
        self.lock().known.clone()
    }

    /// `backend` says what is known of the server from now on.
    pub(crate) fn attach(&self, backend: &Arc<Backend>) {
        let _ = self.backend.set(Arc::downgrade(backend));
    }

    async fn write(self: Arc<Self>) {
        loop {
            let _ = self.state.end.run_until_cancelled(sleep(COLLECT)).await;
            let text = {
                let mut kept = self.lock();
                if !std::mem::take(&mut kept.is_unwritten) {
                    kept.is_writing = false;
                    return;
                }
                let Kept { known, lists, .. } = &*kept;
                known
                    .as_ref()
                    .map(|known| file::encode(&self.server, &self.definition, known, lists, self.state.folder.key()))
            };
            let (Some(text), folder) = (text, Arc::clone(&self.state.folder)) else { continue };
            if text.len() > self.state.longest {
                continue;
            }
            let name = file::name_of(&self.server);
            let written = spawn_blocking(move || folder.write(&name, &text)).await;
            let failure = match written {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(error) => Some(error.to_string()),
            };
            let had_failed = std::mem::replace(&mut self.lock().has_failed, failure.is_some());
            if let Some(error) = failure.filter(|_| !had_failed) {
                warn!(backend = self.server, error, "lists of the server not kept in stateDir");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ListStore for ServerLists {
    fn kept(&self, kind: ListKind) -> Option<KeptList> {
        self.lock().lists.get(&kind).cloned()
    }

    fn keep(&self, kind: ListKind, list: Option<KeptList>) {
        let known = self.backend.get().and_then(Weak::upgrade).and_then(|backend| backend.known());
        let mut kept = self.lock();
        let is_same_server = known.is_none() || known == kept.known;
        kept.known = known.or_else(|| kept.known.take());
        let is_same =
            |earlier: &KeptList, list: &KeptList| earlier.pages == list.pages && earlier.declared == list.declared;
        let is_same_list = match (kept.lists.get(&kind), &list) {
            (Some(earlier), Some(list)) => is_same(earlier, list),
            (earlier, list) => earlier.is_none() && list.is_none(),
        };
        match list {
            Some(list) => drop(kept.lists.insert(kind, list)),
            None => drop(kept.lists.remove(&kind)),
        }
        // What was read again unchanged need not be written again, but for when it was read first in this run.
        let is_first = kept.read.insert(kind);
        if is_same_server && is_same_list && !is_first {
            return;
        }
        kept.is_unwritten = true;
        if !std::mem::replace(&mut kept.is_writing, true) {
            drop(kept);
            self.itself.upgrade().map(|itself| self.state.writing.spawn(itself.write()));
        }
    }
}
