//! Progress of a task of 2025-11-25 after the answer to the call that made it.

use fanlight_tests::slicer::member;

use super::{ask, legacy_server, requested, task};
use crate::clients::Client;
use crate::harness::Gateway;
use crate::raw_client::{LegacySession, legacy_request};
use crate::scripted::{Backend, Era, Reply, Transport, config};

const RESULT: &str = r#"{"content":[],"n":1.0}"#;

/// A progress message with the token that the server got for a call.
fn progress_of(call: &str, n: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"x":1E400,"progressToken":{call},"progress":{n}}}}}"#
    )
}

/// The same message for the client whose token is `mine`.
fn progress_for_client(n: u32) -> String {
    progress_of(r#""m\u0069ne""#, n)
}

/// A session whose call has made the task `slow`, and the progress token at the server.
async fn made(gateway: &Gateway, server: &Backend, tool: &str) -> (LegacySession, String) {
    let session = LegacySession::open(gateway.mcp).await;
    let params = format!(r#""name":"{tool}","task":{{}},"_meta":{{"progressToken":"m\u0069ne"}}"#);
    let created = ask(&session, "tools/call", &params).await;
    assert_eq!(
        member(&created, "task.taskId"),
        Some(r#""slow""#),
        "{created}"
    );
    let call = server.received("tools/call").last().unwrap().clone();
    (
        session,
        call.member("params._meta.progressToken")
            .unwrap()
            .to_owned(),
    )
}

async fn server(transport: Transport) -> Backend {
    let server = legacy_server("slow", transport).await;
    server.on_target("tasks/result", "slow", Reply::driven());
    if transport == Transport::Http {
        server.serves_get();
    }
    server
}

/// A gateway with the server alone, and one with another server besides.
async fn gateways(server: &Backend) -> Vec<(Gateway, &'static str)> {
    let other = Backend::start(Era::Legacy, Transport::Http).await;
    other.offers_tools(&["u"]);
    vec![
        (Gateway::start(&config(&[server.entry("a")])).await, "t"),
        (
            Gateway::start(&config(&[other.entry("b"), server.entry("a")])).await,
            "a__t",
        ),
    ]
}

#[tokio::test]
async fn progress_on_the_stream_of_the_result_reaches_the_client_there() {
    for transport in [Transport::Http, Transport::Stdio] {
        let server = server(transport).await;
        for (number, (gateway, tool)) in gateways(&server).await.into_iter().enumerate() {
            let (session, token) = made(&gateway, &server, tool).await;
            let mut result = session
                .post(&legacy_request("9", "tasks/result", &task("slow")))
                .await;
            let stream = server.stream(number).await;
            stream.message(&progress_of(&token, 1)).await;
            assert_eq!(
                result.event().await.unwrap().unwrap(),
                progress_for_client(1),
                "{transport:?}"
            );
            // A notification with an unknown token reaches no client.
            stream.message(&progress_of("123456", 2)).await;
            stream.message(&progress_of(&token, 3)).await;
            assert_eq!(
                result.event().await.unwrap().unwrap(),
                progress_for_client(3)
            );
            stream.result(RESULT).await;
            let (before, answer) = result.messages().await;
            assert_eq!(
                (before.len(), member(&answer, "result.n")),
                (0, Some("1.0")),
                "{answer}"
            );
        }
    }
}

#[tokio::test]
async fn progress_on_the_servers_own_stream_reaches_the_clients() {
    for transport in [Transport::Http, Transport::Stdio] {
        let server = server(transport).await;
        for (number, (gateway, tool)) in gateways(&server).await.into_iter().enumerate() {
            let (session, token) = made(&gateway, &server, tool).await;
            let mut own = session.stream(None).await;
            let (stream, call) = match transport {
                Transport::Http => (server.stream(number).await, None),
                Transport::Stdio => {
                    let call = session
                        .post(&legacy_request("9", "tasks/result", &task("slow")))
                        .await;
                    (server.stream(number).await, Some(call))
                }
            };
            stream.message(&progress_of(&token, 1)).await;
            assert_eq!(
                own.event().await.unwrap().unwrap(),
                progress_for_client(1),
                "{transport:?}"
            );
            let other = LegacySession::open(gateway.mcp).await;
            let working = ask(&other, "tasks/get", &task("slow")).await;
            assert!(
                working.contains("Task not found")
                    || working.contains(&requested("slow", "working")),
                "{working}"
            );
            stream.message(&progress_of(&token, 2)).await;
            assert_eq!(own.event().await.unwrap().unwrap(), progress_for_client(2));
            if call.is_some() {
                stream.result(RESULT).await;
            }
        }
    }
}

/// The gateway awaits the task for a client without tasks, which gets the progress on the call.
#[tokio::test]
async fn progress_of_an_awaited_task_reaches_the_call() {
    for era in [Era::Legacy, Era::Modern] {
        let server = server(Transport::Http).await;
        let tool = r#"{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"required"}}"#;
        server.on("tools/list", server.list("tools", tool));
        let mut client = Client::start(&config(&[server.entry("a")]), era, Transport::Http).await;
        client.progress_token = r#""m\u0069ne""#.to_owned();
        let serve = async {
            let stream = server.stream(0).await;
            let call = server.received("tools/call").last().unwrap().clone();
            let token = call.member("params._meta.progressToken").unwrap();
            stream.message(&progress_of(token, 1)).await;
            stream.result(RESULT).await;
        };
        let call = client.request("1", "tools/call", r#""name":"t""#, "");
        let (exchange, ()) = tokio::join!(call, serve);
        assert_eq!(exchange.before, [progress_for_client(1)], "{era:?}");
        assert_eq!(exchange.member("result.n"), "1.0");
    }
}
