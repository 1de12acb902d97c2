//! The annotations of a tool (2026-07-28 server/tools, `ToolAnnotations`). They are hints from its
//! server.

use crate::{Json, word};

/// Whether the annotations say that a call changes nothing.
pub fn is_read_only(annotations: &Json) -> bool {
    says(annotations, "readOnlyHint")
}

/// Whether the annotations say that a call changes nothing, or nothing more when repeated.
pub fn is_repeatable(annotations: &Json) -> bool {
    is_read_only(annotations) || says(annotations, "idempotentHint")
}

/// Whether the definition of a tool says that a repeated call changes nothing more.
pub fn declares_repeatable(tool: &Json) -> bool {
    // Finding the annotations behind a large schema takes time, and many tools have no hints.
    tool.may_contain(word!("Hint")) && tool.get("annotations").as_ref().is_some_and(is_repeatable)
}

fn says(annotations: &Json, hint: &str) -> bool {
    annotations.flag(hint)
}
