//! Detects changes of the configuration files.
//!
//! Folders are watched instead of files: editors replace a file by another, and Kubernetes replaces
//! the target of a symlink beside it (`..data`). Changes in these folders are collected for a
//! moment. Then the contents of the files are compared, so that nothing is reloaded unless the
//! content of a configuration file has changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fanlight_config::{ConfigFile, fingerprint};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tracing::{debug, warn};

/// The longest time for collecting changes, in multiples of the settling time.
const LONGEST: u32 = 10;

/// Watches the files of the configuration.
pub(crate) struct Watch {
    watcher: RecommendedWatcher,
    touched: Arc<Notify>,
    /// The fingerprint of each file; `None` for an unreadable one.
    files: BTreeMap<PathBuf, Option<u64>>,
    folders: Vec<PathBuf>,
}

impl Watch {
    /// Creates a watch; `None` if the system cannot watch files, which is logged.
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

    /// Watches these files and folders instead of the previous ones. The files' fingerprints are
    /// from when they were read.
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
        // Files may have changed between being read and being watched.
        self.touched.notify_one();
    }

    /// Waits until a file has another content; forever if nothing is watched. Files count as
    /// complete after `settle` without a change.
    pub(crate) async fn changed(watch: &mut Option<Self>, settle: Duration) {
        let Some(watch) = watch else {
            return std::future::pending().await;
        };
        loop {
            watch.touched.notified().await;
            let latest = Instant::now() + settle * LONGEST;
            // A folder that others constantly write to never settles.
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

    /// Whether this file's content has changed since it was last compared.
    pub(super) fn has_changed(&self, file: &Path) -> bool {
        self.files
            .get(file)
            .is_some_and(|before| *before != fingerprint(file))
    }

    /// Whether a file's content has changed.
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

/// The folders to watch for changes of `file`: its own, and the folder of its link's target.
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
