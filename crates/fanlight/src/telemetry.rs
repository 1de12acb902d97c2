//! Starts telemetry as the configuration, the environment and the command line ask for it.

use std::time::Duration;

use fanlight_config::{Config, OtlpChoice};
use fanlight_otlp::{Collector, ExportSettings, Guard, OtlpProtocol, resource_from_env, sampling_from_env};
use fanlight_telemetry::{FileSettings, RingLimits, Settings, Telemetry};
use tracing::{info, warn};

use crate::cli::TraceArgs;
use crate::failure::Failure;

/// Time limit for delivering the last spans and metrics at shutdown.
const FLUSH: Duration = Duration::from_secs(3);

/// Starts telemetry within the runtime. [`end`] delivers what is queued.
pub(crate) fn start(config: &Config, args: &TraceArgs) -> Result<(Telemetry, Guard), Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let protocol = config.telemetry.protocol.map(|protocol| match protocol {
        OtlpChoice::HttpProtobuf => OtlpProtocol::HttpProtobuf,
        OtlpChoice::Grpc => OtlpProtocol::Grpc,
    });
    let collector = Collector { endpoint: config.telemetry.endpoint.as_deref(), protocol };
    let usage = |error: fanlight_otlp::SettingsError| Failure::usage(error.to_string());
    let export = ExportSettings::from_env(collector, variable).map_err(usage)?;
    let mut resource = resource_from_env(variable);
    let named = resource.iter().any(|(key, _)| key == "service.name");
    if let Some(name) = config.telemetry.service_name.clone().filter(|_| !named) {
        resource.push(("service.name".to_owned(), name));
    }
    if let Some(target) = &export.traces {
        info!(endpoint = target.shown(), "exporting traces");
    }
    let ring = RingLimits { traces: config.limits.traces, bytes: config.limits.trace_bytes };
    let settings = Settings {
        ring: (ring.traces > 0).then_some(ring),
        console: args.trace_console,
        file: args.trace_file.clone().map(FileSettings::new),
        sampling: sampling_from_env(variable).map_err(usage)?,
        resource,
        service_version: env!("CARGO_PKG_VERSION").to_owned(),
        ..Settings::default()
    };
    fanlight_otlp::start(settings, &export).map_err(|error| Failure::other(error.to_string()))
}

/// Delivers the spans and metrics that are still queued.
pub(crate) async fn end(guard: Guard) {
    if !guard.shutdown(FLUSH).await {
        warn!("traces or metrics lost at shutdown: the collector did not take them in time");
    }
}
