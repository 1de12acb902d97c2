//! A configuration file as a tree of values, each with its position in the text.
//!
//! JSON (with comments and trailing commas, as editors write it), YAML and TOML have a parser each, with the same result. This
//! crate has no I/O, and knows no option.

mod json;
mod source;
mod toml;
mod tree;
mod yaml;

pub use source::{Position, Source, Span, Syntax};
pub use tree::{Entry, MAX_DEPTH, Node, Value};

/// The tree of a text; `None` if it holds no value. Duplicate keys of JSON and YAML stay in the tree.
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

/// What is wrong with a text, where, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// Where it is wrong.
    pub span: Span,
    /// What is wrong, in one line.
    pub message: String,
    /// What to do.
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
