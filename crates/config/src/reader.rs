//! Values read from nodes: the types every field is made of, with the problems they can have. It knows no field by name.

use std::time::Duration;

use crate::fields::{Section, suggest};
use crate::limits::{LimitField, Measure, TimeoutField};
use crate::problem::{Finding, Findings, quoted};
use crate::source::{Source, Span};
use crate::substitute::{BadExpression, Fault, substitute};
use crate::tree::{Entry, Node, Value};
use crate::units::{format_duration, format_size, parse_duration, parse_size};

/// What reading needs: the source for places, the variables, and where problems go.
pub(crate) struct Reader<'a> {
    pub(crate) source: &'a Source,
    pub(crate) env: &'a dyn Fn(&str) -> Option<String>,
    pub(crate) findings: Findings,
}

/// A string after substitution.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) value: String,
    pub(crate) span: Span,
    substituted: bool,
}

impl Text {
    /// The text for a message, unless it came from a variable. Only for fields that hold no secret.
    pub(crate) fn shown(&self) -> String {
        if self.substituted { "the text after substitution".to_owned() } else { quoted(&self.value) }
    }
}

impl Reader<'_> {
    pub(crate) fn error(&mut self, span: Span, message: impl Into<String>, help: &str) {
        self.findings.push(Finding::error(span, message).help(help));
    }

    pub(crate) fn warn(&mut self, span: Span, message: impl Into<String>, help: &str) {
        self.findings.push(Finding::warning(span, message).help(help));
    }

    /// Reports that `what` is not of the type it must be.
    pub(crate) fn wrong_type(&mut self, what: &str, node: &Node, expected: &str, help: &str) {
        let message = format!("{what} must be {expected}, not {}", node.kind());
        self.error(node.span, message, help);
    }

    /// Reports two fields of which a mapping has only one.
    pub(crate) fn both(&mut self, first: &Entry, second: &Entry) {
        let message = format!("both {} and {} are given", quoted(&first.key), quoted(&second.key));
        self.findings
            .push(Finding::error(second.key_span, message).help("keep one of the two").first_at(first.key_span));
    }

    /// One of a few words.
    pub(crate) fn choice(&mut self, entry: &Entry, words: &'static [&'static str]) -> Option<&'static str> {
        let text = self.text(entry)?;
        let found = words.iter().find(|word| **word == text.value);
        if found.is_none() {
            let meant = suggest(&text.value, words).filter(|_| !text.substituted);
            let help = match meant {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("write one of {}", words.join(", ")),
            };
            let message = format!("{} is no value of {}", text.shown(), quoted(&entry.key));
            self.error(text.span, message, &help);
        }
        found.copied()
    }

    /// A string.
    pub(crate) fn text(&mut self, entry: &Entry) -> Option<Text> {
        self.string(&quoted(&entry.key), &entry.value)
    }

    /// A boolean, or a string with variables that becomes one.
    pub(crate) fn flag(&mut self, entry: &Entry) -> Option<bool> {
        let what = quoted(&entry.key);
        let help = "write `true` or `false`";
        match &entry.value.value {
            Value::Bool(flag) => Some(*flag),
            Value::String(_) => {
                let text = self.string(&what, &entry.value)?;
                match text.value.as_str() {
                    "true" if text.substituted => Some(true),
                    "false" if text.substituted => Some(false),
                    _ => {
                        let shown = text.shown();
                        self.error(text.span, format!("{what} must be a boolean, not {shown}"), help);
                        None
                    }
                }
            }
            _ => {
                self.wrong_type(&what, &entry.value, "a boolean", help);
                None
            }
        }
    }

    /// A duration within the range of `field`.
    pub(crate) fn duration(&mut self, entry: &Entry, field: &TimeoutField) -> Option<Duration> {
        let help = "write a number with a unit, such as `500ms`, `30s`, `5m` or `1h`; a plain number is seconds";
        let text = self.quantity(entry, "a duration", help)?;
        let Some(duration) = parse_duration(&text.value) else {
            let message = format!("{} is not a duration", text.shown());
            self.error(text.span, message, help);
            return None;
        };
        if !(field.min..=field.max).contains(&duration) {
            let message = format!(
                "{} is out of range: at least {}, at most {}",
                quoted(&entry.key),
                format_duration(field.min),
                format_duration(field.max)
            );
            self.error(text.span, message, help);
            return None;
        }
        Some(duration)
    }

    /// A size or count within the range of `field`.
    pub(crate) fn limit(&mut self, entry: &Entry, field: &LimitField) -> Option<usize> {
        let (expected, help) = match field.measure {
            Measure::Bytes => (
                "a size",
                "write a whole number with a unit, such as `64KiB`, `16MiB` or `1MB`; a plain number is bytes",
            ),
            Measure::Count => ("a whole number", "write a whole number without a unit"),
        };
        let show = |value: usize| match field.measure {
            Measure::Bytes => format_size(value),
            Measure::Count => value.to_string(),
        };
        let text = self.quantity(entry, expected, help)?;
        let value = match field.measure {
            Measure::Bytes => parse_size(&text.value),
            Measure::Count => parse_count(&text.value),
        };
        let Some(value) = value else {
            let message = format!("{} is not {expected}", text.shown());
            self.error(text.span, message, help);
            return None;
        };
        match usize::try_from(value) {
            Ok(value) if (field.min..=field.max).contains(&value) => Some(value),
            _ => {
                let message = format!(
                    "{} is out of range: at least {}, at most {}",
                    quoted(&entry.key),
                    show(field.min),
                    show(field.max)
                );
                self.error(text.span, message, "choose a value within this range");
                None
            }
        }
    }

    /// A list of strings.
    pub(crate) fn strings(&mut self, entry: &Entry) -> Option<Vec<Text>> {
        self.list(entry, Self::string)
    }

    /// A list of strings, in which numbers and booleans stand for their text.
    pub(crate) fn scalars(&mut self, entry: &Entry) -> Option<Vec<Text>> {
        self.list(entry, Self::scalar)
    }

    /// A mapping to strings, in which numbers and booleans stand for their text.
    pub(crate) fn pairs<'t>(&mut self, entry: &'t Entry) -> Vec<(&'t Entry, Text)> {
        let Value::Map(entries) = &entry.value.value else {
            self.wrong_type(
                &quoted(&entry.key),
                &entry.value,
                "a mapping of names to strings",
                "write each name with its value, such as `NAME: value`",
            );
            return Vec::new();
        };
        entries.iter().filter_map(|pair| Some((pair, self.scalar(&quoted(&pair.key), &pair.value)?))).collect()
    }

    fn list(&mut self, entry: &Entry, item: fn(&mut Self, &str, &Node) -> Option<Text>) -> Option<Vec<Text>> {
        let Value::List(items) = &entry.value.value else {
            self.wrong_type(
                &quoted(&entry.key),
                &entry.value,
                "a list of strings",
                "write it in brackets, such as `[\"one\", \"two\"]`",
            );
            return None;
        };
        let what = format!("an entry of {}", quoted(&entry.key));
        Some(items.iter().filter_map(|node| item(self, &what, node)).collect())
    }

    fn string(&mut self, what: &str, node: &Node) -> Option<Text> {
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
        Some(Text { value, span: node.span, substituted: false })
    }

    /// A number or string that stands for an amount.
    fn quantity(&mut self, entry: &Entry, expected: &str, help: &str) -> Option<Text> {
        match &entry.value.value {
            Value::Number(_) | Value::String(_) => self.scalar(&quoted(&entry.key), &entry.value),
            _ => {
                self.wrong_type(&quoted(&entry.key), &entry.value, expected, help);
                None
            }
        }
    }

    fn substituted(&mut self, text: &str, span: Span) -> Option<Text> {
        match substitute(text, self.env) {
            Ok(done) => Some(Text { value: done.text, span, substituted: done.changed }),
            Err(faults) => {
                let mut from = span.start;
                for fault in faults {
                    // In a string with escapes the expression may be written otherwise: then the whole string is shown.
                    let place = self.source.find(span, from, &fault.expression);
                    from = place.map_or(from, |place| place.start + 1);
                    self.findings.push(describe(&fault, place.unwrap_or(span)));
                }
                None
            }
        }
    }
}

fn describe(fault: &BadExpression, span: Span) -> Finding {
    const LITERAL: &str = "write `$${` for a literal `${`";
    let (message, help) = match &fault.fault {
        Fault::Missing(name) => {
            let help = match name.as_str() {
                "workspaceFolder" | "userHome" => {
                    "editors fill this in, Fanlight does not: write the folder".to_owned()
                }
                _ => {
                    format!("set {name}, or give a default: `${{{name}:-default}}`; {LITERAL}")
                }
            };
            (format!("the environment variable `{name}` is not set"), help)
        }
        Fault::Unterminated => ("this `${` has no closing brace".to_owned(), format!("close it with `}}`; {LITERAL}")),
        Fault::NoName => ("there is no variable name here".to_owned(), format!("write `${{NAME}}`; {LITERAL}")),
        Fault::BadName => (
            "this is not the name of a variable".to_owned(),
            format!("write `${{NAME}}` or `${{NAME:-default}}`, NAME of letters, digits and `_`; {LITERAL}"),
        ),
        Fault::EditorPrompt => (
            "`${input:…}` makes an editor ask for a value, which Fanlight cannot".to_owned(),
            "use an environment variable: `${NAME}`".to_owned(),
        ),
        Fault::TooDeep => ("defaults nest too deep here".to_owned(), "use fewer defaults within defaults".to_owned()),
    };
    Finding::error(span, message).help(help)
}

/// The fields of one mapping. What is not taken by the time it is closed is unknown.
pub(crate) struct Fields<'t> {
    section: Section,
    entries: &'t [Entry],
}

impl<'t> Fields<'t> {
    /// The fields of a node, which must be a mapping; unknown and ignored ones are reported at once.
    pub(crate) fn open(reader: &mut Reader<'_>, section: Section, what: &str, node: &'t Node) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            let help = format!("the fields known here: {}", section.names().join(", "));
            reader.wrong_type(what, node, "a mapping", &help);
            return None;
        };
        let names = section.names();
        for entry in entries {
            if section.ignored().contains(&entry.key.as_str()) {
                reader.warn(
                    entry.key_span,
                    format!("{} has no effect here", quoted(&entry.key)),
                    "it is a setting of a client; Fanlight ignores it",
                );
            } else if !names.contains(&entry.key.as_str()) {
                let help = unknown_help(section, &names, entry);
                reader.error(entry.key_span, format!("unknown field {}", quoted(&entry.key)), &help);
            }
        }
        Some(Self { section, entries })
    }

    /// The field of this name, unless it is absent or null.
    pub(crate) fn take(&self, name: &'static str) -> Option<&'t Entry> {
        self.take_or_null(name).filter(|entry| !entry.value.is_null())
    }

    /// The field of this name, unless it is absent. Of a duplicate key, which is an error, the last.
    pub(crate) fn take_or_null(&self, name: &'static str) -> Option<&'t Entry> {
        debug_assert!(self.section.names().contains(&name), "{name} is in no table");
        self.entries.iter().rev().find(|entry| entry.key == name)
    }
}

fn unknown_help(section: Section, names: &[&str], entry: &Entry) -> String {
    if entry.key == "<<" {
        return "YAML 1.2 has no merge keys: repeat the fields".to_owned();
    }
    // A setting of a client may be mistyped too.
    let candidates = [names, section.ignored()].concat();
    if let Some(meant) = suggest(&entry.key, &candidates) {
        return format!("did you mean `{meant}`?");
    }
    if section == Section::Top && looks_like_server(&entry.value) {
        return "a server stands under `mcpServers`".to_owned();
    }
    let elsewhere = Section::ALL.iter().find(|other| other.names().contains(&entry.key.as_str()));
    if let Some(other) = elsewhere {
        return format!("{} stands {}", quoted(&entry.key), other.place());
    }
    format!("the fields known {}: {}", section.place(), names.join(", "))
}

fn looks_like_server(node: &Node) -> bool {
    let Value::Map(entries) = &node.value else {
        return false;
    };
    entries.iter().any(|entry| matches!(entry.key.as_str(), "command" | "url"))
}

fn parse_count(text: &str) -> Option<u64> {
    let all_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| text.parse().ok()).flatten()
}
