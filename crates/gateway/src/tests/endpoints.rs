//! An endpoint shows some servers and entries, and nothing else exists there.

use std::sync::Arc;

use fanlight_canonical::rights::{ItemFilter, ItemKind, NameForm, ServerNames, Servers};
use fanlight_canonical::{
    Call, CallContext, Caller, Endpoint, Holder, Interest, Principal, ServerMessages, SessionKey,
};
use fanlight_protocol::Method;

use super::fake::*;
use crate::{CacheLimits, EndpointEntry, ListKind, NamingPolicy};

/// A filter in a configuration with the servers that these tests use.
fn filter(allow: Option<&[&str]>, deny: &[&str], kind: ItemKind) -> Option<ItemFilter> {
    let texts = |patterns: &[&str]| {
        patterns
            .iter()
            .map(|&pattern| pattern.to_owned())
            .collect::<Vec<_>>()
    };
    let named = |name: &str| ServerNames {
        name: name.to_owned(),
        ..ServerNames::default()
    };
    let servers = Arc::new(Servers::new(
        &["a", "b", "c"].map(named),
        "__",
        NameForm::Any,
    ));
    Some(ItemFilter::new(
        &servers,
        kind,
        allow.map(texts).as_deref(),
        &texts(deny),
    ))
}

fn allow(patterns: &[&str]) -> Option<ItemFilter> {
    filter(Some(patterns), &[], kind(patterns))
}

fn deny(patterns: &[&str]) -> Option<ItemFilter> {
    filter(None, patterns, kind(patterns))
}

/// The kind of the patterns in these tests: patterns for resources have a scheme or name a secret.
fn kind(patterns: &[&str]) -> ItemKind {
    let is_uri =
        |pattern: &&str| pattern.contains(':') || pattern.to_lowercase().contains("secret");
    if patterns.iter().any(is_uri) {
        ItemKind::Uris
    } else {
        ItemKind::Names
    }
}

fn all_at(path: &str) -> EndpointEntry {
    EndpointEntry {
        path: path.into(),
        servers: None,
        tools: None,
        prompts: None,
        resources: None,
        instructions: None,
        lean: None,
        results: None,
    }
}

fn settings(endpoints: Vec<EndpointEntry>) -> Vec<EndpointEntry> {
    [vec![all_at("/mcp")], endpoints].concat()
}

const READERS: &str = "/mcp/readers";
const TOOLS: &str =
    r#""result":{"tools":[{"name":"read_x"},{"name":"write_x"},{"name":"b__read_y"}]}"#;
const PROMPTS: &str = r#""result":{"prompts":[{"name":"ask"},{"name":"hidden"}]}"#;
const RESOURCES: &str = r#""result":{"resources":[{"uri":"file:///public/a"},{"uri":"file:///private/a"},{"uri":"FILE:///Public/Odd"},{"uri":"x://both"}]}"#;
const TEMPLATES: &str = r#""result":{"resourceTemplates":[{"uriTemplate":"file:///{+path}"},{"uriTemplate":"file:///public/{name}"}]}"#;
const DONE: &str = r#""result":{"content":[]}"#;
const READ: &str = r#""result":{"contents":[]}"#;

fn server(name: &'static str) -> Fake {
    fake(
        name,
        &[
            ("tools/list", TOOLS),
            ("prompts/list", PROMPTS),
            ("resources/list", RESOURCES),
            ("resources/templates/list", TEMPLATES),
            ("tools/call", DONE),
            ("prompts/get", r#""result":{"messages":[]}"#),
            ("resources/read", READ),
            (
                "completion/complete",
                r#""result":{"completion":{"values":[]}}"#,
            ),
            ("x/do", r#""result":{"done":1}"#),
        ],
    )
}

fn scene_with_endpoints(backends: Vec<Fake>, endpoints: Vec<EndpointEntry>) -> Scene {
    let backends = backends
        .into_iter()
        .map(|backend| (backend, None))
        .collect();
    let cache = CacheLimits {
        entries: 4,
        bytes: 4096,
    };
    scene_at(backends, 1000, cache, settings(endpoints))
}

/// Servers `a`, `b` and `secret`; `/mcp/readers` shows parts of the first two.
fn readers() -> Scene {
    let readers = EndpointEntry {
        servers: Some(vec!["a".into(), "b".into()]),
        tools: allow(&["a__read_*", "b__read_*"]),
        prompts: deny(&["*hidden"]),
        resources: allow(&["file:///public/*", "FILE:///Public/*"]),
        instructions: Some("Read only.".into()),
        ..all_at(READERS)
    };
    let only_b = EndpointEntry {
        servers: Some(vec!["b".into()]),
        ..all_at("/mcp/b")
    };
    scene_with_endpoints(
        vec![server("a"), server("b"), server("secret")],
        vec![readers, only_b],
    )
}

fn caller(path: &str, session: Option<u64>) -> Caller {
    let endpoint = if path == "/mcp" {
        Endpoint::Default
    } else {
        Endpoint::from_path(path)
    };
    let holder = Holder::new(Principal::anonymous(), endpoint);
    match session {
        Some(session) => Caller::session_of(holder, SessionKey(session)),
        None => Caller::request_of(holder),
    }
}

impl Scene {
    async fn ask_at(&self, path: &str, method: &str, params: Option<&str>) -> String {
        self.ask_by_caller(caller(path, None), method, params).await
    }

    async fn ask_by_caller(&self, caller: Caller, method: &str, params: Option<&str>) -> String {
        let context = Arc::new(CallContext {
            caller,
            ..(*CallContext::internal()).clone()
        });
        let call = Call {
            context,
            ..call(method, params)
        };
        self.gateway.handle(call).await.body().as_text().to_owned()
    }

    async fn listen_at(&self, path: &str, interest: Interest) -> (Client, CallContext) {
        let (messages, receiver) = ServerMessages::channel(64);
        let context = CallContext {
            caller: caller(path, Some(9)),
            ..(*CallContext::internal()).clone()
        };
        let operation = self
            .gateway
            .resolve_listen(interest, Arc::new(context.clone()));
        (
            Client::new(
                self.gateway.listen(operation, messages).await.unwrap(),
                receiver,
            ),
            context,
        )
    }

    /// All requests except list requests.
    fn reached(&self) -> Vec<String> {
        let all = (0..self.backends.len()).flat_map(|backend| self.received(backend));
        all.filter(|request| !request.contains("/list")).collect()
    }
}

fn names(list: &str) -> Vec<String> {
    let list = list.split(r#""_meta":{"dev.fanlight"#).next().unwrap();
    let keys = [r#""name":""#, r#""uri":""#, r#""uriTemplate":""#];
    let after = keys.iter().flat_map(|key| list.split(key).skip(1));
    after
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn lists_have_what_the_endpoint_shows_in_the_texts_of_the_whole() {
    let scene = readers();
    for (method, path, expected) in [
        ("tools/list", READERS, &["a__read_x", "b__read_x"][..]),
        ("prompts/list", READERS, &["a__ask", "b__ask"]),
        (
            "resources/list",
            READERS,
            &[
                "file:///public/a",
                "FILE:///Public/Odd",
                "file://fanlight--b//public/a",
                "FILE://fanlight--b//Public/Odd",
            ],
        ),
        (
            "resources/templates/list",
            READERS,
            &["file:///public/{name}", "file://fanlight--b//public/{name}"],
        ),
        (
            "tools/list",
            "/mcp/b",
            &["b__read_x", "b__write_x", "b__b__read_y"],
        ),
    ] {
        assert_eq!(
            names(&scene.ask_at(path, method, None).await),
            expected,
            "{method} at {path}"
        );
    }
    let everything = scene.ask("tools/list", None).await;
    assert_eq!(scene.ask_at("/mcp", "tools/list", None).await, everything);
    assert_eq!(names(&everything).len(), 9);
    // Nothing reveals a hidden server.
    for method in ["tools/list", "resources/list", "resources/templates/list"] {
        let list = scene.ask_at(READERS, method, None).await;
        assert!(
            !list.contains("secret") && !list.contains("private"),
            "{list}"
        );
        assert!(
            list.contains("collisions") || method == "tools/list",
            "{list}"
        );
    }
    assert!(
        !scene
            .ask_at("/mcp/b", "resources/list", None)
            .await
            .contains("dev.fanlight"),
        "no collision within one"
    );
}

#[tokio::test(start_paused = true)]
async fn server_outside_an_endpoint_takes_no_name_from_one_inside() {
    let server = |name| {
        let server = fake(
            name,
            &[
                (
                    "tools/list",
                    r#""result":{"tools":[{"name":"t"},{"name":"t"}]}"#,
                ),
                ("prompts/list", r#""result":{"prompts":[{"name":"t"}]}"#),
                ("tools/call", DONE),
                ("prompts/get", r#""result":{"messages":[]}"#),
            ],
        );
        (server, Some(""))
    };
    let at = |path: &str, servers: &[&str]| EndpointEntry {
        servers: Some(servers.iter().map(|&server| server.to_owned()).collect()),
        ..all_at(path)
    };
    let cache = CacheLimits {
        entries: 4,
        bytes: 4096,
    };
    let scene = scene_at(
        vec![server("a"), server("b"), server("c")],
        1000,
        cache,
        settings(vec![
            at("/mcp/b", &["b"]),
            at("/mcp/bc", &["b", "c"]),
            at("/mcp/c", &["c"]),
        ]),
    );
    for (path, server) in [("/mcp/b", 1), ("/mcp/bc", 1), ("/mcp", 0), ("/mcp/c", 2)] {
        for (list, call) in [
            ("tools/list", "tools/call"),
            ("prompts/list", "prompts/get"),
        ] {
            let list = scene.ask_at(path, list, None).await;
            assert_eq!(names(&list), ["t"], "{path}: {list}");
            scene.forget();
            scene.ask_at(path, call, Some(r#"{"name":"t"}"#)).await;
            assert_eq!(
                scene.received(server),
                [format!(r#"{call} {{"name":"t"}}"#)],
                "{path}"
            );
        }
    }
    let everything = scene
        .gateway
        .catalogue(ListKind::Tools, &Endpoint::Everything)
        .await;
    assert_eq!(everything.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn hidden_tools_and_prompts_are_unknown_by_every_name() {
    for is_listed in [false, true] {
        let scene = readers();
        if is_listed {
            scene.ask_at(READERS, "tools/list", None).await;
            scene.ask_at(READERS, "prompts/list", None).await;
        }
        for name in [
            "a__write_x",
            "write_x",
            "b__write_x",
            "secret__read_x",
            "a__b__read_y",
            "secret__unlisted",
            "a__unlisted",
            "A__read_x",
            "read_y",
            "secret__",
            "a__",
            "",
        ] {
            let answer = scene
                .ask_at(
                    READERS,
                    "tools/call",
                    Some(&format!(r#"{{"name":"{name}"}}"#)),
                )
                .await;
            assert_eq!(
                error_of(&answer),
                (-32602, format!("Unknown tool: {name}")),
                "{is_listed}"
            );
            let tool = scene
                .gateway
                .tool(name, &Endpoint::from_path(READERS), &Default::default())
                .await;
            assert!(tool.is_none(), "{name}");
        }
        for name in ["a__hidden", "hidden", "secret__ask", "a__unlisted"] {
            let params = format!(r#"{{"name":"{name}"}}"#);
            assert_eq!(
                error_of(&scene.ask_at(READERS, "prompts/get", Some(&params)).await).0,
                -32602,
                "{name}"
            );
            let params = format!(r#"{{"ref":{{"type":"ref/prompt","name":"{name}"}}}}"#);
            assert_eq!(
                error_of(
                    &scene
                        .ask_at(READERS, "completion/complete", Some(&params))
                        .await
                )
                .0,
                -32602,
                "{name}"
            );
        }
        assert_eq!(scene.reached(), [""; 0]);
        assert_eq!(
            scene
                .ask_at(READERS, "tools/call", Some(r#"{"name":"a__read_x"}"#))
                .await,
            r#"{"content":[]}"#
        );
        assert_eq!(
            scene
                .ask_at(READERS, "prompts/get", Some(r#"{"name":"b__ask"}"#))
                .await,
            r#"{"messages":[]}"#
        );
        assert!(
            scene
                .gateway
                .tool(
                    "a__read_x",
                    &Endpoint::from_path(READERS),
                    &Default::default()
                )
                .await
                .is_some()
        );
        assert_eq!(scene.reached().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn hidden_resources_are_unknown_by_every_uri() {
    let scene = readers();
    for uri in [
        "file:///private/a",
        "file:///public/../private/a",
        "file:///public/%2e%2e/private/a",
        "file:///public/..%2fprivate/a",
        "file:///public//x",
        "file:///public/a%",
        "file:///public/x#y",
        "file:///public/ x",
        "FILE:///Public/unlisted",
        "file:///public/x?/../../private/a",
        "file:///public/..;/private/a",
        "file:///public/x%3f/..%3b/private/a",
        "file://fanlight--b//public/..;/private/a",
        "file://fanlight--b//private/a",
        "file://fanlight--b//public/../private/a",
        "file://fanlight--secret//public/a",
        "x://both",
        "x://fanlight--b/both",
        "unlisted://x",
        "file:///{+path}",
    ] {
        let params = format!(r#"{{"uri":"{uri}"}}"#);
        for method in [
            "resources/read",
            "resources/subscribe",
            "resources/unsubscribe",
            "skills/get",
            "resources/directory/read",
        ] {
            let (code, message) = error_of(&scene.ask_at(READERS, method, Some(&params)).await);
            assert_eq!(
                (code, message.as_str()),
                (-32002, "Resource not found"),
                "{method} {uri}"
            );
        }
        let params = format!(
            r#"{{"ref":{{"type":"ref/resource","uri":"{uri}"}},"argument":{{"name":"path","value":"p"}}}}"#
        );
        assert_eq!(
            error_of(
                &scene
                    .ask_at(READERS, "completion/complete", Some(&params))
                    .await
            )
            .0,
            -32002,
            "{uri}"
        );
    }
    assert_eq!(scene.reached(), [""; 0]);
    for (uri, backend, original) in [
        ("file:///public/a", 0, "file:///public/a"),
        ("FILE:///Public/Odd", 0, "FILE:///Public/Odd"),
        ("file:///public/any/depth", 0, "file:///public/any/depth"),
        ("file://fanlight--b//public/a", 1, "file:///public/a"),
        ("FILE://fanlight--b//Public/Odd", 1, "FILE:///Public/Odd"),
    ] {
        let answer = scene
            .ask_at(
                READERS,
                "resources/read",
                Some(&format!(r#"{{"uri":"{uri}"}}"#)),
            )
            .await;
        assert_eq!(answer, r#"{"contents":[]}"#, "{uri}");
        let received = scene.received(backend);
        assert!(
            received.contains(&format!(r#"resources/read {{"uri":"{original}"}}"#)),
            "{uri}: {received:?}"
        );
    }
    let template = r#"{"ref":{"type":"ref/resource","uri":"file:///public/{name}"}}"#;
    assert!(
        scene
            .ask_at(READERS, "completion/complete", Some(template))
            .await
            .contains("values")
    );
}

#[tokio::test(start_paused = true)]
async fn uri_that_is_denied_is_denied_in_every_spelling() {
    let endpoint = EndpointEntry {
        resources: deny(&["file:///private/*", "*Secret*"]),
        ..all_at(READERS)
    };
    let listed = r#""result":{"resources":[{"uri":"file:///a/SECRET"},{"uri":"file:///Private/%61"},{"uri":"file:///a/ok?x=secret"},{"uri":"file:///a/ok"}]}"#;
    let template = r#""result":{"resourceTemplates":[{"uriTemplate":"file:///{+path}"}]}"#;
    let server = |name| {
        fake(
            name,
            &[
                ("resources/list", listed),
                ("resources/templates/list", template),
                ("resources/read", READ),
            ],
        )
    };
    let scene = scene_with_endpoints(vec![server("a")], vec![endpoint]);
    assert_eq!(
        names(&scene.ask_at(READERS, "resources/list", None).await),
        ["file:///a/ok"]
    );
    for uri in [
        "file:///a/SECRET",
        "file:///a/%53ecret",
        "file:///private/x",
        "file:///PRIVATE/x",
        "file://localhost/private/x",
        "file:////private/x",
        "file:///private/./x",
        "file:///private/x?y",
        "file:/private/x",
        "file:///private;a/x",
        "file:///b/secret/",
    ] {
        let answer = scene
            .ask_at(
                READERS,
                "resources/read",
                Some(&format!(r#"{{"uri":"{uri}"}}"#)),
            )
            .await;
        assert_eq!(
            error_of(&answer),
            (-32002, "Resource not found".into()),
            "{uri}"
        );
    }
    assert_eq!(scene.reached(), [""; 0]);
    assert!(
        scene
            .ask_at(
                READERS,
                "resources/read",
                Some(r#"{"uri":"file:///b/x?y=1"}"#)
            )
            .await
            .contains("contents")
    );
}

#[tokio::test(start_paused = true)]
async fn skill_is_hidden_with_each_of_its_files() {
    let skills = r#""result":{"skills":[{"uri":"skill://open/SKILL.md","resources":[{"uri":"skill://open/a"}]},{"uri":"skill://mixed/SKILL.md","resources":[{"uri":"skill://mixed/secret"}]}]}"#;
    let directory = r#""result":{"x":1.0,"resources":[{"uri":"skill://open/a"},{"uri":"skill://open/secret"},{"name":"no uri"}]}"#;
    let entry = r#""result":{"skill":{"uri":"skill://open/SKILL.md"}}"#;
    let script = [
        ("skills/list", skills),
        ("skills/get", entry),
        ("resources/directory/read", directory),
        ("resources/read", READ),
    ];
    for count in [1, 2] {
        let server = |name| {
            let server = fake(name, &script);
            server.describe_as(Ok(r#"{"capabilities":{"resources":{},"extensions":{"io.modelcontextprotocol/skills":{"directoryRead":true}}}}"#));
            server
        };
        let servers = std::iter::once(server("a"))
            .chain((1..count).map(|_| fake("b", &[])))
            .collect();
        let endpoint = EndpointEntry {
            resources: deny(&["*secret*"]),
            ..all_at(READERS)
        };
        let scene = scene_with_endpoints(servers, vec![endpoint]);
        let list = scene.ask_at(READERS, "skills/list", None).await;
        assert!(
            list.contains("skill://open/a") && !list.contains("mixed"),
            "{list}"
        );
        scene.forget();
        for (method, uri) in [
            ("skills/get", "skill://mixed/SKILL.md"),
            ("resources/read", "skill://mixed/SKILL.md"),
            ("resources/read", "skill://mixed/secret"),
            ("resources/directory/read", "skill://mixed/secret"),
        ] {
            let answer = scene
                .ask_at(READERS, method, Some(&format!(r#"{{"uri":"{uri}"}}"#)))
                .await;
            assert_eq!(
                error_of(&answer),
                (-32002, "Resource not found".into()),
                "{method} {uri}"
            );
        }
        assert_eq!(scene.reached(), [""; 0]);
        let got = scene
            .ask_at(
                READERS,
                "skills/get",
                Some(r#"{"uri":"skill://open/SKILL.md"}"#),
            )
            .await;
        assert!(got.contains("skill://open"), "{got}");
        let listed = scene
            .ask_at(
                READERS,
                "resources/directory/read",
                Some(r#"{"uri":"skill://open"}"#),
            )
            .await;
        assert!(!listed.contains("secret"), "{listed}");
        let read = scene
            .ask_at(
                READERS,
                "resources/directory/read",
                Some(r#"{"uri":"skill://open/a"}"#),
            )
            .await;
        assert_eq!(read, r#"{"x":1.0,"resources":[{"uri":"skill://open/a"}]}"#);
    }
}

#[tokio::test(start_paused = true)]
async fn methods_and_notifications_that_fanlight_does_not_know_pass_no_filter() {
    let scene = readers();
    scene.backends[0].describe_as(Ok(r#"{"capabilities":{"tools":{},"resources":{},"prompts":{},"extensions":{"com.example/x":{},"io.modelcontextprotocol/tasks":{}}}}"#));
    let described = scene.ask_at(READERS, "server/discover", None).await;
    assert!(
        described.contains("Read only.") && described.contains("io.modelcontextprotocol/tasks"),
        "{described}"
    );
    assert!(
        !described.contains("com.example/x") && !described.contains("secret"),
        "{described}"
    );
    for params in [
        r#"{"name":"a__read_x"}"#,
        r#"{"name":"a__write_x"}"#,
        r#"{"deep":{"tool":"write_x"}}"#,
        "{}",
    ] {
        let answer = scene.ask_at(READERS, "x/do", Some(params)).await;
        assert_eq!(
            error_of(&answer),
            (-32601, "Method not found: x/do".into()),
            "{params}"
        );
        assert!(
            scene
                .ask_at("/mcp", "x/do", Some(params))
                .await
                .contains("done"),
            "{params}"
        );
    }
    // An endpoint that only hides servers passes requests that name nothing of them.
    assert!(
        scene
            .ask_at("/mcp/b", "x/do", Some(r#"{"name":"b__read_x"}"#))
            .await
            .contains("done")
    );
    assert_eq!(
        error_of(
            &scene
                .ask_at("/mcp/b", "x/do", Some(r#"{"name":"a__read_x"}"#))
                .await
        )
        .0,
        -32601
    );
}

#[tokio::test(start_paused = true)]
async fn only_backend_is_transparent_where_an_endpoint_shows_all_of_it() {
    let endpoints = vec![
        EndpointEntry {
            servers: Some(vec!["a".into()]),
            ..all_at("/all")
        },
        EndpointEntry {
            tools: allow(&["read_*"]),
            ..all_at(READERS)
        },
        EndpointEntry {
            servers: Some(Vec::new()),
            ..all_at("/none")
        },
        EndpointEntry {
            instructions: Some("Be kind.".into()),
            ..all_at("/kind")
        },
    ];
    let scene = scene_with_endpoints(vec![server("a")], endpoints);
    for path in ["/mcp", "/all", "/kind"] {
        assert!(
            scene
                .ask_at(path, "x/do", Some(r#"{"name":"write_x"}"#))
                .await
                .contains("done"),
            "{path}"
        );
        assert!(
            scene
                .ask_at(path, "tools/list", None)
                .await
                .contains("write_x"),
            "{path}"
        );
    }
    assert!(
        scene
            .ask_at("/kind", "server/discover", None)
            .await
            .contains(r#""instructions":"Be kind.""#)
    );
    assert_eq!(
        names(&scene.ask_at(READERS, "tools/list", None).await),
        ["read_x"]
    );
    assert_eq!(
        error_of(
            &scene
                .ask_at(READERS, "tools/call", Some(r#"{"name":"write_x"}"#))
                .await
        )
        .0,
        -32602
    );
    assert_eq!(
        error_of(&scene.ask_at(READERS, "x/do", None).await).0,
        -32601
    );
    for path in ["/none", "/never/configured"] {
        assert_eq!(
            names(&scene.ask_at(path, "tools/list", None).await),
            [""; 0],
            "{path}"
        );
        scene.forget();
        for (method, params) in [
            ("tools/call", r#"{"name":"read_x"}"#),
            ("resources/read", r#"{"uri":"file:///public/a"}"#),
            ("x/do", "{}"),
        ] {
            error_of(&scene.ask_at(path, method, Some(params)).await);
        }
        assert_eq!(scene.reached(), [""; 0], "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn cursor_of_one_endpoint_is_unknown_at_another() {
    let backends = vec![(server("a"), None), (server("b"), None)];
    let cache = CacheLimits {
        entries: 4,
        bytes: 4096,
    };
    let endpoints = settings(vec![
        EndpointEntry {
            tools: allow(&["*read_x"]),
            ..all_at(READERS)
        },
        all_at("/all"),
    ]);
    let scene = scene_at(backends, 1, cache, endpoints);
    let cursor_in = |list: &str| {
        list.split(r#""nextCursor":""#)
            .nth(1)
            .map(|rest| format!(r#"{{"cursor":"{}"}}"#, rest.split('"').next().unwrap()))
    };
    let cursor = cursor_in(&scene.ask_at("/mcp", "tools/list", None).await).unwrap();
    for path in [READERS, "/all"] {
        assert_eq!(
            error_of(&scene.ask_at(path, "tools/list", Some(&cursor)).await).0,
            -32602,
            "{path}"
        );
    }
    assert_eq!(
        names(&scene.ask_at("/mcp", "tools/list", Some(&cursor)).await),
        ["a__write_x"]
    );
    let own = cursor_in(&scene.ask_at(READERS, "tools/list", None).await).unwrap();
    let last = scene.ask_at(READERS, "tools/list", Some(&own)).await;
    assert_eq!(
        (names(&last), cursor_in(&last)),
        (vec!["b__read_x".to_owned()], None)
    );
    assert_eq!(
        error_of(&scene.ask_at("/mcp", "tools/list", Some(&own)).await).0,
        -32602
    );
}

#[tokio::test(start_paused = true)]
async fn tasks_of_hidden_tools_do_not_exist() {
    const TASKS: &str = r#"{"capabilities":{"tools":{},"tasks":{"list":{},"cancel":{}}}}"#;
    let state = |id: &str| -> &'static str {
        format!(r#""result":{{"taskId":"{id}","status":"working"}}"#).leak()
    };
    let backend = || {
        let script = [
            ("tools/list", TOOLS),
            (
                r#"tools/call {"name":"read_x"}"#,
                r#""result":{"task":{"taskId":"mine","ttl":60000}}"#,
            ),
            (
                r#"tools/call {"name":"write_x"}"#,
                r#""result":{"task":{"taskId":"theirs","ttl":60000}}"#,
            ),
            (r#"tasks/get {"taskId":"mine"}"#, state("mine")),
            (r#"tasks/get {"taskId":"theirs"}"#, state("theirs")),
            (r#"tasks/cancel {"taskId":"theirs"}"#, state("theirs")),
            (
                "tasks/list",
                r#""result":{"tasks":[{"taskId":"mine"},{"taskId":"theirs"}]}"#,
            ),
        ];
        let backend = fake("a", &script);
        backend.describe_as(Ok(TASKS));
        backend
    };
    for count in [1, 2] {
        let others = (1..count).map(|_| fake("b", &[("tools/list", TOOLS)]));
        let prefix = if count == 1 { "" } else { "a__" };
        let endpoints = vec![EndpointEntry {
            tools: allow(&["read_*", "a__read_*"]),
            ..all_at(READERS)
        }];
        let scene = scene_with_endpoints(
            std::iter::once(backend()).chain(others).collect(),
            endpoints,
        );
        let at = |path, method: &'static str, params: String| {
            let scene = &scene;
            async move {
                scene
                    .ask_by_caller(caller(path, Some(1)), method, Some(&params))
                    .await
            }
        };
        at(
            "/mcp",
            "tools/call",
            format!(r#"{{"name":"{prefix}write_x"}}"#),
        )
        .await;
        at(
            READERS,
            "tools/call",
            format!(r#"{{"name":"{prefix}read_x"}}"#),
        )
        .await;
        scene.forget();
        for method in ["tasks/get", "tasks/cancel", "tasks/result", "tasks/update"] {
            let answer = at(READERS, method, r#"{"taskId":"theirs"}"#.into()).await;
            assert_eq!(
                error_of(&answer),
                (-32602, "Failed to retrieve task: Task not found".into()),
                "{method}"
            );
        }
        assert_eq!(scene.reached(), [""; 0]);
        assert!(
            at(READERS, "tasks/get", r#"{"taskId":"mine"}"#.into())
                .await
                .contains("working")
        );
        let list = at(READERS, "tasks/list", "{}".into()).await;
        assert!(list.contains(r#""tasks":[{"taskId":"mine"}]"#), "{list}");
        let interest = Interest {
            tasks: ["a-mine".into(), "a-theirs".into(), "theirs".into()].into(),
            ..Interest::default()
        };
        let (client, _) = scene.listen_at(READERS, interest).await;
        assert!(
            client.listening.honoured.tasks.is_empty(),
            "{:?}",
            client.listening.honoured
        );
    }
}

#[tokio::test(start_paused = true)]
async fn changes_are_announced_where_they_show() {
    let list = |names: &str| -> &'static str {
        let all: Vec<_> = names
            .split(' ')
            .map(|name| format!(r#"{{"name":"{name}"}}"#))
            .collect();
        format!(r#""result":{{"tools":[{}]}}"#, all.join(",")).leak()
    };
    let changing = |name| announcing(name, &[("tools/list", list("read_x write_x"))]);
    let endpoints = vec![
        EndpointEntry {
            tools: allow(&["a__read_*"]),
            ..all_at(READERS)
        },
        EndpointEntry {
            servers: Some(vec!["b".into()]),
            ..all_at("/mcp/b")
        },
    ];
    let scene = scene_with_endpoints(vec![changing("a"), changing("b")], endpoints);
    let interest = || Interest {
        lists: Change::Tools.into(),
        session: true,
        ..Interest::default()
    };
    let (mut all, _) = scene.listen_at("/mcp", interest()).await;
    let (mut readers, _) = scene.listen_at(READERS, interest()).await;
    let (mut only_b, _) = scene.listen_at("/mcp/b", interest()).await;
    rest().await;
    for (backend, tools, expected) in [
        (0, "read_x write_y", [1, 0, 0]),
        (0, "read_y write_y", [1, 1, 0]),
        (1, "read_y", [1, 0, 1]),
        (0, "write_y", [1, 1, 0]),
        // Equal lists: the filter may hide what has changed.
        (0, "write_y", [1, 0, 0]),
        (1, "read_y", [1, 0, 1]),
    ] {
        scene.backends[backend].answer("tools/list", list(tools));
        scene.backends[backend].announce(Method::ToolsChanged, None);
        rest().await;
        let counts = [&mut all, &mut readers, &mut only_b].map(|client| client.received().len());
        assert_eq!(counts, expected, "{backend} {tools}");
    }
}

#[tokio::test(start_paused = true)]
async fn endpoint_that_is_changed_is_announced_and_served_by_its_new_rules() {
    let scene = scene_with_endpoints(
        vec![announcing("a", &[("tools/list", TOOLS)])],
        vec![EndpointEntry {
            tools: allow(&["read_*"]),
            ..all_at(READERS)
        }],
    );
    let (mut client, _) = scene
        .listen_at(
            READERS,
            Interest {
                lists: Change::Tools.into(),
                ..Interest::default()
            },
        )
        .await;
    assert_eq!(
        names(&scene.ask_at(READERS, "tools/list", None).await),
        ["read_x"]
    );
    rest().await;
    let replace = async |filter| {
        let backends = vec![entry(scene.ids[0], &scene.backends[0], None)];
        let endpoints = settings(vec![EndpointEntry {
            tools: filter,
            ..all_at(READERS)
        }]);
        scene
            .gateway
            .replace(
                backends,
                &NamingPolicy::default(),
                limits(1000),
                endpoints,
                None,
            )
            .await;
    };
    replace(allow(&["write_*"])).await;
    assert_eq!(
        names(&scene.ask_at(READERS, "tools/list", None).await),
        ["write_x"]
    );
    rest().await;
    assert_eq!(client.received(), ["tools/list_changed"]);
    replace(allow(&["*write_x"])).await;
    assert_eq!(
        names(&scene.ask_at(READERS, "tools/list", None).await),
        ["write_x"]
    );
    rest().await;
    assert_eq!(client.received(), [""; 0]);
    assert_eq!(
        error_of(
            &scene
                .ask_at(READERS, "tools/call", Some(r#"{"name":"read_x"}"#))
                .await
        )
        .0,
        -32602
    );
}

#[tokio::test(start_paused = true)]
async fn updates_of_hidden_resources_reach_no_listener() {
    let announcing = |name| {
        let all = [
            ("resources/list", RESOURCES),
            ("resources/templates/list", TEMPLATES),
            ("resources/subscribe", r#""result":{}"#),
        ];
        announcing(name, &all)
    };
    let endpoints = vec![EndpointEntry {
        resources: allow(&["file:///public*"]),
        ..all_at(READERS)
    }];
    let scene = scene_with_endpoints(vec![announcing("a")], endpoints);
    let uris = [
        "file:///public",
        "file:///private/a",
        "file:///public/a",
        "file:///private",
    ]
    .map(Arc::from)
    .into();
    let (mut client, _) = scene
        .listen_at(
            READERS,
            Interest {
                uris,
                session: true,
                ..Interest::default()
            },
        )
        .await;
    let honoured: Vec<_> = client
        .listening
        .honoured
        .uris
        .iter()
        .map(|uri| uri.to_string())
        .collect();
    assert_eq!(honoured, ["file:///public", "file:///public/a"]);
    for uri in [
        r#"{"uri":"file:///private/a"}"#,
        r#"{"uri":"file:///public/a"}"#,
        r#"{"x":1}"#,
    ] {
        scene.backends[0].announce(Method::ResourceUpdated, Some(uri));
    }
    scene.backends[0].announce(
        Method::from_name("notifications/x"),
        Some(r#"{"tool":"write_x"}"#),
    );
    let received = client.received();
    assert!(
        !received.is_empty() && received.iter().all(|one| one.contains("file:///public/a")),
        "{received:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn ten_endpoints_share_lists_that_are_read_and_written_once() {
    let path = |n: usize| format!("/mcp/{n}");
    let name = |n: usize| -> &'static str { format!("s{n}").leak() };
    let endpoints = (0..10)
        .map(|n| EndpointEntry {
            servers: Some(vec![name(n).into(), name((n + 1) % 10).into()]),
            tools: allow(&["*read_x"]),
            ..all_at(&path(n))
        })
        .collect();
    let scene = scene_with_endpoints(
        (0..10)
            .map(|n| announcing(name(n), &[("tools/list", TOOLS)]))
            .collect(),
        endpoints,
    );
    let mut texts = Vec::new();
    for n in (0..10).chain(0..10) {
        let caller = caller(&path(n), None);
        let context = Arc::new(CallContext {
            caller,
            ..(*CallContext::internal()).clone()
        });
        let answer = scene
            .gateway
            .handle(Call {
                context,
                ..call("tools/list", None)
            })
            .await;
        texts.push(answer.body().bytes().as_ptr());
    }
    // The servers announce changes, so a second reading follows the first.
    rest().await;
    for backend in 0..10 {
        assert!(
            scene
                .received(backend)
                .iter()
                .filter(|request| *request == "tools/list")
                .count()
                <= 2
        );
    }
    assert_eq!(
        texts[..10],
        texts[10..],
        "the second answers are those that were written before"
    );
    let whole = scene
        .gateway
        .current_list(ListKind::Tools, &Endpoint::Everything)
        .await;
    for n in 0..10 {
        let part = scene
            .gateway
            .current_list(ListKind::Tools, &Endpoint::from_path(path(n)))
            .await;
        assert_eq!(part.len(), 2);
        assert!(
            Arc::ptr_eq(part.whole(), whole.whole()),
            "endpoints keep positions, not entries"
        );
        for entry in part.entries() {
            let key = entry.key.as_ref().unwrap().as_str().unwrap();
            assert!(std::ptr::eq(entry, whole.find(&key).unwrap()));
        }
    }
}
