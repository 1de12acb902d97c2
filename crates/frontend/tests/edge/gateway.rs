//! A gateway in front of one scripted server.

use std::sync::Arc;

use fanlight_canonical::{BackendClient, BackendState, BackendStatus};
use fanlight_gateway::{
    BackendEntry, BackendId, CacheLimits, EndpointEntry, Gateway, GatewaySettings, ListLimits,
    NamingPolicy, Rewriting,
};
use fanlight_protocol::Json;
use fanlight_protocol::seal::Keys;

/// A gateway that passes everything to `server`, at these endpoints or else at `/mcp`.
pub(crate) fn gateway(server: Arc<dyn BackendClient>, endpoints: &[&str]) -> Arc<Gateway> {
    let server = BackendEntry {
        id: BackendId::generate(),
        client: server,
        prefix: None,
        tools: None,
        rewriting: Rewriting::default(),
        approval: None,
        place: 0,
        guard: None,
        store: None,
        canary: None,
        mirror: None,
        results: None,
        is_hidden: false,
    };
    let endpoint = |path: &&str| EndpointEntry {
        path: (*path).into(),
        servers: None,
        tools: None,
        prompts: None,
        resources: None,
        instructions: None,
        lean: None,
        results: None,
    };
    let settings = GatewaySettings {
        backends: vec![server],
        endpoints: endpoints.iter().map(endpoint).collect(),
        naming: NamingPolicy::default(),
        policy: None,
        lists: ListLimits::default(),
        cache: CacheLimits::default(),
        common_tasks: None,
        result_files: None,
        keys: Keys::default(),
        identity: Json::literal(r#"{"name":"fanlight","version":"0"}"#),
    };
    Arc::new(Gateway::new(settings).unwrap())
}

/// The status of a server that is a process.
pub(crate) fn ready() -> BackendStatus {
    BackendStatus {
        attempted: true,
        state: BackendState::Ready,
        era: None,
        revision: None,
        transport: "stdio",
        starting: None,
        failure: None,
    }
}
