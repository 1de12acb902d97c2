//! When a known list is served, and when servers are asked.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, advance};

use super::fake::*;
use fanlight_protocol::Method;

const T1: &str = r#""result":{"tools":[{"name":"1"}]}"#;
const T2: &str = r#""result":{"tools":[{"name":"2"}]}"#;

#[tokio::test(start_paused = true)]
async fn backend_that_announces_changes_is_not_asked_again() {
    let scene = scene(vec![
        announcing("a", &[("tools/list", T1)]),
        fake("b", &[("tools/list", T2)]),
    ]);
    let first = scene.ask("tools/list", None).await;
    assert_eq!(first, r#"{"tools":[{"name":"a__1"},{"name":"b__2"}]}"#);
    rest().await;
    scene.forget();
    assert_eq!(scene.ask("tools/list", None).await, first);
    assert_eq!(
        (scene.received(0).len(), scene.received(1).len()),
        (0, 1),
        "b announces nothing, so it is asked"
    );
}

#[tokio::test(start_paused = true)]
async fn list_is_served_during_its_ttl_with_the_rest_of_it() {
    let timed = r#""result":{"tools":[{"name":"1"}],"ttlMs":60000,"cacheScope":"public"}"#;
    let scene = scene(vec![
        fake("a", &[("tools/list", timed)]),
        fake("b", &[("tools/list", timed)]),
    ]);
    assert!(
        scene
            .ask("tools/list", None)
            .await
            .contains(r#""ttlMs":60000,"cacheScope":"public""#)
    );
    advance(Duration::from_millis(59_000)).await;
    assert!(
        scene
            .ask("tools/list", None)
            .await
            .contains(r#""ttlMs":1000,"#)
    );
    assert_eq!(scene.received(0).len(), 1);
    advance(Duration::from_millis(1_000)).await;
    assert!(
        scene
            .ask("tools/list", None)
            .await
            .contains(r#""ttlMs":60000,"#)
    );
    assert_eq!(scene.received(0).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn list_expires_with_its_first_page_to_expire() {
    let first = r#""result":{"tools":[],"ttlMs":60000,"nextCursor":"n"}"#;
    let second = r#""result":{"tools":[],"ttlMs":5}"#;
    let paged = [
        ("tools/list", first),
        (r#"tools/list {"cursor":"n"}"#, second),
    ];
    let scene = scene(vec![
        fake("a", &paged),
        fake(
            "b",
            &[("tools/list", r#""result":{"tools":[],"ttlMs":60000}"#)],
        ),
    ]);
    scene.ask("tools/list", None).await;
    advance(Duration::from_millis(5)).await;
    scene.forget();
    scene.ask("tools/list", None).await;
    assert_eq!((scene.received(0).len(), scene.received(1).len()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn expired_list_of_an_announcing_backend_is_served_and_read_again() {
    let timed = r#""result":{"tools":[{"name":"1"}],"ttlMs":60000}"#;
    let scene = scene(vec![
        announcing("a", &[("tools/list", timed)]),
        fake("b", &[]),
    ]);
    scene.ask("tools/list", None).await;
    rest().await;
    advance(Duration::from_secs(60)).await;
    scene.forget();
    scene.backends[0].set(
        "tools/list",
        Scripted::Waits(Arc::new(Semaphore::new(0)), T2),
    );
    let began = Instant::now();
    assert!(scene.ask("tools/list", None).await.contains(r#""a__1""#));
    assert_eq!(began.elapsed(), Duration::ZERO);
    rest().await;
    assert_eq!(scene.received(0).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn list_older_than_an_announced_change_is_never_served() {
    let scene = scene(vec![announcing("a", &[("tools/list", T1)]), fake("b", &[])]);
    scene.ask("tools/list", None).await;
    rest().await;
    let gate = Arc::new(Semaphore::new(0));
    scene.backends[0].set("tools/list", Scripted::Waits(Arc::clone(&gate), T1));
    scene.backends[0].announce(Method::ToolsChanged, None);
    scene.forget();
    let mut early = Box::pin(scene.ask("tools/list", None));
    assert!(futures_util::poll!(&mut early).is_pending());
    tokio::task::yield_now().await;
    // The running reading began before this change.
    scene.backends[0].answer("tools/list", T2);
    scene.backends[0].announce(Method::ToolsChanged, None);
    let late = scene.ask("tools/list", None);
    let release = async {
        tokio::task::yield_now().await;
        gate.add_permits(1);
    };
    let (early, late, ()) = tokio::join!(early, late, release);
    assert!(
        early.contains(r#""a__1""#) || early.contains(r#""a__2""#),
        "{early}"
    );
    assert!(late.contains(r#""a__2""#), "{late}");
    rest().await;
    assert_eq!(scene.received(0).len(), 2, "one reading for each change");
}

#[tokio::test(start_paused = true)]
async fn requests_that_wait_after_a_change_share_one_reading() {
    let scene = scene(vec![
        announcing("a", &[("tools/list", T1)]),
        announcing("b", &[("tools/list", T1)]),
    ]);
    scene.ask("tools/list", None).await;
    rest().await;
    scene.forget();
    scene.backends[0].answer("tools/list", T2);
    scene.backends[0].announce(Method::ToolsChanged, None);
    let answers =
        futures_util::future::join_all((0..20).map(|_| scene.ask("tools/list", None))).await;
    assert!(
        answers
            .iter()
            .all(|answer| answer.contains(r#""a__2""#) && answer.contains(r#""b__1""#))
    );
    rest().await;
    assert_eq!((scene.received(0).len(), scene.received(1).len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn failed_backend_is_asked_again_and_one_that_is_down_is_marked() {
    let scene = scene(vec![
        announcing("a", &[("tools/list", T1)]),
        announcing("b", &[("tools/list", T2)]),
    ]);
    scene.backends[0].set("tools/list", Scripted::Fails(unreachable()));
    assert!(
        scene
            .ask("tools/list", None)
            .await
            .contains(r#""a":{"outcome":"unreachable""#)
    );
    scene.backends[0].answer("tools/list", T1);
    rest().await;
    assert!(scene.ask("tools/list", None).await.contains(r#""a__1""#));
    scene.backends[1].set_down(true);
    assert!(
        scene
            .ask("tools/list", None)
            .await
            .contains(r#""b":{"outcome":"unreachable""#)
    );
}

#[tokio::test(start_paused = true)]
async fn last_whole_list_of_a_failing_backend_is_served_marked_for_a_while() {
    let scene = scene(vec![
        fake("a", &[("tools/list", T1)]),
        fake("b", &[("tools/list", T2)]),
    ]);
    let whole = scene.ask("tools/list", None).await;
    let broken = r#""error":{"code":-32603,"message":"no"}"#;
    let part = r#""result":{"tools":[{"name":"other"}],"nextCursor":"n"}"#;
    for (answer, outcome) in [
        (Scripted::Fails(unreachable()), "unreachable"),
        (
            Scripted::Fails(fanlight_canonical::BackendError::ClosedEarly),
            "unreachable",
        ),
        (Scripted::Body(broken), "error"),
        (Scripted::Body(part), "error"),
        (Scripted::Hangs, "timeout"),
    ] {
        scene.backends[1].set("tools/list", answer);
        scene.backends[1].set(r#"tools/list {"cursor":"n"}"#, Scripted::Body(broken));
        let list = scene.ask("tools/list", None).await;
        assert!(
            list.starts_with(r#"{"tools":[{"name":"a__1"},{"name":"b__2"}],"#),
            "{list}"
        );
        assert!(
            list.contains(&format!(r#""b":{{"outcome":"{outcome}""#))
                && list.contains(r#""stale":true"#),
            "{list}"
        );
    }
    // A tool of an unreadable list can still be called.
    scene.backends[1].answer("tools/call", r#""result":{"content":[]}"#);
    assert_eq!(
        scene.ask("tools/call", Some(r#"{"name":"b__2"}"#)).await,
        r#"{"content":[]}"#
    );
    advance(Duration::from_secs(600)).await;
    scene.ask("tools/list", None).await;
    advance(Duration::from_secs(2)).await;
    let list = scene.ask("tools/list", None).await;
    assert!(
        list.starts_with(r#"{"tools":[{"name":"a__1"}],"#) && !list.contains("stale"),
        "{list}"
    );
    scene.backends[1].answer("tools/list", T2);
    scene.ask("tools/list", None).await;
    rest().await;
    assert_eq!(scene.ask("tools/list", None).await, whole);
}

#[tokio::test(start_paused = true)]
async fn backend_that_hangs_is_waited_for_once_until_it_has_answered() {
    let hanging = |name| {
        let fake = fake(name, &[]);
        fake.set("tools/list", Scripted::Hangs);
        fake
    };
    let scene = scene(vec![
        fake("a", &[("tools/list", T1)]),
        hanging("h"),
        hanging("i"),
    ]);
    let began = Instant::now();
    for _ in 0..10 {
        let list = scene.ask("tools/list", None).await;
        assert!(
            list.contains("a__1") && list.matches(r#""outcome":"timeout""#).count() == 2,
            "{list}"
        );
    }
    assert_eq!(began.elapsed(), Duration::from_secs(1));
    // One reading runs at a time. After its answer the list is whole without another request.
    scene.backends[1].answer("tools/list", T2);
    advance(Duration::from_secs(1)).await;
    rest().await;
    scene.ask("tools/list", None).await;
    rest().await;
    assert!(scene.ask("tools/list", None).await.contains(r#""h__2""#));
}

#[tokio::test(start_paused = true)]
async fn lists_with_too_many_bytes_or_entries_are_cut_off() {
    let padding = "x".repeat(600 << 10);
    let page = |cursor: &str| -> &'static str {
        format!(r#""result":{{"tools":[{{"name":"{cursor}","description":"{padding}"}}],"nextCursor":"{cursor}"}}"#)
            .leak()
    };
    let endless = fake("endless", &[]);
    endless.answer("tools/list", page("1"));
    (1..9).for_each(|n| {
        endless.answer(
            &format!(r#"tools/list {{"cursor":"{n}"}}"#),
            page(&(n + 1).to_string()),
        );
    });
    let entries = vec!["{}"; 101].join(",");
    let many = fake("many", &[]);
    many.answer(
        "tools/list",
        format!(r#""result":{{"tools":[{entries}]}}"#).leak(),
    );
    let scene = scene(vec![endless, many, fake("good", &[("tools/list", T1)])]);
    let list = scene.ask("tools/list", None).await;
    assert!(
        list.contains(r#""reason":"the list was cut off: it has more than 1048576 bytes""#),
        "no reason"
    );
    assert!(list.contains(
        r#""many":{"outcome":"error","reason":"the list was cut off: it has more than 100 entries""#
    ));
    assert!(list.contains("good__1"), "no list");
    assert_eq!(scene.received(0).len(), 2, "reading ends at the limit");
}

#[tokio::test(start_paused = true)]
async fn paging_continues_while_another_list_changes() {
    let tools = r#""result":{"tools":[{"name":"1"},{"name":"2"},{"name":"3"}]}"#;
    let a = announcing("a", &[("tools/list", tools)]);
    let scene = scene_with(
        vec![(a, None), (announcing("b", &[("tools/list", tools)]), None)],
        2,
    );
    let mut names = String::new();
    let mut params = None;
    for changed in [T1, r#""result":{"tools":[]}"#, tools, T2, T1, T2, T1] {
        let page = scene.ask("tools/list", params.as_deref()).await;
        names.push_str(&page);
        let Some((_, cursor)) = page.split_once(r#""nextCursor":"#) else {
            break;
        };
        params = Some(format!(r#"{{"cursor":{}}}"#, cursor.trim_end_matches('}')));
        scene.backends[0].answer("tools/list", changed);
        scene.backends[0].announce(Method::ToolsChanged, None);
        rest().await;
    }
    for name in ["b__1", "b__2", "b__3"] {
        assert_eq!(names.matches(name).count(), 1, "{name} in {names}");
    }
}
