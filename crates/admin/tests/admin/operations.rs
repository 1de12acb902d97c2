//! Changes that operators request.

use std::collections::BTreeSet;
use std::sync::Arc;

use fanlight_admin::AdminSettings;
use fanlight_credentials::Open;
use fanlight_record::{AuditEvent, NotRecorded, Record};
use fanlight_telemetry::metrics::prometheus;
use http::{Method, StatusCode};

use crate::scene::{Scene, fake};

const TOKEN: &str = "0123456789abcdef";

async fn scene() -> Scene {
    let settings = AdminSettings {
        token: Some(TOKEN.into()),
        ..AdminSettings::default()
    };
    Scene::start(vec![fake("a", &[])], settings).await
}

#[tokio::test]
async fn reload_says_whether_the_configuration_can_be_used() {
    let scene = scene().await;
    let token = format!("Bearer {TOKEN}");
    for status in [StatusCode::OK, StatusCode::UNPROCESSABLE_ENTITY] {
        let answer = scene
            .client()
            .await
            .send(
                Method::POST,
                "/api/reload",
                &[("authorization", &token)],
                "",
            )
            .await;
        assert_eq!(answer.status, status);
        assert!(answer.text.contains("as asked"));
    }
}

#[tokio::test]
async fn server_is_enabled_disabled_and_restarted() {
    let scene = scene().await;
    let token = format!("Bearer {TOKEN}");
    let ask = async |path: &'static str| {
        scene
            .client()
            .await
            .send(Method::POST, path, &[("authorization", &token)], "")
            .await
            .status
    };
    for action in ["disable", "enable", "restart"] {
        let path = match action {
            "disable" => "/api/servers/a/disable",
            "enable" => "/api/servers/a/enable",
            _ => "/api/servers/a/restart",
        };
        assert_eq!(ask(path).await, StatusCode::OK);
    }
    assert_eq!(scene.operations.asked(), ["a false", "a true", "restart a"]);
    assert_eq!(ask("/api/servers/b/restart").await, StatusCode::NOT_FOUND);
    assert_eq!(ask("/api/servers/a/remove").await, StatusCode::NOT_FOUND);
}

/// A record that accepts nothing.
#[derive(Debug)]
struct Full;

impl Record for Full {
    fn record(&self, _: &AuditEvent<'_>) -> Result<(), NotRecorded> {
        Err(NotRecorded)
    }
}

#[tokio::test]
async fn change_that_cannot_be_put_on_record_is_not_made() {
    let settings = AdminSettings {
        token: Some(TOKEN.into()),
        ..AdminSettings::default()
    };
    let (backends, open) = (vec![fake("a", &[])], Arc::new(Open::default()));
    let scene = Scene::recording(backends, settings, open, Some(Arc::new(Full))).await;
    let token = format!("Bearer {TOKEN}");
    let own = [("authorization", token.as_str())];
    for path in [
        "/api/reload",
        "/api/servers/a/disable",
        "/api/servers/a/restart",
    ] {
        let answer = scene
            .client()
            .await
            .send(Method::POST, path, &own, "")
            .await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{path}");
        assert!(
            answer.text.contains("could not be recorded"),
            "{}",
            answer.text
        );
    }
    assert!(scene.operations.asked().is_empty());
    let body = format!(r#"{{"token":"{TOKEN}"}}"#);
    let headers = [("content-type", "application/json")];
    let refused = scene
        .client()
        .await
        .send(Method::POST, "/api/session", &headers, &body)
        .await;
    assert!(
        refused.status == StatusCode::SERVICE_UNAVAILABLE
            && !refused.headers.contains_key("set-cookie")
    );
    // Requests without changes need no record.
    assert_eq!(
        scene
            .client()
            .await
            .send(Method::GET, "/api/traces", &own, "")
            .await
            .status,
        StatusCode::OK
    );
}

#[tokio::test]
async fn session_is_ended_by_its_digest() {
    let scene = scene().await;
    let token = format!("Bearer {TOKEN}");
    for (digest, status) in [("abc", StatusCode::OK), ("abd", StatusCode::NOT_FOUND)] {
        let path = format!("/api/sessions/{digest}/end");
        let answer = scene
            .client()
            .await
            .send(Method::POST, &path, &[("authorization", &token)], "")
            .await;
        assert_eq!(answer.status, status);
    }
}

#[tokio::test]
async fn changes_need_the_token_post_and_an_own_page() {
    let scene = scene().await;
    let token = format!("Bearer {TOKEN}");
    for path in [
        "/api/reload",
        "/api/servers/a/disable",
        "/api/sessions/abc/end",
    ] {
        let send = async |method, headers: &[_]| {
            scene
                .client()
                .await
                .send(method, path, headers, "")
                .await
                .status
        };
        assert_eq!(send(Method::POST, &[]).await, StatusCode::UNAUTHORIZED);
        assert_eq!(
            send(Method::GET, &[("authorization", &*token)]).await,
            StatusCode::METHOD_NOT_ALLOWED
        );
        for origin in ["https://evil.example", "null", "http://localhost:1"] {
            let headers = [("authorization", &*token), ("origin", origin)];
            assert_eq!(
                send(Method::POST, &headers).await,
                StatusCode::FORBIDDEN,
                "{origin}"
            );
        }
    }
    assert!(scene.operations.asked().is_empty());
}

#[tokio::test]
async fn exported_metrics_have_every_family_of_the_listener() {
    let scene = Scene::start(vec![fake("a", &[])], AdminSettings::default()).await;
    let families = |text: &str| -> BTreeSet<String> {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names = types.filter_map(|of| of.split(' ').next());
        names
            .filter(|name| *name != "target_info")
            .map(str::to_owned)
            .collect()
    };
    let shown = families(&scene.get("/metrics").await.text);
    let exported = scene.telemetry.metrics().unwrap().snapshot();
    assert_eq!(families(&prometheus(&exported)), shown);
    for name in [
        "fanlight_auth_refusals_total",
        "fanlight_auth_operator_sessions",
        "fanlight_limits_requests_total",
    ] {
        assert!(shown.contains(name), "{name}");
    }
}
