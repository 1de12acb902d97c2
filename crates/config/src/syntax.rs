//! From text to a tree ([`crate::document`]), with the text's faults as findings.

use std::collections::HashMap;

pub(crate) use crate::document::{Entry, Node, Source, Span, Syntax, Value};

use crate::report::problem::{Finding, Findings, quoted};

/// The tree of the file, or `None` after reporting a syntax error. Duplicate keys are reported as
/// well.
pub(crate) fn parse(source: &Source, syntax: Syntax, findings: &mut Findings) -> Option<Node> {
    match crate::document::parse(source, syntax) {
        Ok(Some(root)) => {
            find_duplicate_keys(&root, findings);
            Some(root)
        }
        Ok(None) => {
            findings.push(
                Finding::error(Span::new(0, 0), "the file is empty")
                    .help("write at least `mcpServers: {}` with a server in it"),
            );
            None
        }
        Err(error) => {
            findings.push(Finding::error(error.span, error.message).help(error.help));
            None
        }
    }
}

/// Reports each key that occurs twice in one mapping.
fn find_duplicate_keys(node: &Node, findings: &mut Findings) {
    match &node.value {
        Value::List(items) => {
            for item in items {
                find_duplicate_keys(item, findings);
            }
        }
        Value::Map(entries) => {
            let mut first: HashMap<&str, Span> = HashMap::with_capacity(entries.len());
            for entry in entries {
                if let Some(earlier) = first.insert(&entry.key, entry.key_span) {
                    findings.push(
                        Finding::error(
                            entry.key_span,
                            format!("duplicate key {}", quoted(&entry.key)),
                        )
                        .help("keep one of the two")
                        .first_at(earlier),
                    );
                }
                find_duplicate_keys(&entry.value, findings);
            }
        }
        _ => {}
    }
}
