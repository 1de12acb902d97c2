//! The traces of the ring in the API. The test records the spans that a real request would record.

use fanlight_admin::AdminSettings;
use fanlight_protocol::{Json, Method, Revision};
use fanlight_telemetry::{
    Arrival, BackendInfo, Carriers, ContentPolicy, Departure, Endpoint, ErrorType, Moment, Outcome,
    Target, Telemetry,
};
use http::StatusCode;

use crate::scene::{Scene, fake};

/// Records a call of `tool` at `backend` with this outcome.
fn record(telemetry: &Telemetry, backend: &str, tool: &str, outcome: &Outcome<'_>) {
    let endpoint = Endpoint::Http {
        host: "127.0.0.1".into(),
        port: 9,
    };
    let content = ContentPolicy::default();
    let backend = telemetry.backend(BackendInfo {
        name: backend.into(),
        endpoint,
        content,
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
    let departure = Departure {
        method: &method,
        target: Target::Tool(tool),
        id: Some((&id).into()),
        attempt: 1,
    };
    let sent = span.parent().client(&backend, &departure);
    sent.finish(outcome);
    span.finish(outcome);
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
