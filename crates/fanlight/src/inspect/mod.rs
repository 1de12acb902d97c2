//! The commands that start backends and a gateway for one inspection: `check`, `list`, `call`,
//! `diff`, `trace-test`.

mod authentication;
mod call;
mod check;
mod client;
mod diff;
mod difference;
mod hops;
mod list;
mod show;
mod trace_test;
mod validate;

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use fanlight_canonical::{Call, CallContext, Caller, Endpoint, Holder, Principal, ServerMessages};
use fanlight_config::Config;
use fanlight_gateway::catalogue::{ListKind, ListView};
use fanlight_protocol::json::{DEFAULT_NESTING, ObjectBuilder};
use fanlight_protocol::{Json, Method};
use fanlight_telemetry::Telemetry;
use tokio_util::sync::CancellationToken;

pub(crate) use call::call;
pub(crate) use check::check;
pub(crate) use diff::diff;
pub(crate) use list::list;
pub(crate) use show::{plain, print as print_table, table};
pub(crate) use trace_test::trace_test;
pub(crate) use validate::validate;

use crate::cli::{EndpointArgs, TraceArgs};
use crate::failure::Failure;
use crate::log::Log;
use crate::telemetry;
use crate::wiring::Assembly;

/// Runs `command` on an assembly that is started before and stopped after it.
pub(crate) async fn with_assembly<T>(
    config: &Config,
    command: impl AsyncFnOnce(&Assembly) -> Result<T, Failure>,
) -> Result<T, Failure> {
    observed(config, &Telemetry::off(), command).await
}

/// Like [`with_assembly`], with the telemetry of a gateway, which is delivered at the end.
pub(crate) async fn with_traced_assembly<T>(
    config: &Config,
    command: impl AsyncFnOnce(&Assembly, &Telemetry) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (telemetry, guard) = telemetry::start(config, &TraceArgs::default(), &Log::Direct)?;
    let result = observed(config, &telemetry, async |assembly| command(assembly, &telemetry).await).await;
    telemetry::end(guard, config.timeouts.flush).await;
    result
}

async fn observed<T>(
    config: &Config,
    telemetry: &Telemetry,
    command: impl AsyncFnOnce(&Assembly) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let end = CancellationToken::new();
    // Commands show what servers have now, and keep nothing.
    let config = &Config { state_dir: None, ..config.clone() };
    let assembly = Assembly::start(config, telemetry, &end, None)?;
    let interrupted = async {
        // Without a signal handler the default action ends the process anyway.
        match tokio::signal::ctrl_c().await {
            Ok(()) => (),
            Err(_) => std::future::pending().await,
        }
    };
    let result = first(command(&assembly), interrupted).await;
    assembly.stop().await;
    end.cancel();
    result
}

async fn first<T>(
    command: impl Future<Output = Result<T, Failure>>,
    interrupted: impl Future<Output = ()>,
) -> Result<T, Failure> {
    tokio::select! {
        result = command => result,
        () = interrupted => Err(Failure::other("interrupted")),
    }
}

/// The configuration of a gateway that shows everything at its default endpoint, unless an endpoint is named.
fn looked_through(config: &Config, endpoint: &EndpointArgs) -> Config {
    let mut config = config.clone();
    if endpoint.path().is_none() {
        config.endpoints.clear();
    }
    config
}

/// A tool's arguments as given on the command line.
fn arguments(text: &str) -> Result<Json, Failure> {
    let json = Json::parse(Bytes::copy_from_slice(text.as_bytes()), DEFAULT_NESTING)
        .map_err(|error| Failure::usage(format!("the tool's arguments are not JSON: {error}: {text}")))?;
    if json.is_object() {
        Ok(json)
    } else {
        Err(Failure::usage(format!("the tool's arguments must be a JSON object, not {text}")))
    }
}

/// The canonical `tools/call` of `tool`, by the name that its receiver uses.
fn tool_call(tool: &Json, arguments: &Json, endpoint: Endpoint) -> Call {
    let mut params = ObjectBuilder::new();
    params.member("name", tool).member("arguments", arguments);
    let caller = match endpoint {
        Endpoint::Everything => Caller::gateway(),
        endpoint => Caller::request_of(Holder::new(Principal::operator(), endpoint)),
    };
    Call {
        method: Method::CallTool,
        params: Some(params.finish()),
        context: Arc::new(CallContext { caller, ..(*CallContext::internal()).clone() }),
        messages: ServerMessages::discard(),
    }
}

/// Reads the merged list of tools from all backends.
async fn tools(assembly: &Assembly, endpoint: &Endpoint) -> ListView {
    assembly.gateway.catalogue(ListKind::Tools, endpoint).await
}
