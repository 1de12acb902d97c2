//! Changing the configuration while Fanlight runs.

mod addresses;
mod decided;
mod files;
mod listeners;
mod operations;
mod rmcp;
mod servers;
mod service;
mod stress;

use crate::harness::Gateway;
use crate::raw_client::{Connection, modern_request, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport};

/// A server whose tool `t` returns the server's name.
async fn server(era: Era, transport: Transport, name: &str) -> Backend {
    let backend = Backend::start(era, transport).await;
    backend.offers_tools(&["t"]);
    let text = format!(r#""content":[{{"type":"text","text":"{name}"}}]"#);
    backend.on("tools/call", Reply::result(era.complete(&text)));
    backend
}

/// The answer to a call of a tool.
async fn call(gateway: &Gateway, tool: &str) -> String {
    let request = modern_request("1", "tools/call", &format!(r#""name":"{tool}""#), "");
    post_modern(gateway.mcp, &request).await.messages().await.1
}

/// The merged list of tools.
async fn tools(gateway: &Gateway) -> String {
    post_modern(gateway.mcp, &modern_request("1", "tools/list", "", ""))
        .await
        .messages()
        .await
        .1
}

/// The answer of the admin listener to a GET.
async fn admin(gateway: &Gateway, path: &str) -> String {
    let mut connection = Connection::open(gateway.admin).await;
    connection.request("GET", path, &[], b"").await;
    connection.response().await.text().await
}

/// Reloads a valid configuration.
async fn reload(gateway: &Gateway, config: &str) -> String {
    gateway.configure(config);
    let (status, report) = gateway.reload().await;
    assert_eq!(status, 200, "{report}");
    report
}

/// The value of a metric without labels.
async fn metric(gateway: &Gateway, name: &str) -> f64 {
    let metrics = admin(gateway, "/metrics").await;
    let line = metrics
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {metrics}"))
        .parse()
        .unwrap()
}
