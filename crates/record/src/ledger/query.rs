//! Queries the audit log.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use fanlight_canonical::rights::matches;
use fanlight_protocol::{Json, MAX_NESTING};

use crate::ledger::files::LedgerFiles;
use crate::ledger::tree::{Edge, Hash};

/// The length of the longest line, in bytes.
const LONGEST: usize = 1 << 20;

/// Reads a file line by line.
pub(crate) struct Lines {
    reader: BufReader<File>,
    buffer: Vec<u8>,
}

/// One line.
pub(crate) struct Line<'a> {
    pub(crate) text: &'a [u8],
    /// Whether the line has a line end.
    pub(crate) is_whole: bool,
}

/// Opens a file for reading its lines.
pub(crate) fn lines_of(path: &Path) -> io::Result<Lines> {
    Ok(Lines {
        reader: BufReader::new(File::open(path)?),
        buffer: Vec::new(),
    })
}

impl Lines {
    /// The next line; `None` at the end.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        self.buffer.clear();
        let most = LONGEST as u64;
        io::Read::take(&mut self.reader, most).read_until(b'\n', &mut self.buffer)?;
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let whole = self.buffer.strip_suffix(b"\n");
        Ok(Some(Line {
            text: whole.unwrap_or(&self.buffer),
            is_whole: whole.is_some(),
        }))
    }
}

/// The contents of a file's first line.
pub(crate) struct Head {
    pub(crate) number: u64,
    /// The day, counted from 1970.
    pub(crate) day: u64,
    pub(crate) edge: Edge,
}

/// Parses the first line of a file.
pub(crate) fn head_of(line: &[u8]) -> Option<Head> {
    let line = Json::parse(line.to_vec().into(), MAX_NESTING).ok()?;
    let number = count_at(&line, "seq")?;
    let heads = line.get("tree")?;
    let heads = heads
        .elements()
        .map(|place| hash_of(&heads.slice(place).as_str()?))
        .collect::<Option<_>>()?;
    let blocks = count_at(&line, "blocks")?;
    let day = time_of(&line)?.duration_since(UNIX_EPOCH).ok()?.as_secs() / 86_400;
    Some(Head {
        number: Some(number).filter(|number| *number > 0)?,
        day,
        edge: Edge::new(blocks, heads)?,
    })
}

/// The number that a line has as `member`.
pub(crate) fn count_at(line: &Json, member: &str) -> Option<u64> {
    u64::try_from(line.get(member)?.as_i64()?).ok()
}

/// The time of a line.
pub(crate) fn time_of(line: &Json) -> Option<SystemTime> {
    humantime::parse_rfc3339(&line.text_at("time")?).ok()
}

/// The hash of the previous block that a line has; only the first line of a block has one.
pub(crate) fn previous_block(line: &Json) -> Option<String> {
    line.text_at("prev")
}

/// Whether a block begins with this line.
pub(crate) fn begins_block(line: &[u8]) -> bool {
    let line = Json::parse(line.to_vec().into(), MAX_NESTING);
    line.is_ok_and(|line| previous_block(&line).is_some())
}

/// Parses a hash in hexadecimal digits.
fn hash_of(text: &str) -> Option<Hash> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

/// Selects lines of the audit log. Criteria that are `None` match every line.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// A part of the principal or of its name for people.
    pub principal: Option<String>,
    /// The server.
    pub server: Option<String>,
    /// A pattern for `server/item`, or for the item alone, in which `*` stands for any characters.
    pub item: Option<String>,
    /// The method, or the action of an operator.
    pub action: Option<String>,
    /// The outcome.
    pub outcome: Option<String>,
    /// The task.
    pub task: Option<String>,
    /// The earliest time.
    pub since: Option<SystemTime>,
    /// The latest time.
    pub until: Option<SystemTime>,
}

/// The error that a file of the audit log cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{file} cannot be read: {error}")]
pub struct Unreadable {
    /// The file.
    pub file: String,
    /// The reason.
    pub error: io::Error,
}

impl Unreadable {
    pub(crate) fn new(path: &Path, error: io::Error) -> Self {
        Self {
            file: path.display().to_string(),
            error,
        }
    }
}

impl Filter {
    /// Whether the filter selects a line.
    #[must_use]
    pub fn wants(&self, line: &Json) -> bool {
        let text = |member: &str| line.text_at(member).unwrap_or_default();
        let is = |wanted: &Option<String>, member: &str| {
            wanted.as_ref().is_none_or(|wanted| *wanted == text(member))
        };
        let has_part = |part: &String| {
            text("principal").contains(part.as_str()) || text("who").contains(part.as_str())
        };
        if !is(&self.server, "server")
            || !is(&self.action, "action")
            || !is(&self.outcome, "outcome")
            || !is(&self.task, "task")
        {
            return false;
        }
        let matches_item = |pattern: &String| {
            let (server, item) = (text("server"), text("item"));
            !item.is_empty()
                && (matches(pattern, &format!("{server}/{item}")) || matches(pattern, &item))
        };
        // All times are written in one form that sorts by time.
        let written = |time: &SystemTime| humantime::format_rfc3339_millis(*time).to_string();
        self.principal.as_ref().is_none_or(has_part)
            && self.item.as_ref().is_none_or(matches_item)
            && self
                .since
                .as_ref()
                .is_none_or(|since| *text("time") >= *written(since))
            && self
                .until
                .as_ref()
                .is_none_or(|until| *text("time") <= *written(until))
            && text("event") != "file"
    }
}

/// The newest lines that `filter` selects, at most `most`, newest first. Reads only as many files
/// as needed.
///
/// # Errors
///
/// If a file cannot be read.
pub fn read(
    records: &[LedgerFiles],
    filter: &Filter,
    most: usize,
) -> Result<Vec<Json>, Unreadable> {
    let mut found = Vec::new();
    for record in records {
        let mut of_record: Vec<Json> = Vec::new();
        for path in record.list().iter().rev() {
            of_record.extend(newest_in(path, filter, most - of_record.len())?);
            if of_record.len() >= most || is_before(path, filter.since) {
                break;
            }
        }
        found.extend(of_record);
    }
    // Lines of one audit log keep their order.
    found.sort_by_cached_key(|line| std::cmp::Reverse(line.text_at("time")));
    found.truncate(most);
    Ok(found)
}

fn newest_in(
    path: &Path,
    filter: &Filter,
    most: usize,
) -> Result<impl Iterator<Item = Json> + use<>, Unreadable> {
    let mut newest = VecDeque::new();
    each(path, |line| {
        if filter.wants(&line) {
            newest.push_back(line);
            if newest.len() > most {
                newest.pop_front();
            }
        }
    })?;
    Ok(newest.into_iter().rev())
}

/// Calls `take` for each valid line of a file.
pub(crate) fn each(path: &Path, mut take: impl FnMut(Json)) -> Result<(), Unreadable> {
    let unreadable = |error| Unreadable::new(path, error);
    let mut lines = match lines_of(path) {
        Ok(lines) => lines,
        // The file was removed meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unreadable(error)),
    };
    while let Some(line) = lines.next_line().map_err(unreadable)? {
        if let Some(line) = Json::parse(line.text.to_vec().into(), MAX_NESTING)
            .ok()
            .filter(Json::is_object)
        {
            take(line);
        }
    }
    Ok(())
}

/// Whether a file began before `since`, so that earlier files contain nothing newer.
fn is_before(path: &Path, since: Option<SystemTime>) -> bool {
    let Some(since) = since else { return false };
    let first = lines_of(path).ok().and_then(|mut lines| {
        let line = lines.next_line().ok()??;
        let line = Json::parse(line.text.to_vec().into(), MAX_NESTING).ok()?;
        time_of(&line)
    });
    first.is_some_and(|first| first < since)
}
