//! Tools that may become tasks (`io.modelcontextprotocol/tasks`), and one that is never a task.

use std::time::Duration;

use rmcp::model::{CallToolResult, ErrorData, JsonObject, Task};
use rmcp::task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions};
use serde_json::{Value, json};

use crate::content::{answer, model, result, text};
use crate::input::form;
use crate::tools::tool;

/// Tools that can only be called as tasks.
const TASK_ONLY: [&str; 4] = ["failing_job", "confirm_delete", "multi_input", "test_tool_with_task"];
const LONGEST: f64 = 600.0;

pub fn list() -> Vec<Value> {
    let schema = |name: &str, kind: &str| json!({ "type": "object", "properties": { name: { "type": kind } } });
    vec![
        tool("greet", "Greets, at once", schema("name", "string")),
        tool("slow_compute", "Takes the given number of seconds", schema("seconds", "number")),
        tool("failing_job", "Fails as a tool does", json!({ "type": "object" })),
        tool("protocol_error_job", "Fails with a JSON-RPC error", json!({ "type": "object" })),
        tool("confirm_delete", "Asks for confirmation first", schema("filename", "string")),
        tool("multi_input", "Asks two things at once", json!({ "type": "object" })),
        tool("test_tool_with_task", "Asks first, then becomes a task", json!({ "type": "object" })),
    ]
}

pub fn has(name: &str) -> bool {
    list().iter().any(|tool| tool["name"] == name)
}

pub fn needs_task(name: &str) -> bool {
    TASK_ONLY.contains(&name)
}

/// Whether a call becomes a task if the client has the extension.
pub fn may_be_task(name: &str) -> bool {
    has(name) && name != "greet"
}

/// Starts a call as a task. `user_name` is the input that `test_tool_with_task` received before.
pub fn spawn(tasks: &TaskManager, name: &str, arguments: JsonObject, user_name: Option<String>) -> Task {
    let name = name.to_owned();
    let options = TaskOptions::default().with_poll_interval_ms(200);
    tasks.spawn(options, move |context| {
        Box::pin(async move {
            tokio::select! {
                () = context.cancelled() => Err(TaskExit::Cancelled),
                answered = work(&name, &arguments, user_name, Some(&context)) => Ok(result::<CallToolResult>(answered?)?),
            }
        })
    })
}

/// Runs a call at once, without a task.
pub async fn call(name: &str, arguments: &JsonObject) -> Result<Value, ErrorData> {
    match work(name, arguments, None, None).await {
        Ok(result) => Ok(result),
        Err(TaskExit::Error(error)) => Err(error),
        Err(TaskExit::Cancelled) => Err(ErrorData::internal_error("cancelled", None)),
    }
}

async fn work(
    name: &str,
    arguments: &JsonObject,
    user_name: Option<String>,
    task: Option<&TaskContext>,
) -> Result<Value, TaskExit> {
    let argument =
        |name: &str, default: &str| arguments.get(name).and_then(Value::as_str).unwrap_or(default).to_owned();
    Ok(match name {
        "greet" => answer([text(format!("Hello, {}!", argument("name", "friend")))]),
        "slow_compute" => {
            let seconds = arguments.get("seconds").and_then(Value::as_f64).unwrap_or(1.0).clamp(0.0, LONGEST);
            tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
            answer([text(format!("Took {seconds} s."))])
        }
        "failing_job" => {
            tokio::time::sleep(Duration::from_secs(1)).await;
            json!({ "isError": true, "content": [text("The job failed, as it always does.")] })
        }
        "protocol_error_job" => {
            tokio::time::sleep(Duration::from_millis(200)).await;
            return Err(
                ErrorData::internal_error("The job ended with a protocol error, as it always does.", None).into()
            );
        }
        "confirm_delete" => {
            let elicitation = form("Delete it?", json!({ "confirm": { "type": "boolean" } }));
            let reply = input(task, "confirm", elicitation).await?;
            answer([text(format!("{}: confirmed={}", argument("filename", "file"), reply["content"]["confirm"]))])
        }
        "multi_input" => {
            let elicitation = |which: &str| form(which, json!({ "value": { "type": "string" } }));
            let (first, second) = tokio::try_join!(
                input(task, "first", elicitation("The first value?")),
                input(task, "second", elicitation("The second value?")),
            )?;
            answer([text(format!("{} and {}", first["content"]["value"], second["content"]["value"]))])
        }
        "test_tool_with_task" => {
            tokio::time::sleep(Duration::from_millis(200)).await;
            answer([text(format!("Hello, {}!", user_name.unwrap_or_default()))])
        }
        _ => return Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None).into()),
    })
}

async fn input(task: Option<&TaskContext>, key: &str, elicitation: Value) -> Result<Value, TaskExit> {
    match task {
        Some(task) => task.request_input(key, model(elicitation)?).await,
        None => Err(ErrorData::internal_error("asks only as a task", None).into()),
    }
}
