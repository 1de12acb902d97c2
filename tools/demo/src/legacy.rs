//! The rules of the revisions with a handshake: `initialize` first, then requests.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use serde_json::{Value, json};

use crate::library;
use crate::rpc::{self, Call, RpcError};
use crate::server::{Answer, Outlet, Service};

/// The supported revisions, newest first. A client that requests an unknown one gets the first.
const REVISIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Log levels from least to most severe (2025-11-25 server/utilities/logging).
const LEVELS: [&str; 8] = [
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
];
/// A level above all others: nothing is logged until the client asks.
const SILENT: u8 = u8::MAX;

/// The state of the one session of a process.
pub(crate) struct Legacy {
    revision: OnceLock<&'static str>,
    /// Index into [`LEVELS`] of the least severe level sent, or [`SILENT`].
    level: AtomicU8,
}

impl Default for Legacy {
    fn default() -> Self {
        Self {
            revision: OnceLock::new(),
            level: AtomicU8::new(SILENT),
        }
    }
}

impl Service for Legacy {
    fn answer(&self, call: &Call, outlet: &Outlet<'_>) -> Answer {
        match call.method.as_str() {
            "initialize" => self.initialize(call).into(),
            "ping" => Ok(json!({})).into(),
            method if self.revision.get().is_none() => Err(RpcError::new(
                rpc::METHOD_NOT_FOUND,
                format!("Method not found: {method} (the session starts with `initialize`)"),
            ))
            .into(),
            "logging/setLevel" => self.set_level(call).into(),
            "tools/list" => page(call, "tools").into(),
            "tools/call" => {
                self.log(outlet, call);
                library::call_tool(call)
            }
            "resources/list" => rpc::page(call, "resources", library::resources()).into(),
            "resources/templates/list" => page(call, "resourceTemplates").into(),
            "resources/read" => library::read_resource(call).into(),
            "prompts/list" => page(call, "prompts").into(),
            "prompts/get" => library::get_prompt(call).into(),
            "completion/complete" => library::complete(call).into(),
            method => Err(RpcError::method_not_found(method)).into(),
        }
    }

    /// JSON-RPC 2.0, 5: null if the id could not be read.
    fn unknown_id(&self) -> Option<Value> {
        Some(Value::Null)
    }
}

impl Legacy {
    fn initialize(&self, call: &Call) -> Result<Value, RpcError> {
        let requested = call.text("protocolVersion")?;
        let revision = REVISIONS
            .into_iter()
            .find(|known| *known == requested)
            .unwrap_or(REVISIONS[0]);
        if self.revision.set(revision).is_err() {
            return Err(RpcError::new(
                rpc::INVALID_REQUEST,
                "Invalid request: this session has been initialized",
            ));
        }
        Ok(json!({
            "protocolVersion": revision,
            "capabilities": {
                "completions": {},
                "logging": {},
                "prompts": {},
                "resources": {},
                "tools": {},
            },
            "serverInfo": rpc::server_info(library::DEFINITIONS),
            "instructions": library::INSTRUCTIONS,
        }))
    }

    fn set_level(&self, call: &Call) -> Result<Value, RpcError> {
        let level = call.text("level")?;
        let index = LEVELS
            .iter()
            .position(|known| *known == level)
            .and_then(|index| u8::try_from(index).ok())
            .ok_or_else(|| RpcError::invalid_params(format!("unknown log level `{level}`")))?;
        self.level.store(index, Ordering::Relaxed);
        Ok(json!({}))
    }

    /// Logs the called tool at level `info`, if the client asked for that level.
    fn log(&self, outlet: &Outlet<'_>, call: &Call) {
        const INFO: u8 = 1;
        if self.level.load(Ordering::Relaxed) > INFO {
            return;
        }
        let params = json!({ "level": "info", "logger": "library", "data": { "called": call.params["name"] } });
        // A write error also shows when the answer is written, and is handled there.
        let _ = outlet.send(&rpc::notification("notifications/message", params));
    }
}

fn page(call: &Call, name: &str) -> Result<Value, RpcError> {
    rpc::page(call, name, rpc::definitions(library::DEFINITIONS, name))
}
