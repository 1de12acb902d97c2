//! The definition of the schemas for each method, in one table for all revisions. A definition has
//! the same name in all revisions that have it; a revision's schema shows whether it does.

/// A request's method, its definition, and its result's definition.
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) request: &'static str,
    pub(super) result: &'static str,
}

const fn request(method: &'static str, request: &'static str, result: &'static str) -> Request {
    Request {
        method,
        request,
        result,
    }
}

const REQUESTS: [Request; 23] = [
    request("initialize", "InitializeRequest", "InitializeResult"),
    request("ping", "PingRequest", "EmptyResult"),
    request("server/discover", "DiscoverRequest", "DiscoverResult"),
    request("tools/list", "ListToolsRequest", "ListToolsResult"),
    request("tools/call", "CallToolRequest", "CallToolResult"),
    request(
        "resources/list",
        "ListResourcesRequest",
        "ListResourcesResult",
    ),
    request(
        "resources/templates/list",
        "ListResourceTemplatesRequest",
        "ListResourceTemplatesResult",
    ),
    request(
        "resources/read",
        "ReadResourceRequest",
        "ReadResourceResult",
    ),
    request("resources/subscribe", "SubscribeRequest", "EmptyResult"),
    request("resources/unsubscribe", "UnsubscribeRequest", "EmptyResult"),
    request(
        "subscriptions/listen",
        "SubscriptionsListenRequest",
        "SubscriptionsListenResult",
    ),
    request("prompts/list", "ListPromptsRequest", "ListPromptsResult"),
    request("prompts/get", "GetPromptRequest", "GetPromptResult"),
    request("completion/complete", "CompleteRequest", "CompleteResult"),
    request("logging/setLevel", "SetLevelRequest", "EmptyResult"),
    request(
        "sampling/createMessage",
        "CreateMessageRequest",
        "CreateMessageResult",
    ),
    request("elicitation/create", "ElicitRequest", "ElicitResult"),
    request("roots/list", "ListRootsRequest", "ListRootsResult"),
    request("tasks/get", "GetTaskRequest", "GetTaskResult"),
    request(
        "tasks/result",
        "GetTaskPayloadRequest",
        "GetTaskPayloadResult",
    ),
    request("tasks/list", "ListTasksRequest", "ListTasksResult"),
    request("tasks/cancel", "CancelTaskRequest", "CancelTaskResult"),
    request("tasks/update", "UpdateTaskRequest", "UpdateTaskResult"),
];

/// A notification's method and its definition.
const NOTIFICATIONS: [(&str, &str); 13] = [
    ("notifications/initialized", "InitializedNotification"),
    ("notifications/cancelled", "CancelledNotification"),
    ("notifications/progress", "ProgressNotification"),
    ("notifications/message", "LoggingMessageNotification"),
    (
        "notifications/tools/list_changed",
        "ToolListChangedNotification",
    ),
    (
        "notifications/prompts/list_changed",
        "PromptListChangedNotification",
    ),
    (
        "notifications/resources/list_changed",
        "ResourceListChangedNotification",
    ),
    (
        "notifications/resources/updated",
        "ResourceUpdatedNotification",
    ),
    (
        "notifications/roots/list_changed",
        "RootsListChangedNotification",
    ),
    (
        "notifications/elicitation/complete",
        "ElicitationCompleteNotification",
    ),
    (
        "notifications/subscriptions/acknowledged",
        "SubscriptionsAcknowledgedNotification",
    ),
    ("notifications/tasks/status", "TaskStatusNotification"),
    ("notifications/tasks", "TaskStatusNotification"),
];

pub(super) fn request_of(method: &str) -> Option<&'static Request> {
    REQUESTS.iter().find(|request| request.method == method)
}

pub(super) fn notification_of(method: &str) -> Option<&'static str> {
    NOTIFICATIONS
        .iter()
        .find(|(known, _)| *known == method)
        .map(|(_, definition)| *definition)
}

/// The definition of a whole error response; the newest revision has one for each error code.
pub(super) fn error_of(code: Option<i64>) -> &'static [&'static str] {
    match code {
        Some(-32020) => &[
            "HeaderMismatchError",
            "JSONRPCErrorResponse",
            "JSONRPCError",
        ],
        Some(-32021) => &[
            "MissingRequiredClientCapabilityError",
            "JSONRPCErrorResponse",
            "JSONRPCError",
        ],
        Some(-32022) => &[
            "UnsupportedProtocolVersionError",
            "JSONRPCErrorResponse",
            "JSONRPCError",
        ],
        Some(-32042) => &[
            "URLElicitationRequiredError",
            "JSONRPCErrorResponse",
            "JSONRPCError",
        ],
        _ => &["JSONRPCErrorResponse", "JSONRPCError"],
    }
}

#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    let requests = REQUESTS
        .iter()
        .flat_map(|request| [request.request, request.result]);
    requests.chain(NOTIFICATIONS.iter().map(|(_, definition)| *definition))
}
