//! Server failures that must cost at most one call, run nothing twice, and tell clients nothing
//! that is for operators.

use std::time::Duration;

use fanlight_testkit::ports::Refusing;
use fanlight_testkit::slicer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::clients::Client;
use crate::faults::backend;
use crate::harness::{Gateway, within};
use crate::raw_client::{
    LegacySession, NEWEST_LEGACY, legacy_request, listen, modern_request, post_modern,
};
use crate::scripted::{Backend, Era, Fault, Reply, Transport, config};

/// The answer to a modern request.
async fn asked(gateway: &Gateway, method: &str, params: &str) -> String {
    post_modern(gateway.mcp, &modern_request("1", method, params, ""))
        .await
        .text()
        .await
}

pub(crate) async fn called(gateway: &Gateway, tool: &str) -> String {
    asked(gateway, "tools/call", &format!(r#""name":"{tool}""#)).await
}

#[tokio::test]
async fn call_that_was_carried_out_and_rejected_is_not_sent_again() {
    for era in [Era::Legacy, Era::Modern] {
        let server = backend(era, Transport::Http).await;
        let gateway = Gateway::start(&config(&[server.entry("only")])).await;
        slicer::member(&called(&gateway, "t").await, "result").expect("a result");
        for status in [400, 404, 405, 429, 500, 503] {
            let before = server.received("tools/call").len();
            server.once(
                "tools/call",
                Reply::fault(Fault::Status(status, "text/plain", "no such thing")),
            );
            let answer = called(&gateway, "t").await;
            assert_eq!(
                slicer::member(&answer, "error.data.mayHaveRun"),
                Some("true"),
                "{era:?} {status}: {answer}"
            );
            assert_eq!(
                server.received("tools/call").len(),
                before + 1,
                "{era:?} {status}: it was sent again"
            );
            let answer = called(&gateway, "t").await;
            assert!(
                slicer::member(&answer, "result").is_some(),
                "{era:?} {status}: {answer}"
            );
        }
    }
}

/// Answers every request with the same bytes and closes the connection.
async fn server_that_says(answer: &'static str) -> (u16, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 64 << 10];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (port, tasks)
}

#[tokio::test]
async fn pause_that_a_server_asks_for_reaches_the_client() {
    let answer =
        "HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (port, _server) = server_that_says(answer).await;
    let gateway = Gateway::start(&config(&[format!(
        r#""only":{{"url":"http://127.0.0.1:{port}/mcp"}}"#
    )]))
    .await;
    let answer = called(&gateway, "t").await;
    assert_eq!(
        slicer::member(&answer, "error.data.retryAfterMs"),
        Some("7000"),
        "{answer}"
    );
    assert_eq!(
        slicer::member(&answer, "error.data.mayHaveRun"),
        Some("false"),
        "{answer}"
    );
}

#[tokio::test]
async fn failure_to_connect_tells_clients_nothing_of_the_configuration() {
    let refusing_port = Refusing::any();
    let unused = refusing_port.address.port();
    let (garbage, _garbage) = server_that_says("SSH-2.0-OpenSSH_9.2p1 s3cret\r\n").await;
    let (page, _page) = server_that_says(
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nContent-Type: text/html\r\n\r\ns3cret",
    )
    .await;
    let (refusing, _refusing) = server_that_says(
        "HTTP/1.1 500 s3cret\r\nContent-Length: 47\r\nContent-Type: application/json\r\n\r\n{\"error\":{\"code\":-1,\"message\":\"s3cret 10.0.0.7\"}}",
    )
    .await;
    let (moved, _moved) = server_that_says(
        "HTTP/1.1 307 Moved\r\nLocation: http://s3cret.internal:81/\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    let url = |url: String| format!(r#""url":"{url}""#);
    let shell =
        |script: &str| format!(r#""command":"sh","args":["-c","{script}","s3cret"],"cwd":"/tmp""#);
    let cases = [
        ("refused", url(format!("http://127.0.0.1:{unused}/s3cret"))),
        ("unknown host", url("http://s3cret.invalid:4711/mcp".into())),
        (
            "TLS to a server without",
            url(format!("https://127.0.0.1:{garbage}/s3cret")),
        ),
        ("no HTTP", url(format!("http://127.0.0.1:{garbage}/s3cret"))),
        ("a page", url(format!("http://127.0.0.1:{page}/s3cret"))),
        (
            "an error",
            url(format!("http://127.0.0.1:{refusing}/s3cret")),
        ),
        ("moved", url(format!("http://127.0.0.1:{moved}/s3cret"))),
        (
            "no command",
            r#""command":"/opt/s3cret/server","args":["--token=s3cret"]"#.into(),
        ),
        (
            "no folder",
            r#""command":"sh","args":["s3cret"],"cwd":"/opt/s3cret""#.into(),
        ),
        ("crash", shell("echo s3cret >&2; exit 3")),
        (
            "garbage",
            shell("echo s3cret; read x; echo s3cret; exec cat >/dev/null")
                + r#","startTimeout":"1s""#,
        ),
    ];
    let good = backend(Era::Modern, Transport::Http).await;
    for (case, settings) in cases {
        let bad = format!(r#""bad":{{{settings}}}"#);
        let limits = r#""x-limits":"connect=1s,probe=300ms,list=3s""#;
        for entries in [bad.clone(), format!("{bad},{}", good.entry("good"))] {
            let gateway =
                Gateway::start(&format!(r#"{{"mcpServers":{{{entries}}},{limits}}}"#)).await;
            let tool = if entries == bad { "t" } else { "bad__t" };
            let call = called(&gateway, tool).await;
            let mut said = vec![call.clone()];
            for method in [
                "tools/list",
                "resources/list",
                "server/discover",
                "prompts/list",
            ] {
                said.push(asked(&gateway, method, "").await);
            }
            said.push(asked(&gateway, "resources/read", r#""uri":"x://y""#).await);
            let mut listening = listen(gateway.mcp, "7", r#"{"toolsListChanged":true}"#).await;
            said.push(match listening.is_event_stream() {
                true => listening.event().await.unwrap().unwrap(),
                false => listening.text().await,
            });
            let secrets = [
                "s3cret",
                "127.0.0.1",
                ".invalid",
                "/opt",
                "/tmp",
                "10.0.0.7",
                "OpenSSH",
                "exit 3",
            ];
            let ports = [unused, garbage, page, refusing, moved].map(|port| port.to_string());
            for text in &said {
                let told = secrets
                    .iter()
                    .copied()
                    .chain(ports.iter().map(String::as_str))
                    .find(|word| text.contains(word));
                assert_eq!(told, None, "{case}: a client is told {text}");
            }
            assert_eq!(
                slicer::member(&call, "error.data.mayHaveRun"),
                Some("false"),
                "{case}: {call}"
            );
            gateway.log.line_with("server is down").await;
        }
    }
}

#[tokio::test]
async fn server_that_keeps_asking_does_not_keep_a_call_for_ever() {
    let server = Backend::start(Era::Legacy, Transport::Http).await;
    server.offers_tools(&["t"]);
    let elicit = r#"{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object","properties":{}}}}"#;
    server.on(
        "tools/call",
        Reply::result(r#"{"content":[]}"#).asking(&[elicit]),
    );
    let entry = server.entry_with("only", r#""timeout":"200ms""#);
    let gateway = Gateway::start(&format!(
        r#"{{"mcpServers":{{{entry}}},"x-limits":"callTotal=2s"}}"#
    ))
    .await;
    let session =
        LegacySession::open_with(gateway.mcp, NEWEST_LEGACY, r#"{"elicitation":{}}"#).await;
    let began = Instant::now();
    // The client never answers.
    let request = legacy_request("1", "tools/call", r#""name":"t""#);
    let call = session.post(&request);
    let (_, answer) = within("the end of the call", async { call.await.messages().await }).await;
    assert!(answer.contains("did not answer within 2s"), "{answer}");
    assert!(
        began.elapsed() >= Duration::from_secs(2),
        "the client had no time to answer"
    );
}

#[tokio::test]
async fn storm_of_list_changes_reaches_clients_as_few() {
    const STORM: usize = 2000;
    let server = backend(Era::Modern, Transport::Http).await;
    server.declares(r#"{"tools":{"listChanged":true}}"#);
    server.on("subscriptions/listen", Reply::listening());
    let gateway = Gateway::start(&config(&[server.entry("only")])).await;
    let mut listener = listen(gateway.mcp, "7", r#"{"toolsListChanged":true}"#).await;
    let acknowledged = listener.event().await.unwrap().unwrap();
    assert!(acknowledged.contains("acknowledged"), "{acknowledged}");
    let began = Instant::now();
    let stream = server.stream(0).await;
    for _ in 0..STORM {
        stream.notify("notifications/tools/list_changed", "").await;
    }
    let mut changes = 0;
    let quiet = Duration::from_millis(500);
    while let Ok(Ok(Some(event))) = tokio::time::timeout(quiet, listener.event()).await {
        changes += usize::from(event.contains("list_changed"));
    }
    let intervals = usize::try_from(began.elapsed().as_millis() / 100).unwrap();
    assert!(
        changes >= 1 && changes <= intervals + 2,
        "{changes} of {STORM} in {intervals} intervals"
    );
}

/// A client over stdio is told no more than others.
#[tokio::test]
async fn client_over_stdio_is_not_told_the_address_of_a_server() {
    let unused = Refusing::any();
    let config = config(&[format!(
        r#""only":{{"url":"http://{}/mcp"}}"#,
        unused.address
    )]);
    let mut client = Client::start(&config, Era::Modern, Transport::Stdio).await;
    let exchange = client.call("t").await;
    let message = exchange.member("error.message");
    assert!(
        message.contains("cannot be reached") && !exchange.answer.contains("127.0.0.1"),
        "{}",
        exchange.answer
    );
}
