//! Records the content of calls where the configuration allows it: arguments, results, and the
//! arguments of prompts.

use fanlight_protocol::{Json, Method, Response};

use crate::backend::ContentPolicy;
use crate::record::Record;
use crate::redact;

/// Bytes recorded of the arguments, and of the result, of a tool call.
const MAX_BYTES: usize = 4 << 10;

/// Whether the content of messages of this method can be recorded.
pub(crate) fn has_content(method: &Method) -> bool {
    matches!(method, Method::CallTool | Method::GetPrompt)
}

/// Records the arguments in `params`, if that is switched on.
pub(crate) fn record_arguments(
    span: &Record,
    policy: ContentPolicy,
    method: &Method,
    params: &Json,
) {
    if !policy.arguments || !has_content(method) {
        return;
    }
    let Some(arguments) = params.get("arguments") else {
        return;
    };
    span.update(|fields| match method {
        Method::GetPrompt => {
            fields.optional().variables = redact::redacted_members(&arguments, MAX_BYTES);
        }
        _ => fields.optional().arguments = Some(redact::redacted(&arguments, MAX_BYTES)),
    });
}

/// Records the result of a tool call, if that is switched on.
pub(crate) fn record_result(
    span: &Record,
    policy: ContentPolicy,
    method: &Method,
    answer: &Response,
) {
    if !policy.results || *method != Method::CallTool {
        return;
    }
    if let Some(result) = answer.result() {
        span.update(|fields| fields.optional().result = Some(redact::redacted(&result, MAX_BYTES)));
    }
}
