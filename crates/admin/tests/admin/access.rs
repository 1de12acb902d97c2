//! Access: liveness, readiness, token, host, origin, the page.

use fanlight_admin::AdminSettings;
use http::{Method, StatusCode};

use crate::scene::{Scene, down, fake};

const TOKEN: &str = "0123456789abcdef";

async fn plain() -> Scene {
    Scene::start(vec![fake("a", &[])], AdminSettings::default()).await
}

#[tokio::test]
async fn liveness_and_readiness_are_reported() {
    let scene = plain().await;
    let alive = scene.get("/healthz").await;
    assert_eq!((alive.status, alive.text.as_str()), (StatusCode::OK, "ok"));
    let ready = scene.json("/readyz").await;
    assert_eq!(
        (&ready["ready"], &ready["backends"][0]["state"]),
        (&true.into(), &"ready".into())
    );
    scene.draining.cancel();
    let draining = scene.get("/readyz").await;
    assert_eq!(draining.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        draining.text.starts_with(r#"{"ready":false,"#),
        "{}",
        draining.text
    );
    scene.stop().await;
}

#[tokio::test]
async fn process_is_not_ready_without_a_usable_backend() {
    let scene = Scene::start(vec![down("a")], AdminSettings::default()).await;
    let report = scene.get("/readyz").await;
    assert_eq!(report.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        report.text.contains("connection refused"),
        "{}",
        report.text
    );
}

#[tokio::test]
async fn token_protects_everything_with_data() {
    let settings = AdminSettings {
        token: Some(TOKEN.into()),
        ..AdminSettings::default()
    };
    let scene = Scene::start(vec![fake("a", &[])], settings).await;
    assert_eq!(scene.get("/healthz").await.status, StatusCode::OK);
    let ready = scene.get("/readyz").await;
    assert_eq!(
        (ready.status, ready.text.as_str()),
        (StatusCode::OK, r#"{"ready":true}"#)
    );
    assert_eq!(scene.get("/ui").await.status, StatusCode::OK);
    for path in [
        "/metrics",
        "/api/overview",
        "/api/traces",
        "/api/events",
        "/api/config",
        "/api/nothing",
    ] {
        let refused = scene.get(path).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(
            refused.headers["www-authenticate"],
            "Bearer realm=\"fanlight\""
        );
        assert!(refused.text.contains("admin.token"), "{}", refused.text);
    }
    let mut client = scene.client().await;
    let bearer = |token: &str| format!("Bearer {token}");
    let wrong = client
        .send(
            Method::GET,
            "/api/overview",
            &[("authorization", &bearer("0123456789abcdeF"))],
            "",
        )
        .await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    for path in ["/metrics", "/api/overview", "/readyz"] {
        let answer = client
            .send(Method::GET, path, &[("authorization", &bearer(TOKEN))], "")
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        assert!(!answer.text.is_empty());
    }
    // The listener refuses other sites' pages even with the token.
    let headers = [
        ("authorization", bearer(TOKEN)),
        ("origin", "http://evil.example.com".into()),
    ];
    let headers: Vec<(&str, &str)> = headers
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    assert_eq!(
        client
            .send(Method::GET, "/api/overview", &headers, "")
            .await
            .status,
        StatusCode::FORBIDDEN
    );
}

#[tokio::test]
async fn foreign_hosts_origins_and_methods_are_refused() {
    let scene = plain().await;
    let mut client = scene.client().await;
    let own = format!("http://{}", scene.address);
    for (method, path, headers, status) in [
        (
            Method::GET,
            "/healthz",
            &[("host", "evil.example.com")][..],
            403,
        ),
        (Method::GET, "/ui", &[("host", "evil.example.com")], 403),
        (
            Method::GET,
            "/api/overview",
            &[("origin", "http://evil.example.com")],
            403,
        ),
        (
            Method::GET,
            "/api/overview",
            &[("sec-fetch-site", "cross-site")],
            403,
        ),
        (
            Method::GET,
            "/api/overview",
            &[("origin", own.as_str())],
            200,
        ),
        (Method::POST, "/api/overview", &[], 405),
        (Method::GET, "/api/call", &[], 405),
        (Method::POST, "/healthz", &[], 405),
        (Method::DELETE, "/ui", &[], 405),
        (Method::GET, "/api/nothing", &[], 404),
        (Method::GET, "/ui/nothing.js", &[], 404),
        (Method::GET, "/mcp", &[], 404),
        (
            Method::OPTIONS,
            "/api/call",
            &[("origin", "http://evil.example.com")],
            403,
        ),
        (
            Method::POST,
            "/api/call",
            &[("content-type", "text/plain")],
            415,
        ),
        (Method::POST, "/api/call", &[], 415),
        (Method::GET, "/", &[], 308),
        (Method::HEAD, "/api/overview", &[], 200),
    ] {
        let answer = client.send(method.clone(), path, headers, "").await;
        assert_eq!(
            answer.status.as_u16(),
            status,
            "{method} {path} {headers:?}"
        );
        assert!(
            answer
                .headers
                .keys()
                .all(|name| !name.as_str().starts_with("access-control"))
        );
    }
}

#[tokio::test]
async fn page_has_a_strict_content_security_policy() {
    let scene = plain().await;
    let page = scene.get("/ui").await;
    assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    let script = scene.get("/ui/app.js").await;
    assert_eq!(
        script.headers["content-type"],
        "text/javascript; charset=utf-8"
    );
    let mut client = scene.client().await;
    let tag = script.headers["etag"].to_str().unwrap();
    let again = client
        .send(Method::GET, "/ui/app.js", &[("if-none-match", tag)], "")
        .await;
    assert_eq!(
        (again.status, again.text.as_str()),
        (StatusCode::NOT_MODIFIED, "")
    );
}

#[tokio::test]
async fn request_bodies_are_bounded() {
    let settings = AdminSettings {
        max_body: 64,
        ..AdminSettings::default()
    };
    let scene = Scene::start(vec![fake("a", &[])], settings).await;
    let answer = scene
        .call(&format!(
            r#"{{"method":"tools/call","params":{{"name":"{}"}}}}"#,
            "x".repeat(100)
        ))
        .await;
    assert_eq!(answer.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(
        answer.text.contains("limits.requestBody"),
        "{}",
        answer.text
    );
}
