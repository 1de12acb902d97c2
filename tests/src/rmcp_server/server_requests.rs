//! The tool `ask`, which makes every kind of server request, in the form of the request's era.

use rmcp::RoleServer;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, InputRequiredResult,
    ProtocolVersion, ServerRequest,
};
use rmcp::service::RequestContext;
use serde_json::{Map, Value, json};

use super::model;

/// The server requests by key, in their form on the wire.
fn server_requests(label: &str) -> Vec<(&'static str, Value)> {
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } }, "required": ["city"] });
    let message = format!("{label} asks: which city?");
    let prompt = json!([{ "role": "user", "content": { "type": "text", "text": format!("{label} says hello") } }]);
    vec![
        (
            "elicitation",
            json!({ "method": "elicitation/create", "params": { "message": message, "requestedSchema": schema } }),
        ),
        (
            "sampling",
            json!({ "method": "sampling/createMessage", "params": { "messages": prompt, "maxTokens": 10 } }),
        ),
        ("roots", json!({ "method": "roots/list" })),
    ]
}

/// Sends the server requests to a legacy client in turn during the call; returns them to a modern
/// client as required input.
pub(super) async fn ask(
    label: &str,
    request: &CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, ErrorData> {
    let is_modern = context.meta.protocol_version() == Some(ProtocolVersion::V_2026_07_28);
    let answers = match (&request.input_responses, is_modern) {
        (Some(answers), true) => {
            if request.request_state.as_deref() != Some(label) {
                return Err(ErrorData::invalid_params(
                    "not the `requestState` of this server",
                    None,
                ));
            }
            answers.clone().into_iter().collect()
        }
        (None, true) => {
            let inputs: Map<String, Value> = server_requests(label)
                .into_iter()
                .map(|(key, it)| (key.to_owned(), it))
                .collect();
            let result = json!({ "resultType": "input_required", "inputRequests": inputs, "requestState": label });
            return Ok(model::<InputRequiredResult>(result)?.into());
        }
        (_, false) => ask_during_the_call(label, context).await?,
    };
    let result =
        json!({ "content": [], "structuredContent": { "label": label, "answers": answers } });
    Ok(model::<CallToolResult>(result)?.into())
}

async fn ask_during_the_call(
    label: &str,
    context: &RequestContext<RoleServer>,
) -> Result<Map<String, Value>, ErrorData> {
    let mut answers = Map::new();
    for (key, request) in server_requests(label) {
        let answer = context
            .peer
            .send_request(model::<ServerRequest>(request)?)
            .await;
        let answer =
            answer.map_err(|error| ErrorData::internal_error(format!("{key}: {error}"), None))?;
        let value = serde_json::to_value(answer)
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        answers.insert(key.to_owned(), value);
    }
    Ok(answers)
}
