//! Servers whose users sign in.

use std::sync::Arc;

use fanlight_canonical::{Call, CallContext};
use fanlight_protocol::{Json, Method};

use super::fake::*;
use super::principals::caller;

const LIST: &str =
    r#""result":{"tools":[{"name":"of-{who}"}],"ttlMs":60000,"cacheScope":"public"}"#;
const CALL: &str = r#"{"name":"of-ann"}"#;

/// A server that gives each user another list, and names the caller in its answers.
fn server(name: &'static str, signed_in: &[&'static str]) -> Fake {
    let server = announcing(name, &[]);
    server.set("tools/list", Scripted::Personal(LIST));
    server.set(
        "tools/call",
        Scripted::Personal(r#""result":{"content":["{who}"]}"#),
    );
    server.sign_in(signed_in);
    server
}

/// The link in the message of an answer that asks the user to sign in.
fn link(answer: &str) -> Option<String> {
    let (code, message) = error_of(answer);
    (code == -31001).then(|| {
        message
            .split_once("open ")
            .unwrap()
            .1
            .split_once(' ')
            .unwrap()
            .0
            .to_owned()
    })
}

#[tokio::test(start_paused = true)]
async fn only_server_tells_each_user_to_sign_in_and_lists_nothing_before() {
    let scene = scene(vec![server("own", &["bob"])]);
    let list = scene.ask_by("ann", "tools/list", None).await;
    assert!(
        list.contains(r#""tools":[]"#) && list.contains(r#""outcome":"sign_in_needed""#),
        "{list}"
    );
    let answer = scene.ask_by("ann", "tools/call", Some(CALL)).await;
    assert_eq!(
        link(&answer).as_deref(),
        Some("https://gateway.example/connect/ann"),
        "{answer}"
    );
    let list = scene.ask_by("bob", "tools/list", None).await;
    assert!(
        list.contains("of-bob") && !list.contains("of-ann"),
        "{list}"
    );
    assert_eq!(
        scene
            .ask_by("bob", "tools/call", Some(r#"{"name":"of-bob"}"#))
            .await,
        r#"{"content":["bob"]}"#
    );
    // A user without a list gets no other user's list, whatever scope the server gives it.
    assert!(
        !scene
            .ask_by("ann", "tools/list", None)
            .await
            .contains("of-bob")
    );
    assert!(
        !scene
            .ask_by("-", "tools/list", None)
            .await
            .contains("of-bob")
    );
}

#[tokio::test(start_paused = true)]
async fn list_is_there_after_signing_in_and_listeners_are_notified() {
    use fanlight_canonical::Interest;
    let scene = scene(vec![
        server("own", &[]),
        announcing("all", &[("tools/list", r#""result":{"tools":[]}"#)]),
    ]);
    let mut ann = scene
        .listen_as(
            caller("ann"),
            Interest {
                lists: Change::Tools.into(),
                ..Interest::default()
            },
        )
        .await;
    assert!(
        !scene
            .ask_by("ann", "tools/list", None)
            .await
            .contains("of-ann")
    );
    rest().await;
    drop(ann.received());
    scene.backends[0].sign_in(&["ann"]);
    scene.backends[0].announce(Method::ToolsChanged, None);
    rest().await;
    assert_eq!(ann.received().len(), 1);
    let list = scene.ask_by("ann", "tools/list", None).await;
    assert!(list.contains("own__of-ann"), "{list}");
    // After signing out, the call is refused again.
    scene.backends[0].sign_in(&[]);
    scene.backends[0].announce(Method::ToolsChanged, None);
    rest().await;
    let answer = scene
        .ask_by("ann", "tools/call", Some(r#"{"name":"own__of-ann"}"#))
        .await;
    assert!(link(&answer).is_some(), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn name_that_several_servers_may_have_is_unknown_and_not_sent_to_one_of_them() {
    let scene = scene(vec![server("own", &[]), server("other", &[])]);
    let answer = scene.ask_by("ann", "tools/call", Some(CALL)).await;
    assert_eq!(error_of(&answer).0, -32602, "{answer}");
    assert!(answer.contains("sign_in_needed"), "{answer}");
    let prefixed = scene
        .ask_by("ann", "tools/call", Some(r#"{"name":"other__of-ann"}"#))
        .await;
    assert!(prefixed.contains("sign in to other"), "{prefixed}");
}

#[tokio::test]
async fn client_that_can_open_a_page_is_asked_to() {
    let scene = scene(vec![server("own", &[])]);
    for (capabilities, code) in [
        (r#"{"elicitation":{"url":{}}}"#, -32042),
        (r#"{"elicitation":{"form":{}}}"#, -31001),
        ("{}", -31001),
    ] {
        let capabilities = Json::literal(capabilities);
        let context = CallContext {
            caller: caller("ann"),
            capabilities,
            ..(*CallContext::internal()).clone()
        };
        let call = Call {
            context: Arc::new(context),
            ..call("tools/call", Some(CALL))
        };
        let answer = scene.gateway.handle(call).await.body().as_text().to_owned();
        assert_eq!(error_of(&answer).0, code, "{answer}");
        assert!(
            error_of(&answer)
                .1
                .contains("https://gateway.example/connect/ann"),
            "{answer}"
        );
        assert_eq!(
            answer.contains(r#""mode":"url""#),
            code == -32042,
            "{answer}"
        );
        assert!(answer.contains(r#""backend":"own""#), "{answer}");
    }
}
