//! Secrets of the configuration in files and in outputs of programs.

use crate::harness::{Gateway, PATIENCE, TempFile, fanlight};
use crate::raw_client::{Connection, modern_request, post_modern};
use crate::scripted::{Backend, Era, Reply, Transport, config};

async fn call(gateway: &Gateway) -> String {
    post_modern(
        gateway.mcp,
        &modern_request("1", "tools/call", r#""name":"t""#, ""),
    )
    .await
    .messages()
    .await
    .1
}

async fn server() -> Backend {
    let server = Backend::start(Era::Modern, Transport::Http).await;
    server.offers_tools(&["t"]);
    server.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[]"#)),
    );
    server
}

/// Calls until the server gets this key, since a changed secret takes effect a moment later.
async fn is_shown(gateway: &Gateway, server: &Backend, key: &str) {
    let shown = async {
        loop {
            call(gateway).await;
            if server
                .received("tools/call")
                .last()
                .and_then(|call| call.header("x-key"))
                == Some(key)
            {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, shown)
        .await
        .unwrap_or_else(|_| panic!("never shown {key}"));
}

fn handshakes(server: &Backend) -> usize {
    server.received("server/discover").len()
}

#[tokio::test]
async fn changed_secret_is_shown_without_replacing_the_server() {
    let folder = TempFile::folder();
    let secret = folder.path().join("key");
    for reference in [
        format!("file:{}", secret.display()),
        format!("exec:1s cat '{}'", secret.display()),
    ] {
        std::fs::write(&secret, "first\n").unwrap();
        let server = server().await;
        let entry = server.entry_with("s", &format!(r#""headers":{{"X-Key":"${{{reference}}}"}}"#));
        let gateway = Gateway::start(&config(&[entry])).await;
        is_shown(&gateway, &server, "first").await;
        let before = handshakes(&server);
        std::fs::write(&secret, "second\n").unwrap();
        is_shown(&gateway, &server, "second").await;
        assert_eq!(
            handshakes(&server),
            before,
            "{reference}: the server was replaced"
        );
    }
}

#[tokio::test]
async fn missing_secret_disables_its_server_alone_until_it_is_there() {
    let folder = TempFile::folder();
    let secret = folder.path().join("key");
    let (needs, other) = (server().await, server().await);
    let entry = needs.entry_with(
        "needs",
        &format!(r#""headers":{{"X-Key":"${{file:{}}}"}}"#, secret.display()),
    );
    let gateway = Gateway::start(&config(&[entry, other.entry("other")])).await;
    gateway.log.line_with_all(&["needs", "is not used"]).await;
    let answer = post_modern(
        gateway.mcp,
        &modern_request("1", "tools/call", r#""name":"other__t""#, ""),
    )
    .await
    .messages()
    .await
    .1;
    assert!(answer.contains("result"), "{answer}");
    std::fs::write(&secret, "there").unwrap();
    let called = async {
        while needs.received("tools/call").is_empty() {
            post_modern(
                gateway.mcp,
                &modern_request("1", "tools/call", r#""name":"needs__t""#, ""),
            )
            .await
            .messages()
            .await;
        }
    };
    tokio::time::timeout(PATIENCE, called)
        .await
        .expect("it stays disabled");
    assert_eq!(
        needs.received("tools/call")[0].header("x-key"),
        Some("there")
    );
}

#[tokio::test]
async fn secrets_are_shown_to_nobody_but_their_server() {
    let server = server().await;
    let entry = server.entry_with(
        "s",
        r#""headers":{"X-Key":"${exec:1h printf s3cr3t-of-the-program}"}"#,
    );
    let gateway = Gateway::start_with(&config(&[entry]), &["--log", "trace"]).await;
    is_shown(&gateway, &server, "s3cr3t-of-the-program").await;
    for path in ["/api/config", "/api/backends", "/metrics"] {
        let mut connection = Connection::open(gateway.admin).await;
        connection.request("GET", path, &[], b"").await;
        let shown = connection.response().await.text().await;
        assert!(!shown.contains("s3cr3t-of"), "{path}: {shown}");
    }
    assert!(!gateway.log.text().contains("s3cr3t-of"));
}

#[test]
fn found_configuration_runs_no_program_for_a_secret_unless_the_user_says_so() {
    let folder = TempFile::folder();
    let ran = folder.path().join("ran");
    let text = format!(
        r#"mcpServers: {{s: {{url: "http://127.0.0.1:9/mcp", headers: {{X-Key: "${{exec:touch '{}'}}"}}}}}}"#,
        ran.display()
    );
    let file = folder.path().join("fanlight.yaml");
    std::fs::write(&file, text).unwrap();
    let run = |more: &[&str]| {
        let mut command = std::process::Command::new(fanlight().as_std().get_program());
        let output = command
            .arg("check")
            .args(more)
            .current_dir(folder.path())
            .stdin(std::process::Stdio::null());
        output.output().unwrap()
    };
    let refused = String::from_utf8_lossy(&run(&[]).stderr).into_owned();
    assert!(!ran.exists(), "a program of a strange folder was run");
    assert!(refused.contains("--config"), "{refused}");
    run(&["--yes"]);
    assert!(ran.exists(), "--yes runs it");
}
