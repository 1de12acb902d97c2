//! The outcome of spans: each kind of failed call has its `error.type` on both sides of the
//! gateway.

use fanlight_testkit::ports::Refusing;

use super::spans::{CLIENT, INTERNAL, SERVER, Trace, TraceFile, from_client};
use crate::faults::backend;
use crate::harness::Gateway;
use crate::raw_client::{
    Connection, JSON_HEADERS, LegacySession, legacy_request, modern_request, post_modern,
};
use crate::scripted::{Era, Fault, Reply, Transport};

const CALL: &str = "tools/call t";
const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{token},"progress":1}}"#;
const CANCEL: &str =
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
const TRANSPORTS: [Transport; 2] = [Transport::Http, Transport::Stdio];

struct Traced {
    gateway: Gateway,
    file: TraceFile,
}

impl Traced {
    async fn start(entry: &str, more: &str) -> Self {
        let file = TraceFile::new();
        let text = format!(r#"{{"mcpServers":{{{entry}}}{more}}}"#);
        Self {
            gateway: Gateway::start_with(&text, &file.arguments()).await,
            file,
        }
    }

    /// Calls the tool in a trace with this number.
    async fn call(&self, number: u32) {
        post_modern(self.gateway.mcp, &modern_call(number))
            .await
            .bytes()
            .await
            .unwrap();
    }

    /// The trace with this number, once both spans of the call have ended.
    async fn ended(&self, number: u32) -> Trace {
        self.file
            .trace(
                &from_client(number, "01"),
                &[(SERVER, CALL), (CLIENT, CALL)],
            )
            .await
    }

    /// The `error.type` of both sides of the call in the trace with this number.
    async fn errors(&self, number: u32) -> [Option<String>; 2] {
        let trace = self.ended(number).await;
        [SERVER, CLIENT].map(|kind| trace.one(kind, CALL).error().map(str::to_owned))
    }
}

fn modern_call(number: u32) -> String {
    let meta = format!(
        r#""progressToken":1,"traceparent":"{}""#,
        from_client(number, "01")
    );
    modern_request("1", "tools/call", r#""name":"t""#, &meta)
}

fn both(server: &str, client: &str) -> [Option<String>; 2] {
    [Some(server.to_owned()), Some(client.to_owned())]
}

#[tokio::test]
async fn spans_of_error_responses() {
    for transport in TRANSPORTS {
        let only = backend(Era::Modern, transport).await;
        let traced = Traced::start(&only.entry("only"), "").await;
        only.once(
            "tools/call",
            Reply::result(Era::Modern.complete(r#""content":[],"isError":true"#)),
        );
        traced.call(1).await;
        assert_eq!(traced.errors(1).await, both("tool_error", "tool_error"));
        only.once(
            "tools/call",
            Reply::error(r#"{"code":-32050,"message":"no luck"}"#),
        );
        traced.call(2).await;
        assert_eq!(traced.errors(2).await, both("-32050", "-32050"));
        let trace = traced.ended(2).await;
        for kind in [SERVER, CLIENT] {
            let span = trace.one(kind, CALL);
            assert_eq!(span.text("rpc.response.status_code"), Some("-32050"));
            assert_eq!(span.0["status"]["message"], "no luck");
        }
        traced.call(3).await;
        assert_eq!(traced.errors(3).await, [None, None]);
    }
}

#[tokio::test]
async fn span_of_a_refused_request_names_the_gate() {
    let only = backend(Era::Modern, Transport::Http).await;
    let asks = only.entry_with("only", r#""approval":{"tools":["t"]}"#);
    for (entry, more, gate) in [
        (
            &*only.entry("only"),
            r#","limits":{"rates":[{"rate":"1/h"}]}"#,
            "rate",
        ),
        (&*asks, r#","timeouts":{"approval":"10ms"}"#, "approval"),
        (
            &*only.entry("only"),
            r#","endpoints":{"/mcp":{"tools":{"deny":["only/*"]}}}"#,
            "filter",
        ),
    ] {
        let traced = Traced::start(entry, more).await;
        traced.call(1).await;
        traced.call(2).await;
        let trace = traced
            .file
            .trace(&from_client(2, "01"), &[(SERVER, CALL)])
            .await;
        let span = trace.one(SERVER, CALL);
        assert_eq!(span.text("fanlight.gate"), Some(gate), "{span:?}");
    }
}

/// A client's mistake is no failure of the gateway (conventions for MCP, Server).
#[tokio::test]
async fn mistakes_of_clients_leave_the_status_of_server_spans_unset() {
    let only = backend(Era::Modern, Transport::Http).await;
    let traced = Traced::start(&only.entry("only"), "").await;
    for (number, code) in (1..).zip(["-32700", "-32600", "-32601", "-32602", "-32002"]) {
        only.once(
            "tools/call",
            Reply::error(format!(r#"{{"code":{code},"message":"no such city"}}"#)),
        );
        traced.call(number).await;
        assert_eq!(traced.errors(number).await, [None, Some(code.to_owned())]);
        let trace = traced.ended(number).await;
        let server = trace.one(SERVER, CALL);
        assert_eq!(server.text("rpc.response.status_code"), Some(code));
        assert_eq!(server.text("fanlight.error.message"), Some("no such city"));
        assert_eq!(
            trace.one(CLIENT, CALL).0["status"]["message"],
            "no such city"
        );
    }
    let mut connection = Connection::open(traced.gateway.admin).await;
    connection.request("GET", "/metrics", &[], b"").await;
    let metrics = connection.response().await.text().await;
    let calls = |side: &str| {
        let line =
            format!("mcp_{side}_operation_duration_seconds_count{{mcp_method_name=\"tools/call\"");
        metrics
            .lines()
            .find(|one| {
                one.starts_with(&line) && one.contains(r#"rpc_response_status_code="-32602""#)
            })
            .unwrap()
    };
    assert!(
        !calls("server").contains("error_type")
            && calls("client").contains(r#"error_type="-32602""#),
        "{metrics}"
    );
    assert!(
        calls("client").contains(r#"server_address="127.0.0.1""#),
        "{metrics}"
    );
    assert!(
        calls("server").contains(r#"gen_ai_operation_name="execute_tool""#),
        "{metrics}"
    );
}

/// The client gets a JSON-RPC error, whose code is the `error.type` of its side of the trace.
#[tokio::test]
async fn spans_of_calls_without_a_response() {
    for transport in TRANSPORTS {
        let only = backend(Era::Modern, transport).await;
        let slow = Traced::start(&only.entry_with("only", r#""timeout":"300ms""#), "").await;
        only.once("tools/call", Reply::fault(Fault::Hang));
        slow.call(1).await;
        assert_eq!(
            slow.errors(1).await,
            both("-31002", "timeout"),
            "{transport:?}"
        );

        let limited = Traced::start(&only.entry("only"), r#","x-limits":"message=1048576""#).await;
        only.once("tools/call", Reply::fault(Fault::Huge(2 << 20)));
        limited.call(1).await;
        let [server, client] = limited.errors(1).await;
        assert!(server.is_some_and(|code| code.parse::<i64>().is_ok()));
        assert_eq!(
            client.as_deref(),
            Some("response_too_large"),
            "{transport:?}"
        );

        only.once("tools/call", Reply::fault(Fault::Die(3)));
        limited.call(2).await;
        let ended = if transport == Transport::Http {
            "connection_closed"
        } else {
            "backend_exited"
        };
        assert_eq!(
            limited.errors(2).await,
            both("-31001", ended),
            "{transport:?}"
        );
    }
    let only = backend(Era::Modern, Transport::Http).await;
    only.once(
        "tools/call",
        Reply::fault(Fault::Status(500, "text/plain", "oops")),
    );
    let traced = Traced::start(&only.entry("only"), "").await;
    traced.call(1).await;
    assert_eq!(traced.errors(1).await[1].as_deref(), Some("500"));
}

/// The permanent connection to a server belongs to no request, so each attempt is a separate trace.
/// Requests without a connection send nothing, so they have no CLIENT span.
#[tokio::test]
async fn spans_of_unreachable_backends() {
    let unused = Refusing::any();
    for entry in [
        format!(
            r#""only":{{"type":"http","url":"http://{}/mcp"}}"#,
            unused.address
        ),
        r#""only":{"command":"/nonexistent/fanlight-test-server"}"#.to_owned(),
    ] {
        let traced = Traced::start(&entry, "").await;
        let connect = traced.file.first(INTERNAL, "connect").await;
        assert_eq!(
            (connect.parent(), connect.error()),
            ("", Some("connect_failed")),
            "{entry}"
        );
        assert_eq!(connect.text("fanlight.backend.name"), Some("only"));
        let context = from_client(1, "01");
        let list = modern_request(
            "1",
            "tools/list",
            "",
            &format!(r#""traceparent":"{context}""#),
        );
        post_modern(traced.gateway.mcp, &list).await.text().await;
        let trace = traced.file.trace(&context, &[(SERVER, "tools/list")]).await;
        assert_eq!(trace.all(CLIENT, "tools/list").len(), 0, "{trace:#?}");
        assert_eq!(trace.one(SERVER, "tools/list").error(), Some("-31001"));
    }
}

/// A legacy client's own connection is made for its first request, so it is part of that request's
/// trace.
#[tokio::test]
async fn spans_of_connections_made_for_a_request() {
    for dies in [false, true] {
        let only = backend(Era::Legacy, Transport::Stdio).await;
        let traced = Traced::start(&only.entry("only"), "").await;
        let session = LegacySession::open(traced.gateway.mcp).await;
        // The permanent connection comes first.
        traced.file.first(INTERNAL, "connect").await;
        if dies {
            only.once("initialize", Reply::fault(Fault::Die(1)));
        }
        let context = from_client(1, "01");
        let params = format!(r#""name":"t","_meta":{{"traceparent":"{context}"}}"#);
        session
            .post(&legacy_request("1", "tools/call", &params))
            .await
            .text()
            .await;
        let wanted = [
            (SERVER, CALL),
            (INTERNAL, "connect"),
            (CLIENT, "initialize"),
        ];
        let trace = traced.file.trace(&context, &wanted).await;
        let [call, connect, initialize] = wanted.map(|(kind, name)| trace.one(kind, name));
        assert_eq!(
            (connect.parent(), initialize.parent()),
            (call.id(), connect.id())
        );
        let ended = dies.then_some("backend_exited");
        assert_eq!((connect.error(), initialize.error()), (ended, ended));
        assert_eq!(call.error(), dies.then_some("-31001"));
        assert_eq!(
            trace.all(CLIENT, CALL).len(),
            usize::from(!dies),
            "{trace:#?}"
        );
    }
}

#[tokio::test]
async fn spans_of_abandoned_calls() {
    for transport in TRANSPORTS {
        let only = backend(Era::Modern, transport).await;
        only.on("tools/call", Reply::fault(Fault::Hang).after(&[PROGRESS]));
        let traced = Traced::start(&only.entry("only"), "").await;
        let session = LegacySession::open(traced.gateway.mcp).await;
        let meta = format!(
            r#""name":"t","_meta":{{"progressToken":1,"traceparent":"{}"}}"#,
            from_client(1, "01")
        );
        let mut running = session
            .post(&legacy_request("7", "tools/call", &meta))
            .await;
        running.event().await.unwrap().expect("progress first");
        assert_eq!(session.post(CANCEL).await.status, 202);
        assert_eq!(
            traced.errors(1).await,
            both("cancelled", "cancelled"),
            "{transport:?}"
        );
        let trace = traced.ended(1).await;
        let server = trace.one(SERVER, CALL);
        assert_eq!(
            server.0["events"][0]["name"], "notifications/progress",
            "{server:?}"
        );
        assert!(
            server
                .text("mcp.session.id")
                .is_some_and(|id| Some(id) != session.session.as_deref())
        );

        // A modern client cancels by closing the connection; the trace can show no more than that.
        let mut left = post_modern(traced.gateway.mcp, &modern_call(2)).await;
        left.event().await.unwrap().expect("progress first");
        drop(left);
        assert_eq!(
            traced.errors(2).await,
            both("abandoned", "abandoned"),
            "{transport:?}"
        );
    }
}

/// A legacy client that closes the connection early does not cancel the call: its side of the trace
/// ends, and the call runs until it is cancelled.
#[tokio::test]
async fn span_of_a_call_that_outlives_its_connection() {
    for transport in TRANSPORTS {
        let only = backend(Era::Modern, transport).await;
        only.once("tools/call", Reply::fault(Fault::Hang));
        let traced = Traced::start(&only.entry("only"), "").await;
        let session = LegacySession::open(traced.gateway.mcp).await;
        let id = session.session.as_deref().unwrap();
        let headers = [
            &JSON_HEADERS[..],
            &[
                ("MCP-Protocol-Version", &session.revision),
                ("Mcp-Session-Id", id),
            ],
        ]
        .concat();
        let params = format!(
            r#""name":"t","_meta":{{"traceparent":"{}"}}"#,
            from_client(1, "01")
        );
        let mut left = Connection::open(traced.gateway.mcp).await;
        left.request(
            "POST",
            "/mcp",
            &headers,
            legacy_request("7", "tools/call", &params).as_bytes(),
        )
        .await;
        only.wait_for("tools/call", 1).await;
        drop(left);
        traced
            .file
            .trace(&from_client(1, "01"), &[(SERVER, CALL)])
            .await;
        assert_eq!(session.post(CANCEL).await.status, 202);
        assert_eq!(
            traced.errors(1).await,
            both("abandoned", "cancelled"),
            "{transport:?}"
        );
    }
}
