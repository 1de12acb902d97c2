//! From text to a [`Node`] tree. JSON (with comments and trailing commas, as editors write it) and YAML have a parser each,
//! with the same result.

mod json;
pub(crate) mod source;
pub(crate) mod tree;
mod yaml;

use std::collections::HashMap;

use crate::report::problem::{Finding, Findings, quoted};
use source::{Source, Span, Syntax};
use tree::{Node, Value};

/// The tree of the file, or `None` after a syntax error was reported. Duplicate keys are reported as well.
pub(crate) fn parse(source: &Source, syntax: Syntax, findings: &mut Findings) -> Option<Node> {
    let parsed = match syntax {
        Syntax::Json => json::parse(source.text()),
        Syntax::Yaml => yaml::parse(source.text()),
    };
    match parsed {
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
        Err(finding) => {
            findings.push(finding);
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
                        Finding::error(entry.key_span, format!("duplicate key {}", quoted(&entry.key)))
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

fn too_deep(span: Span) -> Finding {
    Finding::error(span, format!("the file nests deeper than {} levels", tree::MAX_DEPTH))
        .help("a config file needs six levels: check the brackets and the indentation")
}
