//! The commands that start servers and a gateway for one inspection: `check`, `list`, `call`,
//! `diff`, `trace-test`.

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
use fanlight_config::{Config, StartChoice};
use fanlight_gateway::catalogue::{ListKind, ListView};
use fanlight_protocol::json::{DEFAULT_NESTING, ObjectBuilder};
use fanlight_protocol::{Json, Method};
use fanlight_record::AuditLog;
use fanlight_telemetry::Telemetry;
use tokio_util::sync::CancellationToken;

pub(crate) use call::{call, call_running};
pub(crate) use check::check;
pub(crate) use check::sign_in::SignIn;
pub(crate) use diff::diff;
pub(crate) use endpoint::{call_at, list_at, sign_in_at};
pub(crate) use list::{Wanted, list, list_of_running};
pub(crate) use trace_test::trace_test;
pub(crate) use validate::validate;

use crate::assembly::Assembly;
use crate::listening;
use fanlight_cli::cli::{EndpointArgs, TraceArgs};
use fanlight_cli::failure::Failure;
use fanlight_cli::interruption::interruptible;
use fanlight_cli::log::Log;
use fanlight_cli::starts;
use fanlight_cli::suggestions::did_you_mean;
use fanlight_cli::telemetry;
use fanlight_cli::users::{Clients, Users, auth_of_users};
use fanlight_replicas::Replicas;

/// Starts an assembly, runs `command` with it and stops it. Prints the failures of servers that do
/// not start before the command runs.
pub(crate) async fn with_assembly<T>(
    config: &Config,
    command: impl AsyncFnOnce(&Assembly) -> Result<T, Failure>,
) -> Result<T, Failure> {
    observed(config, &Telemetry::off(), async |assembly| {
        failures::complain(&assembly.gateway);
        command(assembly).await
    })
    .await
}

/// Like [`with_assembly`], with a gateway's telemetry, which is delivered at the end.
pub(crate) async fn with_traced_assembly<T>(
    config: &Config,
    command: impl AsyncFnOnce(&Assembly, &Telemetry) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (telemetry, guard) = telemetry::start(config, &TraceArgs::default(), &Log::Direct)?;
    let result = observed(config, &telemetry, async |assembly| {
        failures::complain(&assembly.gateway);
        command(assembly, &telemetry).await
    })
    .await;
    telemetry::end(guard).await;
    result
}

async fn observed<T>(
    config: &Config,
    telemetry: &Telemetry,
    command: impl AsyncFnOnce(&Assembly) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let end = CancellationToken::new();
    let has_users = config
        .servers
        .iter()
        .any(|server| auth_of_users(server).is_some());
    let replicas = if has_users {
        Replicas::connected(config).await?
    } else {
        None
    };
    let record = Arc::new(AuditLog::default());
    let (common, clients) = (
        replicas.as_ref().map(|(replicas, _)| replicas),
        Clients::OfOneUser,
    );
    let users = Users::of(config, common, clients, None, Arc::clone(&record));
    // Commands show the current state and store nothing of it.
    let mut config = Config {
        state_dir: None,
        ..config.clone()
    };
    // A server that would start on demand gets the same time to start here.
    config
        .servers
        .iter_mut()
        .for_each(|server| server.start = Some(StartChoice::Eager));
    let config = &config;
    let assembly = Assembly::start(config, telemetry, &end, None, users, None, record)?;
    let started = async {
        starts::show(&assembly.gateway).await;
        command(&assembly).await
    };
    let result = interruptible(started).await;
    assembly.stop().await;
    end.cancel();
    result
}

/// The reasons why `fanlight run` would refuse the listeners of this configuration.
fn refused_listeners(config: &Config) -> Vec<String> {
    let operators = config
        .admin
        .listen
        .as_ref()
        .map(|address| listening::check_operators(config, address));
    let checked = [
        Some(listening::check_clients(config, &config.listen)),
        operators,
    ];
    checked
        .into_iter()
        .flatten()
        .filter_map(Result::err)
        .collect()
}

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

/// The configuration with every server at the default endpoint, unless the command names an
/// endpoint.
fn looked_through(config: &Config, endpoint: &EndpointArgs) -> Config {
    let mut config = config.clone();
    if endpoint.path().is_none() {
        config.endpoints.clear();
    }
    config
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
async fn tools(assembly: &Assembly, endpoint: &Endpoint) -> ListView {
    assembly.gateway.catalogue(ListKind::Tools, endpoint).await
}
