//! Run-time changes by operators.

use std::process::Stdio;

use super::*;
use crate::harness::fanlight;
use crate::raw_client::{LegacySession, legacy_request};
use crate::scripted::config;

#[tokio::test]
async fn server_that_is_switched_off_stays_off_until_a_restart() {
    let (a, b) = (
        server(Era::Modern, Transport::Stdio, "a").await,
        server(Era::Legacy, Transport::Http, "b").await,
    );
    let gateway =
        Gateway::start_with(&config(&[a.entry("a"), b.entry("b")]), &["--no-watch"]).await;
    assert!(call(&gateway, "b__t").await.contains(r#""b""#));
    let run = async |action: &str, server: &str| {
        let url = format!("http://{}", gateway.admin);
        let mut command = fanlight();
        let output = command
            .args([action, server, "--admin", &url])
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let done = (Some(0), String::new());
    assert_eq!(run("disable", "b").await, done);
    assert!(!tools(&gateway).await.contains("b__t"));
    assert!(
        call(&gateway, "t").await.contains(r#""a""#),
        "the only server that is left"
    );
    let shown = admin(&gateway, "/api/config").await;
    assert!(
        shown
            .replace([' ', '\n'], "")
            .contains(r#""atRunTime":{"enabled":[],"disabled":["b"]}"#),
        "{shown}"
    );
    reload(
        &gateway,
        &config(&[a.entry("a"), b.entry_with("b", r#""prefix":"x_""#)]),
    )
    .await;
    assert!(
        !tools(&gateway).await.contains("x_t"),
        "a reload leaves it off"
    );
    assert_eq!(run("enable", "b").await, done);
    assert!(tools(&gateway).await.contains("x_t"));

    assert_eq!(run("restart", "a").await, done);
    assert!(call(&gateway, "a__t").await.contains(r#""a""#));
    assert_eq!(a.started().len(), 2);
    for server in ["a", "b"] {
        assert_eq!(run("disable", server).await, done);
    }
    assert!(tools(&gateway).await.contains(r#""tools":[]"#));
    let (status, help) = run("restart", "a").await;
    assert!(
        status == Some(2) && help.contains("`fanlight enable a` switches it on"),
        "{help}"
    );
    let (status, help) = run("disable", "nothing").await;
    assert!(
        status == Some(2) && help.contains("no server \"nothing\"; it has a, b"),
        "{help}"
    );
    assert_eq!(run("enable", "a").await, done);
    assert!(call(&gateway, "t").await.contains(r#""a""#));
}

#[tokio::test]
async fn session_that_an_operator_ends_is_gone() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let gateway = Gateway::start_with(&config(&[only.entry("only")]), &["--no-watch"]).await;
    let (ended, kept) = (
        LegacySession::open(gateway.mcp).await,
        LegacySession::open(gateway.mcp).await,
    );
    let seen: serde_json::Value =
        serde_json::from_str(&admin(&gateway, "/api/sessions").await).unwrap();
    let digests: Vec<_> = seen["sessions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["digest"].as_str().unwrap())
        .collect();
    assert_eq!(digests.len(), 2);
    let ask =
        async |session: &LegacySession| session.post(&legacy_request("2", "ping", "")).await.status;
    let url = format!("http://{}", gateway.admin);
    let run = async |digest: &str| {
        let mut command = fanlight();
        command
            .args(["end-session", digest, "--admin", &url])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command.status().await.unwrap().success()
    };
    assert!(run(digests[0]).await && !run(digests[0]).await);
    let mut statuses = [ask(&ended).await, ask(&kept).await];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 404]);
}
