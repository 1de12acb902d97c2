//! Attacks on the operators' listener: guessed credentials, floods of refused requests, and pages
//! that act for an operator.

use fanlight_testkit::issuer::{Conduct, Issuer, Place};

use crate::harness::Gateway;
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
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    let servers = config(&[backend.entry("a")]);
    let servers = servers.trim_end().strip_suffix('}').unwrap();
    for admin in [
        r#"{"roles":{"operator":{"groups":["ops"]}}}"#,
        r#"{"roles":{"viewer":{"scopes":["admin:read"]}}}"#,
        r#"{"viewerToken":"0123456789abcdef-viewer"}"#,
    ] {
        let gateway = Gateway::start(&format!(r#"{servers},"admin":{admin}}}"#)).await;
        for headers in [
            &[][..],
            &[("X-Forwarded-User", "root")],
            &[("Authorization", "Bearer ")],
        ] {
            for path in ["/api/overview", "/metrics", "/api/config"] {
                let status = send(&gateway, "GET", path, headers, "").await.status;
                assert!(
                    [400, 401].contains(&status),
                    "{admin} {path} {headers:?}: {status}"
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
        r#"{{"mcpServers":{{{}}},"publicUrl":"https://mcp","auth":{{"oauth":[{{"issuer":"{}"}}]}},"admin":{{"roles":{{"operator":{{"scopes":["admin"]}}}}}}}}"#,
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
        r#"{{"mcpServers":{{{}}},"admin":{{"publicUrl":"https://fanlight.example.com","roles":{{"operator":{{"groups":["ops"]}}}},"signIn":{{"issuer":"{}","clientId":"fanlight"}}}}}}"#,
        backend.entry("a"),
        issuer.url(),
    ))
    .await;
    let began = std::time::Instant::now();
    let log = gateway.log.text().len();
    for _ in 0..20 {
        let some = (0..20).map(|_| async {
            let begun = send(
                &gateway,
                "POST",
                "/api/session/issuer",
                &[("Content-Type", "application/json")],
                "{}",
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
