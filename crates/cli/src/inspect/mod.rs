//! The commands that look at a gateway and its servers: `check`, `list`, `call`, `diff`,
//! `trace-test`. Whoever runs them starts the gateway.

mod call;
mod check;
mod client;
mod diff;
mod endpoint;
mod failures;
mod hops;
mod list;
mod trace_test;
mod validate;

use std::sync::Arc;

use bytes::Bytes;
use fanlight_canonical::{CallContext, Caller, Endpoint, Holder, Principal, Unresolved};
use fanlight_gateway::Gateway;
use fanlight_gateway::catalogue::{ListKind, ListView};
use fanlight_protocol::json::{DEFAULT_NESTING, ObjectBuilder};
use fanlight_protocol::{Json, Method};

use crate::failure::Failure;
use crate::suggestions::did_you_mean;

pub use call::{call, call_running};
pub(crate) use check::sign_in::SignIn;
pub use check::{Checked, introduce};
pub use client::Client;
pub use diff::DirectCall;
pub(crate) use endpoint::sign_in_at;
pub use endpoint::{call_at, list_at};
pub use failures::complain;
pub use list::{Wanted, list, list_of_running};
pub use trace_test::{trace_test, trace_test_at};
pub use validate::validate;

/// The failure for a tool that is not in the catalogue.
fn no_such_tool(name: &str, snapshot: &ListView) -> Failure {
    let keys: Vec<_> = snapshot
        .entries()
        .filter_map(|entry| entry.key.as_ref()?.as_str())
        .collect();
    let meant = match did_you_mean(name, keys.iter().map(|key| &**key)) {
        meant if meant.is_empty() => "; `fanlight list tools` lists the tools".to_owned(),
        meant => meant,
    };
    Failure::usage(format!("no tool is called {name:?}{meant}"))
}

/// A tool's arguments from the command line.
fn arguments(text: &str) -> Result<Json, Failure> {
    let json =
        Json::parse(Bytes::copy_from_slice(text.as_bytes()), DEFAULT_NESTING).map_err(|error| {
            Failure::usage(format!(
                "the tool's arguments are not JSON: {error}: {text}"
            ))
        })?;
    if json.is_object() {
        Ok(json)
    } else {
        Err(Failure::usage(format!(
            "the tool's arguments must be a JSON object, not {text}"
        )))
    }
}

/// The canonical `tools/call` of `tool`, with the name that its receiver uses.
fn tool_call(tool: &Json, arguments: &Json, endpoint: Endpoint) -> Unresolved {
    let mut params = ObjectBuilder::new();
    params.member("name", tool).member("arguments", arguments);
    let caller = match endpoint {
        Endpoint::Everything => Caller::gateway(),
        endpoint => Caller::request_of(Holder::new(Principal::operator(), endpoint)),
    };
    Unresolved {
        method: Method::CallTool,
        params: Some(params.finish()),
        context: Arc::new(CallContext {
            caller,
            ..(*CallContext::internal()).clone()
        }),
    }
}

/// Reads the merged list of tools.
async fn tools(gateway: &Gateway, endpoint: &Endpoint) -> ListView {
    gateway.catalogue(ListKind::Tools, endpoint).await
}
