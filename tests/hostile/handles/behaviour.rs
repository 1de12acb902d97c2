//! Things that a handle alone does not name: two principals do the same at the same time, with
//! equal ids.

use super::world::{Client, OPERATOR, World, in_session, modern};
use crate::harness::within;
use crate::raw_client::{Connection, legacy_request};
use crate::scripted::{Era, Fault, Gate, Reply};

/// The kinds that the tests below try, by their names in docs/architecture.md.
pub(super) const KINDS: [&str; 8] = [
    "id of a running request, progress token",
    "server request",
    "subscription",
    "private result",
    "session of an operator, digest of a client's session",
    "call that an operator attends, question in it",
    "URI that a server has handed out",
    "session or process at a server",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_ids_and_progress_tokens_of_two_principals_are_two() {
    let world = World::start().await;
    let gate = Gate::new();
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{token},"progress":1}}"#;
    world.legacy.on_target(
        "tools/call",
        "t",
        Reply::result(r#"{"content":[]}"#)
            .after(&[progress])
            .gated(&gate),
    );
    let call = legacy_request(
        "1",
        "tools/call",
        r#""name":"legacy__t","_meta":{"progressToken":"p"}"#,
    );
    let sessions = [
        world.open_session(Client::Ann).await.unwrap(),
        world.open_session(Client::Bob).await.unwrap(),
    ];
    let mut ann = world
        .request(
            Client::Ann,
            "POST",
            None,
            &in_session(sessions[0].clone()),
            &call,
        )
        .await;
    let told = ann.event().await.unwrap().unwrap();
    assert!(told.contains(r#""progressToken":"p""#), "{told}");
    // Bob's call with the same id and token reports progress and is cancelled; Ann's call goes on.
    let bobs = in_session(sessions[1].clone());
    let mut bob = world.request(Client::Bob, "POST", None, &bobs, &call).await;
    assert!(bob.event().await.unwrap().unwrap().contains("progress"));
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":2}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
    ] {
        assert_eq!(
            world
                .request(Client::Bob, "POST", None, &bobs, body)
                .await
                .status,
            202
        );
    }
    let cancelled = world.legacy.wait_for("notifications/cancelled", 1).await;
    let calls: Vec<_> = world.legacy.received("tools/call");
    let of_bob = calls.last().unwrap().member("id");
    assert_eq!(cancelled[0].member("params.requestId"), of_bob);
    gate.open();
    let (events, answer) = ann.messages().await;
    assert!(
        events.is_empty() && answer.contains(r#""result""#),
        "{events:?} {answer}"
    );
    assert_eq!(world.legacy.received("notifications/cancelled").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_request_is_answered_by_its_own_client_alone() {
    let world = World::start().await;
    let conclude =
        Reply::conclude(|_, answers| format!(r#"{{"content":[],"got":{}}}"#, answers[0].text));
    let ask = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"roots/list"}"#;
    world
        .legacy
        .on_target("tools/call", "ask", conclude.asking(&[ask]));
    let call = legacy_request("1", "tools/call", r#""name":"legacy__ask""#);
    let sessions = [
        world.open_session(Client::Ann).await.unwrap(),
        world.open_session(Client::Bob).await.unwrap(),
    ];
    let mut ann = world
        .request(
            Client::Ann,
            "POST",
            None,
            &in_session(sessions[0].clone()),
            &call,
        )
        .await;
    let asked = ann.event().await.unwrap().unwrap();
    assert!(asked.contains("roots/list"), "{asked}");
    let id = fanlight_testkit::slicer::member(&asked, "id").unwrap();
    let answer = |root: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[{{"uri":"file:///{root}"}}]}}}}"#
        )
    };
    let bobs = in_session(sessions[1].clone());
    assert_eq!(
        world
            .request(Client::Bob, "POST", None, &bobs, &answer("bob"))
            .await
            .status,
        202
    );
    let anns = in_session(sessions[0].clone());
    assert_eq!(
        world
            .request(Client::Ann, "POST", None, &anns, &answer("ann"))
            .await
            .status,
        202
    );
    let (_, concluded) = ann.messages().await;
    assert!(
        concluded.contains("file:///ann") && !concluded.contains("bob"),
        "{concluded}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_of_a_task_reach_its_own_principal_alone() {
    let world = World::start().await;
    world.modern.on("subscriptions/listen", Reply::listening());
    let task = world.make(super::Kind::Task).await;
    let listen = modern(
        "",
        "subscriptions/listen",
        &format!(r#""notifications":{{"taskIds":["{task}"],"toolsListChanged":true}}"#),
    );
    let open = async |client| {
        let mut stream = world
            .request(client, "POST", None, &listen.headers, &listen.body)
            .await;
        let opened = stream.event().await.unwrap().unwrap();
        (stream, opened)
    };
    let (mut ann, opened) = open(Client::Ann).await;
    assert!(opened.contains(&task), "{opened}");
    let (mut bob, opened) = open(Client::Bob).await;
    assert!(
        opened.contains("acknowledged") && !opened.contains(&task),
        "{opened}"
    );
    let update = world
        .modern
        .streams()
        .into_iter()
        .find(|stream| stream.filter().is_some_and(|it| it.contains(&task)));
    let stream = match update {
        Some(stream) => stream,
        None => {
            within("a subscription to the task", async {
                loop {
                    let all = world.modern.streams();
                    if let Some(found) = all
                        .into_iter()
                        .find(|stream| stream.filter().is_some_and(|it| it.contains(&task)))
                    {
                        return found;
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                }
            })
            .await
        }
    };
    let done = crate::scripted::Task {
        id: &task,
        status: "working",
        ttl: 600_000,
        poll: 60_000,
    }
    .members(Era::Modern);
    stream.notify("notifications/tasks", &done).await;
    let told = ann.event().await.unwrap().unwrap();
    assert!(
        told.contains("notifications/tasks") && told.contains(&task),
        "{told}"
    );
    // The other client's first message is the later announcement to all.
    world.modern.offers_tools(&["long", "new"]);
    for stream in world.modern.streams() {
        if stream
            .filter()
            .is_some_and(|filter| filter.contains("toolsListChanged"))
        {
            stream.notify("notifications/tools/list_changed", "").await;
        }
    }
    let told = bob.event().await.unwrap().unwrap();
    assert!(
        told.contains("list_changed") && !told.contains(&task),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_and_private_results_are_not_shared_among_principals() {
    let world = World::start().await;
    let gate = Gate::new();
    let resource = r#"{"uri":"file:///a","name":"a"}"#;
    world
        .modern
        .on("resources/list", world.modern.list("resources", resource));
    let body = r#"{"resultType":"complete","contents":[{"uri":"file:///a","text":"x"}],"ttlMs":600000,"cacheScope":"private"}"#;
    world
        .modern
        .on("resources/read", Reply::result(body).gated(&gate));
    let read = modern("", "resources/read", r#""uri":"file:///a""#);
    let asked = async |client| world.send(client, &read).await.0;
    let all = async { tokio::join!(asked(Client::Ann), asked(Client::Bob)) };
    let opened = async {
        // Both calls have reached the server before it answers either.
        gate.reached(2).await;
        gate.open();
    };
    let (statuses, ()) = tokio::join!(all, opened);
    assert_eq!(statuses, (200, 200));
    for (number, client) in [(3, Client::Ann), (4, Client::Bob), (5, Client::Elsewhere)] {
        assert_eq!(asked(client).await, 200);
        assert_eq!(
            world.modern.received("resources/read").len(),
            number,
            "{client:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_at_servers_are_not_shared_among_principals() {
    let world = World::start().await;
    // Clients of one principal may share a session at the server if they have no session of their
    // own.
    let call = modern("", "tools/call", r#""name":"legacy__t","arguments":{}"#);
    for client in [Client::Ann, Client::Bob, Client::Ann, Client::Bob] {
        assert_eq!(world.send(client, &call).await.0, 200);
    }
    let sessions = |clients: &[usize]| -> std::collections::BTreeSet<String> {
        let calls = world.legacy.received("tools/call");
        clients
            .iter()
            .map(|client| calls[*client].header("mcp-session-id").unwrap().to_owned())
            .collect()
    };
    assert!(sessions(&[0, 2]).is_disjoint(&sessions(&[1, 3])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handed_out_uri_changes_nothing_for_others() {
    let world = World::start().await;
    let contents = |text: &str| format!(r#""contents":[{{"uri":"made://1","text":"{text}"}}]"#);
    world.legacy.on(
        "resources/read",
        Reply::result(format!("{{{}}}", contents("of the first"))),
    );
    world.modern.on(
        "resources/read",
        Reply::result(Era::Modern.cacheable(&contents("of the second"))),
    );
    let link = r#""content":[{"type":"resource_link","uri":"made://1","name":"made"}]"#;
    world
        .modern
        .on("tools/call", Reply::result(Era::Modern.complete(link)));
    let read = modern("", "resources/read", r#""uri":"made://1""#);
    let call = modern("", "tools/call", r#""name":"modern__long","arguments":{}"#);
    assert!(world.send(Client::Ann, &call).await.1.contains("made://1"));
    // No list has the resource, so the gateway asks the servers in turn, except for the client that
    // has got its link from one of them.
    for client in [Client::Bob, Client::Elsewhere] {
        let answer = world.send(client, &read).await.1;
        assert!(answer.contains("of the first"), "{client:?}: {answer}");
    }
    let answer = world.send(Client::Ann, &read).await.1;
    assert!(answer.contains("of the second"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handles_of_operators_are_of_no_use_to_clients() {
    let world = World::start().await;
    let admin = world.gateway.admin;
    let send = async |address, method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        let mut connection = Connection::open(address).await;
        connection
            .request(method, path, headers, body.as_bytes())
            .await;
        let mut response = connection.response().await;
        let cookie = response
            .header("set-cookie")
            .map(|cookie| cookie.split(';').next().unwrap().to_owned());
        (response.status, response.text().await, cookie)
    };
    let origin = format!("http://{admin}");
    let operator = format!("Bearer {OPERATOR}");
    let sign_in = [
        ("Content-Type", "application/json"),
        ("Origin", origin.as_str()),
    ];
    let signed = send(
        admin,
        "POST",
        "/api/session",
        &sign_in,
        &format!(r#"{{"token":"{OPERATOR}"}}"#),
    )
    .await;
    let cookie = signed.2.expect("a session of the page");
    let invented = format!("{}{}", &cookie[..cookie.len() - 8], "A".repeat(8));
    // The page's session is not valid at the endpoint, whoever sends it.
    let modern = modern("", "tools/list", "");
    for client in [Client::Nobody, Client::Expired] {
        let mut answers = Vec::new();
        for cookie in [&cookie, &invented] {
            let mut headers = modern.headers.clone();
            headers.push(("Cookie", cookie.clone()));
            let mut response = world
                .request(client, "POST", None, &headers, &modern.body)
                .await;
            answers.push((response.status, response.text().await));
        }
        assert_eq!(answers[0], answers[1], "{client:?}");
        assert_eq!(answers[0].0, 401);
    }
    // The operators' name for a client's session is useless with a client's key.
    world.make(super::Kind::Session).await;
    let shown = send(
        admin,
        "GET",
        "/api/sessions",
        &[("Authorization", &operator)],
        "",
    )
    .await
    .1;
    let digest = shown
        .split(r#""digest":"#)
        .nth(1)
        .expect(&shown)
        .trim_start_matches([' ', '"']);
    let digest = digest.split('"').next().unwrap();
    for key in [Client::Ann, Client::Bob].map(|client| format!("Bearer {}", client.key().unwrap()))
    {
        for address in [admin, world.gateway.mcp] {
            let end = async |digest: &str| {
                let path = format!("/api/sessions/{digest}/end");
                send(
                    address,
                    "POST",
                    &path,
                    &[
                        ("Authorization", &key),
                        ("Content-Type", "application/json"),
                    ],
                    "",
                )
                .await
            };
            let (real, other) = (end(digest).await, end("0123456789ab").await);
            assert_eq!(
                (real.0, real.1.replace(digest, "")),
                (other.0, other.1.replace("0123456789ab", ""))
            );
            assert!(matches!(real.0, 401 | 404), "{real:?}");
        }
    }
    let path = format!("/api/sessions/{digest}/end");
    assert_eq!(
        send(admin, "POST", &path, &[("Authorization", &operator)], "")
            .await
            .0,
        200
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_an_operator_attends_is_known_to_its_operator_alone() {
    let world = World::start().await;
    world
        .modern
        .on_target("tools/call", "long", Reply::fault(Fault::Hang));
    let admin = world.gateway.admin;
    let (operator, ann) = (
        format!("Bearer {OPERATOR}"),
        format!("Bearer {}", Client::Ann.key().unwrap()),
    );
    let origin = format!("http://{admin}");
    let (json, own_page) = (
        ("Content-Type", "application/json"),
        ("Origin", origin.as_str()),
    );
    let post = async |path: &str, headers: &[(&str, &str)], body: &str| {
        let mut connection = Connection::open(admin).await;
        connection
            .request(
                "POST",
                path,
                &[&[json, own_page], headers].concat(),
                body.as_bytes(),
            )
            .await;
        connection.response().await
    };
    let signed = post("/api/session", &[], &format!(r#"{{"token":"{OPERATOR}"}}"#)).await;
    let cookie = signed
        .header("set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let body = r#"{"method":"tools/call","params":{"name":"modern__long","arguments":{}}}"#;
    let as_events = [
        ("Authorization", operator.as_str()),
        ("Accept", "text/event-stream"),
    ];
    let mut attended = post("/api/call", &as_events, body).await;
    let begun = attended.event().await.unwrap().unwrap();
    let call = begun
        .split(r#""call":""#)
        .nth(1)
        .expect(&begun)
        .split('"')
        .next()
        .unwrap()
        .to_owned();
    let invented = "A".repeat(call.len());
    let with = |path: &str, call: &str| match path {
        "/api/call/cancel" => format!(r#"{{"call":"{call}"}}"#),
        _ => format!(r#"{{"call":"{call}","question":1,"result":{{"action":"decline"}}}}"#),
    };
    for path in ["/api/call/cancel", "/api/call/answer"] {
        // The operator in another session of the page, a client, and nobody.
        let others: [&[(&str, &str)]; 3] =
            [&[("Cookie", &cookie)], &[("Authorization", &ann)], &[]];
        for other in others {
            let mut answers = Vec::new();
            for call in [&call, &invented] {
                let mut answer = post(path, other, &with(path, call)).await;
                answers.push((
                    answer.status,
                    answer.text().await.replace(call.as_str(), ""),
                ));
            }
            assert_eq!(answers[0], answers[1], "{path} {other:?}");
            assert!(
                matches!(answers[0].0, 401 | 404),
                "{path} {other:?}: {answers:?}"
            );
        }
    }
    let own = [("Authorization", operator.as_str())];
    assert_eq!(
        post("/api/call/cancel", &own, &with("/api/call/cancel", &call))
            .await
            .status,
        200
    );
    assert!(
        within("the end", attended.event())
            .await
            .is_ok_and(|event| event.is_some_and(|it| it.contains('{')))
    );
}
