//! `--trace-file` writes ended spans as lines of OTLP-JSON (OpenTelemetry Protocol File Exporter).
//! Each line is an export request. The file is rotated at a size, and some rotated files are kept.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;

use crate::{FileSettings, otlp_json, worker};

/// The trace file and its settings. When it is rotated, `path.1` is the file before the current
/// one, and `path.2` the file before that.
#[derive(Debug)]
pub(crate) struct TraceFile {
    settings: FileSettings,
    resource: Resource,
    file: File,
    /// The size of the complete lines in the file, in bytes.
    size: u64,
    /// Whether an incomplete line may follow the complete ones, because the disk was full or the
    /// process ended while it wrote.
    is_cut: bool,
}

impl TraceFile {
    /// Opens the file. An existing file is continued.
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

    /// Appends a line. If writing fails in the middle, the written part is removed. If that also
    /// fails, the next line begins with a line break.
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
    fn write(&mut self, spans: Vec<SpanData>) -> io::Result<()> {
        let mut line = otlp_json::traces(&self.resource, spans);
        line.push('\n');
        if self.size > 0 && self.size + line.len() as u64 > self.settings.max_bytes {
            self.rotate()?;
        }
        self.append(line.as_bytes())
    }
}

/// Opens the file for appending. Only its owner can read it where the system has permissions,
/// because it contains names of tools and digests of session ids.
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
