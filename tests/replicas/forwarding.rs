//! Sessions and suspended calls whose clients reach another replica than their owner.

use std::fs;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::{Duration, Instant};

use fanlight_testkit::signing_in::{ANN, BOB, KEYS};
use fanlight_tests::slicer::{member, plain_string};
use hyper::body::{Body as _, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::group::{admin, members, until};
use crate::harness::{Gateway, within};
use crate::linked::{Client, Linked, LinkedGroup, error_code, modern};
use crate::raw_client::{
    Connection, JSON_HEADERS, NEWEST_LEGACY, legacy_request, modern_request_with,
};
use crate::scripted::{Backend, Era, Gate, Reply, Transport};
use crate::tls::TlsClient;
use crate::valkey::Valkey;

const CAN_BE_ASKED: &str = r#"{"roots":{}}"#;

/// A legacy server with the tools `say`, which answers, and `ask`, which requests the roots first.
pub(crate) async fn backend() -> Backend {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    backend.offers_tools(&["say", "ask"]);
    backend.on(
        "tools/call",
        Reply::result(r#"{"content":[{"type":"text","text":"said"}]}"#),
    );
    let question = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;
    let answer = Reply::conclude(|_, answers| {
        let roots = answers
            .first()
            .and_then(|answer| answer.member("result.roots"))
            .unwrap_or("none");
        format!(r#"{{"content":[],"structuredContent":{{"roots":{roots}}}}}"#)
    });
    backend.on_target("tools/call", "ask", answer.asking(&[question]));
    backend
}

pub(crate) fn say(id: &str) -> String {
    legacy_request(id, "tools/call", r#""name":"say","arguments":{}"#)
}

fn ask(more: &str) -> String {
    modern_request_with(
        CAN_BE_ASKED,
        "1",
        "tools/call",
        &format!(r#""name":"ask","arguments":{{}}{more}"#),
        "",
    )
}

/// The members that a retry adds to its call, given the answer that requires input.
fn input_for(suspended: &str) -> String {
    let state = member(suspended, "result.requestState")
        .unwrap_or_else(|| panic!("not suspended: {suspended}"));
    let key = member(suspended, "result.inputRequests")
        .and_then(|inputs| inputs.split('"').nth(1))
        .unwrap();
    assert!(plain_string(state).is_some());
    format!(r#","requestState":{state},"inputResponses":{{"{key}":{{"roots":[]}}}}"#)
}

pub(crate) fn signal(gateway: &Gateway, signal: Signal) {
    let pid = Pid::from_raw(gateway.pid().try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

#[tokio::test]
async fn session_is_served_through_any_replica_and_kept_by_one() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    for (id, at) in [("1", &other), ("2", &owner), ("3", &other)] {
        let mut response = client.post(at, &say(id)).await;
        assert_eq!(
            (response.status, response.header("content-type")),
            (200, Some("application/json"))
        );
        let answer = response.text().await;
        assert!(
            answer.contains("said") && member(&answer, "id") == Some(id),
            "{answer}"
        );
    }
    // There is one session at the server, since one replica owns the client's session.
    let calls = backend.received("tools/call");
    assert_eq!(calls.len(), 3);
    assert!(
        calls
            .iter()
            .all(|call| call.header("mcp-session-id") == calls[0].header("mcp-session-id"))
    );
    assert_eq!(client.send(&other, "DELETE", &[], "").await.status, 204);
    // In the first seconds of a group the answer is 503.
    for at in [&owner, &other] {
        until("the end of the session", async || {
            client.post(at, &say("4")).await.status == 404
        })
        .await;
    }
}

#[tokio::test]
async fn header_for_a_server_passes_through_another_replica() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let entry = backend.entry_with("only", r#""forwardHeaders":{"X-Tenant":"X-Org"}"#);
    let group = LinkedGroup::new(entry, "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    let mut headers = JSON_HEADERS.to_vec();
    headers.push(("X-Tenant", "acme"));
    for at in [&owner, &other] {
        let answer = client
            .send(at, "POST", &headers, &say("1"))
            .await
            .text()
            .await;
        assert!(answer.contains("said"), "{answer}");
    }
    let calls = backend.received("tools/call");
    assert!(
        calls.len() == 2
            && calls
                .iter()
                .all(|call| call.header("x-org") == Some("acme"))
    );
}

/// A replica reads the list of replicas every half second. Until then it must not regard a new
/// replica as ended.
#[tokio::test]
async fn session_of_a_replica_that_has_joined_just_now_is_served_through_others() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let other = group.start(&valkey.url()).await;
    for _ in 0..3 {
        let joined = group.start(&valkey.url()).await;
        let client = Client::open(&joined, ANN).await;
        let answer = client.post(&other, &say("1")).await.text().await;
        assert!(answer.contains("said"), "{answer}");
    }
}

#[tokio::test]
async fn stream_of_a_session_passes_through_another_replica_and_is_resumed_there() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    backend.declares(r#"{"tools":{"listChanged":true}}"#);
    backend.serves_get();
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    let mut stream = client.stream(&other, None).await;
    assert_eq!((stream.status, stream.is_event_stream()), (200, true));
    let opening = stream.whole_event().await.unwrap().unwrap();
    let id = opening
        .id
        .expect("an event with an id, after which the stream can be resumed");
    assert_eq!(client.post(&other, &say("1")).await.status, 200);
    let session = backend.received("tools/call")[0]
        .header("mcp-session-id")
        .unwrap()
        .to_owned();
    let server = backend.stream_of(&session).await;
    server
        .message(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"one"}}"#)
        .await;
    assert!(stream.event().await.unwrap().unwrap().contains(r#""one""#));
    drop(stream);
    let mut resumed = client.stream(&other, Some(&id)).await;
    assert!(
        resumed.event().await.unwrap().unwrap().contains(r#""one""#),
        "what was sent after the event is sent again"
    );
}

/// An HTTP/2 connection on which this session requests long answers and has read only their
/// beginnings.
async fn taking_little(at: &Linked, client: &Client, answers: usize) -> Vec<Incoming> {
    let stream = TokioIo::new(TcpStream::connect(at.gateway.mcp).await.unwrap());
    let mut http2 = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = http2
        .initial_stream_window_size(64 << 10)
        .handshake(stream)
        .await
        .unwrap();
    tokio::spawn(connection);
    let mut taken = Vec::new();
    for _ in 0..answers {
        let call = legacy_request("1", "tools/call", r#""name":"tell","arguments":{}"#);
        let mut request = hyper::Request::post(format!("http://{}/mcp", at.gateway.mcp));
        let authorization = format!("Bearer {ANN}");
        let session = [
            ("mcp-session-id", client.session.as_str()),
            ("mcp-protocol-version", NEWEST_LEGACY),
        ];
        for (name, value) in JSON_HEADERS
            .into_iter()
            .chain(session)
            .chain([("authorization", authorization.as_str())])
        {
            request = request.header(name, value);
        }
        let response = within(
            "a response",
            sender.send_request(request.body(call).unwrap()),
        )
        .await
        .unwrap();
        let mut body = response.into_body();
        assert!(
            within(
                "its beginning",
                poll_fn(|cx| Pin::new(&mut body).poll_frame(cx))
            )
            .await
            .unwrap()
            .unwrap()
            .is_data()
        );
        taken.push(body);
    }
    taken
}

#[tokio::test]
async fn clients_that_take_little_hold_up_no_others_behind_the_same_replica() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    backend.offers_tools(&["say", "tell"]);
    let long = format!(
        r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#,
        "x".repeat(3 << 20)
    );
    backend.on_target("tools/call", "tell", Reply::result(&long));
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let (slow, quick) = (
        Client::open(&owner, ANN).await,
        Client::open(&owner, BOB).await,
    );
    let _taken = taking_little(&other, &slow, 8).await;
    for id in ["1", "2", "3"] {
        let answer = within("an answer", async {
            quick.post(&other, &say(id)).await.text().await
        })
        .await;
        assert!(answer.contains("said"), "{answer}");
    }
}

#[tokio::test]
async fn suspended_call_is_resumed_through_another_replica_by_its_client_alone() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let suspended = modern(&owner, ANN, &ask("")).await;
    let input = input_for(&suspended);
    let stolen = modern(&other, BOB, &ask(&input)).await;
    assert_eq!(error_code(&stolen), Some("-32602"), "{stolen}");
    let answer = modern(&other, ANN, &ask(&input)).await;
    assert!(
        answer.contains(r#""structuredContent":{"roots":[]}"#),
        "{answer}"
    );
    let again = modern(&other, ANN, &ask(&input)).await;
    assert_eq!(error_code(&again), Some("-32602"), "{again}");
    assert_eq!(backend.count_of_target("tools/call", "ask"), 1);
}

#[tokio::test]
async fn suspended_calls_of_a_killed_replica_are_unknown_at_once() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (mut owner, other) = group.start_two(&valkey.url()).await;
    let suspended = modern(&owner, ANN, &ask("")).await;
    let input = input_for(&suspended);
    owner.gateway.kill().await;
    let began = Instant::now();
    let answer = modern(&other, ANN, &ask(&input)).await;
    assert_eq!(error_code(&answer), Some("-32602"), "{answer}");
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
}

/// A stopped replica accepts connections, like one whose machine has lost its network.
#[tokio::test]
async fn request_to_a_stopped_replica_is_answered_within_three_seconds() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let suspended = modern(&owner, ANN, &ask("")).await;
    let client = Client::open(&owner, ANN).await;
    assert_eq!(client.post(&other, &say("1")).await.status, 200);
    signal(&owner.gateway, Signal::STOP);
    let began = Instant::now();
    let mut lost = client.post(&other, &say("2")).await;
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    let text = lost.text().await;
    // Each worker has its own connection. A worker without one has sent nothing, so the session is
    // taken over.
    let is_lost = lost.status == 502 && text.contains("mayHaveRun");
    assert!(
        is_lost || lost.status == 200 && text.contains("said"),
        "{}: {text}",
        lost.status
    );
    until("one replica", async || members(&other.gateway).await == 1).await;
    let began = Instant::now();
    let answer = modern(&other, ANN, &ask(&input_for(&suspended))).await;
    assert_eq!(error_code(&answer), Some("-32602"), "{answer}");
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    signal(&owner.gateway, Signal::CONT);
}

#[tokio::test]
async fn call_is_cancelled_at_its_replica_when_its_client_disconnects_from_another() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let gate = Gate::new();
    let question = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;
    let answer = Reply::result(r#"{"content":[]}"#).gated(&gate);
    backend.on_target("tools/call", "ask", answer.asking(&[question]));
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let suspended = modern(&owner, ANN, &ask("")).await;
    let body = ask(&input_for(&suspended));
    let mut headers = crate::raw_client::modern_headers(&body);
    headers.push(("Authorization".to_owned(), format!("Bearer {ANN}")));
    let own = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let headers: Vec<_> = JSON_HEADERS.into_iter().chain(own).collect();
    let mut connection = Connection::open(other.gateway.mcp).await;
    connection
        .request("POST", "/mcp", &headers, body.as_bytes())
        .await;
    gate.reached(1).await;
    drop(connection);
    backend.wait_abandoned("tools/call").await;
}

#[tokio::test]
async fn session_of_one_client_does_not_exist_for_another_at_any_replica() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    let thief = client.stolen_by(BOB);
    let mut expected = None;
    for at in [&owner, &other] {
        let mut response = thief.post(at, &say("1")).await;
        let seen = (response.status, response.text().await);
        assert_eq!(seen.0, 404);
        assert_eq!(
            expected.get_or_insert_with(|| seen.clone()),
            &seen,
            "the same everywhere"
        );
        assert_eq!(thief.stream(at, None).await.status, 404);
        assert_eq!(thief.send(at, "DELETE", &[], "").await.status, 404);
    }
    assert!(backend.received("tools/call").is_empty());
    assert_eq!(
        client.post(&other, &say("2")).await.status,
        200,
        "it is still there"
    );
}

/// Removes Ann's key from the file.
fn revoke_ann(group: &LinkedGroup) {
    let of_bob = KEYS
        .lines()
        .filter(|line| !line.contains("name: ann"))
        .collect::<Vec<_>>()
        .join("\n");
    let keys = group.group.keys();
    fs::write(keys.with_extension("new"), of_bob).unwrap();
    fs::rename(keys.with_extension("new"), keys).unwrap();
}

#[tokio::test]
async fn revoked_key_is_refused_at_every_replica_and_ends_what_passes_through_one() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    let mut stream = client.stream(&other, None).await;
    assert_eq!(stream.status, 200);
    revoke_ann(&group);
    while stream.event().await.unwrap().is_some() {}
    for at in [&owner, &other] {
        until("the key to be refused", async || {
            client.post(at, &say("1")).await.status == 401
        })
        .await;
    }
    assert!(backend.received("tools/call").is_empty());
}

#[tokio::test]
async fn call_of_a_revoked_key_ends_at_the_replica_that_it_was_passed_on_to() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let gate = Gate::new();
    backend.on_target(
        "tools/call",
        "say",
        Reply::result(r#"{"content":[]}"#).gated(&gate),
    );
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    let call = say("1");
    let revoked = async {
        gate.reached(1).await;
        revoke_ann(&group);
        backend.wait_for("notifications/cancelled", 1).await;
    };
    tokio::join!(client.post(&other, &call), revoked);
}

/// Clients cannot inject a replica's header fields, and nobody without the replicas' keys can act
/// as one.
#[tokio::test]
async fn envelopes_of_clients_and_strangers_are_refused() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let owner = group.start(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    // The listener for clients ignores the forged field, instead of credentials and beside them.
    let mut connection = Connection::open(owner.gateway.mcp).await;
    let forged = (
        "Fanlight-Envelope",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    );
    let headers: Vec<_> = JSON_HEADERS
        .into_iter()
        .chain([forged, ("Mcp-Session-Id", client.session.as_str())])
        .collect();
    connection
        .request("POST", "/mcp", &headers, say("1").as_bytes())
        .await;
    assert_eq!(connection.response().await.status, 401);
    assert_eq!(
        client
            .send(&owner, "POST", &headers_with(forged), &say("1"))
            .await
            .status,
        200
    );
    // The listener for replicas admits nobody without a certificate.
    assert!(
        response_of(&owner, &TlsClient::new(&group.authority), &[forged])
            .await
            .is_none()
    );
    // With a certificate, requests with a missing or forged envelope are refused unread.
    let replica = TlsClient::showing(&group.authority, &group.pair());
    let bearer = format!("Bearer {ANN}");
    for headers in [
        &[][..],
        &[forged],
        &[forged, forged],
        &[("Authorization", bearer.as_str())],
    ] {
        assert_eq!(
            response_of(&owner, &replica, headers).await,
            Some(421),
            "{headers:?}"
        );
    }
    assert_eq!(backend.received("tools/call").len(), 1);
    // A connection with many such requests ends.
    let mut stream = replica.connect(owner.link).await.unwrap();
    let requests = "POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".repeat(1000);
    let mut answers = Vec::new();
    let ended = async {
        // The connection may end before all are sent.
        let _ = stream.write_all(requests.as_bytes()).await;
        let _ = stream.read_to_end(&mut answers).await;
    };
    within("the end of the connection", ended).await;
    let answers = String::from_utf8_lossy(&answers);
    assert!(answers.matches("HTTP/1.1 421").count() <= 101, "{answers}");
}

#[tokio::test]
async fn request_with_the_longest_header_is_passed_on() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    // The value nearly exhausts the limit of a header, 64 KiB. Each of these characters takes
    // several bytes when it is forwarded.
    let long = "\"".repeat(60 << 10);
    let headers: Vec<_> = JSON_HEADERS
        .into_iter()
        .chain([("Mcp-X", long.as_str())])
        .collect();
    for at in [&owner, &other] {
        assert_eq!(
            client.send(at, "POST", &headers, &say("1")).await.status,
            200
        );
    }
}

fn headers_with(one: (&'static str, &'static str)) -> Vec<(&'static str, &'static str)> {
    JSON_HEADERS.into_iter().chain([one]).collect()
}

/// The status with which the listener for replicas answers; `None` if it does not even accept the
/// connection.
pub(crate) async fn response_of(
    at: &Linked,
    client: &TlsClient,
    headers: &[(&str, &str)],
) -> Option<u16> {
    let stream = client.connect(at.link).await.ok()?;
    let mut connection = Connection::on(stream, at.link);
    let close = ("Connection", "close");
    let headers: Vec<_> = JSON_HEADERS
        .into_iter()
        .chain([close])
        .chain(headers.iter().copied())
        .collect();
    connection
        .request("POST", "/mcp", &headers, say("9").as_bytes())
        .await;
    // In TLS 1.3, a client finishes its handshake before the server notices a missing certificate.
    connection
        .rest()
        .await
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

#[tokio::test]
async fn trace_of_a_request_that_is_passed_on_is_one_trace() {
    // Spans are exported to a collector that is not there, so Fanlight forwards its own context.
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(
        backend.entry("only"),
        r#","telemetry":{"endpoint":"http://127.0.0.1:9"}"#,
    );
    let (owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    let traceparent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let headers: Vec<_> = JSON_HEADERS
        .into_iter()
        .chain([("traceparent", traceparent.as_str())])
        .collect();
    assert_eq!(
        client
            .send(&other, "POST", &headers, &say("1"))
            .await
            .status,
        200
    );
    let call = &backend.received("tools/call")[0];
    assert!(call.header("traceparent").unwrap().contains(TRACE));
    for at in [&owner, &other] {
        let path = format!("/api/traces/{TRACE}");
        until("the trace", async || {
            admin(&at.gateway, "GET", &path).await.0 == 200
        })
        .await;
    }
    // The second replica's span is below the first one's.
    let (_, of_other) = admin(&other.gateway, "GET", &format!("/api/traces/{TRACE}")).await;
    let (_, of_owner) = admin(&owner.gateway, "GET", &format!("/api/traces/{TRACE}")).await;
    let span = plain_string(
        of_other
            .split(r#""spanId":"#)
            .nth(1)
            .and_then(|rest| rest.get(..18))
            .unwrap(),
    )
    .unwrap();
    assert!(
        of_owner.contains(&format!(r#""parentSpanId":"{span}""#)),
        "{span}: {of_owner}"
    );
}
