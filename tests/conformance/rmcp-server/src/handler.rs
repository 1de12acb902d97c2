//! The server handler: routes each request to the module that handles it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rmcp::model::*;
use rmcp::service::{NotificationContext, Peer, RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::task_manager::TaskManager;
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::content::{model, result};
use crate::input::{Outcome, Round};
use crate::{data, input, tasks, tools};

const MAX_LISTENERS: usize = 256;

/// The revisions that a server supports.
#[derive(Clone, Copy, Debug)]
pub enum Eras {
    Legacy,
    Modern,
    Both,
}

impl FromStr for Eras {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "legacy" => Ok(Self::Legacy),
            "modern" => Ok(Self::Modern),
            "both" => Ok(Self::Both),
            _ => Err(format!("unknown eras `{name}`")),
        }
    }
}

/// The state of the server, which all sessions and requests share; a clone is the same server.
#[derive(Clone)]
pub struct Reference {
    eras: Eras,
    states: RequestStateCodec,
    tasks: TaskManager,
    shared: Arc<Shared>,
    /// The log level of this session; each session has its own clone.
    level: Arc<Mutex<Option<LoggingLevel>>>,
}

#[derive(Default)]
struct Shared {
    extra_tool: AtomicBool,
    extra_prompt: AtomicBool,
    /// The peers to notify of changes: modern listeners and legacy sessions.
    sinks: Mutex<HashMap<u64, SubscriptionSink>>,
    next_sink: AtomicU64,
    peers: Mutex<Vec<Peer<RoleServer>>>,
}

impl Reference {
    pub fn new(eras: Eras) -> Result<Self, RequestStateError> {
        // The key is valid for one process, which suffices for a run.
        let key: Vec<u8> = std::process::id().to_le_bytes().iter().copied().cycle().take(32).collect();
        Ok(Self {
            eras,
            states: RequestStateCodec::try_new(key)?,
            tasks: TaskManager::new(),
            shared: Arc::default(),
            level: Arc::default(),
        })
    }

    /// A new session's view of the same server.
    pub fn session(&self) -> Self {
        Self { level: Arc::default(), ..self.clone() }
    }

    async fn toggle(&self, what: Change) {
        let flag = match what {
            Change::Tools => &self.shared.extra_tool,
            Change::Prompts => &self.shared.extra_prompt,
        };
        flag.fetch_xor(true, Ordering::SeqCst);
        for sink in self.shared.sinks.lock().await.values() {
            // A failed peer has disconnected; its `listen` removes it.
            let _ = match what {
                Change::Tools => sink.notify_tool_list_changed().await,
                Change::Prompts => sink.notify_prompt_list_changed().await,
            };
        }
        self.shared.peers.lock().await.retain(|peer| !peer.is_transport_closed());
        for peer in self.shared.peers.lock().await.iter() {
            let _ = match what {
                Change::Tools => peer.notify_tool_list_changed().await,
                Change::Prompts => peer.notify_prompt_list_changed().await,
            };
        }
    }

    /// The least severe log level for this request's client.
    async fn wanted_level(&self, context: &RequestContext<RoleServer>) -> Option<LoggingLevel> {
        if context.meta.protocol_version().is_some() {
            return context.meta.log_level();
        }
        // A legacy client that has not set a level gets all messages.
        Some(self.level.lock().await.unwrap_or(LoggingLevel::Debug))
    }

    async fn call_task_tool(
        &self,
        name: &str,
        arguments: JsonObject,
        responses: &InputResponses,
        capabilities: &ClientCapabilities,
    ) -> Result<CallToolResponse, ErrorData> {
        let has_tasks = capabilities.supports_tasks();
        if tasks::needs_task(name) && !has_tasks {
            let missing = ClientCapabilities::builder().enable_tasks().build();
            return Err(ErrorData::missing_required_client_capability(missing));
        }
        if !(has_tasks && tasks::may_be_task(name)) {
            return Ok(result::<CallToolResult>(tasks::call(name, &arguments).await?)?.into());
        }
        let user_name = responses.get("user_name").and_then(|reply| reply["content"]["name"].as_str());
        if name == "test_tool_with_task" && user_name.is_none() {
            let elicitation = input::form("What is your name?", json!({ "name": { "type": "string" } }));
            let requests = model(json!({ "user_name": elicitation }))?;
            return Ok(InputRequiredResult::from_input_requests(requests).into());
        }
        let task = tasks::spawn(&self.tasks, name, arguments, user_name.map(str::to_owned));
        Ok(CreateTaskResult::new(task).into())
    }
}

#[derive(Clone, Copy)]
enum Change {
    Tools,
    Prompts,
}

fn capabilities_of(context: &RequestContext<RoleServer>) -> ClientCapabilities {
    context.client_capabilities().unwrap_or_default()
}

impl ServerHandler for Reference {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        let capabilities = json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
            "completions": {},
            "logging": {},
            "extensions": { "io.modelcontextprotocol/tasks": {} },
        });
        info.capabilities = model(capabilities).unwrap_or_default();
        info.server_info = Implementation::new("reference-rmcp", "1.0.0");
        info.instructions = Some("A server for conformance runs.".to_owned());
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        let all = ProtocolVersion::KNOWN_VERSIONS.iter().cloned();
        let is_modern = |version: &ProtocolVersion| *version == ProtocolVersion::V_2026_07_28;
        match self.eras {
            Eras::Both => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
            Eras::Legacy => all.filter(|version| !is_modern(version)).collect(),
            Eras::Modern => all.filter(is_modern).collect(),
        }
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        // The transport needs this to check mirrored parameters against the schema.
        (name == "test_mirrored_parameters").then(|| model(tools::mirrored_tool()).ok()).flatten()
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let mut peers = self.shared.peers.lock().await;
        peers.retain(|peer| !peer.is_transport_closed());
        if peers.len() < MAX_LISTENERS {
            peers.push(context.peer);
        }
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        *self.level.lock().await = Some(request.level);
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        result(tools::list(self.shared.extra_tool.load(Ordering::SeqCst)))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let responses = request.input_responses.unwrap_or_default();
        let capabilities = capabilities_of(&context);
        let name = &*request.name;
        if tasks::has(name) {
            return self.call_task_tool(name, arguments, &responses, &capabilities).await;
        }
        match name {
            "test_trigger_tool_change" => self.toggle(Change::Tools).await,
            "test_trigger_prompt_change" => self.toggle(Change::Prompts).await,
            _ => {
                let round = Round { arguments: &arguments, responses, state: Value::Null, capabilities: &capabilities };
                if input::step(name, &round).is_none() {
                    let level = self.wanted_level(&context).await;
                    let answered = tools::call(name, &arguments, level, &context).await?;
                    return Ok(result::<CallToolResult>(answered)?.into());
                }
                let state = request.request_state.as_deref();
                return match input::run(name, round, state, &self.states, &context).await? {
                    Outcome::Done(answered) => Ok(result::<CallToolResult>(answered)?.into()),
                    Outcome::InputRequired(required) => Ok(required.into()),
                };
            }
        }
        let notice = crate::content::answer([crate::content::text("The list has changed.")]);
        Ok(result::<CallToolResult>(notice)?.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        result(data::resources())
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        result(data::resource_templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(result::<ReadResourceResult>(data::read(&request.uri)?)?.into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        result(data::prompts(self.shared.extra_prompt.load(Ordering::SeqCst)))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = model(json!(request.arguments.unwrap_or_default()))?;
        if request.name != input::PROMPT {
            return Ok(result::<GetPromptResult>(data::prompt(&request.name, &arguments)?)?.into());
        }
        let capabilities = capabilities_of(&context);
        let responses = request.input_responses.unwrap_or_default();
        let round = Round { arguments: &arguments, responses, state: Value::Null, capabilities: &capabilities };
        let state = request.request_state.as_deref();
        match input::run(input::PROMPT, round, state, &self.states, &context).await? {
            Outcome::Done(answered) => Ok(result::<GetPromptResult>(answered)?.into()),
            Outcome::InputRequired(required) => Ok(required.into()),
        }
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        result(data::complete(&request.argument.value))
    }

    async fn subscribe(&self, _: SubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(&self, _: UnsubscribeRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        // The request's id would not be unique among clients.
        let key = self.shared.next_sink.fetch_add(1, Ordering::SeqCst);
        {
            let mut sinks = self.shared.sinks.lock().await;
            if sinks.len() >= MAX_LISTENERS {
                return Err(ErrorData::internal_error("too many listeners", None));
            }
            sinks.insert(key, context.sink().clone());
        }
        context.cancelled().await;
        self.shared.sinks.lock().await.remove(&key);
        Ok(())
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(&self, request: UpdateTaskParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(&self, request: CancelTaskParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }
}
