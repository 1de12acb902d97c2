//! The operations of the API, and how each is written in OpenAPI.

use std::any::type_name;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::{RefOr, Schema};

use super::{requests, texts};
use crate::api::call::answers;
use crate::api::{
    approvals, audit, backend, catalogue, client_calls, connections, content, endpoints, limits,
    operations, overview, pins, recording, server_log, session, sessions, sign_in, tools, traces,
};
use crate::reply::Error;

/// An operation, with the schemas that it refers to.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) value: Value,
    schemas: Vec<(String, RefOr<Schema>)>,
}

/// The schemas of all operations, by name.
pub(super) fn schemas(operations: &[Operation]) -> BTreeMap<&str, &RefOr<Schema>> {
    let all = operations.iter().flat_map(|operation| &operation.schemas);
    all.map(|(name, schema)| (name.as_str(), schema)).collect()
}

fn get(path: &'static str, id: &str, summary: &str) -> Operation {
    Operation {
        method: "get",
        path,
        value: json!({"summary": summary, "operationId": id}),
        schemas: Vec::new(),
    }
}

fn post(path: &'static str, id: &str, summary: &str) -> Operation {
    Operation {
        method: "post",
        ..get(path, id, summary)
    }
}

impl Operation {
    fn description(mut self, text: &str) -> Self {
        self.value["description"] = json!(text);
        self
    }

    /// A parameter of the path or the query that is a text.
    fn text(self, name: &str, description: &str) -> Self {
        self.parameter::<String>(name, description)
    }

    /// A parameter: of the path if that has its name, or else of the query.
    fn parameter<T: ToSchema>(mut self, name: &str, description: &str) -> Self {
        let required = self.path.contains(&format!("{{{name}}}"));
        let place = if required { "path" } else { "query" };
        let parameter = json!({"name": name, "in": place, "description": description,
            "required": required, "schema": self.schema::<T>()});
        match &mut self.value["parameters"] {
            Value::Array(all) => all.push(parameter),
            none => *none = json!([parameter]),
        }
        self
    }

    fn body<T: ToSchema>(mut self) -> Self {
        let content = json!({"application/json": {"schema": self.schema::<T>()}});
        self.value["requestBody"] = json!({"content": content, "required": true});
        self
    }

    fn answer<T: ToSchema>(mut self, status: u16, description: &str) -> Self {
        let schema = self.schema::<T>();
        self.content(status, description, "application/json", &schema)
    }

    fn answer_list<T: ToSchema>(mut self, description: &str) -> Self {
        let schema = json!({"type": "array", "items": self.schema::<T>()});
        self.content(200, description, "application/json", &schema)
    }

    fn error(self, status: u16, description: &str) -> Self {
        self.answer::<Error>(status, description)
    }

    /// An answer that is a stream of events, if the client accepts one.
    fn stream(self, description: &str) -> Self {
        let schema = json!({"type": "string"});
        self.content(200, description, "text/event-stream", &schema)
    }

    /// An answer that is a stream of lines of JSON.
    fn lines(self, description: &str) -> Self {
        let schema = json!({"type": "string"});
        self.content(200, description, "application/x-ndjson", &schema)
    }

    fn content(mut self, status: u16, description: &str, kind: &str, schema: &Value) -> Self {
        let answer = &mut self.value["responses"][status.to_string()];
        answer["description"] = json!(description);
        answer["content"][kind] = json!({"schema": schema});
        self
    }

    /// The schema of a type. Types of this workspace are referred to by name.
    fn schema<T: ToSchema>(&mut self) -> Value {
        T::schemas(&mut self.schemas);
        if !type_name::<T>().starts_with("fanlight") {
            return json!(T::schema());
        }
        self.schemas.push((T::name().into_owned(), T::schema()));
        json!({"$ref": format!("#/components/schemas/{}", T::name())})
    }
}

/// The operations in the order of the routes.
pub(super) fn operations() -> Vec<Operation> {
    vec![
    get("/api/overview", "overview", "The state and figures of every server, and of the process.")
        .answer::<overview::Overview>(200, "The overview"),
    get("/api/traces", "traces_list", "The matching traces in the ring.")
        .text("backend", "Traces with a message to or from this server")
        .text("tool", "Traces with a call of this tool, by the name of the client or of the server")
        .text("method", "Traces with a message of this method; `connect` for connections to servers")
        .text("client", "Traces of clients with this text in their name or version")
        .text("principal", "Traces of clients whose identity has this name")
        .parameter::<traces::Outcome>("outcome", "Traces with this outcome")
        .parameter::<bool>("own", "Fanlight's own requests, such as lists, health checks and connections, or those of clients; both by default")
        .parameter::<bool>("error", "Traces with a failed span, or without")
        .text("text", "Traces with this text in their id, or in the name or an attribute of a span")
        .parameter::<f64>("since", "Traces that began at this time or later, in milliseconds")
        .parameter::<f64>("until", "Traces that began before this time, in milliseconds")
        .parameter::<f64>("minMs", "Traces that lasted at least this many milliseconds")
        .text("sort", "The traces that come first: `newest` (default) or `slowest`")
        .parameter::<u64>("before", "Traces that began before the trace with this `number`; only with `newest`")
        .parameter::<u64>("limit", "The limit of the list: 100 by default, at most 500")
        .answer::<traces::Traces>(200, "The traces")
        .error(400, "A parameter cannot be read"),
    get("/api/traces/{id}", "trace", "One trace as OTLP-JSON, as `POST /v1/traces` of a collector accepts it.")
        .text("id", "The id of the trace: 32 hexadecimal digits")
        .answer::<texts::Otlp>(200, "The trace")
        .error(404, "There is no such trace, or it was dropped"),
    get("/api/traces/{id}/recording", "record_trace", "One trace as a recording, as far as its content was kept.")
        .text("id", "The id of the trace: 32 hexadecimal digits")
        .lines("The lines of the recording (docs/recordings.md)")
        .error(404, "There is no such trace, or it was dropped")
        .error(409, "No content of the trace was kept"),
    get("/api/content", "content", "Which calls keep their content, and the times during which operators keep more.")
        .answer::<content::Contents>(200, "The level and the times"),
    post("/api/content", "keep_content", "Keeps the content of calls of this process for a time.")
        .body::<requests::ContentTime>()
        .answer::<content::Window>(200, "It is kept")
        .error(400, "The body cannot be used")
        .error(409, "The server or endpoint has `content` in the configuration, which holds"),
    get("/api/calls", "client_calls", "The running requests of clients, oldest first.")
        .parameter::<u64>("limit", "The limit of the list: 100 by default, at most 1000")
        .answer::<client_calls::ClientCalls>(200, "The requests")
        .error(400, "A parameter cannot be read"),
    post("/api/calls/{id}/cancel", "cancel_client_call", "Cancels a running request of a client, which gets the error -31006. The server may have carried it out.")
        .text("id", "The `spanId` of the request")
        .answer::<client_calls::ClientCallCancelled>(200, "It is cancelled")
        .error(404, "No such request runs"),
    get("/api/approvals", "approvals", "The calls that wait for approval, or were answered and not sent again yet.")
        .answer::<approvals::Approvals>(200, "The calls"),
    post("/api/approvals/{id}/{answer}", "answer_approval", "Approves or refuses a call. An approved call runs once, now or when its client sends it again.")
        .text("id", "The `id` of the question")
        .text("answer", "`approve` or `refuse`")
        .answer::<approvals::Answered>(200, "The answer has taken effect")
        .error(404, "There is no such question or answer")
        .error(409, "Somebody has already decided"),
    get("/api/audit", "audit_entries", "The newest matching entries of the audit log.")
        .text("principal", "Entries with this text in the principal or its name")
        .text("tool", "Entries about this tool, prompt or resource: `server/name` or `name`; `*` stands for any characters")
        .text("server", "Entries about this server")
        .text("action", "Entries about this method or this kind of change by an operator")
        .text("outcome", "Entries with this outcome")
        .text("task", "The call that began the task with this id, and requests about the task")
        .parameter::<f64>("since", "Entries from this time on, in milliseconds")
        .parameter::<f64>("until", "Entries up to this time, in milliseconds")
        .parameter::<usize>("limit", "The limit of the list: 100 by default, at most 1000")
        .answer::<audit::AuditEntries>(200, "The entries")
        .error(503, "The audit log cannot be read"),
    get("/api/usage", "usage_table", "The usage of each client by day, from the matching entries. The filters are the same as for `/api/audit`.")
        .text("principal", "Entries with this text in the principal or its name")
        .text("tool", "Entries about this tool, prompt or resource")
        .parameter::<f64>("since", "Entries from this time on, in milliseconds")
        .parameter::<f64>("until", "Entries up to this time, in milliseconds")
        .answer::<audit::UsageTable>(200, "The table")
        .error(503, "The audit log cannot be read"),
    get("/api/limits", "rate_limits", "The rate limits: allowed, queued and refused requests, and the heaviest users.")
        .parameter::<usize>("nearest", "How many of its heaviest users each limit lists: 10 by default, at most 100")
        .answer::<limits::LimitStates>(200, "The limits")
        .error(400, "A parameter cannot be read"),
    get("/api/pins", "pinned", "The definitions that differ from the approved ones.")
        .answer::<pins::Pins>(200, "The definitions"),
    post("/api/pins/{id}/approve", "approve_pinned", "Approves the definition that was listed under this id.")
        .text("id", "The `id` of the definition")
        .answer::<pins::PinApproved>(200, "It is approved")
        .error(404, "There is none")
        .error(503, "The approval cannot be written"),
    get("/api/connections", "connections", "Users' connections to servers whose users sign in.")
        .answer::<connections::Connections>(200, "The connections")
        .error(503, "The data of users cannot be read"),
    post("/api/connections/{id}/end", "end_connection", "Ends a connection: its tokens are revoked, and the user has to sign in again.")
        .text("id", "The `id` of the connection")
        .answer::<connections::ConnectionEnded>(200, "It has ended")
        .error(404, "There is none")
        .error(503, "The data of users cannot be read or changed"),
    get("/api/tools/statistics", "tool_statistics", "How often each tool was called in the last hour, the most called first.")
        .parameter::<u64>("limit", "The limit of tools: 100 by default, at most 1000")
        .answer::<tools::ToolStatistics>(200, "The figures")
        .error(400, "A parameter cannot be read"),
    get("/api/catalogue", "catalogue_lists", "The merged lists, with the server of each entry.")
        .text("kind", "`tools`, `resources`, `resourceTemplates`, `prompts` or `skills`; all by default")
        .text("endpoint", "The path of the endpoint whose clients see these lists")
        .answer::<catalogue::Catalogue>(200, "The lists")
        .error(400, "A parameter cannot be read"),
    get("/api/endpoints", "endpoints", "The endpoints in the order of the configuration.")
        .answer::<endpoints::Endpoints>(200, "The endpoints"),
    get("/api/sessions", "sessions", "Sessions of clients up to 2025-11-25, and suspended calls of clients of 2026-07-28.")
        .parameter::<u64>("limit", "The limit of each list: 200 by default")
        .answer::<sessions::Sessions>(200, "The sessions and calls")
        .error(400, "A parameter cannot be read"),
    get("/api/config", "config", "The configuration in force, with defaults and without secrets, and its history.")
        .answer::<texts::InForce>(200, "The configuration"),
    get("/api/connect", "connect", "The entry for this gateway in the configuration of each client.")
        .answer_list::<texts::ClientEntry>("The entries"),
    get("/api/backends", "backends", "The state of every server.")
        .answer::<overview::Backends>(200, "The servers"),
    get("/api/backends/{name}", "backend", "A server's description, and the history of its state.")
        .text("name", "The server, by its name in the configuration")
        .answer::<backend::BackendDetails>(200, "The server")
        .error(404, "No server has this name"),
    get("/api/backends/{name}/log", "backend_log", "The standard error of a server's processes, and lines on standard output that are not messages.")
        .text("name", "The server, by its name in the configuration")
        .text("follow", "If present, the answer is a stream of events `line` with these lines and all further ones")
        .answer::<server_log::ServerLog>(200, "The last lines")
        .stream("The last lines")
        .error(404, "No server has this name")
        .error(503, "The limit of open streams is reached"),
    get("/api/servers/{name}/log", "server_log", "The same as `/api/backends/{name}/log`.")
        .text("name", "The server, by its name in the configuration")
        .text("follow", "If present, the answer is a stream of events `line` with these lines and all further ones")
        .answer::<server_log::ServerLog>(200, "The last lines")
        .stream("The last lines")
        .error(404, "No server has this name")
        .error(503, "The limit of open streams is reached"),
    get("/api/log", "all_logs", "The logs of all servers' processes, oldest line first.")
        .text("follow", "If present, the answer is a stream of events `line` with these lines and all further ones")
        .answer::<server_log::AllLogs>(200, "The last lines")
        .stream("The last lines")
        .error(503, "The limit of open streams is reached"),
    get("/api/events", "events", "The overview and new traces, as server-sent events: `overview`, `traces` and `missed`.")
        .description("The filters of `/api/traces` choose the traces.")
        .stream("The stream")
        .error(400, "A parameter cannot be read")
        .error(503, "The limit of open streams is reached"),
    post("/api/call", "call_one", "Sends one request through the gateway, as a client does, and returns the server's answer.")
        .description("With `Accept: text/event-stream` the operator attends the call. Events have its progress and the server's questions. The last one, `answer`, has the answer.")
        .body::<requests::Call>()
        .answer::<texts::Called>(200, "The call was made")
        .stream("The call was made")
        .error(400, "The body cannot be used")
        .error(503, "The limit of calls that this operator attends is reached"),
    post("/api/call/answer", "answer_call", "Answers a question of a call that the operator attends.")
        .body::<requests::CallAnswer>()
        .answer::<answers::CallChanged>(200, "The server gets the answer")
        .error(400, "The body cannot be used")
        .error(404, "The question is not open, or another operator attends the call"),
    post("/api/call/cancel", "cancel_call", "Cancels a call that the operator attends. The server may have carried it out.")
        .body::<requests::CallCancelled>()
        .answer::<answers::CallChanged>(200, "It is cancelled")
        .error(400, "The body cannot be used")
        .error(404, "This operator has no such running call"),
    post("/api/sessions/{digest}/end", "end_session", "Ends a session over HTTP, and cancels its requests.")
        .text("digest", "The digest of the session's id")
        .answer::<operations::SessionEnded>(200, "It has ended")
        .error(404, "There is none"),
    post("/api/recording", "record", "Records the messages of both sides, until the client disconnects.")
        .body::<requests::RecordingAsked>()
        .lines("The lines of the recording (docs/recordings.md)")
        .error(400, "The body cannot be read")
        .error(404, "There is no such server or endpoint")
        .error(409, "Another recording runs")
        .error(503, "Too many streams are open, or there are no traces to tell one endpoint"),
    post("/api/recording/end", "end_recording", "Ends the running recording, whose reader gets the rest and the last line.")
        .answer::<recording::RecordingEnded>(200, "None goes on"),
    post("/api/reload", "reload", "Reloads the configuration.")
        .answer::<texts::Reloaded>(200, "The configuration is in force, or has not changed")
        .answer::<texts::Reloaded>(422, "The configuration is invalid; nothing has changed"),
    post("/api/servers/{name}/{action}", "server", "Switches a server on or off until Fanlight restarts, or restarts the server.")
        .text("name", "The server, by its name in the configuration")
        .text("action", "`enable`, `disable` or `restart`")
        .answer::<operations::ServerChanged>(200, "Done")
        .error(404, "The server is not configured, or a server to restart is not enabled"),
    get("/api/session", "session_of", "The identity of the request's operator, and the ways to sign in.")
        .answer::<session::Session>(200, "Who it is"),
    post("/api/session", "sign_in", "Signs in with a token, and sets the cookie of the session.")
        .body::<requests::Token>()
        .answer::<session::Session>(200, "Signed in")
        .error(401, "The token is wrong"),
    post("/api/session/end", "sign_out", "Signs out.")
        .answer::<session::Session>(200, "Signed out")
        .error(503, "The other replicas cannot be told at the moment"),
    post("/api/session/issuer", "begin_sign_in", "Begins a sign-in at an issuer of `auth`.")
        .body::<requests::Issuer>()
        .answer::<sign_in::Location>(200, "Where the browser goes")
        .error(400, "`issuer` is not a string")
        .error(404, "Operators do not sign in at this issuer"),
    post("/api/session/issuer/answer", "finish_sign_in", "Ends a sign-in with the answer of the issuer.")
        .body::<requests::IssuerAnswer>()
        .answer::<session::Session>(200, "Signed in")
        .error(400, "`query` is not a string")
        .error(401, "This browser did not begin the sign-in, or the issuer's answer is invalid"),
    get("/api/openapi.json", "openapi", "This description.")
        .answer::<Value>(200, "The description"),
    ]
}
