//! `fanlight record`: writes the recording of a running gateway to a file.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use fanlight_telemetry::recording::{End, Line};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, timeout_at};

use crate::cli::{CommonArgs, RecordArgs};
use crate::observe::Admin;
use crate::{Result, complain};

/// The mode of the file: its messages are for their owner alone.
const MODE: u32 = 0o600;
/// The time limit of a recording, which the gateway ends earlier.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
/// The time limit for the rest of a recording after Ctrl-C. A second one ends the command at once.
const REST: Duration = Duration::from_secs(60);
/// The number of bytes to read of a recording's end; its last line is shorter.
const TAIL: usize = 1024;

/// Records until Ctrl-C, or until the gateway ends the recording.
pub async fn record(args: &RecordArgs, common: &CommonArgs) -> Result {
    let admin = Admin::find(&args.admin, common).await?;
    let mut file = RecordingFile::create(&args.file, args.force)?;
    let asked = json!({
        "servers": args.server,
        "endpoint": args.endpoint,
        "for": args.r#for,
        "maxBytes": args.max_bytes,
    });
    let stream = admin
        .post_streamed(&["recording"], asked.to_string(), "application/x-ndjson")
        .await;
    let mut stream = stream.inspect_err(|_| {
        // An empty file that stays does no harm.
        let _ = std::fs::remove_file(&args.file);
    })?;
    let mut interruptions = signal(SignalKind::interrupt())
        .map_err(|error| failure!("cannot listen for Ctrl-C: {error}"))?;
    complain(&format!(
        "recording to {}; Ctrl-C ends it\n",
        args.file.display()
    ));
    let (mut is_ending, mut until) = (false, Instant::now() + FOREVER);
    loop {
        let chunk = tokio::select! {
            biased;
            Some(()) = interruptions.recv() => {
                if is_ending {
                    break;
                }
                (is_ending, until) = (true, Instant::now() + REST);
                // The stream goes on with the rest and the last line, or breaks off, too.
                let _ = admin.post(&["recording", "end"]).await;
                continue;
            }
            chunk = timeout_at(until, stream.chunk()) => chunk,
        };
        let Ok(Ok(Some(chunk))) = chunk else { break };
        file.write(&chunk)?;
    }
    drop(stream);
    complain(&file.finish());
    Ok(())
}

/// The file of a recording.
struct RecordingFile {
    file: File,
    path: std::path::PathBuf,
    /// The last bytes.
    tail: Vec<u8>,
}

impl RecordingFile {
    fn create(path: &Path, force: bool) -> Result<Self> {
        let failed = |error: std::io::Error| {
            let hint = match error.kind() {
                ErrorKind::AlreadyExists => "; --force replaces it",
                _ => "",
            };
            usage!("cannot write {}: {error}{hint}", path.display())
        };
        let mut options = OpenOptions::new();
        options.write(true).truncate(force).mode(MODE);
        options.create(force).create_new(!force);
        let file = options.open(path).map_err(failed)?;
        let mode = PermissionsExt::from_mode(MODE);
        file.set_permissions(mode).map_err(failed)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            tail: Vec::new(),
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result {
        self.tail.extend_from_slice(bytes);
        let excess = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..excess);
        let path = self.path.display();
        self.file
            .write_all(bytes)
            .map_err(|error| failure!("cannot write {path}: {error}"))
    }

    /// A sentence about the file.
    fn finish(self) -> String {
        let path = self.path.display();
        let tail = String::from_utf8_lossy(&self.tail);
        match Line::parse(tail.lines().last().unwrap_or_default()) {
            Ok(Line::End(End { end, .. })) => {
                let lost = match end.whole {
                    true => "",
                    false => ", and others were lost: see its last line and those with `lost`",
                };
                format!("{} messages in {path}{lost}\n", end.messages)
            }
            _ => format!("{path} was cut off: the gateway has sent no last line\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_tells_how_a_recording_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let mut file = RecordingFile::create(&path, false).unwrap();
        assert!(RecordingFile::create(&path, false).is_err());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        let head = r#"{"recording":1,"fanlight":"","started":""}"#;
        file.write(format!("{head}\n{{\"us\":12,\"sid").as_bytes())
            .unwrap();
        assert!(file.finish().contains("was cut off"));
        let cut_off = crate::recording::Recording::read(&path).unwrap();
        assert_eq!((cut_off.messages.len(), cut_off.end), (0, None));
        let mut file = RecordingFile::create(&path, true).unwrap();
        let end = r#"{"us":1,"end":{"reason":"size","whole":false,"messages":7}}"#;
        for part in [head, "\n", &end[..9], &end[9..], "\n"] {
            file.write(part.as_bytes()).unwrap();
        }
        let said = file.finish();
        assert!(
            said.starts_with("7 messages") && said.contains("lost"),
            "{said}"
        );
    }
}
