//! Signing in to the page with a token: the session's cookie, and attacks on it.

use std::sync::Arc;
use std::time::Duration;

use fanlight_admin::AdminSettings;
use fanlight_http::PublicUrl;
use http::{HeaderMap, Method, StatusCode};

use crate::people::{People, TOKEN, VIEWER, settings};
use crate::scene::{Answer, Scene, fake, soon};

async fn scene() -> Scene {
    Scene::with(vec![fake("a", &[])], settings(), Arc::new(People)).await
}

fn own_origin(scene: &Scene) -> String {
    format!("http://{}", scene.address)
}

async fn sign_in(scene: &Scene, token: &str, more: &[(&str, &str)]) -> Answer {
    let body = format!(r#"{{"token":"{token}"}}"#);
    let origin = own_origin(scene);
    let headers = [
        &[
            ("content-type", "application/json"),
            ("origin", origin.as_str()),
        ],
        more,
    ]
    .concat();
    scene
        .send(Method::POST, "/api/session", &headers, &body)
        .await
}

/// The first cookie that a response sets, in the form for requests.
fn cookie(headers: &HeaderMap) -> String {
    let set = headers
        .get("set-cookie")
        .expect("a cookie")
        .to_str()
        .unwrap();
    set.split(';').next().unwrap().to_owned()
}

async fn signed_in(scene: &Scene, token: &str) -> String {
    let answer = sign_in(scene, token, &[]).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    cookie(&answer.headers)
}

async fn overview(scene: &Scene, cookie: &str) -> StatusCode {
    scene
        .send(Method::GET, "/api/overview", &[("cookie", cookie)], "")
        .await
        .status
}

#[tokio::test]
async fn session_is_begun_with_a_token_and_ended_by_signing_out() {
    let scene = scene().await;
    let answer = scene.get("/api/session").await;
    assert_eq!(
        answer.text,
        r#"{"identity":null,"signIn":{"token":true,"issuers":[]}}"#
    );
    for (token, name, role) in [
        (TOKEN, "admin.token", "operator"),
        (VIEWER, "vic", "viewer"),
        ("key-of-ann", "ann", "operator"),
    ] {
        let answer = sign_in(&scene, token, &[]).await;
        let set = answer.headers["set-cookie"].to_str().unwrap();
        assert!(
            set.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
            "{set}"
        );
        assert!(!set.contains(token) && !answer.text.contains(token));
        assert!(
            answer
                .text
                .contains(&format!(r#""role":"{role}","session":true"#)),
            "{}",
            answer.text
        );
        let cookie = cookie(&answer.headers);
        let who = scene
            .send(Method::GET, "/api/session", &[("cookie", &cookie)], "")
            .await;
        assert!(
            who.text.contains(&format!(r#""name":"{name}""#)),
            "{}",
            who.text
        );
        assert!(
            who.text
                .contains(&format!(r#""role":"{role}","session":true"#)),
            "{}",
            who.text
        );
        assert_eq!(overview(&scene, &cookie).await, StatusCode::OK);
        let origin = own_origin(&scene);
        let headers = [("cookie", cookie.as_str()), ("origin", origin.as_str())];
        let reload = scene
            .send(Method::POST, "/api/servers/a/enable", &headers, "")
            .await;
        assert_eq!(
            reload.status == StatusCode::OK,
            role == "operator",
            "{}",
            reload.text
        );
        let out = scene
            .send(Method::POST, "/api/session/end", &headers, "")
            .await;
        assert!(
            out.headers["set-cookie"]
                .to_str()
                .unwrap()
                .ends_with("; Max-Age=0")
        );
        let refused = scene
            .send(Method::GET, "/api/overview", &headers[..1], "")
            .await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        assert!(
            refused.text.contains("session of the page has ended"),
            "{}",
            refused.text
        );
        assert!(
            refused.headers["set-cookie"]
                .to_str()
                .unwrap()
                .ends_with("; Max-Age=0"),
            "the browser forgets it"
        );
    }
}

#[tokio::test]
async fn wrong_token_signs_nobody_in() {
    let scene = scene().await;
    let wrong = [
        "wrong",
        "",
        "token-of-operator",
        "token-of-operatorS",
        "key-of-eve",
        "Bearer token-of-operators",
    ];
    for token in wrong {
        let answer = sign_in(&scene, token, &[]).await;
        assert!([401, 403].contains(&answer.status.as_u16()), "{token}");
        assert!(!answer.headers.contains_key("set-cookie"));
    }
    for body in [
        "",
        "{}",
        "[]",
        r#"{"token":7}"#,
        r#"{"token":["token-of-operators"]}"#,
    ] {
        let headers = [("content-type", "application/json")];
        let answer = scene
            .send(Method::POST, "/api/session", &headers, body)
            .await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{body}");
    }
}

/// Login CSRF: a page that signs its reader in as its author could read the reader's later actions.
#[tokio::test]
async fn other_sites_cannot_sign_in_or_out() {
    let scene = scene().await;
    let cookie = signed_in(&scene, TOKEN).await;
    let body = format!(r#"{{"token":"{TOKEN}"}}"#);
    let json = ("content-type", "application/json");
    let cookie_header = ("cookie", cookie.as_str());
    for path in ["/api/session", "/api/session/end"] {
        for foreign in [
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            let answer = scene
                .send(Method::POST, path, &[json, cookie_header, foreign], &body)
                .await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} {foreign:?}");
            assert!(!answer.headers.contains_key("set-cookie"));
        }
    }
    // Content types that a form can send without a preflight.
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
    ] {
        let answer = scene
            .send(
                Method::POST,
                "/api/session",
                &[("content-type", kind)],
                &body,
            )
            .await;
        assert_eq!(answer.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    }
    assert_eq!(overview(&scene, &cookie).await, StatusCode::OK);
}

#[tokio::test]
async fn cookie_is_of_no_use_to_pages_of_other_origins() {
    let scene = scene().await;
    let cookie = signed_in(&scene, TOKEN).await;
    let origin = own_origin(&scene);
    for (method, path) in [
        (Method::GET, "/api/overview"),
        (Method::GET, "/api/events"),
        (Method::GET, "/metrics"),
        (Method::POST, "/api/reload"),
    ] {
        for foreign in [
            &[("sec-fetch-site", "cross-site")][..],
            &[
                ("sec-fetch-site", "same-site"),
                ("sec-fetch-mode", "no-cors"),
            ],
            &[("origin", "http://localhost:9")],
            &[
                ("origin", origin.as_str()),
                ("sec-fetch-site", "cross-site"),
            ],
            &[
                ("origin", origin.as_str()),
                ("origin", "https://evil.example"),
            ],
            &[
                ("sec-fetch-site", "same-origin"),
                ("sec-fetch-site", "cross-site"),
            ],
        ] {
            let headers = [&[("cookie", cookie.as_str())], foreign].concat();
            let status = scene.send(method.clone(), path, &headers, "").await.status;
            assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path} {foreign:?}");
        }
    }
    // A change must name the page that makes it.
    let headers = [("cookie", cookie.as_str())];
    let answer = scene.send(Method::POST, "/api/reload", &headers, "").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(answer.text.contains("`Origin`"), "{}", answer.text);
    for own in [
        ("origin", origin.as_str()),
        ("sec-fetch-site", "same-origin"),
    ] {
        let answer = scene
            .send(
                Method::POST,
                "/api/servers/a/restart",
                &[headers[0], own],
                "",
            )
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    }
    assert_eq!(scene.operations.asked().len(), 2);
}

#[tokio::test]
async fn sign_in_makes_a_new_id_and_ends_the_earlier_session() {
    let scene = scene().await;
    let planted = format!(
        "fanlight-{}=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        scene.address.port()
    );
    let answer = sign_in(&scene, TOKEN, &[("cookie", &planted)]).await;
    let first = cookie(&answer.headers);
    assert_ne!(first, planted);
    assert_eq!(overview(&scene, &planted).await, StatusCode::UNAUTHORIZED);
    let answer = sign_in(&scene, VIEWER, &[("cookie", &first)]).await;
    let second = cookie(&answer.headers);
    assert!(first != second && second.len() == first.len());
    assert_eq!(overview(&scene, &first).await, StatusCode::UNAUTHORIZED);
    assert_eq!(overview(&scene, &second).await, StatusCode::OK);
}

#[tokio::test]
async fn cookies_that_are_there_twice_or_beside_a_wrong_token_are_refused() {
    let scene = scene().await;
    let cookie = signed_in(&scene, TOKEN).await;
    let name = cookie.split('=').next().unwrap();
    let twice = format!("{cookie}; {name}=other");
    assert_eq!(overview(&scene, &twice).await, StatusCode::BAD_REQUEST);
    let headers = [
        ("cookie", cookie.as_str()),
        ("authorization", "Bearer wrong"),
    ];
    let answer = scene.send(Method::GET, "/api/overview", &headers, "").await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    for other in [
        format!("{name}="),
        cookie.to_uppercase(),
        cookie.replace(name, "fanlight"),
        format!("{cookie}A"),
    ] {
        assert_eq!(
            overview(&scene, &other).await,
            StatusCode::UNAUTHORIZED,
            "{other}"
        );
    }
}

#[tokio::test]
async fn wrong_credentials_are_throttled_and_sessions_are_not() {
    let settings = AdminSettings {
        max_sign_in_failures: 5,
        ..settings()
    };
    let scene = Scene::with(vec![fake("a", &[])], settings, Arc::new(People)).await;
    let cookie = signed_in(&scene, TOKEN).await;
    for guess in 0..5 {
        let guess = format!("guess-{guess}");
        let bearer = format!("Bearer {guess}");
        // Guesses count on the form and in the header alike.
        let status = match guess.ends_with(['1', '3']) {
            true => sign_in(&scene, &guess, &[]).await.status,
            false => {
                scene
                    .send(Method::GET, "/readyz", &[("authorization", &bearer)], "")
                    .await
                    .status
            }
        };
        assert!([200, 401].contains(&status.as_u16()), "{status}");
    }
    let refused = sign_in(&scene, VIEWER, &[]).await;
    assert_eq!(
        refused.status,
        StatusCode::TOO_MANY_REQUESTS,
        "even the right one, which is not looked at"
    );
    assert!(
        refused.headers["retry-after"]
            .to_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
            <= 60
    );
    let bearer = format!("Bearer {VIEWER}");
    let refused = scene
        .send(
            Method::GET,
            "/api/overview",
            &[("authorization", &bearer)],
            "",
        )
        .await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(overview(&scene, &cookie).await, StatusCode::OK);
    // Another program at the same address that has always used the token goes on.
    assert_eq!(sign_in(&scene, TOKEN, &[]).await.status, StatusCode::OK);
    let metrics = scene
        .send(Method::GET, "/metrics", &[("cookie", &cookie)], "")
        .await
        .text;
    assert!(
        metrics.contains(r#"fanlight_auth_sign_ins_total{method="token",outcome="refused"} 3"#),
        "{metrics}"
    );
    assert!(
        metrics.contains(r#"fanlight_auth_sign_ins_total{method="token",outcome="accepted"} 2"#),
        "{metrics}"
    );
    assert!(
        metrics.contains("fanlight_auth_operator_sessions 2"),
        "{metrics}"
    );
}

#[tokio::test]
async fn session_and_its_stream_end_with_the_token_they_rest_on() {
    let scene = scene().await;
    let (cookie, other) = (
        signed_in(&scene, TOKEN).await,
        signed_in(&scene, "key-of-ann").await,
    );
    let mut client = scene.client().await;
    let mut events = client
        .open(Method::GET, "/api/events", &[("cookie", &cookie)], "")
        .await
        .into_body();
    scene.live.replace(AdminSettings {
        token: Some("another-token-now".into()),
        address: Some(scene.address),
        ..settings()
    });
    while let Some(frame) = soon(http_body_util::BodyExt::frame(&mut events)).await {
        frame.unwrap();
    }
    assert_eq!(overview(&scene, &cookie).await, StatusCode::UNAUTHORIZED);
    assert_eq!(overview(&scene, &other).await, StatusCode::OK);
    // A return to the earlier token does not bring the session back.
    scene.live.replace(AdminSettings {
        address: Some(scene.address),
        ..settings()
    });
    assert_eq!(overview(&scene, &cookie).await, StatusCode::UNAUTHORIZED);
    // A session loses its rights as soon as its group loses the role.
    scene.live.replace(AdminSettings {
        roles: Default::default(),
        address: Some(scene.address),
        ..settings()
    });
    assert_eq!(overview(&scene, &other).await, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn stream_of_events_ends_with_its_session() {
    let scene = scene().await;
    let cookie = signed_in(&scene, VIEWER).await;
    let mut client = scene.client().await;
    let mut events = client
        .open(Method::GET, "/api/events", &[("cookie", &cookie)], "")
        .await
        .into_body();
    let origin = own_origin(&scene);
    let headers = [("cookie", cookie.as_str()), ("origin", origin.as_str())];
    assert_eq!(
        scene
            .send(Method::POST, "/api/session/end", &headers, "")
            .await
            .status,
        StatusCode::OK
    );
    while let Some(frame) = soon(http_body_util::BodyExt::frame(&mut events)).await {
        frame.unwrap();
    }
    // An unused session ends by itself.
    let settings = AdminSettings {
        session_lifetime: Duration::from_millis(1),
        ..settings()
    };
    scene.live.replace(AdminSettings {
        address: Some(scene.address),
        ..settings
    });
    let cookie = signed_in(&scene, VIEWER).await;
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!(overview(&scene, &cookie).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn page_behind_a_proxy_with_tls_has_secure_cookies_and_its_own_origin() {
    let public = "https://fanlight.example.com";
    let settings = AdminSettings {
        public_url: PublicUrl::parse(public),
        ..settings()
    };
    let scene = Scene::with(vec![fake("a", &[])], settings, Arc::new(People)).await;
    let body = format!(r#"{{"token":"{TOKEN}"}}"#);
    let json = ("content-type", "application/json");
    // The proxy may or may not forward the name.
    for host in [&[("host", "fanlight.example.com")][..], &[]] {
        let headers = [
            &[json, ("origin", public), ("sec-fetch-site", "same-origin")],
            host,
        ]
        .concat();
        let answer = scene
            .send(Method::POST, "/api/session", &headers, &body)
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        let set = answer.headers["set-cookie"].to_str().unwrap();
        assert!(
            set.starts_with("__Host-fanlight=")
                && set.ends_with("; HttpOnly; SameSite=Strict; Secure"),
            "{set}"
        );
        let cookie = cookie(&answer.headers);
        let headers = [
            &[
                ("cookie", cookie.as_str()),
                ("sec-fetch-site", "same-origin"),
            ],
            host,
        ]
        .concat();
        assert_eq!(
            scene
                .send(Method::GET, "/api/overview", &headers, "")
                .await
                .status,
            StatusCode::OK
        );
    }
    for foreign in [
        "http://fanlight.example.com",
        "https://fanlight.example.com.evil.example",
        "https://evil.example",
    ] {
        let headers = [json, ("origin", foreign), ("sec-fetch-site", "same-origin")];
        assert_eq!(
            scene
                .send(Method::POST, "/api/session", &headers, &body)
                .await
                .status,
            StatusCode::FORBIDDEN
        );
    }
    let headers = [json, ("origin", public), ("sec-fetch-site", "cross-site")];
    assert_eq!(
        scene
            .send(Method::POST, "/api/session", &headers, &body)
            .await
            .status,
        StatusCode::FORBIDDEN
    );
    // The request does not say where the page is.
    let headers = [
        json,
        ("host", "evil.example"),
        ("x-forwarded-host", "fanlight.example.com"),
    ];
    assert_eq!(
        scene
            .send(Method::POST, "/api/session", &headers, &body)
            .await
            .status,
        StatusCode::FORBIDDEN
    );
}

#[tokio::test]
async fn responses_are_neither_framed_nor_cached() {
    let scene = scene().await;
    for path in [
        "/",
        "/ui",
        "/ui/app.js",
        "/sign-in/callback?code=secret&state=s",
        "/api/session",
        "/api/overview",
        "/metrics",
        "/nothing",
    ] {
        let answer = scene.get(path).await;
        let policy = answer.headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.contains("frame-ancestors 'none'"),
            "{path}: {policy}"
        );
        assert_eq!(answer.headers["x-frame-options"], "DENY", "{path}");
        assert_eq!(answer.headers["referrer-policy"], "no-referrer", "{path}");
        let is_file = path.starts_with("/ui");
        assert_eq!(
            answer.headers["cache-control"],
            if is_file { "no-cache" } else { "no-store" },
            "{path}"
        );
        assert!(!answer.text.contains("secret"), "{path}");
    }
}
