//! What one principal causes is not used for another.

use std::sync::Arc;

use fanlight_canonical::{Call, CallContext, Caller, Principal};
use futures_util::poll;
use tokio::sync::Semaphore;

use super::fake::*;

const URI: &str = r#"{"uri":"x://fanlight--a/1"}"#;

impl Scene {
    async fn ask_by(&self, name: &str, method: &str, params: Option<&str>) -> String {
        let caller = Caller::request_of(Principal::named("https://issuer.example", name));
        let context = CallContext { caller, ..(*CallContext::internal()).clone() };
        let call = Call { context: Arc::new(context), ..call(method, params) };
        self.gateway.handle(call).await.body().as_text().to_owned()
    }

    fn count(&self, method: &str) -> usize {
        self.received(0).iter().filter(|request| request.starts_with(method)).count()
    }
}

#[tokio::test]
async fn shared_read_is_joined_by_requests_of_one_principal_alone() {
    let scene = scene(vec![announcing("a", &[]), fake("b", &[])]);
    let gate = Arc::new(Semaphore::new(0));
    scene.backends[0].set("resources/read", Scripted::Waits(Arc::clone(&gate), r#""result":{"contents":[]}"#));
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
        let scene = scene(vec![announcing("a", &[("resources/read", result.leak())]), fake("b", &[])]);
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
        let garbage = scene.ask_by("bob", method, Some(r#"{"cursor":"garbage"}"#)).await;
        assert_eq!(error_of(&garbage).0, -32602);
        assert_eq!(scene.ask_by("bob", method, Some(&params)).await, garbage);
        assert!(scene.ask_by("ann", method, Some(&params)).await.contains(method.split_once('/').unwrap().0));
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
        let created = ("tools/call", r#""result":{"resultType":"task","taskId":"t"}"#);
        let fake = fake(name, &[list, created, ("tasks/get", state)]);
        fake.describe_as(Ok(r#"{"capabilities":{"tools":{},"tasks":{}}}"#));
        fake
    };
    // Both know a task of this id: an unknown owner is the first.
    let a = backend("a", r#""result":{"taskId":"t","at":"a"}"#);
    let b = backend("b", r#""result":{"taskId":"t","at":"b"}"#);
    let scene = scene(vec![a, b]);
    scene.ask_by("ann", "tools/call", Some(r#"{"name":"b__t"}"#)).await;
    assert!(scene.ask_by("bob", "tasks/get", Some(r#"{"taskId":"t"}"#)).await.contains(r#""at":"a""#));
    assert!(scene.ask_by("ann", "tasks/get", Some(r#"{"taskId":"t"}"#)).await.contains(r#""at":"b""#));
}
