//! The lives of stdio servers: what they write, when they are started and ended, and what operators see of it.

use serde_json::{Value, json};

use crate::harness::{Gateway, within};
use crate::raw_client::{Connection, modern_request, post_modern};

const TOKEN: &str = "0123456789abcdef-s3cret";

/// A configuration whose only server runs this shell script.
fn script(script: &str) -> Value {
    json!({ "mcpServers": { "only": { "command": "sh", "args": ["-c", script] } }, "timeouts": { "processStop": "1s" } })
}

async fn get(gateway: &Gateway, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let mut connection = Connection::open(gateway.admin).await;
    connection.request("GET", path, headers, b"").await;
    let mut response = connection.response().await;
    (response.status, response.text().await)
}

async fn api(gateway: &Gateway, path: &str) -> Value {
    let (status, text) = get(gateway, path, &[]).await;
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// The only server in the overview, once `is_right`.
async fn server_when(gateway: &Gateway, is_right: impl Fn(&Value) -> bool) -> Value {
    within("the state of the server", async {
        loop {
            let server = api(gateway, "/api/overview").await["backends"][0].clone();
            if is_right(&server) {
                return server;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await
}

async fn call(gateway: &Gateway) -> Value {
    let body = modern_request("1", "tools/call", r#""name":"t""#, "");
    serde_json::from_str(&post_modern(gateway.mcp, &body).await.messages().await.1).unwrap()
}

#[tokio::test]
async fn failed_start_shows_operators_what_the_process_wrote_and_clients_nothing() {
    let said = "printf 'first\\nno such table: \\033[31musers\\n\\n' >&2; echo 'not a message'; exit 3";
    let gateway = Gateway::start(&script(said).to_string()).await;
    let server = server_when(&gateway, |server| !server["error"].is_null()).await;
    let error = server["error"].as_str().unwrap();
    for part in ["exit status: 3", "first | no such table: \\u001b[31musers", "not a message"] {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
    let answer = call(&gateway).await.to_string();
    assert!(answer.contains("error") && !answer.contains("users") && !answer.contains("first"), "{answer}");
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn process_that_never_answers_shows_operators_what_it_wrote() {
    let mut config = script("echo 'downloading the rest of the internet' >&2; exec sleep 1000");
    config["timeouts"]["connect"] = json!("300ms");
    let gateway = Gateway::start(&config.to_string()).await;
    let server = server_when(&gateway, |server| !server["error"].is_null()).await;
    assert!(server["error"].as_str().unwrap().contains("downloading the rest"), "{server}");
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn log_of_a_server_is_kept_within_its_bound_and_needs_the_token() {
    // Far more than is kept, in lines of which one is too long, and an end that shows that all was read.
    let said = "i=0; while [ $i -lt 20000 ]; do echo \"line $i\"; i=$((i+1)); done >&2
        head -c 100000 /dev/zero | tr '\\0' x >&2; printf '\\n\\033]0;title\\007 \\342\\200\\256 end\\n' >&2; exec sleep 1000";
    let mut config = script(said);
    config["admin"] = json!({ "token": TOKEN });
    config["limits"] = json!({ "processLogKept": "64KiB" });
    let gateway = Gateway::start(&config.to_string()).await;
    let path = "/api/servers/only/log";
    assert_eq!(get(&gateway, path, &[]).await.0, 401);
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("Authorization", bearer.as_str())];
    assert_eq!(get(&gateway, "/api/servers/other/log", &headers).await.0, 404);
    let text = within("the last line", async {
        loop {
            let (status, text) = get(&gateway, path, &headers).await;
            assert_eq!(status, 200, "{text}");
            if text.contains(" end") {
                return text;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
    let log: Value = serde_json::from_str(&text).unwrap();
    let lines = log["lines"].as_array().unwrap();
    let texts: Vec<&str> = lines.iter().map(|line| line["text"].as_str().unwrap()).collect();
    let bytes: usize = texts.iter().map(|text| text.len() + 64).sum();
    assert!((40 << 10..=64 << 10).contains(&bytes), "{bytes}");
    assert_eq!(log["droppedLines"].as_u64().unwrap() as usize + lines.len(), 20_002);
    assert_eq!(texts.last().copied(), Some("\\u001b]0;title\\u0007 \\u202e end"));
    assert!(texts[texts.len() - 2].ends_with("(100000 bytes)"));
    assert!(lines.iter().all(|line| line["process"] == 1 && line["stream"] == "stderr" && line["atMs"].is_number()));
    assert!(gateway.terminate().await.success());
}
