//! State that one principal causes is not used for another.

use std::sync::Arc;

use fanlight_canonical::{Call, CallContext, Caller, Principal};
use futures_util::poll;
use tokio::sync::Semaphore;

use super::fake::*;

const URI: &str = r#"{"uri":"x://fanlight--a/1"}"#;

/// A client with this name, or `-` for one without authentication.
pub(super) fn caller(name: &str) -> Caller {
    match name {
        "-" => Caller::request_of(Principal::anonymous()),
        name => Caller::request_of(Principal::new("https://issuer.example", name)),
    }
}

impl Scene {
    pub(super) async fn ask_by(&self, name: &str, method: &str, params: Option<&str>) -> String {
        let caller = caller(name);
        let context = CallContext {
            caller,
            ..(*CallContext::internal()).clone()
        };
        let call = Call {
            context: Arc::new(context),
            ..call(method, params)
        };
        self.gateway.handle(call).await.body().as_text().to_owned()
    }

    fn count(&self, method: &str) -> usize {
        self.received(0)
            .iter()
            .filter(|request| request.starts_with(method))
            .count()
    }
}

#[tokio::test]
async fn shared_read_is_joined_by_requests_of_one_principal_alone() {
    let scene = scene(vec![announcing("a", &[]), fake("b", &[])]);
    let gate = Arc::new(Semaphore::new(0));
    scene.backends[0].set(
        "resources/read",
        Scripted::Waits(Arc::clone(&gate), r#""result":{"contents":[]}"#),
    );
    let mut ann = Box::pin(scene.ask_by("ann", "resources/read", Some(URI)));
    let mut bob = Box::pin(scene.ask_by("bob", "resources/read", Some(URI)));
    let mut ann_again = Box::pin(scene.ask_by("ann", "resources/read", Some(URI)));
    for read in [&mut ann, &mut bob, &mut ann_again] {
        assert!(poll!(read).is_pending());
    }
    gate.add_permits(2);
    tokio::join!(ann, bob, ann_again);
    assert_eq!(scene.count("resources/read"), 2);
}

#[tokio::test]
async fn kept_result_is_served_to_others_only_if_it_is_public() {
    for (scope, reads) in [("private", 3), ("public", 1)] {
        let result = format!(r#""result":{{"contents":[],"ttlMs":60000,"cacheScope":"{scope}"}}"#);
        let scene = scene(vec![
            announcing("a", &[("resources/read", result.leak())]),
            fake("b", &[]),
        ]);
        for name in ["ann", "bob", "ann"] {
            scene.ask_by(name, "resources/read", Some(URI)).await;
        }
        assert_eq!(scene.count("resources/read"), reads, "{scope}");
    }
}

#[tokio::test]
async fn cursor_of_another_principal_is_refused_like_garbage() {
    let tools = r#""result":{"tools":[{"name":"1"},{"name":"2"},{"name":"3"}]}"#;
    let tasks = r#""result":{"tasks":[{"taskId":"1"}],"nextCursor":"own"}"#;
    let backend = |name| {
        let fake = fake(name, &[("tools/list", tools), ("tasks/list", tasks)]);
        fake.describe_as(Ok(r#"{"capabilities":{"tools":{},"tasks":{"list":{}}}}"#));
        (fake, None)
    };
    let scene = scene_with(vec![backend("a"), backend("b")], 2);
    for method in ["tools/list", "tasks/list"] {
        let page = scene.ask_by("ann", method, None).await;
        let (_, cursor) = page.split_once(r#""nextCursor":"#).unwrap();
        let params = format!(r#"{{"cursor":{}}}"#, cursor.trim_end_matches('}'));
        let garbage = scene
            .ask_by("bob", method, Some(r#"{"cursor":"garbage"}"#))
            .await;
        assert_eq!(error_of(&garbage).0, -32602);
        assert_eq!(scene.ask_by("bob", method, Some(&params)).await, garbage);
        assert!(
            scene
                .ask_by("ann", method, Some(&params))
                .await
                .contains(method.split_once('/').unwrap().0)
        );
        // The page that is kept as a ready answer has the cursor of its principal.
        let other = scene.ask_by("bob", method, None).await;
        let (_, cursor) = other.split_once(r#""nextCursor":"#).unwrap();
        let params = format!(r#"{{"cursor":{}}}"#, cursor.trim_end_matches('}'));
        assert_ne!(scene.ask_by("bob", method, Some(&params)).await, garbage);
    }
}

#[tokio::test]
async fn task_owner_is_known_for_its_principal_alone() {
    let backend = |name, state| {
        let list = ("tools/list", r#""result":{"tools":[{"name":"t"}]}"#);
        let created = (
            "tools/call",
            r#""result":{"resultType":"task","taskId":"t"}"#,
        );
        let fake = fake(name, &[list, created, ("tasks/get", state)]);
        fake.describe_as(Ok(r#"{"capabilities":{"tools":{},"tasks":{}}}"#));
        fake
    };
    // Both servers know a task with this id, and neither tells its clients apart.
    let a = backend("a", r#""result":{"taskId":"t","at":"a"}"#);
    let b = backend("b", r#""result":{"taskId":"t","at":"b"}"#);
    let scene = scene(vec![a, b]);
    scene
        .ask_by("ann", "tools/call", Some(r#"{"name":"b__t"}"#))
        .await;
    assert!(
        scene
            .ask_by("bob", "tasks/get", Some(r#"{"taskId":"t"}"#))
            .await
            .contains("Task not found")
    );
    assert!(
        scene
            .ask_by("ann", "tasks/get", Some(r#"{"taskId":"t"}"#))
            .await
            .contains(r#""at":"b""#)
    );
}

/// A list of two tools for the asking principal, private for a minute.
const OWN: &str = r#""result":{"tools":[{"name":"of-{who}"},{"name":"secret-of-{who}"}],"ttlMs":60000,"cacheScope":"private"}"#;
const STALE: &str = r#""result":{"tools":[{"name":"of-{who}"}],"ttlMs":0,"cacheScope":"private"}"#;
const PUBLIC: &str = r#""result":{"tools":[{"name":"t"}],"ttlMs":60000,"cacheScope":"public"}"#;

/// A server with private lists and one with a public list.
fn private() -> Scene {
    let (own, public) = (
        announcing("own", &[]),
        announcing("all", &[("tools/list", PUBLIC)]),
    );
    own.set("tools/list", Scripted::Personal(OWN));
    own.set(
        "tools/call",
        Scripted::Personal(r#""result":{"content":["{who}"]}"#),
    );
    scene(vec![own, public])
}

/// Asserts that a list has this principal's entries and nobody else's.
fn assert_is_of(list: &str, name: &str) {
    for other in ["ann", "bob", "-"] {
        assert_eq!(
            list.contains(&format!(r#""own__of-{other}""#)),
            other == name,
            "{name}: {list}"
        );
    }
    assert!(list.contains(r#""all__t""#), "{list}");
}

#[tokio::test(start_paused = true)]
async fn private_list_is_read_for_each_principal_and_served_to_no_other() {
    for order in [
        ["ann", "bob", "-"],
        ["-", "bob", "ann"],
        ["bob", "-", "ann"],
    ] {
        let scene = private();
        // After the first list, Fanlight listens to the servers and reads again.
        scene.ask("tools/list", None).await;
        rest().await;
        scene.forget();
        for name in order.into_iter().chain(order) {
            let list = scene.ask_by(name, "tools/list", None).await;
            assert_is_of(&list, name);
            assert!(list.contains(r#""cacheScope":"private""#), "{list}");
        }
        // Once for each principal within the time that the server gives.
        assert_eq!((scene.count("tools/list"), scene.received(1).len()), (2, 0));
        tokio::time::advance(std::time::Duration::from_secs(61)).await;
        assert_is_of(&scene.ask_by("ann", "tools/list", None).await, "ann");
    }
}

#[tokio::test(start_paused = true)]
async fn private_tool_is_resolved_by_the_list_of_its_caller() {
    use fanlight_canonical::{Call, Decidable as _, Detail};
    let scene = private();
    let tool = async |name: &str, tool: &str| {
        let Call { method, params, .. } = call(
            "tools/call",
            Some(&format!(r#"{{"name":"own__of-{tool}"}}"#)),
        );
        let context = CallContext {
            caller: caller(name),
            ..(*CallContext::internal()).clone()
        };
        let request = Call::new(method, params, Arc::new(context));
        let operation = scene.gateway.resolve(request, Detail::Tool).await;
        operation
            .tool()
            .map(|item| (item.server.to_owned(), item.name.to_string()))
    };
    // Before any list has been read, and afterwards.
    for _ in 0..2 {
        for (name, other) in [("ann", "bob"), ("bob", "ann"), ("-", "ann")] {
            assert_eq!(
                tool(name, name).await,
                Some(("own".to_owned(), format!("of-{name}")))
            );
            assert_eq!(tool(name, other).await, None, "{name} {other}");
        }
    }
    assert_eq!(
        scene
            .ask_by("ann", "tools/call", Some(r#"{"name":"own__of-ann"}"#))
            .await,
        r#"{"content":["ann"]}"#
    );
}

#[tokio::test(start_paused = true)]
async fn public_list_that_becomes_private_is_served_to_no_principal_any_more() {
    let scene = private();
    scene.backends[0].set(
        "tools/list",
        Scripted::Personal(
            r#""result":{"tools":[{"name":"of-{who}"}],"ttlMs":0,"cacheScope":"public"}"#,
        ),
    );
    for name in ["ann", "-"] {
        assert_is_of(&scene.ask_by(name, "tools/list", None).await, "-");
    }
    scene.backends[0].set("tools/list", Scripted::Personal(OWN));
    scene.backends[0].announce(fanlight_protocol::Method::ToolsChanged, None);
    rest().await;
    for name in ["ann", "bob", "-", "ann"] {
        assert_is_of(&scene.ask_by(name, "tools/list", None).await, name);
    }
    // While its list cannot be read, it stays private.
    scene.backends[0].set("tools/list", Scripted::Fails(unreachable()));
    scene.backends[0].announce(fanlight_protocol::Method::ToolsChanged, None);
    rest().await;
    for name in ["bob", "ann"] {
        let list = scene.ask_by(name, "tools/list", None).await;
        assert!(!list.contains("of--"), "{list}");
        assert_is_of(&list, name);
    }
}

#[tokio::test(start_paused = true)]
async fn change_of_a_private_list_is_told_to_its_principal() {
    use fanlight_canonical::Interest;
    let scene = private();
    scene.backends[0].set("tools/list", Scripted::Personal(STALE));
    let interest = || Interest {
        lists: Change::Tools.into(),
        ..Interest::default()
    };
    let mut clients = Vec::new();
    for name in ["ann", "bob", "-"] {
        clients.push(scene.listen_as(caller(name), interest()).await);
        scene.ask_by(name, "tools/list", None).await;
    }
    rest().await;
    clients
        .iter_mut()
        .for_each(|client| drop(client.received()));
    // The server announces that somebody's list has changed, but not whose.
    scene.backends[0].announce(fanlight_protocol::Method::ToolsChanged, None);
    rest().await;
    let told: Vec<_> = clients
        .iter_mut()
        .map(|client| client.received().len())
        .collect();
    assert_eq!(told, [1, 1, 1], "each client is told once");
    // A change found without an announcement is announced to the readers of that list.
    tokio::time::advance(std::time::Duration::from_secs(3600)).await;
    scene.backends[0].set("tools/list", Scripted::Personal(OWN));
    scene.ask_by("ann", "tools/list", None).await;
    rest().await;
    tokio::time::advance(std::time::Duration::from_secs(3600)).await;
    rest().await;
    let told: Vec<_> = clients
        .iter_mut()
        .map(|client| client.received().len())
        .collect();
    assert_eq!(told, [1, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn cursor_into_a_private_list_is_of_its_principal() {
    let own = announcing("own", &[]);
    own.set("tools/list", Scripted::Personal(OWN));
    let scene = scene_with(
        vec![
            (own, None),
            (announcing("all", &[("tools/list", PUBLIC)]), None),
        ],
        1,
    );
    let next = |page: &str| {
        let (_, cursor) = page.split_once(r#""nextCursor":""#).unwrap();
        format!(r#"{{"cursor":"{}"}}"#, cursor.split('"').next().unwrap())
    };
    let first = scene.ask_by("ann", "tools/list", None).await;
    scene.ask_by("bob", "tools/list", None).await;
    let second = scene.ask_by("ann", "tools/list", Some(&next(&first))).await;
    assert!(second.contains(r#""own__secret-of-ann""#), "{second}");
    assert_eq!(
        error_of(&scene.ask_by("bob", "tools/list", Some(&next(&first))).await).0,
        -32602
    );
    assert_eq!(
        error_of(&scene.ask_by("-", "tools/list", Some(&next(&first))).await).0,
        -32602
    );
}

#[tokio::test(start_paused = true)]
async fn private_lists_of_many_principals_are_bounded() {
    let scene = private();
    for number in 0..1100 {
        let name = format!("client-{number}");
        let list = scene.ask_by(&name, "tools/list", None).await;
        assert!(list.contains("own__of--"), "{list}");
    }
    // The first client's lists had to leave and are read again; the last client's lists are kept.
    scene.forget();
    scene.ask_by("client-1099", "tools/list", None).await;
    assert_eq!(scene.count("tools/list"), 0);
    scene.ask_by("client-0", "tools/list", None).await;
    assert_eq!(scene.count("tools/list"), 1);
}
