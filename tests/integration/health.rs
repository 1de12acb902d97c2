//! Unresponsive servers are skipped, cost other servers nothing, and are used again once they
//! answer.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::faults::backend;
use crate::harness::{Gateway, TempFile, within};
use crate::scripted::{Backend, Era, Fault, Reply, Transport};
use crate::server_lives::{ask, text_at};

const OK: &str = r#"{"content":[]}"#;

/// Waits until the first server in the overview has this state.
async fn server_when(gateway: &Gateway, state: &str) -> Value {
    within("the state of the server", async {
        loop {
            let overview: Value =
                serde_json::from_str(&text_at(gateway, "/api/overview").await).unwrap();
            if overview["backends"][0]["state"] == state {
                return overview["backends"][0].clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

fn config(entries: &[String]) -> String {
    config_with("healthTimeouts=3", entries)
}

/// [`config`] with more limits.
fn config_with(limits: &str, entries: &[String]) -> String {
    let limits = format!("{limits},probe=4s,list=3s,reconnect=100ms,reconnectMax=200ms");
    format!(
        r#"{{"mcpServers":{{{}}},"x-limits":"connect=5s,{limits}"}}"#,
        entries.join(",")
    )
}

/// Makes the server answer nothing from now on.
fn hang(server: &Backend) {
    for method in [
        "server/discover",
        "initialize",
        "ping",
        "tools/call",
        "tools/list",
        "prompts/list",
        "resources/list",
    ] {
        server.on(method, Reply::fault(Fault::Hang));
    }
}

fn recover(server: &Backend, era: Era) {
    server.declares(r#"{"tools":{}}"#);
    server.on("ping", Reply::result("{}"));
    server.offers_tools(&["t"]);
    server.on(
        "tools/call",
        Reply::result(era.complete(&OK[1..OK.len() - 1])),
    );
}

/// The median duration of some requests.
async fn median(mut request: impl AsyncFnMut()) -> Duration {
    let mut times = Vec::new();
    for _ in 0..15 {
        let began = Instant::now();
        request().await;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}

#[tokio::test]
async fn server_that_answers_nothing_is_left_out_and_costs_others_nothing() {
    for era in [Era::Modern, Era::Legacy] {
        let bad = backend(era, Transport::Http).await;
        let (one, two) = (
            backend(Era::Modern, Transport::Http).await,
            backend(Era::Modern, Transport::Stdio).await,
        );
        let entries = [
            bad.entry_with("bad", r#""timeout":"2s""#),
            one.entry("one"),
            two.entry("two"),
        ];
        let limits = "healthTimeout=200ms,healthTimeouts=2";
        let gateway = Gateway::start(&config_with(limits, &entries)).await;
        assert!(ask(&gateway, "tools/list", "").await.contains("bad__t"));
        assert!(
            ask(&gateway, "tools/call", r#""name":"bad__t""#)
                .await
                .contains("\"result\"")
        );
        hang(&bad);
        for _ in 0..2 {
            assert!(
                ask(&gateway, "tools/call", r#""name":"bad__t""#)
                    .await
                    .contains("\"error\"")
            );
        }
        let server = server_when(&gateway, "down").await;
        assert!(
            server["error"].as_str().unwrap().contains("no check"),
            "{server}"
        );
        let ejected = "fanlight_backend_ejections_total{fanlight_backend_name=\"bad\"} 1";
        assert!(text_at(&gateway, "/metrics").await.contains(ejected));
        // Each of these would take two seconds or more if it waited for the server.
        let list = median(async || {
            let listed = ask(&gateway, "tools/list", "").await;
            assert!(
                listed.contains("one__t") && listed.contains("two__t"),
                "{listed}"
            );
        })
        .await;
        let other = median(async || {
            assert!(
                ask(&gateway, "tools/call", r#""name":"one__t""#)
                    .await
                    .contains("\"result\"")
            );
        })
        .await;
        let failing = median(async || {
            let answer = ask(&gateway, "tools/call", r#""name":"bad__t""#).await;
            assert!(answer.contains("\"mayHaveRun\":false"), "{answer}");
        })
        .await;
        for (what, time) in [
            ("list", list),
            ("call of another", other),
            ("call", failing),
        ] {
            assert!(
                time < Duration::from_secs(1),
                "{era:?}: a {what} took {time:?}"
            );
        }
        recover(&bad, era);
        within("a result", async {
            while !ask(&gateway, "tools/call", r#""name":"bad__t""#)
                .await
                .contains("\"result\"")
            {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        assert!(ask(&gateway, "tools/list", "").await.contains("bad__t"));
        assert!(gateway.terminate().await.success());
    }
}

/// A server whose calls hang, and which answers everything else.
async fn answers_no_calls(era: Era) -> Backend {
    let server = backend(era, Transport::Http).await;
    server.offers_tools(&["a", "b"]);
    server.on("ping", Reply::result("{}"));
    server.on("tools/call", Reply::fault(Fault::Hang));
    server
}

/// Calls that time out, until the gateway ejects the server.
async fn time_out(gateway: &Gateway) {
    for tool in ["a", "b", "a"] {
        let answer = ask(gateway, "tools/call", &format!(r#""name":"bad__{tool}""#)).await;
        assert!(answer.contains("\"mayHaveRun\":true"), "{answer}");
    }
}

#[tokio::test]
async fn server_that_answers_checks_but_no_calls_is_left_alone() {
    for era in [Era::Modern, Era::Legacy] {
        let (bad, one) = (
            answers_no_calls(era).await,
            backend(Era::Modern, Transport::Http).await,
        );
        let entries = [
            bad.entry_with("bad", r#""timeout":"300ms""#),
            one.entry_with("one", r#""timeout":"20s""#),
        ];
        let timeouts = r#""x-limits":"reconnect=1h,reconnectMax=1h""#;
        let gateway = Gateway::start(&format!(
            r#"{{"mcpServers":{{{}}},{timeouts}}}"#,
            entries.join(",")
        ))
        .await;
        time_out(&gateway).await;
        let server = server_when(&gateway, "ejected").await;
        assert!(
            server["error"]
                .as_str()
                .unwrap()
                .contains("last 3 calls got no answer"),
            "{server}"
        );
        let ejected = "fanlight_backend_ejections_total{fanlight_backend_name=\"bad\"} 1";
        assert!(text_at(&gateway, "/metrics").await.contains(ejected));
        for _ in 0..5 {
            let answer = ask(&gateway, "tools/call", r#""name":"bad__a""#).await;
            assert!(
                answer.contains("\"mayHaveRun\":false") && answer.contains("got no answer"),
                "{answer}"
            );
        }
        assert_eq!(bad.received("tools/call").len(), 3, "{era:?}");
        // Its lists and the other servers go on.
        let listed = ask(&gateway, "tools/list", "").await;
        assert!(
            listed.contains("bad__a") && listed.contains("one__t"),
            "{listed}"
        );
        assert!(
            ask(&gateway, "tools/call", r#""name":"one__t""#)
                .await
                .contains("\"result\"")
        );
        assert!(
            text_at(&gateway, "/readyz")
                .await
                .contains("\"ready\":true")
        );
        assert!(gateway.terminate().await.success());
    }
}

#[tokio::test]
async fn server_that_answers_a_trial_is_used_again() {
    let (bad, one) = (
        answers_no_calls(Era::Modern).await,
        backend(Era::Modern, Transport::Http).await,
    );
    let entry = bad.entry_with("bad", r#""timeout":"300ms""#);
    let gateway = Gateway::start(&config(&[entry, one.entry("one")])).await;
    time_out(&gateway).await;
    server_when(&gateway, "ejected").await;
    bad.on(
        "tools/call",
        Reply::result(Era::Modern.complete(&OK[1..OK.len() - 1])),
    );
    within("a result", async {
        while !ask(&gateway, "tools/call", r#""name":"bad__a""#)
            .await
            .contains("\"result\"")
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    server_when(&gateway, "ready").await;
    gateway.log.line_with("server gets calls again").await;
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn server_with_a_slow_tool_is_not_left_out() {
    let server = backend(Era::Modern, Transport::Http).await;
    server.on_target("tools/call", "slow", Reply::fault(Fault::Hang));
    let entry = server.entry_with("only", r#""timeout":"100ms""#);
    let gateway = Gateway::start(&config_with("healthTimeouts=1", &[entry])).await;
    let checks = server.received("server/discover").len();
    for number in 1..4 {
        assert!(
            ask(&gateway, "tools/call", r#""name":"slow""#)
                .await
                .contains("\"error\"")
        );
        assert!(
            ask(&gateway, "tools/call", r#""name":"t""#)
                .await
                .contains("\"result\"")
        );
        server.wait_for("server/discover", checks + number).await;
    }
    assert!(
        text_at(&gateway, "/metrics")
            .await
            .contains("fanlight_backend_ejections_total{fanlight_backend_name=\"only\"} 0")
    );
    assert!(gateway.terminate().await.success());
}

#[tokio::test]
async fn slow_server_of_a_reload_does_not_make_the_gateway_unready() {
    let (good, slow) = (
        backend(Era::Modern, Transport::Http).await,
        Backend::start(Era::Modern, Transport::Http).await,
    );
    hang(&slow);
    let folder = TempFile::folder();
    let path = folder.path().join("fanlight.json");
    let write = |entries: &[String]| std::fs::write(&path, config(entries)).unwrap();
    write(&[good.entry("good")]);
    let gateway = Gateway::start_at(path.clone()).await;
    within("the first attempt", async {
        while !text_at(&gateway, "/readyz")
            .await
            .contains(r#""ready":true"#)
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    write(&[good.entry("good"), slow.entry("slow")]);
    assert_eq!(gateway.reload().await.0, 200);
    let ready = text_at(&gateway, "/readyz").await;
    assert!(
        ready.contains(r#""ready":true"#) && ready.contains("slow"),
        "{ready}"
    );
    let metrics = text_at(&gateway, "/metrics").await;
    for (name, up) in [("good", 1), ("slow", 0)] {
        let line = format!("fanlight_backend_up{{fanlight_backend_name=\"{name}\"}} {up}");
        assert!(metrics.contains(&line), "{metrics}");
    }
}
