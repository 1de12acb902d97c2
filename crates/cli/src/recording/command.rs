//! `fanlight record`: writes the recording of a running gateway to a file.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use fanlight_telemetry::recording::{End, Ending, line};
use serde_json::json;
use tokio::signal::ctrl_c;
use tokio::time::timeout;

use crate::cli::{CommonArgs, RecordArgs};
use crate::failure::Failure;
use crate::observe::Admin;
use crate::out::complain;

/// The mode of the file: its messages are for their owner alone.
const MODE: u32 = 0o600;
/// How long the gateway may be silent after Ctrl-C until nothing more is expected.
const REST: Duration = Duration::from_millis(250);
/// The time limit of a recording, which the gateway ends earlier.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);
/// How long messages are taken after Ctrl-C.
const MOST_REST: Duration = Duration::from_secs(2);
/// The length of the beginning of a line that tells its kind.
const BEGINNING: usize = 40;

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
    complain(&format!(
        "recording to {}; Ctrl-C ends it\n",
        args.file.display()
    ));
    let mut interrupted: Option<Instant> = None;
    let reason = loop {
        // After Ctrl-C, what the gateway has recorded by then still arrives.
        let rest = interrupted.map_or(FOREVER, |_| REST);
        let chunk = tokio::select! {
            biased;
            Ok(()) = ctrl_c(), if interrupted.is_none() => {
                interrupted = Some(Instant::now());
                continue;
            }
            chunk = timeout(rest, stream.chunk()) => chunk,
        };
        let is_over = interrupted.is_some_and(|since| since.elapsed() > MOST_REST);
        match chunk {
            Ok(Ok(Some(chunk))) if !is_over => file.write(&chunk)?,
            _ if interrupted.is_some() => break "interrupted",
            _ => break "gateway-ended",
        }
    };
    drop(stream);
    complain(&file.finish(reason)?);
    Ok(())
}

/// The file of a recording, which has whole lines, and facts about them.
struct RecordingFile {
    file: File,
    path: std::path::PathBuf,
    began: Instant,
    /// The beginning of the next line.
    rest: Vec<u8>,
    messages: u64,
    losses: u64,
    /// The time of the last line.
    last: u64,
    has_end: bool,
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
            began: Instant::now(),
            rest: Vec::new(),
            messages: 0,
            losses: 0,
            last: 0,
            has_end: false,
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
        whole
            .split_inclusive(|byte| *byte == b'\n')
            .for_each(|line| self.note(line));
        self.put(&whole)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.path.display();
        self.file
            .write_all(bytes)
            .map_err(|error| Failure::other(format!("cannot write {path}: {error}")))
    }

    /// Counts a line by its beginning, such as `{"us":12,"side":`.
    fn note(&mut self, line: &[u8]) {
        let beginning = String::from_utf8_lossy(line.get(..BEGINNING).unwrap_or(line));
        let Some((time, kind)) = beginning
            .strip_prefix("{\"us\":")
            .and_then(|rest| rest.split_once(",\""))
        else {
            return;
        };
        self.last = time.parse().unwrap_or(self.last);
        match kind.split('"').next() {
            Some("side") => self.messages += 1,
            Some("lost") => self.losses += 1,
            Some("end") => self.has_end = true,
            _ => {}
        }
    }

    /// Writes the last line, unless the gateway has; returns a sentence about the file.
    fn finish(mut self, reason: &str) -> Result<String, Failure> {
        if !self.has_end {
            let elapsed = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
            let end = End {
                us: elapsed.max(self.last),
                end: Ending {
                    reason: reason.to_owned(),
                    whole: self.losses == 0 && reason == "interrupted",
                    messages: self.messages,
                },
            };
            self.put(&line(&end))?;
        }
        let lost = match self.losses {
            0 => "",
            _ => ", and others were lost: see the lines with `lost`",
        };
        Ok(format!(
            "{} messages in {}{lost}\n",
            self.messages,
            self.path.display()
        ))
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
        let said = file.finish("interrupted").unwrap();
        assert!(
            said.starts_with("1 messages") && said.contains("lost"),
            "{said}"
        );
        let text = std::fs::read_to_string(&path).unwrap();
        let last = text.lines().last().unwrap();
        assert!(
            last.contains(r#""end":{"reason":"interrupted","whole":false,"messages":1}"#),
            "{text}"
        );
        assert_eq!(text.lines().count(), 4);
        // A file that the gateway has ended stays as it is.
        let mut file = RecordingFile::create(&path, true).unwrap();
        file.write(b"{\"us\":1,\"end\":{}}\n").unwrap();
        file.finish("interrupted").unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "{\"us\":1,\"end\":{}}\n"
        );
    }
}
