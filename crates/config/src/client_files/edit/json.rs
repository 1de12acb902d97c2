//! JSON with comments: a new member follows the last one, with the file's indentation.

use crate::document::{Entry, Node, Span, Value};

use super::{find_section, indent_of, inserted, line_break, line_end, line_start, spliced};
use crate::client_files::item::{Item, quoted};

/// The text with a member `name` added to the mapping at `path`, parts of which may be missing.
pub(super) fn add(
    text: &str,
    root: &Node,
    path: &[&str],
    name: &str,
    value: &Item,
) -> Option<String> {
    let mut node = root;
    for (depth, key) in path.iter().enumerate() {
        let Some(next) = node.field(key).filter(|next| !next.is_null()) else {
            let rest = path.get(depth + 1..).unwrap_or_default();
            let inner = Item::map([(name, value.clone())]);
            let nested = rest
                .iter()
                .rev()
                .fold(inner, |item, key| Item::map([(*key, item)]));
            return put(text, node, key, &nested);
        };
        node = next;
    }
    put(text, node, name, value)
}

/// The text without the member `name` of the mapping at `path`.
pub(super) fn remove(text: &str, root: &Node, path: &[&str], name: &str) -> Option<String> {
    let Value::Map(entries) = &find_section(root, path)?.value else {
        return None;
    };
    let index = entries.iter().position(|entry| entry.key == name)?;
    let entry = entries.get(index)?;
    let behind = gap(text, entry.value.span.end);
    let comma_behind = text.get(behind..).is_some_and(|rest| rest.starts_with(','));
    let is_alone_on_lines = indent_of(text, entry.key_span.start).len()
        == entry.key_span.start - line_start(text, entry.key_span.start);
    let previous = index.checked_sub(1).and_then(|index| entries.get(index));
    match previous {
        // The last member: the comma before it goes, too.
        Some(previous) if !comma_behind => {
            let comma = gap(text, previous.value.span.end);
            let without = spliced(
                text,
                line_break_before(text, entry.key_span.start),
                entry.value.span.end,
                "",
            );
            Some(spliced(&without, comma, comma + 1, ""))
        }
        _ => {
            let end = if comma_behind {
                behind + 1
            } else {
                entry.value.span.end
            };
            let start = entry.key_span.start;
            let rest_is_empty = text
                .get(end..line_end(text, end))
                .is_some_and(|rest| rest.trim().is_empty());
            if is_alone_on_lines && rest_is_empty {
                return Some(spliced(
                    text,
                    line_start(text, start),
                    line_end(text, end),
                    "",
                ));
            }
            Some(spliced(text, start, end, ""))
        }
    }
}

/// The end of the previous line, if only white space separates it from `at`.
fn line_break_before(text: &str, at: usize) -> usize {
    let before = text.get(..at).unwrap_or_default();
    let trimmed = before.trim_end_matches([' ', '\t']);
    let trimmed = trimmed
        .strip_suffix('\n')
        .map_or(trimmed, |line| line.strip_suffix('\r').unwrap_or(line));
    trimmed.len()
}

/// Adds a member to a mapping, or replaces its value.
fn put(text: &str, map: &Node, key: &str, value: &Item) -> Option<String> {
    let Value::Map(entries) = &map.value else {
        return None;
    };
    let unit = unit_of(text);
    let written = |indent: &str| value.to_json(indent, &unit).replace('\n', line_break(text));
    if let Some(entry) = entries.iter().rev().find(|entry| entry.key == key) {
        let indent = indent_of(text, entry.key_span.start).to_owned();
        return Some(spliced(
            text,
            entry.value.span.start,
            entry.value.span.end,
            &written(&indent),
        ));
    }
    let Some(last) = entries.last() else {
        let outer = indent_of(text, map.span.start).to_owned();
        let inner = format!("{outer}{unit}");
        let new_line = line_break(text);
        let content = text.get(map.span.start + 1..map.span.end.checked_sub(1)?)?;
        let member = format!(
            "{new_line}{inner}{}: {}{new_line}{outer}",
            quoted(key),
            written(&inner)
        );
        // The member replaces mere white space; comments stay.
        let end = if content.trim().is_empty() {
            map.span.end - 1
        } else {
            map.span.start + 1
        };
        return Some(spliced(text, map.span.start + 1, end, &member));
    };
    Some(behind(
        text,
        map.span,
        last,
        |indent| format!("{}: {}", quoted(key), written(indent)),
        key,
        value,
    ))
}

/// Adds a member after the last one of its mapping.
fn behind(
    text: &str,
    map: Span,
    last: &Entry,
    member: impl Fn(&str) -> String,
    key: &str,
    value: &Item,
) -> String {
    let end = last.value.span.end;
    let comma = gap(text, end);
    let has_comma = text.get(comma..).is_some_and(|rest| rest.starts_with(','));
    let after = if has_comma { comma + 1 } else { end };
    let is_one_line = !text
        .get(map.start..map.end)
        .is_some_and(|map| map.contains('\n'));
    if is_one_line {
        let separator = if has_comma { " " } else { ", " };
        let comma = if has_comma { "," } else { "" };
        return inserted(
            text,
            after,
            &format!("{separator}{}: {}{comma}", quoted(key), value.to_flow()),
        );
    }
    let indent = indent_of(text, last.key_span.start).to_owned();
    let lines = format!(
        "{}{indent}{}{}",
        line_break(text),
        member(&indent),
        if has_comma { "," } else { "" }
    );
    // A comment at the end of the last member's line stays with it.
    let rest = text.get(after..line_end(text, after)).unwrap_or_default();
    let content = rest.trim_end_matches(['\n', '\r']);
    let place = if content.trim_start().starts_with("//") {
        after + content.len()
    } else {
        after
    };
    let text = inserted(text, place, &lines);
    if has_comma {
        text
    } else {
        inserted(&text, end, ",")
    }
}

/// The position after `from` and any following white space and comments.
fn gap(text: &str, from: usize) -> usize {
    let mut rest = text.get(from..).unwrap_or_default();
    loop {
        let trimmed = rest.trim_start();
        rest = if let Some(comment) = trimmed.strip_prefix("//") {
            comment
                .find('\n')
                .and_then(|end| comment.get(end..))
                .unwrap_or_default()
        } else if let Some(comment) = trimmed.strip_prefix("/*") {
            comment
                .find("*/")
                .and_then(|end| comment.get(end + 2..))
                .unwrap_or_default()
        } else {
            return text.len() - trimmed.len();
        };
    }
}

/// The indentation of one level in the file.
fn unit_of(text: &str) -> String {
    let indent = |line: &str| -> String {
        line.chars()
            .take_while(|c| matches!(c, ' ' | '\t'))
            .collect()
    };
    let is_member = |line: &&str| line.trim_start().starts_with('"');
    let first = text
        .lines()
        .filter(is_member)
        .map(indent)
        .find(|indent| !indent.is_empty());
    first.unwrap_or_else(|| "  ".to_owned())
}
