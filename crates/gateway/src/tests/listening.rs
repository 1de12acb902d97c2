//! Listening clients and the messages that they get.

use std::sync::Arc;
use std::time::Duration;

use fanlight_canonical::Interest;
use fanlight_protocol::{Json, Method};
use tokio::time::Instant;

use super::fake::*;

const X: &str = r#""result":{"resources":[{"uri":"x://1"}]}"#;
const G: &str = r#""result":{"resources":[{"uri":"g://1"}]}"#;
const NONE: &str = r#""result":{"resourceTemplates":[]}"#;

fn uris(uris: &[&str]) -> Interest {
    Interest {
        uris: uris.iter().map(|uri| Arc::from(*uri)).collect(),
        ..Interest::default()
    }
}

fn two_with_the_same_resource() -> Scene {
    let lists = [("resources/list", X), ("resources/templates/list", NONE)];
    scene(vec![announcing("a", &lists), announcing("b", &lists)])
}

#[tokio::test(start_paused = true)]
async fn changes_of_lists_are_honoured_if_a_backend_has_such_a_list() {
    let tools = fake("a", &[]);
    tools.describe_as(Ok(r#"{"capabilities":{"tools":{}}}"#));
    let prompts = fake("b", &[]);
    prompts.describe_as(Ok(r#"{"capabilities":{"prompts":{}}}"#));
    let scene = scene(vec![tools, prompts]);
    let wanted = Interest {
        lists: [Change::Tools, Change::Resources].into_iter().collect(),
        ..Interest::default()
    };
    let client = scene.listen(wanted).await;
    assert_eq!(
        client.listening.honoured,
        Interest {
            lists: Change::Tools.into(),
            ..Interest::default()
        }
    );
    let description = scene.ask("server/discover", None).await;
    assert!(description.contains(
        r#""capabilities":{"tools":{"listChanged":true},"prompts":{"listChanged":true}}"#
    ));
}

#[tokio::test(start_paused = true)]
async fn client_gets_no_notification_after_it_stops_listening_or_of_other_kinds() {
    let scene = scene(vec![announcing("a", &[]), announcing("b", &[])]);
    let mut tools = scene
        .listen(Interest {
            lists: Change::Tools.into(),
            ..Interest::default()
        })
        .await;
    let mut prompts = scene
        .listen(Interest {
            lists: Change::Prompts.into(),
            ..Interest::default()
        })
        .await;
    rest().await;
    for name in [
        r#""result":{"tools":[{"name":"1"}]}"#,
        r#""result":{"tools":[]}"#,
    ] {
        scene.backends[0].answer("tools/list", name);
        scene.backends[0].announce(Method::ToolsChanged, None);
        rest().await;
        assert_eq!(tools.received(), ["tools/list_changed"]);
        assert!(prompts.received().is_empty());
        tools = scene
            .listen(Interest {
                lists: Change::Tools.into(),
                ..Interest::default()
            })
            .await;
    }
    assert_eq!(
        scene.backends[0].listeners().0,
        1,
        "lists cost backends one listener in all"
    );
}

#[tokio::test(start_paused = true)]
async fn updates_have_the_uri_that_the_client_subscribed_to() {
    let scene = two_with_the_same_resource();
    let mut client = scene
        .listen(uris(&["x://fanlight--b/1", "x://1", "y://unlisted"]))
        .await;
    let honoured: Vec<_> = client
        .listening
        .honoured
        .uris
        .iter()
        .map(|uri| &**uri)
        .collect();
    assert_eq!(honoured, ["x://1", "x://fanlight--b/1", "y://unlisted"]);
    assert_eq!(
        scene.backends[0].interest(),
        uris(&["x://1", "y://unlisted"])
    );
    assert_eq!(
        scene.backends[1].interest(),
        uris(&["x://1", "y://unlisted"])
    );
    let updated = Method::ResourceUpdated;
    scene.backends[1].announce(updated.clone(), Some(r#"{"uri":"x:\/\/1","k":1.0}"#));
    scene.backends[1].announce(updated.clone(), Some(r#"{"uri":"x://1/part"}"#));
    scene.backends[0].announce(updated.clone(), Some(r#"{"uri":"x:\/\/1"}"#));
    scene.backends[1].announce(updated, Some(r#"{"uri":"y://unlisted"}"#));
    let expected = [
        r#"resources/updated {"uri":"x://fanlight--b/1","k":1.0}"#,
        r#"resources/updated {"uri":"x://fanlight--b/1/part"}"#,
        r#"resources/updated {"uri":"x:\/\/1"}"#,
        r#"resources/updated {"uri":"y://unlisted"}"#,
    ];
    assert_eq!(client.received(), expected);
    drop(client);
    rest().await;
    assert_eq!(
        (
            scene.backends[0].listeners().0,
            scene.backends[1].listeners().0
        ),
        (1, 1),
        "the gateway's own"
    );
}

#[tokio::test(start_paused = true)]
async fn update_is_sent_under_both_names_of_one_resource() {
    let scene = two_with_the_same_resource();
    let mut client = scene.listen(uris(&["x://1", "x://fanlight--a/1"])).await;
    assert_eq!(client.listening.honoured.uris.len(), 2);
    scene.backends[0].announce(Method::ResourceUpdated, Some(r#"{"uri":"x://1"}"#));
    let mut received = client.received();
    received.sort();
    assert_eq!(
        received,
        [
            r#"resources/updated {"uri":"x://1"}"#,
            r#"resources/updated {"uri":"x://fanlight--a/1"}"#
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn interest_that_no_backend_honours_is_not_honoured() {
    let scene = scene(vec![fake("a", &[("resources/list", X)]), fake("b", &[])]);
    let client = scene.listen(uris(&["x://1", "y://z"])).await;
    assert!(client.listening.honoured.is_empty());
}

#[tokio::test(start_paused = true)]
async fn tasks_are_subscribed_at_their_owners_and_unknown_members_at_all_backends() {
    let a = fake(
        "a",
        &[(
            r#"tasks/get {"taskId":"a1"}"#,
            r#""result":{"taskId":"a1"}"#,
        )],
    );
    let b = fake(
        "b",
        &[(
            r#"tasks/get {"taskId":"b1"}"#,
            r#""result":{"taskId":"b1"}"#,
        )],
    );
    a.describe_as(Ok(r#"{"capabilities":{"tasks":{},"unknown":{"x":true}}}"#));
    b.describe_as(Ok(r#"{"capabilities":{"tasks":{},"unknown":{"y":true}}}"#));
    let scene = scene(vec![a, b]);
    let tasks = ["b1", "nobody's", "a1"].map(Arc::from).into();
    let unknown = Some(Json::literal(r#"{"x":true,"y":true,"z":true}"#));
    let client = scene
        .listen(Interest {
            tasks,
            unknown,
            ..Interest::default()
        })
        .await;
    let honoured = &client.listening.honoured;
    assert_eq!(honoured.tasks, ["b1", "a1"].map(Arc::from).into());
    assert_eq!(
        honoured.unknown.as_ref().unwrap().as_text(),
        r#"{"x":true,"y":true}"#
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_members_bring_no_changes_of_single_lists() {
    let fakes = ["a", "b"].map(|name| {
        let fake = fake(name, &[("tools/list", r#""result":{"tools":[]}"#)]);
        fake.describe_as(Ok(
            r#"{"capabilities":{"tools":{"listChanged":true},"unknown":{"x":true}}}"#,
        ));
        fake
    });
    let scene = scene(fakes.into());
    scene.ask("tools/list", None).await;
    rest().await;
    let unknown = Some(Json::literal(r#"{"x":true}"#));
    let mut client = scene
        .listen(Interest {
            lists: Change::Tools.into(),
            unknown,
            ..Interest::default()
        })
        .await;
    rest().await;
    scene.backends[1].announce(Method::ToolsChanged, None);
    scene.backends[1].announce(Method::from_name("notifications/x"), Some(r#"{"k":1.0}"#));
    rest().await;
    assert_eq!(
        client.received(),
        [r#"x {"k":1.0}"#, "tools/list_changed"],
        "the change is told once"
    );
}

#[tokio::test(start_paused = true)]
async fn session_gets_everything_but_changes_of_single_lists() {
    let scene = two_with_the_same_resource();
    scene.ask("resources/list", None).await;
    scene.ask("resources/templates/list", None).await;
    rest().await;
    let mut client = scene
        .listen(Interest {
            session: true,
            ..Interest::default()
        })
        .await;
    assert!(client.listening.honoured.session);
    scene.backends[1].announce(Method::LogMessage, Some(r#"{"level":"info","data":1.0}"#));
    scene.backends[0].announce(Method::ResourceUpdated, Some(r#"{"uri":"x://1"}"#));
    scene.backends[1].announce(Method::ResourceUpdated, Some(r#"{"uri":"x://1"}"#));
    scene.backends[1].announce(Method::ResourceUpdated, Some(r#"{"uri":"z://1"}"#));
    scene.backends[1].announce(Method::ToolsChanged, None);
    scene.backends[0].ask_sessions();
    let expected = [
        r#"message {"level":"info","data":1.0}"#,
        r#"resources/updated {"uri":"x://1"}"#,
        r#"resources/updated {"uri":"x://fanlight--b/1"}"#,
        r#"resources/updated {"uri":"z://1"}"#,
        "elicitation/create",
    ];
    assert_eq!(client.received(), expected);
}

#[tokio::test(start_paused = true)]
async fn no_backend_is_waited_for_longer_than_for_a_list() {
    let lists = [("resources/list", X), ("resources/templates/list", NONE)];
    let (slow, gone) = (announcing("slow", &lists), announcing("gone", &[]));
    slow.fail_to_listen(Some(Scripted::Hangs));
    slow.set("tools/list", Scripted::Hangs);
    gone.describe_as(Err(unreachable()));
    gone.fail_to_listen(Some(Scripted::Fails(unreachable())));
    let good = announcing(
        "good",
        &[("resources/list", G), ("resources/templates/list", NONE)],
    );
    let scene = scene(vec![slow, gone, good]);
    let began = Instant::now();
    let interest = Interest {
        lists: Change::Tools.into(),
        session: true,
        ..uris(&["x://1", "g://1"])
    };
    let client = scene.listen(interest).await;
    assert!(
        began.elapsed() <= Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    let expected = Interest {
        lists: Change::Tools.into(),
        session: true,
        ..uris(&["g://1"])
    };
    assert_eq!(client.listening.honoured, expected);
}
