//! Problems in a config file: collecting them, and their public view.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::document::{Position, Source, Span};

use super::mask::Masked;

/// The beginning of the message about an unset variable.
pub(crate) const MISSING_VARIABLE: &str = "the environment variable ";
/// The beginning of the message about a secret that cannot be read.
pub(crate) const MISSING_SECRET: &str = "the secret that ";

/// The most problems reported for one file; further ones are only counted.
const MAX_PROBLEMS: usize = 100;

/// The severity of a [`Problem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file is used, but something in it has no effect, or an effect that its author may not
    /// expect.
    Warning,
}

/// One fault of a config file.
///
/// The source line is the file's text before substitution. Asterisks replace literal secrets in it
/// (values of `env` and `headers`, arguments, URL paths).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub(crate) severity: Severity,
    pub(crate) file: PathBuf,
    pub(crate) position: Option<Position>,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    pub(crate) excerpt: Option<Excerpt>,
    /// Whether a value is missing, so that its server is not used.
    pub(crate) is_missing: bool,
}

/// The line of a problem with secrets hidden; of a long line, such as a minified JSON file, only
/// the part around the problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Excerpt {
    pub(crate) line: String,
    /// Characters of `line` before the offending text.
    pub(crate) before: usize,
    /// Characters of the offending text; at least 1, also at the end of the line.
    pub(crate) length: usize,
    /// Whether some text in it is hidden.
    pub(crate) is_masked: bool,
}

impl Problem {
    /// Whether this is an error or a warning.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// The file with the problem.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// The position; `None` if the problem concerns the whole file.
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// The fault in one line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The remedy.
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }

    /// The source line with secrets hidden; of a long line, the part around the problem.
    pub fn source_line(&self) -> Option<&str> {
        self.excerpt.as_ref().map(|excerpt| excerpt.line.as_str())
    }
}

/// Every error of an unusable config file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render(false))]
pub struct ConfigErrors {
    origin: PathBuf,
    problems: Vec<Problem>,
    omitted: usize,
}

impl ConfigErrors {
    /// The errors in the file's order; at most 100.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The message of the first error.
    pub(crate) fn first_message(&self) -> String {
        self.problems
            .first()
            .map(|problem| problem.message().to_owned())
            .unwrap_or_default()
    }

    /// All errors laid out for a terminal, then their number. ANSI colours only on request.
    pub fn render(&self, colour: bool) -> String {
        let mut text = String::new();
        for problem in &self.problems {
            text.push_str(&problem.render(&problem.file, colour));
            text.push('\n');
        }
        let count = self.problems.len() + self.omitted;
        let noun = if count == 1 { "error" } else { "errors" };
        let _ = write!(text, "{}: {count} {noun}", self.origin.display());
        if self.omitted > 0 {
            let _ = write!(text, ", the first {} shown", self.problems.len());
        }
        if self.problems.iter().any(|problem| {
            problem
                .excerpt
                .as_ref()
                .is_some_and(|excerpt| excerpt.is_masked)
        }) {
            text.push_str("; in the lines above, * hides what may be a secret");
        }
        text.push('\n');
        text
    }

    /// The errors except unset variables and missing secrets; `None` if there are no others.
    pub fn without_missing_variables(mut self) -> Option<Self> {
        let is_missing = |problem: &Problem| {
            [MISSING_VARIABLE, MISSING_SECRET]
                .iter()
                .any(|begin| problem.message.starts_with(begin))
        };
        self.problems.retain(|problem| !is_missing(problem));
        (!self.problems.is_empty() || self.omitted > 0).then_some(self)
    }

    /// The errors as warnings about missing values, each with another message.
    pub(crate) fn into_warnings(
        self,
        message: impl Fn(&str) -> String,
    ) -> impl Iterator<Item = Problem> {
        self.problems.into_iter().map(move |problem| Problem {
            severity: Severity::Warning,
            message: message(&problem.message),
            is_missing: true,
            ..problem
        })
    }

    /// Warnings about missing values as errors.
    pub(crate) fn from_missing(origin: &Path, warnings: &[Problem]) -> Self {
        let missing = warnings
            .iter()
            .filter(|problem| problem.is_missing)
            .cloned();
        let problems = missing
            .map(|problem| Problem {
                severity: Severity::Error,
                ..problem
            })
            .collect();
        Self {
            origin: origin.to_owned(),
            problems,
            omitted: 0,
        }
    }

    /// Adds the errors of another file.
    pub(crate) fn extend(&mut self, more: Self) {
        self.problems.extend(more.problems);
        self.omitted += more.omitted;
    }

    /// An error about the file as a whole.
    pub(crate) fn from_file(origin: &Path, message: String, help: &str) -> Self {
        Self {
            origin: origin.to_owned(),
            problems: vec![Problem {
                severity: Severity::Error,
                file: origin.to_owned(),
                position: None,
                message,
                help: Some(help.to_owned()),
                excerpt: None,
                is_missing: false,
            }],
            omitted: 0,
        }
    }
}

/// A problem during the reading of the file, with a span, which finally becomes a position and an
/// excerpt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    severity: Severity,
    span: Span,
    message: String,
    help: Option<String>,
    first: Option<Span>,
    /// Whether the text is right, but its value is missing.
    is_missing: bool,
}

impl Finding {
    pub(crate) fn error(span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            span,
            message: message.into(),
            help: None,
            first: None,
            is_missing: false,
        }
    }

    pub(crate) fn warning(span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warning,
            ..Self::error(span, message)
        }
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Marks the finding as a missing value of a correct text.
    pub(crate) fn mark_missing_value(mut self) -> Self {
        self.is_missing = true;
        self
    }

    /// Names the line of the earlier text that this one contradicts.
    pub(crate) fn first_at(mut self, earlier: Span) -> Self {
        self.first = Some(earlier);
        self
    }

    fn into_problem(self, origin: &Path, source: &Source, masked: &Masked) -> Problem {
        let message = match self.first {
            Some(first) => format!(
                "{} (first on line {})",
                self.message,
                source.position(first.start).line
            ),
            None => self.message,
        };
        Problem {
            severity: self.severity,
            file: origin.to_owned(),
            position: Some(source.position(self.span.start)),
            message,
            help: self.help,
            excerpt: Some(Excerpt::new(self.span, source, masked)),
            is_missing: self.is_missing,
        }
    }
}

impl Excerpt {
    /// Characters kept before and after the start of the offending text.
    const REACH: (usize, usize) = (40, 80);

    fn new(span: Span, source: &Source, masked: &Masked) -> Self {
        let line = source.line_span(span.start);
        let start = span.start.min(line.end);
        let (reach_before, reach_after) = Self::REACH;
        let head = source.slice(Span::new(line.start, start));
        let tail = source.slice(Span::new(start, line.end));
        let head_cut = head
            .char_indices()
            .rev()
            .nth(reach_before - 1)
            .map_or(0, |(at, _)| at);
        let tail_cut = tail
            .char_indices()
            .nth(reach_after)
            .map_or(tail.len(), |(at, _)| at);
        let is_short = head.len() + tail.len() <= reach_before + reach_after;
        let (first, last) = if is_short {
            (line.start, line.end)
        } else {
            (line.start + head_cut, start + tail_cut)
        };

        let mut shown = String::new();
        if first > line.start {
            shown.push('…');
        }
        let part = Span::new(first, last);
        let hidden = masked.line(source, line, part);
        shown.push_str(&hidden);
        if last < line.end {
            shown.push('…');
        }
        // Masking keeps the number of characters.
        let count = |from, to| source.slice(Span::new(from, to)).chars().count();
        Self {
            line: shown,
            before: usize::from(first > line.start) + count(first, start),
            length: count(start, span.end.min(last)).max(1),
            is_masked: hidden != source.slice(part),
        }
    }
}

/// The findings of one file; at most [`MAX_PROBLEMS`] of each severity are kept, the others are
/// counted.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    errors: Vec<Finding>,
    warnings: Vec<Finding>,
    omitted: usize,
}

impl Findings {
    /// Adds a finding, unless it was found before: text behind a YAML alias is read more than once.
    pub(crate) fn push(&mut self, finding: Finding) {
        let is_error = finding.severity == Severity::Error;
        let list = if is_error {
            &mut self.errors
        } else {
            &mut self.warnings
        };
        if list.contains(&finding) {
            return;
        }
        if list.len() < MAX_PROBLEMS {
            list.push(finding);
        } else if is_error {
            self.omitted += 1;
        }
    }

    /// The number of errors, for [`Findings::take_missing`].
    pub(crate) fn errors(&self) -> usize {
        self.errors.len()
    }

    /// Removes the errors after the first `known`, if all of them are about missing values. Returns
    /// their messages.
    pub(crate) fn take_missing(&mut self, known: usize) -> Vec<(Span, String)> {
        let new = self.errors.get(known..).unwrap_or_default();
        if !new.iter().all(|finding| finding.is_missing) {
            return Vec::new();
        }
        self.errors
            .drain(known..)
            .map(|finding| (finding.span, finding.message))
            .collect()
    }

    /// The warnings in the file's order, or all errors if there is one.
    pub(crate) fn conclude(
        self,
        origin: &Path,
        source: &Source,
        masked: &Masked,
    ) -> Result<Vec<Problem>, ConfigErrors> {
        if self.errors.is_empty() {
            return Ok(in_file_order(self.warnings, origin, source, masked));
        }
        // The list of errors also names the other remaining work.
        let missing = self
            .warnings
            .into_iter()
            .filter(|finding| finding.is_missing);
        let missing = missing.map(|finding| Finding {
            severity: Severity::Error,
            ..finding
        });
        let errors = self.errors.into_iter().chain(missing).collect();
        Err(ConfigErrors {
            origin: origin.to_owned(),
            problems: in_file_order(errors, origin, source, masked),
            omitted: self.omitted,
        })
    }
}

/// A piece of the file in backquotes, of limited length and with control characters escaped.
pub(crate) fn quoted(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    let mut shown = String::new();
    for c in text.chars().take(MAX_CHARS) {
        if c.is_control() {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    if text.chars().nth(MAX_CHARS).is_some() {
        shown.push('…');
    }
    format!("`{shown}`")
}

fn in_file_order(
    mut findings: Vec<Finding>,
    origin: &Path,
    source: &Source,
    masked: &Masked,
) -> Vec<Problem> {
    findings.sort_by_key(|finding| finding.span.start);
    findings
        .into_iter()
        .map(|finding| finding.into_problem(origin, source, masked))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_escapes_control_characters_and_bounds_the_length() {
        assert_eq!(quoted("a\u{1b}[1m"), "`a\\u{1b}[1m`");
        assert_eq!(quoted(&"x".repeat(70)), format!("`{}…`", "x".repeat(60)));
    }
}
