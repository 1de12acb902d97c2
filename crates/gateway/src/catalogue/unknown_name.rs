//! Names in the configuration that no list has.

/// A name in the configuration that the server does not list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UnknownName {
    /// The server.
    pub backend: String,
    /// The name of the tool, prompt or argument.
    pub name: String,
    /// The tool, if the name is an argument's.
    pub tool: Option<String>,
    /// Whether a prompt may have the name, since `rename` applies to tools and prompts.
    pub may_be_prompt: bool,
}
