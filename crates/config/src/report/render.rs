//! Problems laid out for a terminal, in the manner of rustc.
//!
//! miette would not do: this hides secrets in the shown line, and shows only the part of a minified
//! file around the problem, which miette shows whole.

use std::fmt::Write as _;
use std::path::Path;

use unicode_width::UnicodeWidthChar;

use super::problem::{Excerpt, Problem, Severity};

/// The number of columns for a tab.
const TAB: usize = 4;

impl Problem {
    /// The problem laid out for a terminal, with its position, source line, caret and help;
    /// `origin` is the name of the file. ANSI colours only on request.
    pub fn render(&self, origin: &Path, colour: bool) -> String {
        lay_out(self, origin, colour)
    }
}

fn lay_out(problem: &Problem, origin: &Path, colour: bool) -> String {
    let paint = Paint { colour };
    let (label, style) = match problem.severity {
        Severity::Error => ("error", Style::Error),
        Severity::Warning => ("warning", Style::Warning),
    };
    let mut text = format!("{}: {}\n", paint.apply(style, label), problem.message);
    let (Some(at), Some(excerpt)) = (problem.position, &problem.excerpt) else {
        let arrow = paint.apply(Style::Frame, "-->");
        let _ = writeln!(text, " {arrow} {}", origin.display());
        push_help(&mut text, problem, " ", &paint);
        return text;
    };

    let number = at.line.to_string();
    let indent = " ".repeat(number.len());
    let layout = Layout::new(excerpt);
    let carets = "^".repeat(layout.underline);
    let bar = paint.apply(Style::Frame, "|");
    let _ = writeln!(
        text,
        "{indent}{} {}:{}:{}",
        paint.apply(Style::Frame, "-->"),
        origin.display(),
        at.line,
        at.column
    );
    let _ = writeln!(text, "{indent} {bar}");
    let _ = writeln!(
        text,
        "{} {bar} {}",
        paint.apply(Style::Frame, &number),
        layout.text
    );
    let _ = writeln!(
        text,
        "{indent} {bar} {}{}",
        " ".repeat(layout.offset),
        paint.apply(style, &carets)
    );
    push_help(&mut text, problem, &indent, &paint);
    text
}

fn push_help(text: &mut String, problem: &Problem, indent: &str, paint: &Paint) {
    if let Some(help) = &problem.help {
        let label = paint.apply(Style::Help, "help");
        let equals = paint.apply(Style::Frame, "=");
        let _ = writeln!(text, "{indent} {equals} {label}: {help}");
    }
}

/// A shown line, and the start and length of its underline in terminal columns.
#[derive(Default)]
struct Layout {
    text: String,
    offset: usize,
    underline: usize,
}

impl Layout {
    fn new(excerpt: &Excerpt) -> Self {
        let mut layout = Self::default();
        for (index, c) in excerpt.line.chars().enumerate() {
            let (shown, width) = cell(c);
            layout.text.push_str(&shown);
            if index < excerpt.before {
                layout.offset += width;
            } else if index < excerpt.before + excerpt.length {
                layout.underline += width;
            }
        }
        // The problem may be at the end of the line.
        layout.underline = layout.underline.max(1);
        layout
    }
}

/// The text for a character, and its width in columns. Control characters never reach the terminal.
fn cell(c: char) -> (String, usize) {
    match c {
        '\t' => (" ".repeat(TAB), TAB),
        c if c.is_control() => ('\u{fffd}'.to_string(), 1),
        c => (c.to_string(), c.width().unwrap_or(0)),
    }
}

#[derive(Clone, Copy)]
enum Style {
    Error,
    Warning,
    Frame,
    Help,
}

struct Paint {
    colour: bool,
}

impl Paint {
    fn apply(&self, style: Style, text: &str) -> String {
        if !self.colour {
            return text.to_owned();
        }
        let code = match style {
            Style::Error => "31",
            Style::Warning => "33",
            Style::Frame => "34",
            Style::Help => "36",
        };
        // There are two sequences, since printing lets only single-number ones pass
        // (`fanlight_protocol::visible`).
        format!("\x1b[1m\x1b[{code}m{text}\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Position;

    fn sample(line: &str, column: usize, underline: usize) -> Problem {
        Problem {
            file: "f.yaml".into(),
            severity: Severity::Error,
            position: Some(Position { line: 12, column }),
            message: "unknown field `prefx`".to_owned(),
            help: Some("did you mean `prefix`?".to_owned()),
            excerpt: Some(Excerpt {
                line: line.to_owned(),
                before: column - 1,
                length: underline,
                is_masked: false,
            }),
            is_missing: false,
        }
    }

    #[test]
    fn problem_looks_like_a_compiler_error() {
        let text = sample("    prefx: gh_", 5, 5).render(Path::new("f.yaml"), false);
        let expected = "\
error: unknown field `prefx`
  --> f.yaml:12:5
   |
12 |     prefx: gh_
   |     ^^^^^
   = help: did you mean `prefix`?
";
        assert_eq!(text, expected);
    }

    #[test]
    fn caret_stays_in_place_after_tabs_and_wide_characters() {
        let text = sample("\t名: x", 5, 1).render(Path::new("f.yaml"), false);
        assert!(text.contains("12 |     名: x\n   |         ^\n"), "{text}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let text = sample("a: \u{1b}[2J", 1, 1).render(Path::new("f.yaml"), false);
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn colour_is_used_only_when_requested() {
        let sample = sample("prefx: x", 1, 5);
        assert!(
            sample
                .render(Path::new("f"), true)
                .contains("\x1b[1m\x1b[31merror\x1b[0m")
        );
        assert!(!sample.render(Path::new("f"), false).contains('\x1b'));
    }
}
