//! Checks of servers' definitions before clients see them.

use std::fmt;

use fanlight_protocol::Json;

use crate::policy::PolicyKind;

/// Checks definitions of tools, prompts and templates as servers list them.
pub trait DefinitionGuard: fmt::Debug + Send + Sync {
    /// Identifies the guard; equal for two guards that decide alike.
    fn number(&self) -> u64;

    /// Whether it can withhold definitions. If so, clients can use only listed items.
    fn can_withhold(&self) -> bool;

    /// Whether clients may see a definition, which is given as the server sent it. Otherwise it
    /// does not exist for them. Called whenever lists are merged.
    fn admits(&self, kind: PolicyKind, server: &str, name: &str, definition: &Json) -> bool;
}
