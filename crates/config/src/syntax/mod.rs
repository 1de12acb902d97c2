//! From text to a [`Node`] tree. JSON (with comments and trailing commas, as editors write it) and YAML have a parser each,
//! with the same result.

mod json;
pub(crate) mod source;
pub(crate) mod tree;
mod yaml;

use std::path::Path;

use crate::report::problem::{Finding, Findings};
use source::{Source, Span};
use tree::Node;

/// The two syntaxes of a config file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    Json,
    Yaml,
}

impl Syntax {
    /// YAML by its file name; otherwise by its first character, so that a name such as `mcp.conf` works too.
    pub(crate) fn of(origin: &Path, text: &str) -> Self {
        let extension = origin.extension().and_then(|e| e.to_str()).unwrap_or("");
        if extension.eq_ignore_ascii_case("yaml") || extension.eq_ignore_ascii_case("yml") {
            return Self::Yaml;
        }
        match text.trim_start().chars().next() {
            Some('{' | '/') => Self::Json,
            _ => Self::Yaml,
        }
    }
}

/// The tree of the file, or `None` after a syntax error was reported. Duplicate keys are reported as well.
pub(crate) fn parse(source: &Source, syntax: Syntax, findings: &mut Findings) -> Option<Node> {
    let parsed = match syntax {
        Syntax::Json => json::parse(source.text()),
        Syntax::Yaml => yaml::parse(source.text()),
    };
    match parsed {
        Ok(Some(root)) => {
            tree::find_duplicate_keys(&root, findings);
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

fn too_deep(span: Span) -> Finding {
    Finding::error(span, format!("the file nests deeper than {} levels", tree::MAX_DEPTH))
        .help("a config file needs six levels: check the brackets and the indentation")
}
