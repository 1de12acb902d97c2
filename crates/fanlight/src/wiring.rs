//! Turns a configuration into the settings of servers, the core and the client edge.
//!
//! The only module that knows both the configuration file and the crates that it configures.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fanlight_auth::Authenticator;
use fanlight_backend::{
    BackendLimits, BackendSettings, BackendTimeouts, Endpoints, HealthPolicy, Identity,
    MessageMemory, PollIntervals, ProcessPolicy, Repeats, RetryDelays, Serves, SystemNames,
    TelemetrySettings,
};
use fanlight_canonical::{Endpoint, HandleSeal};
use fanlight_config::{Budgets, Config, StartChoice, TrustChoice};
use fanlight_frontend::{
    ByteBudget, FrontendSettings, Guard, ListenAddress, LiveGuard, LiveHooks, LiveProtection,
    Origins, PublicUrl, RefusedBody, TrustedProxies,
};
use fanlight_gateway::approvals::Approvals;
use fanlight_gateway::{ByteLimits, ListLimits};
use fanlight_protocol::json::ObjectBuilder;
use fanlight_record::AuditLog;
use fanlight_replicas::keys;
use fanlight_telemetry::{ContentPolicy, Telemetry, TraceContextPolicy, TrustInbound};
use tokio_util::sync::CancellationToken;

use crate::guard;
use crate::listening::scheme;
use crate::memory;
use crate::protection;

/// The default time limit for a process that starts silently, since a first start may install it.
const PROCESS_START: Duration = Duration::from_secs(90);

/// The size limit of a mirror's message: twice the limit of a copy, since nobody waits for the
/// answers. There is no option for either.
const MIRROR_MESSAGE: usize = 2 << 20;

pub(crate) fn list_limits(config: &Config) -> ListLimits {
    ListLimits {
        uri: config.limits.uri,
        unknown_tasks: config.limits.unknown_tasks,
        timeout: config.timeouts.list,
        pages: config.limits.list_pages,
        entries: config.limits.list_entries,
        page_size: config.limits.page_size,
        generations: config.limits.list_generations,
        settle: config.timeouts.list_settle,
        unannounced: config.timeouts.list_unannounced,
        unknown: config.timeouts.unknown_name,
        listen_retry: listen_retry(config),
        spares_streams: config.replicas.is_some(),
        bytes: ByteLimits {
            one: config.limits.list_bytes,
            all: budgets(config).lists,
        },
        stale: config.timeouts.stale_lists,
        client_notifications: config.limits.client_notifications,
        client_extensions: config.limits.client_extensions,
        result_uris: config.limits.result_uris,
    }
}

/// Pauses before a listener that was refused is set up again.
fn listen_retry(config: &Config) -> RetryDelays {
    RetryDelays {
        shortest: config.timeouts.listen_retry,
        longest: config.timeouts.listen_retry_max,
    }
}

/// The shares of the memory.
pub(crate) fn budgets(config: &Config) -> Budgets {
    config.limits.budgets(memory::half())
}

fn identity() -> Identity {
    Identity {
        name: "fanlight".into(),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}

pub(crate) fn identity_json() -> fanlight_protocol::Json {
    let identity = identity();
    let mut object = ObjectBuilder::new();
    object
        .string("name", &identity.name)
        .string("version", &identity.version);
    object.finish()
}

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
    let named = |version: Option<&str>| version == Some(server.name.as_str());
    let is_mirror = config
        .servers
        .iter()
        .any(|one| named(one.mirror.as_ref().map(|mirror| mirror.server.as_str())));
    let is_canary = config
        .servers
        .iter()
        .any(|one| named(one.canary.as_ref().map(|canary| canary.server.as_str())));
    BackendSettings {
        name: server.name.clone(),
        transport: server.transport.clone(),
        credentials: None,
        ca_file: server.ca_file.as_ref().map(PathBuf::from),
        processes: ProcessPolicy {
            inherit_env: server.inherit_env.clone(),
            own_variables: own_variables(config, server),
            guard: guard::program(),
            sandbox: server.sandbox.sandbox(&config.own_files),
            // Set later, since it depends on whether clients are authenticated.
            serves: Serves::Everybody,
            starts_on_demand: server.start == Some(StartChoice::Lazy),
            keeps_lists: is_process && server.start != Some(StartChoice::Eager),
            // Set later, since it depends on where lists are stored.
            rests_while_known: false,
            idle: server.idle,
            max_failures: server.start_attempts,
        },
        health: HealthPolicy {
            interval: server.health.interval,
            timeout: server.health.timeout,
            timeouts: server.health.timeouts,
        },
        era: server.era,
        sessions: server.session,
        // With one server, each client reads its lists from the server itself.
        catalogue: config
            .servers_of_clients()
            .filter(|server| server.enabled)
            .count()
            > 1,
        timeouts: BackendTimeouts {
            connect: match is_process {
                true => config.timeouts.connect,
                false => server.start_timeout.unwrap_or(config.timeouts.connect),
            },
            start: server.start_timeout.unwrap_or(match is_process {
                true => config.timeouts.connect.max(PROCESS_START),
                false => config.timeouts.connect,
            }),
            start_total: config.timeouts.start_total,
            probe: config.timeouts.probe,
            call: server.timeout,
            call_total: config.timeouts.call_total,
            question: config.timeouts.client_answer,
            session_idle: config.timeouts.backend_session_idle,
            task: config.timeouts.task,
            process_stop: config.timeouts.process_stop,
            ping: config.timeouts.ping,
            session_end: config.timeouts.session_end,
            idle_connection: config.timeouts.backend_idle_connection,
            failed_retry: config.timeouts.failed_retry,
            reconnect_on_demand: config.timeouts.reconnect_on_call,
            reconnect: RetryDelays {
                shortest: config.timeouts.reconnect,
                longest: config.timeouts.reconnect_max,
            },
            list_settle: config.timeouts.list_settle,
            resume: RetryDelays {
                shortest: config.timeouts.backend_resume,
                longest: config.timeouts.backend_resume_max,
            },
            server_retry: RetryDelays {
                shortest: config.timeouts.sse_retry_min,
                longest: config.timeouts.sse_retry_max,
            },
            stable_connection: config.timeouts.stable_connection,
            era_recheck: config.timeouts.era_recheck,
            connect_on_call: config.timeouts.connect_on_call,
            subscribe_on_call: config.timeouts.subscribe_on_call,
            refused_request: config.timeouts.refused_request,
            task_result: config.timeouts.task_result,
            task_input: config.timeouts.task_input,
            stream_opening: config.timeouts.stream_opening,
            delivery: config.timeouts.delivery,
            own_message: config.timeouts.own_message,
            task_polls: PollIntervals {
                usual: config.timeouts.task_poll,
                shortest: config.timeouts.task_poll_min,
                longest: config.timeouts.task_poll_max,
                failures: config.limits.task_poll_failures,
            },
            tcp_probe: config.timeouts.tcp_probe,
            tcp_unacknowledged: config.timeouts.tcp_unacknowledged,
        },
        limits: BackendLimits {
            concurrency: server.concurrency,
            sessions: if is_process {
                config.limits.processes
            } else {
                config.limits.backend_sessions
            },
            // All of them can run at the same time. Over stdio each is a process, which has a limit
            // of its own.
            request_sessions: if is_process {
                0
            } else {
                server.concurrency + config.limits.suspended_calls
            },
            subscriptions: config.limits.subscriptions,
            message_bytes: match is_mirror && !is_canary {
                true => config.limits.message.min(MIRROR_MESSAGE),
                false => config.limits.message,
            },
            invalid_output: config.limits.invalid_output,
            process_log: config.limits.process_log,
            process_log_kept: config.limits.process_log_kept,
            nesting: config.limits.nesting,
            tasks: config.limits.tasks,
            task_bytes: config.limits.task_results,
            client_description: config.limits.client_description,
            open_server_requests: config.limits.open_server_requests,
            task_inputs: config.limits.task_inputs,
            stream_attempts: config.limits.stream_attempts,
            list_pages: config.limits.list_pages,
            list_entries: config.limits.list_entries,
            mirrored_params: config.limits.mirrored_params,
            server_requests: config.limits.call_server_requests,
            list_bytes: config.limits.list_bytes,
            spare_bytes: budgets(config).spare,
        },
        identity: identity(),
        memory: memory.clone(),
        telemetry: TelemetrySettings {
            telemetry: telemetry.clone(),
            trace_context: match server.forwards_trace_context {
                true => TraceContextPolicy::Forward,
                false => TraceContextPolicy::Omit,
            },
            content: ContentPolicy {
                arguments: server.records_content,
                results: server.records_content,
                max_bytes: config.limits.recorded_content,
            },
        },
        handles: Arc::clone(handles),
        endpoints: Endpoints {
            zone: config.zone.clone(),
            ..server.endpoints.clone()
        },
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
        path: config.path.clone(),
        endpoint: Endpoint::Default,
        sse_path: config.sse_path.clone(),
        guard: LiveGuard::new(client_guard(config, &config.listen)),
        keys: keys(config),
        max_body: config.limits.request_body.min(memory.requests),
        request_memory: ByteBudget::new(memory.requests),
        answer_memory: ByteBudget::new(memory.answers),
        max_header: config.limits.header,
        max_line: config.limits.request_body.min(memory.requests),
        max_concurrent: config.limits.concurrency,
        nesting: config.limits.nesting,
        workers: Vec::new(),
        // Denies everything until replaced.
        authenticate: Arc::new(Authenticator::default()),
        pages: None,
        protection: LiveProtection::new(protection::settings(config)),
        max_connections: config.limits.connections,
        max_waiting_connections: config.limits.waiting_connections,
        max_peer_connections: config.limits.peer_connections,
        http2_streams: u32::try_from(config.limits.http2_streams).unwrap_or(u32::MAX),
        max_streams: config.limits.streams,
        max_sessions: config.limits.sessions,
        max_peer_sessions: config.limits.peer_sessions,
        notification_buffer: config.limits.notifications,
        max_server_requests: config.limits.server_requests,
        max_input_rounds: config.limits.input_rounds,
        max_suspended_calls: config.limits.suspended_calls,
        max_peer_suspended_calls: config.limits.peer_suspended_calls,
        max_subscriptions: config.limits.subscriptions,
        max_description: config.limits.client_description,
        description_memory: ByteBudget::new(memory.descriptions),
        max_batch: config.limits.batch,
        max_mirrored_params: config.limits.mirrored_params,
        replay_events: config.limits.replay_events,
        replay_bytes: config.limits.replay_bytes,
        replay_total_bytes: memory.replay,
        input_timeout: config.timeouts.client_answer,
        header_timeout: config.timeouts.header,
        first_request: config.timeouts.first_request,
        body_timeout: config.timeouts.body,
        idle_connection: config.timeouts.idle_connection,
        write_timeout: config.timeouts.write,
        write_rate: u32::try_from(config.limits.write_rate).unwrap_or(u32::MAX),
        http2_ping: config.timeouts.http2_ping,
        last_answers: config.timeouts.last_answers,
        session_idle: config.timeouts.session_idle,
        drain: config.timeouts.drain,
        give_up: backends_end.clone(),
        stream_after: config.timeouts.stream,
        keep_alive: config.timeouts.keep_alive,
        resume: config.timeouts.resume,
        sse_retry: config.timeouts.sse_retry,
        refused_body: RefusedBody {
            time: config.timeouts.refused_body,
            bytes: config.limits.refused_body,
        },
        collect_requests: config.timeouts.collect_requests,
        listen_retry: listen_retry(config),
        hooks: LiveHooks::default(),
        approvals: Approvals::default(),
        approval_wait: config.timeouts.approval,
        record: Arc::new(AuditLog::default()),
        has_balancer: config.replicas.is_some(),
        replicas: None,
        session_records: None,
        telemetry: telemetry.clone(),
        trust_inbound: match config.telemetry.trust_inbound {
            TrustChoice::True => TrustInbound::Trust,
            TrustChoice::Link => TrustInbound::Link,
            TrustChoice::Ignore => TrustInbound::Ignore,
        },
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
