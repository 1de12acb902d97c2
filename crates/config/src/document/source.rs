//! The text of a config file: its syntax, spans, lines and columns.

use std::path::Path;

/// A range of bytes in the source text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The position after the last byte.
    pub end: usize,
}

impl Span {
    /// The range from `start` up to `end`, or an empty one.
    pub fn new(start: usize, end: usize) -> Self {
        Self {
            start,
            end: end.max(start),
        }
    }
}

/// A position in a file as editors show it: both counts start at 1, and the column counts
/// characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
}

/// The notation of a config file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// JSON with comments.
    Json,
    /// YAML 1.2.
    Yaml,
    /// TOML 1.0.
    Toml,
}

impl Syntax {
    /// Chooses YAML and TOML by file names. For other names, such as `mcp.conf`, the first
    /// character decides.
    pub fn detect(origin: &Path, text: &str) -> Self {
        let extension = origin.extension().and_then(|e| e.to_str()).unwrap_or("");
        if extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml") {
            return Self::Yaml;
        }
        if extension.eq_ignore_ascii_case("toml") {
            return Self::Toml;
        }
        match text.trim_start().chars().next() {
            Some('{' | '/') => Self::Json,
            _ => Self::Yaml,
        }
    }
}

/// The text of one config file.
pub struct Source {
    text: String,
    line_starts: Vec<usize>,
}

impl Source {
    /// A text without its byte order mark.
    pub fn new(text: &str) -> Self {
        // A byte order mark is not part of the text: no column counts it.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
        let line_starts = std::iter::once(0)
            .chain(text.match_indices('\n').map(|(at, _)| at + 1))
            .collect();
        Self { text, line_starts }
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text of a span; empty if the span lies outside.
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.start..span.end).unwrap_or_default()
    }

    /// The line and column of a byte.
    pub fn position(&self, offset: usize) -> Position {
        let line = self.line_index(offset);
        let start = self.line_start(line);
        let before = self.text.get(start..offset).unwrap_or_default();
        Position {
            line: line + 1,
            column: before.chars().count() + 1,
        }
    }

    /// The span of the line with `offset`, without its line break.
    pub fn line_span(&self, offset: usize) -> Span {
        let line = self.line_index(offset);
        let start = self.line_start(line);
        let end = self
            .line_starts
            .get(line + 1)
            .map_or(self.text.len(), |next| next - 1);
        let trimmed = self.slice(Span::new(start, end)).trim_end_matches('\r');
        Span::new(start, start + trimmed.len())
    }

    /// The span of `needle` within `within`, searched from byte `from` of the file.
    pub fn find(&self, within: Span, from: usize, needle: &str) -> Option<Span> {
        let start = from.max(within.start);
        let at = start + self.text.get(start..within.end)?.find(needle)?;
        Some(Span::new(at, at + needle.len()))
    }

    fn line_index(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset) - 1
    }

    fn line_start(&self, line: usize) -> usize {
        self.line_starts.get(line).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_and_ignore_carriage_returns_and_the_byte_order_mark() {
        let source = Source::new("\u{feff}ab\r\nçé: x\r\n");
        assert_eq!(source.position(0), Position { line: 1, column: 1 });
        let at = source.text().find('x').unwrap();
        assert_eq!(source.position(at), Position { line: 2, column: 5 });
        assert_eq!(source.slice(source.line_span(at)), "çé: x");
        assert_eq!(source.slice(source.line_span(0)), "ab");
        assert_eq!(
            source.position(source.text().len()),
            Position { line: 3, column: 1 }
        );
    }
}
