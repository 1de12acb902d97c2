//! URIs that several servers claim, and the aliases that clients use for the later ones.

use std::sync::Arc;

use fanlight_canonical::{Call, CallContext, Caller, Interest, Principal, SessionKey};
use fanlight_protocol::Method;

use super::fake::*;

/// A server with one app, which it lists, and a tool that the app shows.
const APP: [(&str, &str); 3] = [
    (
        "tools/list",
        r#""result":{"tools":[{"name":"show","_meta":{"ui":{ "resourceUri":"ui:\/\/board/main"},"x":1.0,"ui/resourceUri":"ui://board/main"}}]}"#,
    ),
    (
        "resources/list",
        r#""result":{"resources":[{"uri":"ui://board/main"}]}"#,
    ),
    (
        "resources/read",
        r#""result":{"contents":[{"uri":"ui:\/\/board/main","text":"x"},{"uri":"ui://board/more","text":"y"}]}"#,
    ),
];

fn two(names: [&'static str; 2], script: &[(&str, &'static str)]) -> Scene {
    scene(names.map(|name| fake(name, script)).into())
}

/// The answer that `caller` gets.
async fn ask_as(scene: &Scene, caller: Caller, method: &str, params: &str) -> String {
    let context = Arc::new(CallContext {
        caller,
        ..(*CallContext::internal()).clone()
    });
    scene
        .gateway
        .handle(Call {
            context,
            ..call(method, Some(params))
        })
        .await
        .body()
        .as_text()
        .to_owned()
}

fn session(n: u64) -> Caller {
    Caller::session_of(Principal::anonymous(), SessionKey(n))
}

#[tokio::test]
async fn tools_name_their_own_app_and_it_is_read_where_it_is() {
    let scene = two(["a", "b"], &APP);
    let tools = scene.ask("tools/list", None).await;
    let a = r#"{"name":"a__show","_meta":{"ui":{ "resourceUri":"ui:\/\/board/main"},"x":1.0,"ui/resourceUri":"ui://board/main"}}"#;
    let b = r#"{"name":"b__show","_meta":{"ui":{ "resourceUri":"ui://fanlight--b/board/main"},"x":1.0,"ui/resourceUri":"ui://fanlight--b/board/main"}}"#;
    assert_eq!(tools, format!(r#"{{"tools":[{a},{b}]}}"#));
    assert_eq!(
        scene
            .gateway
            .tool(
                "b__show",
                &fanlight_canonical::Endpoint::Everything,
                &Default::default()
            )
            .await
            .unwrap()
            .as_text(),
        b
    );
    scene.forget();
    let read = scene
        .ask(
            "resources/read",
            Some(r#"{"uri":"ui://fanlight--b/board/main"}"#),
        )
        .await;
    let expected = r#"{"contents":[{"uri":"ui://fanlight--b/board/main","text":"x"},{"uri":"ui://fanlight--b/board/more","text":"y"}]}"#;
    assert_eq!(read, expected);
    assert_eq!(
        scene.received(1),
        [r#"resources/read {"uri":"ui://board/main"}"#]
    );
    let read = scene
        .ask("resources/read", Some(r#"{"uri":"ui://board/main"}"#))
        .await;
    assert_eq!(
        format!("\"result\":{read}"),
        APP[2].1,
        "the first one's own bytes"
    );
    assert!(
        !scene
            .received(1)
            .iter()
            .any(|request| request.contains("\"ui://board/main"))
    );
}

#[tokio::test]
async fn apps_that_are_in_no_list_belong_to_the_first_backend_that_names_them() {
    let unlisted = [
        APP[0],
        ("resources/list", r#""result":{"resources":[]}"#),
        APP[2],
    ];
    let scene = two(["a", "b"], &unlisted);
    let tools = scene.ask("tools/list", None).await;
    assert!(
        tools.contains(r#""ui/resourceUri":"ui://fanlight--b/board/main""#),
        "{tools}"
    );
    scene.forget();
    scene
        .ask("resources/read", Some(r#"{"uri":"ui://board/main"}"#))
        .await;
    assert!(
        !scene
            .received(1)
            .iter()
            .any(|request| request.starts_with("resources/read"))
    );
    assert!(
        scene
            .received(0)
            .contains(&r#"resources/read {"uri":"ui://board/main"}"#.to_owned())
    );
}

#[tokio::test]
async fn listed_resource_wins_over_a_tool_that_names_it() {
    let scene = scene(vec![fake("a", &APP[..1]), fake("b", &APP[1..])]);
    let tools = scene.ask("tools/list", None).await;
    assert!(
        tools.contains(r#""ui/resourceUri":"ui://fanlight--a/board/main""#),
        "{tools}"
    );
    let read = scene
        .ask("resources/read", Some(r#"{"uri":"ui://board/main"}"#))
        .await;
    assert_eq!(format!("\"result\":{read}"), APP[2].1);
}

#[tokio::test(start_paused = true)]
async fn tools_are_merged_again_when_another_backend_begins_to_claim_their_app() {
    let scene = scene(vec![announcing("a", &[]), announcing("b", &APP)]);
    scene.backends[0].answer("resources/list", r#""result":{"resources":[]}"#);
    let mut client = scene
        .listen(Interest {
            lists: Change::Tools.into(),
            ..Interest::default()
        })
        .await;
    let tools = scene.ask("tools/list", None).await;
    assert!(
        tools.contains(r#""ui/resourceUri":"ui://board/main""#),
        "{tools}"
    );
    rest().await;
    client.received();
    scene.backends[0].answer("resources/list", APP[1].1);
    scene.backends[0].announce(Method::ResourcesChanged, None);
    rest().await;
    rest().await;
    let tools = scene.ask("tools/list", None).await;
    assert!(
        tools.contains(r#""ui/resourceUri":"ui://fanlight--b/board/main""#),
        "{tools}"
    );
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    assert_eq!(client.received(), ["tools/list_changed"]);
}

#[tokio::test]
async fn configuration_without_doubly_claimed_uris_keeps_all_bytes_and_reads_no_more_lists() {
    const CALL: &str = r#""result":{"content":[{"type":"resource_link","uri":"x:\/\/only"}],"_meta":{"ui":{"resourceUri":"ui:\/\/b"}}}"#;
    let plain = [
        (
            "tools/list",
            r#""result":{"tools":[{"name":"t","uri":"x://1"}]}"#,
        ),
        ("tools/call", CALL),
    ];
    let scene = two(["a", "b"], &plain);
    scene.ask("tools/list", None).await;
    assert_eq!(scene.received(0), ["tools/list"]);
    assert_eq!(
        format!(
            "\"result\":{}",
            scene.ask("tools/call", Some(r#"{"name":"b__t"}"#)).await
        ),
        CALL
    );
}

#[tokio::test]
async fn results_have_aliases_wherever_they_name_what_another_backend_claims() {
    const CALL: &str = r#""result":{"content":[{"type":"resource_link","uri":"ui://board/main"},{"type":"resource","resource":{"uri":"t://7","text":"ui://board/main"}}],"structuredContent":{"uri":"ui://board/main"},"_meta":{"ui":{"resourceUri":"ui://board/main"}}}"#;
    const PROMPT: &str = r#""result":{"messages":[{"role":"user","content":{"type":"resource_link","uri":"ui://board/main"}}]}"#;
    let script = [
        APP[0],
        APP[1],
        (
            "resources/templates/list",
            r#""result":{"resourceTemplates":[{"uriTemplate":"t://{x}"}]}"#,
        ),
        ("tools/call", CALL),
        ("prompts/get", PROMPT),
        (
            "resources/read",
            r#""result":{"contents":[{"uri":"t://7","text":""}]}"#,
        ),
        (
            "completion/complete",
            r#""result":{"completion":{"values":[]}}"#,
        ),
        ("resources/subscribe", r#""result":{}"#),
    ];
    let scene = two(["a", "b"], &script);
    for backend in ["a__", "b__"] {
        let alias = if backend == "a__" { "" } else { "fanlight--b/" };
        let called = scene
            .ask(
                "tools/call",
                Some(&format!(r#"{{"name":"{backend}show"}}"#)),
            )
            .await;
        let expected = format!(
            r#"{{"content":[{{"type":"resource_link","uri":"ui://{alias}board/main"}},{{"type":"resource","resource":{{"uri":"t://{alias}7","text":"ui://board/main"}}}}],"structuredContent":{{"uri":"ui://board/main"}},"_meta":{{"ui":{{"resourceUri":"ui://{alias}board/main"}}}}}}"#
        );
        assert_eq!(called, expected);
        let got = scene
            .ask("prompts/get", Some(&format!(r#"{{"name":"{backend}p"}}"#)))
            .await;
        assert!(
            got.contains(&format!(r#""uri":"ui://{alias}board/main""#)),
            "{got}"
        );
    }
    let templates = scene.ask("resources/templates/list", None).await;
    assert!(
        templates.contains(r#""t://fanlight--b/{x}""#),
        "{templates}"
    );
    scene.forget();
    for (method, sent, received) in [
        (
            "resources/read",
            r#"{"uri":"t://fanlight--b/7"}"#,
            r#"{"uri":"t://7"}"#,
        ),
        (
            "resources/subscribe",
            r#"{"uri":"t://fanlight--b/7"}"#,
            r#"{"uri":"t://7"}"#,
        ),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/resource","uri":"t://fanlight--b/{x}"},"argument":{}}"#,
            r#"{"ref":{"type":"ref/resource","uri":"t://{x}"},"argument":{}}"#,
        ),
    ] {
        let answer = scene.ask(method, Some(sent)).await;
        assert!(!answer.contains("\"code\""), "{method}: {answer}");
        assert_eq!(
            scene.received(1).last().unwrap(),
            &format!("{method} {received}")
        );
    }
    assert!(scene.received(0).is_empty());
}

#[tokio::test]
async fn backend_cannot_take_the_place_of_an_alias() {
    const STOLEN: &str = r#""result":{"resources":[{"uri":"ui://fanlight--b/board/main"}]}"#;
    const TOOL: &str = r#""result":{"tools":[{"name":"t","_meta":{"ui":{"resourceUri":"ui://FANLIGHT--b/board/main"}}}]}"#;
    const LINK: &str =
        r#""result":{"content":[{"type":"resource_link","uri":"ui://fanlight--b/board/main"}]}"#;
    let thief = fake(
        "thief",
        &[
            ("resources/list", STOLEN),
            ("tools/list", TOOL),
            ("tools/call", LINK),
        ],
    );
    let scene = scene(vec![thief, fake("a", &APP), fake("b", &APP)]);
    let resources = scene.ask("resources/list", None).await;
    assert!(
        resources
            .contains(r#"{"resources":[{"uri":"ui://fanlight--thief/fanlight--b/board/main"}"#),
        "{resources}"
    );
    let tools = scene.ask("tools/list", None).await;
    assert!(
        tools.contains(r#""resourceUri":"ui://fanlight--thief/FANLIGHT--b/board/main""#),
        "{tools}"
    );
    let called = scene
        .ask("tools/call", Some(r#"{"name":"thief__t"}"#))
        .await;
    assert!(
        called.contains(r#""uri":"ui://fanlight--thief/fanlight--b/board/main""#),
        "{called}"
    );
    scene.forget();
    for uri in ["ui://fanlight--b/board/main", "UI://fanlight--b/board/main"] {
        scene
            .ask("resources/read", Some(&format!(r#"{{"uri":"{uri}"}}"#)))
            .await;
        assert!(
            !scene
                .received(0)
                .iter()
                .any(|request| request.starts_with("resources/read")),
            "{uri}"
        );
    }
}

#[tokio::test]
async fn uri_that_a_result_hands_out_is_read_where_it_came_from() {
    const LINK: &str = r#""result":{"content":[{"type":"resource_link","uri":"x:\/\/made/1"}]}"#;
    let script = [
        ("tools/list", r#""result":{"tools":[{"name":"t"}]}"#),
        ("tools/call", LINK),
        (
            "resources/read",
            r#""result":{"contents":[{"uri":"x://made/1","text":""}]}"#,
        ),
        ("resources/subscribe", r#""result":{}"#),
    ];
    let scene = two(["a", "b"], &script);
    let called = ask_as(&scene, session(1), "tools/call", r#"{"name":"b__t"}"#).await;
    assert_eq!(
        format!("\"result\":{called}"),
        LINK,
        "what one backend alone has handed out keeps its bytes"
    );
    scene.forget();
    for method in ["resources/read", "resources/subscribe"] {
        ask_as(&scene, session(1), method, r#"{"uri":"x://made/1"}"#).await;
        assert!(
            !scene
                .received(0)
                .iter()
                .any(|request| request.starts_with(method)),
            "{method}"
        );
        assert!(
            scene
                .received(1)
                .contains(&format!(r#"{method} {{"uri":"x://made/1"}}"#)),
            "{method}"
        );
    }
    // Another client was handed out nothing, so all servers are asked in turn.
    ask_as(
        &scene,
        session(2),
        "resources/read",
        r#"{"uri":"x://made/1"}"#,
    )
    .await;
    assert!(
        scene
            .received(0)
            .iter()
            .any(|request| request.starts_with("resources/read"))
    );
    // The same URI from another server is another resource.
    let called = ask_as(&scene, session(1), "tools/call", r#"{"name":"a__t"}"#).await;
    assert!(
        called.contains(r#""uri":"x://fanlight--a/made/1""#),
        "{called}"
    );
}

#[tokio::test]
async fn result_cannot_hand_out_what_another_backend_lists() {
    let listed = [
        (
            "resources/list",
            r#""result":{"resources":[{"uri":"x://1"}]}"#,
        ),
        ("resources/read", r#""result":{"contents":[]}"#),
    ];
    let thief = [
        (
            "tools/call",
            r#""result":{"content":[{"type":"resource_link","uri":"x://1"}]}"#,
        ),
        ("resources/read", r#""result":{"contents":[]}"#),
    ];
    let scene = scene(vec![fake("a", &listed), fake("thief", &thief)]);
    let called = scene
        .ask("tools/call", Some(r#"{"name":"thief__t"}"#))
        .await;
    assert!(
        called.contains(r#""uri":"x://fanlight--thief/1""#),
        "{called}"
    );
    scene.forget();
    scene
        .ask("resources/read", Some(r#"{"uri":"x://1"}"#))
        .await;
    assert!(scene.received(1).is_empty());
}

#[tokio::test]
async fn many_links_in_one_result_are_all_reachable() {
    let links: Vec<_> = (0..1000)
        .map(|n| format!(r#"{{"type":"resource_link","uri":"x://made/{n}"}}"#))
        .collect();
    let result = format!(r#""result":{{"content":[{}]}}"#, links.join(","));
    let b = fake("b", &[("resources/read", r#""result":{"contents":[]}"#)]);
    b.answer("tools/call", String::leak(result));
    let scene = scene(vec![
        fake("a", &[("resources/read", r#""result":{"contents":[]}"#)]),
        b,
    ]);
    let called = scene.ask("tools/call", Some(r#"{"name":"b__t"}"#)).await;
    assert!(called.contains(r#""x://made/0""#) && called.contains(r#""x://fanlight--b/made/999""#));
    scene.forget();
    scene
        .ask(
            "resources/read",
            Some(r#"{"uri":"x://fanlight--b/made/999"}"#),
        )
        .await;
    assert_eq!(
        scene.received(1).last().unwrap(),
        r#"resources/read {"uri":"x://made/999"}"#
    );
}

#[tokio::test(start_paused = true)]
async fn updates_for_a_session_have_the_alias_in_use() {
    const LINK: &str = r#""result":{"content":[{"type":"resource_link","uri":"x://made/1"}]}"#;
    let script = [("tools/call", LINK), APP[1]];
    let scene = scene(["a", "b"].map(|name| announcing(name, &script)).into());
    let mut client = scene
        .listen(Interest {
            session: true,
            ..Interest::default()
        })
        .await;
    let caller = Caller::request_of(Principal::anonymous());
    for name in ["a__t", "b__t"] {
        ask_as(
            &scene,
            caller.clone(),
            "tools/call",
            &format!(r#"{{"name":"{name}"}}"#),
        )
        .await;
    }
    for backend in [0, 1] {
        scene.backends[backend].announce(Method::ResourceUpdated, Some(r#"{"uri":"x://made/1"}"#));
        scene.backends[backend].announce(
            Method::ResourceUpdated,
            Some(r#"{"uri":"ui://board/main"}"#),
        );
    }
    let expected = [
        r#"resources/updated {"uri":"x://made/1"}"#,
        r#"resources/updated {"uri":"ui://board/main"}"#,
        r#"resources/updated {"uri":"x://fanlight--b/made/1"}"#,
        r#"resources/updated {"uri":"ui://fanlight--b/board/main"}"#,
    ];
    assert_eq!(client.received(), expected);
}
