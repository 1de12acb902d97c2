//! Names, definitions and arguments that the configuration changes.

use bytes::Bytes;
use fanlight_canonical::{Endpoint, Parent, Rewritten};
use fanlight_protocol::Json;
use proptest::prelude::*;

use fanlight_canonical::rights::NameForm;

use super::fake::*;
use crate::{ArgumentRule, BackendEntry, DefinitionMember, ListKind, NamingPolicy, Rewriting};

const TOOLS: &str = r#""result":{"tools":[{ "name":"create_issue", "description":"old","inputSchema":{"type":"object","properties":{"owner":{"type":"string"},"limit":{"type":"integer"},"debug":{"type":"boolean"},"title":{"type":"string"}},"required":["owner","title"]}, "x":1.0 },{"name":"search"},{ "name" : "taken"}]}"#;
const CALLED: (&str, &str) = ("tools/call", r#""result":{"content":[],"done":1.0}"#);

fn server(name: &'static str) -> Fake {
    let prompts = r#""result":{"prompts":[{"name":"search","arguments":[]}]}"#;
    fake(
        name,
        &[
            ("tools/list", TOOLS),
            ("prompts/list", prompts),
            CALLED,
            ("prompts/get", r#""result":{"messages":[]}"#),
            (
                "completion/complete",
                r#""result":{"completion":{"values":[]}}"#,
            ),
            ("x/other", r#""result":{"ok":1}"#),
        ],
    )
}

fn renames(pairs: &[(&str, &str)]) -> Rewriting {
    let renames = pairs
        .iter()
        .map(|(old, new)| ((*old).to_owned(), (*new).to_owned()))
        .collect();
    Rewriting {
        renames,
        ..Rewriting::default()
    }
}

fn arguments(rules: &[(&str, ArgumentRule)]) -> Rewriting {
    let rules = rules
        .iter()
        .map(|(name, rule)| ((*name).to_owned(), rule.clone()))
        .collect();
    Rewriting {
        arguments: vec![("create_issue".to_owned(), rules)],
        ..Rewriting::default()
    }
}

fn usual() -> Rewriting {
    arguments(&[
        ("owner", ArgumentRule::Value(Json::literal("\"acme\""))),
        ("limit", ArgumentRule::Default(Json::literal("10"))),
        ("debug", ArgumentRule::Hidden),
    ])
}

fn one(rewriting: Rewriting) -> Scene {
    scene_rewriting(
        vec![rewritten(server("a"), rewriting)],
        NamingPolicy::default(),
    )
}

fn two(rewriting: Rewriting) -> Scene {
    let b = rewritten(
        fake(
            "b",
            &[
                ("tools/list", r#""result":{"tools":[{"name":"b1"}]}"#),
                CALLED,
            ],
        ),
        Rewriting::default(),
    );
    scene_rewriting(
        vec![rewritten(server("a"), rewriting), b],
        NamingPolicy::default(),
    )
}

async fn names(scene: &Scene, kind: ListKind) -> Vec<String> {
    let snapshot = scene
        .gateway
        .current_list(kind, &Endpoint::Everything)
        .await;
    let key = |entry: &crate::catalogue::Entry| {
        entry.key.as_ref().unwrap().as_str().unwrap().into_owned()
    };
    snapshot.entries().map(key).collect()
}

#[tokio::test]
async fn renamed_tools_and_prompts_are_known_by_the_new_name_alone() {
    for (scene, prefix) in [
        (one(renames(&[("search", "find")])), ""),
        (two(renames(&[("search", "find")])), "a__"),
    ] {
        assert_eq!(
            names(&scene, ListKind::Tools).await[1],
            format!("{prefix}find")
        );
        assert_eq!(
            names(&scene, ListKind::Prompts).await,
            [format!("{prefix}find")]
        );
        scene.forget();
        let ask = async |method: &str, params: String| scene.ask(method, Some(&params)).await;
        let named = |name: &str| format!(r#"{{"name":"{name}"}}"#);
        let completing =
            |name: &str| format!(r#"{{"ref":{{"type":"ref/prompt","name":"{name}"}}}}"#);

        ask("tools/call", named(&format!("{prefix}find"))).await;
        ask("prompts/get", named(&format!("{prefix}find"))).await;
        ask("completion/complete", completing(&format!("{prefix}find"))).await;
        // Its parameters could name anything in any form.
        let unknown = ask("x/other", format!(r#"{{"tool":"{prefix}find"}}"#)).await;
        assert_eq!(error_of(&unknown).0, -32601);
        assert_eq!(
            scene.received(0),
            [
                r#"tools/call {"name":"search"}"#,
                r#"prompts/get {"name":"search"}"#,
                r#"completion/complete {"ref":{"type":"ref/prompt","name":"search"}}"#,
            ]
        );
        for old in [
            "search".to_owned(),
            format!("{prefix}search"),
            format!("{prefix}Search"),
        ] {
            for (method, params) in [
                ("tools/call", named(&old)),
                ("prompts/get", named(&old)),
                ("completion/complete", completing(&old)),
            ] {
                assert_eq!(
                    error_of(&ask(method, params).await).0,
                    -32602,
                    "{method} {old}"
                );
            }
        }
        assert_eq!(error_of(&ask("x/other", named("search")).await).0, -32601);
        let forwarded = scene
            .received(0)
            .into_iter()
            .filter(|request| !request.contains("/list"));
        assert_eq!(forwarded.collect::<Vec<_>>(), [""; 0]);
        // A bare name: the listed name without the prefix.
        assert!(!ask("tools/call", named("find")).await.contains("code"));
    }
}

#[tokio::test]
async fn renamed_tool_is_found_before_any_list_was_read() {
    let scene = two(renames(&[("search", "find")]));
    assert_eq!(
        scene.ask("tools/call", Some(r#"{"name":"a__find"}"#)).await,
        r#"{"content":[],"done":1.0}"#
    );
    assert_eq!(
        scene.received(0),
        ["tools/list", r#"tools/call {"name":"search"}"#]
    );
    assert_eq!(
        error_of(
            &two(renames(&[("search", "find")]))
                .ask("tools/call", Some(r#"{"name":"a__search"}"#))
                .await
        )
        .0,
        -32602
    );
}

#[tokio::test]
async fn names_can_be_exchanged() {
    let scene = one(renames(&[("search", "taken"), ("taken", "search")]));
    assert_eq!(
        names(&scene, ListKind::Tools).await,
        ["create_issue", "taken", "search"]
    );
    scene.forget();
    scene.ask("tools/call", Some(r#"{"name":"taken"}"#)).await;
    scene.ask("tools/call", Some(r#"{"name":"search"}"#)).await;
    assert_eq!(
        scene.received(0),
        [
            r#"tools/call {"name":"search"}"#,
            r#"tools/call {"name":"taken"}"#
        ]
    );
}

#[tokio::test]
async fn new_name_hides_another_tool_that_has_it() {
    for renamed in ["search", "create_issue"] {
        let scene = one(renames(&[(renamed, "taken")]));
        let snapshot = scene
            .gateway
            .catalogue(ListKind::Tools, &Endpoint::Everything)
            .await;
        assert_eq!(snapshot.len(), 2);
        assert_eq!(
            (
                snapshot.collisions().len(),
                snapshot.collisions()[0].key.as_str()
            ),
            (1, "taken")
        );
        scene.forget();
        scene.ask("tools/call", Some(r#"{"name":"taken"}"#)).await;
        assert_eq!(
            scene.received(0),
            [format!(r#"tools/call {{"name":"{renamed}"}}"#)]
        );
    }
    // Nothing is hidden for a tool that does not exist.
    assert_eq!(
        names(&one(renames(&[("gone", "taken")])), ListKind::Tools)
            .await
            .len(),
        3
    );
}

#[tokio::test]
async fn definitions_are_changed_where_configured_and_nowhere_else() {
    let members = vec![
        (
            DefinitionMember::Description,
            Some(Json::literal("\"new\"")),
        ),
        (
            DefinitionMember::Annotations,
            Some(Json::literal("{ \"readOnlyHint\":true}")),
        ),
    ];
    let rewriting = Rewriting {
        definitions: vec![("create_issue".to_owned(), members)],
        ..Rewriting::default()
    };
    let scene = one(rewriting);
    let list = scene.ask("tools/list", None).await;
    let expected = TOOLS.strip_prefix("\"result\":").unwrap();
    let expected = expected
        .replace("\"old\"", "\"new\"")
        .replace("1.0 }", "1.0,\"annotations\":{ \"readOnlyHint\":true} }");
    assert_eq!(list, expected);
    let seen = scene
        .gateway
        .tool("create_issue", &Endpoint::Everything, &Parent::default())
        .await
        .unwrap();
    assert_eq!(seen.get("description").unwrap().as_text(), "\"new\"");
}

#[tokio::test]
async fn calls_get_fixed_and_default_arguments() {
    for (scene, name) in [
        (one(usual()), "create_issue"),
        (two(usual()), "a__create_issue"),
    ] {
        let list = scene.ask("tools/list", None).await;
        let schema = r#""inputSchema":{"type":"object","properties":{"limit":{"type":"integer","default":10},"title":{"type":"string"}},"required":["title"]}, "x":1.0 }"#;
        assert!(list.contains(schema), "{list}");
        for (given, sent) in [
            (
                r#""arguments":{ "title":"t"}"#,
                r#""arguments":{"owner":"acme","limit":10, "title":"t"}"#,
            ),
            (
                r#""arguments":{"limit":null}"#,
                r#""arguments":{"owner":"acme","limit":null}"#,
            ),
            (
                r#""arguments":{}"#,
                r#""arguments":{"owner":"acme","limit":10}"#,
            ),
            (
                r#""arguments": null"#,
                r#""arguments": {"owner":"acme","limit":10}"#,
            ),
            (
                r#""arguments":{"o":{"owner":"x"}},"task":{}"#,
                r#""arguments":{"owner":"acme","limit":10,"o":{"owner":"x"}},"task":{}"#,
            ),
        ] {
            scene.forget();
            for params in [
                format!(r#"{{"name":"{name}",{given}}}"#),
                format!(r#"{{{given},"name":"{name}"}}"#),
            ] {
                let answer = scene.ask("tools/call", Some(&params)).await;
                assert_eq!(answer, r#"{"content":[],"done":1.0}"#, "{given}");
            }
            let [first, second] = [
                format!(r#"{{"name":"create_issue",{sent}}}"#),
                format!(r#"{{{sent},"name":"create_issue"}}"#),
            ];
            assert_eq!(
                scene.received(0),
                [
                    format!("tools/call {first}"),
                    format!("tools/call {second}")
                ]
            );
        }
        scene.forget();
        scene
            .ask("tools/call", Some(&format!(r#"{{"name":"{name}"}}"#)))
            .await;
        assert_eq!(
            scene.received(0),
            [r#"tools/call {"arguments":{"owner":"acme","limit":10},"name":"create_issue"}"#]
        );
    }
}

#[tokio::test]
async fn arguments_that_are_fixed_or_hidden_are_refused_in_every_form() {
    let scene = one(usual());
    scene.ask("tools/list", None).await;
    scene.forget();
    for arguments in [
        r#"{"owner":"evil"}"#,
        r#"{"owner":"acme"}"#,
        r#"{"debug":false}"#,
        r#"{"title":"t","debug":null}"#,
        r#"{"\u006fwner":"evil"}"#,
        r#"{"Owner":"evil"}"#,
        r#"{"OWNER":"evil"}"#,
        r#"{"owner\u0000":"evil"}"#,
        r#"{"owner\u0000x":"evil"}"#,
        r#"{"ｏｗｎｅｒ":"evil"}"#,
        "{\"own\u{200b}er\":\"evil\"}",
        r#"{"o_w-n er":"evil"}"#,
        r#"{"owner\ud800":"evil"}"#,
        r#"{"a":1,"a":2,"owner":"x","owner":"y"}"#,
        r#"["owner"]"#,
        r#""{\"owner\":\"evil\"}""#,
        "7",
        "true",
    ] {
        let params = format!(r#"{{"name":"create_issue","arguments":{arguments}}}"#);
        assert_eq!(
            error_of(&scene.ask("tools/call", Some(&params)).await).0,
            -32602,
            "{arguments}"
        );
    }
    let twice = r#"{"name":"create_issue","arguments":{},"arguments":{"owner":"evil"}}"#;
    assert_eq!(
        error_of(&scene.ask("tools/call", Some(twice)).await).0,
        -32602
    );
    // Neither another method nor an unlisted name reaches the tool.
    for (method, params) in [
        (
            "x/other",
            r#"{"name":"create_issue","arguments":{"owner":"evil"}}"#,
        ),
        ("x/other", r#"{"call":{"tool":"create_issue"}}"#),
        (
            "batch/run",
            r#"{"calls":[{"name":"create_issue","arguments":{"owner":"evil"}}]}"#,
        ),
        (
            "batch/run",
            r#"{"calls":[{"n\u0061me":"create\u005fissue","arguments":{"owner":"evil"}}]}"#,
        ),
        (
            "tools/call",
            r#"{"name":"Create_Issue","arguments":{"owner":"evil"}}"#,
        ),
        (
            "tools/call",
            r#"{"name":"create_issue\u0000","arguments":{"owner":"evil"}}"#,
        ),
    ] {
        let code = if method == "tools/call" {
            -32602
        } else {
            -32601
        };
        assert_eq!(
            error_of(&scene.ask(method, Some(params)).await).0,
            code,
            "{method} {params}"
        );
    }
    let forwarded = scene
        .received(0)
        .into_iter()
        .filter(|request| !request.contains("/list"));
    assert_eq!(forwarded.collect::<Vec<_>>(), [""; 0]);
}

#[tokio::test]
async fn names_of_one_backend_have_its_configured_prefix() {
    let mut backend = rewritten(server("a"), Rewriting::default());
    backend.0.prefix = Some("a__".to_owned());
    let scene = scene_rewriting(vec![backend], NamingPolicy::default());
    assert_eq!(names(&scene, ListKind::Tools).await[1], "a__search");
    assert_eq!(names(&scene, ListKind::Prompts).await, ["a__search"]);
    scene.forget();
    scene
        .ask("tools/call", Some(r#"{"name":"a__search"}"#))
        .await;
    scene.ask("tools/call", Some(r#"{"name":"search"}"#)).await;
    assert_eq!(
        scene.received(0),
        [
            r#"tools/call {"name":"search"}"#,
            r#"tools/call {"name":"search"}"#
        ]
    );
}

#[tokio::test]
async fn shortened_names_are_called_and_told_apart() {
    let tools = r#""result":{"tools":[{"name":"a_rather_long_name_one"},{"name":"a_rather_long_name_two"},{"name":"short"}]}"#;
    let policy = NamingPolicy {
        form: NameForm::AtMost(20),
        ..NamingPolicy::default()
    };
    let scene = |policy| {
        scene_rewriting(
            vec![
                rewritten(
                    fake("a", &[("tools/list", tools), CALLED]),
                    Rewriting::default(),
                ),
                rewritten(
                    fake("b", &[("tools/list", r#""result":{"tools":[]}"#)]),
                    Rewriting::default(),
                ),
            ],
            policy,
        )
    };
    let first = scene(policy.clone());
    let shown = names(&first, ListKind::Tools).await;
    assert!(
        shown.iter().all(|name| name.chars().count() <= 20) && shown[0] != shown[1],
        "{shown:?}"
    );
    assert_eq!(
        names(&scene(policy.clone()), ListKind::Tools).await,
        shown,
        "the same in each process"
    );
    // A replica that has read no list serves them too. The server's own name does not work.
    for scene in [&first, &scene(policy)] {
        scene
            .ask("tools/call", Some(&format!(r#"{{"name":"{}"}}"#, shown[1])))
            .await;
        let called = scene
            .received(0)
            .into_iter()
            .filter(|request| request.starts_with("tools/call"));
        assert_eq!(
            called.collect::<Vec<_>>(),
            [r#"tools/call {"name":"a_rather_long_name_two"}"#]
        );
        assert_eq!(
            error_of(
                &scene
                    .ask(
                        "tools/call",
                        Some(r#"{"name":"a__a_rather_long_name_two"}"#)
                    )
                    .await
            )
            .0,
            -32602
        );
    }
    let snapshot = first
        .gateway
        .catalogue(ListKind::Tools, &Endpoint::Everything)
        .await;
    let rewritten: Vec<_> = snapshot
        .entries()
        .map(|entry| entry.rewritten == Rewritten::NAME)
        .collect();
    assert_eq!(rewritten, [true, true, false]);
}

#[tokio::test]
async fn names_that_no_server_lists_are_found_and_do_no_harm() {
    let mut rewriting = usual();
    rewriting.renames = renames(&[("nothing", "x"), ("search", "find")]).renames;
    rewriting.definitions = vec![("gone".to_owned(), vec![(DefinitionMember::Title, None)])];
    rewriting.arguments[0]
        .1
        .push(("mistyped".to_owned(), ArgumentRule::Hidden));
    let scene = one(rewriting);
    let snapshot = scene
        .gateway
        .catalogue(ListKind::Tools, &Endpoint::Everything)
        .await;
    let unknown: Vec<_> = snapshot
        .unknown_names()
        .iter()
        .map(|one| (one.name.as_str(), one.tool.as_deref(), one.may_be_prompt))
        .collect();
    assert_eq!(
        unknown,
        [
            ("nothing", None, true),
            ("mistyped", Some("create_issue"), false),
            ("gone", None, false)
        ]
    );
    assert_eq!(snapshot.len(), 3);
    let changes = snapshot.find("create_issue").unwrap().changes();
    assert_eq!(changes[0], r#"has a fixed argument "owner""#);
    assert!(
        !changes.concat().contains("acme"),
        "fixed values may be secrets: {changes:?}"
    );
}

#[tokio::test]
async fn nothing_configured_changes_nothing() {
    let scene = one(Rewriting::default());
    assert_eq!(
        scene.ask("tools/list", Some("{\"x\":1}")).await,
        TOOLS.strip_prefix("\"result\":").unwrap()
    );
    assert_eq!(scene.received(0), ["tools/list {\"x\":1}"]);
    let params = r#"{"name":"create_issue","arguments":["owner"]}"#;
    scene.ask("tools/call", Some(params)).await;
    assert_eq!(scene.received(0), [format!("tools/call {params}")]);
}

#[tokio::test]
async fn filter_matches_the_names_of_the_server() {
    let (entry, fake) = rewritten(server("a"), renames(&[("search", "find")]));
    let filtered = BackendEntry {
        tools: offering("a", Some(&["search"]), &[]),
        ..entry
    };
    let scene = scene_rewriting(vec![(filtered, fake)], NamingPolicy::default());
    assert_eq!(names(&scene, ListKind::Tools).await, ["find"]);
}

fn any_key() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("owner".to_owned()),
        Just("limit".to_owned()),
        "[a-eO_]{0,5}",
        r"(\\u006f|o)(w|W)ner",
        "title"
    ]
}

fn any_value() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("1.0".to_owned()),
        Just(r#""\u0041\/""#.to_owned()),
        Just(r#"{ "owner" : [1 ,{}]}"#.to_owned()),
        "\"[a-z ]{0,600}\""
    ]
}

proptest! {
    #[test]
    fn rewritten_calls_keep_each_byte_that_the_client_sent(
        members in proptest::collection::vec((any_key(), "[ \n]{0,2}", any_value()), 0..6),
        lead in "[ \n]{0,2}",
    ) {
        let given: Vec<_> = members.iter().map(|(key, space, value)| format!("{space}\"{key}\"{space}:{space}{value}{space}")).collect();
        let given = format!("{{{lead}{}}}", given.join(","));
        let params = format!(r#"{{"name" : "create_issue" ,"arguments":{given} }}"#);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (answer, received) = runtime.block_on(async {
            let scene = one(usual());
            scene.ask("tools/list", None).await;
            scene.forget();
            (scene.ask("tools/call", Some(&params)).await, scene.received(0))
        });
        let owner_sent = members.iter().any(|(key, ..)| {
            key.replace(r"\u006f", "o").replace('_', "").to_lowercase() == "owner"
        });
        let keys: std::collections::BTreeSet<_> = members.iter().map(|(key, ..)| key).collect();
        let is_refused = owner_sent || keys.len() < members.len();
        prop_assert_eq!(answer.contains("-32602"), is_refused, "{}", answer);
        if !is_refused {
            let sent = received[0].strip_prefix("tools/call ").unwrap();
            let default = if members.iter().any(|(key, ..)| key == "limit") { "" } else { r#","limit":10"# };
            let comma = if members.is_empty() { "" } else { "," };
            let body = given.strip_prefix('{').unwrap();
            prop_assert_eq!(sent, format!(r#"{{"name" : "create_issue" ,"arguments":{{"owner":"acme"{default}{comma}{body} }}"#));
            prop_assert!(Json::parse(Bytes::copy_from_slice(sent.as_bytes()), 64).is_ok());
        }
    }
}
