//! The policies in a text, each with the line that it begins in.

use std::ops::Range;
use std::sync::Arc;

/// A text with policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyText {
    /// Its name in messages: a path as written in the configuration.
    pub name: Arc<str>,
    /// The policies, or links of templates if the name ends with `.json`.
    pub text: String,
}

impl PolicyText {
    /// Whether it has links, and no policies.
    pub(crate) fn has_links(&self) -> bool {
        self.name.ends_with(".json")
    }
}

/// A policy that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {message}")]
pub struct InvalidPolicy {
    /// The file, as the configuration writes it.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what to do.
    pub message: String,
}

/// The policies of `text`, each with where it begins and ends. What follows the last `;` is a policy that has no end.
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

/// The line of a place in `text`, from 1.
pub(crate) fn line(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
