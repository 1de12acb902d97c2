//! The annotations of a tool (2026-07-28 server/tools, `ToolAnnotations`). They are hints from its
//! server.

use crate::json::Json;

/// Whether the annotations say that a call changes nothing.
pub fn is_read_only(annotations: &Json) -> bool {
    says(annotations, "readOnlyHint")
}

/// Whether the annotations say that a call changes nothing, or nothing more when repeated.
pub fn is_repeatable(annotations: &Json) -> bool {
    is_read_only(annotations) || says(annotations, "idempotentHint")
}

fn says(annotations: &Json, hint: &str) -> bool {
    annotations.flag(hint)
}
