//! `fanlight witness`: Fanlight loses nothing, and a lossy proxy is found out.

use std::net::SocketAddr;
use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{PATIENCE, TempFile, fanlight};

async fn witness(arguments: &[&str]) -> Output {
    let mut command = fanlight();
    command
        .arg("witness")
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    // It starts the gateway up to eight times.
    let ran = tokio::time::timeout(8 * PATIENCE, command.output()).await;
    ran.expect("the witness ends").unwrap()
}

fn cases(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    report["cases"].as_array().unwrap().clone()
}

/// The cases without the ones that were kept. On a busy machine progress can be late.
fn losses(cases: &[Value]) -> Vec<&Value> {
    let is_lost = |case: &&Value| {
        !["kept", "not tried", "held up"].contains(&case["outcome"].as_str().unwrap())
    };
    cases.iter().filter(is_lost).collect()
}

fn program() -> String {
    let command = fanlight();
    command.as_std().get_program().to_str().unwrap().to_owned()
}

#[tokio::test]
async fn fanlight_over_http_loses_nothing() {
    let program = program();
    let output = witness(&[
        "--json",
        "--",
        &program,
        "run",
        "{config}",
        "--listen",
        "127.0.0.1:{port}",
        "--admin",
        "off",
    ])
    .await;
    let cases = cases(&output);
    assert_eq!(losses(&cases), Vec::<&Value>::new());
    assert_eq!(output.status.code(), Some(0));
    for era in ["legacy", "modern"] {
        for transport in ["http", "stdio"] {
            for servers in [1, 2] {
                let is_kept = |case: &&Value| {
                    case["era"] == era
                        && case["transport"] == transport
                        && case["servers"] == servers
                        && case["outcome"] == "kept"
                };
                let kept = cases.iter().filter(is_kept).count();
                assert!(kept > 50, "{era} {transport} {servers}: {kept}");
            }
        }
    }
}

#[tokio::test]
async fn fanlight_over_stdio_loses_nothing() {
    let program = program();
    let output = witness(&["--json", "--", &program, "stdio", "{config}"]).await;
    let cases = cases(&output);
    assert_eq!(losses(&cases), Vec::<&Value>::new());
    assert_eq!(output.status.code(), Some(0));
    assert!(cases.len() > 400, "{}", cases.len());
}

/// Parts of the server's messages, each with the text that the lossy proxy writes in its place: of
/// the same length, so that the framing holds.
const LOSSES: [(&str, &str); 5] = [
    (r#""_meta""#, r#""_mata""#),
    (r#""price":1.0"#, r#""price":1  "#),
    (
        r#"{"type":"text","text":"3"},{"type":"text","text":"1"}"#,
        r#"{"type":"text","text":"1"},{"type":"text","text":"3"}"#,
    ),
    (r#""example":{"kept""#, r#""exomple":{"kept""#),
    ("witness-client-b", "witness-client-a"),
];

/// Relays connections to `server`, and spoils its messages: it also holds progress until the
/// message after it.
async fn relay(listener: TcpListener, server: SocketAddr) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            // The witness may not serve yet, or no more.
            let Ok(server) = TcpStream::connect(server).await else {
                return;
            };
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let there = tokio::io::copy(&mut from_client, &mut to_server);
            let back = async {
                let (mut buffer, mut held) = (vec![0; 1 << 20], Vec::new());
                while let Ok(1..) = from_server.read(&mut buffer).await.inspect(|read| {
                    let text = String::from_utf8_lossy(&buffer[..*read]).into_owned();
                    let spoilt = LOSSES
                        .iter()
                        .fold(text, |text, (is, becomes)| text.replace(is, becomes));
                    held.extend_from_slice(spoilt.as_bytes());
                }) {
                    let is_progress = held.windows(22).any(|it| it == b"notifications/progress");
                    let is_answered = held.windows(9).any(|it| it == b"\"result\":");
                    if is_progress && !is_answered {
                        continue;
                    }
                    if to_client.write_all(&held).await.is_err() {
                        return;
                    }
                    held.clear();
                }
            };
            tokio::select! { _ = there => {}, () = back => {} }
        });
    }
}

#[tokio::test]
async fn each_way_to_spoil_a_message_has_its_outcome() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = free.local_addr().unwrap();
    drop(free);
    let proxy = tokio::spawn(relay(listener, server));
    let badge = TempFile::new("svg", "");
    let output = witness(&[
        "--json",
        "--url",
        &url,
        "--upstream",
        &server.port().to_string(),
        "--badge",
        badge.path().to_str().unwrap(),
    ])
    .await;
    proxy.abort();
    let cases = cases(&output);
    for era in ["legacy", "modern"] {
        for (name, outcome) in [
            ("`_meta` of a result", "lost"),
            ("`_meta` of a tool", "lost"),
            ("unknown member of a result", "lost"),
            ("unknown member of a content item", "kept"),
            ("numbers in structured content", "changed"),
            ("numbers in arguments", "kept"),
            ("order of content items", "reordered"),
            ("progress notifications", "kept"),
            ("progress in time", "held up"),
            ("answers of two clients", "leaked"),
            ("log messages of two clients", "leaked"),
            ("tool of the second server", "not tried"),
        ] {
            let is_it = |case: &&Value| {
                let transport = case["transport"] == "http";
                let servers = if name.contains("second server") { 2 } else { 1 };
                case["era"] == era
                    && case["name"] == name
                    && case["servers"] == servers
                    && transport
            };
            let found = cases.iter().find(is_it).unwrap();
            assert_eq!(found["outcome"], outcome, "{found}");
        }
    }
    assert_eq!(output.status.code(), Some(1));
    let badge = std::fs::read_to_string(badge.path()).unwrap();
    assert!(
        badge.starts_with("<svg") && badge.contains(" kept"),
        "{badge}"
    );
}

#[tokio::test]
async fn nothing_is_judged_without_a_server_or_a_gateway() {
    let output = witness(&["--", "true", "{port}"]).await;
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("{config}"), "{error}");
    assert_eq!(output.status.code(), Some(2));

    let output = witness(&[
        "--ready",
        "5s",
        "--",
        "sh",
        "-c",
        "echo no licence >&2; exit 1",
        "{url}{port}",
    ])
    .await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("not offered") && text.contains("no licence"),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(2));
}
