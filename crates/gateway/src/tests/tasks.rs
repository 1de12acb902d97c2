//! Tasks of several servers: their owners, the search for an unknown owner, and the merged list.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use fanlight_canonical::{Call, CallContext, Caller, Interest, Principal, SessionKey};
use fanlight_protocol::{Json, Method};
use tokio::time::{Instant, sleep};

use super::fake::*;
use crate::{CommonTask, CommonTaskOwners};

const LEGACY: &str = r#"{"capabilities":{"tools":{},"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}}}"#;
const MODERN: &str =
    r#"{"capabilities":{"tools":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;
const NOT_FOUND: &str = r#""error":{"code":-32602,"message":"not here"}"#;

fn tasked(name: &'static str, description: &'static str, script: &[(&str, &'static str)]) -> Fake {
    let fake = fake(name, script);
    fake.describe_as(Ok(description));
    fake
}

impl Scene {
    async fn ask_as(&self, session: Option<u64>, method: &str, params: &str) -> String {
        self.ask_of(caller(session), method, params).await
    }

    async fn ask_of(&self, caller: Caller, method: &str, params: &str) -> String {
        let context = CallContext {
            caller,
            tasks: Some(fanlight_canonical::TaskDialect::Extension),
            ..(*CallContext::internal()).clone()
        };
        let call = Call::new(
            Method::from_name(method),
            (!params.is_empty())
                .then(|| Json::parse(Bytes::copy_from_slice(params.as_bytes()), 64).unwrap()),
            Arc::new(context),
        );
        self.gateway.handle(call).await.body().as_text().to_owned()
    }
}

#[tokio::test]
async fn requests_about_a_task_go_to_the_backend_that_created_it() {
    let list = ("tools/list", r#""result":{"tools":[{"name":"t"}]}"#);
    let state = r#""result":{ "taskId":"same","x":1.0}"#;
    let others = [
        ("tasks/get", state),
        ("tasks/cancel", state),
        ("tasks/update", r#""result":{"u":1.0}"#),
        ("tasks/result", r#""result":{"content":[1.0]}"#),
    ];
    let making = |made| [&[list, ("tools/call", made)][..], &others[..]].concat();
    let a = tasked(
        "a",
        LEGACY,
        &making(r#""result":{"task":{"taskId":"same","ttl":60000}}"#),
    );
    let b = tasked(
        "b",
        MODERN,
        &making(r#""result":{"resultType":"task","taskId":"same","ttlMs":null}"#),
    );
    let scene = scene(vec![a, b]);
    // Two clients have a task of the same id, at different servers.
    for (session, tool) in [(Some(1), "a__t"), (Some(2), "b__t"), (None, "b__t")] {
        let made = scene
            .ask_as(session, "tools/call", &format!(r#"{{"name":"{tool}"}}"#))
            .await;
        assert!(made.contains("same"), "{made}");
    }
    for (session, owner) in [(Some(1), 0), (Some(2), 1), (None, 1)] {
        for (method, answer) in others {
            scene.received(0);
            scene.received(1);
            let params = r#"{"x":1E400,"taskId":"s\u0061me"}"#;
            let answered = scene.ask_as(session, method, params).await;
            assert_eq!(format!(r#""result":{answered}"#), answer, "{method}");
            assert_eq!(scene.received(owner), [format!("{method} {params}")]);
            assert!(scene.received(1 - owner).is_empty(), "{method}");
        }
    }
}

#[tokio::test]
async fn task_whose_id_the_client_has_from_another_backend_gets_an_alias() {
    const RELATED: &str = r#""_meta":{"io.modelcontextprotocol/related-task":{"taskId":"s2"}}"#;
    const ALIAS: &str = "fanlight-uri://fanlight--s2/s2";
    let about = |text: &str| -> &'static str { format!(r#""result":{{{text}{RELATED}}}"#).leak() };
    let of = |name, description, made| {
        let script = [
            ("tools/list", r#""result":{"tools":[{"name":"t"}]}"#),
            ("tools/call", made),
            ("tasks/get", about(r#" "taskId":"s2","x":1.0, "#)),
            ("tasks/result", about("")),
            ("tasks/list", r#""result":{"tasks":[{"taskId":"s2"}]}"#),
        ];
        tasked(name, description, &script)
    };
    let with_unknown = |text: &str| -> &'static str {
        text.replace(r#""tools":{},"#, r#""tools":{},"unknown":{},"#)
            .leak()
    };
    let (legacy, modern) = (with_unknown(LEGACY), with_unknown(MODERN));
    let scene = scene(vec![
        of("s", legacy, r#""result":{"task":{"taskId":"s2"}}"#),
        of(
            "s2",
            modern,
            r#""result":{"resultType":"task","taskId":"s2"}"#,
        ),
    ]);
    let aliased = |text: &str| text.replace(r#":"s2""#, &format!(r#":"{ALIAS}""#));
    let make = async |session, tool: &str| {
        let params = format!(r#"{{"name":"{tool}"}}"#);
        scene.ask_as(session, "tools/call", &params).await
    };
    for session in [Some(1), None] {
        let first = make(session, "s__t").await;
        assert_eq!(first, r#"{"task":{"taskId":"s2"}}"#);
        let second = make(session, "s2__t").await;
        assert_eq!(second, aliased(r#"{"resultType":"task","taskId":"s2"}"#));
        scene.forget();
        let own = format!(r#"{{"taskId":"s2",{RELATED}}}"#);
        for (method, text) in [
            ("tasks/get", about(r#" "taskId":"s2","x":1.0, "#)),
            ("tasks/result", about("")),
        ] {
            let text = text.trim_start_matches(r#""result":"#);
            let answers = [
                scene.ask_as(session, method, &own).await,
                scene.ask_as(session, method, &aliased(&own)).await,
            ];
            assert_eq!(answers, [text.to_owned(), aliased(text)]);
            for backend in [0, 1] {
                assert_eq!(scene.received(backend), [format!("{method} {own}")]);
            }
        }
        let listed = scene.ask_as(session, "tasks/list", "").await;
        let both = [r#"{"taskId":"s2"}"#, &aliased(r#"{"taskId":"s2"}"#)].join(",");
        assert!(listed.contains(&both), "{listed}");
    }
    let interest = Interest {
        tasks: [ALIAS, "s2"].map(Arc::from).into(),
        unknown: Some(Json::literal("{}")),
        ..Interest::default()
    };
    let mut client = scene.listen(interest).await;
    let honoured = &client.listening.honoured.tasks;
    assert_eq!(*honoured, [ALIAS, "s2"].map(Arc::from).into());
    for (backend, id) in [(0, "s2"), (1, ALIAS)] {
        let changed = Some(r#"{"taskId":"s2"}"#);
        scene.backends[backend].announce(Method::TaskChanged, changed);
        assert_eq!(client.received(), [format!(r#"tasks {{"taskId":"{id}"}}"#)]);
    }
    // Another client, and a process that was started again, know nothing yet.
    assert!(make(Some(2), "s2__t").await.contains(r#":"s2""#));
    scene.forget();
    let asked = format!(r#"{{"taskId":"{ALIAS}"}}"#);
    let found = scene.ask_as(Some(3), "tasks/get", &asked).await;
    assert!(found.contains(ALIAS), "{found}");
    assert!(scene.received(0).is_empty());
}

#[tokio::test]
async fn task_of_an_authenticated_client_is_asked_for_by_this_client_alone() {
    let script = [
        ("tools/list", r#""result":{"tools":[{"name":"t"}]}"#),
        (
            "tools/call",
            r#""result":{"resultType":"task","taskId":"t"}"#,
        ),
        ("tasks/get", r#""result":{"taskId":"t"}"#),
        ("tasks/cancel", r#""result":{}"#),
        (
            "tasks/list",
            r#""result":{"tasks":[{"taskId":"t"},{"taskId":"u"}]}"#,
        ),
    ];
    let of = |name, session| {
        let principal = Principal::new("issuer", name);
        match session {
            Some(key) => Caller::session_of(principal, SessionKey(key)),
            None => Caller::request_of(principal),
        }
    };
    for several in [false, true] {
        let mut fakes = vec![tasked("a", MODERN, &script)];
        fakes.extend(several.then(|| tasked("b", MODERN, &[])));
        let scene = scene(fakes);
        let tool = if several { "a__t" } else { "t" };
        let call = format!(r#"{{"name":"{tool}"}}"#);
        scene.ask_of(of("ann", Some(1)), "tools/call", &call).await;
        let task = r#"{"taskId":"t"}"#;
        scene.received(0);
        for caller in [of("bob", None), of("bob", Some(1)), of("bob", Some(2))] {
            for method in ["tasks/get", "tasks/cancel"] {
                let error = scene.ask_of(caller.clone(), method, task).await;
                assert!(error.contains("Task not found"), "{error}");
            }
            let listed = scene.ask_of(caller, "tasks/list", "{}").await;
            assert!(listed.contains(r#""tasks":[]"#), "{listed}");
        }
        let asked = scene.received(0);
        let is_list = |asked: &String| asked.starts_with("tasks/list");
        assert!(asked.iter().all(is_list), "{asked:?}");
        // A process that was started again knows no owner.
        let unknown = scene.ask_of(of("ann", Some(1)), "tasks/get", r#"{"taskId":"u"}"#);
        assert!(unknown.await.contains("Task not found"));
        for caller in [of("ann", Some(1)), of("ann", Some(2)), of("ann", None)] {
            assert_eq!(scene.ask_of(caller.clone(), "tasks/get", task).await, task);
            let listed = scene.ask_of(caller, "tasks/list", "{}").await;
            assert!(listed.contains(r#""tasks":[{"taskId":"t"}]"#), "{listed}");
        }
    }
}

#[tokio::test]
async fn unknown_task_is_looked_for_once_at_the_backends_that_have_tasks() {
    let without = tasked(
        "without",
        r#"{"capabilities":{"tools":{}}}"#,
        &[("tasks/get", r#""result":{"taskId":"t"}"#)],
    );
    let legacy = tasked("legacy", LEGACY, &[("tasks/get", NOT_FOUND)]);
    let get = r#""result":{"taskId":"t","ttlMs":1}"#;
    let modern = tasked(
        "modern",
        MODERN,
        &[("tasks/get", get), ("tasks/cancel", r#""result":{}"#)],
    );
    let scene = scene(vec![without, legacy, modern]);
    assert_eq!(
        scene
            .ask_as(Some(1), "tasks/cancel", r#"{"taskId":"t","y":2.0}"#)
            .await,
        "{}"
    );
    assert!(scene.received(0).is_empty());
    assert_eq!(scene.received(1), [r#"tasks/get {"taskId":"t"}"#]);
    assert_eq!(
        scene.received(2),
        [
            r#"tasks/get {"taskId":"t"}"#,
            r#"tasks/cancel {"taskId":"t","y":2.0}"#
        ]
    );
    scene
        .ask_as(Some(1), "tasks/cancel", r#"{"taskId":"t"}"#)
        .await;
    assert!(scene.received(1).is_empty(), "the owner is known now");
    scene
        .ask_as(Some(2), "tasks/cancel", r#"{"taskId":"t"}"#)
        .await;
    assert_eq!(scene.received(1).len(), 1, "but not to another client");

    let unknown = error_of(&scene.ask_as(None, "tasks/get", r#"{"taskId":"u"}"#).await);
    assert_eq!(
        unknown,
        (-32602, "Failed to retrieve task: Task not found".into())
    );
    for (params, message) in [
        ("", "params.taskId is missing"),
        ("{}", "params.taskId is missing"),
        (r#"{"taskId":7}"#, "params.taskId must be a string"),
        (
            r#"{"taskId":"a","taskId":"b"}"#,
            "params.taskId: duplicate member \"taskId\"",
        ),
    ] {
        assert_eq!(
            error_of(&scene.ask_as(None, "tasks/get", params).await),
            (-32602, message.into())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_task_that_two_backends_know_belongs_to_the_first() {
    let state =
        |at: &str| -> &'static str { format!(r#""result":{{"taskId":"t","at":{at}}}"#).leak() };
    let a = tasked("a", MODERN, &[]);
    a.set("tasks/get", Scripted::Late(state("1")));
    let b = tasked(
        "b",
        LEGACY,
        &[
            ("tasks/get", state("2")),
            ("tasks/list", r#""result":{"tasks":[{"taskId":"t"}]}"#),
        ],
    );
    let scene = scene(vec![a, b]);
    assert_eq!(
        scene.ask_as(None, "tasks/get", r#"{"taskId":"t"}"#).await,
        r#"{"taskId":"t","at":1}"#
    );
    assert_eq!(scene.received(1).len(), 1, "both were asked at once");
    // The owner stays the same although the other server lists a task of this id.
    let listed = scene.ask_as(None, "tasks/list", "").await;
    assert!(
        listed.contains(r#""taskId":"fanlight-uri://fanlight--b/t""#),
        "{listed}"
    );
    assert_eq!(
        scene.ask_as(None, "tasks/get", r#"{"taskId":"t"}"#).await,
        r#"{"taskId":"t","at":1}"#
    );
}

#[tokio::test(start_paused = true)]
async fn task_is_found_although_other_backends_do_not_answer() {
    let hanging = tasked("hanging", MODERN, &[]);
    hanging.set("tasks/get", Scripted::Hangs);
    let gone = tasked("gone", LEGACY, &[]);
    gone.describe_as(Err(unreachable()));
    let good = tasked(
        "good",
        LEGACY,
        &[(r#"tasks/get {"taskId":"t"}"#, r#""result":{"taskId":"t"}"#)],
    );
    let scene = scene(vec![hanging, gone, good]);
    let began = Instant::now();
    assert_eq!(
        scene.ask_as(None, "tasks/get", r#"{"taskId":"t"}"#).await,
        r#"{"taskId":"t"}"#
    );
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    let error = scene.ask_as(None, "tasks/get", r#"{"taskId":"u"}"#).await;
    let message = r#"Failed to retrieve task: Task not found where it could be asked for, but server "hanging" did not answer within 1s, server "gone" cannot be reached; ask again later"#;
    assert_eq!(error_of(&error), (-31001, message.into()));
    assert!(
        error.ends_with(r#""data":{"notAsked":["hanging","gone"]}}"#),
        "{error}"
    );
}

#[tokio::test]
async fn unknown_task_that_fanlight_has_made_is_asked_of_no_backend() {
    let get = ("tasks/get", r#""result":{"taskId":"fanlight-task-x"}"#);
    let scene = scene(vec![
        tasked("a", LEGACY, &[get]),
        tasked("b", MODERN, &[get]),
    ]);
    for session in [None, Some(1)] {
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            let error = scene
                .ask_as(session, method, r#"{"taskId":"fanlight-task-x"}"#)
                .await;
            assert_eq!(
                error_of(&error),
                (-32602, "Failed to retrieve task: Task not found".into()),
                "{method}"
            );
        }
    }
    assert!(scene.received(0).is_empty() && scene.received(1).is_empty());
}

/// Other replicas, which do not answer.
#[derive(Debug, Default)]
struct Silent {
    asked: AtomicUsize,
    told: AtomicUsize,
}

#[async_trait]
impl CommonTaskOwners for Silent {
    async fn find(&self, _: Vec<u8>) -> Option<CommonTask> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_secs(3600)).await;
        None
    }

    async fn learn(&self, _: Vec<u8>, _: CommonTask, _: bool) {
        self.told.fetch_add(1, Ordering::Relaxed);
    }

    async fn forget(&self, _: Vec<u8>) {}
}

#[tokio::test(start_paused = true)]
async fn listening_to_many_tasks_asks_others_about_few_and_waits_no_longer_than_for_one() {
    let common = Arc::new(Silent::default());
    let backends = vec![tasked("a", MODERN, &[]), tasked("b", MODERN, &[])];
    let scene = scene_sharing(backends, Arc::<Silent>::clone(&common));
    let began = Instant::now();
    let tasks = (0..10_000)
        .map(|number| Arc::from(format!("t-{number}")))
        .collect();
    let client = scene
        .listen(Interest {
            tasks,
            ..Interest::default()
        })
        .await;
    assert!(client.listening.honoured.tasks.is_empty());
    assert_eq!(
        (began.elapsed(), common.asked.load(Ordering::Relaxed)),
        (Duration::from_secs(1), 4)
    );
}

#[tokio::test(start_paused = true)]
async fn others_are_told_of_a_task_when_it_is_made_and_seldom_afterwards() {
    let list = ("tools/list", r#""result":{"tools":[{"name":"t"}]}"#);
    let made = r#""result":{"resultType":"task","taskId":"t","ttlMs":60000}"#;
    let got = ("tasks/get", r#""result":{"taskId":"t","ttlMs":60000}"#);
    let common = Arc::new(Silent::default());
    let scene = scene_sharing(
        vec![
            tasked("a", MODERN, &[list, ("tools/call", made), got]),
            tasked("b", MODERN, &[]),
        ],
        Arc::<Silent>::clone(&common),
    );
    let told = || common.told.load(Ordering::Relaxed);
    scene.ask_as(None, "tools/call", r#"{"name":"a__t"}"#).await;
    assert_eq!(told(), 1);
    for _ in 0..3 {
        scene.ask_as(None, "tasks/get", r#"{"taskId":"t"}"#).await;
    }
    assert_eq!(told(), 1);
    tokio::time::advance(Duration::from_secs(200)).await;
    scene.ask_as(None, "tasks/get", r#"{"taskId":"t"}"#).await;
    assert_eq!(told(), 2, "before they forget it");
}

#[tokio::test]
async fn owner_that_no_longer_knows_its_task_is_forgotten() {
    let list = ("tools/list", r#""result":{"tools":[{"name":"t"}]}"#);
    let a = tasked(
        "a",
        LEGACY,
        &[
            list,
            ("tools/call", r#""result":{"task":{"taskId":"t"}}"#),
            ("tasks/get", NOT_FOUND),
        ],
    );
    let b = tasked("b", LEGACY, &[("tasks/get", r#""result":{"taskId":"t"}"#)]);
    let scene = scene(vec![a, b]);
    scene.ask_as(None, "tools/call", r#"{"name":"a__t"}"#).await;
    let first = scene.ask_as(None, "tasks/get", r#"{"taskId":"t"}"#).await;
    assert_eq!(
        error_of(&first),
        (-32602, "not here".into()),
        "the answer of its owner counts"
    );
    assert_eq!(
        scene.ask_as(None, "tasks/get", r#"{"taskId":"t"}"#).await,
        r#"{"taskId":"t"}"#
    );
}

#[tokio::test]
async fn tasks_of_all_backends_are_listed_page_by_page() {
    let a = tasked(
        "a",
        LEGACY,
        &[
            (
                "tasks/list",
                r#""result":{"tasks":[{ "taskId":"a1"}],"nextCursor":"\u0041","_meta":{"k":1.0}}"#,
            ),
            (
                r#"tasks/list {"y":1.0,"cursor":"\u0041"}"#,
                r#""result":{"tasks":[{"taskId":"a2"}]}"#,
            ),
        ],
    );
    let b = tasked(
        "b",
        MODERN,
        &[("tasks/list", r#""result":{"tasks":[{"taskId":"b1"}]}"#)],
    );
    let c = tasked(
        "c",
        LEGACY,
        &[
            (
                "tasks/list",
                r#""result":{"tasks":[{"taskId":"c1"}],"nextCursor":""}"#,
            ),
            (
                r#"tasks/list {"y":1.0,"cursor":""}"#,
                r#""result":{"tasks":[{"taskId":"c2","z":1E400}],"w":1.0}"#,
            ),
        ],
    );
    let scene = scene(vec![a, b, c]);
    let mut pages = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = scene
            .ask_as(Some(1), "tasks/list", &format!(r#"{{{cursor}"y":1.0}}"#))
            .await;
        let next = Json::parse(page.clone().into(), 64)
            .unwrap()
            .get("nextCursor");
        let Some(next) = next else {
            break pages.push(page);
        };
        pages.push(page.replace(next.as_text(), "_"));
        cursor = format!(r#""cursor":{next},"#);
    }
    assert_eq!(
        pages,
        [
            r#"{"tasks":[{ "taskId":"a1"}],"nextCursor":_,"_meta":{"k":1.0}}"#,
            r#"{"tasks":[{"taskId":"a2"},{"taskId":"b1"},{"taskId":"c1"}],"nextCursor":_}"#,
            r#"{"tasks":[{"taskId":"c2","z":1E400}],"w":1.0}"#,
        ]
    );
    // The list has told their owners.
    scene.received(0);
    scene
        .ask_as(Some(1), "tasks/get", r#"{"taskId":"c2"}"#)
        .await;
    assert_eq!(
        (
            scene.received(0).len(),
            scene.received(2).last().unwrap().as_str()
        ),
        (0, r#"tasks/get {"taskId":"c2"}"#)
    );
    for wrong in [r#"{"cursor":"x"}"#, r#"{"cursor":7}"#] {
        assert_eq!(
            error_of(&scene.ask_as(None, "tasks/list", wrong).await).0,
            -32602
        );
    }
}

#[tokio::test(start_paused = true)]
async fn list_of_tasks_reports_the_backends_it_lacks() {
    let slow = tasked("slow", LEGACY, &[]);
    slow.set("tasks/list", Scripted::Hangs);
    let refusing = tasked(
        "refusing",
        LEGACY,
        &[("tasks/list", r#""error":{"code":-5,"message":"no"}"#)],
    );
    let long = format!(
        r#""result":{{"tasks":[{{"taskId":"l"}}],"nextCursor":"{}"}}"#,
        "x".repeat(5000)
    );
    let long = tasked("long", LEGACY, &[("tasks/list", long.leak())]);
    let good = tasked(
        "good",
        LEGACY,
        &[("tasks/list", r#""result":{"tasks":[{"taskId":"g"}]}"#)],
    );
    let scene = scene(vec![slow, refusing, long, good]);
    let expected = r#"{"tasks":[{"taskId":"l"},{"taskId":"g"}],"_meta":{"dev.fanlight/backends":{"slow":{"outcome":"timeout","reason":"did not answer within 1s"},"refusing":{"outcome":"error","reason":"answered with error -5: no"},"long":{"outcome":"error","reason":"the list was cut off: its cursor is too long to be passed on"},"good":{"outcome":"ok"}}}}"#;
    assert_eq!(scene.ask_as(None, "tasks/list", "").await, expected);
}

#[tokio::test]
async fn list_of_tasks_is_unknown_without_tasks_and_passes_with_one_backend() {
    let without = scene(vec![fake("a", &[]), fake("b", &[])]);
    assert_eq!(
        error_of(&without.ask_as(None, "tasks/list", "").await),
        (-32601, "Method not found: tasks/list".into())
    );
    for prefix in [None, Some("p-")] {
        let only = fake(
            "only",
            &[
                ("tasks/get {\"taskId\":7}", r#""result":{"x":1.0}"#),
                ("tasks/list", r#""result":{}"#),
            ],
        );
        let only = scene_with(vec![(only, prefix)], 10);
        assert_eq!(
            only.ask_as(None, "tasks/get", r#"{"taskId":7}"#).await,
            r#"{"x":1.0}"#
        );
        assert_eq!(
            only.ask_as(None, "tasks/list", r#"{"cursor":"its own"}"#)
                .await,
            "{}"
        );
    }
}

fn caller(session: Option<u64>) -> Caller {
    let principal = Principal::anonymous();
    match session {
        Some(session) => Caller::session_of(principal, SessionKey(session)),
        None => Caller::request_of(principal),
    }
}
