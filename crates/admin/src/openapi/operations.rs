//! The operations of the API. Each is an empty function with a descriptive attribute.

#![expect(dead_code, reason = "the attributes of the functions are read")]

use utoipa::OpenApi;

use super::{requests, texts};
use crate::api::call::answers;
use crate::api::{
    approvals, audit, backend, catalogue, client_calls, connections, endpoints, limits, operations,
    overview, pins, server_log, session, sessions, sign_in, tools, traces,
};
use crate::reply::Error;

/// The operations, with the schemas that they use.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Fanlight's API for operators",
        version = "1",
        description = "The API that the page of the admin listener uses. Later versions may add members. Members that end in \
                       `Ms` are milliseconds; points in time count from the Unix epoch. Unknown values are null.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    servers((url = "http://127.0.0.1:8081", description = "The default address of the admin listener")),
    paths(
        overview, traces_list, trace, client_calls, cancel_client_call, approvals, answer_approval, audit_entries, usage_table, rate_limits, pinned, approve_pinned, connections, end_connection, tool_statistics, catalogue_lists, endpoints, sessions, config, connect, backends, backend, backend_log, server_log, all_logs, events,
        call_one, answer_call, cancel_call, end_session, reload, server, session_of, sign_in, sign_out, begin_sign_in, finish_sign_in, openapi
    ),
    components(schemas(Error))
)]
pub(super) struct Operations;

/// The state and figures of every server, and of the process.
#[utoipa::path(get, path = "/api/overview", responses((status = 200, description = "The overview", body = overview::Overview)))]
fn overview() {}

/// The matching traces in the ring.
#[utoipa::path(get, path = "/api/traces",
    params(
        ("backend" = Option<String>, Query, description = "Traces with a message to or from this server"),
        ("tool" = Option<String>, Query, description = "Traces with a call of this tool, by the name of the client or of the server"),
        ("method" = Option<String>, Query, description = "Traces with a message of this method; `connect` for connections to servers"),
        ("client" = Option<String>, Query, description = "Traces of clients with this text in their name or version"),
        ("principal" = Option<String>, Query, description = "Traces of clients whose identity has this name"),
        ("outcome" = Option<traces::Outcome>, Query, description = "Traces with this outcome"),
        ("error" = Option<bool>, Query, description = "Traces with a failed span, or without"),
        ("text" = Option<String>, Query, description = "Traces with this text in their id, or in the name or an attribute of a span"),
        ("since" = Option<f64>, Query, description = "Traces that began at this time or later, in milliseconds"),
        ("until" = Option<f64>, Query, description = "Traces that began before this time, in milliseconds"),
        ("minMs" = Option<f64>, Query, description = "Traces that lasted at least this many milliseconds"),
        ("sort" = Option<String>, Query, description = "The traces that come first: `newest` (default) or `slowest`"),
        ("before" = Option<u64>, Query, description = "Traces that began before the trace with this `number`; only with `newest`"),
        ("limit" = Option<u64>, Query, description = "The limit of the list: 100 by default, at most 500"),
    ),
    responses(
        (status = 200, description = "The traces", body = traces::Traces),
        (status = 400, description = "A parameter cannot be read", body = Error),
    ))]
fn traces_list() {}

/// One trace as OTLP-JSON, as `POST /v1/traces` of a collector accepts it.
#[utoipa::path(get, path = "/api/traces/{id}",
    params(("id" = String, Path, description = "The id of the trace: 32 hexadecimal digits")),
    responses(
        (status = 200, description = "The trace", body = texts::Otlp),
        (status = 404, description = "There is no such trace, or it was dropped", body = Error),
    ))]
fn trace() {}

/// The running requests of clients, oldest first.
#[utoipa::path(get, path = "/api/calls",
    params(("limit" = Option<u64>, Query, description = "The limit of the list: 100 by default, at most 1000")),
    responses(
        (status = 200, description = "The requests", body = client_calls::ClientCalls),
        (status = 400, description = "A parameter cannot be read", body = Error),
    ))]
fn client_calls() {}

/// Cancels a running request of a client, which gets the error -31006. The server may have carried
/// it out.
#[utoipa::path(post, path = "/api/calls/{id}/cancel",
    params(("id" = String, Path, description = "The `spanId` of the request")),
    responses(
        (status = 200, description = "It is cancelled", body = client_calls::ClientCallCancelled),
        (status = 404, description = "No such request runs", body = Error),
    ))]
fn cancel_client_call() {}

/// The calls that wait for approval, or were answered and not sent again yet.
#[utoipa::path(get, path = "/api/approvals", responses((status = 200, description = "The calls", body = approvals::Approvals)))]
fn approvals() {}

/// Approves or refuses a call. An approved call runs once, now or when its client sends it again.
#[utoipa::path(post, path = "/api/approvals/{id}/{answer}",
    params(
        ("id" = String, Path, description = "The `id` of the question"),
        ("answer" = String, Path, description = "`approve` or `refuse`"),
    ),
    responses(
        (status = 200, description = "The answer has taken effect", body = approvals::Answered),
        (status = 404, description = "There is no such question or answer", body = Error),
        (status = 409, description = "Somebody has already decided", body = Error),
    ))]
fn answer_approval() {}

/// The newest matching entries of the audit log.
#[utoipa::path(get, path = "/api/audit",
    params(
        ("principal" = Option<String>, Query, description = "Entries with this text in the principal or its name"),
        ("tool" = Option<String>, Query, description = "Entries about this tool, prompt or resource: `server/name` or `name`; `*` stands for any characters"),
        ("server" = Option<String>, Query, description = "Entries about this server"),
        ("action" = Option<String>, Query, description = "Entries about this method or this kind of change by an operator"),
        ("outcome" = Option<String>, Query, description = "Entries with this outcome"),
        ("task" = Option<String>, Query, description = "The call that began the task with this id, and requests about the task"),
        ("since" = Option<f64>, Query, description = "Entries from this time on, in milliseconds"),
        ("until" = Option<f64>, Query, description = "Entries up to this time, in milliseconds"),
        ("limit" = Option<usize>, Query, description = "The limit of the list: 100 by default, at most 1000"),
    ),
    responses(
        (status = 200, description = "The entries", body = audit::AuditEntries),
        (status = 503, description = "The audit log cannot be read", body = Error),
    ))]
fn audit_entries() {}

/// The usage of each client by day, from the matching entries. The filters are the same as for
/// `/api/audit`.
#[utoipa::path(get, path = "/api/usage",
    params(
        ("principal" = Option<String>, Query, description = "Entries with this text in the principal or its name"),
        ("tool" = Option<String>, Query, description = "Entries about this tool, prompt or resource"),
        ("since" = Option<f64>, Query, description = "Entries from this time on, in milliseconds"),
        ("until" = Option<f64>, Query, description = "Entries up to this time, in milliseconds"),
    ),
    responses(
        (status = 200, description = "The table", body = audit::UsageTable),
        (status = 503, description = "The audit log cannot be read", body = Error),
    ))]
fn usage_table() {}

/// The rate limits: allowed, queued and refused requests, and the heaviest users.
#[utoipa::path(get, path = "/api/limits",
    params(("nearest" = Option<usize>, Query, description = "How many of its heaviest users each limit lists: 10 by default, at most 100")),
    responses(
        (status = 200, description = "The limits", body = limits::LimitStates),
        (status = 400, description = "A parameter cannot be read", body = Error),
    ))]
fn rate_limits() {}

/// The definitions that differ from the approved ones.
#[utoipa::path(get, path = "/api/pins", responses((status = 200, description = "The definitions", body = pins::Pins)))]
fn pinned() {}

/// Approves the definition that was listed under this id.
#[utoipa::path(post, path = "/api/pins/{id}/approve",
    params(("id" = String, Path, description = "The `id` of the definition")),
    responses(
        (status = 200, description = "It is approved", body = pins::PinApproved),
        (status = 404, description = "There is none", body = Error),
        (status = 503, description = "The approval cannot be written", body = Error),
    ))]
fn approve_pinned() {}

/// Users' connections to servers whose users sign in.
#[utoipa::path(get, path = "/api/connections", responses(
    (status = 200, description = "The connections", body = connections::Connections),
    (status = 503, description = "The data of users cannot be read", body = Error),
))]
fn connections() {}

/// Ends a connection: its tokens are revoked, and the user has to sign in again.
#[utoipa::path(post, path = "/api/connections/{id}/end",
    params(("id" = String, Path, description = "The `id` of the connection")),
    responses(
        (status = 200, description = "It has ended", body = connections::ConnectionEnded),
        (status = 404, description = "There is none", body = Error),
        (status = 503, description = "The data of users cannot be read or changed", body = Error),
    ))]
fn end_connection() {}

/// How often each tool was called in the last hour, the most called first.
#[utoipa::path(get, path = "/api/tools/statistics",
    params(("limit" = Option<u64>, Query, description = "The limit of tools: 100 by default, at most 1000")),
    responses(
        (status = 200, description = "The figures", body = tools::ToolStatistics),
        (status = 400, description = "A parameter cannot be read", body = Error),
    ))]
fn tool_statistics() {}

/// The merged lists, with the server of each entry.
#[utoipa::path(get, path = "/api/catalogue",
    params(
        ("kind" = Option<String>, Query, description = "`tools`, `resources`, `resourceTemplates`, `prompts` or `skills`; all by default"),
        ("endpoint" = Option<String>, Query, description = "The path of the endpoint whose clients see these lists"),
    ),
    responses(
        (status = 200, description = "The lists", body = catalogue::Catalogue),
        (status = 400, description = "A parameter cannot be read", body = Error),
    ))]
fn catalogue_lists() {}

/// The endpoints in the order of the configuration.
#[utoipa::path(get, path = "/api/endpoints", responses((status = 200, description = "The endpoints", body = endpoints::Endpoints)))]
fn endpoints() {}

/// Sessions of clients up to 2025-11-25, and suspended calls of clients of 2026-07-28.
#[utoipa::path(get, path = "/api/sessions",
    params(("limit" = Option<u64>, Query, description = "The limit of each list: 200 by default")),
    responses(
        (status = 200, description = "The sessions and calls", body = sessions::Sessions),
        (status = 400, description = "A parameter cannot be read", body = Error),
    ))]
fn sessions() {}

/// The configuration in force, with defaults and without secrets, and its history.
#[utoipa::path(get, path = "/api/config", responses((status = 200, description = "The configuration", body = texts::InForce)))]
fn config() {}

/// The entry for this gateway in the configuration of each client.
#[utoipa::path(get, path = "/api/connect",
    responses((status = 200, description = "The entries", body = Vec<texts::ClientEntry>)))]
fn connect() {}

/// The state of every server.
#[utoipa::path(get, path = "/api/backends", responses((status = 200, description = "The servers", body = overview::Backends)))]
fn backends() {}

/// A server's description, and the history of its state.
#[utoipa::path(get, path = "/api/backends/{name}",
    params(("name" = String, Path, description = "The server, by its name in the configuration")),
    responses(
        (status = 200, description = "The server", body = backend::BackendDetails),
        (status = 404, description = "No server has this name", body = Error),
    ))]
fn backend() {}

/// The standard error of a server's processes, and lines on standard output that are not messages.
#[utoipa::path(get, path = "/api/backends/{name}/log",
    params(
        ("name" = String, Path, description = "The server, by its name in the configuration"),
        ("follow" = Option<String>, Query, description = "If present, the answer is a stream of events `line` with these lines and all further ones"),
    ),
    responses(
        (status = 200, description = "The last lines", content(
            (server_log::ServerLog = "application/json"), (String = "text/event-stream"),
        )),
        (status = 404, description = "No server has this name", body = Error),
        (status = 503, description = "The limit of open streams is reached", body = Error),
    ))]
fn backend_log() {}

/// The same as `/api/backends/{name}/log`.
#[utoipa::path(get, path = "/api/servers/{name}/log",
    params(
        ("name" = String, Path, description = "The server, by its name in the configuration"),
        ("follow" = Option<String>, Query, description = "If present, the answer is a stream of events `line` with these lines and all further ones"),
    ),
    responses(
        (status = 200, description = "The last lines", content(
            (server_log::ServerLog = "application/json"), (String = "text/event-stream"),
        )),
        (status = 404, description = "No server has this name", body = Error),
        (status = 503, description = "The limit of open streams is reached", body = Error),
    ))]
fn server_log() {}

/// The logs of all servers' processes, oldest line first.
#[utoipa::path(get, path = "/api/log",
    params(("follow" = Option<String>, Query, description = "If present, the answer is a stream of events `line` with these lines and all further ones")),
    responses(
        (status = 200, description = "The last lines", content(
            (server_log::AllLogs = "application/json"), (String = "text/event-stream"),
        )),
        (status = 503, description = "The limit of open streams is reached", body = Error),
    ))]
fn all_logs() {}

/// The overview and new traces, as server-sent events: `overview`, `traces` and `missed`.
#[utoipa::path(get, path = "/api/events",
    responses(
        (status = 200, description = "The stream", content_type = "text/event-stream", body = String),
        (status = 503, description = "The limit of open streams is reached", body = Error),
    ))]
fn events() {}

/// Sends one request through the gateway, as a client does, and returns the server's answer.
///
/// With `Accept: text/event-stream` the operator attends the call. Events have its progress and the
/// server's questions. The last one, `answer`, has the answer.
#[utoipa::path(post, path = "/api/call", request_body = requests::Call,
    responses(
        (status = 200, description = "The call was made", content(
            (texts::Called = "application/json"), (String = "text/event-stream"),
        )),
        (status = 400, description = "The body cannot be used", body = Error),
        (status = 503, description = "The limit of calls that this operator attends is reached", body = Error),
    ))]
fn call_one() {}

/// Answers a question of a call that the operator attends.
#[utoipa::path(post, path = "/api/call/answer", request_body = requests::CallAnswer,
    responses(
        (status = 200, description = "The server gets the answer", body = answers::CallChanged),
        (status = 400, description = "The body cannot be used", body = Error),
        (status = 404, description = "The question is not open, or another operator attends the call", body = Error),
    ))]
fn answer_call() {}

/// Cancels a call that the operator attends. The server may have carried it out.
#[utoipa::path(post, path = "/api/call/cancel", request_body = requests::CallCancelled,
    responses(
        (status = 200, description = "It is cancelled", body = answers::CallChanged),
        (status = 400, description = "The body cannot be used", body = Error),
        (status = 404, description = "This operator has no such running call", body = Error),
    ))]
fn cancel_call() {}

/// Ends a session over HTTP, and cancels its requests.
#[utoipa::path(post, path = "/api/sessions/{digest}/end",
    params(("digest" = String, Path, description = "The digest of the session's id")),
    responses(
        (status = 200, description = "It has ended", body = operations::SessionEnded),
        (status = 404, description = "There is none", body = Error),
    ))]
fn end_session() {}

/// Reloads the configuration.
#[utoipa::path(post, path = "/api/reload",
    responses(
        (status = 200, description = "The configuration is in force, or has not changed", body = texts::Reloaded),
        (status = 422, description = "The configuration is invalid; nothing has changed", body = texts::Reloaded),
    ))]
fn reload() {}

/// Switches a server on or off until Fanlight restarts, or restarts the server.
#[utoipa::path(post, path = "/api/servers/{name}/{action}",
    params(
        ("name" = String, Path, description = "The server, by its name in the configuration"),
        ("action" = String, Path, description = "`enable`, `disable` or `restart`"),
    ),
    responses(
        (status = 200, description = "Done", body = operations::ServerChanged),
        (status = 404, description = "The server is not configured, or a server to restart is not enabled", body = Error),
    ))]
fn server() {}

/// The identity of the request's operator, and the ways to sign in.
#[utoipa::path(get, path = "/api/session", responses((status = 200, description = "Who it is", body = session::Session)))]
fn session_of() {}

/// Signs in with a token, and sets the cookie of the session.
#[utoipa::path(post, path = "/api/session", request_body = requests::Token,
    responses(
        (status = 200, description = "Signed in", body = session::Session),
        (status = 401, description = "The token is wrong", body = Error),
    ))]
fn sign_in() {}

/// Signs out.
#[utoipa::path(post, path = "/api/session/end", responses((status = 200, description = "Signed out", body = session::Session)))]
fn sign_out() {}

/// Begins a sign-in at an issuer of `auth`.
#[utoipa::path(post, path = "/api/session/issuer", request_body = requests::Issuer,
    responses(
        (status = 200, description = "Where the browser goes", body = sign_in::Location),
        (status = 400, description = "`issuer` is not a string", body = Error),
        (status = 404, description = "Operators do not sign in at this issuer", body = Error),
    ))]
fn begin_sign_in() {}

/// Ends a sign-in with the answer of the issuer.
#[utoipa::path(post, path = "/api/session/issuer/answer", request_body = requests::IssuerAnswer,
    responses(
        (status = 200, description = "Signed in", body = session::Session),
        (status = 400, description = "`query` is not a string", body = Error),
        (status = 401, description = "This browser did not begin the sign-in, or the issuer's answer is invalid", body = Error),
    ))]
fn finish_sign_in() {}

/// This description.
#[utoipa::path(get, path = "/api/openapi.json", responses((status = 200, description = "The description", body = serde_json::Value)))]
fn openapi() {}
