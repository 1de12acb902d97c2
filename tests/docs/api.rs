//! Checks that docs/openapi.json is the file that the program serves, and that it describes the
//! program's answers.

use std::collections::BTreeMap;
use std::fs;

use fanlight_testkit::harness::Gateway;
use fanlight_testkit::programs;
use fanlight_testkit::raw_client::{Connection, LegacySession, legacy_request};
use serde_json::{Value, json};

use crate::page::root;

/// The token of the gateway under test.
const TOKEN: &str = "0123456789abcdef0123";

/// A request to the API.
struct Request {
    method: &'static str,
    /// The route as the description writes it.
    route: &'static str,
    path: String,
    body: Option<Value>,
}

/// At least one request for each operation. Requests that end something come last.
fn requests(trace: &str, session: &str, approval: &str) -> Vec<Request> {
    let get = |route, path: &str| Request {
        method: "get",
        route,
        path: path.to_owned(),
        body: None,
    };
    let post = |route, path: &str, body| Request {
        method: "post",
        route,
        path: path.to_owned(),
        body: Some(body),
    };
    let plain = |route: &'static str| get(route, route);
    vec![
        plain("/api/overview"),
        plain("/api/traces"),
        get(
            "/api/traces",
            "/api/traces?tool=library__search_books&error=false&limit=1",
        ),
        get("/api/traces", "/api/traces?error=perhaps"),
        get("/api/traces/{id}", &format!("/api/traces/{trace}")),
        get("/api/traces/{id}", "/api/traces/none"),
        get(
            "/api/traces/{id}/recording",
            &format!("/api/traces/{trace}/recording"),
        ),
        get("/api/traces/{id}/recording", "/api/traces/none/recording"),
        get(
            "/api/traces",
            "/api/traces?method=tools/call&outcome=ok&minMs=0&since=0&client=fanlight-admin&sort=slowest",
        ),
        plain("/api/content"),
        post(
            "/api/content",
            "/api/content",
            json!({"for": "10m", "server": "library"}),
        ),
        post("/api/content", "/api/content", json!({"for": "2h"})),
        post("/api/recording", "/api/recording", json!({"for": "10ms"})),
        post("/api/recording/end", "/api/recording/end", json!({})),
        post(
            "/api/recording",
            "/api/recording",
            json!({"servers": ["nothing"]}),
        ),
        plain("/api/calls"),
        get("/api/calls", "/api/calls?limit=0"),
        post(
            "/api/calls/{id}/cancel",
            "/api/calls/0123456789abcdef/cancel",
            json!({}),
        ),
        plain("/api/approvals"),
        post(
            "/api/approvals/{id}/{answer}",
            &format!("/api/approvals/{approval}/approve"),
            json!({}),
        ),
        post(
            "/api/approvals/{id}/{answer}",
            &format!("/api/approvals/{approval}/refuse"),
            json!({}),
        ),
        post(
            "/api/approvals/{id}/{answer}",
            "/api/approvals/none/approve",
            json!({}),
        ),
        plain("/api/limits"),
        get("/api/limits", "/api/limits?nearest=0"),
        plain("/api/pins"),
        post(
            "/api/pins/{id}/approve",
            "/api/pins/none/approve",
            json!({}),
        ),
        plain("/api/audit"),
        plain("/api/usage"),
        plain("/api/connections"),
        post(
            "/api/connections/{id}/end",
            "/api/connections/none/end",
            json!({}),
        ),
        plain("/api/tools/statistics"),
        plain("/api/catalogue"),
        get(
            "/api/catalogue",
            "/api/catalogue?kind=prompts&endpoint=/mcp",
        ),
        get("/api/catalogue", "/api/catalogue?kind=nothing"),
        plain("/api/endpoints"),
        plain("/api/sessions"),
        plain("/api/config"),
        plain("/api/connect"),
        plain("/api/backends"),
        plain("/api/log"),
        get("/api/backends/{name}", "/api/backends/library"),
        get("/api/backends/{name}", "/api/backends/nothing"),
        get("/api/backends/{name}/log", "/api/backends/library/log"),
        get("/api/backends/{name}/log", "/api/backends/nothing/log"),
        get("/api/servers/{name}/log", "/api/servers/library/log"),
        get("/api/servers/{name}/log", "/api/servers/nothing/log"),
        plain("/api/events"),
        plain("/api/session"),
        plain("/api/openapi.json"),
        post(
            "/api/call",
            "/api/call",
            json!({"method": "tools/call", "params": {"name": "library__nothing"}}),
        ),
        post(
            "/api/call",
            "/api/call",
            json!({"method": "initialize", "params": {}}),
        ),
        post(
            "/api/call/answer",
            "/api/call/answer",
            json!({"call": "a", "question": 1, "result": {"action": "decline"}}),
        ),
        post("/api/call/cancel", "/api/call/cancel", json!({"call": "a"})),
        post("/api/session", "/api/session", json!({"token": TOKEN})),
        post("/api/session", "/api/session", json!({"token": "another"})),
        post("/api/session/issuer", "/api/session/issuer", json!({})),
        post(
            "/api/session/issuer/answer",
            "/api/session/issuer/answer",
            json!({"code": "a", "state": "b"}),
        ),
        post("/api/reload", "/api/reload", json!({})),
        post(
            "/api/servers/{name}/{action}",
            "/api/servers/library/restart",
            json!({}),
        ),
        post(
            "/api/servers/{name}/{action}",
            "/api/servers/nothing/restart",
            json!({}),
        ),
        post(
            "/api/sessions/{digest}/end",
            &format!("/api/sessions/{session}/end"),
            json!({}),
        ),
        post(
            "/api/sessions/{digest}/end",
            "/api/sessions/none/end",
            json!({}),
        ),
        post("/api/session/end", "/api/session/end", json!({})),
    ]
}

/// The status, the type and the text of an answer.
async fn ask(
    gateway: &Gateway,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> (u16, String, String) {
    let body = body.map(Value::to_string).unwrap_or_default();
    let (origin, token) = (
        format!("http://{}", gateway.admin),
        format!("Bearer {TOKEN}"),
    );
    let headers = [
        ("Authorization", &*token),
        ("Content-Type", "application/json"),
        ("Origin", &*origin),
    ];
    let mut connection = Connection::open(gateway.admin).await;
    connection
        .request(&method.to_uppercase(), path, &headers, body.as_bytes())
        .await;
    let mut response = connection.response().await;
    let kind = response
        .header("content-type")
        .unwrap_or_default()
        .to_owned();
    // An event stream does not end.
    let text = if response.is_event_stream() {
        String::new()
    } else {
        response.text().await
    };
    (response.status, kind, text)
}

async fn ask_json(gateway: &Gateway, method: &str, path: &str, body: Option<&Value>) -> Value {
    let (status, _, text) = ask(gateway, method, path, body).await;
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// The schema with unknown members forbidden, although future answers may have more.
fn strict(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let mut members: serde_json::Map<_, _> = members
                .iter()
                .map(|(name, value)| (name.clone(), strict(value)))
                .collect();
            if members.contains_key("properties") && !members.contains_key("additionalProperties") {
                members.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            Value::Object(members)
        }
        Value::Array(values) => Value::Array(values.iter().map(strict).collect()),
        other => other.clone(),
    }
}

/// The contents of docs/openapi.json.
pub(crate) struct Description(Value);

impl Description {
    pub(crate) fn read() -> Self {
        Self(
            serde_json::from_str(&fs::read_to_string(root().join("docs/openapi.json")).unwrap())
                .unwrap(),
        )
    }

    /// Checks that an answer has this schema.
    pub(crate) fn check(&self, schema: &Value, answer: &Value) -> Result<(), String> {
        let mut root = schema.clone();
        root["components"] = strict(&self.0["components"]);
        let validator = jsonschema::validator_for(&root).unwrap();
        let wrong =
            |error: jsonschema::ValidationError| format!("{error} at `{}`", error.instance_path());
        let errors: Vec<String> = validator.iter_errors(answer).map(wrong).collect();
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors.join("; "))
        }
    }

    /// Checks that the answer to this request is described.
    fn check_answer(
        &self,
        request: &Request,
        (status, kind, text): &(u16, String, String),
    ) -> Result<(), String> {
        let response =
            &self.0["paths"][request.route][request.method]["responses"][status.to_string()];
        if response.is_null() {
            return Err(format!("the status {status} is not described: {text}"));
        }
        let media = kind.split(';').next().unwrap_or_default();
        match response["content"][media].get("schema") {
            None => Err(format!("the type `{kind}` of {status} is not described")),
            Some(schema) if media == "application/json" => {
                self.check(schema, &serde_json::from_str(text).unwrap())
            }
            Some(_) => Ok(()),
        }
    }
}

#[tokio::test]
async fn api_answers_as_its_description_says() {
    let program = programs::fanlight();
    let server = |era| json!({"command": program, "args": ["demo-server", era]});
    let mut servers = json!({"library": server("legacy"), "workshop": server("modern")});
    servers["library"]["approval"] = json!({"tools": ["search_books"]});
    let config = json!({
        "mcpServers": servers, "admin": {"token": TOKEN}, "timeouts": {"approval": "10ms"},
    });
    let gateway = Gateway::start(&config.to_string()).await;
    let session = LegacySession::open(gateway.mcp).await;
    let call = json!({"method": "tools/call", "params": {"name": "library__search_books", "arguments": {"query": "sea"}}});
    let called = ask_json(&gateway, "post", "/api/call", Some(&call)).await;
    let sessions = ask_json(&gateway, "get", "/api/sessions", None).await;
    let digest = sessions["sessions"][0]["digest"].as_str().unwrap();

    let params = r#""name":"library__search_books","arguments":{"query":"sea"}"#;
    let mut waits = session
        .post(&legacy_request("1", "tools/call", params))
        .await;
    assert!(waits.messages().await.1.contains("-31007"));
    let approvals = ask_json(&gateway, "get", "/api/approvals", None).await;
    let approval = approvals["approvals"][0]["id"].as_str().unwrap();

    let description = Description::read();
    assert_eq!(
        ask_json(&gateway, "get", "/api/openapi.json", None).await,
        description.0
    );

    let (mut wrong, mut tried) = (Vec::new(), BTreeMap::<(&str, &str), bool>::new());
    for request in &requests(called["traceId"].as_str().unwrap(), digest, approval) {
        let answer = ask(
            &gateway,
            request.method,
            &request.path,
            request.body.as_ref(),
        )
        .await;
        *tried.entry((request.route, request.method)).or_default() |= answer.0 == 200;
        if let Err(what) = description.check_answer(request, &answer) {
            wrong.push(format!("{} {}: {what}", request.method, request.path));
        }
    }
    for (route, item) in description.0["paths"].as_object().unwrap() {
        for method in item.as_object().unwrap().keys() {
            if !tried.contains_key(&(route.as_str(), method.as_str())) {
                wrong.push(format!(
                    "{method} {route} is described, and nothing asks for it here"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // No call waits for approval or runs here, and there is no issuer; every other operation has
    // succeeded once.
    let failed: Vec<&str> = tried
        .iter()
        .filter(|(_, succeeded)| !**succeeded)
        .map(|((route, _), _)| *route)
        .collect();
    let expected = [
        "/api/call/answer",
        "/api/call/cancel",
        "/api/calls/{id}/cancel",
        "/api/connections/{id}/end",
        "/api/pins/{id}/approve",
        "/api/session/issuer",
        "/api/session/issuer/answer",
    ];
    assert_eq!(failed, expected);
    drop(session);
}

#[test]
fn undescribed_answers_are_found() {
    let description = Description(json!({
        "paths": {"/a": {"get": {"responses": {"200": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/A"}}}}}}}},
        "components": {"schemas": {"A": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}}},
    }));
    let request = Request {
        method: "get",
        route: "/a",
        path: "/a".to_owned(),
        body: None,
    };
    let found = |status: u16, kind: &str, text: &str| {
        description
            .check_answer(&request, &(status, kind.to_owned(), text.to_owned()))
            .is_err()
    };
    assert!(!found(200, "application/json", r#"{"n":1}"#));
    let wrong = [
        (404, "application/json", "{}"),
        (200, "text/plain", "{}"),
        (200, "application/json", "{}"),
    ];
    let wrong = wrong.into_iter().chain([
        (200, "application/json", r#"{"n":1,"m":2}"#),
        (200, "application/json", r#"{"n":""}"#),
    ]);
    for (status, kind, text) in wrong {
        assert!(found(status, kind, text), "{status} {kind} {text}");
    }
}
