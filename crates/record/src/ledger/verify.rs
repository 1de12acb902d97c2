//! Verifies that an audit log has not been changed.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use fanlight_protocol::Json;
use fanlight_protocol::json::MAX_NESTING;

use crate::ledger::checkpoint::{Checkpoint, PublicKey};
use crate::ledger::files::LedgerFiles;
use crate::ledger::query::{Unreadable, head_of, lines_of};
use crate::ledger::tree::Edge;

/// The time after which a checkpoint is written, if there are new lines.
pub(crate) const CHECKPOINT_TIME: Duration = Duration::from_secs(60);

/// How much later than due a checkpoint may be written.
const LATE: Duration = Duration::from_secs(10);

/// The result for an unchanged audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The numbers of the first and the last line that are kept.
    pub lines: (u64, u64),
    /// The number of checkpoints that match.
    pub checkpoints: usize,
    /// The number of lines after the last checkpoint.
    pub after: u64,
}

/// A fault of an audit log.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// A line was changed, removed, added or moved.
    #[error("{file}:{line}: {what}")]
    Line {
        /// The file.
        file: String,
        /// The line in the file, from 1.
        line: usize,
        /// The fault.
        what: String,
    },
    /// A signed checkpoint contradicts the audit log.
    #[error("the checkpoint of {size} lines does not match the audit log: {what}")]
    Checkpoint {
        /// The number of lines that the checkpoint covers.
        size: u64,
        /// The fault.
        what: &'static str,
    },
    /// Lines have been covered by no checkpoint for too long.
    #[error(
        "no checkpoint covers the lines from {from} on, though they are older than a minute: later lines and their checkpoints \
         were removed, or the process was killed and has not been started since"
    )]
    Uncovered {
        /// The first of them.
        from: u64,
    },
    /// There is no audit log.
    #[error("there is no audit log here")]
    Nothing,
    /// A file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// The signed notes in a text.
pub(crate) fn notes(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let start = rest.find(|character: char| character != '\n')?;
        let found = rest.get(start..)?;
        // A note has the name, the size and the hash, an empty line, and the signature.
        let signature = found.find("\n\n")? + 2;
        let end = found
            .get(signature..)?
            .find('\n')
            .map_or(found.len(), |end| signature + end + 1);
        rest = found.get(end..)?;
        found.get(..end)
    })
}

/// The end of the last whole note in a text. Anything after it is an unfinished note.
pub(crate) fn end_of_notes(text: &[u8]) -> usize {
    let (mut at, mut end) = (0, 0);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        at += line.len();
        let is_signature = line.starts_with("— ".as_bytes()) && line.ends_with(b"\n");
        // Each note is followed by an empty line.
        if is_signature || (line == b"\n" && end + 1 == at) {
            end = at;
        }
    }
    end
}

/// Verifies an audit log: the chain of its lines, and the checkpoints signed by `key`, both those
/// beside it and `more`.
///
/// # Errors
///
/// The first fault.
pub fn verify(files: &LedgerFiles, key: &PublicKey, more: &[String]) -> Result<Verified, Wrong> {
    verify_at(files, key, more, SystemTime::now())
}

/// [`verify`] at this time.
pub(crate) fn verify_at(
    files: &LedgerFiles,
    key: &PublicKey,
    more: &[String],
    now: SystemTime,
) -> Result<Verified, Wrong> {
    let beside = std::fs::read(files.checkpoints()).unwrap_or_default();
    let beside = String::from_utf8_lossy(beside.get(..end_of_notes(&beside)).unwrap_or_default());
    let mut checkpoints = BTreeMap::new();
    for note in notes(&beside).chain(more.iter().flat_map(|text| notes(text))) {
        let Checkpoint { size, root } = key.open(note).map_err(|_| Wrong::Checkpoint {
            size: note
                .lines()
                .nth(1)
                .and_then(|size| size.parse().ok())
                .unwrap_or_default(),
            what: "the key has not signed it",
        })?;
        if checkpoints
            .insert(size, root)
            .is_some_and(|other| other != root)
        {
            return Err(Wrong::Checkpoint {
                size,
                what: "another checkpoint of as many lines has another hash",
            });
        }
    }
    let mut state = Reading {
        edge: None,
        previous: None,
        first: 0,
        uncovered: None,
    };
    let (mut agreed, mut last) = (0, 0);
    for path in files.all() {
        let mut lines = lines_of(&path).map_err(|error| Unreadable::new(&path, error))?;
        let mut number = 0;
        while let Some(line) = lines
            .next_line()
            .map_err(|error| Unreadable::new(&path, error))?
        {
            number += 1;
            if !line.is_whole {
                // A process ended in the middle of a line. The next process that writes removes it.
                break;
            }
            state
                .take(line.text, number == 1)
                .map_err(|what| Wrong::Line {
                    file: path.display().to_string(),
                    line: number,
                    what: what.to_string(),
                })?;
            let edge = state.edge.get_or_insert_default();
            if let Some(root) = checkpoints.get(&edge.size()) {
                if *root != edge.root() {
                    return Err(Wrong::Checkpoint {
                        size: edge.size(),
                        what: "the lines up to there have other hashes",
                    });
                }
                (agreed, last) = (agreed + 1, edge.size());
                state.uncovered = None;
            }
        }
    }
    let Some(edge) = state.edge else {
        return Err(Wrong::Nothing);
    };
    if let Some((size, _)) = checkpoints
        .last_key_value()
        .filter(|(size, _)| **size > edge.size())
    {
        return Err(Wrong::Checkpoint {
            size: *size,
            what: "lines are missing at the end",
        });
    }
    if state
        .uncovered
        .is_some_and(|since| now.duration_since(since).unwrap_or_default() > CHECKPOINT_TIME + LATE)
    {
        return Err(Wrong::Uncovered { from: last + 1 });
    }
    Ok(Verified {
        lines: (state.first, edge.size()),
        checkpoints: agreed,
        after: edge.size() - last.min(edge.size()),
    })
}

/// The state of reading.
struct Reading {
    edge: Option<Edge>,
    previous: Option<String>,
    first: u64,
    /// The time of the first line that no checkpoint covers.
    uncovered: Option<SystemTime>,
}

/// The fault of a line.
enum WrongLine {
    Unreadable,
    Number { expected: u64 },
    Chain,
    Head,
}

impl fmt::Display for WrongLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable => f.write_str("this line cannot be read"),
            Self::Number { expected } => write!(
                f,
                "this is not line {expected}: lines were removed, added or moved"
            ),
            Self::Chain => f.write_str("the previous line was changed: its hash differs"),
            Self::Head => {
                f.write_str("the first line of this file does not match the lines before it")
            }
        }
    }
}

impl Reading {
    fn take(&mut self, text: &[u8], is_first_of_file: bool) -> Result<(), WrongLine> {
        let line =
            Json::parse(text.to_vec().into(), MAX_NESTING).map_err(|_| WrongLine::Unreadable)?;
        let number = line
            .get("seq")
            .and_then(|number| u64::try_from(number.as_i64()?).ok());
        let number = number.ok_or(WrongLine::Unreadable)?;
        if is_first_of_file {
            let head = head_of(text).ok_or(WrongLine::Head)?;
            if self.edge.as_ref().is_some_and(|edge| *edge != head.edge) {
                return Err(WrongLine::Head);
            }
            if self.edge.is_none() {
                self.first = number;
            }
            self.edge = Some(head.edge);
        }
        let edge = self.edge.as_mut().ok_or(WrongLine::Head)?;
        if number != edge.size() + 1 {
            return Err(WrongLine::Number {
                expected: edge.size() + 1,
            });
        }
        let previous = line
            .get("prev")
            .and_then(|previous| Some(previous.as_str()?.into_owned()));
        if self.previous.is_some() && self.previous != previous {
            return Err(WrongLine::Chain);
        }
        self.previous = Some(HEXLOWER.encode(&edge.push(text)));
        if self.uncovered.is_none() {
            let time = line.get("time").and_then(|time| {
                let time = time.as_str()?;
                humantime::parse_rfc3339(&time).ok()
            });
            // A line of an unknown time is as old as can be.
            self.uncovered = Some(time.unwrap_or(SystemTime::UNIX_EPOCH));
        }
        Ok(())
    }
}
