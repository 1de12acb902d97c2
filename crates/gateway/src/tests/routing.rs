//! Naming, merging, routing and fan-out.

use std::sync::Arc;
use std::time::Duration;

use fanlight_protocol::json::Json;
use tokio::time::Instant;

use super::fake::*;
use crate::catalogue::ListKind;

#[tokio::test]
async fn requests_to_one_backend_pass_unchanged() {
    let scene = scene(vec![fake(
        "a",
        &[
            (
                "tools/list",
                r#""result":{ "tools" : [],"nextCursor":"c" }"#,
            ),
            ("new/method {\"x\":1.0}", r#""result":{"y":2.0}"#),
        ],
    )]);
    assert_eq!(
        scene.ask("tools/list", Some(r#"{"cursor":"mine"}"#)).await,
        r#"{ "tools" : [],"nextCursor":"c" }"#
    );
    assert_eq!(scene.received(0), [r#"tools/list {"cursor":"mine"}"#]);
    assert_eq!(
        scene.ask("new/method", Some(r#"{"x":1.0}"#)).await,
        r#"{"y":2.0}"#
    );
    assert_eq!(scene.ask("server/discover", None).await, ALL);
}

#[tokio::test]
async fn tools_of_several_backends_are_listed_and_called_by_prefix() {
    let tool = |n: &'static str| ("tools/call", n);
    let scene = scene(vec![
        fake(
            "a",
            &[
                (
                    "tools/list",
                    r#""result":{"tools":[{ "x" : 1.0,"name":"t\u0031" }],"_meta":{"k":1}}"#,
                ),
                tool(r#""result":{"content":[],"from":"a"}"#),
            ],
        ),
        fake(
            "b",
            &[
                ("tools/list", r#""result":{"tools":[{"name":"t1"}]}"#),
                tool(r#""error":{"code":-5,"message":"b says","data":[1.0]}"#),
            ],
        ),
    ]);
    let list = scene.ask("tools/list", None).await;
    assert_eq!(
        list,
        r#"{"tools":[{ "x" : 1.0,"name":"a__t\u0031" },{"name":"b__t1"}],"_meta":{"k":1}}"#
    );
    scene.received(0);
    let called = scene
        .ask(
            "tools/call",
            Some(r#"{"arguments":{"n":1E400},"name":"a__t1"}"#),
        )
        .await;
    assert_eq!(called, r#"{"content":[],"from":"a"}"#);
    assert_eq!(
        scene.received(0),
        [r#"tools/call {"arguments":{"n":1E400},"name":"t\u0031"}"#]
    );
    assert_eq!(
        scene.ask("tools/call", Some(r#"{"name":"b__t1"}"#)).await,
        r#"{"code":-5,"message":"b says","data":[1.0]}"#
    );
    assert_eq!(
        error_of(&scene.ask("tools/call", Some(r#"{"name":"zzz"}"#)).await),
        (-32602, "Unknown tool: zzz".into())
    );
    assert_eq!(
        error_of(&scene.ask("tools/call", None).await).1,
        "params.name is missing"
    );
    assert_eq!(
        error_of(
            &scene
                .ask("tools/call", Some(r#"{"name":"a__t1","name":"b__t1"}"#))
                .await
        )
        .0,
        -32602
    );
    assert_eq!(
        error_of(&scene.ask("new/method", None).await),
        (-32601, "Method not found: new/method".into())
    );
}

#[tokio::test]
async fn prefixed_name_finds_its_backend_without_a_list() {
    let scene = scene(vec![
        fake("a", &[]),
        fake("b", &[("tools/call", r#""result":{"ok":1}"#)]),
    ]);
    assert_eq!(
        scene
            .ask("tools/call", Some(r#"{"name":"b__hidden"}"#))
            .await,
        r#"{"ok":1}"#
    );
    assert_eq!(scene.received(1), [r#"tools/call {"name":"hidden"}"#]);
    assert!(scene.received(0).is_empty());
}

#[tokio::test]
async fn pages_of_backends_are_read_to_the_end_and_divided_again() {
    let scene = scene_with(
        vec![
            (
                fake(
                    "a",
                    &[
                        (
                            "tools/list",
                            r#""result":{"tools":[{"name":"1"},{"name":"2"}],"nextCursor":""}"#,
                        ),
                        (
                            r#"tools/list {"cursor":""}"#,
                            r#""result":{"tools":[{"name":"3"}]}"#,
                        ),
                    ],
                ),
                None,
            ),
            (
                fake(
                    "b",
                    &[("tools/list", r#""result":{"tools":[{"name":"4"}]}"#)],
                ),
                None,
            ),
        ],
        2,
    );
    let mut names = Vec::new();
    let mut params = None;
    loop {
        let page =
            Json::parse(scene.ask("tools/list", params.as_deref()).await.into(), 64).unwrap();
        let tools = page.get("tools").unwrap();
        names.push(
            tools
                .items()
                .map(|tool| tool.get("name").unwrap().to_string())
                .collect::<Vec<_>>()
                .join(" "),
        );
        match page.get("nextCursor") {
            Some(cursor) => params = Some(format!(r#"{{"cursor":{cursor}}}"#)),
            None => break,
        }
    }
    assert_eq!(names, [r#""a__1" "a__2""#, r#""a__3" "b__4""#]);
    let first = scene.ask("tools/list", Some(r#"{"cursor":""}"#)).await;
    assert!(first.contains("a__1"), "{first}");
    let foreign = scene.ask("prompts/list", params.as_deref()).await;
    assert_eq!(error_of(&foreign).0, -32602, "{foreign}");
    assert_eq!(
        error_of(&scene.ask("tools/list", Some(r#"{"cursor":"x"}"#)).await).0,
        -32602
    );
}

#[tokio::test(start_paused = true)]
async fn failing_backend_costs_only_its_own_part() {
    let good = fake(
        "good",
        &[("tools/list", r#""result":{"tools":[{"name":"t"}]}"#)],
    );
    let slow = fake("slow", &[]);
    slow.set("tools/list", Scripted::Hangs);
    let gone = fake("gone", &[]);
    gone.describe_as(Err(unreachable()));
    gone.set("tools/call", Scripted::Fails(unreachable()));
    let looping = fake(
        "looping",
        &[("tools/list", r#""result":{"tools":[],"nextCursor":"same"}"#)],
    );
    let scene = scene(vec![slow, good, gone, looping]);
    let list = scene.ask("tools/list", None).await;
    let expected = r#"{"tools":[{"name":"good__t"}],"_meta":{"dev.fanlight/backends":{"slow":{"outcome":"timeout","reason":"did not answer within 1s"},"good":{"outcome":"ok"},"gone":{"outcome":"unreachable","reason":"cannot be reached"},"looping":{"outcome":"error","reason":"the list was cut off: it repeated a cursor"}}}}"#;
    assert_eq!(list, expected);
    assert_eq!(scene.received(3).len(), 2);
    let (code, message) = error_of(&scene.ask("tools/call", Some(r#"{"name":"gone__t"}"#)).await);
    assert_eq!(code, -31001);
    assert!(
        message.contains("\"gone\"") && message.contains("can be sent again"),
        "{message}"
    );
}

#[tokio::test]
async fn server_that_declares_nothing_is_asked_for_tools() {
    for nothing in [r#"{"capabilities":{}}"#, "{}"] {
        let quiet = fake(
            "quiet",
            &[("tools/list", r#""result":{"tools":[{"name":"t"}]}"#)],
        );
        let empty = fake("empty", &[]);
        empty.set("tools/list", Scripted::Fails(unreachable()));
        for server in [&quiet, &empty] {
            server.describe_as(Ok(nothing));
        }
        let scene = scene(vec![quiet, empty]);
        let list = scene.ask("tools/list", None).await;
        assert_eq!(list, r#"{"tools":[{"name":"quiet__t"}]}"#);
    }
}

/// Fanlight checks only the outline of a long answer.
#[tokio::test]
async fn long_invalid_list_is_left_out_and_long_invalid_result_is_passed() {
    let padding = " ".repeat(70_000);
    let broken =
        |what: &str| -> &'static str { format!(r#""result":{{{what},,"{padding}":nul}}"#).leak() };
    let bad = fake("bad", &[]);
    bad.set(
        "tools/list",
        Scripted::Body(broken(r#""tools":[{"name":"t"}]"#)),
    );
    bad.set("tools/call", Scripted::Body(broken(r#""content":[]"#)));
    let good = fake(
        "good",
        &[("tools/list", r#""result":{"tools":[{"name":"t"}]}"#)],
    );
    let scene = scene(vec![bad, good]);
    let list = scene.ask("tools/list", None).await;
    assert!(list.contains(r#"{"tools":[{"name":"good__t"}]"#), "{list}");
    assert!(
        list.contains(
            r#""bad":{"outcome":"error","reason":"the list is not JSON: unexpected character"#
        ),
        "{list}"
    );
    let result = scene.ask("tools/call", Some(r#"{"name":"bad__t"}"#)).await;
    assert!(
        result.starts_with(r#"{"content":[],,""#) && result.ends_with("nul}"),
        "not as it came"
    );
}

#[tokio::test]
async fn colliding_names_go_to_the_first_and_are_reported() {
    let list = [
        ("tools/list", r#""result":{"tools":[{"name":"t"}]}"#),
        ("tools/call", r#""result":{}"#),
    ];
    let scene = scene_with(
        vec![(fake("a", &list), Some("")), (fake("b", &list), Some(""))],
        10,
    );
    let expected = r#"{"tools":[{"name":"t"}],"_meta":{"dev.fanlight/collisions":[{"name":"t","kept":"a","other":"b"}]}}"#;
    assert_eq!(scene.ask("tools/list", None).await, expected);
    scene.received(0);
    assert_eq!(scene.ask("tools/call", Some(r#"{"name":"t"}"#)).await, "{}");
    assert_eq!(scene.received(0), [r#"tools/call {"name":"t"}"#]);
}

#[tokio::test]
async fn many_collisions_make_one_log_line() {
    let tools = r#""result":{"tools":[{"name":"1"},{"name":"2"},{"name":"3"},{"name":"4"},{"name":"5"},{"name":"6"},{"name":"7"}]}"#;
    let list = [
        ("tools/list", tools),
        (
            "resources/list",
            r#""result":{"resources":[{"uri":"f://x"}]}"#,
        ),
    ];
    let scene = scene_with(
        vec![(fake("a", &list), Some("")), (fake("b", &list), Some(""))],
        10,
    );
    let found = async |kind| {
        scene
            .gateway
            .catalogue(kind, &fanlight_canonical::Endpoint::Everything)
            .await
            .whole()
            .findings()
    };
    let named = "1 (a, b), 2 (a, b), 3 (a, b), 4 (a, b), 5 (a, b), 2 more".to_owned();
    let what = "servers claim the same names; entries of later servers are left out";
    assert_eq!(found(ListKind::Tools).await, [(7, named, what)]);
    let what = "servers claim the same URIs; later servers get aliases";
    assert_eq!(
        found(ListKind::Resources).await,
        [(1, "f://x (a, b)".to_owned(), what)]
    );
    assert_eq!(found(ListKind::Prompts).await, []);
}

#[tokio::test]
async fn uri_that_two_backends_claim_is_readable_at_both() {
    let backend = |name, read| {
        fake(
            name,
            &[
                (
                    "resources/list",
                    r#""result":{"resources":[{"uri":"f:\/\/x","name":"X"}]}"#,
                ),
                (
                    "resources/templates/list",
                    r#""result":{"resourceTemplates":[]}"#,
                ),
                ("resources/read", read),
            ],
        )
    };
    let scene = scene(vec![
        backend("a", r#""result":{"contents":["a"]}"#),
        backend("b", r#""result":{"contents":["b"]}"#),
    ]);
    let list = scene.ask("resources/list", None).await;
    let expected = r#"{"resources":[{"uri":"f:\/\/x","name":"X"},{"uri":"f://fanlight--b/x","name":"X"}],"_meta":{"dev.fanlight/collisions":[{"uri":"f://x","kept":"a","other":"b","alias":"f://fanlight--b/x"}]}}"#;
    assert_eq!(list, expected);
    assert_eq!(
        scene
            .ask("resources/read", Some(r#"{"uri":"f://x"}"#))
            .await,
        r#"{"contents":["a"]}"#
    );
    assert_eq!(
        scene
            .ask("resources/read", Some(r#"{"uri":"f://fanlight--b/x"}"#))
            .await,
        r#"{"contents":["b"]}"#
    );
    assert_eq!(
        scene.received(1).last().unwrap(),
        r#"resources/read {"uri":"f://x"}"#
    );
}

#[tokio::test]
async fn resources_are_found_by_template_or_else_by_asking_in_turn() {
    let empty = ("resources/list", r#""result":{"resources":[]}"#);
    let a = fake(
        "a",
        &[
            empty,
            (
                "resources/templates/list",
                r#""result":{"resourceTemplates":[]}"#,
            ),
            (
                "resources/read",
                r#""error":{"code":-32002,"message":"none"}"#,
            ),
        ],
    );
    let b = fake(
        "b",
        &[
            empty,
            (
                "resources/templates/list",
                r#""result":{"resourceTemplates":[{"uriTemplate":"t://{x}"}]}"#,
            ),
            ("resources/read", r#""result":{"contents":[]}"#),
            ("completion/complete", r#""result":{"completion":{}}"#),
        ],
    );
    let scene = scene(vec![a, b]);
    assert_eq!(
        scene
            .ask("resources/read", Some(r#"{"uri":"t://7"}"#))
            .await,
        r#"{"contents":[]}"#
    );
    assert!(
        scene
            .received(0)
            .iter()
            .all(|request| !request.starts_with("resources/read"))
    );
    assert_eq!(
        scene
            .ask("resources/read", Some(r#"{"uri":"u://7"}"#))
            .await,
        r#"{"contents":[]}"#
    );
    assert_eq!(
        scene.received(0).last().unwrap(),
        r#"resources/read {"uri":"u://7"}"#
    );
    let complete =
        r#"{"ref":{"type":"ref/resource","uri":"t://{x}"},"argument":{"name":"x","value":""}}"#;
    assert_eq!(
        scene.ask("completion/complete", Some(complete)).await,
        r#"{"completion":{}}"#
    );
}

#[tokio::test]
async fn prompts_are_completed_under_their_own_names() {
    let list = r#""result":{"prompts":[{"name":"p"}]}"#;
    let scene = scene(vec![
        fake("a", &[("prompts/list", list)]),
        fake(
            "b",
            &[
                ("prompts/list", list),
                ("completion/complete", r#""result":{}"#),
                ("prompts/get", r#""result":{"messages":[]}"#),
            ],
        ),
    ]);
    let complete = r#"{"ref":{"type":"ref/prompt","name":"b__p"},"argument":{}}"#;
    assert_eq!(scene.ask("completion/complete", Some(complete)).await, "{}");
    assert_eq!(
        scene.received(1).last().unwrap(),
        r#"completion/complete {"ref":{"type":"ref/prompt","name":"p"},"argument":{}}"#
    );
    assert_eq!(
        scene.ask("prompts/get", Some(r#"{"name":"b__p"}"#)).await,
        r#"{"messages":[]}"#
    );
}

#[tokio::test]
async fn requests_at_one_time_share_one_fan_out() {
    let list = [("tools/list", r#""result":{"tools":[]}"#)];
    let scene = scene(vec![fake("a", &list), fake("b", &list)]);
    let (first, second) =
        tokio::join!(scene.ask("tools/list", None), scene.ask("tools/list", None));
    assert_eq!(first, second);
    assert_eq!(scene.received(0).len(), 1);
    scene.ask("tools/list", None).await;
    assert_eq!(scene.received(0).len(), 1, "a later request asks again");
}

#[tokio::test]
async fn log_level_is_sent_to_all_backends_that_log() {
    let scene = scene(vec![
        fake("a", &[("logging/setLevel", r#""result":{}"#)]),
        fake("b", &[]),
    ]);
    assert_eq!(
        scene
            .ask("logging/setLevel", Some(r#"{"level":"debug"}"#))
            .await,
        "{}"
    );
    assert_eq!(scene.received(1), [r#"logging/setLevel {"level":"debug"}"#]);
}

#[tokio::test]
async fn tool_is_found_by_its_visible_name() {
    let list = r#""result":{"tools":[{"name":"t","x":1.0}]}"#;
    let scene = scene(vec![fake("a", &[("tools/list", list)]), fake("b", &[])]);
    let tool = async |name| {
        scene
            .gateway
            .tool(
                name,
                &fanlight_canonical::Endpoint::Everything,
                &Default::default(),
            )
            .await
    };
    let first = tool("a__t").await.unwrap();
    assert_eq!(first.as_text(), r#"{"name":"a__t","x":1.0}"#);
    assert!(Arc::ptr_eq(&first, &tool("a__t").await.unwrap()));
    assert!(tool("b__t").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn tool_definition_is_read_again_after_a_passed_list_has_shown_another() {
    const OLD: &str = r#""result":{"tools":[{"name":"t","inputSchema":{}},{"name":"u"}]}"#;
    const NEW: &str = r#""result":{"tools":[{"name":"t","inputSchema":{"x":1}}]}"#;
    // One server without a prefix: lists pass unchanged.
    let scene = scene(vec![fake("a", &[("tools/list", OLD)])]);
    let tool = async || {
        scene
            .gateway
            .tool(
                "t",
                &fanlight_canonical::Endpoint::Everything,
                &Default::default(),
            )
            .await
            .unwrap()
    };
    let old = tool().await;
    for same in [
        OLD,
        r#""result":{"_meta":{"n":1},"tools":[{"name":"u"}]}"#,
        r#""result":{"tools":[]}"#,
    ] {
        scene.backends[0].answer("tools/list", same);
        scene.ask("tools/list", None).await;
        scene.forget();
        assert!(Arc::ptr_eq(&tool().await, &old), "{same}");
        assert!(scene.received(0).is_empty(), "{same}");
    }
    scene.backends[0].answer("tools/list", NEW);
    scene.ask("tools/list", None).await;
    assert_eq!(
        tool().await.as_text(),
        r#"{"name":"t","inputSchema":{"x":1}}"#
    );
}

#[tokio::test(start_paused = true)]
async fn hanging_backend_delays_no_call_of_another() {
    let list = r#""result":{"tools":[{"name":"t"}]}"#;
    let slow = fake("slow", &[]);
    for method in ["tools/list", "resources/read", "logging/setLevel"] {
        slow.set(method, Scripted::Hangs);
    }
    let read = r#""result":{"contents":[]}"#;
    let good = fake(
        "good",
        &[
            ("tools/list", list),
            ("resources/read", read),
            ("logging/setLevel", r#""result":{}"#),
        ],
    );
    let scene = scene(vec![slow, good]);
    let began = Instant::now();
    assert!(
        scene
            .gateway
            .tool(
                "good__t",
                &fanlight_canonical::Endpoint::Everything,
                &Default::default()
            )
            .await
            .is_some()
    );
    assert_eq!(
        began.elapsed(),
        Duration::ZERO,
        "the other's list is not waited for"
    );
    // Servers are asked in turn for an unlisted resource, and the next one does not wait for ever.
    assert_eq!(
        scene
            .ask("resources/read", Some(r#"{"uri":"x://y"}"#))
            .await,
        r#"{"contents":[]}"#
    );
    assert_eq!(
        scene
            .ask("logging/setLevel", Some(r#"{"level":"info"}"#))
            .await,
        "{}"
    );
    assert!(
        began.elapsed() <= Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn error_for_an_unknown_name_lists_unlisted_backends() {
    let gone = fake("gone", &[]);
    gone.describe_as(Err(unreachable()));
    let scene = scene(vec![
        fake("a", &[("tools/list", r#""result":{"tools":[]}"#)]),
        gone,
    ]);
    let body = scene.ask("tools/call", Some(r#"{"name":"zzz"}"#)).await;
    let message = r#"Unknown tool: zzz; it may belong to a server that could not be listed: "gone" (unreachable)"#;
    assert_eq!(error_of(&body), (-32602, message.into()));
    assert!(
        body.contains(r#""data":{"unlisted":{"gone":"unreachable"}}"#),
        "{body}"
    );
}

#[tokio::test]
async fn subscriptions_go_to_the_backend_of_the_resource_or_to_all() {
    let list = (
        "resources/list",
        r#""result":{"resources":[{"uri":"x://b"}]}"#,
    );
    let taken = ("resources/subscribe", r#""result":{}"#);
    let scene = scene(vec![
        fake("a", &[taken]),
        fake("b", &[list, taken]),
        fake("c", &[]),
    ]);
    assert_eq!(
        scene
            .ask("resources/subscribe", Some(r#"{"uri":"x://b"}"#))
            .await,
        "{}"
    );
    assert!(
        !scene
            .received(0)
            .iter()
            .any(|request| request.starts_with("resources/subscribe"))
    );
    assert_eq!(
        scene
            .ask("resources/subscribe", Some(r#"{"uri":"x://unlisted"}"#))
            .await,
        "{}"
    );
    for backend in 0..3 {
        let received = scene.received(backend);
        assert_eq!(
            received.last().unwrap(),
            r#"resources/subscribe {"uri":"x://unlisted"}"#
        );
    }
    assert_eq!(
        scene
            .ask(
                "resources/subscribe",
                Some(r#"{"uri":"x://fanlight--b/b"}"#)
            )
            .await,
        "{}"
    );
    assert_eq!(
        scene.received(1),
        [r#"resources/subscribe {"uri":"x://b"}"#]
    );
}
