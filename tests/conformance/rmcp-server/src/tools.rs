//! The list of tools, and the tools that need no input from the client. The suite calls the first
//! tool when any tool will do, so that one takes no arguments.

use std::time::Duration;

use rmcp::model::{ErrorData, JsonObject, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServiceError};
use serde_json::{Value, json};

use crate::content::{answer, audio, image, resource, text};

const STEP: Duration = Duration::from_millis(50);

/// The list of tools; `extra` adds the changing entry.
pub fn list(extra: bool) -> Value {
    let plain = [
        ("test_simple_text", "Answers with one text block"),
        ("test_image_content", "Answers with an image"),
        ("test_audio_content", "Answers with a sound"),
        ("test_embedded_resource", "Answers with an embedded resource"),
        ("test_multiple_content_types", "Answers with text, an image and a resource"),
        ("test_error_handling", "Always fails"),
        ("test_tool_with_logging", "Logs three times while it runs"),
        ("test_logging_tool", "Logs once if the client has requested logs"),
        ("test_tool_with_progress", "Reports 0, 50 and 100 of 100"),
        ("test_reconnection", "Answers after a while"),
        ("test_trigger_tool_change", "Changes the list of tools"),
        ("test_trigger_prompt_change", "Changes the list of prompts"),
    ];
    let mut tools: Vec<_> =
        plain.into_iter().map(|(name, about)| tool(name, about, json!({ "type": "object" }))).collect();
    tools.extend([full_schema_tool(), mirrored_tool()]);
    tools.extend(crate::input::list());
    tools.extend(crate::tasks::list());
    if extra {
        tools.push(tool("test_extra_tool", "Added and removed", json!({ "type": "object" })));
    }
    json!({ "tools": tools, "ttlMs": 1000, "cacheScope": "public" })
}

pub fn tool(name: &str, description: &str, input_schema: Value) -> Value {
    json!({ "name": name, "description": description, "inputSchema": input_schema })
}

/// A tool with parameters that clients mirror into headers; the transport checks the headers
/// against this.
pub fn mirrored_tool() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "retries": { "type": "integer", "x-mcp-header": "Retries" },
            "note": { "type": "string" },
        },
        "required": ["region"],
    });
    tool("test_mirrored_parameters", "Has parameters that are mirrored into Mcp-Param headers", schema)
}

fn full_schema_tool() -> Value {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    });
    tool("json_schema_2020_12_tool", "Has an input schema with the wider vocabulary of JSON Schema 2020-12", schema)
}

/// Runs one of this module's tools. `level` is the least severe log level for the client, or
/// `None`.
pub async fn call(
    name: &str,
    arguments: &JsonObject,
    level: Option<LoggingLevel>,
    context: &RequestContext<RoleServer>,
) -> Result<Value, ErrorData> {
    Ok(match name {
        "test_simple_text" => answer([text("This is a simple text response for testing.")]),
        "test_image_content" => answer([image()]),
        "test_audio_content" => answer([audio()]),
        "test_embedded_resource" => {
            let body = "This is an embedded resource content.";
            answer([resource("test://embedded-resource", "text/plain", body)])
        }
        "test_multiple_content_types" => {
            let embedded = ("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#);
            answer([text("Multiple content types test:"), image(), resource(embedded.0, embedded.1, embedded.2)])
        }
        "test_error_handling" => {
            json!({ "isError": true, "content": [text("This tool intentionally returns an error for testing")] })
        }
        "test_tool_with_logging" => {
            log(&["Tool execution started", "Tool processing data", "Tool execution completed"], level, context)
                .await?;
            answer([text("Logged three messages.")])
        }
        "test_logging_tool" => {
            log(&["one message"], level, context).await?;
            answer([text("Logged.")])
        }
        "test_tool_with_progress" => {
            progress(context).await?;
            answer([text("Progressed.")])
        }
        "test_reconnection" => {
            tokio::time::sleep(STEP).await;
            answer([text("Answered.")])
        }
        "test_mirrored_parameters" => {
            let region = arguments.get("region").and_then(Value::as_str).unwrap_or_default();
            answer([text(format!("region: {region}"))])
        }
        "json_schema_2020_12_tool" => answer([text(Value::Object(arguments.clone()).to_string())]),
        "test_extra_tool" => answer([text("Here for now.")]),
        _ => return Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None)),
    })
}

async fn log(
    messages: &[&str],
    level: Option<LoggingLevel>,
    context: &RequestContext<RoleServer>,
) -> Result<(), ErrorData> {
    for (index, message) in messages.iter().enumerate() {
        if index > 0 {
            tokio::time::sleep(STEP).await;
        }
        if matches!(level, Some(LoggingLevel::Debug | LoggingLevel::Info)) {
            let notification = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(message));
            sent(context.peer.notify_logging_message(notification.with_logger("reference")).await)?;
        }
    }
    Ok(())
}

async fn progress(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    let token = context.meta.get_progress_token();
    for step in [0.0, 50.0, 100.0] {
        if step > 0.0 {
            tokio::time::sleep(STEP).await;
        }
        if let Some(token) = token.clone() {
            let notification = ProgressNotificationParam::new(token, step).with_total(100.0);
            sent(context.peer.notify_progress(notification).await)?;
        }
    }
    Ok(())
}

fn sent(outcome: Result<(), ServiceError>) -> Result<(), ErrorData> {
    outcome.map_err(|error| ErrorData::internal_error(error.to_string(), None))
}
