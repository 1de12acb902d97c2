//! Changes to the file with keys that keep everything else, including comments.
//!
//! A change edits the text and reads it again: it is accepted only if the result has exactly the
//! expected keys. Other files, such as one with a list in brackets, must be changed by hand.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use super::values::{format_moment, hexadecimal};
use super::{Key, KeyList, parse_keys};
use crate::option::Options as _;
use crate::report::problem::Findings;
use crate::syntax::{Entry, Node, Source, Syntax, Value};
use crate::text_file::{line_end, line_start, spliced};
use crate::{ConfigErrors, syntax};

/// The text of a file with an additional key; `None` if somebody has to add it by hand.
///
/// # Errors
///
/// Every error of the text.
pub fn with_key(text: &str, key: &Key) -> Result<Option<String>, ConfigErrors> {
    let mut expected = keys(text)?;
    expected.push(to_the_second(key));
    let changed = match list(text) {
        None => format!("{}keys:\n{}", complete_lines(text), key.entry("  ")),
        Some(List { entry: None, .. }) => return Ok(None),
        Some(List {
            root_indent: 0,
            entry: Some(entry),
        }) => match &entry.value.value {
            Value::Null => insert(text, line_end(text, entry.key_span.end), &key.entry("  ")),
            Value::List(items) if items.is_empty() => {
                let (start, end) = (entry.key_span.start, line_end(text, entry.value.span.end));
                insert(
                    &spliced(text, start, end, "keys:\n"),
                    start + "keys:\n".len(),
                    &key.entry("  "),
                )
            }
            Value::List(items) => match items
                .last()
                .and_then(|last| Some((last, dash(text, last)?)))
            {
                Some((last, indent)) => insert(
                    text,
                    line_end(text, last_byte(text, last)),
                    &key.entry(&" ".repeat(indent)),
                ),
                None => return Ok(None),
            },
            _ => return Ok(None),
        },
        Some(_) => return Ok(None),
    };
    Ok(Some(changed).filter(|changed| keys(changed).is_ok_and(|keys| keys == expected)))
}

/// The text of a file without the keys that satisfy `is_gone`, and their number; `None` instead of
/// the text if somebody has to remove them by hand.
///
/// # Errors
///
/// Every error of the text.
pub fn without_keys(
    text: &str,
    is_gone: &dyn Fn(&Key) -> bool,
) -> Result<(Option<String>, usize), ConfigErrors> {
    let before = keys(text)?;
    let expected: Vec<&Key> = before.iter().filter(|key| !is_gone(key)).collect();
    let gone = before.len() - expected.len();
    let Some(List {
        entry: Some(entry), ..
    }) = list(text)
    else {
        return Ok((None, gone));
    };
    let Value::List(items) = &entry.value.value else {
        return Ok((None, gone));
    };
    let mut changed = text.to_owned();
    // Changes begin at the end, so that earlier positions stay valid.
    for (_, item) in before
        .iter()
        .zip(items)
        .rev()
        .filter(|(key, _)| is_gone(key))
    {
        if dash(text, item).is_none() {
            return Ok((None, gone));
        }
        let (start, end) = (
            line_start(text, item.span.start),
            line_end(text, last_byte(text, item)),
        );
        changed.replace_range(start..end, "");
    }
    if expected.is_empty() && gone > 0 {
        let (start, end) = (entry.key_span.start, entry.key_span.end);
        changed = spliced(&changed, start, end + 1, "keys: []");
    }
    let is_right = keys(&changed).is_ok_and(|keys| keys.iter().eq(expected.iter().copied()));
    Ok((Some(changed).filter(|_| is_right), gone))
}

impl Key {
    /// The digest as hexadecimal digits.
    pub fn digest(&self) -> String {
        hexadecimal(&self.sha256)
    }

    /// The key's entry in the file, as lines that begin with `indent`.
    pub fn entry(&self, indent: &str) -> String {
        let Self {
            name,
            sha256,
            groups,
            scopes,
            expires,
            endpoints,
        } = self;
        let mut lines = format!(
            "{indent}- name: {}\n{indent}  sha256: {}\n",
            json!(name),
            json!(hexadecimal(sha256))
        );
        let mut add = |option: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{indent}  {option}: {value}");
        };
        if !groups.is_empty() {
            add("groups", flow(groups));
        }
        scopes.iter().for_each(|scopes| add("scopes", flow(scopes)));
        expires
            .iter()
            .for_each(|expires| add("expires", json!(format_moment(*expires)).to_string()));
        endpoints
            .iter()
            .for_each(|endpoints| add("endpoints", flow(endpoints)));
        lines
    }
}

/// A list in brackets. JSON texts are YAML.
fn flow(texts: &[String]) -> String {
    format!(
        "[{}]",
        texts
            .iter()
            .map(|text| json!(text).to_string())
            .collect::<Vec<_>>()
            .join(", ")
    )
}

/// A key as the file will have it, with times in whole seconds.
fn to_the_second(key: &Key) -> Key {
    let whole = |moment: SystemTime| {
        let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
        UNIX_EPOCH + Duration::from_secs(since.as_secs())
    };
    Key {
        expires: key.expires.map(whole),
        ..key.clone()
    }
}

fn keys(text: &str) -> Result<Vec<Key>, ConfigErrors> {
    parse_keys(text, Path::new("keys")).map(|keys| keys.keys)
}

/// The place of the list in the text.
struct List {
    /// The column of the file's mapping.
    root_indent: usize,
    /// The entry `keys`; `None` if the file has none.
    entry: Option<Entry>,
}

/// The list in the text; `None` for an empty text.
fn list(text: &str) -> Option<List> {
    let source = Source::new(text);
    let root = syntax::parse(&source, Syntax::Yaml, &mut Findings::default())?;
    let Value::Map(entries) = root.value else {
        return Some(List {
            root_indent: 0,
            entry: None,
        });
    };
    // A mapping in braces begins with a brace.
    let is_flow = text
        .get(root.span.start..)
        .is_some_and(|rest| rest.starts_with('{'));
    let root_indent = if is_flow || text.starts_with('\u{feff}') {
        1
    } else {
        root.span.start - line_start(text, root.span.start)
    };
    let known = KeyList::SECTION.keys();
    Some(List {
        root_indent,
        entry: entries
            .into_iter()
            .find(|entry| known.contains(&entry.key.as_str())),
    })
}

/// The column of an item's `-`, if the item has lines of its own.
fn dash(text: &str, item: &Node) -> Option<usize> {
    let start = line_start(text, item.span.start);
    let before = text.get(start..item.span.start)?;
    let indent = before.find('-')?;
    let is_alone =
        before.get(..indent)?.trim().is_empty() && before.get(indent + 1..)?.trim().is_empty();
    is_alone.then_some(indent)
}

/// The end of an item's text, without following white space and comments.
fn last_byte(text: &str, item: &Node) -> usize {
    let own = |node: &Node| -> usize {
        let text = text.get(node.span.start..node.span.end).unwrap_or_default();
        node.span.start + text.trim_end().len()
    };
    match &item.value {
        Value::Map(entries) => entries
            .last()
            .map_or(own(item), |last| match last.value.value {
                Value::Null => last.key_span.end,
                _ => own(&last.value),
            }),
        _ => own(item),
    }
}

fn complete_lines(text: &str) -> String {
    let is_complete = text.is_empty() || text.ends_with('\n');
    format!("{text}{}", if is_complete { "" } else { "\n" })
}

fn insert(text: &str, at: usize, lines: &str) -> String {
    let before = complete_lines(text.get(..at).unwrap_or_default());
    format!("{before}{lines}{}", text.get(at..).unwrap_or_default())
}
