//! Values read from nodes: strings, lists and mappings of strings, with variables replaced, and
//! their problems.

use crate::definition::Section;
use crate::option::substitute::substitute;
use crate::report::problem::{Finding, Findings, quoted};
use crate::syntax::{Entry, Node, Source, Span, Value};
use crate::variables::Lookup;

/// The state of reading: the text, the variables, the definitions, and the problems found so far.
pub(crate) struct Reader<'a> {
    /// The top level of the file, which is searched for keys in the wrong section.
    pub(crate) root: &'static Section,
    pub(crate) source: &'a Source,
    pub(crate) env: &'a dyn Lookup,
    /// The variables in `env` of the server whose `args` are read: the process replaces those.
    pub(crate) of_process: Vec<String>,
    /// Whether the file is Fanlight's own, in which unknown keys are errors.
    pub(crate) is_own: bool,
    /// Whether a server that lacks a value is left out, instead of an error of the whole file.
    pub(crate) is_lenient: bool,
    pub(crate) findings: Findings,
}

/// A string after substitution.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) value: String,
    pub(crate) span: Span,
    pub(crate) substituted: bool,
}

impl Text {
    /// The text for a message, unless it came from a variable. Only for fields without secrets.
    pub(crate) fn display(&self) -> String {
        if self.substituted {
            "the text after substitution".to_owned()
        } else {
            quoted(&self.value)
        }
    }
}

impl<'a> Reader<'a> {
    /// A reader for a file in Fanlight's own notation with these options.
    pub(crate) fn new(
        root: &'static Section,
        source: &'a Source,
        env: &'a dyn Lookup,
        findings: Findings,
    ) -> Self {
        Self {
            root,
            source,
            env,
            of_process: Vec::new(),
            is_own: true,
            is_lenient: false,
            findings,
        }
    }
}

impl Reader<'_> {
    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>, help: &str) {
        self.findings.push(Finding::error(span, message).help(help));
    }

    /// Reports what is wrong with a text. The message begins with the text, unless the `fault` has a
    /// subject of its own: `this` or `the`.
    pub(crate) fn refuse(&mut self, text: &Text, fault: &str, help: &str) {
        let message = match fault.split_once(' ') {
            Some(("this" | "the", _)) => fault.to_owned(),
            _ => format!("{} {fault}", text.display()),
        };
        self.error(text.span, message, help);
    }

    pub(crate) fn warn(&mut self, span: Span, message: impl Into<String>, help: &str) {
        self.findings
            .push(Finding::warning(span, message).help(help));
    }

    /// Reports that `what` has the wrong type.
    pub(crate) fn wrong_type(&mut self, what: &str, node: &Node, expected: &str, help: &str) {
        let message = format!("{what} must be {expected}, not {}", node.kind());
        self.error(node.span, message, help);
    }

    /// Reports two fields that exclude each other.
    pub(crate) fn report_both(&mut self, first: &Entry, second: &Entry) {
        let message = format!(
            "both {} and {} are given",
            quoted(&first.key),
            quoted(&second.key)
        );
        self.findings.push(
            Finding::error(second.key_span, message)
                .help("keep one of the two")
                .first_at(first.key_span),
        );
    }

    /// Reports a text that is none of the option's words.
    pub(crate) fn unknown_word(&mut self, entry: &Entry, text: &Text, words: &[&str]) {
        let meant = suggest(&text.value, words).filter(|_| !text.substituted);
        let help = match meant {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("write one of {}", words.join(", ")),
        };
        let fault = format!("is not a value of {}", quoted(&entry.key));
        self.refuse(text, &fault, &help);
    }

    /// A string.
    pub(crate) fn text(&mut self, entry: &Entry) -> Option<Text> {
        self.string(&quoted(&entry.key), &entry.value)
    }

    /// A list of strings.
    pub(crate) fn strings(&mut self, entry: &Entry) -> Option<Vec<Text>> {
        self.list(entry, Self::string)
    }

    /// A list of strings; numbers and booleans stand for their text.
    pub(crate) fn scalars(&mut self, entry: &Entry) -> Option<Vec<Text>> {
        self.list(entry, Self::scalar)
    }

    /// The entries of an option that has to be a mapping.
    pub(crate) fn mapping<'t>(
        &mut self,
        entry: &'t Entry,
        expected: &str,
        help: &str,
    ) -> Option<&'t [Entry]> {
        let Value::Map(entries) = &entry.value.value else {
            self.wrong_type(&quoted(&entry.key), &entry.value, expected, help);
            return None;
        };
        Some(entries)
    }

    /// The items of an option that has to be a list.
    pub(crate) fn items<'t>(
        &mut self,
        entry: &'t Entry,
        expected: &str,
        help: &str,
    ) -> Option<&'t [Node]> {
        let Value::List(items) = &entry.value.value else {
            self.wrong_type(&quoted(&entry.key), &entry.value, expected, help);
            return None;
        };
        Some(items)
    }

    /// A mapping to strings; numbers and booleans stand for their text.
    pub(crate) fn pairs<'t>(&mut self, entry: &'t Entry) -> Vec<(&'t Entry, Text)> {
        let help = "write each name with its value, such as `NAME: value`";
        let entries = self.mapping(entry, "a mapping of names to strings", help);
        entries
            .into_iter()
            .flatten()
            .filter_map(|pair| Some((pair, self.scalar(&quoted(&pair.key), &pair.value)?)))
            .collect()
    }

    fn list(
        &mut self,
        entry: &Entry,
        item: fn(&mut Self, &str, &Node) -> Option<Text>,
    ) -> Option<Vec<Text>> {
        let help = "write it in brackets, such as `[\"one\", \"two\"]`";
        let items = self.items(entry, "a list of strings", help)?;
        let what = format!("an entry of {}", quoted(&entry.key));
        Some(
            items
                .iter()
                .filter_map(|node| item(self, &what, node))
                .collect(),
        )
    }

    /// A string, called `what` in messages.
    pub(crate) fn string(&mut self, what: &str, node: &Node) -> Option<Text> {
        if let Value::String(text) = &node.value {
            return self.substituted(text, node.span);
        }
        let help = match node.value {
            Value::Number(_) | Value::Bool(_) => "put the value in quotes",
            _ => "write one string",
        };
        self.wrong_type(what, node, "a string", help);
        None
    }

    fn scalar(&mut self, what: &str, node: &Node) -> Option<Text> {
        let value = match &node.value {
            Value::Number(digits) => digits.clone(),
            Value::Bool(flag) => flag.to_string(),
            Value::Null => {
                self.wrong_type(what, node, "a string", "write `\"\"` for an empty string");
                return None;
            }
            _ => return self.string(what, node),
        };
        Some(Text {
            value,
            span: node.span,
            substituted: false,
        })
    }

    /// A number, or a string that stands for one.
    pub(crate) fn amount(&mut self, entry: &Entry, expected: &str, help: &str) -> Option<Text> {
        match &entry.value.value {
            Value::Number(_) | Value::String(_) => self.scalar(&quoted(&entry.key), &entry.value),
            _ => {
                self.wrong_type(&quoted(&entry.key), &entry.value, expected, help);
                None
            }
        }
    }

    fn substituted(&mut self, text: &str, span: Span) -> Option<Text> {
        match substitute(text, self.env, &self.of_process) {
            Ok(done) => Some(Text {
                value: done.text,
                span,
                substituted: done.changed,
            }),
            Err(faults) => {
                let mut from = span.start;
                for fault in faults {
                    // In a string with escapes the expression may be spelled differently; the whole
                    // string is marked then.
                    let found = self.source.find(span, from, &fault.expression);
                    from = found.map_or(from, |found| found.start + 1);
                    let finding =
                        Finding::error(found.unwrap_or(span), fault.message).help(fault.help);
                    self.findings.push(if fault.is_missing {
                        finding.mark_missing_value()
                    } else {
                        finding
                    });
                }
                None
            }
        }
    }
}

/// The candidate that a mistyped word most likely means. Case, `_` and `-` do not count.
pub(crate) fn suggest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| text.replace(['_', '-'], "").to_lowercase();
    let word = plain(word);
    let allowed = (word.chars().count() / 3).max(1);
    candidates
        .iter()
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(&word, &plain(candidate)),
                *candidate,
            )
        })
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestion_is_the_nearest_word() {
        let words = ["args", "command", "disabledTools", "prefix", "url"];
        for (word, meant) in [
            ("prefx", Some("prefix")),
            ("Command", Some("command")),
            ("disabled_tools", Some("disabledTools")),
            ("comand", Some("command")),
            ("arg", Some("args")),
            ("xyzzy", None),
            ("", None),
        ] {
            assert_eq!(suggest(word, &words), meant, "{word}");
        }
    }
}
