//! Servers with other versions: a canary that serves a share of the clients, and a mirror that gets
//! copies of requests.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fanlight_testkit::ports::Refusing;
use fanlight_testkit::signing_in::{ANN, SignInSetting, WITH_KEYS, is_result};
use fanlight_tests::slicer::member;
use serde_json::Value;

use crate::harness::{Gateway, TempFile, within};
use crate::raw_client::{
    Connection, INITIALIZED, JSON_HEADERS, NEWEST_LEGACY, Response, initialize, legacy_request,
    modern_headers, modern_request,
};
use crate::scripted::{Backend, Era, Gate, Protection, REFUSED, Reply, Transport, Verdict};
use crate::server_lives::{api, text_at};

const USERS: usize = 24;
/// Clients whom a local proxy names.
const BY_PROXY: &str = r#""auth":{"proxy":{"header":"X-User","from":["127.0.0.1"]}}"#;

/// A server whose lists and answers name its version. Its list is the same for all clients.
async fn version(era: Era, name: &'static str) -> Backend {
    version_over(Transport::Http, era, name).await
}

async fn version_over(transport: Transport, era: Era, name: &'static str) -> Backend {
    let backend = Backend::start(era, transport).await;
    let tool = |tool: &str, annotations: &str| {
        format!(
            r#"{{"name":"{tool}","description":"{name}","inputSchema":{{"type":"object"}},"annotations":{annotations}}}"#
        )
    };
    let tools = [
        tool("look", r#"{"readOnlyHint":true}"#),
        tool("set", r#"{"idempotentHint":true}"#),
        tool("delete", r#"{"destructiveHint":true}"#),
        tool("plain", "{}"),
    ]
    .join(",");
    let list = match era {
        Era::Legacy => format!(r#"{{"tools":[{tools}]}}"#),
        Era::Modern => {
            format!(
                r#"{{"resultType":"complete","tools":[{tools}],"ttlMs":60000,"cacheScope":"public"}}"#
            )
        }
    };
    backend.on("tools/list", Reply::result(list));
    let answer = era.complete(&format!(r#""content":[{{"type":"text","text":"{name}"}}]"#));
    backend.on("tools/call", Reply::result(answer));
    backend.on("resources/read", Reply::result(match era {
        Era::Legacy => format!(r#"{{"contents":[{{"uri":"doc:1","text":"{name}"}}]}}"#),
        Era::Modern => format!(
            r#"{{"resultType":"complete","contents":[{{"uri":"doc:1","text":"{name}"}}],"ttlMs":60000,"cacheScope":"public"}}"#
        ),
    }));
    backend.on(
        "resources/list",
        backend.list("resources", r#"{"uri":"doc:1","name":"doc"}"#),
    );
    backend
}

/// Sends a request as a user.
async fn ask(gateway: &Gateway, user: &str, body: &str, more: &[(&str, &str)]) -> Response {
    let mut connection = Connection::open(gateway.mcp).await;
    let headers = modern_headers(body);
    let mut all = JSON_HEADERS.to_vec();
    all.push(("X-User", user));
    all.extend(
        headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    all.extend_from_slice(more);
    connection
        .request("POST", "/mcp", &all, body.as_bytes())
        .await;
    connection.response().await
}

async fn answer(gateway: &Gateway, user: &str, method: &str, params: &str) -> String {
    ask(gateway, user, &modern_request("1", method, params, ""), &[])
        .await
        .messages()
        .await
        .1
}

async fn call(gateway: &Gateway, user: &str, tool: &str) -> String {
    answer(
        gateway,
        user,
        "tools/call",
        &format!(r#""name":"{tool}","arguments":{{"user":"{user}"}}"#),
    )
    .await
}

/// The one version that an answer names.
fn version_in(answer: &str) -> &'static str {
    let named: Vec<_> = ["v1", "v2"]
        .into_iter()
        .filter(|name| answer.contains(&format!("\"{name}\"")))
        .collect();
    assert_eq!(named.len(), 1, "{answer}");
    named[0]
}

/// The version that serves each user, which is the same for all requests of a user.
async fn serving(gateway: &Gateway, prefix: &str) -> BTreeMap<String, &'static str> {
    let mut found = BTreeMap::new();
    for number in 0..USERS {
        let user = format!("user-{number}");
        let seen = [
            version_in(&answer(gateway, &user, "tools/list", "").await),
            version_in(&call(gateway, &user, &format!("{prefix}look")).await),
            version_in(&answer(gateway, &user, "tools/list", "").await),
            version_in(&answer(gateway, &user, "resources/read", r#""uri":"doc:1""#).await),
        ];
        assert!(
            seen.iter().all(|version| *version == seen[0]),
            "{user}: {seen:?}"
        );
        found.insert(user, seen[0]);
    }
    found
}

fn users_of(found: &BTreeMap<String, &'static str>, version: &str) -> Vec<String> {
    found
        .iter()
        .filter(|(_, served)| **served == version)
        .map(|(user, _)| user.clone())
        .collect()
}

/// The configuration of a server `a` with the canary `next`, and further entries.
fn with_canary(versions: &[&Backend; 2], share: &str, more: &str) -> String {
    let [one, two] = versions;
    let canary = format!(r#""canary":{{"server":"next","share":{share}}}"#);
    format!(
        r#"{{{BY_PROXY},"mcpServers":{{{},{}{more}}}}}"#,
        one.entry_with("a", &canary),
        two.entry("next")
    )
}

#[tokio::test]
async fn canary_serves_the_same_share_of_principals_after_every_start() {
    for era in [Era::Modern, Era::Legacy] {
        let (one, two, other) = (
            version(era, "v1").await,
            version(era, "v2").await,
            version(era, "b").await,
        );
        for (more, prefix) in [
            (String::new(), ""),
            (format!(",{}", other.entry("b")), "a__"),
        ] {
            let versions = [&one, &two];
            let at = async |share: &str| {
                let gateway = Gateway::start(&with_canary(&versions, share, &more)).await;
                serving(&gateway, prefix).await
            };
            let half = at("0.5").await;
            let moved = users_of(&half, "v2");
            assert!((4..=20).contains(&moved.len()), "{half:?}");
            assert_eq!(at("0.5").await, half, "another process decides the same");
            let more = at("0.8").await;
            assert!(
                moved.iter().all(|user| more[user] == "v2"),
                "a greater share only adds: {half:?} {more:?}"
            );
            assert_eq!(users_of(&at("0").await, "v2"), [""; 0]);
            assert_eq!(users_of(&at("1").await, "v1"), [""; 0]);
        }
    }
}

#[tokio::test]
async fn share_changes_while_sessions_go_on() {
    let (one, two) = (
        version(Era::Legacy, "v1").await,
        version(Era::Legacy, "v2").await,
    );
    let versions = [&one, &two];
    let gateway = Gateway::start(&with_canary(&versions, "0", "")).await;
    let opened = ask(&gateway, "ann", &initialize(NEWEST_LEGACY, "{}"), &[]).await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    drop(opened);
    let headers = [
        ("Mcp-Session-Id", session.as_str()),
        ("MCP-Protocol-Version", NEWEST_LEGACY),
    ];
    ask(&gateway, "ann", INITIALIZED, &headers).await;
    let mut stream = {
        let mut connection = Connection::open(gateway.mcp).await;
        let mut all = vec![("X-User", "ann"), ("Accept", "text/event-stream")];
        all.extend(headers);
        connection.request("GET", "/mcp", &all, b"").await;
        connection.response().await
    };
    assert_eq!(stream.status, 200);
    let look = legacy_request("2", "tools/call", r#""name":"look","arguments":{}"#);
    let look = async || {
        ask(&gateway, "ann", &look, &headers)
            .await
            .messages()
            .await
            .1
    };
    assert_eq!(version_in(&look().await), "v1");

    gateway.configure(&with_canary(&versions, "1", ""));
    assert_eq!(gateway.reload().await.0, 200);
    let changed = within("the change of the list", async {
        loop {
            let event = stream.event().await.unwrap().expect("the stream goes on");
            if event.contains("notifications/tools/list_changed") {
                return event;
            }
        }
    });
    changed.await;
    assert_eq!(version_in(&look().await), "v2");
    let list = legacy_request("3", "tools/list", "");
    assert_eq!(
        version_in(
            &ask(&gateway, "ann", &list, &headers)
                .await
                .messages()
                .await
                .1
        ),
        "v2"
    );

    gateway.configure(&with_canary(&versions, "0", ""));
    assert_eq!(gateway.reload().await.0, 200);
    assert_eq!(version_in(&look().await), "v1");
}

#[tokio::test]
async fn clients_without_authentication_are_moved_by_session() {
    let (one, two) = (
        version(Era::Legacy, "v1").await,
        version(Era::Legacy, "v2").await,
    );
    let canary = r#""canary":{"server":"next","share":0.5}"#;
    for more in [
        String::new(),
        format!(",{}", version(Era::Legacy, "b").await.entry("b")),
    ] {
        let prefix = if more.is_empty() { "" } else { "a__" };
        let config = format!(
            r#"{{"mcpServers":{{{},{}{more}}}}}"#,
            one.entry_with("a", canary),
            two.entry("next")
        );
        let gateway = Gateway::start(&config).await;
        let mut seen = BTreeMap::<_, usize>::new();
        for _ in 0..16 {
            let session = crate::raw_client::LegacySession::open(gateway.mcp).await;
            let mut versions = Vec::new();
            for _ in 0..2 {
                for (method, params) in [
                    ("tools/list", String::new()),
                    (
                        "tools/call",
                        format!(r#""name":"{prefix}look","arguments":{{}}"#),
                    ),
                ] {
                    let answer = session
                        .post(&legacy_request("1", method, &params))
                        .await
                        .messages()
                        .await
                        .1;
                    versions.push(version_in(&answer));
                }
            }
            assert!(
                versions.iter().all(|version| *version == versions[0]),
                "{versions:?}"
            );
            *seen.entry(versions[0]).or_default() += 1;
        }
        assert_eq!(seen.len(), 2, "{seen:?}");
    }
}

#[tokio::test]
async fn principals_see_the_private_lists_of_their_version() {
    let (one, two) = (
        version(Era::Modern, "v1").await,
        version(Era::Modern, "v2").await,
    );
    for (backend, name) in [(&one, "v1"), (&two, "v2")] {
        let tool = format!(
            r#"{{"name":"look","description":"{name}","inputSchema":{{"type":"object"}},"annotations":{{"readOnlyHint":true}}}}"#
        );
        let list = format!(
            r#"{{"resultType":"complete","tools":[{tool}],"ttlMs":0,"cacheScope":"private"}}"#
        );
        backend.on("tools/list", Reply::result(list));
    }
    let other = version(Era::Modern, "b").await;
    let canary = r#""canary":{"server":"next","share":0.5}"#;
    let config = format!(
        r#"{{{BY_PROXY},"mcpServers":{{{},{},{}}}}}"#,
        one.entry_with("a", canary),
        two.entry("next"),
        other.entry("b")
    );
    let gateway = Gateway::start(&config).await;
    let mut seen = BTreeMap::<_, usize>::new();
    for number in 0..16 {
        let user = format!("user-{number}");
        let opened = ask(&gateway, &user, &initialize(NEWEST_LEGACY, "{}"), &[]).await;
        let session = opened.header("mcp-session-id").unwrap().to_owned();
        drop(opened);
        let headers = [
            ("Mcp-Session-Id", session.as_str()),
            ("MCP-Protocol-Version", NEWEST_LEGACY),
        ];
        ask(&gateway, &user, INITIALIZED, &headers).await;
        let mut versions = Vec::new();
        for (method, params) in [
            ("tools/call", r#""name":"a__look","arguments":{}"#),
            ("tools/list", ""),
        ] {
            let request = legacy_request("1", method, params);
            versions.push(version_in(
                &ask(&gateway, &user, &request, &headers)
                    .await
                    .messages()
                    .await
                    .1,
            ));
        }
        assert_eq!(versions[0], versions[1], "{user}");
        *seen.entry(versions[0]).or_default() += 1;
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
}

#[tokio::test]
async fn canary_that_starts_lazily_is_started_for_its_clients_alone() {
    let (one, two) = (
        version(Era::Modern, "v1").await,
        version_over(Transport::Stdio, Era::Modern, "v2").await,
    );
    let other = version(Era::Modern, "b").await;
    for backend in [&one, &other] {
        backend.declares(r#"{"tools":{"listChanged":true},"resources":{}}"#);
        backend.on("subscriptions/listen", Reply::listening());
    }
    let config = |share: &str| {
        let canary = format!(r#""canary":{{"server":"next","share":{share}}}"#);
        let (server, next) = (
            one.entry_with("a", &canary),
            two.entry_with("next", r#""start":"lazy""#),
        );
        format!(
            r#"{{{BY_PROXY},"mcpServers":{{{server},{next},{}}}}}"#,
            other.entry("b")
        )
    };
    let gateway = Gateway::start(&config("0")).await;
    assert_eq!(version_in(&call(&gateway, "ann", "a__look").await), "v1");
    let filter = modern_request(
        "9",
        "subscriptions/listen",
        r#""notifications":{"toolsListChanged":true}"#,
        "",
    );
    let listening = ask(&gateway, "ann", &filter, &[]).await;
    one.wait_for("subscriptions/listen", 1).await;
    assert_eq!(
        version_in(
            &answer(&gateway, "ann", "tools/list", "")
                .await
                .replace("\"b\"", "")
        ),
        "v1"
    );
    let overview = api(&gateway, "/api/overview").await;
    assert_eq!(
        (
            &overview["backends"][2]["name"],
            &overview["backends"][2]["state"]
        ),
        (&"next".into(), &"idle".into())
    );
    assert!(two.started().is_empty());
    drop(listening);
    gateway.configure(&config("1"));
    assert_eq!(gateway.reload().await.0, 200);
    assert_eq!(version_in(&call(&gateway, "ann", "a__look").await), "v2");
}

#[tokio::test]
async fn policy_about_the_server_holds_for_the_clients_of_its_canary() {
    let (one, two) = (
        version(Era::Modern, "v1").await,
        version(Era::Modern, "v2").await,
    );
    let folder = TempFile::folder();
    let policy = r#"permit(principal, action, resource);
        forbid(principal, action, resource == Tool::"a/delete");"#;
    fs::write(folder.path().join("rules.cedar"), policy).unwrap();
    let config = with_canary(&[&one, &two], "1", "");
    let config = config.replacen('{', r#"{"policy":{"files":["rules.cedar"]},"#, 1);
    fs::write(folder.path().join("fanlight.json"), config).unwrap();
    let gateway = Gateway::start_at(folder.path().join("fanlight.json")).await;
    let list = answer(&gateway, "ann", "tools/list", "").await;
    assert!(
        list.contains("\"look\"") && !list.contains("\"delete\""),
        "{list}"
    );
    assert_eq!(version_in(&call(&gateway, "ann", "look").await), "v2");
    for name in ["delete", "next__delete", "a__delete"] {
        let refused = call(&gateway, "ann", name).await;
        assert!(member(&refused, "error").is_some(), "{refused}");
    }
    assert_eq!(
        (
            one.count_of_target("tools/call", "delete"),
            two.count_of_target("tools/call", "delete")
        ),
        (0, 0)
    );
}

#[tokio::test]
async fn canary_that_is_down_fails_its_clients_alone() {
    let (one, gone) = (version(Era::Modern, "v1").await, Refusing::any());
    let config = format!(
        r#"{{{BY_PROXY},"mcpServers":{{{},"next":{{"url":"http://{}/mcp"}}}}}}"#,
        one.entry_with("a", r#""canary":{"server":"next","share":0.5}"#),
        gone.address
    );
    let gateway = Gateway::start(&config).await;
    let (mut served, mut failed) = (0, 0);
    for number in 0..USERS {
        let answer = call(&gateway, &format!("user-{number}"), "look").await;
        match member(&answer, "error") {
            None => served += usize::from(version_in(&answer) == "v1"),
            Some(error) => {
                // The error names the server and not its address.
                assert!(
                    error.contains("\\\"a\\\"") && !error.contains(&gone.address.to_string()),
                    "{error}"
                );
                failed += 1;
            }
        }
    }
    assert!(
        served > 3 && failed > 3 && served + failed == USERS,
        "{served} {failed}"
    );
    let overview = api(&gateway, "/api/overview").await;
    assert_eq!(overview["ready"], true, "{overview}");
    assert_eq!(
        overview["backends"][0]["canary"]["share"], 0.5,
        "{overview}"
    );
    assert_eq!(overview["backends"][1]["name"], "next", "{overview}");
}

#[tokio::test]
async fn canary_is_on_the_span_and_on_record_and_not_in_lists() {
    let (one, two) = (
        version(Era::Modern, "v1").await,
        version(Era::Modern, "v2").await,
    );
    let (other, folder) = (version(Era::Modern, "b").await, TempFile::folder());
    let more = format!(",{}", other.entry("b"));
    let config = with_canary(&[&one, &two], "1", &more).replacen(
        '{',
        r#"{"audit":{"file":"audit.jsonl"},"#,
        1,
    );
    fs::write(folder.path().join("fanlight.json"), config).unwrap();
    let gateway = Gateway::start_at(folder.path().join("fanlight.json")).await;
    let list = answer(&gateway, "ann", "tools/list", "").await;
    assert!(
        list.contains(r#""name":"a__look""#) && !list.contains("next"),
        "{list}"
    );
    call(&gateway, "ann", "a__look").await;
    // No list has this resource.
    assert_eq!(
        version_in(&answer(&gateway, "ann", "resources/read", r#""uri":"doc:9""#).await),
        "v2"
    );
    let traces = api(&gateway, "/api/traces?tool=look").await;
    let id = traces["traces"][0]["traceId"].as_str().unwrap().to_owned();
    let spans = text_at(&gateway, &format!("/api/traces/{id}")).await;
    assert!(spans.contains("fanlight.canary"), "{spans}");
    gateway.terminate().await;
    let record = fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    for method in ["tools/call", "resources/read"] {
        let line = record
            .lines()
            .find(|line| line.contains(method))
            .unwrap_or_else(|| panic!("{record}"));
        assert_eq!(
            (member(line, "server"), member(line, "canary")),
            (Some("\"a\""), Some("\"next\"")),
            "{line}"
        );
    }
}

#[tokio::test]
async fn changes_that_a_canary_announces_reach_its_clients() {
    let (one, two) = (
        version(Era::Modern, "v1").await,
        version(Era::Modern, "v2").await,
    );
    let other = version(Era::Modern, "b").await;
    for backend in [&one, &two] {
        backend.declares(r#"{"tools":{"listChanged":true},"resources":{}}"#);
        backend.on("subscriptions/listen", Reply::listening());
    }
    let more = format!(",{}", other.entry("b"));
    let gateway = Gateway::start(&with_canary(&[&one, &two], "1", &more)).await;
    assert_eq!(
        version_in(
            &answer(&gateway, "ann", "tools/list", "")
                .await
                .replace("\"b\"", "")
        ),
        "v2"
    );
    let filter = modern_request(
        "9",
        "subscriptions/listen",
        r#""notifications":{"toolsListChanged":true}"#,
        "",
    );
    let mut listening = ask(&gateway, "ann", &filter, &[]).await;
    let stream = two.stream(0).await;
    let tool = r#"{"name":"new","description":"v2","inputSchema":{"type":"object"}}"#;
    two.on("tools/list", two.list("tools", tool));
    let id = stream.request.member("id").unwrap().to_owned();
    let changed = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
    );
    stream.message(&changed).await;
    within("the announcement", async {
        while !listening
            .event()
            .await
            .unwrap()
            .expect("the stream goes on")
            .contains("tools/list_changed")
        {}
    })
    .await;
    let list = answer(&gateway, "ann", "tools/list", "").await;
    assert!(
        list.contains("a__new") && !list.contains("a__look"),
        "{list}"
    );
}

/// The configuration of a server `a` with the mirror `copy`.
fn with_mirror(server: &Backend, mirror: &str, more: &str) -> String {
    let option = format!(r#""mirror":{{"server":"copy","share":1}}{more}"#);
    format!(
        r#"{{{BY_PROXY},"mcpServers":{{{},"copy":{{{mirror}}}}}}}"#,
        server.entry_with("a", &option)
    )
}

/// The members of an HTTP server's entry.
fn at(server: &Backend) -> String {
    format!(r#""url":"{}""#, server.url())
}

/// Waits until the mirror in the overview satisfies `is_right`.
async fn mirror_when(gateway: &Gateway, is_right: impl Fn(&Value) -> bool) -> Value {
    within("the mirror", async {
        loop {
            let mirror = api(gateway, "/api/overview").await["backends"][0]["mirror"].clone();
            if is_right(&mirror) {
                return mirror;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await
}

#[tokio::test]
async fn mirror_gets_copies_of_safe_requests_alone() {
    for era in [Era::Modern, Era::Legacy] {
        let (server, mirror) = (version(era, "v1").await, version(era, "v1").await);
        server.on(
            "prompts/get",
            Reply::result(era.complete(r#""messages":[]"#)),
        );
        let gateway = Gateway::start(&with_mirror(&server, &at(&mirror), "")).await;
        for tool in ["delete", "plain", "unknown"] {
            call(&gateway, "ann", tool).await;
        }
        answer(&gateway, "ann", "prompts/get", r#""name":"p""#).await;
        for tool in ["look", "set"] {
            assert_eq!(version_in(&call(&gateway, "ann", tool).await), "v1");
            mirror.wait_for_target("tools/call", tool, 1).await;
        }
        answer(&gateway, "ann", "resources/read", r#""uri":"doc:1""#).await;
        mirror.wait_for("resources/read", 1).await;
        let counted = mirror_when(&gateway, |mirror| mirror["same"].as_u64() >= Some(3)).await;
        assert_eq!(
            (
                &counted["different"],
                &counted["failed"],
                &counted["dropped"]
            ),
            (&0.into(), &0.into(), &0.into())
        );
        for tool in ["delete", "plain", "unknown"] {
            assert_eq!(mirror.count_of_target("tools/call", tool), 0, "{tool}");
        }
        assert!(mirror.received("prompts/get").is_empty());
        let metrics = text_at(&gateway, "/metrics").await;
        let counted =
            r#"fanlight_backend_mirrored_total{fanlight_backend_name="a",outcome="same"}"#;
        assert!(metrics.contains(counted), "{metrics}");
        assert!(
            !answer(&gateway, "ann", "tools/list", "")
                .await
                .contains("copy__")
        );
    }
}

#[tokio::test]
async fn mirror_that_withdraws_an_annotation_gets_no_more_copies() {
    let (server, mirror) = (
        version(Era::Legacy, "v1").await,
        version(Era::Legacy, "v1").await,
    );
    let gateway = Gateway::start(&with_mirror(&server, &at(&mirror), "")).await;
    call(&gateway, "ann", "look").await;
    mirror.wait_for_target("tools/call", "look", 1).await;
    let tool = |name, hint| {
        format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object"}},"annotations":{{"readOnlyHint":{hint}}}}}"#
        )
    };
    mirror.on(
        "tools/list",
        mirror.list("tools", &[tool("look", false), tool("set", true)].join(",")),
    );
    let lists = mirror.received("tools/list").len();
    within("the list to be read anew", async {
        while mirror.received("tools/list").len() == lists {
            call(&gateway, "ann", "look").await;
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    // The mirror still gets the copies that had begun before.
    call(&gateway, "ann", "set").await;
    mirror.wait_for_target("tools/call", "set", 1).await;
    let copies = mirror.count_of_target("tools/call", "look");
    call(&gateway, "ann", "look").await;
    call(&gateway, "ann", "set").await;
    mirror.wait_for_target("tools/call", "set", 2).await;
    assert_eq!(mirror.count_of_target("tools/call", "look"), copies);
}

#[tokio::test]
async fn tool_whose_annotations_are_overridden_is_not_copied() {
    let (server, mirror) = (
        version(Era::Modern, "v1").await,
        version(Era::Modern, "v1").await,
    );
    let overriding = r#","override":{"look":{"annotations":{"readOnlyHint":false}}}"#;
    let gateway = Gateway::start(&with_mirror(&server, &at(&mirror), overriding)).await;
    for tool in ["look", "set"] {
        assert_eq!(version_in(&call(&gateway, "ann", tool).await), "v1");
    }
    mirror.wait_for_target("tools/call", "set", 1).await;
    assert_eq!(mirror.count_of_target("tools/call", "look"), 0);
}

#[tokio::test]
async fn copy_has_the_credentials_of_the_mirror_and_nobodys_session() {
    let (server, mirror) = (
        version(Era::Legacy, "v1").await,
        version(Era::Legacy, "v1").await,
    );
    let headers = format!(r#"{},"headers":{{"X-Copy":"of-the-mirror"}}"#, at(&mirror));
    let secret = r#","headers":{"Authorization":"Bearer of-the-server"}"#;
    let gateway = Gateway::start(&with_mirror(&server, &headers, secret)).await;
    call(&gateway, "ann", "look").await;
    let copy = &mirror.wait_for("tools/call", 1).await[0];
    assert_eq!(copy.header("x-copy"), Some("of-the-mirror"));
    assert_eq!(
        (copy.header("authorization"), copy.header("x-user")),
        (None, None)
    );
    assert_eq!(copy.member("params.arguments.user"), Some("\"ann\""));
}

/// Users' grants at the server do not apply to the mirror. Without a grant at the mirror, nothing
/// is sent there.
#[tokio::test]
async fn mirror_with_user_credentials_gets_no_copies_of_users_without_any() {
    for auth in [
        r#"{"type":"user"}"#,
        r#"{"type":"userKey","header":"X-Key"}"#,
    ] {
        let mirror = version(Era::Modern, "v1").await;
        let more = format!(
            r#"{{"type":"user"}},"mirror":{{"server":"copy","share":1}}}},{}"#,
            mirror.entry_with("copy", &format!(r#""auth":{auth}"#))
        );
        // The harness closes the server's entry, so the mirror's entry stays open here.
        let setting = SignInSetting::start(WITH_KEYS, more.strip_suffix('}').unwrap()).await;
        let tool =
            r#"{"name":"t","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}"#;
        setting
            .backend
            .on("tools/list", setting.backend.list("tools", tool));
        // The mirror accepts tokens of the same authorization server and has been given none.
        let valid = Arc::clone(&setting.authorization);
        let protection =
            Protection::by_token(&mirror.url(), setting.authorization.url(), move |token| {
                valid.is_valid(token)
            });
        mirror.protect(protection);
        setting.sign_in(Some(ANN)).await;
        for _ in 0..5 {
            assert!(is_result(&setting.call(Some(ANN)).await));
        }
        let mirror_now = mirror_when(&setting.gateway, |_| true).await;
        assert_eq!(
            (&mirror_now["same"], &mirror_now["different"]),
            (&0.into(), &0.into()),
            "{mirror_now}"
        );
        for refused in mirror.received(REFUSED) {
            assert_eq!(
                (refused.header("authorization"), refused.header("x-key")),
                (None, None)
            );
        }
        for method in ["tools/call", "tools/list", "resources/read"] {
            assert!(mirror.received(method).is_empty(), "{method}");
        }
    }
}

#[tokio::test]
async fn slow_mirror_delays_nothing_and_holds_little() {
    let (server, mirror) = (
        version(Era::Modern, "v1").await,
        version(Era::Modern, "v1").await,
    );
    let gate = Gate::new();
    mirror.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)).gated(&gate),
    );
    let gateway = Gateway::start(&with_mirror(&server, &at(&mirror), "")).await;
    for _ in 0..20 {
        assert_eq!(version_in(&call(&gateway, "ann", "look").await), "v1");
    }
    gate.reached(1).await;
    let mirror = mirror_when(&gateway, |mirror| mirror["dropped"].as_u64() >= Some(4)).await;
    assert_eq!(
        (&mirror["different"], &mirror["failed"]),
        (&0.into(), &0.into()),
        "{mirror}"
    );
    gate.open();
    mirror_when(&gateway, |mirror| mirror["different"].as_u64() >= Some(1)).await;
}

#[tokio::test]
async fn mirror_that_is_down_is_counted_and_delays_nothing() {
    let (server, gone) = (version(Era::Modern, "v1").await, Refusing::any());
    let gateway = Gateway::start(&with_mirror(
        &server,
        &format!(r#""url":"http://{}/mcp""#, gone.address),
        "",
    ))
    .await;
    within("the mirror to be down", async {
        while api(&gateway, "/api/overview").await["backends"][1]["state"] != "down" {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    for tool in ["look", "delete"] {
        assert_eq!(version_in(&call(&gateway, "ann", tool).await), "v1");
    }
    mirror_when(&gateway, |mirror| mirror["failed"].as_u64() >= Some(1)).await;
    assert_eq!(api(&gateway, "/api/overview").await["ready"], true);
}

/// The gateway must not probe a returning mirror with a client's request, which the mirror may not
/// call safe.
#[tokio::test]
async fn mirror_that_comes_back_runs_nothing_that_it_does_not_call_safe() {
    let (server, mirror) = (
        version(Era::Modern, "v1").await,
        version(Era::Modern, "v1").await,
    );
    let tool = |name: &str, annotations: &str| {
        format!(
            r#"{{"name":"{name}","inputSchema":{{"type":"object"}},"annotations":{annotations}}}"#
        )
    };
    let tools = [
        tool("look", r#"{"destructiveHint":true}"#),
        tool("set", r#"{"idempotentHint":true}"#),
    ]
    .join(",");
    mirror.on("tools/list", mirror.list("tools", &tools));
    let is_there = Arc::new(AtomicBool::new(false));
    let there = Arc::clone(&is_there);
    mirror.protect(Protection {
        resource: None,
        challenge: String::new(),
        accepts: Arc::new(move |_| match there.load(Ordering::Relaxed) {
            true => Verdict::Accepted,
            false => Verdict::Refused(503, Vec::new()),
        }),
    });
    let gateway = Gateway::start(&with_mirror(&server, &at(&mirror), "")).await;
    within("the mirror to be down", async {
        while api(&gateway, "/api/overview").await["backends"][1]["state"] != "down" {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    call(&gateway, "ann", "look").await;
    mirror_when(&gateway, |mirror| mirror["failed"].as_u64() >= Some(1)).await;
    is_there.store(true, Ordering::Relaxed);
    within("copies", async {
        while mirror.count_of_target("tools/call", "set") == 0 {
            for tool in ["look", "set"] {
                assert_eq!(version_in(&call(&gateway, "ann", tool).await), "v1");
            }
        }
    })
    .await;
    assert_eq!(mirror.count_of_target("tools/call", "look"), 0);
}

#[tokio::test]
async fn request_that_is_not_answered_yet_is_not_copied() {
    let (server, mirror) = (
        version(Era::Modern, "v1").await,
        version(Era::Modern, "v1").await,
    );
    let done = Era::Modern.complete(r#""content":[{"type":"text","text":"v1"}]"#);
    server.on(
        "tools/call",
        Reply::chosen(move |received| match received.member("params.name") {
            Some("\"look\"") => {
                Reply::result(r#"{"resultType":"input_required","requestState":"s"}"#)
            }
            _ => Reply::result(done.clone()),
        }),
    );
    let gateway = Gateway::start(&with_mirror(&server, &at(&mirror), "")).await;
    let first = call(&gateway, "ann", "look").await;
    assert!(first.contains("input_required"), "{first}");
    call(&gateway, "ann", "set").await;
    mirror.wait_for_target("tools/call", "set", 1).await;
    mirror_when(&gateway, |mirror| mirror["same"].as_u64() >= Some(1)).await;
    assert_eq!(mirror.count_of_target("tools/call", "look"), 0);
}

#[tokio::test]
async fn differences_are_counted_and_shown_with_values_only_if_traces_have_them() {
    for (more, has_values) in [("", false), (r#","content":true"#, true)] {
        let (server, mirror) = (
            version(Era::Modern, "v1").await,
            version(Era::Modern, "v2").await,
        );
        let gateway = Gateway::start(&with_mirror(&server, &at(&mirror), more)).await;
        call(&gateway, "ann", "look").await;
        let found = within("the difference", async {
            loop {
                let details = api(&gateway, "/api/backends/a").await;
                let all = details["differences"].as_array().into_iter().flatten();
                match all
                    .into_iter()
                    .find(|difference| difference["method"] == "tools/call")
                {
                    Some(found) => return found.clone(),
                    None => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
                }
            }
        })
        .await;
        assert_eq!(found["item"], "look");
        let line = match has_values {
            true => r#"value value-changed /result/content/0/text: "v1" became "v2""#,
            false => "value value-changed /result/content/0/text",
        };
        assert_eq!(found["lines"], serde_json::json!([line]));
        let trace = text_at(
            &gateway,
            &format!("/api/traces/{}", found["traceId"].as_str().unwrap()),
        )
        .await;
        assert!(
            trace.contains("different: value-changed") && trace.contains("tools/call look"),
            "{trace}"
        );
        // The copy is not part of the call's trace; its span links to it.
        let calls = api(&gateway, "/api/traces?tool=look").await;
        let of_call = calls["traces"]
            .as_array()
            .unwrap()
            .iter()
            .map(|trace| trace["traceId"].as_str().unwrap());
        let of_call: Vec<_> = of_call
            .filter(|id| Some(*id) != found["traceId"].as_str())
            .collect();
        assert!(
            of_call.iter().any(|id| trace.contains(id)),
            "no link: {trace}"
        );
        gateway.log.line_with("listening on").await;
    }
}

#[tokio::test]
async fn questions_of_a_mirror_reach_no_client() {
    let ask_client = r#"{"jsonrpc":"2.0","id":"ask-{call}","method":"elicitation/create","params":{"message":"Secret?","requestedSchema":{"type":"object","properties":{}}}}"#;
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"of the mirror"}}"#;
    let (server, mirror) = (
        version(Era::Legacy, "v1").await,
        version(Era::Legacy, "v1").await,
    );
    let done = Era::Legacy.complete(r#""content":[{"type":"text","text":"v1"}]"#);
    mirror.on(
        "tools/call",
        Reply::result(done).after(&[progress]).asking(&[ask_client]),
    );
    let gateway = Gateway::start(&with_mirror(&server, &at(&mirror), "")).await;
    let capable = r#"{"elicitation":{},"sampling":{},"roots":{}}"#;
    let body = crate::raw_client::modern_request_with(
        capable,
        "1",
        "tools/call",
        r#""name":"look","arguments":{}"#,
        "",
    );
    let (messages, answer) = ask(&gateway, "ann", &body, &[]).await.messages().await;
    assert_eq!(
        (messages.len(), version_in(&answer)),
        (0, "v1"),
        "{messages:?}"
    );
    let copy = &mirror.wait_for("tools/call", 1).await[0];
    let refused = mirror
        .answer_to(&format!("\"ask-{}\"", copy.member("id").unwrap()), copy)
        .await;
    assert!(refused.member("error").is_some(), "{}", refused.text);
    for declared in mirror.received("initialize") {
        let capabilities = declared.member("params.capabilities").unwrap();
        // Lists are read with all capabilities; no call runs on that connection.
        let is_of_lists = capabilities.contains("io.modelcontextprotocol/skills");
        assert!(
            is_of_lists || !capabilities.contains("elicitation"),
            "{capabilities}"
        );
    }
    mirror_when(&gateway, |mirror| mirror["same"].as_u64() >= Some(1)).await;
}

#[tokio::test]
async fn canary_and_mirror_that_are_switched_off_have_no_share() {
    let (one, two) = (
        version(Era::Modern, "v1").await,
        version(Era::Modern, "v2").await,
    );
    let gateway = Gateway::start(&with_canary(&[&one, &two], "1", "")).await;
    assert_eq!(version_in(&call(&gateway, "ann", "look").await), "v2");
    let mut connection = Connection::open(gateway.admin).await;
    connection
        .request("POST", "/api/servers/next/disable", &[], b"")
        .await;
    assert_eq!(connection.response().await.status, 200);
    assert_eq!(version_in(&call(&gateway, "ann", "look").await), "v1");
    assert_eq!(
        version_in(&answer(&gateway, "ann", "tools/list", "").await),
        "v1"
    );
}
