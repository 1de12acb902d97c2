//! Tools and a prompt that need input from the client. Each is one function of the responses so
//! far. A modern client gets an `input_required` result, a legacy one gets server requests. Tools
//! that the suite calls only in the legacy era send server requests to any client, like the SDK's
//! own conformance server.

use rmcp::model::{
    ClientCapabilities, ErrorData, InputRequest, InputRequiredResult, InputResponses, JsonObject, RequestStateCodec,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServiceError};
use serde_json::{Map, Value, json};

use crate::content::{answer, model, text};
use crate::tools::tool;

/// The prompt that needs input.
pub const PROMPT: &str = "test_input_required_result_prompt";

const MAX_ROUNDS: usize = 8;

/// Tools for the legacy era: they send the client a request and wait, whatever the client's era.
const OF_THE_LEGACY_ERA: [&str; 4] =
    ["test_sampling", "test_elicitation", "test_elicitation_sep1034_defaults", "test_elicitation_sep1330_enums"];

/// The input of one round.
pub struct Round<'a> {
    pub arguments: &'a JsonObject,
    pub responses: InputResponses,
    /// The `requestState` of the previous round.
    pub state: Value,
    pub capabilities: &'a ClientCapabilities,
}

/// The outcome of one round.
pub enum Step {
    Done(Value),
    Ask { requests: Map<String, Value>, state: Option<Value> },
}

/// The end of a tool: its result, or the required input (modern clients).
pub enum Outcome {
    Done(Value),
    InputRequired(InputRequiredResult),
}

pub fn list() -> Vec<Value> {
    let one =
        |name: &str| json!({ "type": "object", "properties": { name: { "type": "string" } }, "required": [name] });
    let none = || json!({ "type": "object" });
    vec![
        tool("test_sampling", "Asks the client's model", one("prompt")),
        tool("test_elicitation", "Asks the user", one("message")),
        tool("test_missing_capability", "Needs a client that can sample", none()),
        tool("test_streaming_elicitation", "Asks the user for a name", none()),
        tool("test_input_required_result_elicitation", "Asks the user for a name", none()),
        tool("test_input_required_result_sampling", "Asks the client's model", none()),
        tool("test_input_required_result_list_roots", "Asks for the client's roots", none()),
        tool("test_input_required_result_capabilities", "Asks only for what the client declared", none()),
        tool("test_input_required_result_request_state", "Confirms, with sealed state", none()),
        tool("test_input_required_result_tampered_state", "Confirms, with sealed state", none()),
        tool("test_input_required_result_multiple_inputs", "Asks three things at once", none()),
        tool("test_input_required_result_multi_round", "Asks twice, one after the other", none()),
        tool("test_elicitation_sep1034_defaults", "Asks with a default for each primitive type", none()),
        tool("test_elicitation_sep1330_enums", "Asks with each form of enumeration", none()),
    ]
}

/// Runs one round of a tool or prompt; `None` if this module does not have it.
pub fn step(name: &str, round: &Round<'_>) -> Option<Step> {
    Some(match name {
        "test_sampling" => {
            let prompt = round.arguments.get("prompt").and_then(Value::as_str).unwrap_or_default();
            match round.sampled("reply") {
                Some(reply) => done(format!("LLM response: {reply}")),
                None => ask([("reply", sampling(prompt, 100))]),
            }
        }
        "test_elicitation" => elicitation(round),
        "test_missing_capability" => match round.sampled("reply") {
            Some(reply) => done(reply),
            None => ask([("reply", sampling("Say hello", 50))]),
        },
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => {
            match round.form("user_name", "name") {
                Some(name) => done(format!("Hello, {name}!")),
                None => ask([("user_name", ask_name())]),
            }
        }
        "test_input_required_result_sampling" => match round.sampled("capital_question") {
            Some(reply) => done(reply),
            None => ask([("capital_question", sampling("What is the capital of France?", 100))]),
        },
        "test_input_required_result_list_roots" => match round.roots("client_roots") {
            Some(roots) => done(format!("Roots: {}", Value::from(roots))),
            None => ask([("client_roots", list_roots())]),
        },
        "test_input_required_result_capabilities" => whatever_is_declared(round),
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            if round.state["tool"] == name && round.form("confirm", "ok").is_some() {
                done("state-ok")
            } else {
                let elicitation = form("Please confirm", json!({ "ok": { "type": "boolean" } }));
                ask([("confirm", elicitation)]).with_state(json!({ "tool": name }))
            }
        }
        "test_input_required_result_multiple_inputs" => several(round),
        "test_input_required_result_multi_round" => two_rounds(round),
        "test_elicitation_sep1034_defaults" => whole_form(round, "Please check the values", defaults()),
        "test_elicitation_sep1330_enums" => whole_form(round, "Please choose", enumerations()),
        PROMPT => match round.form("user_context", "context") {
            Some(context) => Step::Done(json!({ "messages": [{
                "role": "user",
                "content": text(format!("Use this context: {context}")),
            }] })),
            None => {
                let elicitation =
                    form("What context should the prompt use?", json!({ "context": { "type": "string" } }));
                ask([("user_context", elicitation)])
            }
        },
        _ => return None,
    })
}

/// Runs a tool or prompt of this module until it has a result or needs input.
pub async fn run(
    name: &str,
    mut round: Round<'_>,
    request_state: Option<&str>,
    states: &RequestStateCodec,
    context: &RequestContext<RoleServer>,
) -> Result<Outcome, ErrorData> {
    if let Some(sealed) = request_state {
        round.state = states
            .open_json(sealed)
            .map_err(|error| ErrorData::invalid_params(format!("requestState: {error}"), None))?;
    }
    let is_modern = context.meta.protocol_version().is_some() && !OF_THE_LEGACY_ERA.contains(&name);
    for _ in 0..MAX_ROUNDS {
        let (requests, state) = match step(name, &round) {
            Some(Step::Done(result)) => return Ok(Outcome::Done(result)),
            Some(Step::Ask { requests, state }) => (requests, state),
            None => return Err(ErrorData::invalid_params(format!("Unknown name: {name}"), None)),
        };
        refuse_undeclared(&requests, round.capabilities)?;
        if is_modern {
            let sealed = state.map(|state| states.seal_json(&state)).transpose();
            let sealed = sealed.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
            let requests = model(Value::Object(requests))?;
            return Ok(Outcome::InputRequired(InputRequiredResult::new(Some(requests), sealed)));
        }
        for (key, request) in requests {
            round.responses.insert(key, ask_legacy(model(request)?, context).await?);
        }
        round.state = state.unwrap_or(Value::Null);
    }
    Err(ErrorData::internal_error("too many rounds", None))
}

/// Refuses requests for undeclared capabilities, which a server must not send.
fn refuse_undeclared(requests: &Map<String, Value>, declared: &ClientCapabilities) -> Result<(), ErrorData> {
    let mut missing = ClientCapabilities::default();
    for request in requests.values() {
        match request["method"].as_str() {
            Some("sampling/createMessage") if declared.sampling.is_none() => missing.sampling = Some(model(json!({}))?),
            Some("elicitation/create") if declared.elicitation.is_none() => {
                missing.elicitation = Some(model(json!({}))?)
            }
            Some("roots/list") if declared.roots.is_none() => missing.roots = Some(model(json!({}))?),
            _ => {}
        }
    }
    if missing == ClientCapabilities::default() {
        return Ok(());
    }
    Err(ErrorData::missing_required_client_capability(missing))
}

async fn ask_legacy(request: InputRequest, context: &RequestContext<RoleServer>) -> Result<Value, ErrorData> {
    let peer = &context.peer;
    let failed = |error: ServiceError| ErrorData::internal_error(error.to_string(), None);
    let reply = match request {
        InputRequest::CreateMessage(request) => {
            serde_json::to_value(peer.create_message(request.params).await.map_err(failed)?)
        }
        InputRequest::Elicitation(request) => {
            serde_json::to_value(peer.create_elicitation(request.params).await.map_err(failed)?)
        }
        InputRequest::ListRoots(_) => serde_json::to_value(peer.list_roots().await.map_err(failed)?),
        _ => return Err(ErrorData::internal_error("not a request for clients", None)),
    };
    reply.map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

impl Round<'_> {
    /// A member of an accepted form.
    fn form(&self, key: &str, member: &str) -> Option<&Value> {
        self.responses.get(key)?.get("content")?.get(member).filter(|value| !value.is_null())
    }

    fn sampled(&self, key: &str) -> Option<String> {
        let content = self.responses.get(key)?.get("content")?;
        let block = content.as_array().and_then(|blocks| blocks.first()).unwrap_or(content);
        block.get("text")?.as_str().map(str::to_owned)
    }

    fn roots(&self, key: &str) -> Option<Vec<Value>> {
        self.responses.get(key)?.get("roots")?.as_array().cloned()
    }
}

impl Step {
    fn with_state(self, state: Value) -> Self {
        match self {
            Self::Ask { requests, .. } => Self::Ask { requests, state: Some(state) },
            done @ Self::Done(_) => done,
        }
    }
}

fn elicitation(round: &Round<'_>) -> Step {
    match round.responses.get("reply") {
        Some(reply) => done(format!("User response: action={}, content={}", reply["action"], reply["content"])),
        None => {
            let message = round.arguments.get("message").and_then(Value::as_str).unwrap_or_default();
            let fields = json!({
                "username": { "type": "string", "description": "User's response" },
                "email": { "type": "string", "description": "User's email address" },
            });
            ask([("reply", form(message, fields))])
        }
    }
}

fn whatever_is_declared(round: &Round<'_>) -> Step {
    let mut wanted = Vec::new();
    if round.capabilities.sampling.is_some() && round.sampled("model").is_none() {
        wanted.push(("model", sampling("Say hello", 50)));
    }
    if round.capabilities.elicitation.is_some() && round.form("user", "name").is_none() {
        wanted.push(("user", ask_name()));
    }
    if wanted.is_empty() { done("Nothing (more) to ask.") } else { ask(wanted) }
}

fn several(round: &Round<'_>) -> Step {
    let (name, greeting) = (round.form("user_name", "name"), round.sampled("greeting"));
    match (name, greeting, round.roots("client_roots"), &round.state["asked"]) {
        (Some(name), Some(greeting), Some(roots), Value::Number(_)) => {
            done(format!("{greeting} {name}, {} roots", roots.len()))
        }
        _ => ask([
            ("user_name", ask_name()),
            ("greeting", sampling("Generate a greeting", 50)),
            ("client_roots", list_roots()),
        ])
        .with_state(json!({ "asked": 3 })),
    }
}

fn two_rounds(round: &Round<'_>) -> Step {
    let name = round.state.get("name").or_else(|| round.form("step1", "name"));
    let Some(name) = name else {
        let elicitation = form("Step 1: What is your name?", json!({ "name": { "type": "string" } }));
        return ask([("step1", elicitation)]).with_state(json!({ "round": 1 }));
    };
    match round.form("step2", "color") {
        Some(color) => done(format!("{name} likes {color}.")),
        None => {
            let elicitation = form("Step 2: What is your favorite color?", json!({ "color": { "type": "string" } }));
            ask([("step2", elicitation)]).with_state(json!({ "round": 2, "name": name }))
        }
    }
}

fn whole_form(round: &Round<'_>, message: &str, properties: Value) -> Step {
    match round.responses.get("form") {
        Some(reply) => done(format!("Elicitation completed: action={}, content={}", reply["action"], reply["content"])),
        None => {
            let mut elicitation = form(message, properties);
            elicitation["params"]["requestedSchema"]["required"] = json!([]);
            ask([("form", elicitation)])
        }
    }
}

fn defaults() -> Value {
    json!({
        "name": { "type": "string", "default": "John Doe" },
        "age": { "type": "integer", "default": 30 },
        "score": { "type": "number", "default": 95.5 },
        "status": { "type": "string", "enum": ["active", "inactive", "pending"], "default": "active" },
        "verified": { "type": "boolean", "default": true },
    })
}

fn enumerations() -> Value {
    let titled = |titles: [&str; 3]| {
        let option = |(index, title)| json!({ "const": format!("value{}", index + 1), "title": title });
        titles.into_iter().enumerate().map(option).collect::<Value>()
    };
    let plain = json!(["option1", "option2", "option3"]);
    json!({
        "untitledSingle": { "type": "string", "enum": plain },
        "titledSingle": { "type": "string", "oneOf": titled(["First Option", "Second Option", "Third Option"]) },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": { "type": "array", "items": { "type": "string", "enum": plain } },
        "titledMulti": {
            "type": "array",
            "items": { "anyOf": titled(["First Choice", "Second Choice", "Third Choice"]) },
        },
    })
}

fn done(message: impl Into<String>) -> Step {
    Step::Done(answer([text(message)]))
}

fn ask<'a>(requests: impl IntoIterator<Item = (&'a str, Value)>) -> Step {
    let requests = requests.into_iter().map(|(key, request)| (key.to_owned(), request)).collect();
    Step::Ask { requests, state: None }
}

fn ask_name() -> Value {
    form("What is your name?", json!({ "name": { "type": "string" } }))
}

/// A form in which all fields are required.
pub fn form(message: &str, properties: Value) -> Value {
    let required: Vec<_> = properties.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
    let schema = json!({ "type": "object", "properties": properties, "required": required });
    json!({ "method": "elicitation/create", "params": { "mode": "form", "message": message, "requestedSchema": schema } })
}

fn sampling(prompt: &str, max_tokens: u32) -> Value {
    let messages = json!([{ "role": "user", "content": text(prompt) }]);
    json!({ "method": "sampling/createMessage", "params": { "messages": messages, "maxTokens": max_tokens } })
}

fn list_roots() -> Value {
    json!({ "method": "roots/list", "params": {} })
}
