//! Reading resources: equal reads are sent once, and kept results are served again.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::{
    Call, CallContext, Caller, Interest, Principal, ServerMessages, SessionKey,
};
use fanlight_protocol::{Json, Message, Method};
use futures_util::poll;
use tokio::sync::Semaphore;
use tokio::time::advance;

use super::fake::*;
use crate::CacheLimits;

const PUBLIC: &str = r#""result":{"contents":["1"],"ttlMs":60000,"cacheScope":"public"}"#;
const PRIVATE: &str = r#""result":{"contents":["1"],"ttlMs":60000,"cacheScope":"private"}"#;
const URI: &str = r#"{"uri":"x://fanlight--a/1"}"#;

fn reader(body: &'static str) -> Scene {
    scene(vec![
        announcing("a", &[("resources/read", body)]),
        fake("b", &[]),
    ])
}

impl Scene {
    async fn read(&self) -> String {
        self.ask("resources/read", Some(URI)).await
    }

    fn reads(&self) -> usize {
        self.received(0)
            .iter()
            .filter(|request| request.starts_with("resources/read"))
            .count()
    }

    /// Makes reads wait for the permits of the returned semaphore.
    fn gate(&self, body: &'static str) -> Arc<Semaphore> {
        let gate = Arc::new(Semaphore::new(0));
        self.backends[0].set("resources/read", Scripted::Waits(Arc::clone(&gate), body));
        gate
    }
}

fn by(context: CallContext) -> Call {
    Call {
        context: Arc::new(context),
        ..call("resources/read", Some(URI))
    }
}

fn without_session() -> CallContext {
    (*CallContext::internal()).clone()
}

#[tokio::test]
async fn equal_reads_at_one_time_are_sent_once() {
    let scene = reader("");
    let gate = scene.gate(PRIVATE);
    let own = r#"{"uri":"x://fanlight--a/1","_meta":{"io.modelcontextprotocol/clientInfo":{"name":"c"}}}"#;
    let release = async { gate.add_permits(1) };
    let (a, b, c, ()) = tokio::join!(
        scene.read(),
        scene.read(),
        scene.ask("resources/read", Some(own)),
        release
    );
    assert!(a.contains("contents") && a == b && a == c);
    assert_eq!(scene.reads(), 1);
    gate.add_permits(1);
    scene.read().await;
    assert_eq!(scene.reads(), 1, "a later read is one of its own");
}

#[tokio::test]
async fn reads_that_a_server_can_tell_apart_are_sent_separately() {
    let scene = reader("");
    let gate = scene.gate(PRIVATE);
    gate.add_permits(9);
    let other = r#"{"uri":"x://fanlight--a/1","_meta":{"k":1}}"#;
    let calls = [
        by(without_session()),
        by(CallContext {
            capabilities: Json::literal(r#"{"sampling":{}}"#),
            ..without_session()
        }),
        by(CallContext {
            caller: Caller::session_of(Principal::anonymous(), SessionKey(1)),
            ..without_session()
        }),
        by(CallContext {
            caller: Caller::session_of(Principal::anonymous(), SessionKey(1)),
            ..without_session()
        }),
        by(CallContext {
            wants_progress: true,
            ..without_session()
        }),
        call("resources/read", Some(other)),
        call(
            "resources/read",
            Some(r#"{"uri":"x://fanlight--a/1","requestState":"s"}"#),
        ),
        call(
            "resources/read",
            Some(r#"{"uri":"x://fanlight--a/1","requestState":"s"}"#),
        ),
    ];
    let count = calls.len();
    futures_util::future::join_all(calls.map(|call| scene.gateway.handle(call))).await;
    assert_eq!(scene.reads(), count);
}

#[tokio::test]
async fn shared_read_survives_each_cancelled_request_but_the_last() {
    let scene = reader("");
    let gate = scene.gate(PRIVATE);
    let mut leader = Box::pin(scene.read());
    assert!(poll!(&mut leader).is_pending());
    let mut followers: Vec<_> = (0..3).map(|_| Box::pin(scene.read())).collect();
    for follower in &mut followers {
        assert!(poll!(follower).is_pending());
    }
    drop(leader);
    drop(followers.pop());
    gate.add_permits(1);
    for follower in followers {
        assert!(follower.await.contains("contents"));
    }
    assert_eq!(scene.reads(), 1);
    // No request is left, so the read is cancelled and the next one begins another.
    let mut alone = Box::pin(scene.read());
    assert!(poll!(&mut alone).is_pending());
    drop(alone);
    gate.add_permits(1);
    assert!(scene.read().await.contains("contents"));
    assert_eq!((scene.reads(), gate.available_permits()), (2, 0));
}

#[tokio::test]
async fn read_with_a_server_request_is_not_shared() {
    let scene = reader(PUBLIC);
    let gate = scene.gate(PRIVATE);
    scene.backends[0].ask_during_calls();
    let asked = || {
        let (messages, receiver) = ServerMessages::channel(4);
        (
            Call {
                messages,
                ..by(without_session())
            },
            receiver,
        )
    };
    let ((first, mut receiver), (second, mut other)) = (asked(), asked());
    gate.add_permits(2);
    let (_, _) = tokio::join!(scene.gateway.handle(first), scene.gateway.handle(second));
    assert_eq!(scene.reads(), 2);
    assert!(receiver.try_recv().is_some() && other.try_recv().is_some());

    // The result is not kept either, whatever the server calls it.
    scene.gate(PUBLIC).add_permits(9);
    for context in [
        without_session(),
        CallContext {
            caller: Caller::session_of(Principal::anonymous(), SessionKey(1)),
            ..without_session()
        },
    ] {
        let (messages, _receiver) = ServerMessages::channel(4);
        scene
            .gateway
            .handle(Call {
                messages,
                ..by(context)
            })
            .await;
        assert_eq!(scene.reads(), 1);
    }

    let needs = reader(r#""result":{"resultType":"input_required","requestState":"s"}"#);
    tokio::join!(needs.read(), needs.read());
    assert_eq!(needs.reads(), 2);
}

#[tokio::test]
async fn error_that_may_be_due_to_an_unanswered_server_request_is_not_shared() {
    let scene = reader("");
    let gate = scene.gate(r#""error":{"code":-5,"message":"not answered"}"#);
    let mut leader = Box::pin(scene.read());
    assert!(poll!(&mut leader).is_pending());
    let mut follower = Box::pin(scene.read());
    assert!(poll!(&mut follower).is_pending());
    drop(leader);
    gate.add_permits(1);
    assert!(poll!(&mut follower).is_pending());
    scene.gate(PRIVATE);
    gate.add_permits(1);
    assert!(follower.await.contains("not answered"));
    assert_eq!(scene.reads(), 2);
    // All requests share the error of the call that is sent.
    let gate = scene.gate(r#""error":{"code":-5,"message":"no"}"#);
    tokio::join!(scene.read(), scene.read(), async { gate.add_permits(1) });
    assert_eq!(scene.reads(), 1);
}

#[tokio::test(start_paused = true)]
async fn public_results_are_served_to_all_during_their_ttl() {
    let scene = reader(PUBLIC);
    assert_eq!(
        scene.read().await,
        r#"{"contents":["1"],"ttlMs":60000,"cacheScope":"public"}"#
    );
    advance(Duration::from_secs(59)).await;
    let session = by(CallContext {
        caller: Caller::session_of(Principal::anonymous(), SessionKey(1)),
        wants_progress: true,
        ..without_session()
    });
    let served = scene
        .gateway
        .handle(session)
        .await
        .body()
        .as_text()
        .to_owned();
    assert_eq!(
        served,
        r#"{"contents":["1"],"ttlMs":1000,"cacheScope":"public"}"#
    );
    scene
        .ask(
            "resources/read",
            Some(r#"{"uri":"x://fanlight--a/1","inputResponses":{}}"#),
        )
        .await;
    assert_eq!(
        scene.reads(),
        2,
        "a retry with input is never served from what is kept"
    );
    advance(Duration::from_secs(1)).await;
    scene.read().await;
    assert_eq!(scene.reads(), 1);
}

#[tokio::test]
async fn results_that_are_not_public_or_have_no_ttl_are_not_kept() {
    for body in [
        PRIVATE,
        r#""result":{"contents":[],"ttlMs":60000}"#,
        r#""result":{"contents":[],"cacheScope":"public"}"#,
        r#""result":{"contents":[],"ttlMs":0,"cacheScope":"public"}"#,
        r#""result":{"contents":[],"ttlMs":-1,"cacheScope":"public"}"#,
        r#""result":{"resultType":"input_required","ttlMs":60000,"cacheScope":"public"}"#,
        r#""error":{"code":-1,"message":"no","ttlMs":60000,"cacheScope":"public"}"#,
    ] {
        let scene = reader(body);
        scene.read().await;
        scene.read().await;
        assert_eq!(scene.reads(), 2, "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn announced_changes_evict_kept_results() {
    let scene = reader(PUBLIC);
    let interest = Interest {
        uris: ["x://fanlight--a/1".into()].into(),
        ..Interest::default()
    };
    let _client = scene.listen(interest).await;
    rest().await;
    let updated = Method::ResourceUpdated;
    for (method, params, reads) in [
        (updated.clone(), Some(r#"{"uri":"x://1"}"#), 1),
        // The changed resource may be part of the one that was read.
        (updated.clone(), Some(r#"{"uri":"x://1/other"}"#), 1),
        (updated, Some(r#"{"uri":"x://10"}"#), 0),
        (Method::ResourcesChanged, None, 1),
        (Method::ToolsChanged, None, 0),
    ] {
        scene.read().await;
        scene.forget();
        scene.backends[0].announce(method.clone(), params);
        scene.read().await;
        assert_eq!(scene.reads(), reads, "{method} {params:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn read_that_began_before_a_change_is_neither_kept_nor_joined() {
    let scene = reader("");
    let _client = scene
        .listen(Interest {
            uris: ["x://fanlight--a/1".into()].into(),
            ..Interest::default()
        })
        .await;
    rest().await;
    scene.forget();
    let gate = scene.gate(PUBLIC);
    let mut early = Box::pin(scene.read());
    assert!(poll!(&mut early).is_pending());
    scene.backends[0].announce(Method::ResourceUpdated, Some(r#"{"uri":"x://1"}"#));
    let mut late = Box::pin(scene.read());
    assert!(poll!(&mut late).is_pending());
    gate.add_permits(1);
    early.await;
    assert_eq!(scene.reads(), 2);
    gate.add_permits(1);
    late.await;
    scene.read().await;
    assert_eq!(scene.reads(), 0, "the later one is kept");
}

#[tokio::test(start_paused = true)]
async fn change_evicts_once_for_any_number_of_listeners() {
    let only = scene(vec![announcing("a", &[])]);
    let several = scene(vec![announcing("a", &[]), fake("b", &[])]);
    for scene in [only, several] {
        let interest = Interest {
            uris: ["x://1".into()].into(),
            lists: Change::Resources.into(),
            session: true,
            ..Interest::default()
        };
        let clients = [0, 1, 2].map(|_| scene.listen(interest.clone()));
        let _clients = futures_util::future::join_all(clients).await;
        rest().await;
        for (count, (method, params)) in [
            (Method::ResourceUpdated, Some(r#"{"uri":"x://1"}"#)),
            (Method::ResourcesChanged, None),
        ]
        .iter()
        .cycle()
        .take(4)
        .enumerate()
        {
            scene.backends[0].announce(method.clone(), *params);
            assert_eq!(scene.gateway.reads.changes(scene.ids[0]), count as u64 + 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn notification_counts_once_for_all_its_copies_and_again_with_an_equal_text() {
    let scene = scene(vec![announcing("a", &[]), fake("b", &[])]);
    let text = bytes::Bytes::from_static(
        br#"{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}"#,
    );
    for count in 1..=3 {
        // All are read from the same buffer, so that even the address is equal.
        let Ok(Message::Notification(notification)) = Message::parse(text.clone(), 8) else {
            panic!()
        };
        for copy in [notification.clone(), notification.clone(), notification] {
            scene
                .gateway
                .lists
                .handle_notification(scene.ids[0], &copy, None);
            assert_eq!(scene.gateway.reads.changes(scene.ids[0]), count);
        }
    }
}

#[tokio::test]
async fn kept_results_are_bounded() {
    let read = async |scene: &Scene, n: usize| {
        let uri = format!(r#"{{"uri":"x://fanlight--a/{n}"}}"#);
        scene.ask("resources/read", Some(&uri)).await;
    };
    for (entries, bytes, at_most) in [
        (4, 1 << 20, 4),
        (100, 4096, 10),
        (0, 4096, 0),
        (4, 0, 0),
        (4, 300, 0),
    ] {
        let backends = vec![
            (fake("a", &[("resources/read", PUBLIC)]), None),
            (fake("b", &[]), None),
        ];
        let scene = scene_of(backends, 10, CacheLimits { entries, bytes });
        for n in 0..50 {
            read(&scene, n).await;
        }
        scene.forget();
        for n in 0..50 {
            read(&scene, n).await;
        }
        let served = 50 - scene.reads();
        assert!(
            served <= at_most,
            "{served} of {entries} entries, {bytes} bytes"
        );
        read(&scene, 49).await;
        assert_eq!(
            scene.reads() == 0,
            at_most > 0,
            "{entries} entries, {bytes} bytes"
        );
    }
}

#[tokio::test]
async fn reads_of_the_only_backend_are_kept_and_evicted() {
    let scene = scene(vec![announcing("a", &[("resources/read", PUBLIC)])]);
    let read = async || {
        scene
            .ask("resources/read", Some(r#"{"uri":"x://1"}"#))
            .await
    };
    let mut client = scene
        .listen(Interest {
            uris: ["x://1".into()].into(),
            lists: Change::Tools.into(),
            ..Interest::default()
        })
        .await;
    read().await;
    read().await;
    assert_eq!(scene.reads(), 1);
    scene.backends[0].announce(Method::ResourceUpdated, Some(r#"{ "uri":"x:\/\/1" }"#));
    scene.backends[0].announce(Method::ToolsChanged, None);
    assert_eq!(
        client.received(),
        [
            r#"resources/updated { "uri":"x:\/\/1" }"#,
            "tools/list_changed"
        ]
    );
    read().await;
    assert_eq!(scene.reads(), 1);
}
