//! `--trace-file`: ended spans as lines of OTLP-JSON, one export request per line (OpenTelemetry Protocol File Exporter),
//! rotated by size and count.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;

use crate::otlp_json;
use crate::settings::FileSettings;
use crate::worker;

/// The current file. `path.1` is the one before it, `path.2` the one before that.
#[derive(Debug)]
pub(crate) struct TraceFile {
    settings: FileSettings,
    resource: Resource,
    file: File,
    size: u64,
}

impl TraceFile {
    /// Opens the file, to append if it exists.
    pub(crate) fn open(settings: FileSettings, resource: Resource) -> io::Result<Self> {
        let file = append_to(&settings.path)?;
        let size = file.metadata()?.len();
        Ok(Self { settings, resource, file, size })
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let path = |number: usize| numbered(&self.settings.path, number);
        for number in (0..self.settings.kept).rev() {
            match fs::rename(path(number), path(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.settings.kept == 0 {
            fs::remove_file(&self.settings.path)?;
        }
        self.file = append_to(&self.settings.path)?;
        self.size = 0;
        Ok(())
    }
}

impl worker::Write for TraceFile {
    fn write(&mut self, spans: &[Arc<SpanData>]) -> io::Result<()> {
        let mut line = otlp_json::traces(&self.resource, spans);
        line.push('\n');
        let length = line.len() as u64;
        if self.size > 0 && self.size + length > self.settings.max_bytes {
            self.rotate()?;
        }
        self.file.write_all(line.as_bytes())?;
        self.size += length;
        Ok(())
    }
}

/// Readable only by its owner where permissions exist: it has names of tools and digests of sessions.
fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    if number == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}
