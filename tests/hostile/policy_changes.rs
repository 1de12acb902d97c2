//! Waiting calls, tasks and subscriptions that a new policy denies to their clients.

use fanlight_testkit::scripted::Received;
use fanlight_testkit::signing_in::{ANN, BOB};
use fanlight_testkit::slicer::{member, plain_string};

use crate::harness::within;
use crate::policy::{self, Scene, session};
use crate::raw_client::{Connection, Response, legacy_request};
use crate::scripted::{Era, Reply};

const CLIENT: &str =
    r#"{"roots":{},"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const TASKS: &str =
    r#"{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}"#;
const ASK: &str = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;
const LOOK: &str = r#""name":"look","arguments":{"path":"/data"}"#;

const EVERYTHING: &str = "permit(principal, action, resource);";
/// Bob may no longer call `look` at all, in this folder, or without approval.
const HIDDEN: &str = r#"permit(principal, action, resource);
    forbid(principal == User::"key#bob", action == Action::"call", resource == Tool::"files/look");"#;
const DENIED: &str = r#"permit(principal, action, resource);
    forbid(principal == User::"key#bob", action == Action::"call", resource == Tool::"files/look")
        when { context.arguments has path && context.arguments.path like "/data*" };"#;
const ASKED: &str = r#"permit(principal, action, resource);
    @ask("May Bob look?") permit(principal == User::"key#bob", action == Action::"call", resource == Tool::"files/look");"#;
/// A different policy with the same effect on this.
const OTHER: &str = r#"permit(principal, action, resource);
    forbid(principal, action, resource == Tool::"files/write_file");"#;

/// New policies, each with the error code with which waiting requests end.
const CHANGES: [(&str, Option<&str>); 4] = [
    (HIDDEN, Some("-32602")),
    (DENIED, Some("-31005")),
    (ASKED, Some("-31007")),
    (OTHER, None),
];

/// A server of this era whose tool `look` first asks the client.
async fn asking(server: Era, policies: &str) -> Scene {
    let scene = Scene::start(server, 1, policies, "").await;
    let backend = &scene.servers[0];
    let done = server.complete(r#""content":[]"#);
    backend.on_target(
        "tools/call",
        "look",
        match server {
            Era::Legacy => Reply::result(done).asking(&[ASK]),
            Era::Modern => Reply::compute(move |call: &Received| match call.member("params.inputResponses") {
                Some(_) => done.clone(),
                None => r#"{"resultType":"input_required","inputRequests":{"a":{"method":"roots/list"}},"requestState":"s"}"#
                    .to_owned(),
            }),
        },
    );
    scene
}

/// The members that a retry adds to its call, given the answer that requires input.
fn input_for(answer: &str, input: &str) -> String {
    let state =
        member(answer, "result.requestState").unwrap_or_else(|| panic!("no state: {answer}"));
    let key = member(answer, "result.inputRequests")
        .and_then(|inputs| inputs.split('"').nth(1))
        .unwrap();
    format!(r#","requestState":{state},"inputResponses":{{"{key}":{input}}}"#)
}

/// Checks the answer to a call that waited during the policy change, and that its server got no
/// input if it ended.
fn assert_ended(scene: &Scene, server: Era, answer: &str, expected: Option<&str>) {
    let backend = &scene.servers[0];
    let inputs = match server {
        Era::Legacy => backend
            .received("")
            .iter()
            .filter(|answer| answer.member("result").is_some())
            .count(),
        Era::Modern => backend
            .received("tools/call")
            .iter()
            .filter(|it| it.text.contains("inputResponses"))
            .count(),
    };
    match expected {
        Some(code) => {
            assert_eq!(member(answer, "error.code"), Some(code), "{answer}");
            assert_eq!(inputs, 0, "{answer}");
        }
        None => {
            assert!(member(answer, "result.content").is_some(), "{answer}");
            assert_eq!(inputs, 1, "{answer}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_of_a_modern_client_does_not_go_on_under_a_policy_that_denies_it() {
    for server in [Era::Legacy, Era::Modern] {
        for (policies, expected) in CHANGES {
            let mut scene = asking(server, EVERYTHING).await;
            let asked = scene.modern_with(CLIENT, BOB, "tools/call", LOOK).await;
            scene.change(policies).await;
            let retry = format!("{LOOK}{}", input_for(&asked, r#"{"roots":[]}"#));
            let call = scene.modern_with(CLIENT, BOB, "tools/call", &retry);
            // For a modern server each round is a call, for which operators may be asked.
            if server == Era::Modern && policies == ASKED {
                continue;
            }
            let answer = call.await;
            assert_ended(&scene, server, &answer, expected);
            if expected.is_some() && server == Era::Legacy {
                within(
                    "the end of the call",
                    scene.servers[0].wait_abandoned("tools/call"),
                )
                .await;
                let again = scene.modern_with(CLIENT, BOB, "tools/call", &retry).await;
                assert!(member(&again, "error").is_some(), "{again}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_of_a_legacy_client_does_not_go_on_under_a_policy_that_denies_it() {
    for server in [Era::Legacy, Era::Modern] {
        for (policies, expected) in CHANGES {
            let mut scene = asking(server, EVERYTHING).await;
            let id = scene.open_with(CLIENT, BOB).await;
            let mut stream = scene
                .send(BOB, &session(&id), &legacy_request("1", "tools/call", LOOK))
                .await;
            let question = stream.event().await.unwrap().expect("a question");
            scene.change(policies).await;
            let asked =
                member(&question, "id").unwrap_or_else(|| panic!("no question: {question}"));
            let response = format!(r#"{{"jsonrpc":"2.0","id":{asked},"result":{{"roots":[]}}}}"#);
            assert_eq!(scene.send(BOB, &session(&id), &response).await.status, 202);
            let answer = within("an answer", stream.event())
                .await
                .unwrap()
                .expect("an answer");
            assert_ended(&scene, server, &answer, expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_of_a_legacy_client_that_began_without_policies_does_not_go_on_under_the_first() {
    const ON: &str = r#""policy":{"files":["*.cedar"]}"#;
    const OFF: &str = r#""policy":{}"#;
    // Under a policy that permits everything it would go on.
    let policies =
        format!("{EVERYTHING}\nforbid(principal, action, resource == Tool::\"files/write_file\");");
    let mut scene = asking(Era::Legacy, &policies).await;
    scene.configure(ON, OFF).await;
    let id = scene.open_with(CLIENT, BOB).await;
    let mut stream = scene
        .send(BOB, &session(&id), &legacy_request("1", "tools/call", LOOK))
        .await;
    let question = stream.event().await.unwrap().expect("a question");
    scene.configure(OFF, ON).await;
    let response = format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"roots":[]}}}}"#,
        member(&question, "id").unwrap()
    );
    assert_eq!(scene.send(BOB, &session(&id), &response).await.status, 202);
    let answer = within("an answer", stream.event())
        .await
        .unwrap()
        .expect("an answer");
    assert_ended(&scene, Era::Legacy, &answer, Some("-31007"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_of_a_call_is_void_once_the_policy_has_changed() {
    let asked = |rest: &str| {
        format!(
            r#"permit(principal, action, resource);
            {rest}
            @ask("Look?") @by("caller") permit(principal, action == Action::"call", resource == Tool::"files/look");"#
        )
    };
    let other = r#"forbid(principal, action, resource == Tool::"files/write_file");"#;
    for (policies, expected) in [
        (HIDDEN, "-32602"),
        (DENIED, "-31005"),
        (&asked(other), "-31007"),
    ] {
        let mut scene = Scene::start(Era::Modern, 1, &asked(""), "").await;
        let question = scene.modern_with(CLIENT, BOB, "tools/call", LOOK).await;
        scene.change(policies).await;
        let retry = format!("{LOOK}{}", input_for(&question, r#"{"action":"accept"}"#));
        let answer = scene.modern_with(CLIENT, BOB, "tools/call", &retry).await;
        assert_eq!(member(&answer, "error.code"), Some(expected), "{answer}");
        assert!(scene.servers[0].received("tools/call").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approval_of_an_operator_is_void_once_the_policy_denies_the_call() {
    let asked = r#"permit(principal, action, resource);
        @ask("Look?") permit(principal, action == Action::"call", resource == Tool::"files/look");"#;
    let mut scene = Scene::start(Era::Modern, 1, asked, "").await;
    let (gateway, log) = (scene.gateway.admin, scene.gateway.log.clone());
    let body = crate::raw_client::modern_request("1", "tools/call", LOOK, "");
    let headers = crate::raw_client::modern_headers(&body);
    let mut headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let bearer = format!("Bearer {BOB}");
    headers.extend(crate::raw_client::JSON_HEADERS);
    headers.push(("Authorization", &bearer));
    let mut connection = Connection::open(scene.gateway.mcp).await;
    connection
        .request("POST", "/mcp", &headers, body.as_bytes())
        .await;
    let line = log
        .line_with_all(&[r#""target":"audit""#, "approval of a call: asked"])
        .await;
    let id = line
        .split_once(r#""id":""#)
        .and_then(|(_, id)| id.split('"').next())
        .expect("an id")
        .to_owned();
    scene.change(HIDDEN).await;
    let mut approver = Connection::open(gateway).await;
    let origin = format!("http://{gateway}");
    approver
        .request(
            "POST",
            &format!("/api/approvals/{id}/approve"),
            &[("Origin", &origin)],
            b"",
        )
        .await;
    assert_eq!(approver.response().await.status, 200);
    let (_, answer) = within("an answer", connection.response())
        .await
        .messages()
        .await;
    assert_eq!(member(&answer, "error.code"), Some("-32602"), "{answer}");
    assert!(scene.servers[0].received("tools/call").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_is_unknown_to_a_client_who_may_no_longer_make_its_call() {
    const STATE: &str = r#""taskId":"t-1","status":"working","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttl":600000"#;
    for (policies, is_known) in [
        (HIDDEN, false),
        (DENIED, false),
        (ASKED, true),
        (OTHER, true),
    ] {
        let backend = policy::server(Era::Legacy).await;
        backend.declares(TASKS);
        backend.on(
            "tools/call",
            Reply::result(format!(r#"{{"task":{{{STATE}}}}}"#)),
        );
        for method in ["tasks/get", "tasks/cancel"] {
            backend.on(method, Reply::result(format!("{{{STATE}}}")));
        }
        backend.on("tasks/result", Reply::result(r#"{"content":[]}"#));
        backend.on(
            "tasks/list",
            Reply::result(format!(r#"{{"tasks":[{{{STATE}}}]}}"#)),
        );
        let mut scene = Scene::start_with(vec![backend], EVERYTHING, "").await;
        let id = scene.open_with("{}", BOB).await;
        let made = scene
            .legacy(BOB, &id, "tools/call", &format!(r#"{LOOK},"task":{{}}"#))
            .await;
        assert_eq!(
            member(&made, "result.task.taskId"),
            Some(r#""t-1""#),
            "{made}"
        );
        let got = scene
            .legacy(BOB, &id, "tasks/get", r#""taskId":"t-1""#)
            .await;
        assert!(member(&got, "result").is_some(), "{got}");
        let listed = scene.legacy(BOB, &id, "tasks/list", "").await;
        assert!(listed.contains("t-1"), "{listed}");
        scene.change(policies).await;
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            let before = scene.servers[0].received(method).len();
            let answer = scene.legacy(BOB, &id, method, r#""taskId":"t-1""#).await;
            assert_eq!(
                member(&answer, "result").is_some(),
                is_known,
                "{method}: {answer}"
            );
            assert_eq!(
                scene.servers[0].received(method).len() - before,
                usize::from(is_known),
                "{method}"
            );
            let unknown = scene.legacy(BOB, &id, method, r#""taskId":"t-2""#).await;
            assert!(is_known || answer == unknown, "{answer} {unknown}");
        }
        let listed = scene.legacy(BOB, &id, "tasks/list", "").await;
        assert_eq!(listed.contains("t-1"), is_known, "{listed}");
        // The task belongs to nobody else in any case.
        let ann = scene.open_with("{}", ANN).await;
        let answer = scene
            .legacy(ANN, &ann, "tasks/get", r#""taskId":"t-1""#)
            .await;
        assert!(member(&answer, "error").is_some(), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_result_is_unknown_to_a_client_who_may_no_longer_make_its_call() {
    for (policies, is_known) in [
        (HIDDEN, false),
        (DENIED, false),
        (ASKED, true),
        (OTHER, true),
    ] {
        let backend = policy::server(Era::Modern).await;
        let text = "x".repeat(100_000);
        let content = format!(r#""content":[{{"type":"text","text":"{text}"}}]"#);
        backend.on("tools/call", Reply::result(Era::Modern.complete(&content)));
        let results = r#","endpoints":{"/mcp":{"results":{}}}"#;
        let mut scene = Scene::start_with(vec![backend], EVERYTHING, results).await;
        let called = scene.modern(BOB, "tools/call", LOOK).await;
        let uri = called.split('"').find(|it| it.starts_with("fanlight-"));
        let params = format!(r#""uri":"{}?bytes=0-9""#, uri.expect(&called));
        let read = scene.modern(BOB, "resources/read", &params).await;
        assert!(read.contains("xxxxxxxxxx"), "{read}");
        scene.change(policies).await;
        let read = scene.modern(BOB, "resources/read", &params).await;
        assert_eq!(read.contains("xxxxxxxxxx"), is_known, "{read}");
        // To somebody else it is unknown in any case, and in the same words.
        let other = scene.modern(ANN, "resources/read", &params).await;
        assert!(is_known || other == read, "{other} {read}");
    }
}

/// The stream of Bob's session.
async fn listening(scene: &Scene, id: &str) -> Response {
    let bearer = format!("Bearer {BOB}");
    let mut headers = session(id).to_vec();
    headers.extend([
        ("Accept", "text/event-stream"),
        ("Authorization", bearer.as_str()),
    ]);
    let mut connection = Connection::open(scene.gateway.mcp).await;
    connection.request("GET", "/mcp", &headers, b"").await;
    connection.response().await
}

/// The next message of a stream, except list changes.
async fn message(heard: &mut Response) -> String {
    within("a message", async {
        loop {
            let event = heard.event().await.unwrap().unwrap();
            if !event.contains("list_changed") {
                return event;
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_is_not_told_of_a_task_whose_call_it_may_no_longer_make() {
    let state = |task: &str| {
        format!(
            r#""taskId":"{task}","status":"working","createdAt":"2025-11-25T10:30:00Z","lastUpdatedAt":"2025-11-25T10:30:00Z","ttl":600000"#
        )
    };
    let other = r#""name":"write_file","arguments":{}"#;
    for policies in [HIDDEN, DENIED] {
        let backend = policy::server(Era::Legacy).await;
        backend.serves_get();
        backend.declares(TASKS);
        for (tool, task) in [("look", "t-1"), ("write_file", "t-2")] {
            backend.on_target(
                "tools/call",
                tool,
                Reply::result(format!(r#"{{"task":{{{}}}}}"#, state(task))),
            );
        }
        let mut scene = Scene::start_with(vec![backend], EVERYTHING, "").await;
        let id = scene.open_with("{}", BOB).await;
        let mut heard = listening(&scene, &id).await;
        for call in [LOOK, other] {
            let made = scene
                .legacy(BOB, &id, "tools/call", &format!(r#"{call},"task":{{}}"#))
                .await;
            assert!(member(&made, "result.task.taskId").is_some(), "{made}");
        }
        let made = scene.servers[0].received("tools/call");
        let own = made[0]
            .header("mcp-session-id")
            .expect("a session of its own")
            .to_owned();
        let stream = within(
            "the stream of the session",
            scene.servers[0].stream_of(&own),
        )
        .await;
        let told = async |task: &str| {
            let params = state(task);
            stream
                .message(&format!(r#"{{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{{{params}}}}}"#))
                .await;
        };
        told("t-1").await;
        let event = message(&mut heard).await;
        assert_eq!(
            member(&event, "params.taskId").and_then(plain_string),
            Some("t-1"),
            "{event}"
        );
        scene.change(policies).await;
        told("t-1").await;
        told("t-2").await;
        let event = message(&mut heard).await;
        assert_eq!(
            member(&event, "params.taskId").and_then(plain_string),
            Some("t-2"),
            "{event}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_end_with_the_permission_to_subscribe() {
    let subscribing = r#"forbid(principal, action == Action::"subscribe", resource == Resource::"files/file:///public/a");"#;
    let reading = r#"forbid(principal, action == Action::"read", resource == Resource::"files/file:///public/a");"#;
    for forbidden in [subscribing, reading] {
        let backend = policy::server(Era::Legacy).await;
        backend.serves_get();
        let mut scene = Scene::start_with(vec![backend], EVERYTHING, "").await;
        let id = scene.open_with("{}", BOB).await;
        let mut heard = listening(&scene, &id).await;
        for uri in ["file:///public/a", "file:///private/key"] {
            let answer = scene
                .legacy(
                    BOB,
                    &id,
                    "resources/subscribe",
                    &format!(r#""uri":"{uri}""#),
                )
                .await;
            assert!(member(&answer, "result").is_some(), "{answer}");
        }
        let subscribed = scene.servers[0].received("resources/subscribe");
        let own = subscribed[0]
            .header("mcp-session-id")
            .expect("a session of its own")
            .to_owned();
        let stream = within(
            "the stream of the session",
            scene.servers[0].stream_of(&own),
        )
        .await;
        let update = async |uri: &str| {
            stream
                .message(&format!(
                    r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#
                ))
                .await;
        };
        update("file:///public/a").await;
        let event = message(&mut heard).await;
        assert!(event.contains("file:///public/a"), "{event}");
        scene.change(&format!("{EVERYTHING}\n{forbidden}")).await;
        update("file:///public/a").await;
        update("file:///private/key").await;
        let event = message(&mut heard).await;
        let uri = member(&event, "params.uri").and_then(plain_string);
        assert_eq!(uri, Some("file:///private/key"), "{forbidden}: {event}");
    }
}
