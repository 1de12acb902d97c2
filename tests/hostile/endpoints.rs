//! A client of a restricted endpoint tries every way to the contents of other endpoints.

use fanlight_testkit::slicer::{member, plain_string};

use crate::harness::{Gateway, within};
use crate::raw_client::{
    Connection, INITIALIZED, JSON_HEADERS, NEWEST_LEGACY, Response, initialize, legacy_request,
    modern_headers, modern_request, modern_request_with,
};
use crate::scripted::{Backend, Era, Reply, Transport};

const READERS: &str = "/mcp/readers";
const ENDPOINTS: &str = r#""endpoints":{"/mcp":{},"/mcp/readers":{"servers":["files","other"],"tools":{"allow":["files__read_*"]},"prompts":{"deny":["*"]},"resources":{"allow":["file:///public/*"]},"instructions":"Read only."}}"#;
const ASK: &str = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;
const STATE: &str = r#""taskId":"secret-1","status":"working","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttl":600000"#;
const ROOTS: &str = r#"{"roots":{}}"#;

/// A server with something to hide in each list.
async fn server(era: Era) -> Backend {
    let backend = Backend::start(era, Transport::Http).await;
    let extensions = if era == Era::Modern {
        r#","extensions":{"com.example/x":{}}"#
    } else {
        ""
    };
    backend.declares(&format!(r#"{{"tools":{{"listChanged":true}},"prompts":{{}},"resources":{{"subscribe":true}},"completions":{{}}{extensions}}}"#));
    backend.offers_tools(&["read_file", "write_file", "ask"]);
    backend.on(
        "prompts/list",
        backend.list("prompts", r#"{"name":"hidden"}"#),
    );
    let resources =
        r#"{"uri":"file:///public/a","name":"a"},{"uri":"file:///private/key","name":"key"}"#;
    backend.on("resources/list", backend.list("resources", resources));
    let templates = r#"{"uriTemplate":"file:///{+path}","name":"all"}"#;
    backend.on(
        "resources/templates/list",
        backend.list("resourceTemplates", templates),
    );
    let complete = |members: &str| Reply::result(era.complete(members));
    let link = r#""content":[{"type":"resource_link","uri":"file:///private/key","name":"key"}]"#;
    backend.on("tools/call", complete(link));
    backend.on("prompts/get", complete(r#""messages":[]"#));
    backend.on(
        "resources/read",
        complete(r#""contents":[{"uri":"file:///public/a","text":"x"}]"#),
    );
    backend.on(
        "completion/complete",
        complete(r#""completion":{"values":["leaked"]}"#),
    );
    backend.on("x/do", complete(r#""done":true"#));
    backend
}

/// The servers `files`, `other` and `vault`, and a gateway with two endpoints in front of them.
struct Scene {
    servers: [Backend; 3],
    gateway: Gateway,
}

impl Scene {
    async fn start(era: Era) -> Self {
        Self::start_with(server(era).await).await
    }

    /// Starts the gateway with this server as `files`. The gateway connects at once, so what the
    /// server declares is set before.
    async fn start_with(files: Backend) -> Self {
        let servers = [files, server(Era::Legacy).await, server(Era::Modern).await];
        let [files, other, vault] = &servers;
        let entries = [
            files.entry("files"),
            other.entry("other"),
            vault.entry("vault"),
        ]
        .join(",");
        let gateway =
            Gateway::start(&format!(r#"{{{ENDPOINTS},"mcpServers":{{{entries}}}}}"#)).await;
        Self { servers, gateway }
    }

    /// The number of requests with any of these methods at the servers.
    fn reached(&self, methods: &[&str]) -> usize {
        self.servers
            .iter()
            .map(|server| {
                methods
                    .iter()
                    .map(|method| server.received(method).len())
                    .sum::<usize>()
            })
            .sum()
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let mut connection = Connection::open(self.gateway.mcp).await;
        let all = [&JSON_HEADERS[..], headers].concat();
        connection
            .request(method, path, &all, body.as_bytes())
            .await;
        within("an answer", connection.response()).await
    }

    async fn modern(&self, path: &str, body: &str) -> String {
        let headers = modern_headers(body);
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        self.send("POST", path, &headers, body)
            .await
            .messages()
            .await
            .1
    }

    /// Opens a session; returns its id.
    async fn open(&self, path: &str, capabilities: &str) -> String {
        let mut opened = self
            .send("POST", path, &[], &initialize(NEWEST_LEGACY, capabilities))
            .await;
        let id = opened
            .header("mcp-session-id")
            .expect("a session")
            .to_owned();
        opened.text().await;
        assert_eq!(
            self.send("POST", path, &session(&id), INITIALIZED)
                .await
                .status,
            202
        );
        id
    }

    async fn legacy(&self, path: &str, id: &str, body: &str) -> String {
        self.send("POST", path, &session(id), body)
            .await
            .messages()
            .await
            .1
    }
}

fn session(id: &str) -> [(&'static str, &str); 2] {
    [
        ("Mcp-Session-Id", id),
        ("MCP-Protocol-Version", NEWEST_LEGACY),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hidden_items_of_an_endpoint_are_reached_by_no_request() {
    for era in [Era::Legacy, Era::Modern] {
        let scene = Scene::start(era).await;
        let id = scene.open(READERS, "{}").await;
        let lists = [
            "tools/list",
            "prompts/list",
            "resources/list",
            "resources/templates/list",
        ];
        for method in lists {
            for list in [
                scene
                    .legacy(READERS, &id, &legacy_request("1", method, ""))
                    .await,
                scene
                    .modern(READERS, &modern_request("1", method, "", ""))
                    .await,
            ] {
                for hidden in [
                    "write_file",
                    "ask",
                    "other__",
                    "vault",
                    "hidden",
                    "file:///private",
                    "{+path}",
                ] {
                    assert!(!list.contains(hidden), "{method}: {list}");
                }
            }
        }
        let requests = [
            ("tools/call", r#""name":"files__write_file","arguments":{}"#),
            ("tools/call", r#""name":"write_file","arguments":{}"#),
            ("tools/call", r#""name":"other__read_file","arguments":{}"#),
            ("tools/call", r#""name":"vault__read_file","arguments":{}"#),
            (
                "tools/call",
                r#""name":"files__read_file\u0000","arguments":{}"#,
            ),
            ("tools/call", r#""name":"files__READ_FILE","arguments":{}"#),
            (
                "tools/call",
                r#""name":"files__read_unlisted","arguments":{}"#,
            ),
            ("prompts/get", r#""name":"files__hidden""#),
            ("prompts/get", r#""name":"hidden""#),
            ("resources/read", r#""uri":"file:///private/key""#),
            ("resources/read", r#""uri":"file:///public/../private/key""#),
            (
                "resources/read",
                r#""uri":"file:///public/%2e%2e/private/key""#,
            ),
            ("resources/read", r#""uri":"file:///public/..%5cprivate""#),
            ("resources/read", r#""uri":"file://localhost/private/key""#),
            (
                "resources/read",
                r#""uri":"file://fanlight--vault//public/a""#,
            ),
            (
                "resources/read",
                r#""uri":"file://fanlight--other//private/key""#,
            ),
            ("resources/read", r#""uri":"vault://x""#),
            (
                "completion/complete",
                r#""ref":{"type":"ref/prompt","name":"files__hidden"},"argument":{"name":"a","value":""}"#,
            ),
            (
                "completion/complete",
                r#""ref":{"type":"ref/resource","uri":"file:///{+path}"},"argument":{"name":"path","value":"p"}"#,
            ),
            ("x/do", r#""name":"files__write_file""#),
            ("x/do", r#""tool":{"name":"write_file"}"#),
            ("x/do", r#""uri":"file:///private/key""#),
            ("x/do", ""),
        ];
        for (method, params) in requests {
            let answer = scene
                .legacy(READERS, &id, &legacy_request("1", method, params))
                .await;
            assert!(
                member(&answer, "error").is_some(),
                "{method} {params}: {answer}"
            );
            if !params.contains("\\u0000") {
                let answer = scene
                    .modern(READERS, &modern_request("1", method, params, ""))
                    .await;
                assert!(
                    member(&answer, "error").is_some(),
                    "{method} {params}: {answer}"
                );
            }
        }
        for method in ["resources/subscribe", "resources/unsubscribe"] {
            let params = r#""uri":"file:///private/key""#;
            let answer = scene
                .legacy(READERS, &id, &legacy_request("1", method, params))
                .await;
            assert!(member(&answer, "error").is_some(), "{answer}");
        }
        let methods = [
            "tools/call",
            "prompts/get",
            "resources/read",
            "resources/subscribe",
            "resources/unsubscribe",
            "completion/complete",
            "x/do",
        ];
        assert_eq!(scene.reached(&methods), 0);

        // A link in a visible tool's result leads nowhere, either.
        let call = legacy_request(
            "1",
            "tools/call",
            r#""name":"files__read_file","arguments":{}"#,
        );
        let answer = scene.legacy(READERS, &id, &call).await;
        assert!(
            answer.contains("file:///private/key"),
            "results pass unchanged: {answer}"
        );
        let read = legacy_request("1", "resources/read", r#""uri":"file:///private/key""#);
        assert!(member(&scene.legacy(READERS, &id, &read).await, "error").is_some());
        assert_eq!(scene.reached(&["resources/read"]), 0);
        // Both eras reach the visible items, and the default endpoint reaches everything.
        let read = r#""uri":"file:///public/a""#;
        assert!(
            scene
                .legacy(READERS, &id, &legacy_request("1", "resources/read", read))
                .await
                .contains("contents")
        );
        assert!(
            scene
                .modern(READERS, &modern_request("1", "resources/read", read, ""))
                .await
                .contains("contents")
        );
        let write = modern_request(
            "1",
            "tools/call",
            r#""name":"files__write_file","arguments":{}"#,
            "",
        );
        assert!(scene.modern("/mcp", &write).await.contains("content"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_of_one_endpoint_are_unknown_at_another() {
    let scene = Scene::start(Era::Legacy).await;
    let [files, ..] = &scene.servers;
    files.on_target(
        "tools/call",
        "ask",
        Reply::conclude(|_, _| r#"{"content":[]}"#.to_owned()).asking(&[ASK]),
    );
    // A session id: used for requests, streams, resumption and DELETE.
    let id = scene.open("/mcp", ROOTS).await;
    let call = legacy_request(
        "1",
        "tools/call",
        r#""name":"files__read_file","arguments":{}"#,
    );
    let last_event = [
        &session(&id)[..],
        &[
            ("Last-Event-ID", "post1-0"),
            ("Accept", "text/event-stream"),
        ],
    ]
    .concat();
    for (method, headers, body) in [
        ("POST", &session(&id)[..], call.as_str()),
        (
            "POST",
            &session(&id)[..],
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
        ),
        (
            "POST",
            &session(&id)[..],
            r#"{"jsonrpc":"2.0","id":"fanlight-1","result":{"roots":[]}}"#,
        ),
        ("GET", &last_event[..], ""),
        ("DELETE", &session(&id)[..], ""),
    ] {
        let refused = scene.send(method, READERS, headers, body).await;
        assert_eq!(refused.status, 404, "{method} {body}");
    }
    assert!(
        scene.legacy("/mcp", &id, &call).await.contains("content"),
        "it is there all along"
    );

    // The state of a suspended call.
    let ask = r#""name":"files__ask","arguments":{}"#;
    let asked = scene
        .modern(
            "/mcp",
            &modern_request_with(ROOTS, "1", "tools/call", ask, ""),
        )
        .await;
    let state = member(&asked, "result.requestState")
        .and_then(plain_string)
        .expect("suspended")
        .to_owned();
    let resume = modern_request_with(
        ROOTS,
        "1",
        "tools/call",
        &format!(r#"{ask},"inputResponses":{{"input-1":{{"roots":[]}}}},"requestState":"{state}""#),
        "",
    );
    let refused = scene.modern(READERS, &resume).await;
    assert_eq!(member(&refused, "error.code"), Some("-32602"), "{refused}");
    assert!(
        files.received("").is_empty(),
        "no answer reached the server"
    );
    let resumed = scene.modern("/mcp", &resume).await;
    assert!(member(&resumed, "result.content").is_some(), "{resumed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_of_a_hidden_tool_is_unknown_at_an_endpoint() {
    let files = server(Era::Legacy).await;
    files.declares(
        r#"{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}"#,
    );
    files.on_target(
        "tools/call",
        "write_file",
        Reply::result(format!(r#"{{"task":{{{STATE}}}}}"#)),
    );
    files.on("tasks/get", Reply::result(format!("{{{STATE}}}")));
    files.on("tasks/cancel", Reply::result(format!("{{{STATE}}}")));
    files.on("tasks/result", Reply::result(r#"{"content":[]}"#));
    files.on(
        "tasks/list",
        Reply::result(format!(r#"{{"tasks":[{{{STATE}}}]}}"#)),
    );
    let scene = Scene::start_with(files).await;
    let [files, ..] = &scene.servers;
    let writer = scene.open("/mcp", "{}").await;
    let make = legacy_request(
        "1",
        "tools/call",
        r#""name":"files__write_file","arguments":{},"task":{}"#,
    );
    let made = scene.legacy("/mcp", &writer, &make).await;
    assert!(made.contains("secret-1"), "{made}");
    let reader = scene.open(READERS, "{}").await;
    for method in ["tasks/get", "tasks/cancel", "tasks/result"] {
        let before = files.received(method).len();
        let request = legacy_request("1", method, r#""taskId":"secret-1""#);
        let answer = scene.legacy(READERS, &reader, &request).await;
        assert_eq!(
            member(&answer, "error.code"),
            Some("-32602"),
            "{method}: {answer}"
        );
        assert_eq!(files.received(method).len(), before, "{method}");
    }
    let list = scene
        .legacy(READERS, &reader, &legacy_request("1", "tasks/list", ""))
        .await;
    assert!(!list.contains("secret-1"), "{list}");
    let own = scene
        .legacy(
            "/mcp",
            &writer,
            &legacy_request("1", "tasks/get", r#""taskId":"secret-1""#),
        )
        .await;
    assert!(own.contains("working"), "{own}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_exact_path_of_an_endpoint_is_served() {
    let scene = Scene::start(Era::Modern).await;
    let list = modern_request("1", "tools/list", "", "");
    let headers = modern_headers(&list);
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    for path in [
        "/",
        "/mcp/",
        "/mcp/readers/",
        "/mcp//readers",
        "//mcp",
        "/mcp/Readers",
        "/MCP",
        "/mcp/read%65rs",
        "/mcp%2freaders",
        "/mcp/./readers",
        "/mcp/x/../readers",
        "/mcp/readers;x",
        "/mcp/readers/x",
        "/mcp/unknown",
        "/mcp/reader",
        "/mcp.",
        "/sse/message",
        "/readers",
    ] {
        let mut answer = scene.send("POST", path, &headers, &list).await;
        let status = answer.status;
        let text = answer.text().await;
        assert!(matches!(status, 400 | 404), "{path}: {status} {text}");
        assert!(!text.contains("__"), "{path}: {text}");
    }
    for path in ["/mcp", READERS, "/mcp/readers?x=/mcp"] {
        assert_eq!(
            scene.send("POST", path, &headers, &list).await.status,
            200,
            "{path}"
        );
    }
}
