//! The scopes that requests need.

use super::values::SCOPE;
use crate::option::kind::Maybe;
use crate::option::map::NameMap;
use crate::option::options;
use crate::option::several::OneOrMany;

options! {
    /// The scopes that requests need. At an endpoint, what is given there replaces what `auth.scopes` has. To connect, and
    /// to ask what the server is, takes none. Lists show what exists, whether a client may use it or not.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct ScopeRules: "scopes", "in `scopes`";
    options {
        /// For lists, resources, prompts, completion and subscriptions. Default: none.
        "read" => read: Option<Vec<String>> = None, Maybe(OneOrMany(SCOPE)), example "mcp:read";
        /// For calls of tools, and for their tasks. Default: none.
        "call" => call: Option<Vec<String>> = None, Maybe(OneOrMany(SCOPE)), example "mcp:call";
        /// For calls of the tools of these names, beside `call`; names as clients see them, `*` stands for any characters.
        "tools" => tools: Option<Vec<(String, Vec<String>)>> = None, Maybe(NameMap(OneOrMany(SCOPE))), example "{\"files__delete_*\": [files:delete]}";
        /// Scopes that others include: a client with `mcp:admin` has those listed for it, too.
        "implies" => implies: Option<Vec<(String, Vec<String>)>> = None, Maybe(NameMap(OneOrMany(SCOPE))), example "{\"mcp:admin\": [mcp:call, mcp:read]}";
    }
}

impl Default for ScopeRules {
    fn default() -> Self {
        <Self as crate::option::Options>::defaults()
    }
}
