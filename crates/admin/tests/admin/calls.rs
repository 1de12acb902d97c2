//! Calls, catalogue, overview, sessions and configuration.

use fanlight_admin::AdminSettings;
use http::StatusCode;

use crate::scene::{Scene, down, fake};

const RESULT: &str = r#"{"content":[{"type":"text","text":"<b>3</b>"}],"structuredContent":{"sum":3.0,"big":1E400},"_meta":{"x/y": [ 1.50 ]},"z":null}"#;
const TOOL: &str = r#"{"name":"add","inputSchema":{"type":"object"},"_meta":{"com.example/v": 1.0},"unknown":[ ]}"#;

async fn two() -> Scene {
    let lists = |tools: &'static str, resources: &'static str| {
        [("tools/list", tools), ("resources/list", resources)]
    };
    let mut first = lists(
        r#""result":{"tools":[{"name":"add","inputSchema":{"type":"object"},"_meta":{"com.example/v": 1.0},"unknown":[ ]}]}"#,
        r#""result":{"resources":[{"uri":"memo:1","name":"one"}]}"#,
    )
    .to_vec();
    let result: &'static str = Box::leak(format!(r#""result":{RESULT}"#).into_boxed_str());
    first.push(("tools/call", result));
    let second = lists(
        r#""result":{"tools":[]}"#,
        r#""result":{"resources":[{"uri":"memo:1","name":"other"}]}"#,
    );
    Scene::start(
        vec![fake("a", &first), fake("b", &second)],
        AdminSettings::default(),
    )
    .await
}

#[tokio::test]
async fn call_returns_the_bytes_of_the_backend_and_a_readable_trace() {
    let scene = two().await;
    let answer = scene
        .call(r#"{"method":"tools/call","params":{"name":"a__add","arguments":{"n":1.0}}}"#)
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert!(
        answer.text.contains(&format!(r#""result":{RESULT}"#)),
        "{}",
        answer.text
    );
    let trace = answer
        .text
        .split_once(r#""traceId":""#)
        .unwrap()
        .1
        .get(..32)
        .unwrap();

    let listed = scene.json("/api/traces").await;
    assert_eq!(
        (&listed["traces"][0]["traceId"], &listed["recording"]),
        (&trace.into(), &true.into())
    );
    assert_eq!(listed["traces"][0]["name"], "tools/call a__add");
    let otlp = scene.json(&format!("/api/traces/{trace}")).await;
    let span = &otlp["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(
        (&span["traceId"], &span["kind"]),
        (&trace.into(), &2.into())
    );
    let tool = span["attributes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["key"] == "gen_ai.tool.name")
        .unwrap();
    assert_eq!(tool["value"]["stringValue"], "a__add");
    scene.stop().await;
}

#[tokio::test]
async fn call_continues_the_trace_of_its_meta() {
    let scene = two().await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let body = format!(
        r#"{{"method":"tools/call","params":{{"name":"a__add","_meta":{{"traceparent":"{parent}"}}}}}}"#
    );
    let answer = scene.call(&body).await;
    assert!(
        answer
            .text
            .contains(r#""traceId":"4bf92f3577b34da6a3ce929d0e0e4736""#),
        "{}",
        answer.text
    );
}

#[tokio::test]
async fn json_rpc_error_is_an_answer() {
    let scene = two().await;
    let unknown = scene
        .call(r#"{"method":"tools/call","params":{"name":"nothing"}}"#)
        .await;
    assert_eq!(unknown.status, StatusCode::OK);
    let answer: serde_json::Value = serde_json::from_str(&unknown.text).unwrap();
    assert!(
        answer["error"]["code"].is_i64() && answer.get("result").is_none(),
        "{}",
        unknown.text
    );
    let failed = scene.json("/api/traces?error=true").await;
    assert_eq!(failed["traces"][0]["traceId"], answer["traceId"]);
    for bad in [
        "",
        "[]",
        r#"{"method":"tools/list","params":{}}"#,
        r#"{"method":"tools/call"}"#,
    ] {
        let refused = scene.call(bad).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{bad}");
        assert!(
            refused.text.starts_with(r#"{"error":""#),
            "{}",
            refused.text
        );
    }
}

#[tokio::test]
async fn catalogue_names_the_backend_of_each_entry() {
    let scene = two().await;
    let raw = scene.get("/api/catalogue").await.text;
    // All bytes of the entry except its name.
    assert!(
        raw.contains(&TOOL.replace("\"add\"", "\"a__add\"")),
        "{raw}"
    );
    let all: serde_json::Value = serde_json::from_str(&raw).unwrap();
    let tool = &all["tools"]["entries"][0];
    assert_eq!(
        (&tool["backend"], &tool["key"], &tool["original"]),
        (&"a".into(), &"a__add".into(), &"add".into())
    );
    let collision = &all["resources"]["collisions"][0];
    assert_eq!(
        (&collision["key"], &collision["kept"], &collision["other"]),
        (&"memo:1".into(), &"a".into(), &"b".into())
    );
    assert_eq!(all["resources"]["entries"].as_array().unwrap().len(), 2);
    let one = scene.json("/api/catalogue?kind=tools").await;
    assert_eq!(
        one.as_object().unwrap().keys().collect::<Vec<_>>(),
        ["tools"]
    );
    assert_eq!(
        scene.get("/api/catalogue?kind=nothing").await.status,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn endpoints_are_listed_with_what_they_show() {
    let scene = two().await;
    let all = scene.json("/api/endpoints").await;
    let default = &all["endpoints"][0];
    assert_eq!(
        (&default["path"], &default["servers"]),
        (&"/mcp".into(), &serde_json::json!(["a", "b"]))
    );
    let tools = scene.json("/api/catalogue?kind=tools&endpoint=/mcp").await;
    let count = tools["tools"]["entries"].as_array().unwrap().len();
    assert!(count > 0);
    assert_eq!(default["entries"]["tools"], count);
    assert_eq!(
        scene.get("/api/catalogue?endpoint=/none").await.status,
        StatusCode::BAD_REQUEST
    );
}

#[tokio::test]
async fn unreachable_backend_is_reported() {
    let scene = Scene::start(
        vec![
            fake("a", &[("tools/list", r#""result":{"tools":[]}"#)]),
            down("b"),
        ],
        AdminSettings::default(),
    )
    .await;
    let overview = scene.json("/api/overview").await;
    assert_eq!(
        (
            &overview["version"],
            &overview["sessions"],
            &overview["streams"]
        ),
        (&"1.2.3".into(), &1.into(), &1.into())
    );
    assert!(overview["uptimeSeconds"].is_number());
    let (up, down) = (&overview["backends"][0], &overview["backends"][1]);
    assert_eq!(
        (&up["state"], &up["era"], &up["revision"]),
        (&"ready".into(), &"modern".into(), &"2026-07-28".into())
    );
    assert_eq!(down["state"], "down");
    assert!(
        down["error"]
            .as_str()
            .unwrap()
            .contains("connection refused"),
        "{down}"
    );
    let catalogue = scene.json("/api/catalogue?kind=tools").await;
    assert_eq!(catalogue["tools"]["backends"][1]["outcome"], "unreachable");
}

#[tokio::test]
async fn backend_is_described_with_the_changes_of_its_state() {
    let scene = Scene::start(vec![fake("a", &[]), down("b")], AdminSettings::default()).await;
    let up = scene.json("/api/backends/a").await;
    assert_eq!(up["description"]["serverInfo"]["name"], "x");
    assert_eq!(
        scene.json("/api/backends/b").await["description"],
        serde_json::Value::Null
    );
    let history = crate::scene::soon(async {
        loop {
            let history = scene.json("/api/backends/b").await["history"].clone();
            if !history.as_array().unwrap().is_empty() {
                return history;
            }
        }
    })
    .await;
    assert_eq!(history[0]["state"], "down");
    assert!(
        history[0]["error"]
            .as_str()
            .unwrap()
            .contains("connection refused"),
        "{history}"
    );
    assert_eq!(
        scene.get("/api/backends/none").await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn sessions_and_configuration_are_shown() {
    let scene = two().await;
    let sessions = scene.json("/api/sessions").await;
    assert_eq!(sessions["sessions"][0]["digest"], "0123456789abcdef");
    assert_eq!(
        scene.get("/api/sessions?limit=0").await.status,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(scene.json("/api/config").await["listen"], "127.0.0.1:1");
}
