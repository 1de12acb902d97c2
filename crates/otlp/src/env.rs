//! Reads the standard `OTEL_*` variables.
//!
//! The caller supplies a function that reads variables, so tests need not change the environment of
//! the process.

use std::time::Duration;

use fanlight_config::settings::split_credentials;
use fanlight_telemetry::{BatchSettings, Propagators, Sampling};
use url::Url;

use crate::settings::{
    Collector, ExportSettings, OtlpProtocol, OtlpTarget, SettingsError, TlsFiles,
};

/// Reads from `OTEL_TRACES_SAMPLER` which traces are sampled. `variable` reads a variable.
///
/// # Errors
///
/// If the sampler does not exist, or its argument is invalid.
pub fn sampling_from_env(
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Sampling, SettingsError> {
    Env(&variable).sampling()
}

/// Reads `OTEL_PROPAGATORS`: which context is read from messages and sent with them. `variable`
/// reads a variable. Returns also the unknown names in it, which have no effect.
pub fn propagators_from_env(
    variable: impl Fn(&str) -> Option<String>,
) -> (Propagators, Vec<String>) {
    let Some(names) = Env(&variable).get("OTEL_PROPAGATORS") else {
        return Default::default();
    };
    let mut found = Propagators {
        trace_context: false,
        baggage: false,
    };
    let mut unknown = Vec::new();
    for name in names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        match name {
            "tracecontext" => found.trace_context = true,
            "baggage" => found.baggage = true,
            "none" => {}
            other => unknown.push(other.to_owned()),
        }
    }
    (found, unknown)
}

/// Reads resource attributes from `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_SERVICE_NAME`. `variable`
/// reads a variable.
pub fn resource_from_env(variable: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let env = Env(&variable);
    let mut resource = env
        .get("OTEL_RESOURCE_ATTRIBUTES")
        .map(|text| pairs(&text))
        .unwrap_or_default();
    if let Some(name) = env.get("OTEL_SERVICE_NAME") {
        resource.retain(|(key, _)| key != "service.name");
        resource.push(("service.name".to_owned(), name));
    }
    resource
}

/// How long one export may take, unless a variable sets it.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

impl ExportSettings {
    /// Reads the `OTEL_*` variables through `variable`; `configured` overrides them.
    ///
    /// If neither names an endpoint, nothing is exported, unless `OTEL_TRACES_EXPORTER` or
    /// `OTEL_METRICS_EXPORTER` is `otlp`.
    ///
    /// # Errors
    ///
    /// If a variable is malformed.
    pub fn from_env(
        configured: Collector<'_>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SettingsError> {
        let env = Env(&variable);
        let defaults = Self::default();
        let queue = env
            .number("OTEL_BSP_MAX_QUEUE_SIZE", defaults.batch.queue)?
            .max(1);
        let batch = BatchSettings {
            queue,
            size: env
                .number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", defaults.batch.size)?
                .clamp(1, queue),
            delay: env.millis("OTEL_BSP_SCHEDULE_DELAY", defaults.batch.delay)?,
        };
        let metrics_every = env.millis("OTEL_METRIC_EXPORT_INTERVAL", defaults.metrics_every)?;
        let mut settings = Self {
            batch,
            metrics_every: metrics_every.max(Duration::from_millis(100)),
            ..defaults
        };
        if !env.is_disabled() {
            settings.traces = env.target(configured, "TRACES", "v1/traces")?;
            settings.metrics = env.target(configured, "METRICS", "v1/metrics")?;
        }
        Ok(settings)
    }
}

impl OtlpTarget {
    /// Reads from the `OTEL_*` variables where log records go; `configured` overrides them.
    /// `variable` reads a variable.
    ///
    /// `None` if neither names an endpoint, or if the variables switch the export off.
    ///
    /// # Errors
    ///
    /// If a variable is malformed.
    pub fn read_logs(
        configured: Collector<'_>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, SettingsError> {
        let env = Env(&variable);
        if env.is_disabled() {
            Ok(None)
        } else {
            env.target(configured, "LOGS", "v1/logs")
        }
    }
}

struct Env<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Env<'_> {
    /// The value of a variable that is set and not blank.
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.trim().is_empty())
    }

    /// Whether `OTEL_SDK_DISABLED` switches all export off.
    fn is_disabled(&self) -> bool {
        self.get("OTEL_SDK_DISABLED")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// The name and value of the variable for one signal, or else of the variable for all signals.
    fn signal(&self, signal: &str, what: &str) -> Option<(String, String)> {
        let own = format!("OTEL_EXPORTER_OTLP_{signal}_{what}");
        let common = format!("OTEL_EXPORTER_OTLP_{what}");
        [own, common]
            .into_iter()
            .find_map(|name| self.get(&name).map(|value| (name, value)))
    }

    fn target(
        &self,
        configured: Collector<'_>,
        signal: &str,
        path: &str,
    ) -> Result<Option<OtlpTarget>, SettingsError> {
        let exporter = format!("OTEL_{signal}_EXPORTER");
        let wanted = match self.get(&exporter).as_deref() {
            None => false,
            Some("none") => return Ok(None),
            Some("otlp") => true,
            Some(other) => {
                let value = other.to_owned();
                return Err(SettingsError::Value {
                    variable: exporter,
                    value,
                    wanted: "use otlp or none",
                });
            }
        };
        let protocol = self.protocol(signal);
        // gRPC addresses services by name, so its URLs have no path.
        let path = if matches!(protocol, Ok(OtlpProtocol::Grpc)) {
            ""
        } else {
            path
        };
        let own = format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT");
        let common = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let endpoint = if let Some(base) = configured.endpoint {
            join_path(base, path).ok_or("the configured endpoint".to_owned())
        } else if let Some(whole) = self.get(&own) {
            join_path(&whole, "").ok_or(own)
        } else if let Some(base) = self.get(common) {
            join_path(&base, path).ok_or(common.to_owned())
        } else if wanted {
            let default = if path.is_empty() {
                "http://localhost:4317"
            } else {
                "http://localhost:4318"
            };
            join_path(default, path).ok_or_else(String::new)
        } else {
            return Ok(None);
        };
        let endpoint = endpoint.map_err(|variable| SettingsError::Endpoint { variable })?;
        // Not in the URL, which libraries log.
        let (endpoint, credentials) = split_credentials(endpoint);
        let credentials = credentials.as_ref().and_then(|value| value.to_str().ok());
        let mut headers: Vec<_> = credentials
            .map(|value| ("authorization".to_owned(), value.to_owned()))
            .into_iter()
            .collect();
        if let Some((_, text)) = self.signal(signal, "HEADERS") {
            headers.extend(pairs(&text));
        }
        let protocol = protocol?;
        let timeout = match self.signal(signal, "TIMEOUT") {
            Some((name, _)) => self.millis(&name, EXPORT_TIMEOUT)?,
            None => EXPORT_TIMEOUT,
        };
        let file = |what| self.signal(signal, what).map(|(_, path)| path.into());
        let tls = TlsFiles {
            certificate: file("CERTIFICATE"),
            client_certificate: file("CLIENT_CERTIFICATE"),
            client_key: file("CLIENT_KEY"),
        };
        Ok(Some(OtlpTarget {
            endpoint,
            protocol,
            headers,
            timeout,
            tls,
        }))
    }

    fn protocol(&self, signal: &str) -> Result<OtlpProtocol, SettingsError> {
        let Some((variable, value)) = self.signal(signal, "PROTOCOL") else {
            return Ok(OtlpProtocol::default());
        };
        let named = value.trim().parse();
        named.map_err(|_| SettingsError::Protocol { variable, value })
    }

    fn sampling(&self) -> Result<Sampling, SettingsError> {
        let variable = "OTEL_TRACES_SAMPLER";
        let ratio = || match self.get("OTEL_TRACES_SAMPLER_ARG") {
            None => Ok(1.0),
            Some(value) => value
                .trim()
                .parse()
                .ok()
                .filter(|ratio| (0.0..=1.0).contains(ratio))
                .ok_or_else(|| {
                    let variable = "OTEL_TRACES_SAMPLER_ARG".to_owned();
                    SettingsError::Value {
                        variable,
                        value,
                        wanted: "use a number from 0 to 1",
                    }
                }),
        };
        let Some(value) = self.get(variable) else {
            return Ok(Sampling::default());
        };
        let rule = value.strip_prefix("parentbased_");
        let ratio = match rule.unwrap_or(&value) {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => ratio()?,
            _ => {
                return Err(SettingsError::Value {
                    variable: variable.to_owned(),
                    value,
                    wanted: "use always_on, always_off or traceidratio, or one of them after parentbased_",
                });
            }
        };
        Ok(Sampling {
            follows_parent: rule.is_some(),
            ratio,
        })
    }

    fn number(&self, name: &str, default: usize) -> Result<usize, SettingsError> {
        let Some(value) = self.get(name) else {
            return Ok(default);
        };
        value.trim().parse().map_err(|_| SettingsError::Value {
            variable: name.to_owned(),
            value,
            wanted: "use a whole number",
        })
    }

    fn millis(&self, name: &str, default: Duration) -> Result<Duration, SettingsError> {
        let default = usize::try_from(default.as_millis()).unwrap_or(usize::MAX);
        Ok(Duration::from_millis(self.number(name, default)? as u64))
    }
}

/// Appends `path` to the path of the URL (OTLP exporter configuration, Endpoint URLs for
/// OTLP/HTTP).
fn join_path(base: &str, path: &str) -> Option<Url> {
    let mut url = Url::parse(base.trim())
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"))?;
    if !path.is_empty() {
        let whole = format!("{}/{path}", url.path().trim_end_matches('/'));
        url.set_path(&whole);
    }
    Some(url)
}

/// Parses `k=v,k=v` with percent-encoded values, as in W3C baggage.
fn pairs(text: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| {
        let text = text.trim().replace('+', "%2B");
        url::form_urlencoded::parse(text.as_bytes())
            .map(|(key, _)| key.into_owned())
            .next()
            .unwrap_or_default()
    };
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| {
            (
                key.trim().to_owned(),
                decoded(&value.replace('&', "%26").replace('=', "%3D")),
            )
        })
        .filter(|(key, _)| !key.is_empty())
        .collect()
}

#[cfg(test)]
mod tests;
