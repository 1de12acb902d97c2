//! Configuration files of clients, through the real binary: the entries that the API offers.

use serde_json::Value;

use crate::faults::backend;
use crate::harness::Gateway;
use crate::raw_client::Connection;
use crate::scripted::{Era, Transport, config};

async fn entries(gateway: &Gateway) -> Vec<Value> {
    let mut connection = Connection::open(gateway.admin).await;
    connection.request("GET", "/api/connect", &[], b"").await;
    let mut response = connection.response().await;
    assert_eq!(response.status, 200);
    serde_json::from_str(&response.text().await).unwrap()
}

fn entry<'a>(entries: &'a [Value], client: &str) -> &'a Value {
    entries
        .iter()
        .find(|entry| entry["client"] == client)
        .unwrap()
}

#[tokio::test]
async fn api_has_the_entry_of_each_client_for_this_gateway() {
    let backend = backend(Era::Modern, Transport::Http).await;
    let gateway = Gateway::start(&config(&[backend.entry("only")])).await;
    let entries = entries(&gateway).await;
    assert_eq!(entries.len(), 14);
    let cursor = entry(&entries, "cursor");
    let text: Value = serde_json::from_str(cursor["text"].as_str().unwrap()).unwrap();
    assert_eq!(text["mcpServers"]["fanlight"]["url"], gateway.url());
    assert!(
        cursor["file"]
            .as_str()
            .unwrap()
            .ends_with(".cursor/mcp.json"),
        "{cursor}"
    );
    assert_eq!(
        (&cursor["language"], &cursor["variable"]),
        (&"json".into(), &Value::Null)
    );
    assert!(
        entry(&entries, "claude-code")["command"]
            .as_str()
            .unwrap()
            .ends_with(&gateway.url())
    );
    let desktop: Value =
        serde_json::from_str(entry(&entries, "claude-desktop")["text"].as_str().unwrap()).unwrap();
    let args = desktop["mcpServers"]["fanlight"]["args"]
        .as_array()
        .unwrap();
    assert_eq!(args[..2], ["stdio", "--config"]);
    assert!(
        std::path::Path::new(args[2].as_str().unwrap()).is_file(),
        "{args:?}"
    );
}

#[tokio::test]
async fn entries_have_a_placeholder_where_clients_are_authenticated() {
    let backend = backend(Era::Modern, Transport::Http).await;
    let text = config(&[backend.entry("only")]);
    let auth = r#""auth":{"oauth":[{"issuer":"http://127.0.0.1:9","audience":"fanlight"}]}"#;
    let text = format!("{},{auth}}}", text.trim_end().strip_suffix('}').unwrap());
    let gateway = Gateway::start(&text).await;
    let entries = entries(&gateway).await;
    let code = entry(&entries, "claude-code");
    assert!(
        code["text"]
            .as_str()
            .unwrap()
            .contains("Bearer ${FANLIGHT_TOKEN}"),
        "{code}"
    );
    assert_eq!(code["variable"], "FANLIGHT_TOKEN");
    assert!(
        entry(&entries, "zed")["text"]
            .as_str()
            .unwrap()
            .contains("Bearer YOUR_TOKEN")
    );
}
