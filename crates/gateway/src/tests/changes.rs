//! Announcements by servers, and the notifications that clients get.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::Interest;
use fanlight_protocol::Method;
use fanlight_protocol::subscription::Lists;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::fake::*;

const T1: &str = r#""result":{"tools":[{"name":"1"},{"name":"2"}]}"#;
const T1_REORDERED: &str = r#""result":{"tools":[{"name":"2"},{"name":"1"}],"_meta":{"at":2}}"#;
const T2: &str = r#""result":{"tools":[{"name":"3"}]}"#;

fn lists() -> Interest {
    Interest {
        lists: Lists::ALL,
        ..Interest::default()
    }
}

#[tokio::test(start_paused = true)]
async fn burst_causes_one_reading_of_one_backend_and_one_notification() {
    let scene = scene(vec![
        announcing("a", &[("tools/list", T1)]),
        announcing("b", &[("tools/list", T1)]),
    ]);
    let mut client = scene.listen(lists()).await;
    scene.ask("tools/list", None).await;
    rest().await;
    scene.forget();
    assert!(client.received().is_empty());
    scene.backends[0].answer("tools/list", T2);
    for _ in 0..50 {
        scene.backends[0].announce(Method::ToolsChanged, None);
        sleep(Duration::from_millis(1)).await;
    }
    rest().await;
    assert_eq!(scene.received(0), ["tools/list"]);
    assert!(scene.received(1).is_empty());
    assert_eq!(client.received(), ["tools/list_changed"]);
    assert!(scene.ask("tools/list", None).await.contains(r#""a__3""#));
    assert!(
        scene.received(0).is_empty(),
        "the new list is there before clients are notified"
    );
}

#[tokio::test(start_paused = true)]
async fn clients_are_told_what_a_server_told_and_else_of_changed_entries_only() {
    let scene = scene(vec![
        announcing("a", &[("tools/list", T1)]),
        announcing("b", &[]),
    ]);
    let mut client = scene.listen(lists()).await;
    rest().await;
    for (list, is_own, notified) in [
        (T1, false, 1),
        (T1_REORDERED, false, 1),
        (T1_REORDERED, true, 0),
        (T2, false, 1),
        (T1, true, 1),
        (T1, true, 0),
    ] {
        scene.backends[0].answer("tools/list", list);
        scene.backends[0].announce_as(is_own, Method::ToolsChanged, None);
        rest().await;
        assert_eq!(client.received().len(), notified, "{list} {is_own}");
    }
    // A change of wording only is served as the server writes it now.
    scene.backends[0].answer("tools/list", T1_REORDERED);
    scene.backends[0].announce(Method::ToolsChanged, None);
    assert!(
        scene
            .ask("tools/list", None)
            .await
            .contains(r#""_meta":{"at":2}"#)
    );
}

#[tokio::test(start_paused = true)]
async fn unannounced_changes_are_notified_at_a_limited_rate() {
    let scene = scene(vec![fake("a", &[("tools/list", T1)]), fake("b", &[])]);
    let mut client = scene.listen(lists()).await;
    rest().await;
    let mut notified = 0;
    for list in [T2, T1, T2, T1, T2, T1] {
        scene.backends[0].answer("tools/list", list);
        scene.ask("tools/list", None).await;
        rest().await;
        notified += client.received().len();
    }
    assert!(
        (1..=2).contains(&notified),
        "notified {notified} times in six seconds"
    );
    sleep(Duration::from_secs(6)).await;
    assert!(
        notified + client.received().len() >= 2,
        "the last change is notified in the end"
    );
}

#[tokio::test(start_paused = true)]
async fn resources_and_templates_share_one_notification() {
    let scene = scene(vec![announcing("a", &[]), announcing("b", &[])]);
    let mut client = scene.listen(lists()).await;
    rest().await;
    scene.backends[0].answer(
        "resources/list",
        r#""result":{"resources":[{"uri":"x://y"}]}"#,
    );
    scene.backends[0].answer(
        "resources/templates/list",
        r#""result":{"resourceTemplates":[{"uriTemplate":"x://{y}"}]}"#,
    );
    scene.backends[0].announce(Method::ResourcesChanged, None);
    rest().await;
    assert_eq!(client.received(), ["resources/list_changed"]);
}

#[tokio::test(start_paused = true)]
async fn change_before_the_first_list_is_notified() {
    let scene = scene(vec![announcing("a", &[]), announcing("b", &[])]);
    let gate = Arc::new(Semaphore::new(0));
    scene.backends[0].set("tools/list", Scripted::Waits(Arc::clone(&gate), T1));
    let mut client = scene.listen(lists()).await;
    tokio::task::yield_now().await;
    scene.backends[0].announce(Method::ToolsChanged, None);
    gate.add_permits(9);
    rest().await;
    assert_eq!(client.received(), ["tools/list_changed"]);
}

#[tokio::test(start_paused = true)]
async fn backend_that_fails_for_long_and_recovers_changes_the_list_twice() {
    let scene = scene(vec![
        announcing("a", &[("tools/list", T1)]),
        announcing("b", &[("tools/list", T1)]),
    ]);
    let mut client = scene.listen(lists()).await;
    rest().await;
    scene.backends[0].set_down(true);
    assert!(scene.ask("tools/list", None).await.contains("a__1"));
    rest().await;
    assert!(client.received().is_empty());
    // The server's last list is too old to be served.
    sleep(Duration::from_secs(601)).await;
    assert_eq!(client.received(), ["tools/list_changed"]);
    assert!(!scene.ask("tools/list", None).await.contains("a__1"));
    scene.backends[0].set_down(false);
    rest().await;
    // The server announces changes of all lists when it is back.
    let told = ["prompts", "resources", "tools"].map(|list| format!("{list}/list_changed"));
    let mut received = client.received();
    received.sort();
    assert_eq!(received, told);
    assert!(scene.ask("tools/list", None).await.contains("a__1"));
}

#[tokio::test(start_paused = true)]
async fn backend_that_starts_late_is_listened_to_and_its_tools_are_notified() {
    for how in [Scripted::Fails(unreachable()), Scripted::Hangs] {
        let late = announcing("late", &[("tools/list", T1)]);
        late.fail_to_listen(Some(how));
        late.describe_as(Err(unreachable()));
        let scene = scene(vec![late, announcing("b", &[("tools/list", T1)])]);
        let mut client = scene.listen(lists()).await;
        rest().await;
        scene.backends[0].describe_as(Ok(ANNOUNCING));
        scene.backends[0].fail_to_listen(None);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(client.received(), ["tools/list_changed"]);
        assert_eq!(scene.backends[0].listeners(), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn listening_begins_with_the_first_list_and_ends_with_the_gateway() {
    let scene = scene(vec![announcing("a", &[("tools/list", T1)]), fake("b", &[])]);
    scene.ask("server/discover", None).await;
    scene.ask("tools/call", Some(r#"{"name":"a__1"}"#)).await;
    rest().await;
    assert_eq!(scene.backends[0].listeners(), (0, 0));
    scene.ask("tools/list", None).await;
    rest().await;
    assert_eq!(scene.backends[0].listeners(), (1, 1));
    assert_eq!(
        scene.backends[1].listeners(),
        (1, 1),
        "it honours nothing, and may send what nobody knows"
    );
    scene.gateway.stop().await;
    assert_eq!(scene.backends[0].listeners(), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn dropped_gateway_drops_its_backends_and_listeners() {
    let scene = scene(vec![
        announcing("a", &[("tools/list", T1)]),
        announcing("b", &[]),
    ]);
    let client = scene.listen(lists()).await;
    rest().await;
    let backends = scene.backends.clone();
    drop((client, scene.gateway));
    rest().await;
    assert_eq!(backends[0].listeners(), (0, 1));
    assert_eq!(
        Arc::strong_count(&backends[0]),
        2,
        "one here and one in the scene"
    );
}
