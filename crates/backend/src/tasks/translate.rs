//! Translates the JSON of tasks between the dialects.
//!
//! It edits only the members that differ: `ttl` and `ttlMs`, `pollInterval` and `pollIntervalMs`,
//! the object around a task, and the inlined outcome. All others keep their bytes. Task ids never
//! change.

use fanlight_protocol::json::{Edits, Member, ObjectBuilder, quote, rewrite_object};
use fanlight_protocol::{Json, Message, Method, Notification, meta};

/// Members that the extension adds to a task.
const INLINED: [&str; 4] = ["resultType", "result", "error", "inputRequests"];
const TO_LEGACY: [(&str, &str); 2] = [("ttlMs", "ttl"), ("pollIntervalMs", "pollInterval")];
const TO_EXTENSION: [(&str, &str); 2] = [("ttl", "ttlMs"), ("pollInterval", "pollIntervalMs")];

/// The status of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Working, or an unknown status.
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl Status {
    /// The status in a task's text.
    pub(super) fn read(task: &Json) -> Self {
        match task.text_at("status").as_deref() {
            Some("input_required") => Self::InputRequired,
            Some("completed") => Self::Completed,
            Some("failed") => Self::Failed,
            Some("cancelled") => Self::Cancelled,
            _ => Self::Working,
        }
    }

    pub(super) fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// The data that the extension inlines into a task.
#[derive(Clone, Debug)]
pub(super) enum Inlined {
    Nothing,
    /// The final result.
    Result(Json),
    /// The JSON-RPC error that ended the request.
    Error(Json),
    /// The open server requests, by key.
    InputRequests(Json),
}

/// The `params` of a call with a request for a task.
pub(super) fn with_task(params: Option<&Json>) -> Json {
    let params = params.cloned().unwrap_or_else(Json::empty_object);
    if params.get("task").is_some() {
        params
    } else {
        params.with_member("task", &Json::empty_object())
    }
}

/// The `params` of a call without a request for a task.
pub(super) fn without_task(params: &Json) -> Json {
    params.without_members(&["task"])
}

/// A client's capabilities with the tasks extension.
pub(super) fn with_extension(capabilities: &Json) -> Json {
    capabilities.with_nested("extensions", meta::TASKS_EXTENSION, &Json::empty_object())
}

/// Translates the extension's `CreateTaskResult` to 2025-11-25: members move into `task`, `_meta`
/// stays.
pub(super) fn created_to_legacy(result: &Json) -> Json {
    let task = renamed(result, &TO_LEGACY);
    ObjectBuilder::new()
        .member("task", &task.without_members(&["resultType", "_meta"]))
        .optional("_meta", result.get("_meta").as_ref())
        .finish()
}

/// Translates the 2025-11-25 `CreateTaskResult` to the extension's; `None` if it contains no task.
pub(super) fn created_to_extension(result: &Json) -> Option<Json> {
    let task = result.get("task").filter(Json::is_object)?;
    let task = extension_task(&task);
    let outer: Vec<_> = result
        .members()
        .filter_map(|member| member.name(result))
        .collect();
    let is_outer = |member: &Member| member.name(&task).is_some_and(|name| outer.contains(&name));
    let inner = rewrite_object(&task, |member| !is_outer(member), b"");
    let mut added = br#""resultType":"task""#.to_vec();
    if inner.has_members() {
        added.push(b',');
        added.extend_from_slice(inner.inner_text());
    }
    let replaced = |member: &Member| member.is(result, "task") || member.is(result, "resultType");
    Some(rewrite_object(result, |member| !replaced(member), &added))
}

/// Translates the extension's `DetailedTask` to a 2025-11-25 `Task`, where a tool's own error
/// counts as the task's failure (Task Status).
pub(super) fn task_to_legacy(detailed: &Json) -> Json {
    let result = detailed.get("result");
    let is_error = result.is_some_and(|result| result.flag("isError"));
    let mut task = renamed(detailed, &TO_LEGACY);
    if is_error && Status::read(&task) == Status::Completed {
        task = with_status(&task, "failed");
    }
    task.without_members(&INLINED)
}

/// Translates a 2025-11-25 `Task` to the extension's `DetailedTask`. A result makes it completed,
/// even a tool's error; a JSON-RPC error makes it failed (the extension, Task Status).
pub(super) fn task_to_extension(task: &Json, inlined: &Inlined) -> Json {
    let task = extension_task(task).without_members(&INLINED);
    match inlined {
        Inlined::Nothing => task,
        Inlined::Result(result) => with_status(&task, "completed").with_member("result", result),
        Inlined::Error(error) => with_status(&task, "failed").with_member("error", error),
        Inlined::InputRequests(requests) => task.with_member("inputRequests", requests),
    }
}

/// A result of the extension with its `resultType`.
pub(super) fn complete(result: &Json) -> Json {
    result.with_member("resultType", &Json::string("complete"))
}

/// The result without `resultType`, for the params of a notification.
pub(super) fn without_type(result: &Json) -> Json {
    result.without_members(&["resultType"])
}

/// Names the task in the `_meta` of a result or `params` that belongs to it, as 2025-11-25 demands
/// (Related Task Metadata). An object that already names a task does not change.
pub(super) fn with_related_task(object: &Json, id: &Json) -> Json {
    let task = ObjectBuilder::new().member("taskId", id).finish();
    object.with_nested("_meta", meta::RELATED_TASK, &task)
}

/// The notification with another method and other params; its other members stay.
pub(super) fn with_method(
    notification: &Notification,
    method: &Method,
    params: &Json,
) -> Option<Notification> {
    let text = &notification.text;
    let mut edits = Edits::new(text.bytes().clone());
    for member in text.members() {
        if member.is(text, "method") {
            edits.replace(member.value, quote(method.as_str()));
        } else if member.is(text, "params") {
            edits.replace(member.value, params.bytes().clone());
        }
    }
    // The params come from a message whose nesting was limited.
    match Message::parse(edits.finish_json().into_bytes(), usize::MAX) {
        Ok(Message::Notification(notification)) => Some(notification),
        _ => None,
    }
}

/// Renames a task's members to the extension's names. `ttlMs` is required there.
fn extension_task(task: &Json) -> Json {
    let task = renamed(task, &TO_EXTENSION);
    if task.get("ttlMs").is_some() {
        task
    } else {
        task.with_member("ttlMs", &Json::null())
    }
}

/// Renames members of an object. A member that already has the new name is removed.
fn renamed(object: &Json, names: &[(&str, &str); 2]) -> Json {
    let taken = |member: &Member| {
        names.iter().any(|(from, to)| {
            member.is(object, to) && object.members().any(|other| other.is(object, from))
        })
    };
    let object = if object.members().any(|member| taken(&member)) {
        rewrite_object(object, |member| !taken(member), b"")
    } else {
        object.clone()
    };
    let mut edits = Edits::new(object.bytes().clone());
    for member in object.members() {
        if let Some((_, to)) = names.iter().find(|(from, _)| member.is(&object, from)) {
            edits.replace(member.key, quote(to));
        }
    }
    edits.finish_json()
}

fn with_status(task: &Json, status: &str) -> Json {
    match task.place("status") {
        Some(place) => task.with(place, &Json::string(status)),
        None => task.clone(),
    }
}

#[cfg(test)]
mod tests;
