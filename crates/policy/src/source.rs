//! Finds the policies in a text, each with the line where it begins.

use std::ops::Range;
use std::sync::Arc;

/// A text with policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyText {
    /// The text's name in messages: a path as written in the configuration.
    pub name: Arc<str>,
    /// The policies, or links of templates if the name ends with `.json`.
    pub text: String,
}

impl PolicyText {
    /// Whether the text has links instead of policies.
    pub(crate) fn has_links(&self) -> bool {
        self.name.ends_with(".json")
    }
}

/// An invalid policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct InvalidPolicy {
    /// The file, as the configuration writes it.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// The fault, and how to fix it.
    pub message: String,
}

/// The range of each policy in `text`. Text after the last `;` is an unfinished policy.
pub(crate) fn policies(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let (mut start, mut depth) = (None, 0_usize);
    let mut characters = text.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '/' if characters.peek().is_some_and(|(_, next)| *next == '/') => {
                characters
                    .by_ref()
                    .find(|(_, character)| *character == '\n');
                continue;
            }
            '"' => {
                let mut is_escaped = false;
                characters.by_ref().find(|(_, character)| {
                    let is_end = *character == '"' && !is_escaped;
                    is_escaped = *character == '\\' && !is_escaped;
                    is_end
                });
            }
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => {
                found.extend(start.take().map(|start| start..at + 1));
                continue;
            }
            _ => {}
        }
        if !character.is_whitespace() {
            start.get_or_insert(at);
        }
    }
    found.extend(start.map(|start| start..text.len()));
    found
}

/// The line of an offset in `text`, from 1.
pub(crate) fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
