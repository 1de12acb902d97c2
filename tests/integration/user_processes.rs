//! Stdio servers with one process per user, whose environment has the user's granted or deposited
//! credential.

use std::fs;
use std::path::Path;

use fanlight_testkit::browser::{Browser, Page};
use fanlight_testkit::signing_in::{ANN, BOB, SignInSetting, WITH_KEYS, is_result, link_in};
use serde_json::{Value, json};

use crate::harness::TempFile;
use crate::scripted::{Backend, Era, Reply, Transport};

/// A stdio server called `own`, whose processes each write the variable `TOKEN` to a file.
struct Own {
    server: Backend,
    tokens: TempFile,
}

impl Own {
    async fn start(era: Era) -> Self {
        let server = Backend::start(era, Transport::Stdio).await;
        server.offers_tools(&["u"]);
        server.on("tools/call", Reply::result(era.complete(r#""content":[]"#)));
        Self {
            server,
            tokens: TempFile::new("txt", ""),
        }
    }

    /// Its entry in the configuration, with more members.
    fn entry(&self, more: &str) -> String {
        let entry: Value =
            serde_json::from_str(&format!("{{{}}}", self.server.entry("own"))).unwrap();
        let (command, args) = (
            &entry["own"]["command"],
            entry["own"]["args"].as_array().unwrap(),
        );
        let note = format!(
            "printf '%s\\n' \"$TOKEN\" >> '{}'; exec \"$0\" \"$@\"",
            self.tokens.path().display()
        );
        let args: Vec<Value> = [json!("-c"), json!(note), command.clone()]
            .into_iter()
            .chain(args.clone())
            .collect();
        format!(r#""own":{{"command":"sh","args":{},{more}}}"#, json!(args))
    }

    /// The tokens of its processes, in order.
    fn tokens(&self) -> Vec<String> {
        read(self.tokens.path())
    }
}

fn read(path: &Path) -> Vec<String> {
    fs::read_to_string(path)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// A setting that has the server beside `notes`.
async fn beside_notes(own: &Own, more: &str) -> SignInSetting {
    // The harness closes the entry of `notes`, so the last entry here stays open.
    let entry = own.entry(more);
    let auth = format!(
        r#"{{"type":"user"}}}},{}"#,
        entry.strip_suffix('}').unwrap()
    );
    SignInSetting::start(WITH_KEYS, &auth).await
}

async fn call(setting: &SignInSetting, key: &str) -> String {
    setting
        .ask("tools/call", r#""name":"own__u","arguments":{}"#, Some(key))
        .await
}

/// Lets a user agree on the page that a call links to.
async fn agree(setting: &SignInSetting, key: &str, more: &[(&str, &str)]) -> (Browser, Page) {
    let answer = call(setting, key).await;
    let link = link_in(&answer)
        .unwrap_or_else(|| panic!("no link in {answer}\n{}", setting.gateway.log.text()));
    let mut browser = Browser::default();
    let page = browser.open(&link).await;
    let fields: Vec<_> = [("credential", key)]
        .into_iter()
        .chain(more.iter().copied())
        .collect();
    let answer = browser.submit(&page, &fields).await;
    (browser, answer)
}

async fn sign_in(setting: &SignInSetting, key: &str) {
    let (mut browser, sent) = agree(setting, key, &[]).await;
    let done = browser.follow(sent).await;
    assert!(done.text.contains("signed in to notes"), "{done:?}");
}

#[tokio::test]
async fn each_user_has_a_process_with_their_own_token() {
    for era in [Era::Modern, Era::Legacy] {
        let own = Own::start(era).await;
        let setting = beside_notes(&own, r#""env":{"TOKEN":"${user:notes}"}"#).await;
        sign_in(&setting, ANN).await;
        let answer = call(&setting, ANN).await;
        assert!(
            is_result(&answer),
            "{answer}\n{}",
            setting.gateway.log.text()
        );
        assert!(
            link_in(&call(&setting, BOB).await).is_some(),
            "one user's process serves another"
        );
        sign_in(&setting, BOB).await;
        for key in [BOB, ANN, BOB] {
            assert!(is_result(&call(&setting, key).await));
        }
        let mut tokens = own.tokens();
        tokens.sort();
        tokens.dedup();
        assert_eq!(
            tokens,
            ["token-1", "token-2"],
            "{}",
            setting.gateway.log.text()
        );
        assert!(!setting.gateway.log.text().contains("token-1"));
    }
}

#[tokio::test]
async fn process_of_a_user_who_signs_out_is_not_used_any_more() {
    let own = Own::start(Era::Modern).await;
    let setting = beside_notes(&own, r#""env":{"TOKEN":"${user:notes}"}"#).await;
    sign_in(&setting, ANN).await;
    sign_in(&setting, BOB).await;
    assert!(is_result(&call(&setting, ANN).await) && is_result(&call(&setting, BOB).await));
    let mut browser = Browser::default();
    let url = format!("http://{}/connections", setting.gateway.mcp);
    let page = browser.open(&url).await;
    let page = browser.submit(&page, &[("credential", ANN)]).await;
    browser.submit(&page, &[("action", "sign-out")]).await;
    assert!(link_in(&call(&setting, ANN).await).is_some());
    // Another token makes another process, for this user only.
    sign_in(&setting, ANN).await;
    assert!(is_result(&call(&setting, ANN).await) && is_result(&call(&setting, BOB).await));
    assert_eq!(
        own.tokens()
            .iter()
            .filter(|token| *token == "token-3")
            .count(),
        1,
        "{:?}",
        own.tokens()
    );
    assert_eq!(
        own.tokens()
            .iter()
            .filter(|token| *token == "token-2")
            .count(),
        1,
        "{:?}",
        own.tokens()
    );
}

#[tokio::test]
async fn user_deposits_a_key_for_a_process() {
    let own = Own::start(Era::Modern).await;
    let more = r#""auth":{"type":"userKey"},"env":{"TOKEN":"${user:own}"}"#;
    let setting = beside_notes(&own, more).await;
    let (_, done) = agree(&setting, ANN, &[("key", "key-of-ann")]).await;
    assert!(done.text.contains("is stored"), "{done:?}");
    let answer = call(&setting, ANN).await;
    assert!(
        is_result(&answer),
        "{answer}\n{}",
        setting.gateway.log.text()
    );
    assert_eq!(own.tokens(), ["key-of-ann"]);
    assert!(link_in(&call(&setting, BOB).await).is_some());
}
