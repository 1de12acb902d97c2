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
use crate::failure::Failure;
use crate::observe::Admin;
use crate::out::complain;

/// The mode of the file: its messages are for their owner alone.
const MODE: u32 = 0o600;
/// The time limit of a recording, which the gateway ends earlier.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
/// The time limit for the rest of a recording after Ctrl-C. A second one ends the command at once.
const REST: Duration = Duration::from_secs(60);

/// Records until Ctrl-C, or until the gateway ends the recording.
pub async fn record(args: &RecordArgs, common: &CommonArgs) -> Result<(), Failure> {
    let admin = Admin::find(&args.admin, common).await?;
    let mut file = RecordingFile::create(&args.file, args.force)?;
    let asked = json!({
        "servers": args.server,
        "endpoint": args.endpoint,
        "for": args.r#for,
        "maxBytes": args.max_bytes,
    });
    let stream = admin
        .post_streamed("/api/recording", asked.to_string(), "application/x-ndjson")
        .await;
    let mut stream = match stream {
        Ok(stream) => stream,
        Err(failure) => {
            file.discard();
            return Err(failure);
        }
    };
    let mut interruptions = signal(SignalKind::interrupt())
        .map_err(|error| Failure::other(format!("cannot listen for Ctrl-C: {error}")))?;
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
                let _ = admin.post(&["api", "recording", "end"]).await;
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

/// The file of a recording, which has whole lines.
struct RecordingFile {
    file: File,
    path: std::path::PathBuf,
    /// The beginning of the next line.
    rest: Vec<u8>,
    /// The last line.
    last: Vec<u8>,
}

impl RecordingFile {
    fn create(path: &Path, force: bool) -> Result<Self, Failure> {
        let mut options = OpenOptions::new();
        options.write(true).mode(MODE);
        match force {
            true => options.create(true),
            false => options.create_new(true),
        };
        let failed = |error: std::io::Error| {
            let hint = match error.kind() {
                ErrorKind::AlreadyExists => "; --force replaces it",
                _ => "",
            };
            Failure::usage(format!("cannot write {}: {error}{hint}", path.display()))
        };
        let file = options.open(path).map_err(failed)?;
        let mode = PermissionsExt::from_mode(MODE);
        file.set_permissions(mode).map_err(failed)?;
        file.set_len(0).map_err(failed)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            rest: Vec::new(),
            last: Vec::new(),
        })
    }

    /// Removes the file, which has nothing.
    fn discard(self) {
        // An empty file that stays does no harm.
        let _ = std::fs::remove_file(self.path);
    }

    /// Writes the whole lines that there are with these bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.rest.extend_from_slice(bytes);
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(());
        };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        let lines = whole.trim_ascii_end();
        let last = lines.rsplit(|byte| *byte == b'\n').next();
        self.last = last.unwrap_or_default().to_vec();
        let path = self.path.display();
        self.file
            .write_all(&whole)
            .map_err(|error| Failure::other(format!("cannot write {path}: {error}")))
    }

    /// A sentence about the file.
    fn finish(self) -> String {
        let path = self.path.display();
        match Line::parse(&String::from_utf8_lossy(&self.last)) {
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
    fn interrupted_file_ends_after_a_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.jsonl");
        let mut file = RecordingFile::create(&path, false).unwrap();
        assert!(RecordingFile::create(&path, false).is_err());
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        file.write(b"{\"recording\":1,\"fanlight\":\"\",\"started\":\"\"}\n{\"us\":5,\"si")
            .unwrap();
        file.write(
            b"de\":\"client\",\"text\":\"\\\"us\\\":\"}\n{\"us\":9,\"lost\":{}}\n{\"us\":12,\"sid",
        )
        .unwrap();
        assert!(file.finish().contains("was cut off"));
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 3);
        let mut file = RecordingFile::create(&path, true).unwrap();
        let end = r#"{"us":1,"end":{"reason":"size","whole":false,"messages":7}}"#;
        file.write(format!("{{}}\n{end}\n").as_bytes()).unwrap();
        let said = file.finish();
        assert!(
            said.starts_with("7 messages") && said.contains("lost"),
            "{said}"
        );
    }
}
