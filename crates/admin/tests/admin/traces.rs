//! The traces of the ring in the API. The test records the spans that a real request would record.

use std::sync::Arc;

use fanlight_admin::AdminSettings;
use fanlight_protocol::{Json, Method, Response, Revision};
use fanlight_telemetry::{
    Arrival, BackendInfo, Carriers, ContentScope, ContentWindow, Departure, Endpoint, ErrorType,
    Moment, Outcome, Target, Telemetry,
};
use http::StatusCode;

use crate::people::{People, TOKEN, VIEWER, settings};
use crate::scene::{Scene, fake};

/// Records a call of `tool` at `backend` with this outcome.
fn record(telemetry: &Telemetry, backend: &str, tool: &str, outcome: &Outcome<'_>) {
    let endpoint = Endpoint::Http {
        host: "127.0.0.1".into(),
        port: 9,
    };
    let backend = telemetry.backend(BackendInfo {
        name: backend.into(),
        endpoint,
    });
    let (id, method) = (Json::literal("7"), Method::CallTool);
    let visible = format!("x__{tool}");
    let (target, received) = (Target::Tool(&visible), Moment::now());
    let mut span = telemetry.server(&Arrival {
        method: &method,
        target,
        id: Some(&id),
        received,
        carriers: Carriers::default(),
    });
    span.set_revision(Revision::V2025_11_25);
    let params = Json::literal(r#"{"arguments":{"a":1,"token":"s3cret"}}"#);
    span.keep_content(&method, Some(&params));
    let departure = Departure {
        method: &method,
        target: Target::Tool(tool),
        id: Some((&id).into()),
        attempt: 1,
    };
    let sent = span.parent().client(&backend, &departure);
    sent.keep_params(&method, &params);
    match outcome {
        Outcome::Finished => sent.end_with_answer(&method, &answer()),
        failed => sent.finish(failed),
    }
    span.finish(outcome);
}

/// A result that is too long to be kept whole.
fn answer() -> Response {
    let text = format!(r#"{{"content":[],"text":"{}"}}"#, "a b ".repeat(30_000));
    Response::from_result(&Json::parse(text.into(), 8).unwrap())
}

async fn scene() -> Scene {
    let scene = Scene::start(
        vec![fake("files", &[]), fake("mail", &[])],
        AdminSettings::default(),
    )
    .await;
    record(&scene.telemetry, "files", "read", &Outcome::Finished);
    record(
        &scene.telemetry,
        "files",
        "write",
        &Outcome::failed(ErrorType::Timeout),
    );
    record(&scene.telemetry, "mail", "send", &Outcome::Finished);
    scene
}

async fn names(scene: &Scene, query: &str) -> Vec<String> {
    let listed = scene.json(&format!("/api/traces{query}")).await;
    let name = |one: &serde_json::Value| {
        one["name"]
            .as_str()
            .unwrap()
            .trim_start_matches("tools/call x__")
            .to_owned()
    };
    listed["traces"]
        .as_array()
        .unwrap()
        .iter()
        .map(name)
        .collect()
}

#[tokio::test]
async fn traces_are_listed_newest_first_and_filtered() {
    let scene = scene().await;
    assert_eq!(names(&scene, "").await, ["send", "write", "read"]);
    assert_eq!(names(&scene, "?backend=files").await, ["write", "read"]);
    assert_eq!(names(&scene, "?tool=send").await, ["send"]);
    assert_eq!(names(&scene, "?tool=x__send").await, ["send"]);
    assert_eq!(names(&scene, "?error=true").await, ["write"]);
    assert_eq!(names(&scene, "?own=false").await.len(), 3);
    assert!(names(&scene, "?own=true").await.is_empty());
    assert_eq!(names(&scene, "?error=false&backend=files").await, ["read"]);
    assert_eq!(names(&scene, "?text=TIMEOUT").await, ["write"]);
    assert_eq!(names(&scene, "?limit=2").await, ["send", "write"]);
    let number = scene.json("/api/traces?limit=2").await["traces"][1]["number"].clone();
    assert_eq!(
        names(&scene, &format!("?limit=2&before={number}")).await,
        ["read"]
    );
    assert_eq!(names(&scene, "?outcome=failed").await, ["write"]);
    assert_eq!(
        names(&scene, "?outcome=ok&method=tools/call").await,
        ["send", "read"]
    );
    assert!(
        names(&scene, "?method=ping").await.is_empty()
            && names(&scene, "?client=x").await.is_empty()
    );
    assert!(
        names(&scene, "?minMs=60000").await.is_empty()
            && names(&scene, "?principal=ann").await.is_empty()
    );
    assert_eq!(names(&scene, "?sort=slowest&minMs=0").await.len(), 3);
    assert_eq!(
        names(&scene, "?since=1&until=99999999999999").await.len(),
        3
    );
    assert!(names(&scene, "?until=1000").await.is_empty());
    let long = format!("client={}", "x".repeat(513));
    let bad = [
        "error=maybe",
        "own=1",
        "limit=-1",
        "before=x",
        "outcome=good",
        "sort=up",
        "minMs=-1",
        "since=NaN",
        "until=1e99",
    ];
    for bad in bad.into_iter().chain(["sort=slowest&before=3", &long]) {
        assert_eq!(
            scene.get(&format!("/api/traces?{bad}")).await.status,
            StatusCode::BAD_REQUEST,
            "{bad}"
        );
    }
}

#[tokio::test]
async fn summary_describes_a_trace() {
    let scene = scene().await;
    let listed = scene.json("/api/traces?error=true").await;
    let trace = &listed["traces"][0];
    assert_eq!(
        (
            &trace["side"],
            &trace["own"],
            &trace["ended"],
            &listed["replica"]
        ),
        (
            &"server".into(),
            &false.into(),
            &true.into(),
            &serde_json::Value::Null
        )
    );
    assert_eq!(
        (&trace["error"], &trace["spans"], &trace["backends"][0]),
        (&"timeout".into(), &2.into(), &"files".into())
    );
    assert!(
        trace["durationMs"].as_f64().unwrap() >= 0.0 && trace["startMs"].as_f64().unwrap() > 1e12
    );
    let otlp = scene
        .json(&format!(
            "/api/traces/{}",
            trace["traceId"].as_str().unwrap()
        ))
        .await;
    let spans = otlp["resourceSpans"][0]["scopeSpans"][0]["spans"]
        .as_array()
        .unwrap();
    let kinds: Vec<_> = spans
        .iter()
        .map(|span| span["kind"].as_i64().unwrap())
        .collect();
    assert_eq!(kinds, [3, 2]);
    assert_eq!(spans[0]["parentSpanId"], spans[1]["spanId"]);
    for missing in ["4bf92f3577b34da6a3ce929d0e0e4736", "x", ""] {
        assert_eq!(
            scene.get(&format!("/api/traces/{missing}")).await.status,
            StatusCode::NOT_FOUND,
            "{missing}"
        );
    }
}

#[tokio::test]
async fn content_has_its_sizes_and_only_operators_read_it() {
    let scene = Scene::with(vec![fake("files", &[])], settings(), Arc::new(People)).await;
    scene.telemetry.keep_content(ContentWindow {
        scope: ContentScope::All,
        until: std::time::SystemTime::now() + std::time::Duration::from_secs(60),
    });
    record(&scene.telemetry, "files", "read", &Outcome::Finished);
    let get = async |path: &str, token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let answer = scene.send(http::Method::GET, path, &headers, "").await;
        serde_json::from_str::<serde_json::Value>(&answer.text).unwrap()
    };
    let listed = get("/api/traces", TOKEN).await;
    let id = listed["traces"][0]["traceId"].as_str().unwrap();
    let path = format!("/api/traces/{id}");
    let trace = get(&path, TOKEN).await;
    let [of_client, of_server, result] = &trace["content"].as_array().unwrap()[..] else {
        panic!("{trace}")
    };
    for arguments in [of_client, of_server] {
        assert_eq!(arguments["kind"], "arguments");
        assert_eq!(arguments["text"], r#"{"a":1,"token":"[redacted]"}"#);
        assert_eq!(
            (&arguments["bytes"], &arguments["whole"]),
            (&24.into(), &true.into())
        );
    }
    assert_ne!(of_client["spanId"], of_server["spanId"]);
    let (bytes, left_out) = (&result["bytes"], &result["leftOut"]);
    assert_eq!(
        (bytes, left_out),
        (&120_024.into(), &(120_024 - 65_536).into())
    );
    assert_eq!(
        (&result["kind"], &result["whole"]),
        (&"result".into(), &false.into())
    );
    let text = result["text"].as_str().unwrap();
    assert!((65_500..65_600).contains(&text.len()) && text.ends_with("b a\"}"));
    let seen = get(&path, VIEWER).await;
    assert_eq!(seen["content"].as_array().unwrap().len(), 3);
    assert!(!seen.to_string().contains("text\":\"{") && seen["content"][2]["bytes"] == 120_024);
    // The exported trace lacks the long result, and says so.
    let export = async |token: &str| {
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        let path = format!("{path}/recording");
        scene.send(http::Method::GET, &path, &headers, "").await
    };
    assert_eq!(export(VIEWER).await.status, StatusCode::FORBIDDEN);
    let text = export(TOKEN).await.text;
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let [head, of_client, of_server, lost, end] = &lines[..] else {
        panic!("{text}")
    };
    assert!(head["servers"]["files"].is_object());
    assert_eq!(
        (&of_client["endpoint"], &of_server["server"]),
        (&"/mcp".into(), &"files".into())
    );
    assert_eq!(of_server["cause"], of_client["exchange"]);
    assert_eq!(
        of_client["masked"],
        serde_json::json!(["/params/arguments/token"])
    );
    let sent = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x__read","arguments":{"a":1,"token":"[masked]"}}}"#;
    assert_eq!(of_client["text"], sent);
    assert_eq!(
        lost["lost"],
        serde_json::json!({"messages": 1, "bytes": 120_024})
    );
    assert_eq!(
        end["end"],
        serde_json::json!({"reason": "trace", "whole": false, "messages": 2})
    );
}

#[tokio::test]
async fn content_is_kept_for_a_time_that_an_operator_asks_for() {
    let scene = Scene::with(vec![fake("files", &[])], settings(), Arc::new(People)).await;
    let bearer = format!("Bearer {TOKEN}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
    ];
    let ask = async |body: &str| {
        let answer = scene
            .send(http::Method::POST, "/api/content", &headers, body)
            .await;
        (answer.status, answer.text)
    };
    let listed = async || {
        scene
            .send(http::Method::GET, "/api/content", &headers, "")
            .await
            .text
    };
    assert_eq!(listed().await, r#"{"level":"off","windows":[]}"#);
    for wrong in [
        "",
        "{}",
        r#"{"for":7}"#,
        r#"{"for":"2h"}"#,
        r#"{"for":"10m","servers":["files"]}"#,
        r#"{"for":"10m","for":"20m"}"#,
        r#"{"for":"10m","server":"gone"}"#,
        r#"{"for":"10m","endpoint":"/gone"}"#,
        r#"{"for":"10m","server":"files","endpoint":"/mcp"}"#,
    ] {
        let (status, text) = ask(wrong).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}: {text}");
    }
    let (status, text) = ask(r#"{"for":"10m","server":"files"}"#).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    assert!(
        text.starts_with(r#"{"server":"files","endpoint":null,"untilMs":"#),
        "{text}"
    );
    record(&scene.telemetry, "files", "read", &Outcome::Finished);
    record(&scene.telemetry, "mail", "send", &Outcome::Finished);
    let content = async |tool: &str| {
        let path = format!("/api/traces?tool={tool}");
        let list = scene
            .send(http::Method::GET, &path, &headers, "")
            .await
            .text;
        let list: serde_json::Value = serde_json::from_str(&list).unwrap();
        let path = format!(
            "/api/traces/{}",
            list["traces"][0]["traceId"].as_str().unwrap()
        );
        let trace = scene
            .send(http::Method::GET, &path, &headers, "")
            .await
            .text;
        serde_json::from_str::<serde_json::Value>(&trace).unwrap()["content"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!((content("read").await, content("send").await), (3, 0));
    assert!(listed().await.contains("files"));
    ask(r#"{"for":"0s","server":"files"}"#).await;
    assert_eq!(listed().await, r#"{"level":"off","windows":[]}"#);
    record(&scene.telemetry, "files", "write", &Outcome::Finished);
    assert_eq!(content("write").await, 0);
}

#[tokio::test]
async fn tools_have_figures_of_the_last_hour() {
    let scene = scene().await;
    let answer = scene.json("/api/tools/statistics").await;
    // The fakes list no tools, so the metrics do not distinguish them.
    let [files, mail] = &answer["tools"].as_array().unwrap()[..] else {
        panic!("{answer}")
    };
    assert_eq!(
        (&files["backend"], &files["tool"], &files["calls"]),
        (&"files".into(), &"_OTHER".into(), &2.into())
    );
    assert_eq!(
        (&files["errors"], &mail["errors"], &mail["givenUp"]),
        (&1.into(), &0.into(), &0.into())
    );
    assert!(
        mail["p50Ms"].as_f64().unwrap() > 0.0 && mail["p99Ms"].is_number(),
        "{mail}"
    );
    let minutes = files["callsByMinute"].as_array().unwrap();
    assert_eq!(
        (minutes.len(), &minutes[59], &minutes[58]),
        (60, &2.into(), &0.into())
    );
    assert_eq!(files["errorsByMinute"][59], 1);
    let first = scene.json("/api/tools/statistics?limit=1").await;
    assert_eq!(
        (
            first["tools"].as_array().unwrap().len(),
            &first["toolCount"]
        ),
        (1, &2.into())
    );
    assert_eq!(
        scene.get("/api/tools/statistics?limit=x").await.status,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn overview_counts_requests_by_backend() {
    let scene = scene().await;
    let overview = scene.json("/api/overview").await;
    let (files, mail) = (&overview["backends"][0], &overview["backends"][1]);
    assert_eq!(
        (&files["requests"], &files["errors"]),
        (&2.into(), &1.into())
    );
    assert_eq!((&mail["requests"], &mail["errors"]), (&1.into(), &0.into()));
    assert!(mail["medianMs"].as_f64().unwrap() > 0.0);
    assert_eq!(files["lastError"]["type"], "timeout");
    assert_eq!(mail["lastError"], serde_json::Value::Null);
    assert_eq!(overview["traces"], 3);
    let metrics = scene.get("/metrics").await;
    assert_eq!(
        metrics.headers["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    assert!(
        metrics
            .text
            .contains("mcp_client_operation_duration_seconds_count"),
        "{}",
        metrics.text
    );
}
