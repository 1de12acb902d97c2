//! Noticing that files of the configuration have changed.
//!
//! Folders are watched, not files: editors replace a file by another, and Kubernetes replaces the target of a symlink
//! beside it (`..data`). A change of anything in these folders is collected for a moment; then the content of the files
//! is compared, so that what touches no file of the configuration, or writes the same again, reloads nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fanlight_config::{ConfigFile, fingerprint};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, warn};

/// The longest that a series of changes is collected for, in times of `timeouts.configSettle`.
const LONGEST: u32 = 10;

/// Watches the files of the configuration.
pub(crate) struct Watch {
    watcher: RecommendedWatcher,
    touched: Arc<Notify>,
    /// The fingerprint of each; `None` for one that cannot be read.
    files: BTreeMap<PathBuf, Option<u64>>,
    folders: Vec<PathBuf>,
}

impl Watch {
    /// `None` where the system cannot watch files, which is logged.
    pub(crate) fn new() -> Option<Self> {
        let touched = Arc::new(Notify::new());
        let notified = Arc::clone(&touched);
        let watcher =
            notify::recommended_watcher(move |event: notify::Result<notify::Event>| match event {
                Ok(event) if event.kind.is_access() => {}
                Ok(_) | Err(_) => notified.notify_one(),
            });
        match watcher {
            Ok(watcher) => Some(Self {
                watcher,
                touched,
                files: BTreeMap::new(),
                folders: Vec::new(),
            }),
            Err(error) => {
                warn!(%error, "files of the configuration are not watched; reload with SIGHUP or `fanlight reload`");
                None
            }
        }
    }

    /// Watches these files, which were read as they say, and folders for files in them, instead of those before.
    pub(crate) fn follow(&mut self, files: &[ConfigFile]) {
        let mut folders: Vec<PathBuf> = files
            .iter()
            .flat_map(|file| folders_of(&file.path))
            .collect();
        folders.sort();
        folders.dedup();
        for gone in self
            .folders
            .iter()
            .filter(|folder| !folders.contains(folder))
        {
            if let Err(error) = self.watcher.unwatch(gone) {
                debug!(folder = %gone.display(), %error, "folder not unwatched");
            }
        }
        for new in folders
            .iter()
            .filter(|folder| !self.folders.contains(folder))
        {
            if let Err(error) = self.watcher.watch(new, RecursiveMode::NonRecursive) {
                warn!(folder = %new.display(), %error, "folder of the configuration not watched");
            }
        }
        self.folders = folders;
        self.files = files
            .iter()
            .map(|file| (file.path.clone(), file.fingerprint))
            .collect();
        // They may have changed since they were read, before they were watched.
        self.touched.notify_one();
    }

    /// Waits until a file has another content; for ever if nothing is watched.
    /// `settle`: without a change for this long, the files are complete.
    pub(crate) async fn changed(watch: &mut Option<Self>, settle: Duration) {
        let Some(watch) = watch else {
            return std::future::pending().await;
        };
        loop {
            watch.touched.notified().await;
            let latest = Instant::now() + settle * LONGEST;
            // In a folder that others write to all the time, it never becomes quiet.
            while Instant::now() < latest
                && timeout_at(
                    latest.min(Instant::now() + settle),
                    watch.touched.notified(),
                )
                .await
                .is_ok()
            {}
            if watch.take_changes() {
                return;
            }
        }
    }

    /// Whether this file has another content than when it was last compared.
    pub(super) fn has_changed(&self, file: &Path) -> bool {
        self.files
            .get(file)
            .is_some_and(|before| *before != fingerprint(file))
    }

    /// Whether a file has another content than before.
    pub(super) fn take_changes(&mut self) -> bool {
        let now: BTreeMap<_, _> = self
            .files
            .keys()
            .map(|file| (file.clone(), fingerprint(file)))
            .collect();
        let is_changed = now != self.files;
        self.files = now;
        is_changed
    }
}

/// The folders in which a change may be one of `file`: its own, and that of what it links to.
fn folders_of(file: &Path) -> Vec<PathBuf> {
    let folder = |path: &Path| match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => PathBuf::from("."),
        Some(folder) => folder.to_owned(),
        None => path.to_owned(),
    };
    let target = std::fs::canonicalize(file).ok();
    let own = if file.is_dir() {
        file.to_owned()
    } else {
        folder(file)
    };
    let linked = target
        .filter(|target| target.is_file())
        .map(|target| folder(&target));
    std::iter::once(own)
        .chain(linked)
        .filter(|folder| folder.is_dir())
        .collect()
}
