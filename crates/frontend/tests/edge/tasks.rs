//! Task methods of both eras: required capabilities, and the task dialect that the core sees.

use fanlight_canonical::TaskDialect;
use fanlight_protocol::Method;

use crate::client::{Server, modern_headers};
use crate::core::TestCore;
use crate::streams::Stdio;
use crate::suspended::call;

const KNOWS_TASKS: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

fn task_request(id: usize, method: &str, capabilities: &str) -> String {
    call(id, "x", "{}", "", capabilities, "")
        .replace("tools/call", method)
        .replace(r#""name":"x""#, r#""taskId":"t 1""#)
}

#[tokio::test]
async fn modern_task_request_needs_its_header_and_the_extension() {
    let mut server = Server::start().await;
    let mut client = server.connect().await;
    for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
        let request = task_request(1, method, KNOWS_TASKS);
        let good = client
            .post(&modern_headers(method, Some("t 1")), &request)
            .await;
        let result = r#"{"resultType":"complete","status":"input_required"}"#;
        assert_eq!(
            good.body,
            format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#)
        );
        let seen = server.log.began().await;
        assert_eq!(
            (seen.method.as_str(), seen.context.tasks),
            (method, Some(TaskDialect::Extension))
        );
        for wrong in [None, Some("t 2")] {
            let refused = client.post(&modern_headers(method, wrong), &request).await;
            assert_eq!(
                (refused.status, refused.code()),
                (400, -32020),
                "{method} {wrong:?}"
            );
        }
        let refused = client
            .post(
                &modern_headers(method, Some("t 1")),
                &task_request(2, method, "{}"),
            )
            .await;
        assert_eq!((refused.status, refused.code()), (400, -32021), "{method}");
        let required = &refused.json()["error"]["data"]["requiredCapabilities"];
        assert_eq!(required.to_string(), KNOWS_TASKS);
    }
    for method in ["tasks/result", "tasks/list"] {
        let refused = client
            .post(
                &modern_headers(method, None),
                &task_request(3, method, KNOWS_TASKS),
            )
            .await;
        assert_eq!((refused.status, refused.code()), (404, -32601), "{method}");
    }
    client
        .post(
            &modern_headers("tools/call", Some("echo")),
            &call(4, "echo", "{}", "", "{}", ""),
        )
        .await;
    assert_eq!(server.log.began().await.context.tasks, None);
}

#[tokio::test]
async fn task_requests_on_stdio_need_the_extension() {
    let mut stdio = Stdio::start();
    let missing = stdio.ask(&task_request(1, "tasks/get", "{}")).await;
    assert_eq!(missing["error"]["code"], -32021);
    assert_eq!(
        stdio
            .ask(&task_request(2, "tasks/result", KNOWS_TASKS))
            .await["error"]["code"],
        -32601
    );
    let answer = stdio.ask(&task_request(3, "tasks/get", KNOWS_TASKS)).await;
    assert_eq!(answer["result"]["resultType"], "complete");
    assert_eq!(stdio.log.began().await.method, Method::GetTask);
}

#[tokio::test]
async fn legacy_clients_have_tasks_since_2025_11_25() {
    for (revision, tasks) in [
        ("2025-11-25", Some(TaskDialect::Requested)),
        ("2025-06-18", None),
    ] {
        let mut stdio = Stdio::start();
        let initialize = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":"{revision}","capabilities":{{"roots":{{}}}},"clientInfo":{{"name":"c","version":"1"}}}}}}"#
        );
        stdio.ask(&initialize).await;
        stdio.log.began().await;
        stdio
            .ask(r#"{"jsonrpc":"2.0","id":2,"method":"tasks/get","params":{"taskId":"t"}}"#)
            .await;
        assert_eq!(stdio.log.began().await.context.tasks, tasks, "{revision}");
        let update = stdio
            .ask(r#"{"jsonrpc":"2.0","id":3,"method":"tasks/update","params":{"taskId":"t"}}"#)
            .await;
        assert_eq!(update["error"]["code"], -32601);
    }
    let server = Server::start().await;
    let mut client = server.connect().await;
    let session = server.session(&mut client).await;
    let update = r#"{"jsonrpc":"2.0","id":3,"method":"tasks/update","params":{"taskId":"t"}}"#;
    let refused = client.post(&[("Mcp-Session-Id", &session)], update).await;
    assert_eq!((refused.status, refused.code()), (200, -32601));
}

#[tokio::test]
async fn server_request_arrives_during_tasks_result() {
    let mut stdio = Stdio::start();
    stdio.initialize_with(r#"{"roots":{}}"#).await;
    stdio
        .send(r#"{"jsonrpc":"2.0","id":2,"method":"tasks/result","params":{"taskId":"t"}}"#)
        .await;
    let asked = r#"{"jsonrpc":"2.0","id":"fanlight-1","method":"roots/list","params":{"x":1.0}}"#;
    assert_eq!(stdio.line().await.unwrap(), asked);
    stdio
        .send(r#"{"jsonrpc":"2.0","id":"fanlight-1","result":{"roots":[ 1.0 ]}}"#)
        .await;
    assert_eq!(
        stdio.line().await.unwrap(),
        r#"{"jsonrpc":"2.0","id":2,"result":{"roots":[ 1.0 ]}}"#
    );
}

/// An answer that is a task is not an `input_required` result, for clients of either era.
#[tokio::test]
async fn task_passes_verbatim() {
    let mut stdio = Stdio::start();
    let created = r#"{ "resultType":"task","taskId":"input_required","ttlMs":null,"x":1E400}"#;
    let arguments = format!(r#"{{"result":{created}}}"#);
    let expected = |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{created}}}"#);
    stdio
        .send(&call(1, "answer", &arguments, "", KNOWS_TASKS, ""))
        .await;
    assert_eq!(stdio.line().await.unwrap(), expected(1));
    stdio.initialize_with("{}").await;
    let legacy = format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{{"name":"answer","arguments":{arguments}}}}}"#
    );
    stdio.send(&legacy).await;
    assert_eq!(stdio.line().await.unwrap(), expected(2));
}

#[tokio::test]
async fn task_capabilities_are_described_in_the_clients_dialect() {
    let legacy = r#"{"protocolVersion":"2025-11-25","capabilities":{"tasks":{"list":{},"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"s","version":"1"}}"#;
    let (core, _log) = TestCore::described_by(legacy);
    let (address, ..) = crate::client::listen(core.gateway(&[]), Default::default()).await;
    let mut client = crate::client::Client::connect(address).await;
    let discover = call(1, "x", "{}", "", "{}", "").replace("tools/call", "server/discover");
    let discovered = client
        .post(&modern_headers("server/discover", None), &discover)
        .await
        .json();
    let capabilities = &discovered["result"]["capabilities"];
    assert_eq!(
        capabilities["extensions"],
        serde_json::json!({"io.modelcontextprotocol/tasks": {}})
    );
    assert_eq!(capabilities["tasks"]["list"], serde_json::json!({}));
}
