//! A configuration file as a tree of values, each with its position in the text.
//!
//! JSON (with comments and trailing commas, as in editors), YAML and TOML each have a parser, with
//! the same result. The module has no I/O, and knows no option.

mod json;
mod source;
mod toml;
mod tree;
mod yaml;

pub(crate) use json::JSON;
pub use source::{Position, Source, Span, Syntax};
pub use tree::{Entry, MAX_DEPTH, Node, Value};

/// The tree of a text; `None` without a value. Duplicate keys of JSON and YAML stay in the tree.
///
/// # Errors
///
/// The first mistake in the text.
pub fn parse(source: &Source, syntax: Syntax) -> Result<Option<Node>, SyntaxError> {
    match syntax {
        Syntax::Json => json::parse(source.text()),
        Syntax::Yaml => yaml::parse(source.text()),
        Syntax::Toml => toml::parse(source.text()).map(Some),
    }
}

/// A fault of a text: its description, its position, and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// The position.
    pub span: Span,
    /// The description in one line.
    pub message: String,
    /// The remedy.
    pub help: String,
}

impl SyntaxError {
    fn new(span: Span, message: impl Into<String>) -> Self {
        Self {
            span,
            message: message.into(),
            help: String::new(),
        }
    }

    fn help(self, help: impl Into<String>) -> Self {
        Self {
            help: help.into(),
            ..self
        }
    }
}

fn too_deep(span: Span) -> SyntaxError {
    SyntaxError::new(
        span,
        format!("the file nests deeper than {MAX_DEPTH} levels"),
    )
    .help("a config file needs six levels: check the brackets and the indentation")
}
