//! Calls from apps, which know their server's tools by the server's own names.

use std::sync::Arc;

use fanlight_canonical::{Call, CallContext, Caller, Principal, SessionKey};

use super::fake::*;
use crate::NamingPolicy;

const CALLED: (&str, &str) = ("tools/call", r#""result":{"content":[]}"#);
const READ: (&str, &str) = ("resources/read", r#""result":{"contents":[]}"#);
const SHOWN: &str = r#""result":{"tools":[{"name":"show","_meta":{"ui":{"resourceUri":"ui://board"}}},{"name":"refresh"}]}"#;

fn two_with_apps() -> Scene {
    let script = [("tools/list", SHOWN), CALLED, READ];
    scene(vec![fake("a", &script), fake("b", &script)])
}

async fn ask_as(scene: &Scene, session: u64, method: &str, params: &str) -> String {
    let caller = Caller::session_of(Principal::anonymous(), SessionKey(session));
    let context = Arc::new(CallContext {
        caller,
        ..(*CallContext::internal()).clone()
    });
    scene
        .gateway
        .handle(Call {
            context,
            ..call(method, Some(params))
        })
        .await
        .body()
        .as_text()
        .to_owned()
}

/// The servers whose `refresh` was called since the last time.
fn refreshed(scene: &Scene) -> Vec<usize> {
    let call = r#"tools/call {"name":"refresh"}"#.to_owned();
    (0..scene.backends.len())
        .filter(|backend| scene.received(*backend).contains(&call))
        .collect()
}

#[tokio::test]
async fn bare_name_that_one_server_has_is_called_there() {
    let tools = r#""result":{"tools":[{"name":"refresh","inputSchema":{}}]}"#;
    let scene = scene(vec![
        fake("a", &[CALLED]),
        fake("b", &[("tools/list", tools), CALLED]),
    ]);
    scene.backends[0].answer("tools/list", r#""result":{"tools":[]}"#);
    assert_eq!(
        scene.ask("tools/call", Some(r#"{"name":"refresh"}"#)).await,
        r#"{"content":[]}"#
    );
    assert_eq!(refreshed(&scene), [1]);
    let tool = scene
        .gateway
        .tool(
            "refresh",
            &fanlight_canonical::Endpoint::Everything,
            &Default::default(),
        )
        .await
        .unwrap();
    assert_eq!(
        tool.as_text(),
        r#"{"name":"b__refresh","inputSchema":{}}"#,
        "headers are checked against it"
    );
}

#[tokio::test]
async fn bare_name_that_two_servers_have_is_refused_with_the_candidates() {
    let scene = two_with_apps();
    let body = scene.ask("tools/call", Some(r#"{"name":"refresh"}"#)).await;
    let message = "Unknown tool: refresh; several servers have one of this name, call one of: a__refresh, b__refresh";
    assert_eq!(error_of(&body), (-32602, message.into()));
    assert!(
        body.contains(r#""candidates":["a__refresh","b__refresh"]"#),
        "{body}"
    );
    assert!(refreshed(&scene).is_empty());
}

#[tokio::test]
async fn bare_name_that_two_servers_have_goes_to_the_one_whose_app_is_open() {
    for (method, params) in [
        ("resources/read", r#"{"uri":"ui://fanlight--b/board"}"#),
        ("tools/call", r#"{"name":"b__show"}"#),
    ] {
        let scene = two_with_apps();
        scene.ask("tools/list", None).await;
        ask_as(&scene, 1, method, params).await;
        assert_eq!(
            ask_as(&scene, 1, "tools/call", r#"{"name":"refresh"}"#).await,
            r#"{"content":[]}"#,
            "{method}"
        );
        assert_eq!(refreshed(&scene), [1]);
        let of_another = ask_as(&scene, 2, "tools/call", r#"{"name":"refresh"}"#).await;
        assert_eq!(
            error_of(&of_another).0,
            -32602,
            "the app is another client's"
        );
    }
}

#[tokio::test]
async fn bare_name_is_refused_when_apps_of_both_servers_are_open() {
    let scene = two_with_apps();
    for uri in ["ui://board", "ui://fanlight--b/board"] {
        ask_as(
            &scene,
            1,
            "resources/read",
            &format!(r#"{{"uri":"{uri}"}}"#),
        )
        .await;
    }
    assert_eq!(
        error_of(&ask_as(&scene, 1, "tools/call", r#"{"name":"refresh"}"#).await).0,
        -32602
    );
    // Apps that were only read ahead make no calls.
    ask_as(&scene, 1, "tools/call", r#"{"name":"a__show"}"#).await;
    ask_as(&scene, 1, "tools/call", r#"{"name":"refresh"}"#).await;
    assert_eq!(refreshed(&scene), [0]);
}

#[tokio::test]
async fn tool_that_apps_may_not_call_is_no_candidate_of_an_app() {
    let script = |tools| [("tools/list", tools), CALLED, READ];
    let hidden = r#""result":{"tools":[{"name":"refresh","_meta":{"ui":{"resourceUri":"ui://x","visibility":["model"]}}}]}"#;
    let scene = scene(vec![fake("a", &script(hidden)), fake("b", &script(SHOWN))]);
    scene.ask("tools/list", None).await;
    for uri in ["ui://x", "ui://board"] {
        ask_as(
            &scene,
            1,
            "resources/read",
            &format!(r#"{{"uri":"{uri}"}}"#),
        )
        .await;
    }
    ask_as(&scene, 1, "tools/call", r#"{"name":"refresh"}"#).await;
    assert_eq!(refreshed(&scene), [1]);
}

#[tokio::test]
async fn bare_name_is_not_taken_for_unique_while_a_list_is_missing() {
    let (a, b) = (
        fake("a", &[CALLED]),
        fake("b", &[("tools/list", SHOWN), CALLED, READ]),
    );
    a.describe_as(Err(unreachable()));
    let scene = scene(vec![a, b]);
    let body = ask_as(&scene, 1, "tools/call", r#"{"name":"refresh"}"#).await;
    assert!(error_of(&body).1.contains("could not be listed"), "{body}");
    ask_as(&scene, 1, "tools/call", r#"{"name":"b__show"}"#).await;
    ask_as(&scene, 1, "tools/call", r#"{"name":"refresh"}"#).await;
    assert_eq!(
        refreshed(&scene),
        [1],
        "the client has an app of that server"
    );
}

#[tokio::test]
async fn hidden_tool_has_no_bare_name() {
    let fakes = ["a", "b"].map(|name| Arc::new(fake(name, &[("tools/list", SHOWN), CALLED])));
    let ids = [crate::BackendId::generate(), crate::BackendId::generate()];
    let mut entries: Vec<_> = fakes
        .iter()
        .zip(ids)
        .map(|(fake, id)| entry(id, fake, None))
        .collect();
    for entry in &mut entries {
        entry.tools = offering(entry.client.name(), Some(&["show"]), &[]);
    }
    let scene = scene(vec![fake("c", &[]), fake("d", &[])]);
    scene
        .gateway
        .replace(
            entries,
            &NamingPolicy::default(),
            limits(1000),
            no_endpoints(),
            None,
        )
        .await;
    let body = scene.ask("tools/call", Some(r#"{"name":"refresh"}"#)).await;
    assert_eq!(error_of(&body), (-32602, "Unknown tool: refresh".into()));
}
