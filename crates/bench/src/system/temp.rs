//! Files that go with their owner.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Doing, Result};

/// A temporary file.
#[derive(Debug)]
pub(crate) struct TempFile(PathBuf);

impl TempFile {
    /// A new file with `text` in it.
    pub(crate) fn new(name: &str, text: &str) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fanlight-bench-{}-{number}-{name}", std::process::id()));
        std::fs::write(&path, text).doing(format!("writing {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // What is left behind is small, and in the folder for such things.
        let _ = std::fs::remove_file(&self.0);
    }
}
