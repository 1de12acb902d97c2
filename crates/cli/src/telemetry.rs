//! Starts telemetry as set by the configuration, the environment and the command line.

use std::time::Duration;

use fanlight_config::Config;
use fanlight_otlp::{
    Collector, ExportSettings, Guard, OtlpTarget, propagators_from_env, resource_from_env,
    sampling_from_env,
};
use fanlight_telemetry::metrics::MetricLimits;
use fanlight_telemetry::{ContentSettings, FileSettings, RingLimits, Settings, Telemetry};
use tracing::{info, warn};

use crate::cli::TraceArgs;
use crate::configuration::variable;
use crate::failure::{Failure, Result};
use crate::log::Log;
use crate::memory::budgets;
use crate::observe::style::Style;
use crate::observe::{spans, waterfall};

/// Starts telemetry within the runtime. [`end`] delivers what is queued.
pub fn start(
    config: &Config,
    content: ContentSettings,
    args: &TraceArgs,
    log: &Log,
) -> Result<(Telemetry, Guard)> {
    let usage = |error: fanlight_otlp::SettingsError| Failure::usage(error);
    let export = ExportSettings::from_env(collector(config), variable).map_err(usage)?;
    let resource = resource_from_env(variable);
    if let Some(target) = &export.traces {
        info!(endpoint = target.display(), "exporting traces");
    }
    let (propagators, unknown) = propagators_from_env(variable);
    if !unknown.is_empty() {
        warn!(
            names = unknown.join(","),
            "OTEL_PROPAGATORS names propagators that Fanlight does not have; they are ignored"
        );
    }
    let ring = RingLimits {
        traces: config.limits.traces,
        bytes: budgets(config).traces,
    };
    let settings = Settings {
        tracing: true,
        ring: (ring.traces > 0).then_some(ring),
        console: args.trace_console.then_some(waterfall),
        file: args.trace_file.clone().map(FileSettings::new),
        metrics: MetricLimits::default(),
        sampling: sampling_from_env(variable).map_err(usage)?,
        propagators,
        resource,
        service_version: env!("CARGO_PKG_VERSION").to_owned(),
        content,
        dropped_log_lines: log.dropped(),
    };
    fanlight_otlp::start(settings, &export).map_err(Failure::other)
}

/// A finished trace for standard error.
fn waterfall(trace: &str) -> String {
    let spans = spans::read(trace.as_bytes()).unwrap_or_default();
    waterfall::render(&spans, Style::for_stderr())
}

/// The destination of log records.
pub fn log_target(config: &Config) -> Result<Option<OtlpTarget>> {
    OtlpTarget::read_logs(collector(config), variable).map_err(Failure::usage)
}

fn collector(config: &Config) -> Collector<'_> {
    Collector {
        endpoint: config.telemetry.endpoint.as_deref(),
    }
}

/// How long the last spans, metrics and lines of the audit log may take on shutdown.
pub const FLUSH: Duration = Duration::from_secs(3);

/// Delivers the spans and metrics that are still queued.
pub async fn end(guard: Guard) {
    if !guard.shutdown(FLUSH).await {
        warn!("traces or metrics lost at shutdown: the collector did not take them in time");
    }
}
