//! The servers' lists in `stateDir`, so that a restart of Fanlight need not start server processes
//! to read them.
//!
//! The store has a record for each server. It is written shortly after a list was read, and loaded
//! when the server is set up. It contains what Fanlight itself read for all clients, never what a
//! particular client got.
//!
//! Without `stateDir`, the user's state folder is used, if there is one. In that case Fanlight
//! still starts the servers at once, and serves the stored lists only until they have started.

mod record;
mod tasks;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use fanlight_backend::{Backend, BackendLimits, KnownServer};
use fanlight_config::{Config, Server, Transport};
use fanlight_gateway::{ByteLimits, KeptList, ListKind, ListLimits, ListStore};
use fanlight_grants::{FILE, Folder, Owner, Store, StoreError};
use fanlight_replicas::keys;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::instance;
use crate::failure::Result;
use crate::memory::budgets;
pub use record::KeptServer;
use record::{Contents, Definition, KeptNames, Unusable};

/// The limits of lists that are kept and merged.
pub fn list_limits(config: &Config) -> ListLimits {
    let limits = ListLimits::default();
    ListLimits {
        spares_streams: config.replicas.is_some(),
        bytes: ByteLimits {
            all: budgets(config).lists,
            ..limits.bytes
        },
        ..limits
    }
}

/// Lists read within this time are written together.
const COLLECT: Duration = Duration::from_millis(50);

/// The store in `stateDir`.
#[derive(Clone)]
pub struct ListState {
    store: Store,
    path: PathBuf,
    /// Whether the configuration names the folder.
    is_named: bool,
    /// The size limit of a server's record, in bytes.
    longest: usize,
    writing: TaskTracker,
    /// Ends the delay before writing.
    end: CancellationToken,
}

/// The lists of one server, and their record.
pub struct ServerLists {
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
    /// The lists read in this run.
    read: HashSet<ListKind>,
    is_unwritten: bool,
    is_writing: bool,
    /// Whether the last attempt to write failed, which has been logged.
    has_failed: bool,
}

impl ListState {
    /// Opens the state folder: the configured one, else the user's folder for these files. Creates
    /// it if necessary.
    pub fn open(config: &Config, files: Option<&[PathBuf]>) -> Result<Option<Self>> {
        if let Some(path) = &config.state_dir {
            let folder = Folder::open(Path::new(path));
            let folder = folder.map_err(|problem| failure!("stateDir: {problem}"))?;
            return Ok(match Self::in_folder(&folder, true, config) {
                Ok(state) => Some(state),
                Err(error) => {
                    warn!(%error, "lists of servers are not stored");
                    None
                }
            });
        }
        let Some(path) = files
            .filter(|_| is_useful(config))
            .and_then(user_state_folder)
        else {
            return Ok(None);
        };
        let opened = Folder::open(&path).and_then(|folder| {
            Self::in_folder(&folder, false, config).map_err(|error| error.to_string())
        });
        match opened {
            Ok(state) => {
                remove_unused(&path);
                Ok(Some(state))
            }
            // The folder was not configured, so this is not worth a warning.
            Err(problem) => {
                debug!(problem, "lists are not stored");
                Ok(None)
            }
        }
    }

    /// The state from earlier runs of the configuration in these files. Creates no folder.
    pub fn left_for(config: &Config, files: &[PathBuf]) -> Option<Self> {
        let named = config.state_dir.as_ref().map(PathBuf::from);
        let is_named = named.is_some();
        let path = named
            .or_else(|| user_state_folder(files))
            .filter(|path| path.join(FILE).is_file())?;
        Self::in_folder(&Folder::open(&path).ok()?, is_named, config).ok()
    }

    fn in_folder(folder: &Folder, is_named: bool, config: &Config) -> Result<Self, StoreError> {
        let (store, path) = (
            Store::open_for_lists(folder, &keys(config))?,
            folder.path().to_owned(),
        );
        let lists = list_limits(config).bytes;
        let lists = lists.one.saturating_mul(ListKind::ALL.len()).min(lists.all);
        let longest = lists.saturating_add(BackendLimits::default().message_bytes);
        let (writing, end) = (TaskTracker::new(), CancellationToken::new());
        Ok(Self {
            store,
            path,
            is_named,
            longest,
            writing,
            end,
        })
    }

    /// The store, if it is in this folder.
    pub fn store_in(&self, folder: &Path) -> Option<&Store> {
        (self.path == folder).then_some(&self.store)
    }

    /// Whether servers stay stopped while their lists are known.
    pub fn spares_processes(&self) -> bool {
        self.is_named
    }

    /// The lists of this server, loaded from earlier runs unless it `is_new`.
    pub fn load(&self, server: &Server, is_new: bool) -> Arc<ServerLists> {
        let definition = Definition::new(server);
        let server = server.name.clone();
        let contents = if is_new {
            None
        } else {
            self.read(&server, &definition)
        };
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
        let record = match self
            .store
            .get_blocking::<KeptServer>(&Owner::nobody(server))
        {
            Ok(record) => record?,
            Err(reason) => {
                warn!(backend = server, %reason, "stored lists ignored");
                return None;
            }
        };
        match record.contents(definition, self.longest) {
            Ok(contents) => Some(contents),
            Err(Unusable::OtherDefinition) => {
                info!(
                    backend = server,
                    "stored lists ignored: the server's definition has changed"
                );
                None
            }
            Err(reason) => {
                warn!(backend = server, %reason, "stored lists ignored");
                None
            }
        }
    }

    /// The stored rules of names from the last run.
    pub fn names<T: DeserializeOwned>(&self) -> Option<T> {
        let KeptNames(rules) = self.store.get_blocking(&Owner::nobody("")).ok()??;
        serde_json::from_value(rules).ok()
    }

    /// Stores the current rules of names, for the next start and for `fanlight check`.
    pub fn keep_names(&self, names: &impl Serialize) {
        let (store, names) = (self.store.clone(), KeptNames(json!(names)));
        self.writing.spawn(async move {
            if let Err(error) = store.put(&Owner::nobody(""), &names).await {
                warn!(%error, "current names not stored in stateDir");
            }
        });
    }

    /// Writes pending changes and waits for that.
    pub async fn stop(&self) {
        self.end.cancel();
        self.writing.close();
        self.writing.wait().await;
    }
}

impl ServerLists {
    /// The server's facts from an earlier run.
    pub fn facts(&self) -> Option<KnownServer> {
        self.kept.lock().known.clone()
    }

    /// Takes the server's facts from `backend` from now on.
    pub fn attach(&self, backend: &Arc<Backend>) {
        let _ = self.backend.set(Arc::downgrade(backend));
    }

    async fn write(self: Arc<Self>) {
        loop {
            let _ = self.state.end.run_until_cancelled(sleep(COLLECT)).await;
            let record = {
                let mut kept = self.kept.lock();
                if !std::mem::take(&mut kept.is_unwritten) {
                    kept.is_writing = false;
                    return;
                }
                let Kept { known, lists, .. } = &*kept;
                known
                    .as_ref()
                    .and_then(|known| KeptServer::new(&self.definition, known, lists))
            };
            let Some(record) = record.filter(|record| record.size() <= self.state.longest) else {
                continue;
            };
            let written = self
                .state
                .store
                .put(&Owner::nobody(&self.server), &record)
                .await;
            let failure = written.err().map(|error| error.to_string());
            let had_failed = std::mem::replace(&mut self.kept.lock().has_failed, failure.is_some());
            if let Some(error) = failure.filter(|_| !had_failed) {
                warn!(
                    backend = self.server,
                    error, "lists of the server not stored in stateDir"
                );
            }
        }
    }
}

impl ListStore for ServerLists {
    fn load(&self, kind: ListKind) -> Option<KeptList> {
        self.kept.lock().lists.get(&kind).cloned()
    }

    fn keep(&self, kind: ListKind, list: Option<KeptList>) {
        let known = self
            .backend
            .get()
            .and_then(Weak::upgrade)
            .and_then(|backend| backend.facts());
        let mut kept = self.kept.lock();
        let is_same_server = known.is_none() || known == kept.known;
        kept.known = known.or_else(|| kept.known.take());
        let is_same = |earlier: &KeptList, list: &KeptList| {
            earlier.pages == list.pages && earlier.declared == list.declared
        };
        let is_same_list = match (kept.lists.get(&kind), &list) {
            (Some(earlier), Some(list)) => is_same(earlier, list),
            (earlier, list) => earlier.is_none() && list.is_none(),
        };
        match list {
            Some(list) => drop(kept.lists.insert(kind, list)),
            None => drop(kept.lists.remove(&kind)),
        }
        // A list that was read again unchanged is written only for its first time of reading in
        // this run.
        let is_first = kept.read.insert(kind);
        if is_same_server && is_same_list && !is_first {
            return;
        }
        kept.is_unwritten = true;
        if !std::mem::replace(&mut kept.is_writing, true) {
            drop(kept);
            self.itself
                .upgrade()
                .map(|itself| self.state.writing.spawn(itself.write()));
        }
    }
}

/// Unused lists of a configuration are removed after this time.
const UNUSED: Duration = Duration::from_secs(90 * 86_400);

/// Whether stored lists would be served. A single server is asked directly, and a server without a
/// process has nothing to start.
fn is_useful(config: &Config) -> bool {
    let enabled = || config.servers.iter().filter(|server| server.enabled);
    enabled().count() > 1
        && enabled().any(|server| matches!(server.transport, Transport::Stdio { .. }))
}

/// The folder for the configuration in these files, if the user has a state folder.
pub fn user_state_folder(files: &[PathBuf]) -> Option<PathBuf> {
    user_state_of(&instance::digest(files)?)
}

/// The folder of this name, if the user has a state folder.
pub fn user_state_of(name: &str) -> Option<PathBuf> {
    Some(state_home()?.join("fanlight").join(name))
}

fn state_home() -> Option<PathBuf> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    variable("XDG_STATE_HOME").or_else(|| {
        // Under `sudo`, HOME may belong to another user, who could not use files that root creates
        // there.
        let is_own = |home: &PathBuf| {
            fs::metadata(home).is_ok_and(|home| home.uid() == rustix::process::geteuid().as_raw())
        };
        Some(variable("HOME").filter(is_own)?.join(".local/state"))
    })
}

/// Removes the folders of other configurations that were unused for long.
fn remove_unused(own: &Path) {
    let all = own.parent().and_then(|parent| fs::read_dir(parent).ok());
    for entry in all.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours =
            name.len() == instance::LENGTH && name.as_bytes().iter().all(u8::is_ascii_hexdigit);
        let changed = |path: &Path| {
            fs::metadata(path)
                .and_then(|metadata| metadata.modified())
                .ok()
        };
        // The store is changed in place, so the folder's time is not enough.
        let used = changed(&entry.path()).max(changed(&entry.path().join(FILE)));
        let is_unused = used
            .and_then(|at| at.elapsed().ok())
            .is_some_and(|age| age > UNUSED);
        // A folder with users' grants stays, however long it was unused.
        if is_ours
            && is_unused
            && entry.path() != own
            && !fanlight_grants::holds_users(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
