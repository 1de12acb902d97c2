//! `${VAR}` and `${VAR:-default}` in strings; the caller looks names up.
//!
//! A library would not do: this reports every bad expression of a string with its text, and limits
//! nesting.

use std::cell::RefCell;

use crate::report::problem::{MISSING_SECRET, MISSING_VARIABLE};
use crate::variables::Lookup;
use crate::{Input, SecretReference};

/// A string with its expressions replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Substituted {
    pub(super) text: String,
    /// Whether any text came from a variable or a default.
    pub(super) changed: bool,
}

/// A bad expression: its text as written (to find it in the file), the fault, and the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadExpression {
    pub(super) expression: String,
    pub(super) message: String,
    pub(super) help: String,
    /// Whether the expression is right, but has no value.
    pub(super) is_missing: bool,
}

/// The remedy for every bad expression.
const LITERAL: &str = "write `$${` for a literal `${`";

/// The maximum nesting of defaults.
const MAX_NESTING: usize = 16;

/// Replaces every expression in `input`, or reports each bad one. An empty variable counts as
/// missing only if a default is given, as in a shell. Values of variables are not searched for
/// expressions. Variables in `of_process` stay as written if the lookup lacks them.
pub(super) fn substitute(
    input: &str,
    lookup: &dyn Lookup,
    of_process: &[String],
) -> Result<Substituted, Vec<BadExpression>> {
    let mut substitution = Substitution {
        lookup,
        of_process,
        text: String::with_capacity(input.len()),
        changed: false,
        faults: Vec::new(),
    };
    substitution.run(input, 0);
    if substitution.faults.is_empty() {
        Ok(Substituted {
            text: substitution.text,
            changed: substitution.changed,
        })
    } else {
        Err(substitution.faults)
    }
}

/// The names of the variables in `input`, including those in defaults.
pub(crate) fn names(input: &str) -> Vec<String> {
    let names = RefCell::new(Vec::new());
    let note = |name: &str| {
        names.borrow_mut().push(name.to_owned());
        None
    };
    // Bad expressions are reported when the text is read.
    let _ = substitute(input, &note, &[]);
    names.into_inner()
}

struct Substitution<'a> {
    lookup: &'a dyn Lookup,
    of_process: &'a [String],
    text: String,
    changed: bool,
    faults: Vec<BadExpression>,
}

impl Substitution<'_> {
    fn run(&mut self, mut rest: &str, depth: usize) {
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            let body = from.strip_prefix("${").unwrap_or_default();
            if let Some(before) = before.strip_suffix('$') {
                // `$${` is a literal `${`.
                self.text.push_str(before);
                self.text.push_str("${");
                rest = body;
                continue;
            }
            self.text.push_str(before);
            let Some(end) = closing_brace(body) else {
                return self.fault(
                    from,
                    "this `${` has no closing brace",
                    &format!("close it with `}}`; {LITERAL}"),
                );
            };
            let (body, after) = body.split_at(end);
            let expression = from.get(..2 + end + 1).unwrap_or(from);
            self.expression(expression, body, depth);
            rest = after.strip_prefix('}').unwrap_or_default();
        }
        self.text.push_str(rest);
    }

    fn expression(&mut self, expression: &str, body: &str, depth: usize) {
        let (name, default) = match body.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (body, None),
        };
        // VS Code and Cursor write `${env:NAME}`.
        let name = name.strip_prefix("env:").unwrap_or(name);
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.is_empty() {
            let help = format!("write `${{NAME}}`; {LITERAL}");
            return self.fault(expression, "there is no variable name here", &help);
        }
        if let Some(id) = name.strip_prefix("input:") {
            return self.input(expression, name, id);
        }
        match SecretReference::read(body) {
            Some(Ok(reference)) => return self.secret(expression, &reference),
            Some(Err(help)) => {
                return self.fault(
                    expression,
                    "this names no place where a secret is kept",
                    &format!("{help}; {LITERAL}"),
                );
            }
            None => {}
        }
        if !is_name || name.starts_with(|c: char| c.is_ascii_digit()) {
            let help = format!(
                "write `${{NAME}}` or `${{NAME:-default}}`, NAME of letters, digits and `_`; {LITERAL}"
            );
            return self.fault(expression, "this is not the name of a variable", &help);
        }
        self.changed = true;
        match (self.lookup.variable(name), default) {
            (Some(value), None) => self.text.push_str(&value),
            (Some(value), Some(_)) if !value.is_empty() => self.text.push_str(&value),
            (_, Some(_)) if depth >= MAX_NESTING => {
                self.fault(
                    expression,
                    "defaults nest too deep here",
                    "use fewer defaults within defaults",
                );
            }
            (_, Some(default)) => self.run(default, depth + 1),
            (None, None) if self.of_process.iter().any(|own| own == name) => {
                self.text.push_str(expression);
            }
            (None, None) => {
                let help = match name {
                    "workspaceFolder" | "userHome" => {
                        "editors fill this in; Fanlight does in the files of a project: write the folder".to_owned()
                    }
                    _ => format!("set {name}, or give a default: `${{{name}:-default}}`; {LITERAL}"),
                };
                self.missing(expression, name, &help);
            }
        }
    }

    /// An input that an editor asks its user for.
    fn input(&mut self, expression: &str, name: &str, id: &str) {
        self.changed = true;
        match self.lookup.variable(name) {
            Some(value) => self.text.push_str(&value),
            None => {
                let variable = Input::variable(id);
                let help = format!(
                    "an editor asks for this value, and so does Fanlight when it starts on a terminal; here set {variable}"
                );
                self.missing(expression, &variable, &help);
            }
        }
    }

    fn secret(&mut self, expression: &str, reference: &SecretReference) {
        self.changed = true;
        match self.lookup.secret(reference) {
            Ok(value) => self.text.push_str(&value),
            Err(why) => {
                let message =
                    format!("{MISSING_SECRET}`{expression}` stands for cannot be read: {why}");
                self.fault_of_missing(
                    expression,
                    &message,
                    "correct the reference, or put the secret there",
                );
            }
        }
    }

    fn missing(&mut self, expression: &str, variable: &str, help: &str) {
        self.fault_of_missing(
            expression,
            &format!("{MISSING_VARIABLE}`{variable}` is not set"),
            help,
        );
    }

    fn fault_of_missing(&mut self, expression: &str, message: &str, help: &str) {
        self.fault(expression, message, help);
        self.faults
            .iter_mut()
            .next_back()
            .into_iter()
            .for_each(|fault| fault.is_missing = true);
    }

    fn fault(&mut self, expression: &str, message: &str, help: &str) {
        let (message, help) = (message.to_owned(), help.to_owned());
        self.faults.push(BadExpression {
            expression: expression.to_owned(),
            message,
            help,
            is_missing: false,
        });
    }
}

/// The position of the brace that closes an expression; the braces of nested expressions are
/// skipped.
fn closing_brace(body: &str) -> Option<usize> {
    let bytes = body.as_bytes();
    let mut depth = 0_usize;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'{' if at > 0 && bytes.get(at - 1) == Some(&b'$') => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "A" => Some("1".to_owned()),
            "EMPTY" => Some(String::new()),
            "RAW" => Some("${A}".to_owned()),
            _ => None,
        }
    }

    fn ok(input: &str) -> String {
        substitute(input, &env, &[]).unwrap().text
    }

    fn faults(input: &str) -> Vec<String> {
        let faults = substitute(input, &env, &[]).unwrap_err();
        faults.into_iter().map(|fault| fault.message).collect()
    }

    #[test]
    fn variables_and_defaults_are_replaced() {
        assert_eq!(ok("x${A}y${A}"), "x1y1");
        assert_eq!(ok("${env:A}"), "1");
        assert_eq!(ok("${A:-d}${NO:-d}"), "1d");
        assert_eq!(ok("${NO:-}"), "");
        assert_eq!(ok("${EMPTY}|${EMPTY:-d}"), "|d");
        assert_eq!(ok("${NO:-${ALSO:-${A}}}!"), "1!");
        assert_eq!(ok("${NO:-a:-b}"), "a:-b");
        assert_eq!(ok("${NO:-http://h:1/?q=é}"), "http://h:1/?q=é");
    }

    #[test]
    fn names_of_variables_are_found_in_defaults_too() {
        assert_eq!(names("x${A} ${NO:-${B}} $${C} ${1}"), ["A", "NO", "B"]);
    }

    #[test]
    fn dollars_outside_expressions_stay() {
        assert_eq!(ok("$A $$ $ {A} 5$"), "$A $$ $ {A} 5$");
        assert_eq!(ok("$${A} ${A}"), "${A} 1");
        assert_eq!(ok("$$${A}"), "$${A}");
        assert!(!substitute("$${A}", &env, &[]).unwrap().changed);
    }

    #[test]
    fn value_of_a_variable_is_not_searched() {
        assert_eq!(ok("${RAW}"), "${A}");
    }

    #[test]
    fn variable_of_the_process_stays_only_without_value_and_default() {
        let own = ["A".to_owned(), "X".to_owned()];
        let done = substitute("${A} ${X} $${X} ${X:-d}", &env, &own).unwrap();
        assert_eq!(done.text, "1 ${X} ${X} d");
        assert!(substitute("${NO}", &env, &own).is_err());
    }

    #[test]
    fn every_fault_is_reported() {
        assert_eq!(
            faults("${NO} ${} ${a b} ${1} ${input:key} ${X"),
            [
                "the environment variable `NO` is not set",
                "there is no variable name here",
                "this is not the name of a variable",
                "this is not the name of a variable",
                "the environment variable `INPUT_KEY` is not set",
                "this `${` has no closing brace"
            ]
        );
        assert_eq!(faults("${:-x}"), ["there is no variable name here"]);
        assert_eq!(faults("${NO:-${X}"), ["this `${` has no closing brace"]);
        assert_eq!(
            faults("${NO:-${ALSO}}"),
            ["the environment variable `ALSO` is not set"]
        );
    }

    #[test]
    fn nesting_of_defaults_is_bounded() {
        let deep = "${NO:-".repeat(5000) + &"}".repeat(5000);
        assert_eq!(faults(&deep), ["defaults nest too deep here"]);
    }
}
