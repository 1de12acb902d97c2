//! The content of `/metrics`, and the listeners that serve it.

use super::server_requests::{CAPABILITIES, elicits, with_input};
use super::{sent, start};
use crate::faults::backend;
use crate::harness::{Gateway, within};
use crate::raw_client::{
    Connection, LegacySession, legacy_request, modern_request_with, post_modern,
};
use crate::scripted::{Backend, Era, Fault, Reply, Transport, config};

#[tokio::test]
async fn metrics_are_on_the_admin_listener_only() {
    let (gateway, backend) = start(Transport::Http, "", "").await;
    backend.once(
        "tools/call",
        Reply::result(r#"{"resultType":"complete","content":[],"isError":true}"#),
    );
    sent(&gateway, &backend, None, None).await;
    let mut admin = Connection::open(gateway.admin).await;
    admin.request("GET", "/metrics", &[], b"").await;
    let mut response = admin.response().await;
    assert_eq!(response.status, 200);
    let text = response.text().await;
    for side in ["server", "client"] {
        let line = text.lines().find(|line| {
            line.starts_with(&format!("mcp_{side}_operation_duration_seconds_count"))
                && line.contains(r#"mcp_method_name="tools/call""#)
        });
        assert!(
            line.is_some_and(|line| line.contains(r#"error_type="tool_error""#)),
            "{text}"
        );
    }
    let mut front = Connection::open(gateway.mcp).await;
    front.request("GET", "/metrics", &[], b"").await;
    assert_eq!(front.response().await.status, 404);
}

/// The value at `/metrics` of the series that begins with this text.
async fn metric(gateway: &Gateway, series: &str) -> Option<f64> {
    let mut admin = Connection::open(gateway.admin).await;
    admin.request("GET", "/metrics", &[], b"").await;
    let text = admin.response().await.text().await;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

async fn metric_becomes(gateway: &Gateway, series: &str, is_right: impl Fn(f64) -> bool) {
    within(series, async {
        while !metric(gateway, series).await.is_some_and(&is_right) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn metrics_count_sessions_backends_and_bytes() {
    let backend = Backend::start(Era::Legacy, Transport::Stdio).await;
    backend.offers_tools(&["t"]);
    backend.on("tools/call", Reply::result(r#"{"content":[]}"#));
    let gateway =
        Gateway::start(&config(&[backend.entry_with("b", r#""session":"shared""#)])).await;
    metric_becomes(
        &gateway,
        r#"fanlight_backend_up{fanlight_backend_name="b"}"#,
        |up| up == 1.0,
    )
    .await;
    let session = LegacySession::open(gateway.mcp).await;
    assert_eq!(
        metric(&gateway, "fanlight_sessions_active").await,
        Some(1.0)
    );
    let call = legacy_request("1", "tools/call", r#""name":"t""#);
    session.post(&call).await.text().await;
    let io = |direction| {
        format!(
            r#"fanlight_backend_io_bytes_total{{fanlight_backend_name="b",network_io_direction="{direction}"}}"#
        )
    };
    let client = |direction| {
        format!(r#"fanlight_client_io_bytes_total{{network_io_direction="{direction}"}}"#)
    };
    for series in [
        io("receive"),
        io("transmit"),
        client("receive"),
        client("transmit"),
    ] {
        assert!(
            metric(&gateway, &series)
                .await
                .is_some_and(|bytes| bytes > 60.0),
            "{series}"
        );
    }
    for counter in ["restarts", "reconnects"] {
        let series = format!(r#"fanlight_backend_{counter}_total{{fanlight_backend_name="b"}}"#);
        assert_eq!(metric(&gateway, &series).await, Some(0.0));
    }
    backend.once("tools/call", Reply::fault(Fault::Die(3)));
    session.post(&call).await.text().await;
    for counter in ["restarts", "reconnects"] {
        let series = format!(r#"fanlight_backend_{counter}_total{{fanlight_backend_name="b"}}"#);
        metric_becomes(&gateway, &series, |count| count >= 1.0).await;
    }
    metric_becomes(
        &gateway,
        r#"fanlight_backend_up{fanlight_backend_name="b"}"#,
        |up| up == 1.0,
    )
    .await;
    assert_eq!(session.delete().await.status, 204);
    assert_eq!(
        metric(&gateway, "fanlight_sessions_active").await,
        Some(0.0)
    );
}

/// A call counts as suspended from the response that requires input until the client sends it.
#[tokio::test]
async fn metrics_count_suspended_calls() {
    let only = backend(Era::Legacy, Transport::Http).await;
    only.on("tools/call", elicits(""));
    let gateway = Gateway::start(&config(&[only.entry("only")])).await;
    let suspended = "fanlight_calls_suspended";
    assert_eq!(metric(&gateway, suspended).await, Some(0.0));
    let params = r#""name":"t","arguments":{}"#;
    let call = modern_request_with(CAPABILITIES, "1", "tools/call", params, "");
    let (_, wanted) = post_modern(gateway.mcp, &call).await.messages().await;
    assert_eq!(metric(&gateway, suspended).await, Some(1.0));
    let back = modern_request_with(
        CAPABILITIES,
        "2",
        "tools/call",
        &with_input(params, &wanted),
        "",
    );
    post_modern(gateway.mcp, &back).await.messages().await;
    metric_becomes(&gateway, suspended, |count| count == 0.0).await;
    metric_becomes(&gateway, "fanlight_requests_active", |count| count == 0.0).await;
}
