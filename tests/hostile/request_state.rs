//! `requestState` in the hands of clients: a suspended call's state forged, cut, exchanged and
//! replayed, and a modern server's state used by another client.

use std::time::Duration;

use fanlight_testkit::slicer::{member, plain_string};

use crate::harness::{Gateway, TempFile};
use crate::raw_client::{
    Connection, JSON_HEADERS, NEWEST_LEGACY, Response, initialize, legacy_request, modern_headers,
    modern_request_with, post_modern,
};
use crate::scripted::{Backend, Era, Received, Reply, Transport, config};
use crate::target::{Bounds, Target};

const CLIENT: &str = r#"{"roots":{}}"#;
const ASK: &str = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;
const ANSWERS: &str = r#""inputResponses":{"input-1":{"roots":[{"uri":"file:///forged"}]}}"#;

/// A target whose tool `transfer` first asks its client.
async fn asking() -> Target {
    let backend = Backend::start(Era::Legacy, Transport::Http).await;
    backend.offers_tools(&["t", "transfer", "other"]);
    backend.on("tools/call", Reply::result(r#"{"content":[]}"#));
    for tool in ["transfer", "other"] {
        let done =
            Reply::conclude(|_, answers| format!(r#"{{"content":[],"got":{}}}"#, answers[0].text));
        backend.on_target("tools/call", tool, done.asking(&[ASK]));
    }
    Target::serve(backend, "").await
}

async fn call(target: &Target, params: &str) -> String {
    let body = modern_request_with(CLIENT, "7", "tools/call", params, "");
    post_modern(target.gateway.mcp, &body)
        .await
        .messages()
        .await
        .1
}

/// Begins a call of this tool, and returns the state of the suspended call.
async fn suspend(target: &Target, tool: &str, arguments: &str) -> String {
    let answer = call(
        target,
        &format!(r#""name":"{tool}","arguments":{arguments}"#),
    )
    .await;
    let state = member(&answer, "result.requestState").and_then(plain_string);
    state
        .unwrap_or_else(|| panic!("not suspended: {answer}"))
        .to_owned()
}

/// Answers with this state, and returns the response.
async fn resume(target: &Target, tool: &str, arguments: &str, state: &str) -> String {
    call(
        target,
        &format!(r#""name":"{tool}","arguments":{arguments},{ANSWERS},"requestState":"{state}""#),
    )
    .await
}

/// The number of the client's answers at the server.
fn answers(target: &Target) -> usize {
    target.backend.received("").len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_states_reach_no_server() {
    let target = asking().await;
    let arguments = r#"{"to":"ann"}"#;
    let state = suspend(&target, "transfer", arguments).await;
    let mut forged: Vec<String> = (0..state.len())
        .flat_map(|position| [b'A', b'Q', b'_'].map(|byte| (position, byte)))
        .map(|(position, byte)| {
            let mut forged = state.clone().into_bytes();
            forged[position] = if forged[position] == byte { b'B' } else { byte };
            String::from_utf8(forged).unwrap()
        })
        .collect();
    forged.extend((0..state.len()).map(|length| state[..length].to_owned()));
    forged.extend([
        format!("{state}="),
        format!("{state}{state}"),
        "A".repeat(1 << 20),
        state.to_ascii_lowercase(),
    ]);
    for forged in forged.iter().filter(|forged| **forged != state) {
        let answer = resume(&target, "transfer", arguments, forged).await;
        assert_eq!(
            member(&answer, "error.code"),
            Some("-32602"),
            "{forged}: {answer}"
        );
    }
    assert_eq!(answers(&target), 0, "a forged state reached the server");
    let answer = resume(&target, "transfer", arguments, &state).await;
    assert!(
        member(&answer, "result.got").is_some(),
        "the true one still works: {answer}"
    );
    let bounds = Bounds {
        processor: Duration::from_secs(8),
        time: Duration::from_secs(30),
        ..Bounds::SMALL
    };
    target.withstood(bounds).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exchanged_and_replayed_states_reach_no_server() {
    let target = asking().await;
    let elsewhere = asking().await;
    let ann = suspend(&target, "transfer", r#"{"to":"ann"}"#).await;
    let bob = suspend(&target, "transfer", r#"{"to":"bob"}"#).await;
    let other = suspend(&target, "other", r#"{"to":"ann"}"#).await;
    let foreign = suspend(&elsewhere, "transfer", r#"{"to":"ann"}"#).await;
    for (tool, arguments, state) in [
        ("transfer", r#"{"to":"ann"}"#, &bob),
        ("transfer", r#"{"to":"bob"}"#, &ann),
        ("transfer", r#"{"to":"ann"}"#, &other),
        ("other", r#"{"to":"ann"}"#, &ann),
        ("t", r#"{"to":"ann"}"#, &ann),
        ("transfer", r#"{"to":"ann","to":"bob"}"#, &ann),
        ("transfer", r#"{"to":"ann"}"#, &foreign),
    ] {
        let answer = resume(&target, tool, arguments, state).await;
        assert!(
            member(&answer, "error.code").is_some(),
            "{tool} {arguments}: {answer}"
        );
    }
    assert_eq!(answers(&target), 0);
    let first = resume(&target, "transfer", r#"{"to":"ann"}"#, &ann).await;
    assert!(member(&first, "result.got").is_some(), "{first}");
    for _ in 0..20 {
        let replayed = resume(&target, "transfer", r#"{"to":"ann"}"#, &ann).await;
        assert_eq!(
            member(&replayed, "error.code"),
            Some("-32602"),
            "{replayed}"
        );
    }
    assert_eq!(answers(&target), 1, "the call was answered once");
    target.withstood(Bounds::SMALL).await;
    elsewhere.withstood(Bounds::SMALL).await;
}

/// Keys with their digests.
const KEYS: [(&str, &str, &str); 2] = [
    (
        "ann",
        "fanlight_00000000000000000000000000000000000000000002okinW",
        "319df4a3b61d5bb066d9f39d281dfaded068e99f7eb27b087b1377a9f9bd7fe1",
    ),
    (
        "bob",
        "fanlight_1111111111111111111111111111111111111111111146EDT",
        "c248b665096075b86cb84ea6f8a002fdafb7dfafee0aaa809a063ba852efe6b2",
    ),
];

/// The modern server's state as raw text, with an escape and in an unusual form.
const SERVER_STATE: &str = r#""st\u0061te \/ 1""#;

/// A modern server whose tool `transfer` requires input, and then names the beneficiary.
async fn asking_modern() -> Backend {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["transfer"]);
    let asks = format!(
        r#"{{ "requestState" : {SERVER_STATE},"resultType":"input_required","inputRequests":{{"input-1":{{"method":"roots/list"}}}}}}"#
    );
    let answer = move |call: &Received| match call.member("params.requestState") {
        Some(_) => Era::Modern.complete(r#""content":[]"#),
        None => asks.clone(),
    };
    backend.on("tools/call", Reply::compute(answer));
    backend
}

/// A gateway in front of this server, whose clients have keys.
async fn keyed(backend: &Backend) -> (Gateway, TempFile) {
    let folder = TempFile::folder();
    let keys = KEYS
        .map(|(name, _, digest)| format!("- {{name: {name}, sha256: '{digest}'}}\n"))
        .concat();
    std::fs::write(folder.path().join("keys.yaml"), format!("keys:\n{keys}")).unwrap();
    let config = format!(
        "auth: {{keys: {{file: keys.yaml}}}}\nmcpServers: {{{}}}\n",
        backend.entry("only")
    );
    std::fs::write(folder.path().join("fanlight.yaml"), config).unwrap();
    (
        Gateway::start_at(folder.path().join("fanlight.yaml")).await,
        folder,
    )
}

/// Sends a body with the key of this client, and returns the answer.
async fn send_as(
    gateway: &Gateway,
    client: usize,
    headers: &[(&str, &str)],
    body: &str,
) -> Response {
    let key = format!("Bearer {}", KEYS[client].1);
    let own = modern_headers(body);
    let mut all = JSON_HEADERS.to_vec();
    all.extend(
        own.iter()
            .filter(|_| headers.is_empty())
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    all.extend_from_slice(headers);
    all.push(("Authorization", &key));
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request("POST", "/mcp", &all, body.as_bytes())
        .await;
    connection.response().await
}

/// A call of `transfer`, with these further members.
fn transfer(more: &str) -> String {
    modern_request_with(
        CLIENT,
        "7",
        "tools/call",
        &format!(r#""name":"transfer","arguments":{{}}{more}"#),
        "",
    )
}

/// A retry with this state, raw.
fn retry(state: &str) -> String {
    transfer(&format!(
        r#","inputResponses":{{"input-1":{{"roots":[]}}}},"requestState":{state}"#
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_of_a_modern_server_is_good_for_its_own_client_alone() {
    let backend = asking_modern().await;
    let (gateway, _folder) = keyed(&backend).await;
    let asked = send_as(&gateway, 0, &[], &transfer(""))
        .await
        .messages()
        .await
        .1;
    let sealed = member(&asked, "result.requestState")
        .unwrap_or_else(|| panic!("{asked}"))
        .to_owned();
    assert!(
        !asked.contains("te \\/ 1") && !sealed.contains("state"),
        "the server's state is not shown: {asked}"
    );
    let before = backend.received("tools/call").len();
    let opened = send_as(&gateway, 1, &[("X", "")], &initialize(NEWEST_LEGACY, "{}")).await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let of_session = [
        ("Mcp-Session-Id", session.as_str()),
        ("MCP-Protocol-Version", NEWEST_LEGACY),
    ];
    let in_session = |state: &str| {
        let params = format!(
            r#""name":"transfer","arguments":{{}},"inputResponses":{{}},"requestState":{state}"#
        );
        legacy_request("7", "tools/call", &params)
    };
    for state in [
        sealed.as_str(),
        SERVER_STATE,
        "\"guessed\"",
        "\"\"",
        "7",
        "null",
        "{}",
    ] {
        for (headers, body) in [
            (&[][..], retry(state)),
            (&of_session[..], in_session(state)),
        ] {
            let answer = send_as(&gateway, 1, headers, &body)
                .await
                .messages()
                .await
                .1;
            assert_eq!(
                member(&answer, "error.code"),
                Some("-32602"),
                "{body}: {answer}"
            );
        }
    }
    // The unsealed state is useless even to its own client, which has only got the sealed one.
    let answer = send_as(&gateway, 0, &[], &retry(SERVER_STATE))
        .await
        .messages()
        .await
        .1;
    assert_eq!(member(&answer, "error.code"), Some("-32602"), "{answer}");
    assert_eq!(
        backend.received("tools/call").len(),
        before,
        "a state that is another's reached the server"
    );
    let done = send_as(&gateway, 0, &[], &retry(&sealed))
        .await
        .messages()
        .await
        .1;
    assert!(member(&done, "result.content").is_some(), "{done}");
    let calls = backend.received("tools/call");
    let sent = calls.last().unwrap().member("params.requestState").unwrap();
    assert_eq!(
        sent, SERVER_STATE,
        "byte for byte as the server has written it"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn state_of_a_modern_server_passes_verbatim_where_clients_are_not_authenticated() {
    let backend = asking_modern().await;
    let gateway = Gateway::start(&config(&[backend.entry("only")])).await;
    let asked = post_modern(gateway.mcp, &transfer(""))
        .await
        .messages()
        .await
        .1;
    assert_eq!(
        member(&asked, "result.requestState"),
        Some(SERVER_STATE),
        "{asked}"
    );
    let done = post_modern(gateway.mcp, &retry(SERVER_STATE))
        .await
        .messages()
        .await
        .1;
    assert!(member(&done, "result.content").is_some(), "{done}");
    assert_eq!(
        backend
            .received("tools/call")
            .last()
            .unwrap()
            .member("params.requestState"),
        Some(SERVER_STATE)
    );
}
