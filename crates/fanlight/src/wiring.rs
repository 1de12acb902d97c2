//! Turns a configuration into the settings of servers, the core and the client edge.
//!
//! The only module that knows both the configuration file and the crates that it configures.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use fanlight_auth::Authenticator;
use fanlight_backend::{
    BackendLimits, BackendSettings, BackendTimeouts, HealthPolicy, MessageMemory, ProcessPolicy,
    Repeats, Serves, SystemNames,
};
use fanlight_canonical::HandleSeal;
use fanlight_cli::memory::budgets;
use fanlight_config::{Config, StartChoice, TrustChoice, scheme};
use fanlight_fair::limit;
use fanlight_frontend::{
    FrontendSettings, Guard, ListenAddress, LiveGuard, LiveProtection, Origins, PublicUrl,
    TrustedProxies, byte_budget, max_suspended_calls,
};
use fanlight_record::AuditLog;
use fanlight_replicas::keys;
use fanlight_telemetry::{Telemetry, TrustInbound};
use tokio_util::sync::CancellationToken;

use crate::protection;

/// The default time limit for a process that starts silently, since a first start may install it.
const PROCESS_START: Duration = Duration::from_secs(90);

/// The size limit of a mirror's message: twice the limit of a copy, since nobody waits for the
/// answers. There is no option for either.
const MIRROR_MESSAGE: usize = 2 << 20;

/// The variables of Fanlight's own options, if a pattern could pass them on to a server's process.
fn own_variables(config: &Config, server: &fanlight_config::Server) -> Vec<String> {
    let has_pattern = server.inherit_env.iter().any(|name| name.ends_with('*'));
    if has_pattern {
        config.own_variables.clone()
    } else {
        Vec::new()
    }
}

pub(crate) fn backend_settings(
    config: &Config,
    server: &fanlight_config::Server,
    telemetry: &Telemetry,
    handles: &Arc<HandleSeal>,
    memory: &MessageMemory,
) -> BackendSettings {
    let is_process = matches!(server.transport, fanlight_config::Transport::Stdio { .. });
    let usual = BackendTimeouts::default();
    let named = |version: Option<&str>| version == Some(server.name.as_str());
    let is_mirror = config
        .servers
        .iter()
        .any(|one| named(one.mirror.as_ref().map(|mirror| mirror.server.as_str())));
    let is_canary = config
        .servers
        .iter()
        .any(|one| named(one.canary.as_ref().map(|canary| canary.server.as_str())));
    let message_bytes = BackendLimits::default().message_bytes;
    BackendSettings {
        name: server.name.clone(),
        transport: server.transport.clone(),
        credentials: None,
        ca_file: server.ca_file.as_ref().map(PathBuf::from),
        forward_headers: server.forward_headers.clone(),
        processes: ProcessPolicy {
            inherit_env: server.inherit_env.clone(),
            own_variables: own_variables(config, server),
            guard: program(),
            sandbox: server.sandbox.sandbox(&config.own_files),
            // Set later, since it depends on whether clients are authenticated.
            serves: Serves::Everybody,
            owner: None,
            starts_on_demand: server.start == Some(StartChoice::Lazy),
            keeps_lists: is_process && server.start != Some(StartChoice::Eager),
            // Set later, since it depends on where lists are stored.
            rests_while_known: false,
            idle: server.idle,
        },
        health: HealthPolicy::default(),
        era: server.era,
        sessions: server.session,
        // With one server, each client reads its lists from the server itself.
        catalogue: config
            .servers_of_clients()
            .filter(|server| server.enabled)
            .count()
            > 1,
        timeouts: BackendTimeouts {
            connect: server
                .start_timeout
                .filter(|_| !is_process)
                .unwrap_or(usual.connect),
            start: server.start_timeout.unwrap_or(if is_process {
                PROCESS_START
            } else {
                usual.connect
            }),
            call: server.timeout,
            session_idle: limit("backendSessionIdle", config.timeouts.session_idle),
            ..usual
        },
        limits: BackendLimits {
            concurrency: server.concurrency,
            sessions: if is_process {
                config.limits.processes
            } else {
                limit("backendSessions", config.limits.sessions)
            },
            // All of them can run at the same time. Over stdio each is a process, which has a limit
            // of its own.
            request_sessions: if is_process {
                0
            } else {
                server.concurrency + max_suspended_calls()
            },
            message_bytes: if is_mirror && !is_canary {
                message_bytes.min(MIRROR_MESSAGE)
            } else {
                message_bytes
            },
            spare_bytes: budgets(config).spare,
            task_bytes: budgets(config).tasks,
            task_state_bytes: budgets(config).tasks / 4,
            ..BackendLimits::default()
        },
        memory: memory.clone(),
        telemetry: telemetry.clone(),
        handles: Arc::clone(handles),
        endpoints: server.endpoints.clone(),
        repeats: server.repeats_safe.then(Repeats::default),
        is_asked_for_safe: is_mirror || server.mirror.is_some(),
        names: Arc::new(SystemNames),
    }
}

/// The hosts and origins that clients may name, and the URL of the listener at `address`. The URL
/// is the configured one, or for a local listener the address.
pub(crate) fn client_guard(config: &Config, address: &ListenAddress) -> Guard {
    let url = match (&config.public_url, address) {
        (Some(url), _) => PublicUrl::parse(url),
        (None, ListenAddress::Ip(ip)) if address.is_local() => {
            PublicUrl::parse(&format!("{}://{ip}", scheme(&config.tls)))
        }
        (None, _) => None,
    };
    Guard::new(
        &config.allowed_hosts,
        Origins::Listed(config.allowed_origins.clone()),
    )
    .with_public_url(url)
    .with_trusted_proxies(TrustedProxies::new(config.trusted_proxies.clone()))
}

/// The settings of the client edge, without worker threads and authentication, and with an audit
/// log of its own. Calls that outlast the shutdown end with the servers.
pub(crate) fn frontend_settings(
    config: &Config,
    telemetry: &Telemetry,
    backends_end: &CancellationToken,
) -> FrontendSettings {
    let memory = budgets(config);
    FrontendSettings {
        sse_path: config.sse_path.clone(),
        guard: LiveGuard::new(client_guard(config, &config.listen)),
        keys: keys(config),
        max_body: config.limits.request_body.min(memory.requests),
        request_memory: byte_budget(memory.requests),
        answer_memory: byte_budget(memory.answers),
        max_line: config.limits.request_body.min(memory.requests),
        protection: LiveProtection::new(protection::settings(config)),
        max_connections: config.limits.connections,
        max_waiting_connections: config.limits.waiting_connections,
        max_sessions: config.limits.sessions,
        description_memory: byte_budget(memory.descriptions),
        replay_total_bytes: memory.replay,
        session_idle: config.timeouts.session_idle,
        drain: config.timeouts.drain,
        give_up: backends_end.clone(),
        approval_wait: config.timeouts.approval,
        has_balancer: config.replicas.is_some(),
        telemetry: telemetry.clone(),
        trust_inbound: match config.telemetry.trust_inbound {
            TrustChoice::True => TrustInbound::Trust,
            TrustChoice::Link => TrustInbound::Link,
            TrustChoice::Ignore => TrustInbound::Ignore,
        },
        // Denies everything until it is replaced.
        ..FrontendSettings::new(
            Arc::new(Authenticator::default()),
            Arc::new(AuditLog::default()),
        )
    }
}

/// The program of this process, even if its file has been replaced since the start.
#[cfg(target_os = "linux")]
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Runs as the guard of a server's process, or as the step into its sandbox, if the command line
/// says so.
pub(crate) fn run() -> Option<ExitCode> {
    #[cfg(target_os = "linux")]
    {
        let command = std::env::args_os().nth(1)?;
        if command == fanlight_child_guard::SUBCOMMAND {
            return Some(fanlight_child_guard::run());
        }
        if command == fanlight_child_guard::STEP {
            return Some(fanlight_child_guard::run_sandbox());
        }
    }
    None
}

/// The program that guards the servers' processes, if the system supports that.
pub(crate) fn program() -> Option<PathBuf> {
    #[cfg(target_os = "linux")]
    if std::path::Path::new(OWN_PROGRAM).exists() {
        return Some(OWN_PROGRAM.into());
    }
    None
}

/// Keeps other processes of the same user, such as servers, from reading this one's memory and
/// environment. From here on `/proc/<pid>` belongs to root, and there are no core dumps.
pub(crate) fn hide() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
            tracing::warn!(%error, "processes of servers can read the environment of this process");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn replicas_are_behind_a_load_balancer_also_without_a_link() {
        let has_balancer = |replicas: &str| {
            let text = format!(r#"{{{replicas}"mcpServers":{{"a":{{"command":"a"}}}}}}"#);
            let loaded = fanlight_config::parse(&text, Path::new("f.json"), &|_| None).unwrap();
            frontend_settings(&loaded.config, &Telemetry::off(), &CancellationToken::new())
                .has_balancer
        };
        let keys = "1".repeat(64);
        assert!(has_balancer(&format!(
            r#""keys":["{keys}"],"replicas":{{"valkey":"valkey://v"}},"#
        )));
        assert!(!has_balancer(""));
    }
}
