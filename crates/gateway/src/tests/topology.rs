//! Replacing the topology while requests run.

use std::sync::Arc;

use fanlight_canonical::{Call, CallContext, Caller, Interest, Principal, SessionKey};
use fanlight_protocol::Method;
use fanlight_protocol::subscription::Lists;
use futures_util::poll;
use tokio::sync::Semaphore;

use super::fake::*;
use crate::{BackendId, NamingPolicy};

const T: &str = r#""result":{"tools":[{"name":"1"},{"name":"2"}]}"#;

/// Servers `a` and `b`, and `c`, which is not in the topology yet.
fn three() -> (Scene, Arc<Fake>) {
    let tools = |name| {
        announcing(
            name,
            &[
                ("tools/list", T),
                ("tools/call", r#""result":{"content":[]}"#),
            ],
        )
    };
    let scene = scene_with(vec![(tools("a"), None), (tools("b"), None)], 3);
    (scene, Arc::new(tools("c")))
}

impl Scene {
    /// Replaces the topology of `a` and `b` by `c` and `b`.
    async fn replace_a_by(&self, c: &Arc<Fake>) {
        let backends = vec![
            entry(BackendId::generate(), c, None),
            entry(self.ids[1], &self.backends[1], None),
        ];
        self.gateway
            .replace(
                backends,
                &NamingPolicy::default(),
                limits(3),
                no_endpoints(),
                None,
            )
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn running_request_keeps_the_topology_it_began_with() {
    let (scene, c) = three();
    let gate = Arc::new(Semaphore::new(0));
    scene.backends[0].set(
        "tools/call",
        Scripted::Waits(Arc::clone(&gate), r#""result":{"content":["a"]}"#),
    );
    let mut running = Box::pin(scene.ask("tools/call", Some(r#"{"name":"a__1"}"#)));
    assert!(poll!(&mut running).is_pending());

    scene.replace_a_by(&c).await;
    let unknown = scene.ask("tools/call", Some(r#"{"name":"a__1"}"#)).await;
    assert_eq!(error_of(&unknown), (-32602, "Unknown tool: a__1".into()));
    assert_eq!(
        scene.ask("tools/call", Some(r#"{"name":"c__1"}"#)).await,
        r#"{"content":[]}"#
    );
    gate.add_permits(1);
    assert_eq!(running.await, r#"{"content":["a"]}"#);
}

#[tokio::test(start_paused = true)]
async fn list_that_is_being_read_is_that_of_the_topology_the_request_began_with() {
    let (scene, c) = three();
    let gate = Arc::new(Semaphore::new(0));
    scene.backends[0].set("tools/list", Scripted::Waits(Arc::clone(&gate), T));
    let mut running = Box::pin(scene.ask("tools/list", None));
    assert!(poll!(&mut running).is_pending());
    scene.replace_a_by(&c).await;
    let new = scene.ask("tools/list", None).await;
    assert!(
        new.starts_with(r#"{"tools":[{"name":"c__1"},{"name":"c__2"},{"name":"b__1"}]"#),
        "{new}"
    );
    gate.add_permits(1);
    let old = running.await;
    assert!(
        old.starts_with(r#"{"tools":[{"name":"a__1"},{"name":"a__2"},{"name":"b__1"}]"#),
        "{old}"
    );
    assert_eq!(
        scene.ask("tools/list", None).await,
        new,
        "the earlier topology's list does not replace the newer"
    );
}

#[tokio::test(start_paused = true)]
async fn kept_backend_keeps_its_list_and_its_listener() {
    let (scene, c) = three();
    scene.ask("tools/list", None).await;
    rest().await;
    scene.forget();
    scene.replace_a_by(&c).await;
    rest().await;
    assert!(scene.ask("tools/list", None).await.contains(r#""b__1""#));
    assert!(scene.received(1).is_empty(), "its part is kept");
    let listeners = [&scene.backends[0], &scene.backends[1], &c].map(|backend| backend.listeners());
    assert_eq!(listeners, [(0, 1), (1, 1), (1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn cursor_names_its_backend_in_another_order() {
    let (scene, c) = three();
    let first = scene.ask("tools/list", None).await;
    let (_, cursor) = first.split_once(r#""nextCursor":"#).unwrap();
    let params = format!(r#"{{"cursor":{}}}"#, cursor.trim_end_matches('}'));
    assert_eq!(
        scene.ask("tools/list", Some(&params)).await,
        r#"{"tools":[{"name":"b__2"}]}"#
    );
    // `b` is the first now.
    let backends = vec![
        entry(scene.ids[1], &scene.backends[1], None),
        entry(BackendId::generate(), &c, None),
    ];
    scene
        .gateway
        .replace(
            backends,
            &NamingPolicy::default(),
            limits(9),
            no_endpoints(),
            None,
        )
        .await;
    let next = scene.ask("tools/list", Some(&params)).await;
    assert_eq!(
        next,
        r#"{"tools":[{"name":"b__2"},{"name":"c__1"},{"name":"c__2"}]}"#
    );
    // A removed server has nothing to list.
    scene
        .gateway
        .replace(
            vec![entry(BackendId::generate(), &c, Some("c-"))],
            &NamingPolicy::default(),
            limits(9),
            no_endpoints(),
            None,
        )
        .await;
    assert_eq!(
        scene.ask("tools/list", Some(&params)).await,
        r#"{"tools":[]}"#
    );
}

/// A server whose other lists are empty.
fn with_tools(name: &'static str, tools: &'static str) -> Fake {
    let empty = [
        ("prompts/list", r#""result":{"prompts":[]}"#),
        ("resources/list", r#""result":{"resources":[]}"#),
        (
            "resources/templates/list",
            r#""result":{"resourceTemplates":[]}"#,
        ),
    ];
    let fake = announcing(name, &empty);
    fake.answer("tools/list", tools);
    fake
}

fn all_lists() -> Interest {
    Interest {
        lists: Lists::ALL,
        ..Interest::default()
    }
}

#[tokio::test(start_paused = true)]
async fn replaced_backend_is_announced_once_for_each_kind_that_differs() {
    let (scene, c) = three();
    let mut client = scene.listen(all_lists()).await;
    rest().await;
    c.answer("prompts/list", r#""result":{"prompts":[{"name":"p"}]}"#);
    c.answer(
        "resources/list",
        r#""result":{"resources":[{"uri":"x://1"}]}"#,
    );
    c.answer(
        "resources/templates/list",
        r#""result":{"resourceTemplates":[{"uriTemplate":"x://{a}"}]}"#,
    );
    assert!(client.received().is_empty());
    scene.replace_a_by(&c).await;
    rest().await;
    let mut received = client.received();
    received.sort();
    assert_eq!(
        received,
        [
            "prompts/list_changed",
            "resources/list_changed",
            "tools/list_changed"
        ]
    );
    let same = vec![
        entry(BackendId::generate(), &c, None),
        entry(scene.ids[1], &scene.backends[1], None),
    ];
    scene
        .gateway
        .replace(
            same,
            &NamingPolicy::default(),
            limits(3),
            no_endpoints(),
            None,
        )
        .await;
    rest().await;
    assert!(
        client.received().is_empty(),
        "a new backend that offers the same"
    );
    let order = vec![
        entry(scene.ids[1], &scene.backends[1], None),
        entry(BackendId::generate(), &c, None),
    ];
    scene
        .gateway
        .replace(
            order,
            &NamingPolicy::default(),
            limits(3),
            no_endpoints(),
            None,
        )
        .await;
    rest().await;
    assert!(client.received().is_empty(), "order alone");
}

#[tokio::test(start_paused = true)]
async fn second_backend_and_its_end_are_announced_to_clients_of_the_first() {
    let scene = scene(vec![with_tools("a", T)]);
    let mut client = scene.listen(all_lists()).await;
    let b = Arc::new(with_tools("b", T));
    let first = || entry(scene.ids[0], &scene.backends[0], None);
    scene
        .gateway
        .replace(
            vec![first(), entry(BackendId::generate(), &b, None)],
            &NamingPolicy::default(),
            limits(9),
            no_endpoints(),
            None,
        )
        .await;
    rest().await;
    assert_eq!(client.received(), ["tools/list_changed"]);
    b.answer("tools/list", r#""result":{"tools":[]}"#);
    b.announce(Method::ToolsChanged, None);
    rest().await;
    assert_eq!(
        client.received(),
        ["tools/list_changed"],
        "by the gateway, for a backend that is new"
    );

    scene
        .gateway
        .replace(
            vec![first()],
            &NamingPolicy::default(),
            limits(9),
            no_endpoints(),
            None,
        )
        .await;
    rest().await;
    assert_eq!(
        client.received(),
        ["tools/list_changed"],
        "names have no prefix any more"
    );
    scene.backends[0].announce(Method::ToolsChanged, None);
    rest().await;
    assert_eq!(
        client.received(),
        ["tools/list_changed"],
        "as the only backend announces it"
    );
    assert_eq!(b.listeners().0, 0);

    let other = Arc::new(with_tools("a", r#""result":{"tools":[{"name":"3"}]}"#));
    scene
        .gateway
        .replace(
            vec![entry(BackendId::generate(), &other, None)],
            &NamingPolicy::default(),
            limits(9),
            no_endpoints(),
            None,
        )
        .await;
    rest().await;
    assert_eq!(client.received(), ["tools/list_changed"]);
    other.announce(Method::ToolsChanged, None);
    assert_eq!(client.received(), ["tools/list_changed"]);
}

#[tokio::test(start_paused = true)]
async fn only_backend_that_offers_the_same_after_its_replacement_is_not_announced() {
    let scene = scene(vec![with_tools("a", T)]);
    let mut client = scene.listen(all_lists()).await;
    let same = Arc::new(with_tools("a", T));
    scene
        .gateway
        .replace(
            vec![entry(BackendId::generate(), &same, None)],
            &NamingPolicy::default(),
            limits(9),
            no_endpoints(),
            None,
        )
        .await;
    rest().await;
    assert!(client.received().is_empty());
}

#[tokio::test(start_paused = true)]
async fn subscription_continues_at_the_backend_that_replaces_another() {
    let (scene, _) = three();
    let lists = [(
        "resources/list",
        r#""result":{"resources":[{"uri":"x://1"}]}"#,
    )];
    let scene_b = || entry(scene.ids[1], &scene.backends[1], None);
    let mut client = scene
        .listen(Interest {
            uris: ["x://1".into()].into(),
            ..Interest::default()
        })
        .await;
    let c = Arc::new(announcing("c", &lists));
    c.fail_to_listen(Some(Scripted::Fails(unreachable())));
    scene
        .gateway
        .replace(
            vec![entry(BackendId::generate(), &c, None), scene_b()],
            &NamingPolicy::default(),
            limits(9),
            no_endpoints(),
            None,
        )
        .await;
    rest().await;
    c.fail_to_listen(None);
    // Fanlight asks it again after a while.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    c.announce(Method::ResourceUpdated, Some(r#"{"uri":"x://1"}"#));
    assert_eq!(client.received(), [r#"resources/updated {"uri":"x://1"}"#]);
    drop(client.listening);
    assert_eq!(
        c.listeners().0,
        1,
        "what is left listens for changes of lists"
    );
}

#[tokio::test(start_paused = true)]
async fn session_is_subscribed_again_at_the_backend_that_replaces_another() {
    let (scene, c) = three();
    let subscribe = |session, method| {
        let context = CallContext {
            caller: Caller::session_of(Principal::anonymous(), SessionKey(session)),
            ..(*CallContext::internal()).clone()
        };
        Call {
            context: Arc::new(context),
            ..call(method, Some(r#"{"uri":"x://1"}"#))
        }
    };
    let subscribed = r#""result":{}"#;
    let lists = [
        (
            "resources/list",
            r#""result":{"resources":[{"uri":"x://1"}]}"#,
        ),
        ("resources/subscribe", subscribed),
    ];
    for (request, answer) in lists {
        scene.backends[0].answer(request, answer);
        c.answer(request, answer);
    }
    scene.backends[0].answer("resources/unsubscribe", subscribed);
    let subscriptions = &scene.gateway.subscribed;
    for session in 1..=3 {
        let Call { context, .. } = subscribe(session, "resources/subscribe");
        assert!(subscriptions.add(&context, "x://1", None, ()));
        assert!(
            !scene
                .gateway
                .handle(subscribe(session, "resources/subscribe"))
                .await
                .is_error()
        );
    }
    assert!(
        !scene
            .gateway
            .handle(subscribe(1, "resources/unsubscribe"))
            .await
            .is_error()
    );
    subscriptions.remove(SessionKey(1), "x://1");
    scene.gateway.end_session(SessionKey(2));
    scene.replace_a_by(&c).await;
    rest().await;
    let received: Vec<_> = c
        .received()
        .into_iter()
        .filter(|request| request.starts_with("resources/subscribe"))
        .collect();
    assert_eq!(
        received,
        [r#"resources/subscribe {"uri":"x://1"}"#],
        "of the third session alone"
    );
}

#[tokio::test(start_paused = true)]
async fn replacement_with_equal_backends_changes_nothing() {
    let (scene, _) = three();
    let mut client = scene.listen(all_lists()).await;
    let first = scene.ask("tools/list", None).await;
    rest().await;
    scene.forget();
    let equal = scene
        .ids
        .iter()
        .zip(&scene.backends)
        .map(|(id, fake)| entry(*id, fake, None))
        .collect();
    scene
        .gateway
        .replace(
            equal,
            &NamingPolicy::default(),
            limits(3),
            no_endpoints(),
            None,
        )
        .await;
    rest().await;
    assert_eq!(
        scene.ask("tools/list", None).await,
        first,
        "its cursor, too"
    );
    assert!(client.received().is_empty());
    assert!((0..2).all(|backend| scene.received(backend).is_empty()));
}
