//! Verifies that an audit log has not been changed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use fanlight_protocol::{Json, MAX_NESTING};

use crate::ledger::query::{Unreadable, count_at, head_of, lines_of, previous_block, time_of};
use crate::ledger::tree::{BlockHash, Edge, Hash};
use crate::ledger::{Checkpoint, LedgerFiles, PublicKey};

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
    #[error("the checkpoint of {size} blocks does not match the audit log: {what}")]
    Checkpoint {
        /// The number of blocks that the checkpoint covers.
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
                what: "another checkpoint of as many blocks has another hash",
            });
        }
    }
    let mut state = Reading::new(checkpoints);
    for path in files.list() {
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
            let taken = state.take(line.text, number == 1);
            taken.map_err(|what| what.locate(&path, number))?;
        }
    }
    state.finish(now)
}

/// The state of reading.
struct Reading {
    /// The roots of the checkpoints, by their number of blocks.
    checkpoints: BTreeMap<u64, Hash>,
    /// The number of checkpoints that match, and of the last line that one covers.
    agreed: (usize, u64),
    /// The tree up to the last whole block; `None` before the first line.
    edge: Option<Edge>,
    block: Option<BlockHash>,
    /// The hash of the block before this one, if it was read.
    previous: Option<String>,
    /// The number of the first line.
    first: u64,
    /// The number of the last line.
    last: u64,
    /// The time of the first line that no checkpoint covers.
    uncovered: Option<SystemTime>,
}

/// The fault of a line.
#[derive(Debug, thiserror::Error)]
enum WrongLine {
    #[error("this line cannot be read")]
    Unreadable,
    #[error("this is not line {expected}: lines were removed, added or moved")]
    Number { expected: u64 },
    #[error("the lines of the previous block were changed: their hash differs")]
    Chain,
    #[error("the first line of this file does not match the lines before it")]
    Head,
    #[error("the checkpoint of {0} blocks does not match")]
    Checkpoint(u64),
}

impl WrongLine {
    fn locate(&self, file: &Path, line: usize) -> Wrong {
        match *self {
            Self::Checkpoint(size) => Wrong::Checkpoint {
                size,
                what: "the lines up to there have other hashes",
            },
            _ => Wrong::Line {
                file: file.display().to_string(),
                line,
                what: self.to_string(),
            },
        }
    }
}

impl Reading {
    fn new(checkpoints: BTreeMap<u64, Hash>) -> Self {
        Self {
            checkpoints,
            agreed: (0, 0),
            edge: None,
            block: None,
            previous: None,
            first: 0,
            last: 0,
            uncovered: None,
        }
    }

    fn take(&mut self, text: &[u8], is_first_of_file: bool) -> Result<(), WrongLine> {
        let line =
            Json::parse(text.to_vec().into(), MAX_NESTING).map_err(|_| WrongLine::Unreadable)?;
        let number = count_at(&line, "seq").ok_or(WrongLine::Unreadable)?;
        let previous = previous_block(&line);
        if previous.is_some() || is_first_of_file {
            self.end_block().map_err(WrongLine::Checkpoint)?;
        }
        if is_first_of_file {
            self.begin_file(text)?;
        }
        if number != self.last + 1 {
            return Err(WrongLine::Number {
                expected: self.last + 1,
            });
        }
        self.last = number;
        match &mut self.block {
            Some(block) => block.push(text),
            None if self.previous.is_some() && self.previous != previous => {
                return Err(WrongLine::Chain);
            }
            None => self.block = Some(BlockHash::begin(text)),
        }
        // A line of an unknown time is as old as can be.
        self.uncovered
            .get_or_insert_with(|| time_of(&line).unwrap_or(SystemTime::UNIX_EPOCH));
        Ok(())
    }

    fn begin_file(&mut self, first: &[u8]) -> Result<(), WrongLine> {
        let head = head_of(first).ok_or(WrongLine::Head)?;
        if self.edge.as_ref().is_some_and(|edge| *edge != head.edge) {
            return Err(WrongLine::Head);
        }
        if self.edge.is_none() {
            (self.first, self.last) = (head.number, head.number - 1);
        }
        self.edge = Some(head.edge);
        Ok(())
    }

    /// Compares the tree after the block that ends here with the checkpoint for this number of
    /// blocks, if there is one. Fails with the number of blocks.
    fn end_block(&mut self) -> Result<(), u64> {
        let Some(block) = self.block.take() else {
            return Ok(());
        };
        let hash = block.finish();
        self.previous = Some(HEXLOWER.encode(&hash));
        let edge = self.edge.get_or_insert_default();
        edge.push(hash);
        let size = edge.size();
        match self.checkpoints.get(&size) {
            Some(root) if *root != edge.root() => return Err(size),
            Some(_) => {
                self.agreed = (self.agreed.0 + 1, self.last);
                self.uncovered = None;
            }
            None => {}
        }
        Ok(())
    }

    fn finish(mut self, now: SystemTime) -> Result<Verified, Wrong> {
        let last = self.end_block();
        last.map_err(|size| Wrong::Checkpoint {
            size,
            what: "the last lines were changed, or lines are missing at the end",
        })?;
        let edge = self.edge.as_ref().ok_or(Wrong::Nothing)?;
        if let Some((&size, _)) = self
            .checkpoints
            .last_key_value()
            .filter(|(size, _)| **size > edge.size())
        {
            return Err(Wrong::Checkpoint {
                size,
                what: "lines are missing at the end",
            });
        }
        let (checkpoints, covered) = self.agreed;
        let age = |since| now.duration_since(since).unwrap_or_default();
        if self
            .uncovered
            .is_some_and(|since| age(since) > CHECKPOINT_TIME + LATE)
        {
            let from = covered.max(self.first - 1) + 1;
            return Err(Wrong::Uncovered { from });
        }
        Ok(Verified {
            lines: (self.first, self.last),
            checkpoints,
            after: self.last - covered.min(self.last),
        })
    }
}
