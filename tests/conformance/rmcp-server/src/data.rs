//! Resources and prompts, as JSON.

use rmcp::model::{ErrorData, JsonObject};
use serde_json::{Value, json};

use crate::content::{PNG, image, resource, text};

pub fn resources() -> Value {
    let entry = |uri: &str, mime_type: &str| {
        let name = uri.trim_start_matches("test://");
        json!({ "uri": uri, "name": name, "description": format!("The resource {uri}"), "mimeType": mime_type })
    };
    json!({ "resources": [
        entry("test://static-text", "text/plain"),
        entry("test://static-binary", "image/png"),
        entry("test://watched-resource", "text/plain"),
    ] })
}

pub fn resource_templates() -> Value {
    json!({ "resourceTemplates": [{
        "uriTemplate": "test://template/{id}/data",
        "name": "template",
        "description": "Data by id",
        "mimeType": "application/json",
    }] })
}

pub fn read(uri: &str) -> Result<Value, ErrorData> {
    let content = match uri {
        "test://static-text" => {
            json!({ "mimeType": "text/plain", "text": "This is the content of the static text resource." })
        }
        "test://static-binary" => json!({ "mimeType": "image/png", "blob": PNG }),
        "test://watched-resource" => json!({ "mimeType": "text/plain", "text": "Watched." }),
        _ => {
            let id = uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
            let Some(id) = id else {
                return Err(ErrorData::resource_not_found("Resource not found", Some(json!({ "uri": uri }))));
            };
            let body = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            json!({ "mimeType": "application/json", "text": body.to_string() })
        }
    };
    let mut content = content;
    content["uri"] = json!(uri);
    Ok(json!({ "contents": [content] }))
}

/// The list of prompts; `extra` adds the changing entry.
pub fn prompts(extra: bool) -> Value {
    let argument =
        |name: &str, description: &str| json!({ "name": name, "description": description, "required": true });
    let mut prompts = vec![
        json!({ "name": "test_simple_prompt", "description": "A prompt without arguments" }),
        json!({
            "name": "test_prompt_with_arguments",
            "description": "A prompt with two arguments",
            "arguments": [argument("arg1", "First test argument"), argument("arg2", "Second test argument")],
        }),
        json!({
            "name": "test_prompt_with_embedded_resource",
            "description": "A prompt that embeds a resource",
            "arguments": [argument("resourceUri", "URI of the resource to embed")],
        }),
        json!({ "name": "test_prompt_with_image", "description": "A prompt with an image" }),
        json!({ "name": crate::input::PROMPT, "description": "Asks the user for context" }),
    ];
    if extra {
        prompts.push(json!({ "name": "test_extra_prompt", "description": "Added and removed" }));
    }
    json!({ "prompts": prompts })
}

/// A prompt that needs no input from the client.
pub fn prompt(name: &str, arguments: &JsonObject) -> Result<Value, ErrorData> {
    let user = |content: Value| json!({ "role": "user", "content": content });
    let argument = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
    let messages = match name {
        "test_simple_prompt" => vec![user(text("This is a simple prompt for testing."))],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1"), argument("arg2"));
            vec![user(text(format!("Prompt with arguments: arg1='{first}', arg2='{second}'")))]
        }
        "test_prompt_with_embedded_resource" => vec![
            user(resource(argument("resourceUri"), "text/plain", "Embedded resource content for testing.")),
            user(text("Please process the embedded resource above.")),
        ],
        "test_prompt_with_image" => vec![user(image()), user(text("Please analyze the image above."))],
        "test_extra_prompt" => vec![user(text("Here for now."))],
        _ => return Err(ErrorData::invalid_params(format!("Unknown prompt: {name}"), None)),
    };
    Ok(json!({ "messages": messages }))
}

pub fn complete(typed: &str) -> Value {
    let values: Vec<_> = ["paris", "park", "party"].into_iter().filter(|word| word.starts_with(typed)).collect();
    json!({ "completion": { "total": values.len(), "values": values, "hasMore": false } })
}
