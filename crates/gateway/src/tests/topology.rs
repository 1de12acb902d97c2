//! Replacing the topology while requests run.

use std::sync::Arc;

use futures_util::poll;
use tokio::sync::Semaphore;

use super::fake::*;
use crate::BackendId;

const T: &str = r#""result":{"tools":[{"name":"1"},{"name":"2"}]}"#;

/// Backends `a` and `b`, and `c`, which is not in the topology yet.
fn three() -> (Scene, Arc<Fake>) {
    let tools = |name| announcing(name, &[("tools/list", T), ("tools/call", r#""result":{"content":[]}"#)]);
    let scene = scene_with(vec![(tools("a"), None), (tools("b"), None)], 3);
    (scene, Arc::new(tools("c")))
}

impl Scene {
    /// Replaces the topology of `a` and `b` by `c` and `b`.
    fn replace_a_by(&self, c: &Arc<Fake>) {
        let backends = vec![entry(BackendId::fresh(), c, None), entry(self.ids[1], &self.backends[1], None)];
        self.gateway.replace_topology(backends, limits(3));
    }
}

#[tokio::test(start_paused = true)]
async fn running_request_keeps_the_topology_it_began_with() {
    let (scene, c) = three();
    let gate = Arc::new(Semaphore::new(0));
    scene.backends[0].set("tools/call", Scripted::Waits(Arc::clone(&gate), r#""result":{"content":["a"]}"#));
    let mut running = Box::pin(scene.ask("tools/call", Some(r#"{"name":"a__1"}"#)));
    assert!(poll!(&mut running).is_pending());

    scene.replace_a_by(&c);
    let unknown = scene.ask("tools/call", Some(r#"{"name":"a__1"}"#)).await;
    assert_eq!(error_of(&unknown), (-32602, "Unknown tool: a__1".into()));
    assert_eq!(scene.ask("tools/call", Some(r#"{"name":"c__1"}"#)).await, r#"{"content":[]}"#);
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
    scene.replace_a_by(&c);
    let new = scene.ask("tools/list", None).await;
    assert!(new.starts_with(r#"{"tools":[{"name":"c__1"},{"name":"c__2"},{"name":"b__1"}]"#), "{new}");
    gate.add_permits(1);
    let old = running.await;
    assert!(old.starts_with(r#"{"tools":[{"name":"a__1"},{"name":"a__2"},{"name":"b__1"}]"#), "{old}");
    assert_eq!(scene.ask("tools/list", None).await, new, "the earlier topology's list does not replace the newer");
}

#[tokio::test(start_paused = true)]
async fn kept_backend_keeps_its_list_and_its_listener() {
    let (scene, c) = three();
    scene.ask("tools/list", None).await;
    rest().await;
    scene.forget();
    scene.replace_a_by(&c);
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
    assert_eq!(scene.ask("tools/list", Some(&params)).await, r#"{"tools":[{"name":"b__2"}]}"#);
    // `b` is the first now.
    let backends = vec![entry(scene.ids[1], &scene.backends[1], None), entry(BackendId::fresh(), &c, None)];
    scene.gateway.replace_topology(backends, limits(9));
    let next = scene.ask("tools/list", Some(&params)).await;
    assert_eq!(next, r#"{"tools":[{"name":"b__2"},{"name":"c__1"},{"name":"c__2"}]}"#);
    // A backend that is no longer configured has nothing left to list.
    scene.gateway.replace_topology(vec![entry(BackendId::fresh(), &c, Some("c-"))], limits(9));
    assert_eq!(scene.ask("tools/list", Some(&params)).await, r#"{"tools":[]}"#);
}
