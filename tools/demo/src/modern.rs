//! The rules of revision 2026-07-28: no handshake, and every request states its version.

use serde_json::{Value, json};

use crate::rpc::{self, Call, RpcError};
use crate::server::{Answer, Outlet, Service};
use crate::workshop;

const REVISION: &str = "2026-07-28";
const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const META_SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// The time for which lists and resources stay fresh, in milliseconds; they never change while the
/// process lives.
const TTL_MS: u64 = 300_000;

/// The service of this revision, which has no state.
pub(crate) struct Modern;

impl Service for Modern {
    fn answer(&self, call: &Call, _: &Outlet<'_>) -> Answer {
        check_metadata(call).and_then(|()| result(call)).into()
    }

    /// 2026-07-28 basic, Error Responses: no member if the id could not be read.
    fn unknown_id(&self) -> Option<Value> {
        None
    }
}

/// 2026-07-28 basic, `_meta`: version and capabilities are required on every request.
fn check_metadata(call: &Call) -> Result<(), RpcError> {
    if call.method == "initialize" {
        // Versioning, Backward Compatibility: the user of an older client may see only this text.
        return Err(unsupported(
            call.params["protocolVersion"].as_str().unwrap_or(""),
        ));
    }
    let meta = &call.params["_meta"];
    let Some(version) = meta[META_VERSION].as_str() else {
        return Err(RpcError::invalid_params(format!(
            "`params._meta` must name `{META_VERSION}`, a string"
        )));
    };
    if version != REVISION {
        return Err(unsupported(version));
    }
    if !meta[META_CAPABILITIES].is_object() {
        return Err(RpcError::invalid_params(format!(
            "`params._meta` must name `{META_CAPABILITIES}`, an object"
        )));
    }
    Ok(())
}

fn unsupported(requested: &str) -> RpcError {
    RpcError::new(
        rpc::UNSUPPORTED_PROTOCOL_VERSION,
        format!("Unsupported protocol version `{requested}`: this server speaks {REVISION} only, without `initialize`"),
    )
    .with_data(json!({ "supported": [REVISION], "requested": requested }))
}

fn result(call: &Call) -> Result<Value, RpcError> {
    match call.method.as_str() {
        "server/discover" => Ok(cacheable(discover())),
        "tools/list" => page(call, "tools"),
        "tools/call" => workshop::call_tool(call).map(complete),
        "resources/list" => page(call, "resources"),
        "resources/templates/list" => page(call, "resourceTemplates"),
        "resources/read" => workshop::read_resource(call).map(cacheable),
        "prompts/list" => page(call, "prompts"),
        "prompts/get" => workshop::get_prompt(call).map(complete),
        "completion/complete" => workshop::complete(call).map(complete),
        method => Err(RpcError::method_not_found(method)),
    }
}

fn discover() -> Value {
    json!({
        "supportedVersions": [REVISION],
        "capabilities": { "completions": {}, "prompts": {}, "resources": {}, "tools": {} },
        "instructions": workshop::INSTRUCTIONS,
    })
}

/// Adds the members of every result: its type, and the server's identity in `_meta`.
fn complete(mut result: Value) -> Value {
    result["resultType"] = json!("complete");
    result["_meta"][META_SERVER_INFO] = rpc::server_info(workshop::DEFINITIONS);
    result
}

/// Adds the caching hints that results of lists, reads and discovery must have (2026-07-28
/// utilities/caching).
fn cacheable(result: Value) -> Value {
    let mut result = complete(result);
    result["ttlMs"] = json!(TTL_MS);
    result["cacheScope"] = json!("public");
    result
}

fn page(call: &Call, name: &str) -> Result<Value, RpcError> {
    let list = rpc::definitions(workshop::DEFINITIONS, name);
    rpc::page(call, name, list).map(cacheable)
}
