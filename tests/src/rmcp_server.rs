//! An MCP server on rmcp, the official Rust SDK, for tests that need an independent implementation.

mod server_requests;

use std::borrow::Cow;
use std::str::FromStr;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
    ErrorData, GetPromptRequestParams, GetPromptResponse, GetPromptResult, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse,
    ReadResourceResult, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::{Value, json};

/// The revisions that a server supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// Revisions with `initialize`.
    Legacy,
    /// 2026-07-28 only.
    Modern,
    /// All revisions.
    Both,
}

impl Era {
    /// The name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
            Self::Both => "both",
        }
    }
}

impl FromStr for Era {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        [Self::Legacy, Self::Modern, Self::Both]
            .into_iter()
            .find(|era| era.name() == name)
            .ok_or_else(|| format!("unknown era `{name}`"))
    }
}

const LEGACY: [ProtocolVersion; 4] = [
    ProtocolVersion::V_2024_11_05,
    ProtocolVersion::V_2025_03_26,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
];

/// A server whose results contain its label, so that a test sees which server handled a call.
#[derive(Clone, Debug)]
pub struct RmcpServer {
    /// The label, which every result and the URIs contain.
    pub label: String,
    /// The revisions that are served.
    pub era: Era,
}

impl RmcpServer {
    /// The URI of this server's only resource.
    pub fn resource_uri(label: &str) -> String {
        format!("test://{label}/readme")
    }

    fn tool_list(&self) -> Value {
        let arguments = json!({ "type": "object", "properties": { "value": {} } });
        json!({ "tools": [
            {
                "name": "echo",
                "title": "Echo",
                "description": "Answers with its arguments as structured content",
                "inputSchema": arguments,
                "outputSchema": { "type": "object", "required": ["label", "arguments"] },
                "annotations": { "readOnlyHint": true },
                "_meta": { "example.test/label": self.label },
            },
            { "name": "refuse", "description": "Answers with a tool error", "inputSchema": { "type": "object" } },
            { "name": "count", "description": "Reports progress three times", "inputSchema": { "type": "object" } },
            { "name": "ask", "description": "Sends every kind of server request", "inputSchema": { "type": "object" } },
        ] })
    }

    fn echo(&self, arguments: &Value) -> Value {
        json!({
            "content": [{ "type": "text", "text": format!("{}: {arguments}", self.label) }],
            "structuredContent": { "label": self.label, "arguments": arguments },
            "isError": false,
            "_meta": { "example.test/label": self.label },
        })
    }

    async fn count(context: &RequestContext<RoleServer>) -> Result<Value, ErrorData> {
        if let Some(token) = context.meta.get_progress_token() {
            for step in 1..=3 {
                let progress =
                    ProgressNotificationParam::new(token.clone(), f64::from(step)).with_total(3.0);
                context
                    .peer
                    .notify_progress(progress)
                    .await
                    .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
            }
        }
        Ok(json!({ "content": [{ "type": "text", "text": "counted to 3" }] }))
    }
}

/// Builds an SDK type from its JSON.
fn model<T: rmcp::serde::de::DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value)
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

impl ServerHandler for RmcpServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::default();
        info.capabilities =
            model(json!({ "tools": {}, "resources": {}, "prompts": {}, "completions": {} }))
                .unwrap_or_default();
        info.server_info.name = format!("rmcp-{}", self.label);
        info.server_info.version = "1.0.0".to_owned();
        info.instructions = Some(format!("Instructions of {}", self.label));
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.era {
            Era::Legacy => Cow::Borrowed(&LEGACY),
            Era::Modern => Cow::Borrowed(&[ProtocolVersion::V_2026_07_28]),
            Era::Both => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
        }
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        model(self.tool_list())
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let result = match &*request.name {
            "echo" => self.echo(&Value::Object(request.arguments.unwrap_or_default())),
            "refuse" => json!({ "content": [{ "type": "text", "text": "no" }], "isError": true }),
            "count" => Self::count(&context).await?,
            "ask" => return server_requests::ask(&self.label, &request, &context).await,
            name => {
                return Err(ErrorData::invalid_params(
                    format!("Unknown tool: {name}"),
                    None,
                ));
            }
        };
        Ok(model::<CallToolResult>(result)?.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let uri = Self::resource_uri(&self.label);
        model(
            json!({ "resources": [{ "uri": uri, "name": "readme", "title": "Read me", "mimeType": "text/plain" }] }),
        )
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = format!("test://{}/notes/{{name}}", self.label);
        model(json!({ "resourceTemplates": [{ "uriTemplate": template, "name": "note" }] }))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        if request.uri != Self::resource_uri(&self.label) {
            return Err(ErrorData::resource_not_found(
                "Resource not found",
                Some(json!({ "uri": request.uri })),
            ));
        }
        let text = format!("The read-me of {}", self.label);
        let result =
            json!({ "contents": [{ "uri": request.uri, "mimeType": "text/plain", "text": text }] });
        Ok(model::<ReadResourceResult>(result)?.into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        model(json!({ "prompts": [{
            "name": "greet",
            "title": "Greet",
            "arguments": [{ "name": "who", "required": true }],
        }] }))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let who = request
            .arguments
            .unwrap_or_default()
            .remove("who")
            .unwrap_or_default();
        let text = format!("{} greets {who}", self.label);
        let result = json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": text } }] });
        Ok(model::<GetPromptResult>(result)?.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let value = format!("{}{}", request.argument.value, self.label);
        model(json!({ "completion": { "values": [value], "total": 1, "hasMore": false } }))
    }
}
