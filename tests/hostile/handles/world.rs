//! A gateway with keys, two endpoints and two servers, and the clients that try each other's
//! handles.

use std::fs;

use fanlight_testkit::slicer::{member, plain_string};

use super::{Kind, Use};
use crate::harness::{Gateway, TempFile};
use crate::raw_client::{
    Connection, INITIALIZED, JSON_HEADERS, NEWEST_LEGACY, Response, initialize, legacy_request,
    modern_headers, modern_request_with,
};
use crate::scripted::{Backend, Era, Received, Reply, Task, Transport};

/// Keys with their digests.
const ANN: (&str, &str) = (
    "fanlight_00000000000000000000000000000000000000000002okinW",
    "319df4a3b61d5bb066d9f39d281dfaded068e99f7eb27b087b1377a9f9bd7fe1",
);
const BOB: (&str, &str) = (
    "fanlight_1111111111111111111111111111111111111111111146EDT",
    "c248b665096075b86cb84ea6f8a002fdafb7dfafee0aaa809a063ba852efe6b2",
);
const EXPIRED: (&str, &str) = (
    "fanlight_22222222222222222222222222222222222222222220GCs6i",
    "f13749afc55278cffc8e92d9c3ba5041d2be4d803dd7c5d82a57f207d44223df",
);

/// The operators' token.
pub(super) const OPERATOR: &str = "0123456789abcdef-operator";

/// The capabilities of modern clients.
const CAPABILITIES: &str =
    r#"{"roots":{},"elicitation":{"url":{}},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const LEGACY_TASKS: &str = r#""tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}"#;
const ASK: &str = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;
const ANSWERS: &str = r#""inputResponses":{"input-1":{"roots":[]}}"#;
const ACCEPTED: &str = r#""inputResponses":{"input-1":{"action":"accept"}}"#;
/// A modern server's answer that requires input, with the server's state.
const INPUT_NEEDED: &str = r#"{"resultType":"input_required","inputRequests":{"input-1":{"method":"roots/list"}},"requestState":"s"}"#;
const URL_NEEDED: &str = r#"{"code":-32042,"message":"m","data":{"elicitations":[{"mode":"url","elicitationId":"e","url":"https://example.com/","message":"m"}]}}"#;

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Client {
    /// The owner of the handles.
    Ann,
    Bob,
    /// A client without credentials.
    Nobody,
    /// Ann with a key that has expired.
    Expired,
    /// Ann at another endpoint.
    Elsewhere,
}

impl Client {
    pub(super) fn key(self) -> Option<&'static str> {
        match self {
            Self::Ann | Self::Elsewhere => Some(ANN.0),
            Self::Bob => Some(BOB.0),
            Self::Expired => Some(EXPIRED.0),
            Self::Nobody => None,
        }
    }

    pub(super) fn path(self) -> &'static str {
        if self == Self::Elsewhere {
            "/mcp/other"
        } else {
            "/mcp"
        }
    }
}

/// The gateway and its servers.
pub(super) struct World {
    pub(super) gateway: Gateway,
    pub(super) legacy: Backend,
    pub(super) modern: Backend,
    /// The stream of Ann's HTTP+SSE session; the session lasts as long as this.
    sse: tokio::sync::Mutex<Option<Response>>,
    _folder: TempFile,
}

impl World {
    pub(super) async fn start() -> Self {
        let task = |id, era| {
            Task {
                id,
                status: "working",
                ttl: 600_000,
                poll: 60_000,
            }
            .members(era)
        };
        let legacy = Backend::start(Era::Legacy, Transport::Http).await;
        legacy.declares(&format!(
            r#"{{"tools":{{}},"resources":{{}},{LEGACY_TASKS}}}"#
        ));
        legacy.offers_tools(&["t", "ask", "url", "long"]);
        legacy.on("tools/call", Reply::result(r#"{"content":[]}"#));
        legacy.on_target(
            "tools/call",
            "ask",
            Reply::result(r#"{"content":[]}"#).asking(&[ASK]),
        );
        legacy.on_target("tools/call", "url", Reply::error(URL_NEEDED));
        let made = format!(r#"{{"task":{{{}}}}}"#, task("secret-1", Era::Legacy));
        legacy.on_target("tools/call", "long", Reply::result(made));
        legacy.on(
            "tasks/list",
            Reply::result(format!(
                r#"{{"tasks":[{{{}}}]}}"#,
                task("secret-1", Era::Legacy)
            )),
        );
        let modern = Backend::start(Era::Modern, Transport::Http).await;
        modern.declares(
            r#"{"tools":{},"resources":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#,
        );
        modern.offers_tools(&["long", "input"]);
        modern.on(
            "tools/call",
            Reply::result(
                Task {
                    id: "secret-2",
                    status: "working",
                    ttl: 600_000,
                    poll: 60_000,
                }
                .created(Era::Modern),
            ),
        );
        let input = |call: &Received| {
            let is_answered = call.member("params.inputResponses").is_some();
            if is_answered {
                Era::Modern.complete(r#""content":[]"#)
            } else {
                INPUT_NEEDED.to_owned()
            }
        };
        modern.on_target("tools/call", "input", Reply::compute(input));
        for (server, era, id) in [
            (&legacy, Era::Legacy, "secret-1"),
            (&modern, Era::Modern, "secret-2"),
        ] {
            for method in ["tasks/get", "tasks/cancel", "tasks/result", "tasks/update"] {
                server.on(
                    method,
                    Reply::error(r#"{"code":-32602,"message":"no such task"}"#),
                );
                let result = match (method, era) {
                    ("tasks/result", _) => r#"{"content":[]}"#.to_owned(),
                    ("tasks/get" | "tasks/cancel", Era::Legacy) => format!("{{{}}}", task(id, era)),
                    ("tasks/get", _) => Task {
                        id,
                        status: "working",
                        ttl: 600_000,
                        poll: 60_000,
                    }
                    .got(era, ""),
                    _ => era.complete(""),
                };
                server.on_target(method, id, Reply::result(result));
            }
        }
        let folder = TempFile::folder();
        let entry = |(_, digest): (&str, &str), name: &str, more: &str| {
            format!("- {{name: {name}, sha256: '{digest}'{more}}}\n")
        };
        let keys = [
            entry(ANN, "ann", ""),
            entry(BOB, "bob", ""),
            entry(EXPIRED, "ann", ", expires: 2020-01-01"),
        ]
        .concat();
        fs::write(folder.path().join("keys.yaml"), format!("keys:\n{keys}")).unwrap();
        let config = format!(
            "auth: {{keys: {{file: keys.yaml}}}}\nadmin: {{token: {OPERATOR}}}\nendpoints: {{/mcp: {{}}, /mcp/other: {{}}}}\nx-limits: pageSize=2\nmcpServers: {{{},{}}}\n",
            legacy.entry("legacy"),
            modern
                .entry("modern")
                .replacen(":{", r#":{"results":{},"#, 1),
        );
        fs::write(folder.path().join("fanlight.yaml"), config).unwrap();
        let gateway = Gateway::start_at(folder.path().join("fanlight.yaml")).await;
        Self {
            gateway,
            legacy,
            modern,
            sse: tokio::sync::Mutex::default(),
            _folder: folder,
        }
    }

    /// Sends a request as a client. Returns the status and the first message, without the parts
    /// that differ between any two requests.
    pub(super) async fn send(&self, client: Client, attempt: &Use) -> (u16, String) {
        let session = if attempt.in_own_session {
            self.open_session(client).await
        } else {
            None
        };
        let mut headers = attempt.headers.clone();
        headers.extend(session.into_iter().flat_map(in_session));
        let mut response = self
            .request(
                client,
                attempt.method,
                attempt.path.as_deref(),
                &headers,
                &attempt.body,
            )
            .await;
        let status = response.status;
        let text = if response.is_event_stream() {
            response.event().await.unwrap().unwrap_or_default()
        } else {
            response.text().await
        };
        (status, text)
    }

    /// Sends a request as a client.
    pub(super) async fn request(
        &self,
        client: Client,
        method: &str,
        path: Option<&str>,
        headers: &[(&str, String)],
        body: &str,
    ) -> Response {
        let key = client.key().map(|key| format!("Bearer {key}"));
        let mut all: Vec<(&str, &str)> = headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        all.extend(key.as_deref().map(|key| ("Authorization", key)));
        match method {
            "GET" => all.push(("Accept", "text/event-stream")),
            _ => all.extend(JSON_HEADERS),
        }
        let mut connection = Connection::open(self.gateway.mcp).await;
        connection
            .request(method, path.unwrap_or(client.path()), &all, body.as_bytes())
            .await;
        connection.response().await
    }

    /// Opens a session for a client that may have one.
    pub(super) async fn open_session(&self, client: Client) -> Option<String> {
        let capabilities = r#"{"roots":{}}"#;
        let mut response = self
            .request(
                client,
                "POST",
                None,
                &[],
                &initialize(NEWEST_LEGACY, capabilities),
            )
            .await;
        let id = response.header("mcp-session-id").map(str::to_owned)?;
        response.messages().await;
        assert_eq!(
            self.request(client, "POST", None, &in_session(id.clone()), INITIALIZED)
                .await
                .status,
            202
        );
        Some(id)
    }

    /// The answer to a modern request by Ann.
    async fn of_ann(&self, method: &str, params: &str) -> String {
        let attempt = modern("", method, params);
        self.send(Client::Ann, &attempt).await.1
    }

    /// Makes a handle of Ann's.
    pub(super) async fn make(&self, kind: Kind) -> String {
        let text = |answer: &str, path: &str| match member(answer, path).and_then(plain_string) {
            Some(text) => text.to_owned(),
            None => panic!("{kind:?} has not been made: {answer}"),
        };
        match kind {
            Kind::Session | Kind::EventId => self.open_session(Client::Ann).await.unwrap(),
            Kind::SseSession => {
                let mut stream = self
                    .request(Client::Ann, "GET", Some("/sse"), &[], "")
                    .await;
                let endpoint = stream.event().await.unwrap().unwrap();
                *self.sse.lock().await = Some(stream);
                endpoint.split_once("sessionId=").unwrap().1.to_owned()
            }
            Kind::SuspendedCall => text(
                &self
                    .of_ann("tools/call", r#""name":"legacy__ask","arguments":{}"#)
                    .await,
                "result.requestState",
            ),
            Kind::StatelessState => text(
                &self
                    .of_ann("tools/call", r#""name":"legacy__url","arguments":{}"#)
                    .await,
                "result.requestState",
            ),
            Kind::ServerState => text(
                &self
                    .of_ann("tools/call", r#""name":"modern__input","arguments":{}"#)
                    .await,
                "result.requestState",
            ),
            Kind::LegacyTask => {
                let session = in_session(self.open_session(Client::Ann).await.unwrap());
                let call = legacy_request("1", "tools/call", r#""name":"legacy__long","task":{}"#);
                let answer = self
                    .request(Client::Ann, "POST", None, &session, &call)
                    .await
                    .messages()
                    .await
                    .1;
                text(&answer, "result.task.taskId")
            }
            Kind::Task => text(
                &self
                    .of_ann("tools/call", r#""name":"modern__long","arguments":{}"#)
                    .await,
                "result.taskId",
            ),
            Kind::Cursor => text(&self.of_ann("tools/list", "").await, "result.nextCursor"),
            Kind::Result => {
                let long = "x".repeat(50_000);
                let result = format!(
                    r#"{{"resultType":"complete","content":[{{"type":"text","text":"{long}"}}]}}"#
                );
                self.modern
                    .on_target("tools/call", "big", Reply::result(result));
                let answer = self.of_ann("tools/call", r#""name":"modern__big""#).await;
                let (_, rest) = answer.split_once("fanlight-result:").expect(&answer);
                rest.split('/').next().unwrap().to_owned()
            }
        }
    }

    /// Invents a handle of this kind that was never made.
    pub(super) fn invent(&self, kind: Kind, handle: &str) -> String {
        match kind {
            Kind::LegacyTask | Kind::Task => handle.replace("secret", "absent"),
            // Changes the last characters, which are sealed or random.
            _ => {
                let (start, end) = handle.split_at(handle.len() - 8);
                let other = |c: char| if c == '3' { '4' } else { '3' };
                format!("{start}{}", end.chars().map(other).collect::<String>())
            }
        }
    }

    /// The requests that use a handle of this kind.
    pub(super) fn uses(&self, kind: Kind, handle: &str) -> Vec<Use> {
        let session = in_session(handle.to_owned());
        let within = |what, method, body: &str| Use {
            what,
            method,
            path: None,
            headers: session.clone(),
            in_own_session: false,
            body: body.to_owned(),
        };
        let own = |what, method: &str, params: &str| Use {
            headers: Vec::new(),
            in_own_session: true,
            ..within(what, "POST", &legacy_request("1", method, params))
        };
        let id = format!(r#""taskId":"{handle}""#);
        match kind {
            Kind::Session => vec![
                within("request", "POST", &legacy_request("1", "ping", "")),
                within(
                    "call",
                    "POST",
                    &legacy_request("1", "tools/call", r#""name":"legacy__t""#),
                ),
                within(
                    "cancellation",
                    "POST",
                    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
                ),
                within(
                    "progress",
                    "POST",
                    r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
                ),
                within(
                    "answer",
                    "POST",
                    r#"{"jsonrpc":"2.0","id":"fanlight-1","result":{"roots":[]}}"#,
                ),
                within("initialize", "POST", &initialize(NEWEST_LEGACY, "{}")),
                within("batch", "POST", "[]"),
                within("stream", "GET", ""),
                within("end", "DELETE", ""),
            ],
            Kind::SseSession => {
                let path = format!("/sse/message?sessionId={handle}");
                let to = |what, body: &str| Use {
                    path: Some(path.clone()),
                    headers: Vec::new(),
                    ..within(what, "POST", body)
                };
                vec![
                    to("request", &legacy_request("1", "ping", "")),
                    to(
                        "call",
                        &legacy_request("1", "tools/call", r#""name":"legacy__t""#),
                    ),
                    to(
                        "answer",
                        r#"{"jsonrpc":"2.0","id":"fanlight-1","result":{"roots":[]}}"#,
                    ),
                    to(
                        "cancellation",
                        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
                    ),
                ]
            }
            Kind::EventId => ["post1-0", "get-0", "get1-0", "0", "x"]
                .into_iter()
                .map(|event| {
                    let mut resumed = within("replay", "GET", "");
                    resumed.headers.push(("Last-Event-ID", event.to_owned()));
                    resumed
                })
                .collect(),
            Kind::SuspendedCall => {
                let params = format!(
                    r#""name":"legacy__ask","arguments":{{}},{ANSWERS},"requestState":"{handle}""#
                );
                vec![modern("retry", "tools/call", &params)]
            }
            Kind::StatelessState => {
                let params = format!(
                    r#""name":"legacy__url","arguments":{{}},{ACCEPTED},"requestState":"{handle}""#
                );
                vec![modern("retry", "tools/call", &params)]
            }
            Kind::ServerState => {
                let params = format!(
                    r#""name":"modern__input","arguments":{{}},{ANSWERS},"requestState":"{handle}""#
                );
                vec![
                    modern("retry", "tools/call", &params),
                    own("retry in a session", "tools/call", &params),
                ]
            }
            Kind::LegacyTask => vec![
                own("get", "tasks/get", &id),
                own("result", "tasks/result", &id),
                own("cancel", "tasks/cancel", &id),
                own("list", "tasks/list", ""),
                modern("get without a session", "tasks/get", &id),
                modern("cancel without a session", "tasks/cancel", &id),
            ],
            Kind::Task => vec![
                modern("get", "tasks/get", &id),
                modern(
                    "update",
                    "tasks/update",
                    &format!(r#"{id},"inputResponses":{{}}"#),
                ),
                modern("cancel", "tasks/cancel", &id),
                modern(
                    "listen",
                    "subscriptions/listen",
                    &format!(r#""notifications":{{"taskIds":["{handle}"]}}"#),
                ),
                own("get in a session", "tasks/get", &id),
                own("cancel in a session", "tasks/cancel", &id),
            ],
            Kind::Cursor => {
                let params = format!(r#""cursor":"{handle}""#);
                vec![
                    modern("list", "tools/list", &params),
                    modern("another list", "resources/list", &params),
                    own("list in a session", "tools/list", &params),
                    own("tasks", "tasks/list", &params),
                ]
            }
            Kind::Result => {
                let uri = format!(r#""uri":"fanlight-result:{handle}/content/0""#);
                let arguments =
                    format!(r#""name":"read_result","arguments":{{{uri},"bytes":"0-9"}}"#);
                vec![
                    modern("read", "resources/read", &uri),
                    modern("read by tool", "tools/call", &arguments),
                    own("read in a session", "resources/read", &uri),
                ]
            }
        }
    }

    /// Checks that a handle is still good for Ann.
    pub(super) async fn is_there(&self, kind: Kind, handle: &str) {
        let uses = self.uses(kind, handle);
        let (status, answer) = match kind {
            // A replay would answer only with missed events, and there are none.
            Kind::EventId => {
                let alive = &self.uses(Kind::Session, handle)[0];
                self.send(Client::Ann, alive).await
            }
            _ => self.send(Client::Ann, &uses[0]).await,
        };
        assert!(matches!(status, 200 | 202), "{kind:?}: {status} {answer}");
        match kind {
            // Another session of the principal knows the task.
            Kind::LegacyTask | Kind::Task => {
                assert!(answer.contains("working"), "{kind:?}: {answer}");
            }
            Kind::Cursor => assert!(answer.contains("legacy__url"), "the next page: {answer}"),
            Kind::StatelessState => assert_eq!(
                self.legacy.count_of_target("tools/call", "url"),
                2,
                "{answer}"
            ),
            _ => assert!(!answer.contains("\"error\""), "{kind:?}: {answer}"),
        }
    }
}

/// The headers of a request in a session.
pub(super) fn in_session(id: String) -> Vec<(&'static str, String)> {
    vec![
        ("Mcp-Session-Id", id),
        ("MCP-Protocol-Version", NEWEST_LEGACY.to_owned()),
    ]
}

/// A modern request.
pub(super) fn modern(what: &'static str, method: &str, params: &str) -> Use {
    let body = modern_request_with(CAPABILITIES, "1", method, params, "");
    let name = |name: String| match name.as_str() {
        "Mcp-Method" => "Mcp-Method",
        "Mcp-Name" => "Mcp-Name",
        _ => "MCP-Protocol-Version",
    };
    let headers = modern_headers(&body)
        .into_iter()
        .map(|(header, value)| (name(header), value))
        .collect();
    Use {
        what,
        method: "POST",
        path: None,
        headers,
        in_own_session: false,
        body,
    }
}
