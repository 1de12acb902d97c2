//! Names that the configuration mentions and no list has.

/// A name in the configuration that the server does not list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnknownName {
    /// The server.
    pub backend: String,
    /// The name: of a tool or prompt, or of a tool's argument.
    pub name: String,
    /// The tool, where the name is that of an argument.
    pub tool: Option<String>,
    /// Whether a prompt may have the name: `rename` is for tools and prompts.
    pub may_be_prompt: bool,
}
