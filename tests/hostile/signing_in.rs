//! Attacks on users' sign-in: by people with another user's link, by pages of other sites, by
//! browsers that did not agree, and by authorization servers.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use fanlight_testkit::authorization_server::AuthorizationServer;
use fanlight_testkit::browser::{Browser, Page, origin};
use fanlight_testkit::scripted::Protection;
use fanlight_testkit::signing_in::{ANN, BOB, SignInSetting, WITH_KEYS, is_result, link_in};
use serde_json::json;

use crate::harness::{TempFile, fanlight, within};
use crate::scripted::{Backend, Era, Reply, Transport};

/// Checks that nobody was signed in and that the authorization server received nothing.
fn assert_nothing_begun(setting: &SignInSetting) {
    assert!(setting.authorization.asked("/authorize").is_empty());
    assert!(setting.authorization.asked("/token").is_empty());
}

#[tokio::test]
async fn link_shows_a_page_that_nothing_frames_and_begins_nothing() {
    let setting = SignInSetting::with_keys().await;
    let mut browser = Browser::default();
    for _ in 0..3 {
        let page = setting.page(&mut browser, Some(ANN)).await;
        let policy = page.header("content-security-policy").unwrap();
        assert!(
            policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"),
            "{policy}"
        );
        assert_eq!(page.header("referrer-policy"), Some("same-origin"));
        assert_eq!(page.header("cache-control"), Some("no-store"));
        assert!(page.header("access-control-allow-origin").is_none());
        assert!(page.text.contains("credential"), "{page:?}");
    }
    assert_nothing_begun(&setting);
}

#[tokio::test]
async fn link_of_one_user_is_worth_nothing_to_another() {
    let setting = SignInSetting::with_keys().await;
    let mut browser = Browser::default();
    let page = setting.page(&mut browser, Some(ANN)).await;
    for credential in ["", BOB, "fanlight_wrong", "x"] {
        let refused = browser.submit(&page, &[("credential", credential)]).await;
        assert!(
            (400..500).contains(&refused.status),
            "{credential}: {refused:?}"
        );
    }
    assert_nothing_begun(&setting);
}

#[tokio::test]
async fn form_that_was_not_shown_in_the_browser_is_refused() {
    let setting = SignInSetting::with_keys().await;
    let (mut ann, mut other) = (Browser::default(), Browser::default());
    let page = setting.page(&mut ann, Some(ANN)).await;
    let second = setting.page(&mut other, Some(ANN)).await;
    let own = origin(&page.url);
    let token = |page: &Page| {
        page.hidden()
            .into_iter()
            .find(|(name, _)| name == "token")
            .unwrap()
            .1
    };
    let sent: [(&str, &str, String); 5] = [
        // The origin of another site.
        (page.url.as_str(), "https://evil.example", token(&page)),
        (page.url.as_str(), "null", token(&page)),
        // No token, another browser's token, and a token for another link.
        (page.url.as_str(), own.as_str(), String::new()),
        (page.url.as_str(), own.as_str(), token(&second)),
        (second.url.as_str(), own.as_str(), token(&page)),
    ];
    for (url, from, token) in &sent {
        let refused = ann
            .post(url, from, &[("token", token), ("credential", ANN)])
            .await;
        assert_eq!(refused.status, 403, "{url} {from}: {refused:?}");
    }
    // A browser that was never shown the page.
    let refused = Browser::default()
        .post(
            &page.url,
            &own,
            &[("token", &token(&page)), ("credential", ANN)],
        )
        .await;
    assert_eq!(refused.status, 403);
    assert_nothing_begun(&setting);
}

#[tokio::test]
async fn answer_in_another_browser_than_the_one_that_agreed_is_refused_and_spent() {
    let setting = SignInSetting::local().await;
    let (mut attacker, mut victim) = (Browser::default(), Browser::default());
    setting.page(&mut victim, None).await;
    let sent = setting.agree(&mut attacker, None).await;
    let back = attacker.open(&sent.location()).await.location();
    for _ in 0..2 {
        let refused = victim.open(&back).await;
        assert_eq!(refused.status, 403, "{refused:?}");
    }
    // Afterwards the redirect is useless also to the browser that agreed.
    assert_eq!(attacker.open(&back).await.status, 403);
    assert_eq!(setting.asked_for_tokens("authorization_code"), 0);
    assert!(link_in(&setting.call(None).await).is_some());
}

#[tokio::test]
async fn user_who_begins_sign_ins_without_end_keeps_no_other_from_signing_in() {
    let setting = SignInSetting::with_keys().await;
    let (mut ann, mut bob) = (Browser::default(), Browser::default());
    let of_ann = setting.agree(&mut ann, Some(ANN)).await;
    let page = setting.page(&mut bob, Some(BOB)).await;
    let mut begun = Vec::new();
    for _ in 0..20 {
        let sent = bob.submit(&page, &[("credential", BOB)]).await;
        assert_eq!(sent.status, 303, "{sent:?}\n{}", setting.gateway.log.text());
        begun.push(sent);
    }
    let done = ann.follow(of_ann).await;
    assert!(done.text.contains("signed in to notes"), "{done:?}");
    // Bob's excess sign-ins were dropped, but not the last one.
    let done = bob.follow(begun.pop().unwrap()).await;
    assert!(done.text.contains("signed in to notes"), "{done:?}");
    let mut refused = 0;
    for sent in begun {
        refused += usize::from(bob.follow(sent).await.status == 403);
    }
    assert_eq!(refused, 20 - 16);
}

#[tokio::test]
async fn answer_is_taken_once() {
    let setting = SignInSetting::local().await;
    let mut browser = Browser::default();
    let sent = setting.agree(&mut browser, None).await;
    let back = browser.open(&sent.location()).await.location();
    assert_eq!(browser.open(&back).await.status, 200);
    assert_eq!(browser.open(&back).await.status, 403);
    assert_eq!(
        browser
            .open(&back.replace("state=", "state=x"))
            .await
            .status,
        403
    );
    assert_eq!(setting.asked_for_tokens("authorization_code"), 1);
}

#[tokio::test]
async fn answer_of_another_authorization_server_is_not_redeemed() {
    let setting = SignInSetting::local().await;
    let issuer = setting.authorization.url().replace(':', "%3A");
    for change in ["iss=http%3A%2F%2Fevil.example", "x=y"] {
        let mut browser = Browser::default();
        let sent = setting.agree(&mut browser, None).await;
        let back = browser.open(&sent.location()).await.location();
        let changed = back.replace(&format!("iss={issuer}"), change);
        assert_ne!(changed, back);
        let refused = browser.open(&changed).await;
        assert_eq!(refused.status, 403, "{refused:?}");
    }
    assert!(setting.authorization.asked("/token").is_empty());
}

#[tokio::test]
async fn authorization_server_cannot_have_a_browser_open_anything_else() {
    for endpoint in [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "vbscript:x",
        "http://169.254.169.254/authorize",
    ] {
        let setting = SignInSetting::local().await;
        setting
            .authorization
            .describe(json!({ "authorization_endpoint": endpoint }));
        let mut browser = Browser::default();
        let page = browser.open(&setting.link(None).await).await;
        let is_refused = page.status == 502
            && !page.text.contains(endpoint)
            && page.header("location").is_none();
        assert!(is_refused, "{endpoint}: {page:?}");
    }
}

#[tokio::test]
async fn text_of_an_authorization_server_is_no_part_of_the_page() {
    let setting = SignInSetting::local().await;
    let mut browser = Browser::default();
    let sent = setting.agree(&mut browser, None).await;
    let back = browser.open(&sent.location()).await.location();
    let (address, query) = back.split_once('?').unwrap();
    let state = query
        .split('&')
        .find(|part| part.starts_with("state="))
        .unwrap();
    let issuer = query
        .split('&')
        .find(|part| part.starts_with("iss="))
        .unwrap();
    let error = "error=access_denied&error_description=%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    let page = browser
        .open(&format!("{address}?{state}&{issuer}&{error}"))
        .await;
    assert!(
        page.status == 403 && page.text.contains("access_denied"),
        "{page:?}"
    );
    assert!(!page.text.contains("<script>"), "{page:?}");
}

#[tokio::test]
async fn nobody_but_the_person_at_this_machine_decides_for_everybody() {
    let setting =
        SignInSetting::start("allowedHosts: [gateway.example]\n", r#"{"type":"user"}"#).await;
    let link = setting.link(None).await;
    let mut browser = Browser::default();
    for header in [
        ("Host", "gateway.example"),
        ("Host", "evil.example"),
        ("X-Forwarded-For", "192.0.2.1"),
        ("Forwarded", "for=192.0.2.1"),
    ] {
        let refused = browser.request("GET", &link, &[header], "").await;
        assert_eq!(refused.status, 403, "{header:?}: {refused:?}");
    }
    assert_nothing_begun(&setting);
    // Having the cookies of that person's browser does not help, either.
    let sent = setting.agree(&mut browser, None).await;
    browser.follow(sent).await;
    let url = format!("http://{}/connections", setting.gateway.mcp);
    assert!(browser.open(&url).await.text.contains("signed in at"));
    let elsewhere = browser
        .request("GET", &url, &[("X-Forwarded-For", "192.0.2.1")], "")
        .await;
    assert!(!elsewhere.text.contains("signed in at"), "{elsewhere:?}");
}

#[tokio::test]
async fn lists_and_tokens_of_one_user_reach_no_other() {
    let setting = SignInSetting::with_keys().await;
    setting.sign_in(Some(ANN)).await;
    within("the list of ann", async {
        while !setting
            .ask("tools/list", "", Some(ANN))
            .await
            .contains(r#""name":"t""#)
        {}
    })
    .await;
    for _ in 0..3 {
        let of_bob = setting.ask("tools/list", "", Some(BOB)).await;
        assert!(!of_bob.contains(r#""name":"t""#), "{of_bob}");
        assert!(link_in(&setting.call(Some(BOB)).await).is_some());
        assert!(is_result(&setting.call(Some(ANN)).await));
    }
    assert!(
        setting
            .credentials()
            .iter()
            .all(|shown| shown == "Bearer token-1"),
        "{:?}",
        setting.credentials()
    );
    assert_eq!(setting.credentials().len(), 3);
}

#[tokio::test]
async fn address_reaches_the_browser_as_one_argument_and_no_shell() {
    let setting = SignInSetting::local().await;
    let folder = TempFile::folder();
    let file = |name: &str| folder.path().join(name);
    let trap = format!(
        "$(touch {0});touch {0}&'`touch {0}`",
        file("trapped").display()
    );
    let endpoint = format!("{}/authorize?x={trap}", setting.authorization.url());
    setting
        .authorization
        .describe(json!({ "authorization_endpoint": endpoint }));
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$#\" \"$1\" > {0}.new && mv {0}.new {0}\n",
        file("opened").display()
    );
    fs::write(file("browser"), script).unwrap();
    fs::set_permissions(file("browser"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = fanlight();
    command
        .args(["login", "notes", "--config"])
        .arg(setting.config())
        .env("BROWSER", file("browser"));
    let mut login = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let opened = within("the browser", async {
        loop {
            if let Ok(opened) = fs::read_to_string(file("opened")) {
                return opened;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let [count, url] = opened.lines().collect::<Vec<_>>()[..] else {
        panic!("{opened}")
    };
    assert!(
        count == "1" && url.starts_with(&format!("{}/authorize?x=", setting.authorization.url())),
        "{opened}"
    );
    let mut browser = Browser::default();
    let sent = browser.open(url).await;
    assert_eq!(browser.open(&sent.location()).await.status, 200);
    assert!(
        within("the end of the command", login.wait())
            .await
            .unwrap()
            .success()
    );
    assert!(!file("trapped").exists());
}

/// A grant is bound to the server, not to its name in the configuration: another server with the
/// same name does not get it.
#[tokio::test]
async fn grant_is_used_only_for_the_server_that_it_was_given_for() {
    let setting = SignInSetting::local().await;
    setting.sign_in(None).await;
    assert!(is_result(&setting.call(None).await));
    let other = Backend::start(Era::Modern, Transport::Http).await;
    other.offers_tools(&["t"]);
    other.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    let config = fs::read_to_string(setting.config()).unwrap();
    assert!(config.contains(&setting.backend.url()));
    fs::write(
        setting.config(),
        config.replace(&setting.backend.url(), &other.url()),
    )
    .unwrap();
    let (status, report) = setting.gateway.reload().await;
    assert_eq!(status, 200, "{report}");
    // The other server wants no credentials.
    assert!(is_result(&setting.call(None).await));
    let shown = other.received("tools/call");
    assert!(
        shown
            .iter()
            .all(|call| call.header("authorization").is_none()),
        "the token went to another server"
    );
    assert_eq!(setting.credentials(), ["Bearer token-1"]);
    // The grant is still good at its own server.
    fs::write(setting.config(), config).unwrap();
    setting.gateway.reload().await;
    assert!(is_result(&setting.call(None).await));
}

/// A pending sign-in stores no token for the changed server, and does not send the new client's
/// secret with its code.
#[tokio::test]
async fn sign_in_that_has_begun_before_the_server_or_its_client_changed_is_not_redeemed() {
    let other = Backend::start(Era::Modern, Transport::Http).await;
    for is_moved in [true, false] {
        let setting = SignInSetting::start("", r#"{"type":"user","clientId":"client-1"}"#).await;
        let mut browser = Browser::default();
        let sent = setting.agree(&mut browser, None).await;
        match is_moved {
            true => {
                setting
                    .reconfigure(&setting.backend.url(), &other.url())
                    .await;
            }
            false => setting.reconfigure("client-1", "client-2").await,
        }
        let refused = browser.follow(sent).await;
        assert!(
            refused.status == 403 && refused.text.contains("has changed"),
            "{refused:?}"
        );
        assert_eq!(setting.asked_for_tokens("authorization_code"), 0);
    }
}

/// The gateway revokes tokens only as the client that obtained them.
#[tokio::test]
async fn user_who_signs_out_after_the_client_has_changed_shows_nothing_of_the_other_one() {
    let setting = SignInSetting::start("", r#"{"type":"user","clientId":"client-1"}"#).await;
    setting.sign_in(None).await;
    setting.reconfigure("client-1", "client-2").await;
    let (mut browser, url) = (
        Browser::default(),
        format!("http://{}/connections", setting.gateway.mcp),
    );
    let page = browser.open(&url).await;
    assert!(
        page.text.contains("not in use") && !page.text.contains("<code>signed in</code>"),
        "{page:?}"
    );
    let page = browser.submit(&page, &[("action", "sign-out")]).await;
    assert!(page.text.contains("not signed in"), "{page:?}");
    assert!(setting.authorization.asked("/revoke").is_empty());
}

#[tokio::test]
async fn token_that_ends_in_a_far_future_ends_no_page() {
    let setting = SignInSetting::local().await;
    setting
        .authorization
        .grants_with(json!({ "expires_in": 999_999_999_999_u64 }));
    setting.sign_in(None).await;
    let page = Browser::default()
        .open(&format!("http://{}/connections", setting.gateway.mcp))
        .await;
    assert!(
        page.status == 200 && page.text.contains("signed in at"),
        "{page:?}"
    );
    assert!(is_result(&setting.call(None).await));
}

const EVERYTHING: &str = "permit(principal, action, resource);";
const NOT_BOB: &str = r#"permit(principal, action, resource);
    forbid(principal == User::"key#bob", action == Action::"signIn", resource == Server::"notes");"#;

/// Applies other policies.
async fn change_policies(setting: &SignInSetting, policies: &str, generation: u32) {
    fs::write(setting.folder.path().join("p.cedar"), policies).unwrap();
    setting.gateway.hang_up();
    let generation = format!(r#""generation":{generation}"#);
    setting
        .gateway
        .log
        .line_with_all(&["configuration reloaded", &generation])
        .await;
}

#[tokio::test]
async fn user_whom_the_policy_does_not_permit_to_sign_in_gets_no_link() {
    let setting = SignInSetting::under(NOT_BOB).await;
    for method in ["tools/list", "tools/call"] {
        let params = if method == "tools/call" {
            r#""name":"t","arguments":{}"#
        } else {
            ""
        };
        let answer = setting.ask(method, params, Some(BOB)).await;
        assert!(
            link_in(&answer).is_none() && !answer.contains("/connect/"),
            "{answer}"
        );
    }
    let answer = setting.call(Some(BOB)).await;
    assert!(
        answer.contains("\"error\"") && !answer.contains("notes"),
        "{answer}"
    );
    // Other users sign in as before.
    setting.sign_in(Some(ANN)).await;
    assert!(
        is_result(&setting.call(Some(ANN)).await),
        "{}",
        setting.gateway.log.text()
    );
    assert!(link_in(&setting.call(Some(BOB)).await).is_none());
    let mut browser = Browser::default();
    let url = format!("http://{}/connections", setting.gateway.mcp);
    let asking = browser.open(&url).await;
    let page = browser.submit(&asking, &[("credential", BOB)]).await;
    assert!(
        page.status == 200 && !page.text.contains("notes"),
        "{page:?}"
    );
    // A hidden server is like one that does not exist.
    for server in ["notes", "invented"] {
        let fields = [("server", server), ("action", "connect")];
        let page = browser.submit(&asking, &fields).await;
        assert!(
            page.status == 200 && page.header("location").is_none(),
            "{page:?}"
        );
        assert!(!page.text.contains(server), "{page:?}");
    }
}

#[tokio::test]
async fn link_from_before_is_worth_nothing_once_the_policy_denies_it() {
    let setting = SignInSetting::under(EVERYTHING).await;
    let (mut early, mut late, mut known) =
        (Browser::default(), Browser::default(), Browser::default());
    // One browser has agreed, one has seen the page, and one has identified its user there.
    let sent = setting.agree(&mut early, Some(BOB)).await;
    let page = setting.page(&mut late, Some(BOB)).await;
    let shown = setting.page(&mut known, Some(BOB)).await;
    let begun = setting.authorization.asked("/authorize").len();
    assert_eq!(
        known.submit(&shown, &[("credential", BOB)]).await.status,
        303
    );
    change_policies(&setting, NOT_BOB, 2).await;
    let refused = late.submit(&page, &[("credential", BOB)]).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    let refused = known.submit(&shown, &[]).await;
    assert!(
        (400..500).contains(&refused.status),
        "what the browser was known for is forgotten: {refused:?}"
    );
    let page = late.open(&page.url).await;
    assert!(page.header("location").is_none(), "{page:?}");
    let done = early.follow(sent).await;
    assert!(!done.text.contains("signed in to notes"), "{done:?}");
    assert_eq!(setting.asked_for_tokens("authorization_code"), 0);
    assert!(link_in(&setting.call(Some(BOB)).await).is_none());
    assert!(begun <= setting.authorization.asked("/authorize").len());
    // A policy that permits it again needs no restart.
    change_policies(&setting, EVERYTHING, 3).await;
    setting.sign_in(Some(BOB)).await;
    assert!(
        is_result(&setting.call(Some(BOB)).await),
        "{}",
        setting.gateway.log.text()
    );
}

/// Only users who may sign in see the tool that stands for a server.
#[tokio::test]
async fn tool_that_signs_in_is_hidden_from_users_who_may_not() {
    let more = format!("{WITH_KEYS}policy: {{files: [p.cedar]}}\n");
    let setting =
        SignInSetting::start_with(&more, r#"{"type":"user","connectTool":true}"#, NOT_BOB).await;
    let list = setting.ask("tools/list", "", Some(ANN)).await;
    assert!(list.contains(r#""name":"connect""#), "{list}");
    let list = setting.ask("tools/list", "", Some(BOB)).await;
    assert!(!list.contains("connect"), "{list}");
    let answer = setting
        .ask(
            "tools/call",
            r#""name":"connect","arguments":{}"#,
            Some(BOB),
        )
        .await;
    assert!(
        answer.contains("\"error\"") && link_in(&answer).is_none() && !answer.contains("notes"),
        "{answer}"
    );
}

#[tokio::test]
async fn call_that_needs_a_sign_in_that_is_not_permitted_says_so() {
    // Everybody may list this server's tools; only calls need a token.
    let setting = SignInSetting::under(NOT_BOB).await;
    let valid = std::sync::Arc::clone(&setting.authorization);
    let mut protection = Protection::by_token(
        &setting.backend.url(),
        setting.authorization.url(),
        move |token| valid.is_valid(token),
    );
    let by_token = protection.accepts;
    protection.accepts = std::sync::Arc::new(move |received| match received.method() {
        // The gateway probes for the challenge with a ping. This era has no ping, so the request
        // gets no further than this.
        "tools/call" | "ping" => by_token(received),
        _ => fanlight_testkit::scripted::Verdict::Accepted,
    });
    setting.backend.protect(protection);
    setting.sign_in(Some(ANN)).await;
    let list = setting.ask("tools/list", "", Some(BOB)).await;
    let answer = setting.call(Some(BOB)).await;
    assert!(link_in(&answer).is_none(), "{answer}");
    assert!(
        !list.contains("\"t\"") || answer.contains("-31005"),
        "{list} {answer}"
    );
}

/// A server at an http URL names metadata at an https URL. The gateway would send the token in the
/// clear.
#[tokio::test]
async fn nobody_signs_in_to_a_server_by_its_url_that_is_reached_in_the_clear() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    let authorization = AuthorizationServer::start().await;
    // A local address that does not look like a loopback address.
    let url = backend.url().replace("127.0.0.1", "0.0.0.0");
    let mut protection = Protection::by_token(&url, authorization.url(), |_| true);
    protection.challenge = format!(
        r#"Bearer resource_metadata="{}/metadata""#,
        authorization.url()
    );
    let metadata = json!({"resource": url, "authorization_servers": [authorization.url()]});
    authorization.publish("/metadata", metadata);
    backend.protect(protection);
    let home = TempFile::folder();
    for arguments in [
        &["call", "t", "--no-browser", "--url", &url][..],
        &["login", &url, "--no-browser"],
    ] {
        let mut command = fanlight();
        command
            .args(arguments)
            .env("XDG_STATE_HOME", home.path())
            .env_remove("FANLIGHT_TOKEN")
            .stdin(Stdio::null());
        let output = within("the command", command.output()).await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains("it must be https"),
            "{arguments:?}: {said}"
        );
    }
    assert!(
        authorization.paths().is_empty(),
        "{:?}",
        authorization.paths()
    );
}
