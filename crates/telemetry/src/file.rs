//! `--trace-file`: ended spans as lines of OTLP-JSON, one export request per line (OpenTelemetry Protocol File Exporter),
//! rotated by size and count.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
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
    /// Bytes of whole lines in the file.
    size: u64,
    /// Whether part of a line may follow the whole ones: the file was full, or this process ended, in between.
    is_cut: bool,
}

impl TraceFile {
    /// Opens the file, to append if it exists.
    pub(crate) fn open(settings: FileSettings, resource: Resource) -> io::Result<Self> {
        let file = append_to(&settings.path)?;
        let size = file.metadata()?.len();
        let is_cut = size > 0 && last_byte(&settings.path).is_ok_and(|byte| byte != b'\n');
        Ok(Self {
            settings,
            resource,
            file,
            size,
            is_cut,
        })
    }

    /// Appends a line. Where that fails in the middle, the part that was written is removed; if that is not possible
    /// either, the next line begins with a line break.
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_cut {
            self.file.write_all(b"\n")?;
            self.size += 1;
            self.is_cut = false;
        }
        if let Err(error) = self.file.write_all(line) {
            self.is_cut = self.file.set_len(self.size).is_err();
            return Err(error);
        }
        self.size += line.len() as u64;
        Ok(())
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
        (self.size, self.is_cut) = (0, false);
        Ok(())
    }
}

impl worker::Write for TraceFile {
    fn write(&mut self, spans: &[Arc<SpanData>]) -> io::Result<()> {
        let mut line = otlp_json::traces(&self.resource, spans);
        line.push('\n');
        if self.size > 0 && self.size + line.len() as u64 > self.settings.max_bytes {
            self.rotate()?;
        }
        self.append(line.as_bytes())
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

fn last_byte(path: &Path) -> io::Result<u8> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut byte = [0];
    file.read_exact(&mut byte)?;
    Ok(byte[0])
}

fn numbered(path: &Path, number: usize) -> PathBuf {
    if number == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}
