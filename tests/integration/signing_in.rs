//! Servers that each user signs in to, through the real binary: the link, the pages, the tokens,
//! and the store.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fanlight_testkit::authorization_server::AuthorizationServer;
use fanlight_testkit::browser::Browser;
use fanlight_testkit::issuer::Conduct;
use fanlight_testkit::scripted::{Protection, REFUSED, Verdict};
use fanlight_testkit::signing_in::{ANN, BOB, SignInSetting, WITH_KEYS, call, is_result, link_in};
use fanlight_testkit::slicer::member;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::raw_client::{
    Connection, StdioClient, modern_request, modern_request_with, post_modern,
};
use crate::scripted::{Backend, Era, Transport};

#[tokio::test]
async fn user_of_this_machine_signs_in_by_a_link() {
    let setting = SignInSetting::local().await;
    let link = setting.link(None).await;
    assert!(
        link.starts_with(&format!("http://{}/connect/", setting.gateway.mcp)),
        "{link}"
    );
    let mut browser = Browser::default();
    let page = browser.open(&link).await;
    assert!(
        page.status == 200 && page.text.contains("notes"),
        "{page:?}"
    );
    assert!(page.text.contains(setting.authorization.url()), "{page:?}");
    assert!(
        setting.authorization.asked("/authorize").is_empty(),
        "nothing is begun by the link alone"
    );
    let sent = browser.submit(&page, &[]).await;
    assert_eq!(sent.status, 303, "{sent:?}\n{}", setting.gateway.log.text());
    let done = browser.follow(sent).await;
    assert!(
        done.status == 200 && done.text.contains("signed in to notes"),
        "{done:?}\n{}",
        setting.gateway.log.text()
    );
    let answer = setting.call(None).await;
    assert!(
        is_result(&answer),
        "{answer}\n{}",
        setting.gateway.log.text()
    );
    assert_eq!(setting.credentials(), ["Bearer token-1"]);
    let [asked] = &setting.authorization.asked("/authorize")[..] else {
        panic!("asked once")
    };
    assert_eq!(
        asked.parameter("resource"),
        Some(setting.backend.url().as_str())
    );
    assert_eq!(asked.parameter("code_challenge_method"), Some("S256"));
    let redirect_uri = asked.parameter("redirect_uri").unwrap();
    let shared = format!("http://{}/oauth/callback/", setting.gateway.mcp);
    let own = redirect_uri.strip_prefix(&shared).unwrap();
    assert_eq!(own.len(), 32, "it is the issuer's own: {redirect_uri}");
    let log = setting.gateway.log.text();
    assert!(
        !log.contains("token-1") && !log.contains("refresh-1"),
        "{log}"
    );
    let expected = [
        r#""target":"audit""#,
        r#""what":"sign-in at a server""#,
        r#""about":"notes""#,
    ];
    setting.gateway.log.line_with_all(&expected).await;
}

/// Passes on connections, each with one request, to the gateway. It removes the prefix `/gate`, as
/// a reverse proxy does.
fn strip_prefix(proxy: TcpListener, gateway: SocketAddr) {
    tokio::spawn(async move {
        while let Ok((mut client, _)) = proxy.accept().await {
            let mut head = Vec::new();
            while !head.windows(4).any(|part| part == b"\r\n\r\n") {
                assert_ne!(client.read_buf(&mut head).await.unwrap(), 0);
            }
            let head = String::from_utf8(head)
                .unwrap()
                .replacen(" /gate/", " /", 1);
            let mut server = TcpStream::connect(gateway).await.unwrap();
            server.write_all(head.as_bytes()).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
        }
    });
}

#[tokio::test]
async fn user_signs_in_behind_a_proxy_with_a_prefix() {
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let public = format!("http://{}/gate", proxy.local_addr().unwrap());
    let setting =
        SignInSetting::start(&format!("publicUrl: {public}\n"), r#"{"type":"user"}"#).await;
    strip_prefix(proxy, setting.gateway.mcp);
    let link = setting.link(None).await;
    assert!(link.starts_with(&format!("{public}/connect/")), "{link}");
    let mut browser = Browser::default();
    let page = browser.open(&link).await;
    let cookie = page.header("set-cookie").unwrap_or_default();
    assert!(cookie.contains("; Path=/gate; "), "{page:?}");
    let sent = browser.submit(&page, &[]).await;
    let done = browser.follow(sent).await;
    assert!(done.text.contains("signed in to notes"), "{done:?}");
    assert!(is_result(&setting.call(None).await));
    let asked = &setting.authorization.asked("/authorize")[0];
    let redirect_uri = asked.parameter("redirect_uri").unwrap();
    assert!(
        redirect_uri.starts_with(&format!("{public}/oauth/callback/")),
        "{redirect_uri}"
    );
    let listed = browser.open(&format!("{public}/connections")).await;
    assert!(
        !listed.text.contains("=\"/"),
        "links keep the prefix: {listed:?}"
    );
}

#[tokio::test]
async fn retry_that_accepts_its_link_waits_until_the_user_has_followed_it() {
    let setting = SignInSetting::local().await;
    let ask = async |more: &str| {
        let params = format!(r#""name":"t","arguments":{{}}{more}"#);
        let capabilities = r#"{"elicitation":{"url":{}}}"#;
        let body = modern_request_with(capabilities, "1", "tools/call", &params, "");
        let mut answer = post_modern(setting.gateway.mcp, &body).await;
        answer.messages().await.1
    };
    let asked = ask("").await;
    let link = link_in(&asked).unwrap_or_else(|| panic!("no link in {asked}"));
    let state = member(&asked, "result.requestState").unwrap();
    let accepted = r#""inputResponses":{"input-1":{"action":"accept"}}"#;
    let retry = format!(r#","requestState":{state},{accepted}"#);
    let follow = async {
        let mut browser = Browser::default();
        let page = browser.open(&link).await;
        let sent = browser.submit(&page, &[]).await;
        assert_eq!(browser.follow(sent).await.status, 200);
    };
    let (answer, ()) = tokio::join!(ask(&retry), follow);
    assert!(is_result(&answer), "{answer}");
}

#[tokio::test]
async fn check_says_by_its_exit_status_that_only_a_user_is_missing() {
    let setting = SignInSetting::local().await;
    let config = setting.config();
    let check = async || {
        let mut command = fanlight();
        let output = command.arg("check").arg("--config").arg(&config).output();
        output.await.unwrap()
    };
    let output = check().await;
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = std::fs::read_to_string(&config).unwrap();
    let more = "mcpServers: {gone: {command: /nonexistent/server},";
    std::fs::write(&config, text.replacen("mcpServers: {", more, 1)).unwrap();
    let output = check().await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[tokio::test]
async fn each_user_reaches_the_server_with_their_own_token() {
    let setting = SignInSetting::with_keys().await;
    setting.sign_in(Some(ANN)).await;
    assert!(is_result(&setting.call(Some(ANN)).await));
    let answer = setting.call(Some(BOB)).await;
    assert!(link_in(&answer).is_some(), "{answer}");
    setting.sign_in(Some(BOB)).await;
    for _ in 0..3 {
        assert!(is_result(&setting.call(Some(BOB)).await));
        assert!(is_result(&setting.call(Some(ANN)).await));
    }
    let (ann, bob) = ("Bearer token-1", "Bearer token-2");
    assert_eq!(setting.credentials(), [ann, bob, ann, bob, ann, bob, ann]);
}

#[tokio::test]
async fn many_calls_at_once_renew_a_grant_once() {
    let setting = SignInSetting::local().await;
    setting.sign_in(None).await;
    assert!(is_result(&setting.call(None).await));
    setting.authorization.revoke_all();
    let answers = join_all((0..200).map(|_| setting.call(None))).await;
    for answer in &answers {
        assert!(
            is_result(answer),
            "{answer}\n{}",
            setting.gateway.log.text()
        );
    }
    assert_eq!(setting.asked_for_tokens("refresh_token"), 1);
    assert!(
        setting
            .credentials()
            .iter()
            .skip(1)
            .all(|shown| shown == "Bearer token-2")
    );
}

#[tokio::test]
async fn gateways_that_share_a_folder_renew_a_grant_once() {
    let setting = SignInSetting::local().await;
    setting.sign_in(None).await;
    let other = setting.another().await;
    assert!(is_result(&setting.call(None).await) && is_result(&call(&other, None).await));
    setting.authorization.revoke_all();
    let answers = join_all((0..20).map(|at| {
        call(
            if at % 2 == 0 {
                &setting.gateway
            } else {
                &other
            },
            None,
        )
    }))
    .await;
    for answer in &answers {
        assert!(
            is_result(answer),
            "{answer}\n{}\n{}",
            setting.gateway.log.text(),
            other.log.text()
        );
    }
    assert_eq!(setting.asked_for_tokens("refresh_token"), 1);
}

#[tokio::test]
async fn server_that_wants_more_scopes_gets_those_and_the_ones_held() {
    let setting = SignInSetting::start("", r#"{"type":"user","scopes":["read"]}"#).await;
    let url = setting.backend.url();
    let mut protection = Protection::by_token(&url, setting.authorization.url(), |_| true);
    protection.accepts = Arc::new(|received| {
        match (
            received.header("authorization"),
            received.text.contains("call"),
        ) {
            (None, _) => Verdict::Unauthorized,
            (Some("Bearer token-1"), true) => {
                let challenge = r#"Bearer error="insufficient_scope", scope="write""#;
                Verdict::Refused(403, vec![("www-authenticate", challenge.to_owned())])
            }
            (Some(_), _) => Verdict::Accepted,
        }
    });
    setting.backend.protect(protection);
    setting.sign_in(None).await;
    let mut browser = Browser::default();
    let page = setting.page(&mut browser, None).await;
    assert!(page.text.contains("read write"), "{page:?}");
    let sent = browser.submit(&page, &[]).await;
    assert_eq!(browser.follow(sent).await.status, 200);
    assert!(
        is_result(&setting.call(None).await),
        "{}",
        setting.gateway.log.text()
    );
    let scopes: Vec<_> = setting.authorization.asked("/authorize");
    let scopes: Vec<_> = scopes
        .iter()
        .map(|asked| asked.parameter("scope").unwrap_or_default())
        .collect();
    assert_eq!(scopes, ["read", "read write"]);
}

#[tokio::test]
async fn rotated_refresh_token_survives_a_kill() {
    let mut setting = SignInSetting::local().await;
    setting.sign_in(None).await;
    for round in 0..3 {
        setting.authorization.revoke_all();
        assert!(
            is_result(&setting.call(None).await),
            "round {round}\n{}",
            setting.gateway.log.text()
        );
        setting.restart().await;
    }
    assert!(
        is_result(&setting.call(None).await),
        "{}",
        setting.gateway.log.text()
    );
    let asked = setting.authorization.asked("/token");
    let used: Vec<_> = asked
        .iter()
        .filter_map(|asked| asked.parameter("refresh_token"))
        .collect();
    assert_eq!(used, ["refresh-1", "refresh-2", "refresh-3"]);
    assert_eq!(setting.asked_for_tokens("authorization_code"), 1);
}

#[tokio::test]
async fn pending_sign_in_survives_a_restart() {
    let mut setting = SignInSetting::local().await;
    let mut browser = Browser::default();
    let sent = setting.agree(&mut browser, None).await;
    setting.restart().await;
    let done = browser.follow(sent).await;
    assert!(
        done.status == 200,
        "{done:?}\n{}",
        setting.gateway.log.text()
    );
    assert!(
        is_result(&setting.call(None).await),
        "{}",
        setting.gateway.log.text()
    );
}

#[tokio::test]
async fn user_whose_grant_was_revoked_signs_in_again() {
    let setting = SignInSetting::local().await;
    setting.sign_in(None).await;
    assert!(is_result(&setting.call(None).await));
    let calls = AtomicUsize::new(0);
    setting
        .authorization
        .on_token(move |asked| match asked.parameter("grant_type") {
            Some("refresh_token") => (400, json!({ "error": "invalid_grant" })),
            _ => {
                let token = format!("new-{}", calls.fetch_add(1, Ordering::SeqCst));
                (
                    200,
                    json!({ "access_token": token, "token_type": "Bearer" }),
                )
            }
        });
    setting.authorization.revoke_all();
    assert!(link_in(&setting.call(None).await).is_some());
    setting.sign_in(None).await;
    assert!(
        is_result(&setting.call(None).await),
        "{}",
        setting.gateway.log.text()
    );
    assert_eq!(setting.credentials().last().unwrap(), "Bearer new-0");
}

#[tokio::test]
async fn client_that_its_authorization_server_has_forgotten_is_registered_anew() {
    let setting = SignInSetting::local().await;
    setting
        .authorization
        .on_token(|_| (401, json!({ "error": "invalid_client" })));
    let mut browser = Browser::default();
    let sent = setting.agree(&mut browser, None).await;
    browser.follow(sent).await;
    let registered = || setting.authorization.asked("/register").len();
    assert_eq!(registered(), 1);
    let tokens = json!({ "access_token": "new", "token_type": "Bearer" });
    setting
        .authorization
        .on_token(move |_| (200, tokens.clone()));
    setting.sign_in(None).await;
    assert_eq!(registered(), 2);
    assert!(is_result(&setting.call(None).await));
}

/// The client's own fault does not mend itself, and some authorization servers lock out clients
/// that keep trying.
#[tokio::test]
async fn authorization_server_that_refuses_a_renewal_is_not_asked_for_each_call() {
    let unsendable = json!({ "access_token": "\u{1}", "token_type": "Bearer" });
    let answers = [
        (401, json!({ "error": "invalid_client" })),
        (500, json!({})),
        (200, unsendable),
    ];
    join_all(answers.into_iter().map(async |answer| {
        let setting = SignInSetting::local().await;
        setting
            .authorization
            .grants_with(json!({ "expires_in": 6 }));
        setting.sign_in(None).await;
        assert!(is_result(&setting.call(None).await));
        let text = format!("{answer:?}");
        setting.authorization.on_token(move |_| answer.clone());
        let asked = || setting.asked_for_tokens("refresh_token");
        // The gateway renews the token early, halfway through its lifetime.
        within("a renewal", async {
            while asked() == 0 {
                setting.call(None).await;
            }
        })
        .await;
        for _ in 0..100 {
            setting.call(None).await;
        }
        assert!(asked() < 25, "{text}: asked {} times", asked());
    }))
    .await;
}

#[tokio::test]
async fn rotated_secret_of_the_client_is_shown_by_users_who_are_connected() {
    let setting = SignInSetting::local().await;
    let with_secret = |secret: &str| {
        let issuer = setting.authorization.url();
        format!(r#"{{"type":"user","issuer":"{issuer}","clientId":"c","clientSecret":"{secret}"}}"#)
    };
    setting
        .reconfigure(r#"{"type":"user"}"#, &with_secret("first-secret"))
        .await;
    setting.sign_in(None).await;
    assert!(
        is_result(&setting.call(None).await),
        "{}",
        setting.gateway.log.text()
    );
    // The authorization server refuses the old client, and the gateway remembers that for a minute.
    setting.authorization.conduct(
        "/token",
        Conduct::Text(r#"{"error":"invalid_client"}"#.to_owned()),
    );
    setting.authorization.revoke_all();
    assert!(setting.call(None).await.contains("\"error\""));
    setting.authorization.conduct("/token", Conduct::Good);
    setting.reconfigure("first-secret", "second-secret").await;
    assert!(
        is_result(&setting.call(None).await),
        "{}",
        setting.gateway.log.text()
    );
    let asked = setting.authorization.asked("/token");
    let shown: Vec<_> = asked
        .iter()
        .map(|asked| asked.header("authorization").unwrap_or(&asked.body))
        .collect();
    assert!(
        shown.len() == 3 && shown[0] == shown[1] && shown[1] != shown[2],
        "{shown:?}"
    );
}

#[tokio::test]
async fn sign_out_during_a_renewal_gives_the_new_tokens_back() {
    let setting = SignInSetting::local().await;
    setting.sign_in(None).await;
    setting.authorization.revoke_all();
    setting.authorization.conduct("/token", Conduct::Slow);
    let asked = setting.authorization.asked("/token").len();
    let sign_out = async {
        setting.authorization.wait_for("/token", asked + 1).await;
        printed(&setting, &["logout", "notes"]).await;
        setting.authorization.conduct("/token", Conduct::Good);
    };
    let (answer, ()) = tokio::join!(setting.call(None), sign_out);
    assert!(link_in(&answer).is_some(), "{answer}");
    let revoked = setting.authorization.wait_for("/revoke", 4).await;
    let revoked: Vec<_> = revoked
        .iter()
        .filter_map(|asked| asked.parameter("token"))
        .collect();
    assert_eq!(revoked, ["refresh-1", "token-1", "refresh-2", "token-2"]);
}

#[tokio::test]
async fn provider_that_is_down_for_a_while_ends_no_grant() {
    let setting = SignInSetting::local().await;
    setting.sign_in(None).await;
    setting.authorization.revoke_all();
    setting
        .authorization
        .conduct("/token", Conduct::Status(503));
    let answer = setting.call(None).await;
    assert!(
        answer.contains("\"error\"") && link_in(&answer).is_none(),
        "{answer}"
    );
    setting.authorization.conduct("/token", Conduct::Good);
    // After a failure the gateway does not ask the authorization server for a moment.
    within("a result", async {
        while !is_result(&setting.call(None).await) {}
    })
    .await;
    assert_eq!(setting.asked_for_tokens("authorization_code"), 1);
}

#[tokio::test]
async fn user_deposits_a_key() {
    let auth = r#"{"type":"userKey","header":"X-Api-Key","prefix":"key "}"#;
    let setting = SignInSetting::start(WITH_KEYS, auth).await;
    setting.backend.protect(Protection {
        resource: None,
        challenge: "Bearer".into(),
        accepts: Arc::new(|received| match received.header("x-api-key") {
            Some("key of ann") => Verdict::Accepted,
            _ => Verdict::Unauthorized,
        }),
    });
    let mut browser = Browser::default();
    let page = setting.page(&mut browser, Some(ANN)).await;
    let done = browser
        .submit(&page, &[("credential", ANN), ("key", "of ann")])
        .await;
    assert!(
        done.status == 200 && done.text.contains("is stored"),
        "{done:?}"
    );
    assert!(
        is_result(&setting.call(Some(ANN)).await),
        "{}",
        setting.gateway.log.text()
    );
    assert!(link_in(&setting.call(Some(BOB)).await).is_some());
    let state = std::fs::read(setting.folder.path().join("state/grants.redb")).unwrap();
    assert!(
        !state.windows(6).any(|part| part == b"of ann"),
        "the key is kept in the clear"
    );
}

#[tokio::test]
async fn user_sees_connections_and_signs_out() {
    let setting = SignInSetting::with_keys().await;
    setting.sign_in(Some(ANN)).await;
    assert!(is_result(&setting.call(Some(ANN)).await));
    let mut browser = Browser::default();
    let url = format!("http://{}/connections", setting.gateway.mcp);
    let page = browser.open(&url).await;
    assert!(!page.text.contains("signed in at"), "{page:?}");
    let page = browser.submit(&page, &[("credential", ANN)]).await;
    assert!(
        page.text.contains("signed in at") && page.text.contains(setting.authorization.url()),
        "{page:?}"
    );
    // The browser now has a session.
    let page = browser.open(&url).await;
    let page = browser.submit(&page, &[("action", "sign-out")]).await;
    assert!(page.text.contains("not signed in"), "{page:?}");
    let revoked: Vec<_> = setting.authorization.asked("/revoke");
    let revoked: Vec<_> = revoked
        .iter()
        .filter_map(|asked| asked.parameter("token"))
        .collect();
    assert_eq!(revoked, ["refresh-1", "token-1"]);
    assert!(link_in(&setting.call(Some(ANN)).await).is_some());
}

/// Runs a command with the configuration.
async fn run(setting: &SignInSetting, arguments: &[&str]) -> Output {
    let mut command = fanlight();
    command
        .args(arguments)
        .arg("--config")
        .arg(setting.config());
    within("the command", command.output()).await.unwrap()
}

/// A command's standard output.
async fn printed(setting: &SignInSetting, arguments: &[&str]) -> String {
    let output = run(setting, arguments).await;
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn only_user_signs_in_and_out_from_the_command_line() {
    let setting = SignInSetting::local().await;
    let valid = Arc::clone(&setting.authorization);
    let (url, issuer) = (setting.backend.url(), setting.authorization.url());
    let mut protection = Protection::by_token(&url, issuer, move |token| valid.is_valid(token));
    protection.challenge = r#"Bearer scope="notes:read""#.to_owned();
    setting.backend.protect(protection);
    assert!(link_in(&setting.call(None).await).is_some());
    let (mut login, location) = setting.login().await;
    let mut browser = Browser::default();
    let sent = browser.open(&location).await;
    let back = sent.location();
    assert_eq!(
        setting.authorization.asked("/authorize")[0].parameter("scope"),
        Some("notes:read")
    );
    // A redirect with another `state` is not accepted.
    let foreign = browser.open(&back.replace("state=", "state=x")).await;
    assert_eq!(foreign.status, 404);
    assert_eq!(browser.open(&back).await.status, 200);
    assert!(
        within("the end of the command", login.wait())
            .await
            .unwrap()
            .success()
    );
    // The running gateway picks up the grant by itself.
    let answer = setting.call(None).await;
    assert!(
        is_result(&answer),
        "{answer}\n{}",
        setting.gateway.log.text()
    );

    let shown: Value =
        serde_json::from_str(&printed(&setting, &["connections", "--json"]).await).unwrap();
    assert_eq!(shown[0]["server"], "notes");
    assert_eq!(shown[0]["issuer"], setting.authorization.url());
    let exported = printed(&setting, &["state", "export"]).await;
    assert!(
        exported.contains("\"notes\"") && !exported.contains("token-"),
        "{exported}"
    );
    printed(&setting, &["logout", "notes"]).await;
    assert_eq!(setting.authorization.asked("/revoke").len(), 2);
    assert!(link_in(&setting.call(None).await).is_some());
    assert!(
        printed(&setting, &["state", "purge"])
            .await
            .contains("removed")
    );
}

/// Removal needs no key, so a locked keyring does not prevent it.
#[tokio::test]
async fn grants_can_be_removed_while_the_keyring_is_locked() {
    let setting = SignInSetting::local().await;
    setting.sign_in(None).await;
    assert!(
        printed(&setting, &["state", "export"])
            .await
            .contains("\"notes\"")
    );
    let note = setting.folder.path().join("state").join("sealing-key");
    std::fs::write(&note, "keyring\nno such key\n0011223344556677").unwrap();
    std::fs::set_permissions(&note, std::fs::Permissions::from_mode(0o600)).unwrap();
    // The folder's own key is gone, as with a keyring.
    std::fs::remove_file(note.with_file_name("key")).unwrap();
    let output = run(&setting, &["state", "export"]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("cannot read the key"),
        "{said}"
    );
    let output = run(&setting, &["state", "purge"]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("which the audit log therefore lacks"),
        "{said}"
    );
    // The audit log says that there was a user, and has its last line.
    let lines =
        std::fs::read_to_string(setting.folder.path().join("state/audit/audit-2.jsonl")).unwrap();
    assert!(
        lines.contains("1 record of users") && lines.contains(r#""event":"stop""#),
        "{lines}"
    );
    std::fs::remove_file(&note).unwrap();
    assert!(
        !printed(&setting, &["state", "export"])
            .await
            .contains("\"notes\"")
    );
    // A running gateway looks once a second.
    within("a link", async {
        while link_in(&setting.call(None).await).is_none() {}
    })
    .await;
}

#[tokio::test]
async fn client_over_stdio_is_told_how_to_sign_in() {
    let setting = SignInSetting::local().await;
    let text = std::fs::read_to_string(setting.config()).unwrap();
    // A separate gateway uses the same folder.
    let state = format!(
        "stateDir: {}",
        setting.folder.path().join("state").display()
    );
    let is_listener = |line: &&str| line.starts_with("listen") || line.starts_with("admin");
    let lines: Vec<_> = text.lines().filter(|line| !is_listener(line)).collect();
    let mut gateway = Gateway::stdio(&lines.join("\n").replace("stateDir: state", &state));
    let mut client = StdioClient::new(&mut gateway);
    let call = modern_request("1", "tools/call", r#""name":"t","arguments":{}"#, "");
    let (_, answer) = client.call(&call).await;
    assert!(
        answer.contains("fanlight login notes") && link_in(&answer).is_none(),
        "{answer}"
    );
    setting.sign_in(None).await;
    within("a result", async {
        while !is_result(&client.call(&call).await.1) {}
    })
    .await;
}

#[tokio::test]
async fn call_while_its_user_signs_in_goes_on_by_itself() {
    let setting = SignInSetting::with_keys().await;
    let mut browser = Browser::default();
    let sent = setting.agree(&mut browser, Some(ANN)).await;
    let (answer, done) = tokio::join!(setting.call(Some(ANN)), browser.follow(sent));
    assert!(
        is_result(&answer),
        "{answer}\n{}",
        setting.gateway.log.text()
    );
    assert_eq!(done.status, 200);
    // No other user waits for the sign-in.
    assert!(link_in(&setting.call(Some(BOB)).await).is_some());
}

#[tokio::test]
async fn call_while_its_user_gives_up_is_answered_with_a_link() {
    let setting = SignInSetting::local().await;
    let mut browser = Browser::default();
    let sent = setting.agree(&mut browser, None).await;
    let back = browser.open(&sent.location()).await.location();
    let denied = back.replace("code=", "error=access_denied&x=");
    let (answer, page) = tokio::join!(setting.call(None), browser.open(&denied));
    assert!(
        link_in(&answer).is_some(),
        "{answer}\n{}",
        setting.gateway.log.text()
    );
    assert!(
        page.status == 403 && page.text.contains("access_denied"),
        "{page:?}"
    );
}

#[tokio::test]
async fn server_that_has_moved_to_another_authorization_server_is_signed_in_to_there() {
    let setting = SignInSetting::local().await;
    setting.sign_in(None).await;
    assert!(is_result(&setting.call(None).await));
    let other = Arc::new(AuthorizationServer::start().await);
    let valid = Arc::clone(&other);
    let url = setting.backend.url();
    setting
        .backend
        .protect(Protection::by_token(&url, other.url(), move |token| {
            valid.is_valid(token)
        }));
    let registered = setting.authorization.asked("/register").len();
    setting.authorization.revoke_all();
    setting.sign_in(None).await;
    assert!(
        is_result(&setting.call(None).await),
        "{}",
        setting.gateway.log.text()
    );
    // The gateway has registered as a new client.
    assert_eq!(
        (
            other.asked("/authorize").len(),
            other.asked("/register").len()
        ),
        (1, 1)
    );
    assert_eq!(setting.authorization.asked("/register").len(), registered);
}

#[tokio::test]
async fn sign_in_from_the_command_line_that_cannot_be_carried_out_says_why() {
    let folder = TempFile::folder();
    let file = folder.path().join("fanlight.yaml");
    let closed = fanlight_testkit::ports::free();
    let text = format!(
        "stateDir: state\nmcpServers: {{notes: {{url: \"http://{closed}/mcp\", auth: {{type: user}}}}}}\n"
    );
    std::fs::write(&file, text).unwrap();
    let mut command = fanlight();
    command
        .args(["login", "notes", "--no-browser", "--config"])
        .arg(&file)
        .stdin(Stdio::null());
    let output = within("login", command.output()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("the sign-in failed: "),
        "{said}"
    );
    assert!(!said.contains("log"), "{said}");
}

/// The text and the JSON of `fanlight check` about signing in to the servers with these entries.
async fn checked(entries: &[String]) -> (String, Value) {
    let file = TempFile::new("json", &crate::scripted::config(entries));
    let run = async |more: &[&str]| {
        let mut command = fanlight();
        command
            .args(["check", "--config"])
            .arg(file.path())
            .args(more);
        String::from_utf8(within("check", command.output()).await.unwrap().stdout).unwrap()
    };
    let text = run(&[]).await;
    let found: Value = serde_json::from_str(&run(&["--json"]).await).unwrap();
    (text, found)
}

#[tokio::test]
async fn check_shows_the_requirements_of_signing_in() {
    let authorization = AuthorizationServer::start().await;
    let (closed, open) = (
        Backend::start(Era::Modern, Transport::Http).await,
        Backend::start(Era::Modern, Transport::Http).await,
    );
    closed.protect(Protection::by_token(
        &closed.url(),
        authorization.url(),
        |token| token == "secret-token",
    ));
    let asked_without = Backend::start(Era::Modern, Transport::Http).await;
    asked_without.protect(Protection::by_token(
        &asked_without.url(),
        authorization.url(),
        |_| false,
    ));
    let entries = [
        asked_without.entry("notes"),
        closed.entry_with(
            "keyed",
            r#""headers":{"Authorization":"Bearer secret-token"}"#,
        ),
        closed.entry_with("users", r#""auth":{"type":"user"}"#),
        open.entry("open"),
    ];
    let (text, found) = checked(&entries).await;
    let of = |text: &str, name: &str| {
        text.lines()
            .find(|line| line.starts_with(&format!("{name}: asks ")))
            .map(str::to_owned)
    };
    // `check` uses the challenge from the failed connection. The other servers get a separate
    // request.
    let asked = asked_without
        .received(REFUSED)
        .iter()
        .filter(|one| one.text.contains(r#""ping""#))
        .count();
    assert_eq!(asked, 0, "a server was asked once more for its challenge");
    let notes = of(&text, "notes").unwrap_or_else(|| panic!("{text}"));
    assert!(
        notes.contains(authorization.url()) && notes.contains("write `auth: {type: user}`"),
        "{notes}"
    );
    assert!(
        of(&text, "keyed")
            .unwrap()
            .ends_with("its `headers` contain one"),
        "{text}"
    );
    assert!(
        of(&text, "users")
            .unwrap()
            .ends_with("each user signs in, as its `auth` says"),
        "{text}"
    );
    assert_eq!(of(&text, "open"), None);
    assert!(!text.contains("secret-token"), "{text}");
    let servers = found["servers"].as_array().unwrap();
    let sign_in = |name: &str| {
        &servers
            .iter()
            .find(|server| server["name"] == name)
            .unwrap()["signIn"]
    };
    assert_eq!(sign_in("notes")["issuer"], authorization.url());
    assert_eq!(
        (&sign_in("notes")["registration"], &sign_in("notes")["pkce"]),
        (&"dynamic".into(), &true.into())
    );
    assert_eq!(sign_in("open"), &Value::Null);
    // `check` says if clients must be registered by hand.
    authorization.describe(json!({"registration_endpoint": null}));
    let (text, found) = checked(&entries).await;
    assert!(
        of(&text, "notes")
            .unwrap()
            .contains("register a client there"),
        "{text}"
    );
    assert!(
        of(&text, "users").unwrap().contains("lacks a `clientId`"),
        "{text}"
    );
    assert_eq!(found["servers"][0]["signIn"]["registration"], "byHand");
    // `check` reports what it cannot find out, and nothing else suffers.
    authorization.conduct(
        "/.well-known/oauth-authorization-server",
        Conduct::Status(500),
    );
    let (text, _) = checked(&entries).await;
    assert!(
        of(&text, "notes")
            .unwrap()
            .contains("does not tell how to get one"),
        "{text}"
    );
}

/// The answer of the operators' API, which needs no credentials here.
async fn operator(gateway: &Gateway, method: &str, path: &str) -> (u16, Value) {
    let mut connection = Connection::open(gateway.admin).await;
    let origin = format!("http://{}", gateway.admin);
    connection
        .request(method, path, &[("Origin", &origin)], b"")
        .await;
    let mut response = connection.response().await;
    let text = response.text().await;
    (
        response.status,
        serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}")),
    )
}

#[tokio::test]
async fn operators_see_what_users_have_granted_and_end_it() {
    let setting = SignInSetting::with_keys().await;
    let (status, none) = operator(&setting.gateway, "GET", "/api/connections").await;
    assert_eq!((status, &none["connections"]), (200, &json!([])));
    setting.sign_in(Some(ANN)).await;
    setting.sign_in(Some(BOB)).await;
    assert!(is_result(&setting.call(Some(ANN)).await) && is_result(&setting.call(Some(BOB)).await));
    let (_, found) = operator(&setting.gateway, "GET", "/api/connections").await;
    let all = found["connections"].as_array().unwrap();
    assert_eq!(all.len(), 2, "{found}");
    assert!(
        !found.to_string().contains("token-") && !found.to_string().contains("refresh-"),
        "{found}"
    );
    let of_ann = all
        .iter()
        .find(|one| one["principal"].as_str().unwrap().starts_with("ann "))
        .unwrap();
    assert_eq!(
        (&of_ann["server"], &of_ann["key"]),
        (&json!("notes"), &json!(false))
    );
    assert_eq!(of_ann["issuer"], setting.authorization.url());
    let path = format!("/api/connections/{}/end", of_ann["id"].as_str().unwrap());
    let (status, ended) = operator(&setting.gateway, "POST", &path).await;
    assert_eq!((status, &ended["server"]), (200, &json!("notes")));
    assert_eq!(operator(&setting.gateway, "POST", &path).await.0, 404);
    assert!(
        !setting.authorization.is_valid("token-1"),
        "it was given back"
    );
    let answer = setting.call(Some(ANN)).await;
    assert!(link_in(&answer).is_some(), "{answer}");
    assert!(
        is_result(&setting.call(Some(BOB)).await),
        "nobody else's has ended"
    );
}
