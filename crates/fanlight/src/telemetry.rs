//! Starts telemetry as set by the configuration, the environment and the command line.

use std::path::PathBuf;
use std::time::Duration;

use fanlight_config::{Config, OtlpChoice};
use fanlight_otlp::{
    Collector, ExportSettings, Guard, OtlpProtocol, OtlpTarget, propagators_from_env,
    resource_from_env, sampling_from_env,
};
use fanlight_telemetry::metrics::MetricLimits;
use fanlight_telemetry::{FileSettings, RingLimits, Settings, Telemetry};
use tracing::{info, warn};

use crate::cli::TraceArgs;
use crate::failure::Failure;
use crate::log::Log;
use crate::wiring::budgets;

/// Starts telemetry within the runtime. [`end`] delivers what is queued.
pub(crate) fn start(
    config: &Config,
    args: &TraceArgs,
    log: &Log,
) -> Result<(Telemetry, Guard), Failure> {
    let usage = |error: fanlight_otlp::SettingsError| Failure::usage(error.to_string());
    let export = ExportSettings::from_env(collector(config), variable).map_err(usage)?;
    let mut resource = resource_from_env(variable);
    let named = resource.iter().any(|(key, _)| key == "service.name");
    if let Some(name) = config.telemetry.service_name.clone().filter(|_| !named) {
        resource.push(("service.name".to_owned(), name));
    }
    if let Some(target) = &export.traces {
        info!(endpoint = target.shown(), "exporting traces");
    }
    let (propagators, unknown) = propagators_from_env(variable);
    if !unknown.is_empty() {
        warn!(
            names = unknown.join(","),
            "OTEL_PROPAGATORS names propagators that Fanlight does not have; they are ignored"
        );
    }
    let limits = &config.limits;
    let ring = RingLimits {
        traces: limits.traces,
        bytes: budgets(config).traces,
    };
    let file = |path: &PathBuf| FileSettings {
        path: path.clone(),
        max_bytes: limits.trace_file_bytes as u64,
        kept: limits.trace_files,
    };
    let settings = Settings {
        tracing: true,
        ring: (ring.traces > 0).then_some(ring),
        console: args.trace_console,
        file: args.trace_file.as_ref().map(file),
        metrics: MetricLimits {
            names_per_backend: limits.metric_names,
            series: limits.metric_series,
        },
        sampling: sampling_from_env(variable).map_err(usage)?,
        propagators,
        resource,
        service_version: env!("CARGO_PKG_VERSION").to_owned(),
        span_queue: limits.span_queue,
        dropped_log_lines: log.dropped(),
    };
    fanlight_otlp::start(settings, &export).map_err(|error| Failure::other(error.to_string()))
}

/// The destination of log records.
pub(crate) fn log_target(config: &Config) -> Result<Option<OtlpTarget>, Failure> {
    OtlpTarget::of_logs(collector(config), variable)
        .map_err(|error| Failure::usage(error.to_string()))
}

fn collector(config: &Config) -> Collector<'_> {
    let protocol = config.telemetry.protocol.map(|protocol| match protocol {
        OtlpChoice::HttpProtobuf => OtlpProtocol::HttpProtobuf,
        OtlpChoice::Grpc => OtlpProtocol::Grpc,
    });
    Collector {
        endpoint: config.telemetry.endpoint.as_deref(),
        protocol,
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Delivers the spans and metrics that are still queued.
pub(crate) async fn end(guard: Guard, limit: Duration) {
    if !guard.shutdown(limit).await {
        warn!("traces or metrics lost at shutdown: the collector did not take them in time");
    }
}
