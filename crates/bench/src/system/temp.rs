//! Files that go with their owner.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Doing, Result};

/// A temporary file or folder.
#[derive(Debug)]
pub(crate) struct TempFile(PathBuf);

impl TempFile {
    /// A new file with `text` in it.
    pub(crate) fn new(name: &str, text: &str) -> Result<Self> {
        let path = unused(name);
        std::fs::write(&path, text).doing(format!("writing {}", path.display()))?;
        Ok(Self(path))
    }

    /// A new, empty folder.
    pub(crate) fn folder(name: &str) -> Result<Self> {
        let path = unused(name);
        std::fs::create_dir(&path).doing(format!("making {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // What is left behind is small, and in the folder for such things.
        let _ = if self.0.is_dir() { std::fs::remove_dir_all(&self.0) } else { std::fs::remove_file(&self.0) };
    }
}

fn unused(name: &str) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("fanlight-bench-{}-{number}-{name}", std::process::id()))
}
