//! Judging what servers say of what they have, before clients are told.

use std::fmt;

use fanlight_protocol::Json;

use crate::policy::PolicyKind;

/// Judges definitions of tools, prompts and templates as servers list them.
pub trait DefinitionGuard: fmt::Debug + Send + Sync {
    /// Tells guards apart: equal for two that judge alike.
    fn number(&self) -> u64;

    /// Whether it can withhold anything: then only what servers list can be used.
    fn can_withhold(&self) -> bool;

    /// Whether clients are told of a definition, which is as the server has given it; else it does not exist for them. It is
    /// asked whenever lists are merged.
    fn admits(&self, kind: PolicyKind, server: &str, name: &str, definition: &Json) -> bool;
}
