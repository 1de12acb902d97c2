//! What the annotations of a tool say (2026-07-28 server/tools, `ToolAnnotations`). Its server says so: they are hints.

use crate::json::Json;

/// Whether they say that a call changes nothing.
#[must_use]
pub fn is_read_only(annotations: &Json) -> bool {
    says(annotations, "readOnlyHint")
}

/// Whether they say that a call changes nothing, or nothing more the second time.
#[must_use]
pub fn is_repeatable(annotations: &Json) -> bool {
    is_read_only(annotations) || says(annotations, "idempotentHint")
}

fn says(annotations: &Json, hint: &str) -> bool {
    annotations.get(hint).is_some_and(|hint| hint.is_true())
}
