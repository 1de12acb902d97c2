//! Attacks by a server and its authorization server on another server's users. They send a browser
//! on to another authorization server (RFC 9700, 4.4), or name one as their own.

use std::fs;
use std::sync::Arc;

use fanlight_testkit::authorization_server::{Asked, AuthorizationServer};
use fanlight_testkit::browser::{Browser, Page};
use fanlight_testkit::identity_provider::IdentityProvider;
use fanlight_testkit::issuer::Conduct;
use fanlight_testkit::scripted::Protection;
use fanlight_testkit::signing_in::{SignInSetting, ask, link_in};
use serde_json::{Value, json};

use crate::harness::{Gateway, TempFile, fanlight, within};
use crate::scripted::{Backend, Era, Reply, Transport};

/// A server with its authorization server, which does not name itself in answers.
struct Side {
    backend: Backend,
    authorization: Arc<AuthorizationServer>,
}

impl Side {
    async fn start() -> Self {
        let authorization = Arc::new(AuthorizationServer::start().await);
        authorization.describe(silent(json!({})));
        let backend = Backend::start(Era::Modern, Transport::Http).await;
        backend.offers_tools(&["t"]);
        let result = Era::Modern.complete(r#""content":[]"#);
        backend.on("tools/call", Reply::result(result));
        let side = Self {
            backend,
            authorization,
        };
        side.names(&side.authorization);
        side
    }

    /// Names this authorization server to clients.
    fn names(&self, authorization: &Arc<AuthorizationServer>) {
        let valid = Arc::clone(authorization);
        let url = self.backend.url();
        let protection = Protection::by_token(&url, authorization.url(), move |token| {
            valid.is_valid(token)
        });
        self.backend.protect(protection);
    }

    /// Whether a token came here.
    fn has_got_tokens(&self) -> bool {
        let mut calls = self.backend.received("tools/call").into_iter();
        calls.any(|call| call.header("authorization").is_some())
    }
}

/// Metadata without RFC 9207.
fn silent(mut members: Value) -> Value {
    members["authorization_response_iss_parameter_supported"] = json!(null);
    members
}

struct Scene {
    good: Side,
    evil: Side,
    gateway: Gateway,
    folder: TempFile,
}

impl Scene {
    /// Both servers behind a gateway, with these members of their `auth`.
    async fn start(good: &str, evil: &str) -> Self {
        let sides = (Side::start().await, Side::start().await);
        Self::start_between(sides, "", good, evil).await
    }

    async fn start_between(
        (good, evil): (Side, Side),
        lines: &str,
        more: &str,
        of_evil: &str,
    ) -> Self {
        let entry = |side: &Side, name: &str, more: &str| {
            let auth = format!(r#""auth":{{"type":"user"{more}}}"#);
            side.backend.entry_with(name, &auth)
        };
        let (a, b) = (entry(&good, "good", more), entry(&evil, "evil", of_evil));
        let folder = TempFile::folder();
        let path = folder.path().join("fanlight.yaml");
        let text = format!("stateDir: state\n{lines}mcpServers: {{{a}, {b}}}\n");
        fs::write(&path, text).unwrap();
        Self {
            gateway: Gateway::start_at(path).await,
            good,
            evil,
            folder,
        }
    }

    async fn call(&self, server: &str) -> String {
        let params = format!(r#""name":"{server}__t","arguments":{{}}"#);
        ask(&self.gateway, "tools/call", &params, None).await
    }

    async fn page(&self, browser: &mut Browser, server: &str) -> Page {
        let answer = self.call(server).await;
        let link = link_in(&answer);
        let link = link.unwrap_or_else(|| panic!("{answer}\n{}", self.gateway.log.text()));
        browser.open(&link).await
    }

    /// Agrees on a page; returns the redirect to the authorization server.
    async fn agree(&self, browser: &mut Browser, server: &str) -> Page {
        let page = self.page(browser, server).await;
        assert_eq!(page.status, 200, "{page:?}\n{}", self.gateway.log.text());
        let sent = browser.submit(&page, &[]).await;
        assert_eq!(sent.status, 303, "{sent:?}\n{}", self.gateway.log.text());
        sent
    }

    async fn sign_in(&self, server: &str) -> Page {
        let mut browser = Browser::default();
        let sent = self.agree(&mut browser, server).await;
        browser.follow(sent).await
    }

    async fn assert_signs_in(&self, server: &str) {
        let done = self.sign_in(server).await;
        let is_done = done.text.contains(&format!("signed in to {server}"));
        assert!(is_done, "{done:?}\n{}", self.gateway.log.text());
    }
}

/// The address at `good` with the parameters of a request, some of which are replaced.
fn passed_on(good: &str, asked: &Asked, replaced: &[(&str, &str)]) -> String {
    let mut parameters = asked.parameters.clone();
    for (name, value) in replaced {
        parameters.insert((*name).to_owned(), (*value).to_owned());
    }
    let encoded =
        |text: &String| -> String { text.bytes().map(|byte| format!("%{byte:02X}")).collect() };
    let pairs: Vec<_> = parameters
        .iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    let query = pairs.join("&");
    format!("{good}/authorize?{query}")
}

/// The evil authorization server sends the browser on to the good one, with the gateway's own
/// `state` and challenge.
#[tokio::test]
async fn code_of_one_authorization_server_is_not_posted_to_another() {
    for has_client in [false, true] {
        let (good, evil) = (Side::start().await, Side::start().await);
        let issuer = good.authorization.url();
        let client = format!(r#","issuer":"{issuer}","clientId":"c""#);
        let more = if has_client { &client } else { "" };
        let scene = Scene::start_between((good, evil), "", more, "").await;
        scene.assert_signs_in("good").await;
        let asked = scene.good.authorization.asked("/authorize").remove(0);
        let parameter = |name: &str| asked.parameter(name).unwrap().to_owned();
        let (client, redirect_uri) = (parameter("client_id"), parameter("redirect_uri"));
        assert!(!redirect_uri.ends_with("/oauth/callback"), "{redirect_uri}");
        scene.good.authorization.knows(&client, &redirect_uri);
        let tokens = scene.good.authorization.asked("/token").len();
        for takes_over in [false, true] {
            let good = scene.good.authorization.url().to_owned();
            let (client, redirect_uri) = (client.clone(), redirect_uri.clone());
            scene.evil.authorization.sends_browsers(move |asked| {
                let mut replaced = vec![("client_id", client.as_str())];
                if takes_over {
                    replaced.push(("redirect_uri", redirect_uri.as_str()));
                }
                passed_on(&good, asked, &replaced)
            });
            let end = scene.sign_in("evil").await;
            let got = scene.evil.authorization.asked("/token");
            assert!(got.is_empty(), "{has_client:?}: {end:?} {got:?}");
            assert!(!takes_over || end.status == 403, "{end:?}");
        }
        assert_eq!(scene.good.authorization.asked("/token").len(), tokens);
        assert!(!scene.evil.has_got_tokens());
    }
}

/// An answer is worth nothing at the place of another issuer, nor at the one that issuers share.
#[tokio::test]
async fn answer_at_the_place_of_another_issuer_is_refused_and_spent() {
    let scene = Scene::start("", "").await;
    for change in ["", "/00000000000000000000000000000000", "other"] {
        let mut browser = Browser::default();
        let sent = scene.agree(&mut browser, "good").await;
        let back = browser.open(&sent.location()).await.location();
        let (place, query) = back.split_once('?').unwrap();
        let (shared, own) = place.rsplit_once('/').unwrap();
        assert!(
            shared.ends_with("/oauth/callback") && own.len() == 32,
            "{place}"
        );
        let changed = match change {
            "other" => {
                let asked = scene.agree(&mut browser, "evil").await;
                let asked = browser.open(&asked.location()).await.location();
                asked.split_once('?').unwrap().0.to_owned()
            }
            _ => format!("{shared}{change}"),
        };
        assert_ne!(changed, place);
        let refused = browser.open(&format!("{changed}?{query}")).await;
        assert_eq!(refused.status, 403, "{changed}: {refused:?}");
        assert_eq!(browser.open(&back).await.status, 403, "it is spent");
    }
    assert!(scene.good.authorization.asked("/token").is_empty());
}

/// The authorization server ignores `resource`, so its tokens are good at the server that it is for.
#[tokio::test]
async fn authorization_server_of_another_server_is_used_only_if_that_is_certain() {
    // Under its own name, and by endpoints in metadata of another issuer.
    for is_disguised in [false, true] {
        let (good, evil) = (Side::start().await, Side::start().await);
        let at = |path: &str| format!("{}{path}", good.authorization.url());
        if is_disguised {
            evil.authorization.describe(silent(json!({
                "authorization_endpoint": at("/authorize"),
                "token_endpoint": at("/token"),
                "registration_endpoint": at("/register"),
                "protected_resources": [evil.backend.url()],
            })));
        } else {
            evil.names(&good.authorization);
        }
        let scene = Scene::start_between((good, evil), "", "", "").await;
        scene.assert_signs_in("good").await;
        let good = &scene.good.authorization;
        let begun = good.asked("/authorize").len();
        let page = scene.page(&mut Browser::default(), "evil").await;
        let says = page.text.contains("`issuer: ") && page.text.contains("another server");
        assert!(page.status == 403 && says, "{page:?}");
        assert_eq!(good.asked("/authorize").len(), begun);
        // The first server is not kept out.
        let mut logout = fanlight();
        let config = scene.folder.path().join("fanlight.yaml");
        logout.args(["logout", "good", "--config"]).arg(config);
        assert!(logout.output().await.unwrap().status.success());
        within("the sign-out", async {
            while link_in(&scene.call("good").await).is_none() {}
        })
        .await;
        scene.assert_signs_in("good").await;
        // The authorization server says that it is for this server, too.
        let resources = json!({ "protected_resources": [scene.evil.backend.url()] });
        good.describe(silent(resources));
        // A process reuses metadata for a minute.
        let path = scene.folder.path().join("fanlight.yaml");
        let gateway = Gateway::start_at(path).await;
        let scene = Scene { gateway, ..scene };
        if is_disguised {
            let page = scene.page(&mut Browser::default(), "evil").await;
            assert_eq!(page.status, 403, "{page:?}");
        } else {
            scene.assert_signs_in("evil").await;
        }
    }
}

#[tokio::test]
async fn authorization_server_that_the_configuration_names_for_one_server_is_for_no_other() {
    let (good, evil) = (Side::start().await, Side::start().await);
    let issuer = format!(r#","issuer":"{}""#, good.authorization.url());
    evil.names(&good.authorization);
    let scene = Scene::start_between((good, evil), "", &issuer, "").await;
    // Also before anybody has signed in to the other server.
    let page = scene.page(&mut Browser::default(), "evil").await;
    assert_eq!(page.status, 403, "{page:?}");
    let (good, evil) = (Side::start().await, Side::start().await);
    let issuer = format!(r#","issuer":"{}""#, good.authorization.url());
    evil.names(&good.authorization);
    let scene = Scene::start_between((good, evil), "", &issuer, &issuer).await;
    for server in ["evil", "good"] {
        scene.assert_signs_in(server).await;
    }
}

/// Such an authorization server would let others redeem a stolen code.
#[tokio::test]
async fn authorization_server_without_s256_is_neither_registered_at_nor_offered() {
    for methods in [json!(null), json!([]), json!(["plain"])] {
        let (good, evil) = (Side::start().await, Side::start().await);
        let members = json!({ "code_challenge_methods_supported": methods });
        good.authorization.describe(silent(members.clone()));
        let scene = Scene::start_between((good, evil), "", "", "").await;
        for _ in 0..2 {
            let answer = scene.call("good").await;
            assert!(link_in(&answer).is_none(), "{answer}");
        }
        // It has changed since a user got a link.
        let page = scene.page(&mut Browser::default(), "evil").await;
        scene.evil.authorization.describe(silent(members));
        let gateway = Gateway::start_at(scene.folder.path().join("fanlight.yaml")).await;
        let (_, path) = page.url.split_once("/connect/").unwrap();
        let link = format!("http://{}/connect/{path}", gateway.mcp);
        let page = Browser::default().open(&link).await;
        let says = page.text.contains("S256");
        assert!(page.status == 502 && says, "{page:?}");
        for side in [&scene.good, &scene.evil] {
            assert!(side.authorization.asked("/register").is_empty());
        }
    }
}

/// Anybody can begin to sign in.
#[tokio::test]
async fn issuer_that_refuses_registrations_is_not_asked_for_each_sign_in() {
    let refusals = [
        Conduct::Status(403),
        Conduct::Status(500),
        Conduct::Text(r#"{"error":"access_denied"}"#.to_owned()),
    ];
    for refusal in refusals {
        let provider = IdentityProvider::start().await;
        let lines = provider.lines(", signIn: {}");
        let setting = SignInSetting::start(&lines, r#"{"type":"user"}"#).await;
        provider.server.conduct("/register", refusal.clone());
        setting.authorization.conduct("/register", refusal.clone());
        let mut browser = Browser::default();
        let page = setting
            .page(&mut browser, Some(&provider.access_token("ann")))
            .await;
        let began = std::time::Instant::now();
        for _ in 0..150 {
            let refused = browser.submit(&page, &[("action", "identify")]).await;
            assert!(refused.status >= 400, "{refused:?}");
        }
        let asked = provider.server.asked("/register").len();
        let most = 1 + usize::try_from(began.elapsed().as_secs() / 5).unwrap();
        assert!((1..=most).contains(&asked), "{refusal:?}: {asked}");
        let log = setting.gateway.log.text();
        assert!(log.matches("sign-in failed").count() <= most, "{log}");
    }
}
