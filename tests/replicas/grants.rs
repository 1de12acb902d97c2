//! Grants at all replicas: made at one, used and renewed at another, and gone everywhere.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fanlight_testkit::browser::{Browser, Page, origin};
use fanlight_testkit::harness::{Gateway, TempFile, fanlight};
use fanlight_testkit::identity_provider::IdentityProvider;
use fanlight_testkit::issuer::Conduct;
use fanlight_testkit::scripted::Protection;
use fanlight_testkit::signing_in::{
    self, ANN, BOB, KEYS, SignInSetting, WITH_KEYS, is_result, link_in,
};
use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::json;
use tokio::time::timeout;

use crate::chaos::clock_off_by;
use crate::group::until;
use crate::valkey::Valkey;

/// A gateway whose users sign in. Its further replicas share nothing with it but Valkey.
struct Setting {
    first: SignInSetting,
    valkey: Valkey,
}

impl Setting {
    async fn start() -> Self {
        let valkey = Valkey::start().await;
        let url = valkey.url();
        Self::with(valkey, &url).await
    }

    async fn with(valkey: Valkey, url: &str) -> Self {
        Self::start_with(valkey, url, WITH_KEYS, r#"{"type":"user"}"#).await
    }

    /// A setting with this `auth` for clients and for the server.
    async fn start_with(valkey: Valkey, url: &str, clients: &str, auth: &str) -> Self {
        let keys = "keys: [\"1111111111111111111111111111111111111111111111111111111111111111\"]\n";
        let more = format!("{clients}{keys}replicas: {{valkey: \"{url}\"}}\n");
        let first = SignInSetting::start(&more, auth).await;
        first
            .gateway
            .log
            .line_with("joined the other replicas")
            .await;
        Self { first, valkey }
    }

    /// Makes the authorization server accept each refresh token once.
    fn takes_refresh_tokens_once(&self) {
        let (used, number) = (Mutex::new(HashSet::new()), AtomicUsize::new(1));
        self.first.authorization.on_token(move |asked| {
            let refresh = asked.parameter("refresh_token").unwrap_or_default().to_owned();
            if !used.lock().unwrap().insert(refresh) {
                return (400, json!({ "error": "invalid_grant" }));
            }
            let number = number.fetch_add(1, Ordering::SeqCst);
            (200, json!({ "access_token": format!("t-{number}"), "refresh_token": format!("r-{number}"), "token_type": "Bearer" }))
        });
    }

    /// The key of an additional client.
    async fn another_key(&self, name: &str) -> String {
        let output = fanlight()
            .args(["keys", "new", name, "--config"])
            .arg(self.first.config())
            .output()
            .await
            .unwrap();
        let key = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        until("the new key", async || {
            link_in(&self.first.call(Some(&key)).await).is_some()
        })
        .await;
        key
    }

    /// Sets how the authorization server answers token requests from now on.
    fn conduct(&self, conduct: Conduct) {
        self.first.authorization.conduct("/token", conduct);
    }

    /// Runs `fanlight state` with the first gateway's configuration.
    async fn state(&self, command: &str) -> Output {
        fanlight()
            .args(["state", command, "--config"])
            .arg(self.first.config())
            .output()
            .await
            .unwrap()
    }

    /// Starts another replica in a folder of its own.
    async fn another(&self) -> (Gateway, TempFile) {
        self.another_with(&[]).await
    }

    /// [`Self::another`] with these environment variables.
    async fn another_with(&self, variables: &[(&str, String)]) -> (Gateway, TempFile) {
        let folder = TempFile::folder();
        fs::write(folder.path().join("keys.yaml"), KEYS).unwrap();
        let path = folder.path().join("fanlight.yaml");
        fs::copy(self.first.config(), &path).unwrap();
        let gateway = Gateway::start_at_with_envs(path, variables).await;
        gateway.log.line_with("joined the other replicas").await;
        (gateway, folder)
    }
}

#[tokio::test]
async fn grant_is_known_at_all_replicas_and_outlasts_each_of_them() {
    let mut setting = Setting::start().await;
    setting.first.sign_in(Some(ANN)).await;
    let (other, _folder) = setting.another().await;
    assert!(
        is_result(&signing_in::call(&other, Some(ANN)).await),
        "{}",
        other.log.text()
    );
    // The grant belongs to Ann alone, and Valkey has nothing readable.
    assert!(link_in(&signing_in::call(&other, Some(BOB)).await).is_some());
    let kept = setting.valkey.ask("KEYS *grant*").await;
    assert!(
        kept.contains("fanlight:{grants-") && kept.contains(":grant:of:") && !kept.contains("ann"),
        "{kept}"
    );
    // The grant survives the loss of the first replica and a restart of Valkey.
    setting.first.gateway.kill().await;
    setting.valkey.kill().await;
    other.log.line_with("Valkey is away").await;
    // The result stays the same after others could have changed something.
    let killed = Instant::now();
    while killed.elapsed() < Duration::from_millis(2500) {
        assert!(
            is_result(&signing_in::call(&other, Some(ANN)).await),
            "what is held stays in use"
        );
    }
    setting.valkey.start_again(true).await;
    let (third, _folder) = setting.another().await;
    assert!(
        is_result(&signing_in::call(&third, Some(ANN)).await),
        "{}",
        third.log.text()
    );
}

/// A load balancer sends each request of a browser to the next replica.
struct RoundRobin {
    replicas: Vec<String>,
    next: usize,
}

impl RoundRobin {
    /// The address at the next replica.
    fn next(&mut self, url: &str, public: &str) -> String {
        let Some(path) = url.strip_prefix(public) else {
            return url.to_owned();
        };
        self.next = (self.next + 1) % self.replicas.len();
        format!("{}{path}", self.replicas[self.next])
    }

    /// Follows redirects from a page to the last one.
    async fn follow(&mut self, browser: &mut Browser, page: Page, public: &str) -> Page {
        let mut page = page;
        while (300..400).contains(&page.status) {
            let location = self.next(&page.location(), public);
            page = browser.open(&location).await;
        }
        page
    }

    /// Submits the form of a page at the next replica.
    async fn submit(
        &mut self,
        browser: &mut Browser,
        page: &Page,
        fields: &[(&str, &str)],
        public: &str,
    ) -> Page {
        let path = page.url.splitn(4, '/').nth(3).unwrap();
        let url = self.next(&format!("{public}/{path}"), public);
        let hidden = page.hidden();
        let hidden = hidden.iter().map(|(name, value)| (&**name, &**value));
        let all: Vec<_> = hidden.chain(fields.iter().copied()).collect();
        browser.post(&url, &origin(&url), &all).await
    }
}

/// Whichever replica a browser's next request reaches, it knows the browser and its user.
#[tokio::test]
async fn browser_signs_in_though_each_request_reaches_another_replica() {
    let provider = IdentityProvider::start().await;
    for (clients, token, proof) in [
        (WITH_KEYS.to_owned(), ANN.to_owned(), ("credential", ANN)),
        (
            provider.lines(", signIn: {clientId: fanlight}"),
            provider.access_token("ann"),
            ("action", "identify"),
        ),
        (
            provider.lines(", signIn: {}"),
            provider.access_token("ann"),
            ("action", "identify"),
        ),
    ] {
        let public = "http://127.0.0.1:9";
        let valkey = Valkey::start().await;
        let url = valkey.url();
        let lines = format!("{clients}publicUrl: \"{public}\"\n");
        let setting = Setting::start_with(valkey, &url, &lines, r#"{"type":"user"}"#).await;
        let (second, _second) = setting.another().await;
        let (third, _third) = setting.another().await;
        let gateways = [&setting.first.gateway, &second, &third];
        let mut balancer = RoundRobin {
            replicas: gateways.map(|one| format!("http://{}", one.mcp)).to_vec(),
            next: 0,
        };
        let mut browser = Browser::default();
        let link = setting.first.link(Some(&token)).await;
        let page = browser.open(&balancer.next(&link, public)).await;
        assert_eq!(page.status, 200, "{page:?}");
        let sent = balancer.submit(&mut browser, &page, &[proof], public).await;
        let mut done = balancer.follow(&mut browser, sent, public).await;
        if !done.text.contains("signed in to notes") {
            assert!(done.text.contains("knows you"), "{done:?}");
            let sent = balancer.submit(&mut browser, &done, &[], public).await;
            done = balancer.follow(&mut browser, sent, public).await;
        }
        assert!(done.text.contains("signed in to notes"), "{done:?}");
        for _ in 0..3 {
            let url = balancer.next(&format!("{public}/connections"), public);
            let page = browser.open(&url).await;
            assert!(page.text.contains("signed in at"), "{page:?}");
        }
    }
}

#[tokio::test]
async fn user_who_signs_out_at_one_replica_is_signed_out_at_all() {
    let setting = Setting::start().await;
    setting.first.sign_in(Some(ANN)).await;
    let (other, _folder) = setting.another().await;
    assert!(is_result(&signing_in::call(&other, Some(ANN)).await));
    let purged = setting.state("purge").await;
    assert!(
        purged.status.success(),
        "{}",
        String::from_utf8_lossy(&purged.stderr)
    );
    let is_out = async || link_in(&signing_in::call(&other, Some(ANN)).await).is_some();
    until("the user to be signed out", is_out).await;
}

#[tokio::test]
async fn user_who_signs_out_at_one_replica_is_served_by_no_other_with_an_exchanged_token() {
    let provider = IdentityProvider::start().await;
    let lines = provider.lines(", signIn: {clientId: fanlight, clientSecret: s3cret}");
    let auth = format!(
        r#"{{"type":"exchange","tokenEndpoint":"{}/token"}}"#,
        provider.url()
    );
    let valkey = Valkey::start().await;
    let address = valkey.url();
    let setting = Setting::start_with(valkey, &address, &lines, &auth).await;
    let valid = Arc::clone(&provider.server);
    let url = setting.first.backend.url();
    setting
        .first
        .backend
        .protect(Protection::by_token(&url, provider.url(), move |token| {
            valid.is_valid(token)
        }));
    let ann = provider.access_token("ann");
    setting
        .first
        .identified(&mut Browser::default(), &ann)
        .await;
    let (other, _folder) = setting.another().await;
    assert!(
        is_result(&signing_in::call(&other, Some(&ann)).await),
        "{}",
        other.log.text()
    );
    let purged = setting.state("purge").await;
    assert!(
        purged.status.success(),
        "{}",
        String::from_utf8_lossy(&purged.stderr)
    );
    let is_out = async || link_in(&signing_in::call(&other, Some(&ann)).await).is_some();
    until("the user to be signed out", is_out).await;
}

#[tokio::test]
async fn users_whose_sign_ins_have_ended_keep_no_other_from_signing_in() {
    let setting = Setting::start().await;
    setting
        .first
        .agree(&mut Browser::default(), Some(ANN))
        .await;
    let keys = setting.valkey.ask("KEYS *sign-in:of:*").await;
    let key = keys
        .lines()
        .find(|line| line.contains("sign-in:of:"))
        .unwrap()
        .trim();
    let lives = setting.valkey.ask(&format!("TTL {key}")).await;
    assert!(lives.contains(':') && !lives.contains(":-1"), "{lives}");
    // Many other users have begun a sign-in too, and hers is gone.
    let owners = format!("{}owners", key.split_once("of:").unwrap().0);
    let names: Vec<_> = (0..1000).map(|number| number.to_string()).collect();
    setting.valkey.ask(&format!("DEL {key} {owners}")).await;
    setting
        .valkey
        .ask(&format!("SADD {owners} {}", names.join(" ")))
        .await;
    setting.first.sign_in(Some(ANN)).await;
    assert!(
        setting
            .valkey
            .ask(&format!("SCARD {owners}"))
            .await
            .contains(":0")
    );
}

#[tokio::test]
async fn grant_that_ends_is_renewed_by_one_replica_alone() {
    let setting = Setting::start().await;
    setting.first.sign_in(Some(ANN)).await;
    let (other, _folder) = setting.another().await;
    assert!(is_result(&signing_in::call(&other, Some(ANN)).await));
    let before = setting.first.asked_for_tokens("refresh_token");
    setting.first.authorization.revoke_all();
    let calls = (0..4).map(|n| {
        let gateway = if n % 2 == 0 {
            &setting.first.gateway
        } else {
            &other
        };
        signing_in::call(gateway, Some(ANN))
    });
    let answers = join_all(calls).await;
    assert!(
        answers.iter().all(|answer| is_result(answer)),
        "{answers:?}\n{}",
        other.log.text()
    );
    assert_eq!(setting.first.asked_for_tokens("refresh_token") - before, 1);
}

#[tokio::test]
async fn grant_is_renewed_by_one_replica_alone_though_the_clock_of_another_is_ahead() {
    let setting = Setting::start().await;
    setting.first.sign_in(Some(ANN)).await;
    setting.takes_refresh_tokens_once();
    let (ahead, _folder) = setting.another_with(&clock_off_by("+60s")).await;
    assert!(
        is_result(&signing_in::call(&ahead, Some(ANN)).await),
        "{}",
        ahead.log.text()
    );
    setting.first.authorization.revoke_all();
    setting.conduct(Conduct::Slow);
    let renewed = async {
        setting.first.authorization.wait_for("/token", 2).await;
        let goes_on = async {
            // A second request would arrive at once.
            let _ = timeout(
                Duration::from_secs(1),
                setting.first.authorization.wait_for("/token", 3),
            )
            .await;
            setting.conduct(Conduct::Good);
        };
        tokio::join!(signing_in::call(&ahead, Some(ANN)), goes_on).0
    };
    let (one, other) = tokio::join!(setting.first.call(Some(ANN)), renewed);
    assert!(
        is_result(&one) && is_result(&other),
        "{one}\n{other}\n{}",
        ahead.log.text()
    );
    assert_eq!(setting.first.asked_for_tokens("refresh_token"), 1);
}

#[tokio::test]
async fn grant_whose_renewal_valkey_has_lost_asks_for_a_sign_in() {
    let mut setting = Setting::start().await;
    setting.first.sign_in(Some(ANN)).await;
    setting.takes_refresh_tokens_once();
    let keys = setting.valkey.ask("KEYS *grant:of:*").await;
    let key = keys
        .lines()
        .find(|line| line.contains("grant:of"))
        .unwrap()
        .trim()
        .to_owned();
    let kept = setting.valkey.ask(&format!("HGET {key} notes")).await;
    let earlier = kept
        .lines()
        .find(|line| line.starts_with('{'))
        .unwrap()
        .to_owned();
    setting.first.authorization.revoke_all();
    assert!(
        is_result(&setting.first.call(Some(ANN)).await),
        "{}",
        setting.first.gateway.log.text()
    );
    // A failover to a replica of Valkey may lose the latest write, so Valkey has the earlier grant.
    setting
        .valkey
        .ask(&format!("HSET {key} notes '{earlier}'"))
        .await;
    setting.first.authorization.revoke_all();
    setting.first.restart().await;
    assert!(
        link_in(&setting.first.call(Some(ANN)).await).is_some(),
        "{}",
        setting.first.gateway.log.text()
    );
}

#[tokio::test]
async fn grant_that_was_renewed_while_valkey_was_away_is_kept_when_it_is_back() {
    let setting = Setting::start().await;
    setting.first.sign_in(Some(ANN)).await;
    setting.takes_refresh_tokens_once();
    setting.first.authorization.revoke_all();
    setting.conduct(Conduct::Slow);
    let away = async {
        setting.first.authorization.wait_for("/token", 2).await;
        setting.valkey.signal(Signal::STOP);
        setting.first.gateway.log.line_with("Valkey is away").await;
        setting.conduct(Conduct::Good);
    };
    let (answer, ()) = tokio::join!(setting.first.call(Some(ANN)), away);
    assert!(
        is_result(&answer),
        "the new token is used at once: {answer}"
    );
    setting
        .first
        .gateway
        .log
        .line_with("a renewed grant is")
        .await;
    setting.valkey.signal(Signal::CONT);
    let (other, _folder) = setting.another().await;
    for gateway in [&other, &setting.first.gateway] {
        assert!(
            is_result(&signing_in::call(gateway, Some(ANN)).await),
            "{}",
            gateway.log.text()
        );
    }
    assert_eq!(setting.first.asked_for_tokens("refresh_token"), 1);
}

#[tokio::test]
async fn stuck_replica_of_valkey_holds_up_no_other_request() {
    let valkey = Valkey::start().await;
    let (replica, url) = (Valkey::replica_of(&valkey).await, valkey.url());
    let limited = format!("{WITH_KEYS}limits: {{rates: [{{rate: 1000/s, shared: refuse}}]}}\n");
    let setting = Setting::start_with(valkey, &url, &limited, r#"{"type":"user"}"#).await;
    let mut keys = Vec::new();
    for number in 0..6 {
        keys.push(setting.another_key(&format!("user-{number}")).await);
        setting.first.sign_in(keys.last().map(String::as_str)).await;
    }
    replica.signal(Signal::STOP);
    setting.first.authorization.revoke_all();
    let answers = join_all(keys.iter().map(|key| setting.first.call(Some(key)))).await;
    let log = setting.first.gateway.log.text();
    assert!(
        answers.iter().all(|answer| is_result(answer)),
        "{answers:?}\n{log}"
    );
    assert!(
        log.contains("no replica of Valkey has confirmed") && !log.contains("Valkey is away"),
        "{log}"
    );
}

#[tokio::test]
async fn grants_are_spread_over_a_cluster_and_all_of_them_are_found() {
    let [one, two] = Valkey::cluster().await;
    let url = one.cluster_url();
    let setting = Setting::with(one, &url).await;
    for user in [ANN, BOB] {
        setting.first.sign_in(Some(user)).await;
    }
    let (other, _folder) = setting.another().await;
    for user in [ANN, BOB] {
        assert!(
            is_result(&signing_in::call(&other, Some(user)).await),
            "{}",
            other.log.text()
        );
    }
    let kept = async || {
        [
            setting.valkey.ask("KEYS *:grant:*").await,
            two.ask("KEYS *:grant:*").await,
        ]
        .concat()
    };
    let all = kept().await;
    let tag_of = |rest: &str| {
        rest.split_once("}:grant:of:")
            .map(|(tag, _)| tag.to_owned())
    };
    let tags: HashSet<_> = all.split('{').filter_map(tag_of).collect();
    assert_eq!(tags.len(), 2, "{all}");
    let exported = setting.state("export").await;
    let exported = String::from_utf8_lossy(&exported.stdout);
    assert!(
        exported.contains("ann") && exported.contains("bob"),
        "{exported}"
    );
    let purged = setting.state("purge").await;
    assert!(
        purged.status.success(),
        "{}",
        String::from_utf8_lossy(&purged.stderr)
    );
    assert!(!kept().await.contains("grant:"), "{}", kept().await);
    for user in [ANN, BOB] {
        let is_out = async || link_in(&signing_in::call(&other, Some(user)).await).is_some();
        until("the user to be signed out", is_out).await;
    }
}

#[tokio::test]
async fn lists_that_cannot_be_removed_beside_grants_are_reported() {
    let setting = Setting::start().await;
    setting.first.sign_in(Some(ANN)).await;
    let state = setting.first.folder.path().join("state");
    let allow = |mode| fs::set_permissions(&state, fs::Permissions::from_mode(mode)).unwrap();
    allow(0o755);
    for command in ["export", "purge"] {
        let output = setting.state(command).await;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains("chmod 700"),
            "{said}"
        );
    }
    // The grants are gone all the same.
    let is_out =
        async || link_in(&signing_in::call(&setting.first.gateway, Some(ANN)).await).is_some();
    until("the user to be signed out", is_out).await;
    allow(0o700);
    assert!(setting.state("purge").await.status.success());
}

#[tokio::test]
async fn grants_from_before_replicas_are_shown_and_removed_on_record() {
    let valkey = Valkey::start().await;
    let more = format!("{WITH_KEYS}keys: [\"{}\"]\n", "1".repeat(64));
    let setting = SignInSetting::start(&more, r#"{"type":"user"}"#).await;
    setting.sign_in(Some(ANN)).await;
    let config = setting.config();
    setting.gateway.terminate().await;
    let text = fs::read_to_string(&config).unwrap();
    fs::write(
        &config,
        format!("{text}\nreplicas: {{valkey: \"{}\"}}\n", valkey.url()),
    )
    .unwrap();
    let run = async |command: &[&str]| {
        let output = fanlight()
            .args(command)
            .arg("--config")
            .arg(&config)
            .output()
            .await
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = run(&["state", "export"]).await;
    assert!(shown.contains("\"user\""), "{shown}");
    run(&["state", "purge"]).await;
    let shown = run(&["state", "export"]).await;
    assert!(!shown.contains("\"user\""), "{shown}");
    let lines = run(&["audit", "query", "--json", "--action", "signOut"]).await;
    assert!(
        lines.lines().count() == 1 && lines.contains("key#ann"),
        "{lines}"
    );
}
