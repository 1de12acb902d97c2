//! Nothing that belongs to one principal reaches another.

use fanlight_backend::{Backend, SessionPolicy};
use fanlight_canonical::{CallContext, Caller, Interest, Principal, SessionKey, TaskDialect};
use fanlight_testkit::scripted::Reply;

use crate::support::child::Child;
use crate::support::server::{Seen, Server, feeds, legacy};
use crate::support::{call, json, listen, listening, send, settings, start};

const EXTENSION: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const T1: &str = r#"{"taskId":"t1"}"#;

/// A client: the name of its principal, its session, and its dialect of tasks.
#[derive(Clone, Copy)]
struct Client(&'static str, Option<u64>, Option<TaskDialect>);

impl Client {
    /// A context of this client. All principals use the same session keys.
    fn context(self) -> impl Fn(&mut CallContext) {
        let Self(name, session, tasks) = self;
        move |context| {
            let principal = Principal::new("https://issuer.example", name);
            context.caller = match session {
                Some(key) => Caller::session_of(principal, SessionKey(key)),
                None => Caller::request_of(principal),
            };
            context.capabilities = json(EXTENSION);
            context.tasks = tasks;
        }
    }
}

fn extension(name: &'static str) -> Client {
    Client(name, None, Some(TaskDialect::Extension))
}

fn requested(name: &'static str) -> Client {
    Client(name, Some(1), Some(TaskDialect::Requested))
}

async fn get(backend: &Backend, client: Client, method: &str, params: &str) -> String {
    let (call, _inbox) = listening(call(method, params), client.context());
    send(backend, call).await.unwrap()
}

fn is_unknown(answer: &str) -> bool {
    json(answer)
        .get("code")
        .is_some_and(|code| code.as_i64() == Some(-32602))
}

fn named(task: &str) -> Interest {
    Interest {
        tasks: [task.into()].into(),
        ..Interest::default()
    }
}

fn session() -> Interest {
    Interest {
        session: true,
        ..Interest::default()
    }
}

/// A modern server with one task per tool call, `t1`, whose subscriptions the test answers.
fn modern_tasks(seen: &Seen) -> crate::support::server::Reply {
    match seen.method().as_str() {
        "server/discover" => seen.result(&format!(
            r#"{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{EXTENSION}}}"#
        )),
        "tools/call" => seen.result(r#"{"resultType":"task","taskId":"t1","status":"working","ttlMs":null}"#),
        "tasks/get" => seen.result(r#"{"resultType":"complete","taskId":"t1","status":"working","ttlMs":null}"#),
        _ => seen.result(r#"{"resultType":"complete"}"#),
    }
}

#[tokio::test]
async fn task_of_another_principal_is_unknown_at_a_modern_server() {
    for maker in [
        extension("ann"),
        Client("ann", Some(1), Some(TaskDialect::Extension)),
    ] {
        let mut server = Server::start(modern_tasks).await;
        let backend = start(settings(server.transport()));
        get(&backend, maker, "tools/call", r#"{"name":"a"}"#).await;
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let answer = get(&backend, extension("bob"), method, T1).await;
            assert!(is_unknown(&answer), "{method}: {answer}");
        }
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            let answer = get(&backend, requested("bob"), method, T1).await;
            assert!(is_unknown(&answer), "{method}: {answer}");
        }
        let listed = get(&backend, requested("bob"), "tasks/list", "").await;
        assert_eq!(json(&listed).get("tasks").unwrap().as_text(), "[]");
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            assert_eq!(server.count(method), 0, "{method}");
        }
        assert!(!is_unknown(
            &get(&backend, extension("ann"), "tasks/get", T1).await
        ));
    }
}

#[tokio::test]
async fn task_of_another_principal_is_unknown_when_its_client_has_translated_tasks() {
    let mut server = Server::start(modern_tasks).await;
    let backend = start(settings(server.transport()));
    get(
        &backend,
        requested("ann"),
        "tools/call",
        r#"{"name":"a","task":{}}"#,
    )
    .await;
    for client in [requested("bob"), requested("eve")] {
        assert!(is_unknown(&get(&backend, client, "tasks/get", T1).await));
    }
    assert!(is_unknown(
        &get(&backend, extension("bob"), "tasks/get", T1).await
    ));
    assert_eq!(server.count("tasks/get"), 0);
    let listed = get(&backend, requested("ann"), "tasks/list", "").await;
    assert!(listed.contains("t1"), "{listed}");
    assert_eq!(
        get(&backend, requested("bob"), "tasks/list", "").await,
        r#"{"tasks":[]}"#
    );
}

#[tokio::test]
async fn immediate_task_of_another_principal_is_unknown() {
    let server = Server::start(|seen| match seen.method().as_str() {
        "tools/call" => seen.result(r#"{"content":[]}"#),
        _ => modern_tasks(seen),
    })
    .await;
    let backend = start(settings(server.transport()));
    let created = json(
        &get(
            &backend,
            requested("ann"),
            "tools/call",
            r#"{"name":"a","task":{}}"#,
        )
        .await,
    );
    let params = format!(
        r#"{{"taskId":{}}}"#,
        created.get("task").unwrap().get("taskId").unwrap()
    );
    for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
        let answer = get(&backend, requested("bob"), method, &params).await;
        assert!(is_unknown(&answer), "{method}: {answer}");
    }
    assert!(
        get(&backend, requested("ann"), "tasks/result", &params)
            .await
            .starts_with(r#"{"content":[]"#)
    );
}

#[tokio::test]
async fn task_notification_reaches_only_the_principal_that_made_the_task() {
    let (open, mut streams) = feeds();
    let server = Server::start(move |seen| match seen.method().as_str() {
        "subscriptions/listen" => open(seen),
        _ => modern_tasks(seen),
    })
    .await;
    let backend = start(settings(server.transport()));
    // Bob names the task before it exists, Eve afterwards.
    let (early, stream) = tokio::join!(
        listen(&backend, named("t1"), extension("bob").context()),
        async {
            let stream = streams.next().await;
            stream.acknowledge(r#"{"taskIds":["t1"]}"#);
            stream
        }
    );
    let (_early, mut bobs) = early.unwrap();
    get(&backend, extension("ann"), "tools/call", r#"{"name":"a"}"#).await;
    let (late, mut eves) = listen(&backend, named("t1"), extension("eve").context())
        .await
        .unwrap();
    assert_eq!(late.honoured, Interest::default());
    let (listening, mut anns) = listen(&backend, named("t1"), extension("ann").context())
        .await
        .unwrap();
    assert_eq!(listening.honoured, named("t1"));
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"t1","status":"working","ttlMs":null}}"#;
    stream.send(changed);
    assert_eq!(anns.text().await, changed);
    assert!(bobs.is_empty() && eves.is_empty());
    backend.stop().await;
    assert!(bobs.recv().await.is_none() && eves.recv().await.is_none());
}

#[tokio::test]
async fn session_messages_reach_only_the_principal_of_the_session() {
    let (open, mut streams) = feeds();
    let sessions = std::sync::atomic::AtomicUsize::new(0);
    let server = Server::start(move |seen| {
        if seen.verb == "GET" {
            return open(seen);
        }
        let session = || {
            format!(
                "s{}",
                sessions.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
            )
        };
        let session = if seen.method() == "initialize" {
            session()
        } else {
            String::new()
        };
        legacy(seen, &session).unwrap_or_else(|| seen.result("{}"))
    })
    .await;
    let backend = start(settings(server.transport()));
    let (ann, bob) = (Client("ann", Some(1), None), Client("bob", Some(1), None));
    let (_ann, mut anns) = listen(&backend, session(), ann.context()).await.unwrap();
    let (_bob, mut bobs) = listen(&backend, session(), bob.context()).await.unwrap();
    get(&backend, ann, "test/a", "").await;
    let stream = streams.next().await;
    let first = r#"{"jsonrpc":"2.0","method":"notifications/x"}"#;
    stream.send(first);
    assert_eq!(anns.text().await, first);
    // With the same key, Bob has another session at the server.
    get(&backend, bob, "test/b", "").await;
    let second = r#"{"jsonrpc":"2.0","method":"notifications/y"}"#;
    stream.send(second);
    assert_eq!(anns.text().await, second);
    assert!(bobs.is_empty());
    backend.stop().await;
    assert!(bobs.recv().await.is_none());
}

#[tokio::test]
async fn progress_and_server_requests_reach_only_the_principal_of_the_process() {
    // Each process first asks and reports progress, then answers with its own number.
    let child = Child::legacy().await;
    let process = Reply::conclude(|call, _| format!(r#"{{"process":{}}}"#, call.process.unwrap()));
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":{token},"progress":1}}"#;
    child.on(
        "test/call",
        process.asking(&[
            progress,
            r#"{"jsonrpc":"2.0","id":"q-{call}","method":"roots/list"}"#,
        ]),
    );
    let backend = start(settings(child.transport()));
    let call_of = async |name: &'static str| {
        let (call, mut inbox) = listening(call("test/call", "{}"), |context| {
            Client(name, None, None).context()(context);
            context.capabilities = json(r#"{"roots":{}}"#);
            context.wants_progress = true;
        });
        let asked = async {
            assert_eq!(
                inbox.recv().await.unwrap().method.as_str(),
                "notifications/progress"
            );
            let request = inbox.question().await;
            let answer = fanlight_protocol::Response::from_result(&json(r#"{"roots":[]}"#));
            request.answer.send(answer).unwrap();
            inbox
        };
        let (answer, inbox) = tokio::join!(send(&backend, call), asked);
        assert!(inbox.is_empty());
        answer.unwrap()
    };
    let (anns, bobs) = tokio::join!(call_of("ann"), call_of("bob"));
    assert_ne!(anns, bobs, "both calls ran in one process");
    // A server may keep a client's answers, so a process that has asked is not used for another
    // call.
    assert_ne!(call_of("ann").await, anns);
    backend.stop().await;
}

#[tokio::test]
async fn resource_subscription_is_ended_only_by_its_principal() {
    let child = Child::legacy().await;
    child.declares(r#"{"resources":{"subscribe":true}}"#);
    let updated =
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:1"}}"#;
    child.on("test/update", Reply::result("{}").after(&[updated]));
    let mut settings = settings(child.transport());
    settings.sessions = SessionPolicy::Shared;
    let backend = start(settings);
    let (ann, bob) = (Client("ann", Some(1), None), Client("bob", Some(1), None));
    let (_listening, mut anns) = listen(&backend, session(), ann.context()).await.unwrap();
    let (_other, bobs) = listen(&backend, session(), bob.context()).await.unwrap();
    get(&backend, ann, "resources/subscribe", r#"{"uri":"a:1"}"#).await;
    get(&backend, bob, "resources/unsubscribe", r#"{"uri":"a:1"}"#).await;
    get(&backend, ann, "test/update", "").await;
    assert_eq!(
        anns.recv().await.unwrap().method.as_str(),
        "notifications/resources/updated"
    );
    assert!(bobs.is_empty());
    backend.stop().await;
    assert_eq!(
        (
            child.count("resources/subscribe"),
            child.count("resources/unsubscribe")
        ),
        (1, 0)
    );
}
