//! The scopes that requests need.

use super::values::SCOPE;
use crate::model::tools::PatternMap;
use crate::option::kind::Maybe;
use crate::option::map::NameMap;
use crate::option::options;
use crate::option::several::OneOrMany;

options! {
    /// The scopes that requests need. An endpoint's scopes replace the corresponding ones of
    /// `auth.scopes`. Connecting and requesting the server's description need none. Lists show
    /// everything, whether or not the client may use it.
    pub struct ScopeRules: "scopes", "in `scopes`";
    options {
        /// For lists, resources, prompts, completion and subscriptions. Default: none.
        "read" => read: Option<Vec<String>> = None, Maybe(OneOrMany(SCOPE)), example "mcp:read";
        /// For calls of tools, and for their tasks. Default: none.
        "call" => call: Option<Vec<String>> = None, Maybe(OneOrMany(SCOPE)), example "mcp:call";
        /// For calls of these tools, in addition to `call`: `files/delete_*`, `delete_*` for every
        /// server, or `files__delete_*` with the server's prefix; `*` stands for any characters.
        "tools" => tools: Option<Vec<(String, Vec<String>)>> = None, Maybe(PatternMap(NameMap(OneOrMany(SCOPE)))), example "{\"files__delete_*\": [files:delete]}";
    }
}

impl Default for ScopeRules {
    fn default() -> Self {
        <Self as crate::option::Options>::defaults()
    }
}
