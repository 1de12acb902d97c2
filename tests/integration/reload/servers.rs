//! Servers that a new configuration adds, changes, removes and keeps.

use super::*;
use crate::faults::assert_gone;
use crate::harness::TempFile;
use crate::raw_client::{LegacySession, legacy_request};
use crate::scripted::{Gate, config};

#[tokio::test]
async fn unchanged_server_keeps_its_process_and_its_running_call() {
    let (kept, added) = (
        server(Era::Modern, Transport::Stdio, "kept").await,
        server(Era::Modern, Transport::Http, "added").await,
    );
    let gateway = Gateway::start_with(&config(&[kept.entry("kept")]), &["--no-watch"]).await;
    assert!(call(&gateway, "t").await.contains("kept"));
    let children = kept.started();
    let gate = Gate::new();
    kept.once(
        "tools/call",
        Reply::result(r#"{"content":[],"x":"undisturbed"}"#).gated(&gate),
    );
    let running = tokio::spawn({
        let (mcp, request) = (
            gateway.mcp,
            modern_request("2", "tools/call", r#""name":"t""#, ""),
        );
        async move { post_modern(mcp, &request).await.messages().await.1 }
    });
    gate.reached(1).await;
    let report = reload(
        &gateway,
        &config(&[kept.entry("kept"), added.entry("added")]),
    )
    .await;
    assert!(
        report.contains(r#""added""#) && report.contains(r#""result": "applied""#),
        "{report}"
    );
    assert!(call(&gateway, "added__t").await.contains("added"));
    assert!(call(&gateway, "kept__t").await.contains("kept"));
    gate.open();
    assert!(running.await.unwrap().contains("undisturbed"));
    reload(&gateway, &config(&[kept.entry("kept")])).await;
    assert!(call(&gateway, "t").await.contains("kept"));
    assert_eq!(kept.started(), children, "the same process");
}

#[tokio::test]
async fn rotated_secret_of_a_header_is_sent_without_replacing_the_server() {
    for era in [Era::Legacy, Era::Modern] {
        let backend = server(era, Transport::Http, "kept").await;
        let folder = TempFile::folder();
        let secrets = folder.path().join("secrets.env");
        let entry = |scheme: &str| {
            backend.entry_with(
                "s",
                &format!(r#""headers":{{"X-Key":"{scheme} ${{KEY}}"}}"#),
            )
        };
        let file = |scheme: &str| {
            let servers = config(&[entry(scheme)]);
            servers.replacen('{', &format!(r#"{{"envFile":"{}","#, secrets.display()), 1)
        };
        std::fs::write(&secrets, "KEY=first").unwrap();
        let gateway = Gateway::start_with(&file("a"), &["--no-watch"]).await;
        assert!(call(&gateway, "t").await.contains("kept"));
        let handshakes =
            || backend.received("initialize").len() + backend.received("server/discover").len();
        let before = handshakes();
        std::fs::write(&secrets, "KEY=second").unwrap();
        let report = reload(&gateway, &file("a")).await;
        assert!(report.contains(r#""changed": []"#), "{report}");
        assert!(call(&gateway, "t").await.contains("kept"));
        assert_eq!(handshakes(), before, "a rotated secret replaces no server");
        // Another notation of the secret may mean another identity.
        let report = reload(&gateway, &file("b")).await;
        assert!(!report.contains(r#""changed": []"#), "{report}");
        assert!(call(&gateway, "t").await.contains("kept"));
        assert!(handshakes() > before);
        let calls = backend.received("tools/call");
        let keys: Vec<_> = calls
            .iter()
            .map(|call| call.header("x-key").unwrap())
            .collect();
        assert_eq!(keys, ["a first", "a second", "b second"]);
    }
}

#[tokio::test]
async fn running_call_ends_at_the_old_server_and_new_calls_go_to_the_new_one() {
    let (old, new) = (
        server(Era::Modern, Transport::Stdio, "old").await,
        server(Era::Legacy, Transport::Stdio, "new").await,
    );
    let other = server(Era::Legacy, Transport::Http, "other").await;
    let gateway = Gateway::start_with(
        &config(&[old.entry("s"), other.entry("other")]),
        &["--no-watch"],
    )
    .await;
    assert!(call(&gateway, "s__t").await.contains("old"));
    let gate = Gate::new();
    old.once(
        "tools/call",
        Reply::result(r#"{"content":[],"x":"from the old"}"#).gated(&gate),
    );
    let running = tokio::spawn({
        let (mcp, request) = (
            gateway.mcp,
            modern_request("2", "tools/call", r#""name":"s__t""#, ""),
        );
        async move { post_modern(mcp, &request).await.messages().await.1 }
    });
    gate.reached(1).await;
    let report = reload(&gateway, &config(&[new.entry("s"), other.entry("other")])).await;
    assert!(report.contains(r#""changed": ["#), "{report}");
    assert!(call(&gateway, "s__t").await.contains("new"));
    gate.open();
    assert!(running.await.unwrap().contains("from the old"));
    for pid in old.started() {
        assert_gone(pid).await;
    }
}

#[tokio::test]
async fn removed_server_ends_after_the_time_for_draining() {
    let (gone, kept) = (
        server(Era::Legacy, Transport::Stdio, "gone").await,
        server(Era::Modern, Transport::Http, "kept").await,
    );
    // A second server stays, since names pass to a single server unchanged.
    let other = server(Era::Modern, Transport::Http, "other").await;
    let with = |entries: &[String]| {
        let servers = config(entries);
        format!(
            r#"{},"timeouts":{{"drain":"300ms"}}}}"#,
            servers.strip_suffix('}').unwrap()
        )
    };
    let gateway = Gateway::start_with(
        &with(&[gone.entry("gone"), kept.entry("kept"), other.entry("other")]),
        &["--no-watch"],
    )
    .await;
    assert!(call(&gateway, "gone__t").await.contains("gone"));
    let gate = Gate::new();
    gone.once(
        "tools/call",
        Reply::result(r#"{"content":[]}"#).gated(&gate),
    );
    let running = tokio::spawn({
        let (mcp, request) = (
            gateway.mcp,
            modern_request("2", "tools/call", r#""name":"gone__t""#, ""),
        );
        async move { post_modern(mcp, &request).await.messages().await.1 }
    });
    gate.reached(1).await;
    let report = reload(&gateway, &with(&[kept.entry("kept"), other.entry("other")])).await;
    assert!(report.contains(r#""removed": ["#), "{report}");
    let answer = call(&gateway, "gone__t").await;
    assert!(answer.contains("Unknown tool"), "{answer}");
    assert!(
        running.await.unwrap().contains("error"),
        "it was drained in vain"
    );
    for pid in gone.started() {
        assert_gone(pid).await;
    }
    assert!(
        !admin(&gateway, "/metrics")
            .await
            .contains(r#"fanlight_backend_up{fanlight_backend_name="gone"}"#)
    );
    assert!(!admin(&gateway, "/api/overview").await.contains("gone"));
}

#[tokio::test]
async fn option_that_needs_a_restart_is_named_and_shown_as_in_force() {
    let only = server(Era::Modern, Transport::Http, "only").await;
    let with = |more: &str| {
        format!(
            r#"{},{more}}}"#,
            config(&[only.entry("only")]).strip_suffix('}').unwrap()
        )
    };
    let gateway = Gateway::start_with(&with(r#""limits":{"sessions":1}"#), &["--no-watch"]).await;
    let changed =
        r#""limits":{"sessions":2,"connections":70},"allowedOrigins":["https://app.example"]"#;
    let report = reload(&gateway, &with(changed)).await;
    assert!(
        report.contains(r#""limits.sessions""#) && !report.contains("connections"),
        "{report}"
    );
    let shown = admin(&gateway, "/api/config").await;
    assert!(
        shown.contains(r#""sessions": 1"#) && shown.contains(r#""connections": 70"#),
        "{shown}"
    );
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request("OPTIONS", "/mcp", &[("Origin", "https://app.example")], b"")
        .await;
    assert_ne!(connection.response().await.status, 403);
    reload(
        &gateway,
        &with(r#""limits":{"sessions":2,"connections":70}"#),
    )
    .await;
    let mut connection = Connection::open(gateway.mcp).await;
    connection
        .request("OPTIONS", "/mcp", &[("Origin", "https://app.example")], b"")
        .await;
    assert_eq!(connection.response().await.status, 403);
}

#[tokio::test]
async fn log_level_of_a_session_is_set_again_at_a_changed_server() {
    for transport in [Transport::Http, Transport::Stdio] {
        let logging = async |name: &str| {
            let backend = server(Era::Legacy, transport, name).await;
            backend.declares(r#"{"tools":{},"logging":{}}"#);
            backend.on("logging/setLevel", Reply::result("{}"));
            backend
        };
        let (old, new) = (logging("old").await, logging("new").await);
        let gateway = Gateway::start_with(&config(&[old.entry("s")]), &["--no-watch"]).await;
        let session = LegacySession::open(gateway.mcp).await;
        let ask = async |id: &str, method: &str, params: &str| {
            session
                .post(&legacy_request(id, method, params))
                .await
                .messages()
                .await
                .1
        };
        assert!(
            ask("1", "logging/setLevel", r#""level":"warning""#)
                .await
                .contains("result")
        );
        assert!(
            ask("2", "tools/call", r#""name":"t""#)
                .await
                .contains("old")
        );
        reload(&gateway, &config(&[new.entry("s")])).await;
        assert!(
            ask("3", "tools/call", r#""name":"t""#)
                .await
                .contains("new")
        );
        let set = new.received("logging/setLevel");
        let levels: Vec<_> = set
            .iter()
            .map(|request| request.member("params.level").unwrap())
            .collect();
        assert_eq!(levels, [r#""warning""#], "{transport:?}");
    }
}
