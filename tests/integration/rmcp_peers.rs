//! Peers on rmcp, the official Rust SDK: servers behind the gateway, clients in front of it.

#![expect(
    deprecated,
    reason = "sampling and roots are deprecated since 2026-07-28, and servers still request them"
)]

use std::net::SocketAddr;
use std::process::Stdio;

use fanlight_tests::rmcp_server::{Era, RmcpServer};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientConfig, CreateMessageRequestParams,
    CreateMessageResult, ElicitRequestParams, ElicitResult, ErrorData, ListRootsResult,
    ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::harness::{Log, ShownLog, TempFile, fanlight, within};
use crate::scripted::Transport;

/// An rmcp server; dropping it ends the server.
pub(crate) struct Server {
    /// Its raw entry in `mcpServers`.
    pub(crate) entry: String,
    task: Option<AbortHandle>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Server {
    /// Starts a server with this `label`, which is also its name in the configuration.
    pub(crate) async fn start(label: &str, era: Era, transport: Transport) -> Self {
        match transport {
            Transport::Stdio => {
                let binary = env!("CARGO_BIN_EXE_rmcp-stdio");
                let entry = format!(
                    r#""{label}":{{"command":"{binary}","args":["{label}","{}"]}}"#,
                    era.name()
                );
                Self { entry, task: None }
            }
            Transport::Http => {
                let (address, task) = serve_http(RmcpServer {
                    label: label.to_owned(),
                    era,
                })
                .await;
                let entry = format!(r#""{label}":{{"type":"http","url":"http://{address}/mcp"}}"#);
                Self {
                    entry,
                    task: Some(task),
                }
            }
        }
    }
}

async fn serve_http(server: RmcpServer) -> (SocketAddr, AbortHandle) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let service: StreamableHttpService<RmcpServer, LocalSessionManager> =
        StreamableHttpService::new(
            move || Ok(server.clone()),
            LocalSessionManager::default().into(),
            StreamableHttpServerConfig::default(),
        );
    let task = tokio::spawn(async move {
        // Connections are served by tasks of this set, which end with the server.
        let mut connections = tokio::task::JoinSet::new();
        while let Ok((connection, _)) = listener.accept().await {
            let service = TowerToHyperService::new(service.clone());
            let serving = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(connection), service);
            connections.spawn(async move {
                // An error means that the client closed the connection.
                let _ = serving.await;
            });
        }
    });
    (address, task.abort_handle())
}

/// The handshake of an rmcp client.
pub(crate) fn lifecycle(modern: bool) -> ClientLifecycleMode {
    if modern {
        ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        }
    } else {
        ClientLifecycleMode::Initialize
    }
}

/// The handler of an rmcp client, which records notifications and answers server requests.
#[derive(Clone, Default)]
pub(crate) struct Listener {
    pub(crate) progress: std::sync::Arc<watch::Sender<Vec<f64>>>,
    /// The number of announced tool list changes outside of subscriptions.
    pub(crate) tool_list_changes: std::sync::Arc<watch::Sender<usize>>,
}

/// The client's answer to each kind of server request, which repeats the request.
pub(crate) fn answers_to(label: &str) -> Value {
    json!({
        "elicitation": { "action": "accept", "content": { "city": format!("Zürich, since {label} asks: which city?") } },
        "sampling": {
            "role": "assistant",
            "content": { "type": "text", "text": format!("You said: {label} says hello") },
            "model": "a-model",
            "stopReason": "endTurn",
        },
        "roots": { "roots": [{ "uri": "file:///home", "name": "home" }] },
    })
}

/// Builds the SDK type of an answer of this kind; `message` is the text of the request, which
/// begins with the server's name.
fn answer<T: rmcp::serde::de::DeserializeOwned>(kind: &str, message: &str) -> Result<T, ErrorData> {
    let label = message.split(' ').next().unwrap_or_default();
    serde_json::from_value(answers_to(label)[kind].clone())
        .map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities = serde_json::from_value(
            json!({ "elicitation": { "form": {} }, "sampling": {}, "roots": {} }),
        )
        .unwrap();
        info
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = request else {
            return Err(ErrorData::invalid_params("a form", None));
        };
        answer("elicitation", &message)
    }

    async fn create_message(
        &self,
        request: CreateMessageRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let request = serde_json::to_value(request).unwrap();
        answer(
            "sampling",
            request["messages"][0]["content"]["text"]
                .as_str()
                .unwrap_or_default(),
        )
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        answer("roots", "")
    }

    async fn on_progress(
        &self,
        progress: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.progress.send_modify(|all| all.push(progress.progress));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tool_list_changes.send_modify(|all| *all += 1);
    }
}

pub(crate) type Client = RunningService<RoleClient, Listener>;

/// A client of the gateway's HTTP endpoint.
pub(crate) async fn http_client(url: &str, modern: bool) -> Client {
    let transport = StreamableHttpClientTransport::from_uri(url);
    within(
        "the client's handshake",
        Listener::default().serve_with_lifecycle(transport, lifecycle(modern)),
    )
    .await
    .unwrap_or_else(|error| panic!("handshake: {error}"))
}

/// A client that starts `fanlight stdio` itself, as desktop clients do.
pub(crate) struct StdioPeer {
    pub(crate) client: Client,
    _log: ShownLog,
    pub(crate) config: TempFile,
}

pub(crate) async fn stdio_client(config_text: &str, modern: bool) -> StdioPeer {
    let config = TempFile::new("yaml", config_text);
    let mut command = fanlight();
    command.args(["stdio", "--config"]).arg(config.path());
    let (transport, stderr) = TokioChildProcess::builder(command)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = Log::print("err", stderr.unwrap());
    let handshake = Listener::default().serve_with_lifecycle(transport, lifecycle(modern));
    let client = within("the client's handshake", handshake)
        .await
        .unwrap_or_else(|error| panic!("handshake: {error}"));
    StdioPeer {
        client,
        _log: log,
        config,
    }
}

/// Calls a tool with arguments given as JSON.
pub(crate) async fn call(client: &Client, tool: &str, arguments: &Value) -> CallToolResult {
    let mut request = CallToolRequestParams::new(tool.to_owned());
    request.arguments = arguments.as_object().cloned();
    within(tool, client.call_tool(request))
        .await
        .unwrap_or_else(|error| panic!("{tool}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connects the peers directly, without a gateway.
    #[tokio::test]
    async fn rmcp_client_and_server_interoperate_in_every_era_over_http() {
        for (era, modern) in [
            (Era::Legacy, false),
            (Era::Modern, true),
            (Era::Both, false),
            (Era::Both, true),
        ] {
            let server = Server::start("alpha", era, Transport::Http).await;
            let url = server
                .entry
                .split('"')
                .rfind(|part| part.starts_with("http://"))
                .unwrap()
                .to_owned();
            let client = http_client(&url, modern).await;
            let result = call(&client, "echo", &json!({ "value": 1 })).await;
            assert_eq!(
                result.structured_content,
                Some(json!({ "label": "alpha", "arguments": { "value": 1 } }))
            );
            let answered = call(&client, "ask", &json!({})).await;
            let answers = json!({ "label": "alpha", "answers": answers_to("alpha") });
            assert_eq!(answered.structured_content, Some(answers));
            client.cancel().await.unwrap();
        }
    }

    #[tokio::test]
    async fn rmcp_server_of_the_other_era_refuses() {
        let server = Server::start("alpha", Era::Modern, Transport::Http).await;
        let url = server
            .entry
            .split('"')
            .rfind(|part| part.starts_with("http://"))
            .unwrap()
            .to_owned();
        let transport = StreamableHttpClientTransport::from_uri(url);
        assert!(
            Listener::default()
                .serve_with_lifecycle(transport, lifecycle(false))
                .await
                .is_err()
        );
    }
}
