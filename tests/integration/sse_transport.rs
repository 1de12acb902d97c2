//! The deprecated HTTP+SSE transport of 2024-11-05 at both ends of the gateway, server requests
//! included.

use fanlight_tests::slicer::{member, plain_string};

use crate::clients::Client;
use crate::faults::backend;
use crate::harness::Gateway;
use crate::raw_client::{Connection, INITIALIZED, JSON_HEADERS, initialize, legacy_request};
use crate::schema::Peer;
use crate::scripted::{Backend, Era, Received, Reply, Transport, config};

const FIRST: &str = "2024-11-05";
/// A result that decoding would change.
const RESULT: &str = r#"{"content":[],"structuredContent":{"n":1.0,"s":"\u0041\/"},"x":1E400}"#;
const ROOTS: &str = r#"{"roots":[{"uri":"file:\/\/\/r","name":"\u006e"}]}"#;
const CALL: &str = r#""name":"t","arguments":{"n":1.0}"#;

/// A client that only has this transport.
struct OldClient {
    gateway: Gateway,
    stream: crate::raw_client::Response,
    endpoint: String,
    peer: Peer,
}

impl OldClient {
    async fn start(config_text: &str, capabilities: &str) -> Self {
        let gateway = Gateway::start(config_text).await;
        let mut connection = Connection::open(gateway.mcp).await;
        connection
            .request("GET", "/sse", &[("Accept", "text/event-stream")], b"")
            .await;
        let mut stream = connection.response().await;
        assert!(stream.status == 200 && stream.is_event_stream());
        let endpoint = stream.event().await.unwrap().expect("an endpoint");
        let peer = gateway.checks().peer("old".to_owned());
        let mut client = Self {
            gateway,
            stream,
            endpoint,
            peer,
        };
        client.send(&initialize(FIRST, capabilities)).await;
        let opened = client.receive().await;
        assert_eq!(
            member(&opened, "result.protocolVersion"),
            Some(r#""2024-11-05""#)
        );
        client.send(INITIALIZED).await;
        client
    }

    async fn send(&self, message: &str) {
        self.peer.sent(message, None);
        let mut connection = Connection::open(self.gateway.mcp).await;
        connection
            .request("POST", &self.endpoint, &JSON_HEADERS, message.as_bytes())
            .await;
        assert_eq!(connection.response().await.status, 202);
    }

    async fn receive(&mut self) -> String {
        let message = self
            .stream
            .event()
            .await
            .unwrap()
            .expect("a message before the end");
        self.peer.received(&message);
        message
    }

    /// Calls a tool that requests the roots; returns the response.
    async fn call_with_server_request(&mut self) -> String {
        self.send(&legacy_request("7", "tools/call", CALL)).await;
        let request = self.receive().await;
        assert_eq!(
            member(&request, "method"),
            Some(r#""roots/list""#),
            "{request}"
        );
        let id = member(&request, "id").unwrap();
        self.send(&format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{ROOTS}}}"#
        ))
        .await;
        let answer = self.receive().await;
        assert_eq!(member(&answer, "id"), Some("7"), "{answer}");
        answer
    }
}

fn asks_in_its_era(backend: &Backend, era: Era) {
    match era {
        Era::Legacy => {
            let got = |_: &Received, answers: &[std::sync::Arc<Received>]| {
                assert_eq!(answers[0].member("result"), Some(ROOTS));
                RESULT.to_owned()
            };
            let request = r#"{"jsonrpc":"2.0","id":"q","method":"roots/list"}"#;
            backend.on("tools/call", Reply::conclude(got).asking(&[request]));
        }
        Era::Modern => {
            backend.on("tools/call", Reply::result(RESULT));
            let input_required = r#"{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}},"requestState":"s"}"#;
            backend.once("tools/call", Reply::result(input_required));
        }
    }
}

/// Checks all members of [`RESULT`]; an era may add others.
fn assert_whole(result: &str) {
    for (path, raw) in [
        ("structuredContent", r#"{"n":1.0,"s":"\u0041\/"}"#),
        ("x", "1E400"),
        ("content", "[]"),
    ] {
        assert_eq!(member(result, path), Some(raw), "{result}");
    }
}

#[tokio::test]
async fn sse_client_reaches_servers_of_both_eras() {
    for era in [Era::Modern, Era::Legacy] {
        let server = backend(era, Transport::Http).await;
        asks_in_its_era(&server, era);
        let mut client =
            OldClient::start(&config(&[server.entry("only")]), r#"{"roots":{}}"#).await;
        let answer = client.call_with_server_request().await;
        assert_whole(member(&answer, "result").unwrap());
        if era == Era::Modern {
            let calls = server.received("tools/call");
            assert_eq!(calls[1].member("params.inputResponses.k"), Some(ROOTS));
        }
        assert!(client.gateway.terminate().await.success());
    }
}

/// The server with the HTTP+SSE transport is a second gateway. The first one finds its `/sse` by
/// the specification's fallback.
#[tokio::test]
async fn clients_of_both_eras_reach_an_sse_server() {
    for era in [Era::Modern, Era::Legacy] {
        for kind in ["", r#","type":"sse""#] {
            let server = backend(Era::Legacy, Transport::Http).await;
            asks_in_its_era(&server, Era::Legacy);
            let behind = Gateway::start(&config(&[server.entry("only")])).await;
            let entry = format!(r#""old":{{"url":"http://{}/sse"{kind}}}"#, behind.mcp);
            let mut client = Client::start_with(
                r#"{"roots":{}}"#,
                &config(&[entry.as_str()]),
                era,
                Transport::Http,
            )
            .await;
            let exchange = client
                .converse("1", "tools/call", CALL, |method, _| {
                    assert_eq!(plain_string(&format!("{method:?}")), Some("roots/list"));
                    ROOTS.to_owned()
                })
                .await;
            assert_whole(exchange.member("result"));
            assert_eq!(server.received("tools/call").len(), 1, "never sent twice");
            // The server ends: the call fails with a reason and does not hang.
            assert!(behind.terminate().await.success());
            let failed = client.request("2", "tools/call", CALL, "").await;
            assert!(
                exchange_error(&failed.answer).contains("old"),
                "{}",
                failed.answer
            );
        }
    }
}

fn exchange_error(answer: &str) -> &str {
    member(answer, "error.message").unwrap_or_else(|| panic!("no error in {answer}"))
}

#[tokio::test]
async fn session_that_an_operator_ends_is_gone_with_its_stream_and_its_calls() {
    let server = backend(Era::Legacy, Transport::Http).await;
    let mut client = OldClient::start(&config(&[server.entry("only")]), "{}").await;
    let mut other = Connection::open(client.gateway.mcp).await;
    other
        .request("GET", "/sse", &[("Accept", "text/event-stream")], b"")
        .await;
    let mut other = other.response().await;
    let other_endpoint = other.event().await.unwrap().expect("an endpoint");
    server.once("tools/call", Reply::fault(crate::scripted::Fault::Hang));
    client.send(&legacy_request("7", "tools/call", CALL)).await;
    server.wait_for("tools/call", 1).await;
    let mut connection = Connection::open(client.gateway.admin).await;
    connection.request("GET", "/api/sessions", &[], b"").await;
    let sessions = connection.response().await.text().await;
    let sessions: serde_json::Value = serde_json::from_str(&sessions).unwrap();
    let sessions = sessions["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2);
    let running = sessions
        .iter()
        .find(|one| one["running"] == 1)
        .expect("the one with a call");
    let digest = running["digest"].as_str().unwrap().to_owned();
    assert!(!client.endpoint.contains(&digest));

    let url = format!("http://{}", client.gateway.admin);
    let end = async || {
        let mut command = crate::harness::fanlight();
        command.args(["end-session", &digest, "--admin", &url]);
        command
            .stdin(std::process::Stdio::null())
            .output()
            .await
            .unwrap()
            .status
            .success()
    };
    assert!(end().await && !end().await);
    assert_eq!(client.stream.event().await.expect("a whole stream"), None);
    server.wait_for("notifications/cancelled", 1).await;
    for (endpoint, status) in [(&client.endpoint, 404), (&other_endpoint, 202)] {
        let mut connection = Connection::open(client.gateway.mcp).await;
        connection
            .request(
                "POST",
                endpoint,
                &JSON_HEADERS,
                initialize(FIRST, "{}").as_bytes(),
            )
            .await;
        assert_eq!(connection.response().await.status, status);
    }
}
