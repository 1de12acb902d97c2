//! Attacks on the operators' listener: guessed credentials, floods of refused requests, and pages
//! that act for an operator.

use fanlight_testkit::browser::{Browser, Page};
use fanlight_testkit::identity_provider::{IdentityProvider, Signature};
use fanlight_testkit::issuer::{Conduct, Issuer, Place, seconds_from_now};
use fanlight_testkit::ports;
use fanlight_testkit::signing_in::KEYS;
use serde_json::json;

use crate::harness::{Gateway, TempFile};
use crate::raw_client::{Connection, Response};
use crate::scripted::{Backend, Era, Transport, config};
use crate::target::{Bounds, Target};

const TOKEN: &str = "0123456789abcdef-operator";

type Headers<'a> = &'a [(&'a str, &'a str)];

async fn send(
    gateway: &Gateway,
    method: &str,
    path: &str,
    headers: Headers<'_>,
    body: &str,
) -> Response {
    let mut connection = Connection::open(gateway.admin).await;
    connection
        .request(method, path, headers, body.as_bytes())
        .await;
    connection.response().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guesses_are_throttled_and_take_neither_memory_nor_log() {
    let target = Target::with(&format!(r#""admin":{{"token":"{TOKEN}"}}"#)).await;
    let gateway = &target.gateway;
    let good = format!("Bearer {TOKEN}");
    assert_eq!(
        send(
            gateway,
            "GET",
            "/api/overview",
            &[("Authorization", &good)],
            ""
        )
        .await
        .status,
        200
    );
    let mut throttled = 0;
    let mut connection = Connection::open(gateway.admin).await;
    for guess in 0..500 {
        let bearer = format!("Bearer guess-number-{guess:06}");
        connection
            .request("GET", "/api/overview", &[("Authorization", &bearer)], b"")
            .await;
        let mut response = connection.response().await;
        throttled += usize::from(response.status == 429);
        assert!([401, 429].contains(&response.status), "{}", response.status);
        response.text().await;
        connection = Connection::open(gateway.admin).await;
    }
    assert!(throttled >= 450, "{throttled}");
    // An operator with valid credentials shares the attacker's address, and used it before the
    // guesses.
    assert_eq!(
        send(
            gateway,
            "GET",
            "/api/overview",
            &[("Authorization", &good)],
            ""
        )
        .await
        .status,
        200
    );
    assert_eq!(send(gateway, "GET", "/healthz", &[], "").await.status, 200);
    let lines = gateway
        .log
        .text()
        .lines()
        .filter(|line| line.contains(r#""target":"audit""#))
        .count();
    assert!(lines <= 100, "{lines} lines");
    assert!(!gateway.log.text().contains("guess-number"));
    target.withstood(Bounds::SMALL).await;
}

/// Every request that another origin's page can make a browser send, with the operator's cookie.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_other_origins_act_for_no_operator() {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.offers_tools(&["t"]);
    let entry = backend.entry("a");
    let gateway = Gateway::start(&format!(
        r#"{{"mcpServers":{{{entry}}},"admin":{{"token":"{TOKEN}"}}}}"#
    ))
    .await;
    let origin = format!("http://{}", gateway.admin);
    let own: Headers<'_> = &[("Content-Type", "application/json"), ("Origin", &origin)];
    let signed = send(
        &gateway,
        "POST",
        "/api/session",
        own,
        &format!(r#"{{"token":"{TOKEN}"}}"#),
    )
    .await;
    let cookie = signed
        .header("set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let other_port = format!("http://127.0.0.1:{}", gateway.mcp.port());
    let foreign: [Headers<'_>; 8] = [
        &[("Origin", "https://evil.example")],
        &[("Origin", "null")],
        &[("Origin", &other_port), ("Sec-Fetch-Site", "same-site")],
        &[
            ("Sec-Fetch-Site", "cross-site"),
            ("Sec-Fetch-Mode", "no-cors"),
            ("Sec-Fetch-Dest", "image"),
        ],
        &[
            ("Sec-Fetch-Site", "cross-site"),
            ("Sec-Fetch-Mode", "navigate"),
            ("Sec-Fetch-Dest", "iframe"),
        ],
        &[("Sec-Fetch-Site", "same-site")],
        &[("Origin", &origin), ("Sec-Fetch-Site", "cross-site")],
        &[
            ("Origin", "https://evil.example"),
            ("Sec-Fetch-Site", "same-origin"),
        ],
    ];
    let call = r#"{"method":"tools/call","params":{"name":"t"}}"#;
    let requests = [
        ("GET", "/api/overview", ""),
        ("GET", "/api/events", ""),
        ("GET", "/api/config", ""),
        ("GET", "/metrics", ""),
        ("POST", "/api/call", call),
        ("POST", "/api/reload", ""),
        ("POST", "/api/servers/a/disable", ""),
        (
            "POST",
            "/api/session",
            r#"{"token":"0123456789abcdef-operator"}"#,
        ),
        ("POST", "/api/session/end", ""),
    ];
    for headers in foreign {
        for (method, path, body) in requests {
            let headers = [
                &[
                    ("Cookie", cookie.as_str()),
                    ("Content-Type", "application/json"),
                ],
                headers,
            ]
            .concat();
            let response = send(&gateway, method, path, &headers, body).await;
            assert_eq!(response.status, 403, "{method} {path} {headers:?}");
            assert!(
                response.header("access-control-allow-origin").is_none()
                    && response.header("set-cookie").is_none()
            );
        }
    }
    assert!(backend.received("tools/call").is_empty());
    let own = [
        ("Cookie", cookie.as_str()),
        ("Sec-Fetch-Site", "same-origin"),
    ];
    assert_eq!(
        send(&gateway, "GET", "/api/overview", &own, "")
            .await
            .status,
        200
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listener_that_only_roles_protect_is_closed_to_clients() {
    let (backend, keys) = (
        Backend::start(Era::Modern, Transport::Http).await,
        TempFile::new("yaml", KEYS),
    );
    let servers = config(&[backend.entry("a")]);
    let servers = servers.trim_end().strip_suffix('}').unwrap();
    let auth = format!(r#""auth":{{"keys":{{"file":{:?}}}}}"#, keys.path());
    for role in ["operator", "approver", "viewer"] {
        let admin = format!(r#""admin":{{"roles":{{"{role}":["group:ops"]}}}}"#);
        let gateway = Gateway::start(&format!("{servers},{auth},{admin}}}")).await;
        for headers in [
            &[][..],
            &[("X-Forwarded-User", "root")],
            &[("Authorization", "Bearer ")],
        ] {
            for path in ["/api/overview", "/metrics", "/api/config"] {
                let status = send(&gateway, "GET", path, headers, "").await.status;
                assert!(
                    [400, 401].contains(&status),
                    "{role} {path} {headers:?}: {status}"
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_for_a_host_of_a_similar_name_opens_nothing_for_operators() {
    let (backend, issuer) = (
        Backend::start(Era::Modern, Transport::Http).await,
        Issuer::start().await,
    );
    let gateway = Gateway::start(&format!(
        r#"{{"mcpServers":{{{}}},"publicUrl":"https://mcp","auth":{{"oauth":[{{"issuer":"{}"}}]}},"admin":{{"roles":{{"operator":["group:admin"]}}}}}}"#,
        backend.entry("a"),
        issuer.url(),
    ))
    .await;
    for audience in [
        "https://mcpadmin",
        "https://mcp/admin",
        "https://mcp",
        "https://mcp/mcp",
        "admin",
    ] {
        let bearer = format!("Bearer {}", issuer.token("eve", audience, "admin"));
        let headers = [
            ("Authorization", bearer.as_str()),
            ("Content-Type", "application/json"),
        ];
        let refused = send(&gateway, "POST", "/api/reload", &headers, "").await;
        assert_eq!(refused.status, 401, "{audience}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sign_ins_while_the_issuer_fails_ask_it_seldom_and_fill_no_log() {
    let (backend, issuer) = (
        Backend::start(Era::Modern, Transport::Http).await,
        Issuer::start().await,
    );
    issuer.conduct(Place::Metadata, Conduct::Status(503));
    let gateway = Gateway::start(&format!(
        r#"{{"mcpServers":{{{}}},"auth":{{"oauth":[{{"issuer":"{}","audience":"fanlight","signIn":{{"clientId":"fanlight"}}}}]}},"admin":{{"publicUrl":"https://fanlight.example.com","roles":{{"operator":["group:ops"]}}}}}}"#,
        backend.entry("a"),
        issuer.url(),
    ))
    .await;
    let began = std::time::Instant::now();
    let log = gateway.log.text().len();
    let begin = format!(r#"{{"issuer":"{}"}}"#, issuer.url());
    for _ in 0..20 {
        let some = (0..20).map(|_| async {
            let begun = send(
                &gateway,
                "POST",
                "/api/session/issuer",
                &[("Content-Type", "application/json")],
                &begin,
            );
            begun.await.status
        });
        let statuses = futures_util::future::join_all(some).await;
        assert!(statuses.iter().all(|status| *status == 503), "{statuses:?}");
    }
    // An attempt sends two requests, and begins two seconds after the last one.
    let attempts = 1 + usize::try_from(began.elapsed().as_secs() / 2).unwrap();
    let asked = issuer.asked(Place::Metadata);
    assert!(
        asked > 0 && asked <= 2 * attempts,
        "{asked} requests in {:?}",
        began.elapsed()
    );
    let text = gateway.log.text().split_off(log);
    assert_eq!(
        text.matches("cannot ask the issuer at which operators sign in")
            .count(),
        1,
        "{text}"
    );
    assert!(text.len() < 20_000, "{} bytes", text.len());
}

/// A gateway at whose page operators of the group `ops`, and `root`, sign in at an identity
/// provider.
struct Signing {
    gateway: Gateway,
    provider: IdentityProvider,
    _folder: TempFile,
}

impl Signing {
    async fn start() -> Self {
        let provider = IdentityProvider::start().await;
        let backend = Backend::start(Era::Modern, Transport::Http).await;
        let (clients, operators) = (ports::free(), ports::free());
        let text = format!(
            "{}listen: \"{clients}\"\nadmin: {{listen: \"{operators}\", publicUrl: \"http://{operators}\", roles: \
             {{operator: [\"group:ops\", \"user:{}#root\"], viewer: \"user:{}#vic\"}}}}\nmcpServers: {{{}}}\n",
            provider.lines(", signIn: {clientId: fanlight}"),
            provider.url(),
            provider.url(),
            backend.entry("a"),
        );
        let folder = TempFile::folder();
        let path = folder.path().join("fanlight.yaml");
        std::fs::write(&path, text).unwrap();
        Self {
            gateway: Gateway::start_at_addresses_of(path).await,
            provider,
            _folder: folder,
        }
    }

    /// A request of the page itself.
    async fn post(&self, browser: &mut Browser, path: &str, body: &str) -> Page {
        let origin = format!("http://{}", self.gateway.admin);
        let headers = [
            ("Content-Type", "application/json"),
            ("Origin", origin.as_str()),
            ("Sec-Fetch-Site", "same-origin"),
        ];
        let url = format!("{origin}{path}");
        browser.request("POST", &url, &headers, body).await
    }

    /// Sends the browser to the issuer; returns what the issuer adds to the address of the callback.
    async fn begin(&self, browser: &mut Browser) -> String {
        let issuer = json!({ "issuer": self.provider.url() }).to_string();
        let begun = self.post(browser, "/api/session/issuer", &issuer).await;
        assert_eq!(begun.status, 200, "{begun:?}\n{}", self.gateway.log.text());
        let location: serde_json::Value = serde_json::from_str(&begun.text).unwrap();
        let back = browser.open(location["location"].as_str().unwrap()).await;
        let (callback, query) = (back.location(), "/sign-in/callback?");
        let origin = format!("http://{}", self.gateway.admin);
        callback
            .strip_prefix(&format!("{origin}{query}"))
            .unwrap_or_else(|| panic!("{callback}"))
            .to_owned()
    }

    async fn end(&self, browser: &mut Browser, query: &str) -> Page {
        let answer = json!({ "query": query }).to_string();
        self.post(browser, "/api/session/issuer/answer", &answer)
            .await
    }

    async fn sign_in(&self, browser: &mut Browser) -> Page {
        let query = self.begin(browser).await;
        self.end(browser, &query).await
    }
}

/// The role comes from the issuer and the subject, or a group: never from a displayed name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_of_an_operator_makes_nobody_an_operator() {
    let signing = Signing::start().await;
    let named = json!({ "preferred_username": "root", "email": "root", "name": "root" });
    signing.provider.changes_id_tokens(named);
    for user in ["eve", "Root", "root ", "group:ops", "ops"] {
        signing.provider.signs_in(user);
        let refused = signing.sign_in(&mut Browser::default()).await;
        assert_eq!(refused.status, 403, "{user}: {refused:?}");
        assert!(refused.text.contains("root has no role"), "{refused:?}");
    }
    for (user, role) in [("root", "operator"), ("vic", "viewer")] {
        signing.provider.signs_in(user);
        let mut browser = Browser::default();
        let signed = signing.sign_in(&mut browser).await;
        let expected = format!(r#""name":"root","source":"sign-in","role":"{role}""#);
        assert!(
            signed.status == 200 && signed.text.contains(&expected),
            "{signed:?}"
        );
        let changed = signing.post(&mut browser, "/api/reload", "").await;
        assert_eq!(changed.status, if user == "root" { 200 } else { 403 });
    }
    signing.provider.signs_in("eve");
    let grouped = json!({ "preferred_username": "root", "groups": ["ops"] });
    signing.provider.changes_id_tokens(grouped);
    let signed = signing.sign_in(&mut Browser::default()).await;
    assert!(signed.text.contains(r#""role":"operator""#), "{signed:?}");
    let principal = format!(r#""principal":"{}#eve""#, signing.provider.url());
    signing
        .gateway
        .log
        .line_with_all(&["operator: sign-in", &principal])
        .await;
}

/// Each issuer has a place of its own to which it sends browsers back (RFC 9700, 4.4.2.2).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_at_the_place_of_another_issuer_signs_no_operator_in() {
    let signing = Signing::start().await;
    signing.provider.signs_in("root");
    let own = "/sign-in/callback";
    let other = format!("{own}/00000000000000000000000000000000");
    for (path, status) in [(own, 200), (other.as_str(), 401), ("", 401)] {
        let mut browser = Browser::default();
        let query = signing.begin(&mut browser).await;
        let answer = json!({ "query": query, "path": path }).to_string();
        let place = "/api/session/issuer/answer";
        let ended = signing.post(&mut browser, place, &answer).await;
        assert_eq!(ended.status, status, "{path}: {ended:?}");
    }
    assert_eq!(signing.provider.server.asked("/token").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn id_tokens_of_others_sign_no_operator_in() {
    let all = [
        json!({ "iss": "https://evil.example" }),
        json!({ "aud": "other" }),
        json!({ "aud": ["fanlight", "other"] }),
        json!({ "aud": ["fanlight", "other"], "azp": "other" }),
        json!({ "azp": "other" }),
        json!({ "aud": null }),
        json!({ "nonce": "another" }),
        json!({ "nonce": null }),
        json!({ "exp": seconds_from_now(-7200) }),
        json!({ "exp": null }),
        json!({ "exp": "never" }),
        json!({ "iat": seconds_from_now(7200) }),
        json!({ "iat": null }),
        json!({ "sub": null }),
        json!({ "sub": "" }),
        json!({ "sub": ["root"] }),
        json!({ "groups": { "ops": true } }),
    ];
    // Ten refusals have an address wait.
    for some in all.chunks(9) {
        let signing = Signing::start().await;
        signing.provider.signs_in("root");
        for claims in some {
            signing.provider.changes_id_tokens(claims.clone());
            let mut browser = Browser::default();
            let refused = signing.sign_in(&mut browser).await;
            assert_eq!(refused.status, 401, "{claims}: {refused:?}");
            let names = browser.cookie_names();
            assert!(names.is_empty(), "{claims}: {names:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_of_an_issuer_is_good_in_the_browser_that_began_alone() {
    let signing = Signing::start().await;
    signing.provider.signs_in("root");
    for signature in [Signature::None, Signature::OfAnotherKey] {
        signing.provider.signs(signature);
        let refused = signing.sign_in(&mut Browser::default()).await;
        assert_eq!(refused.status, 401, "{signature:?}: {refused:?}");
    }
    signing.provider.signs(Signature::Good);
    let (mut attacker, mut victim) = (Browser::default(), Browser::default());
    let query = signing.begin(&mut attacker).await;
    assert_eq!(signing.end(&mut victim, &query).await.status, 401);
    let own = signing.begin(&mut victim).await;
    assert_eq!(signing.end(&mut victim, &query).await.status, 401);
    let twice = format!("{own}&code=another");
    let own = signing.begin(&mut victim).await;
    assert_eq!(signing.end(&mut victim, &twice).await.status, 401);
    // The cookie is gone with the first answer.
    assert_eq!(signing.end(&mut victim, &own).await.status, 401);
    assert_eq!(signing.sign_in(&mut victim).await.status, 200);
}
