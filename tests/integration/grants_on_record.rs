//! Audit events for grants at servers, through the real binary.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use fanlight_testkit::browser::Browser;
use fanlight_testkit::scripted::{Protection, Verdict};
use fanlight_testkit::signing_in::{ANN, BOB, SignInSetting, WITH_KEYS, is_result, link_in};
use fanlight_tests::slicer::{member, plain_string};
use serde_json::json;

use crate::harness::{fanlight, within};
use crate::server_lives::text_at;

/// A configuration with client keys, whose audit log writes each line at once.
fn recorded(audit: &str) -> String {
    format!("{WITH_KEYS}audit: {{{audit}}}\n")
}

/// The audit lines about grants, the oldest first.
async fn lines(config: &Path) -> Vec<String> {
    let mut command = fanlight();
    command
        .args(["audit", "query", "--json", "--server", "notes", "--config"])
        .arg(config);
    let output = within("the command", command.output()).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let is_meant = |line: &&str| member(line, "event") == Some(r#""connection""#);
    let mut lines: Vec<_> = text.lines().filter(is_meant).map(str::to_owned).collect();
    lines.reverse();
    lines
}

/// The user, the action and the outcome of each line.
fn told(lines: &[String]) -> Vec<[&str; 3]> {
    let text = |line, name| member(line, name).and_then(plain_string).unwrap_or("-");
    lines
        .iter()
        .map(|line| ["principal", "action", "outcome"].map(|name| text(line, name)))
        .collect()
}

fn file(config: &Path) -> PathBuf {
    config.with_file_name("state/audit/audit.jsonl")
}

#[tokio::test]
async fn sign_ins_sign_outs_and_refusals_are_on_record() {
    let setting = SignInSetting::start(&recorded("required: true"), r#"{"type":"user"}"#).await;
    let config = setting.config();
    setting.sign_in(Some(ANN)).await;
    assert!(is_result(&setting.call(Some(ANN)).await));
    // Bob tries another user's link, and then refuses at the authorization server.
    let mut browser = Browser::default();
    setting.authorization.revoke_all();
    setting
        .authorization
        .on_token(|asked| match asked.parameter("grant_type") {
            Some("refresh_token") => (400, json!({ "error": "invalid_grant" })),
            _ => (
                200,
                json!({ "access_token": "token-9", "token_type": "Bearer" }),
            ),
        });
    let page = setting.page(&mut browser, Some(ANN)).await;
    assert_eq!(
        browser.submit(&page, &[("credential", BOB)]).await.status,
        401
    );
    let mut browser = Browser::default();
    let sent = setting.agree(&mut browser, Some(BOB)).await;
    let back = browser.open(&sent.location()).await.location();
    let refused = back.replace("code=", "error=access_denied&x=");
    assert_eq!(browser.open(&refused).await.status, 403);
    setting.sign_in(Some(BOB)).await;
    // Bob signs out on the page.
    let mut browser = Browser::default();
    let url = format!("http://{}/connections", setting.gateway.mcp);
    let page = browser.open(&url).await;
    browser.submit(&page, &[("credential", BOB)]).await;
    let page = browser.open(&url).await;
    browser.submit(&page, &[("action", "sign-out")]).await;
    let shown = text_at(&setting.gateway, "/api/audit?action=signIn&principal=bob").await;
    assert!(
        shown.contains(r#""action":"signIn""#) && shown.contains("access_denied"),
        "{shown}"
    );
    setting.gateway.terminate().await;
    let lines = lines(&config).await;
    let (ann, bob) = ("key#ann", "key#bob");
    let expected = [
        [ann, "signIn", "decided"],
        [ann, "signIn", "ok"],
        [ann, "grantEnd", "ok"],
        [bob, "signIn", "refused"],
        [bob, "signIn", "decided"],
        [bob, "signIn", "refused"],
        [bob, "signIn", "decided"],
        [bob, "signIn", "ok"],
        [bob, "signOut", "ok"],
    ];
    assert_eq!(told(&lines), expected, "{lines:#?}");
    assert!(lines[2].contains("invalid_grant"), "{}", lines[2]);
    let text = fs::read_to_string(file(&config)).unwrap();
    for secret in ["token-1", "token-9", "refresh-1", ANN, BOB] {
        assert!(!text.contains(secret), "{secret} is on record");
    }
    let mut command = fanlight();
    command.args(["audit", "verify", "--config"]).arg(&config);
    assert!(
        within("the command", command.output())
            .await
            .unwrap()
            .status
            .success()
    );
}

#[tokio::test]
async fn deposit_of_a_key_is_on_record_without_the_key() {
    let auth = r#"{"type":"userKey","header":"X-Api-Key"}"#;
    let setting = SignInSetting::start(&recorded("required: true"), auth).await;
    let config = setting.config();
    setting.backend.protect(Protection {
        resource: None,
        challenge: "Bearer".into(),
        accepts: Arc::new(|received| match received.header("x-api-key") {
            Some("sesame") => Verdict::Accepted,
            _ => Verdict::Unauthorized,
        }),
    });
    let mut browser = Browser::default();
    let page = setting.page(&mut browser, Some(ANN)).await;
    assert_eq!(
        browser
            .submit(&page, &[("credential", ANN), ("key", "sesame")])
            .await
            .status,
        200
    );
    assert!(is_result(&setting.call(Some(ANN)).await));
    let lines = lines(&config).await;
    assert_eq!(
        told(&lines)[..2],
        [
            ["key#ann", "keyDeposit", "decided"],
            ["key#ann", "keyDeposit", "ok"]
        ],
        "{lines:?}"
    );
    assert!(
        !fs::read_to_string(file(&config))
            .unwrap()
            .contains("sesame")
    );
}

#[tokio::test]
async fn user_whom_the_policy_bars_is_on_record() {
    let policies = r#"permit(principal, action, resource);
        forbid(principal == User::"key#bob", action == Action::"signIn", resource == Server::"notes");"#;
    let setting = SignInSetting::start_with(
        &format!(
            "{}policy: {{files: [p.cedar]}}\n",
            recorded("required: true")
        ),
        r#"{"type":"user"}"#,
        policies,
    )
    .await;
    let config = setting.config();
    let mut browser = Browser::default();
    let asking = browser
        .open(&format!("http://{}/connections", setting.gateway.mcp))
        .await;
    browser.submit(&asking, &[("credential", BOB)]).await;
    browser
        .submit(&asking, &[("server", "notes"), ("action", "connect")])
        .await;
    setting
        .gateway
        .log
        .line_with_all(&[r#""what":"sign-in at a server""#, "does not permit"])
        .await;
    // Lines that preceded a line that a request waits for are written, too.
    setting.call(Some(ANN)).await;
    let lines = lines(&config).await;
    assert!(
        told(&lines).contains(&["key#bob", "signIn", "refused"]),
        "{lines:?}"
    );
}

/// The audit log is required and cannot be written.
#[tokio::test]
async fn sign_in_that_cannot_be_put_on_record_fails() {
    let setting = SignInSetting::start(
        &recorded("required: true, arguments: full"),
        r#"{"type":"user"}"#,
    )
    .await;
    let config = setting.config();
    setting.sign_in(Some(BOB)).await;
    let mut browser = Browser::default();
    let sent = setting.agree(&mut browser, Some(ANN)).await;
    // The limit on files is the size of the grants, which the audit log exceeds.
    let size = |file: PathBuf| fs::metadata(file).unwrap().len();
    let granted = size(setting.folder.path().join("state/grants.redb"));
    let text = "x".repeat(15_000);
    while size(file(&config)) <= granted {
        setting
            .ask(
                "prompts/get",
                &format!(r#""name":"p","arguments":{{"text":"{text}"}}"#),
                Some(BOB),
            )
            .await;
    }
    let pid = rustix::process::Pid::from_raw(i32::try_from(setting.gateway.pid()).unwrap());
    let full = rustix::process::Rlimit {
        current: Some(granted),
        maximum: None,
    };
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, full).unwrap();
    let page = browser.follow(sent).await;
    assert!(
        page.status == 503 && page.text.contains("could not be recorded"),
        "{page:?}"
    );
    assert_eq!(
        setting.asked_for_tokens("authorization_code"),
        1,
        "a code was redeemed that is not on record"
    );
    let free = rustix::process::Rlimit {
        current: None,
        maximum: None,
    };
    rustix::process::prlimit(pid, rustix::process::Resource::Fsize, free).unwrap();
    assert!(
        link_in(&setting.call(Some(ANN)).await).is_some(),
        "{}",
        setting.gateway.log.text()
    );
    setting.sign_in(Some(ANN)).await;
    assert!(is_result(&setting.call(Some(ANN)).await));
}

#[tokio::test]
async fn command_that_signs_in_has_a_record_beside_that_of_the_gateway() {
    let setting = SignInSetting::local().await;
    let config = setting.config();
    let (mut login, location) = setting.login().await;
    let mut browser = Browser::default();
    let back = browser.open(&location).await.location();
    browser.open(&back).await;
    assert!(
        within("the end of the command", login.wait())
            .await
            .unwrap()
            .success()
    );
    setting.gateway.terminate().await;
    let lines = lines(&config).await;
    assert_eq!(told(&lines), [["-", "signIn", "ok"]], "{lines:?}");
    // A required audit log that cannot be opened ends the command before it asks anything.
    let text = fs::read_to_string(&config).unwrap();
    fs::write(
        &config,
        format!("audit: {{required: true, file: /dev/null/audit.jsonl}}\n{text}"),
    )
    .unwrap();
    let mut command = fanlight();
    command
        .args(["login", "notes", "--no-browser", "--config"])
        .arg(&config)
        .stdin(Stdio::null());
    let output = within("the command", command.output()).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("audit log"),
        "{said}"
    );
}

#[tokio::test]
async fn purge_puts_the_end_of_each_connection_on_record() {
    let setting = SignInSetting::start(&recorded("required: true"), r#"{"type":"user"}"#).await;
    let config = setting.config();
    setting.sign_in(Some(ANN)).await;
    setting.sign_in(Some(BOB)).await;
    setting.gateway.terminate().await;
    let state = async |command: &str| {
        let mut state = fanlight();
        state
            .args(["state", command, "--config"])
            .arg(&config)
            .stdin(Stdio::null());
        within("the command", state.output()).await.unwrap()
    };
    // Nothing is removed if the required audit log cannot be written.
    let text = fs::read_to_string(&config).unwrap();
    let unusable = text.replace(
        "{required: true}",
        "{required: true, file: /dev/null/audit.jsonl}",
    );
    assert_ne!(unusable, text);
    fs::write(&config, unusable).unwrap();
    let output = state("purge").await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("audit log"),
        "{said}"
    );
    fs::write(&config, text).unwrap();
    // Nothing is removed either if the users' names are unknown, since the keyring with the key is
    // locked.
    let note = setting.folder.path().join("state").join("sealing-key");
    fs::write(&note, "keyring\nno such key\n0011223344556677").unwrap();
    fs::set_permissions(&note, fs::Permissions::from_mode(0o600)).unwrap();
    let output = state("purge").await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("cannot read the key"),
        "{said}"
    );
    fs::remove_file(&note).unwrap();
    assert!(String::from_utf8_lossy(&state("export").await.stdout).contains("\"notes\""));
    let output = state("purge").await;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(!String::from_utf8_lossy(&state("export").await.stdout).contains("\"notes\""));
    let lines = lines(&config).await;
    let mut ended = told(&lines).split_off(lines.len() - 2);
    ended.sort_unstable();
    assert_eq!(
        ended,
        [["key#ann", "signOut", "ok"], ["key#bob", "signOut", "ok"]],
        "{lines:#?}"
    );
}

/// With `keys`, opening a store does not reveal that it was sealed with another key.
#[tokio::test]
async fn purge_removes_nobody_unnamed_where_the_record_is_required() {
    let (first, second) = (
        format!("keys: [\"{}\"]", "1".repeat(64)),
        format!("keys: [\"{}\"]", "2".repeat(64)),
    );
    let more = format!("{}{first}\n", recorded("required: true"));
    let setting = SignInSetting::start(&more, r#"{"type":"user"}"#).await;
    let config = setting.config();
    setting.sign_in(Some(ANN)).await;
    setting.gateway.terminate().await;
    let run = async |command: &[&str]| {
        let mut run = fanlight();
        run.args(command)
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null());
        within("the command", run.output()).await.unwrap()
    };
    let text = fs::read_to_string(&config).unwrap();
    let rotated = text.replace(&first, &second);
    fs::write(&config, &rotated).unwrap();
    let output = run(&["state", "purge"]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("nothing was removed"),
        "{said}"
    );
    fs::write(&config, &text).unwrap();
    assert!(String::from_utf8_lossy(&run(&["state", "export"]).await.stdout).contains("\"notes\""));
    // If the audit log is not required, it notes that there was a user.
    fs::write(&config, rotated.replace("{required: true}", "{}")).unwrap();
    let output = run(&["state", "purge"]).await;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("which the audit log therefore lacks"),
        "{said}"
    );
    fs::write(&config, &text).unwrap();
    assert!(
        !String::from_utf8_lossy(&run(&["state", "export"]).await.stdout).contains("\"notes\"")
    );
    let lines = run(&["audit", "query", "--json", "--action", "signOut"]).await;
    let lines = String::from_utf8_lossy(&lines.stdout);
    assert!(
        lines.lines().count() == 1 && lines.contains("1 record of users"),
        "{lines}"
    );
    assert!(
        member(&lines, "principal").is_none() && member(&lines, "server").is_none(),
        "{lines}"
    );
}
