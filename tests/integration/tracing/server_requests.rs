//! The spans of a server request during a call mirror the call's spans. Below the call's CLIENT
//! span is a SERVER span for the server request, and below that a CLIENT span for the request to
//! the client.

use std::sync::Arc;

use fanlight_tests::slicer::{member_at, members, plain_string};

use super::spans::{CLIENT, SERVER, TraceFile, from_client};
use crate::faults::backend;
use crate::harness::Gateway;
use crate::raw_client::{
    LegacySession, NEWEST_LEGACY, StdioClient, legacy_request, modern_request_with, post_modern,
};
use crate::scripted::{Backend, Era, Gate, Received, Reply, Transport, config};

const CALL: &str = "tools/call t";
const ASKED: &str = "elicitation/create";
pub(super) const CAPABILITIES: &str = r#"{"elicitation":{"form":{}}}"#;
const PARAMS: &str = r#""message":"m","requestedSchema":{"type":"object","properties":{}}"#;
pub(super) const ACCEPTED: &str = r#"{"action":"accept","content":{}}"#;

pub(super) fn elicits(meta: &str) -> Reply {
    let server_request = format!(
        r#"{{"jsonrpc":"2.0","id":"q-{{call}}","method":"{ASKED}","params":{{{PARAMS}{meta}}}}}"#
    );
    let got = |_: &Received, answers: &[Arc<Received>]| {
        format!(
            r#"{{"content":[],"got":{}}}"#,
            answers[0].member("result").unwrap()
        )
    };
    Reply::conclude(got).asking(&[&server_request])
}

pub(super) async fn start(backend: &Backend) -> (Gateway, TraceFile) {
    let file = TraceFile::new();
    (
        Gateway::start_with(&config(&[backend.entry("only")]), &file.arguments()).await,
        file,
    )
}

/// Calls the tool as a legacy client, responds to the only server request, and returns its raw
/// `traceparent`.
pub(super) async fn converse(gateway: &Gateway, context: &str) -> Option<String> {
    let session = LegacySession::open_with(gateway.mcp, NEWEST_LEGACY, CAPABILITIES).await;
    let params = format!(r#""name":"t","_meta":{{"traceparent":"{context}"}}"#);
    let mut stream = session
        .post(&legacy_request("1", "tools/call", &params))
        .await;
    let server_request = stream.event().await.unwrap().expect("a server_request");
    assert_eq!(
        member_at(&server_request, &["params", "message"]),
        Some(r#""m""#),
        "{server_request}"
    );
    let id = member_at(&server_request, &["id"]).unwrap();
    let answer = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{ACCEPTED}}}"#);
    assert_eq!(session.post(&answer).await.status, 202);
    let (_, last) = stream.messages().await;
    assert!(member_at(&last, &["result"]).is_some(), "{last}");
    member_at(&server_request, &["params", "_meta", "traceparent"])
        .and_then(plain_string)
        .map(str::to_owned)
}

#[tokio::test]
async fn relayed_server_request_has_its_own_spans() {
    for transport in [Transport::Http, Transport::Stdio] {
        let only = backend(Era::Legacy, transport).await;
        only.on("tools/call", elicits(""));
        let (gateway, file) = start(&only).await;
        let context = from_client(1, "01");
        let sent = converse(&gateway, &context).await;
        let wanted = [
            (SERVER, CALL),
            (CLIENT, CALL),
            (SERVER, ASKED),
            (CLIENT, ASKED),
        ];
        let trace = file.trace(&context, &wanted).await;
        let [call, forwarded, received, relayed] = wanted.map(|(kind, name)| trace.one(kind, name));
        assert_eq!(forwarded.parent(), call.id());
        assert_eq!(received.parent(), forwarded.id(), "{transport:?}");
        assert_eq!(relayed.parent(), received.id(), "{transport:?}");
        assert_eq!(received.text("fanlight.backend.name"), Some("only"));
        assert_eq!(
            received
                .text("jsonrpc.request.id")
                .map(|id| id.starts_with("q-")),
            Some(true)
        );
        assert_eq!(relayed.text("fanlight.backend.name"), None);
        assert!(
            [call, forwarded, received, relayed]
                .iter()
                .all(|span| span.error().is_none())
        );
        // The client's own spans are below the span of the forwarded request.
        let trace_id = &context[3..35];
        assert_eq!(sent, Some(format!("00-{trace_id}-{}-01", relayed.id())));
    }
}

/// The server's span in between is the parent if its trace is the same, and a link otherwise.
#[tokio::test]
async fn context_of_a_server_request_counts_within_the_same_trace() {
    for same in [true, false] {
        let only = backend(Era::Legacy, Transport::Http).await;
        let context = from_client(1, "01");
        let inside = from_client(if same { 1 } else { 2 }, "01").replace("-00f067aa", "-0badcafe");
        only.on(
            "tools/call",
            elicits(&format!(r#","_meta":{{"traceparent":"{inside}"}}"#)),
        );
        let (gateway, file) = start(&only).await;
        converse(&gateway, &context).await;
        let trace = file
            .trace(&context, &[(CLIENT, CALL), (SERVER, ASKED)])
            .await;
        let (received, forwarded) = (trace.one(SERVER, ASKED), trace.one(CLIENT, CALL));
        let (parent, links) = match same {
            true => (&inside[36..52], vec![]),
            false => (forwarded.id(), vec![inside[3..52].to_owned()]),
        };
        assert_eq!((received.parent(), received.links()), (parent, links));
    }
}

/// The request for a modern server's required input goes to the legacy client directly below the
/// client's call.
#[tokio::test]
async fn input_request_to_a_legacy_client_belongs_to_its_call() {
    let only = backend(Era::Modern, Transport::Http).await;
    let input = format!(r#"{{"method":"{ASKED}","params":{{{PARAMS}}}}}"#);
    let input_required = format!(
        r#"{{"resultType":"input_required","inputRequests":{{"k":{input}}},"requestState":"s"}}"#
    );
    only.once("tools/call", Reply::result(input_required));
    let (gateway, file) = start(&only).await;
    let context = from_client(1, "01");
    converse(&gateway, &context).await;
    let trace = file
        .trace(&context, &[(SERVER, CALL), (CLIENT, ASKED)])
        .await;
    let call = trace.one(SERVER, CALL);
    assert_eq!(trace.one(CLIENT, ASKED).parent(), call.id());
    let rounds = trace.all(CLIENT, CALL);
    assert_eq!(rounds.len(), 2);
    assert!(
        rounds
            .iter()
            .all(|round| round.parent() == call.id() && round.error().is_none())
    );
}

/// A modern client gets the server request in a response and sends the input in a new request. The
/// server request's SERVER span is below the call that still runs at the server; the new request
/// has its own SERVER span.
#[tokio::test]
async fn server_request_to_a_modern_client_spans_both_of_its_requests() {
    let only = backend(Era::Legacy, Transport::Http).await;
    only.on("tools/call", elicits(""));
    let (gateway, file) = start(&only).await;
    let context = from_client(1, "01");
    let meta = format!(r#""traceparent":"{context}""#);
    let params = r#""name":"t","arguments":{}"#;
    let call = modern_request_with(CAPABILITIES, "1", "tools/call", params, &meta);
    let (_, wanted) = post_modern(gateway.mcp, &call).await.messages().await;
    let params = with_input(params, &wanted);
    let back = modern_request_with(CAPABILITIES, "2", "tools/call", &params, &meta);
    let (_, done) = post_modern(gateway.mcp, &back).await.messages().await;
    assert_eq!(
        member_at(&done, &["result", "got"]),
        Some(ACCEPTED),
        "{done}"
    );
    let trace = file
        .trace(&context, &[(SERVER, CALL), (CLIENT, CALL), (SERVER, ASKED)])
        .await;
    let forwarded = trace.one(CLIENT, CALL);
    assert_eq!(trace.one(SERVER, ASKED).parent(), forwarded.id());
    let first = trace
        .all(SERVER, CALL)
        .into_iter()
        .find(|span| span.text("jsonrpc.request.id") == Some("1"));
    assert_eq!(
        first.map(|span| span.id()),
        Some(forwarded.parent()),
        "{trace:#?}"
    );
}

/// Over stdio: cancelling the retry cancels the call of both requests.
#[tokio::test]
async fn resumed_call_is_cancelled_as_a_whole() {
    let only = backend(Era::Legacy, Transport::Stdio).await;
    let gate = Gate::new();
    only.on("tools/call", elicits("").gated(&gate));
    let file = TraceFile::new();
    let mut gateway = Gateway::stdio_with(&config(&[only.entry("only")]), &file.arguments());
    let mut client = StdioClient::new(&mut gateway);
    let context = from_client(1, "01");
    let meta = format!(r#""traceparent":"{context}""#);
    let params = r#""name":"t","arguments":{}"#;
    let call = modern_request_with(CAPABILITIES, "1", "tools/call", params, &meta);
    let (_, wanted) = client.call(&call).await;
    let back = modern_request_with(
        CAPABILITIES,
        "2",
        "tools/call",
        &with_input(params, &wanted),
        &meta,
    );
    client.send(&back).await;
    gate.reached(1).await;
    client
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#)
        .await;
    let trace = file.trace(&context, &[(CLIENT, CALL)]).await;
    assert_eq!(trace.one(CLIENT, CALL).error(), Some("cancelled"));
    client.close_input();
    assert_eq!(gateway.ended().await.code(), Some(0));
    let trace = file.trace(&context, &[(SERVER, CALL)]).await;
    let mut requests: Vec<_> = trace
        .all(SERVER, CALL)
        .iter()
        .map(|span| (span.text("jsonrpc.request.id"), span.error()))
        .collect();
    requests.sort_unstable();
    assert_eq!(
        requests,
        [(Some("1"), None), (Some("2"), Some("cancelled"))]
    );
    assert!(
        trace
            .all(SERVER, CALL)
            .iter()
            .all(|span| span.text("network.transport") == Some("pipe"))
    );
}

/// The params of the retry with the one input that `wanted` requires.
pub(super) fn with_input(params: &str, wanted: &str) -> String {
    let state = member_at(wanted, &["result", "requestState"])
        .unwrap_or_else(|| panic!("no state in {wanted}"));
    let (key, _) = members(member_at(wanted, &["result", "inputRequests"]).unwrap()).unwrap()[0];
    format!(r#"{params},"inputResponses":{{"{key}":{ACCEPTED}}},"requestState":{state}"#)
}
