//! The rights of viewers and operators, by tokens and by identities.

use std::sync::Arc;

use fanlight_admin::AdminSettings;
use http::{Method, StatusCode};

use crate::people::{People, TOKEN, VIEWER, roles, settings};
use crate::scene::{Scene, fake};

/// Requests that change something, with their bodies.
const CHANGES: [(&str, &str); 11] = [
    ("/api/reload", ""),
    ("/api/servers/a/disable", ""),
    ("/api/servers/a/enable", ""),
    ("/api/servers/a/restart", ""),
    ("/api/sessions/abc/end", ""),
    ("/api/calls/0123456789abcdef/cancel", ""),
    ("/api/approvals/0123abcd/approve", ""),
    ("/api/connections/0123abcd/end", ""),
    ("/api/pins/0123abcd/approve", ""),
    ("/api/content", r#"{"for":"10m"}"#),
    (
        "/api/call",
        r#"{"method":"tools/call","params":{"name":"t"}}"#,
    ),
];

const READS: [&str; 15] = [
    "/api/overview",
    "/api/traces",
    "/api/calls",
    "/api/approvals",
    "/api/limits",
    "/api/pins",
    "/api/audit",
    "/api/usage",
    "/api/connections",
    "/api/catalogue",
    "/api/endpoints",
    "/api/sessions",
    "/api/config",
    "/api/servers/a/log",
    "/metrics",
];

async fn scene() -> Scene {
    Scene::with(vec![fake("a", &[])], settings(), Arc::new(People)).await
}

async fn status(scene: &Scene, method: Method, path: &str, token: &str, body: &str) -> StatusCode {
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    scene.send(method, path, &headers, body).await.status
}

#[tokio::test]
async fn viewers_read_everything_and_change_nothing() {
    let scene = scene().await;
    for token in [VIEWER, "key-of-bob", "key-with-role"] {
        for path in READS {
            assert_eq!(
                status(&scene, Method::GET, path, token, "").await,
                StatusCode::OK,
                "{token} {path}"
            );
        }
        for (path, body) in CHANGES {
            assert_eq!(
                status(&scene, Method::POST, path, token, body).await,
                StatusCode::FORBIDDEN,
                "{token} {path}"
            );
        }
    }
    assert!(scene.operations.asked().is_empty());
    let bearer = format!("Bearer {VIEWER}");
    let refused = scene
        .send(
            Method::POST,
            "/api/reload",
            &[("authorization", &bearer)],
            "",
        )
        .await;
    assert!(
        refused
            .text
            .contains("needs the role operator, but yours is viewer"),
        "{}",
        refused.text
    );
}

#[tokio::test]
async fn operators_do_everything() {
    let scene = scene().await;
    for (at, token) in [TOKEN, "key-of-ann"].into_iter().enumerate() {
        for path in READS {
            assert_eq!(
                status(&scene, Method::GET, path, token, "").await,
                StatusCode::OK,
                "{token} {path}"
            );
        }
        for (path, body) in CHANGES {
            let expected = match path {
                // The fake's second reload fails.
                "/api/reload" if at > 0 => StatusCode::UNPROCESSABLE_ENTITY,
                // No such call runs.
                "/api/calls/0123456789abcdef/cancel"
                | "/api/approvals/0123abcd/approve"
                | "/api/pins/0123abcd/approve"
                | "/api/connections/0123abcd/end" => StatusCode::NOT_FOUND,
                _ => StatusCode::OK,
            };
            assert_eq!(
                status(&scene, Method::POST, path, token, body).await,
                expected,
                "{token} {path}"
            );
        }
    }
    assert_eq!(scene.operations.asked().len(), 8);
}

#[tokio::test]
async fn clients_without_credentials_or_roles_reach_no_data() {
    let scene = scene().await;
    let without_role = [
        "key-of-eve",
        "key-without-scopes",
        "key-for-an-endpoint",
        "token-like-ann",
        "token-of-another-cat",
    ];
    for path in READS {
        assert_eq!(
            scene.get(path).await.status,
            StatusCode::UNAUTHORIZED,
            "{path}"
        );
        for token in without_role {
            assert_eq!(
                status(&scene, Method::GET, path, token, "").await,
                StatusCode::FORBIDDEN,
                "{token} {path}"
            );
        }
    }
    for (path, body) in CHANGES {
        assert_eq!(
            scene.send(Method::POST, path, &[], body).await.status,
            StatusCode::UNAUTHORIZED,
            "{path}"
        );
        for token in without_role {
            assert_eq!(
                status(&scene, Method::POST, path, token, body).await,
                StatusCode::FORBIDDEN,
                "{token} {path}"
            );
        }
    }
    assert!(scene.operations.asked().is_empty());
    let known = scene
        .send(
            Method::GET,
            "/api/overview",
            &[("authorization", "Bearer key-of-eve")],
            "",
        )
        .await;
    assert!(
        known.text.contains("eve has no role")
            && known.text.contains("lists neither `user:key#eve` nor"),
        "{}",
        known.text
    );
}

#[tokio::test]
async fn refused_credential_is_not_replaced_by_the_proxys_user() {
    let scene = scene().await;
    let user = ("x-user", "ann");
    assert_eq!(
        scene
            .send(Method::GET, "/api/overview", &[user], "")
            .await
            .status,
        StatusCode::OK
    );
    for wrong in ["Bearer wrong", "Bearer ", "Basic YTpi", ""] {
        let answer = scene
            .send(
                Method::GET,
                "/api/overview",
                &[user, ("authorization", wrong)],
                "",
            )
            .await;
        assert!(
            [400, 401].contains(&answer.status.as_u16()),
            "{wrong}: {}",
            answer.status
        );
    }
    let twice = [
        user,
        ("authorization", "Bearer key-of-ann"),
        ("authorization", "Bearer key-of-ann"),
    ];
    assert_eq!(
        scene
            .send(Method::GET, "/api/overview", &twice, "")
            .await
            .status,
        StatusCode::BAD_REQUEST
    );
    let cookie = (
        "cookie",
        &*format!("fanlight-{}=made-up", scene.address.port()),
    );
    assert_eq!(
        scene
            .send(Method::GET, "/api/overview", &[user, cookie], "")
            .await
            .status,
        StatusCode::UNAUTHORIZED
    );
    // Another site's page can use neither.
    let foreign = [user, ("sec-fetch-site", "cross-site")];
    assert_eq!(
        scene
            .send(Method::GET, "/api/overview", &foreign, "")
            .await
            .status,
        StatusCode::FORBIDDEN
    );
}

#[tokio::test]
async fn identities_have_no_role_where_none_is_configured() {
    let settings = AdminSettings {
        token: Some(TOKEN.into()),
        ..AdminSettings::default()
    };
    let scene = Scene::with(vec![fake("a", &[])], settings, Arc::new(People)).await;
    assert_eq!(
        status(&scene, Method::GET, "/api/overview", "key-of-ann", "").await,
        StatusCode::UNAUTHORIZED
    );
    let user = scene
        .send(Method::GET, "/api/overview", &[("x-user", "ann")], "")
        .await;
    assert_eq!(user.status, StatusCode::UNAUTHORIZED);
    // Roles alone do not open the listener to everybody either.
    let settings = AdminSettings {
        roles: roles(),
        ..AdminSettings::default()
    };
    let scene = Scene::start(vec![fake("a", &[])], settings).await;
    assert_eq!(
        scene.get("/api/overview").await.status,
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test]
async fn health_is_told_to_everybody_and_its_details_to_viewers() {
    let scene = scene().await;
    assert_eq!(scene.get("/healthz").await.status, StatusCode::OK);
    assert_eq!(scene.get("/readyz").await.text, r#"{"ready":true}"#);
    let bearer = format!("Bearer {VIEWER}");
    let details = scene
        .send(Method::GET, "/readyz", &[("authorization", &bearer)], "")
        .await;
    assert!(
        details.text.contains(r#""backends":[{"name":"a""#),
        "{}",
        details.text
    );
}
