//! The placeholder tool for a server that a user has not signed in to, and the notifications after
//! the sign-in.

use fanlight_testkit::browser::Browser;
use fanlight_testkit::signing_in::{ANN, BOB, SignInSetting, WITH_KEYS, is_result, link_in};
use fanlight_testkit::slicer::{member, plain_string};

use crate::harness::within;
use crate::raw_client::{LegacySession, NEWEST_LEGACY, legacy_request};

const AUTH: &str = r#"{"type":"user","connectTool":true}"#;
const PREFIXED: &str = "naming: {style: always}\n";

/// The tool names that a user sees.
async fn listed(setting: &SignInSetting, key: Option<&str>) -> Vec<String> {
    let answer = setting.ask("tools/list", "", key).await;
    let names = answer.match_indices(r#""name":""#).map(|(at, found)| {
        answer[at + found.len()..]
            .split('"')
            .next()
            .unwrap_or_default()
            .to_owned()
    });
    names.filter(|name| name != "notes").collect()
}

async fn call_of(setting: &SignInSetting, tool: &str, key: Option<&str>) -> String {
    setting
        .ask(
            "tools/call",
            &format!(r#""name":"{tool}","arguments":{{}}"#),
            key,
        )
        .await
}

#[tokio::test]
async fn tool_stands_for_the_server_until_the_user_has_signed_in() {
    let setting = SignInSetting::start(&format!("{WITH_KEYS}{PREFIXED}"), AUTH).await;
    assert_eq!(listed(&setting, Some(ANN)).await, ["notes__connect"]);
    let answer = call_of(&setting, "notes__connect", Some(ANN)).await;
    let mut browser = Browser::default();
    let page = browser
        .open(&link_in(&answer).unwrap_or_else(|| panic!("{answer}")))
        .await;
    let sent = browser.submit(&page, &[("credential", ANN)]).await;
    assert!(
        browser
            .follow(sent)
            .await
            .text
            .contains("signed in to notes")
    );
    within("the list", async {
        while listed(&setting, Some(ANN)).await != ["notes__t"] {}
    })
    .await;
    let answer = call_of(&setting, "notes__connect", Some(ANN)).await;
    assert!(
        is_result(&answer) && answer.contains("Already connected"),
        "{answer}"
    );
    assert!(
        setting.credentials().is_empty(),
        "the server has no such tool, and is not asked for it"
    );
    // Another user's sign-in changes nothing for this user.
    assert_eq!(listed(&setting, Some(BOB)).await, ["notes__connect"]);
    assert!(link_in(&call_of(&setting, "notes__connect", Some(BOB)).await).is_some());
}

#[tokio::test]
async fn servers_own_tool_of_that_name_is_called() {
    let setting = SignInSetting::start("", AUTH).await;
    setting.backend.offers_tools(&["t", "connect"]);
    assert_eq!(listed(&setting, None).await, ["connect"]);
    setting.sign_in(None).await;
    within("the list", async {
        while listed(&setting, None).await != ["t", "connect"] {}
    })
    .await;
    assert!(is_result(&call_of(&setting, "connect", None).await));
    assert_eq!(setting.credentials(), ["Bearer token-1"]);
}

#[tokio::test]
async fn client_with_an_old_list_is_told_that_its_user_is_connected() {
    let setting = SignInSetting::start("", AUTH).await;
    assert_eq!(listed(&setting, None).await, ["connect"]);
    setting.sign_in(None).await;
    let answer = call_of(&setting, "connect", None).await;
    assert!(answer.contains("Already connected"), "{answer}");
    assert_eq!(listed(&setting, None).await, ["t"]);
    let answer = call_of(&setting, "connect", None).await;
    assert!(
        answer.contains("Already connected"),
        "{answer}\n{}",
        setting.gateway.log.text()
    );
}

#[tokio::test]
async fn tool_falls_under_the_rules_about_the_servers_tools() {
    let rules = r#"{"type":"user","connectTool":true},"tools":{"deny":["connect"]}"#;
    let setting = SignInSetting::start(PREFIXED, rules).await;
    assert!(listed(&setting, None).await.is_empty());
    let answer = call_of(&setting, "notes__connect", None).await;
    assert!(
        answer.contains("Unknown tool") && link_in(&answer).is_none(),
        "{answer}"
    );
}

#[tokio::test]
async fn server_without_the_option_lists_nothing_before() {
    let setting = SignInSetting::local().await;
    assert!(listed(&setting, None).await.is_empty());
}

#[tokio::test]
async fn session_is_told_that_its_elicitation_is_complete_and_its_list_has_changed() {
    let setting = SignInSetting::start("", AUTH).await;
    let capabilities = r#"{"elicitation":{"url":{}}}"#;
    let session = LegacySession::open_with(setting.gateway.mcp, NEWEST_LEGACY, capabilities).await;
    let mut stream = session.stream(None).await;
    let ask = async |id: &str, method: &str, params: &str| {
        let mut response = session.post(&legacy_request(id, method, params)).await;
        response.messages().await.1
    };
    assert!(ask("1", "tools/list", "").await.contains(r#""connect""#));
    let answer = ask("2", "tools/call", r#""name":"connect","arguments":{}"#).await;
    assert_eq!(member(&answer, "error.code"), Some("-32042"), "{answer}");
    let id = member(&answer, "error.data.elicitations")
        .and_then(|all| all.split(r#""elicitationId":""#).nth(1));
    let id = id
        .and_then(|rest| rest.split('"').next())
        .unwrap_or_else(|| panic!("{answer}"));
    setting.sign_in(None).await;
    let (mut is_complete, mut is_changed) = (false, false);
    while !(is_complete && is_changed) {
        let told = within("a notification", stream.event())
            .await
            .unwrap()
            .unwrap();
        match member(&told, "method").and_then(plain_string) {
            Some("notifications/elicitation/complete") => {
                assert_eq!(
                    member(&told, "params.elicitationId").and_then(plain_string),
                    Some(id),
                    "{told}"
                );
                is_complete = true;
            }
            Some("notifications/tools/list_changed") => is_changed = true,
            _ => {}
        }
    }
}
