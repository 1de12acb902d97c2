//! What is recorded and where it goes: settings, and the standard `OTEL_*` variables.
//!
//! The variables are read through a function, so that nothing here depends on the process's own
//! environment.
//!
//! Must not know: the configuration file.

use std::path::PathBuf;
use std::time::Duration;

use opentelemetry_sdk::trace::Sampler;
use url::Url;

use crate::metrics::MetricLimits;
use crate::ring::RingLimits;

/// Everything there is to set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether spans are recorded at all. Metrics are counted in any case.
    pub tracing: bool,
    /// The ring of the last traces; none keeps none.
    pub ring: Option<RingLimits>,
    /// Print each finished trace to the standard error stream.
    pub console: bool,
    /// Append ended spans to a file.
    pub file: Option<FileSettings>,
    /// What goes to a collector.
    pub export: ExportSettings,
    /// How many names and series metrics have at most.
    pub metrics: MetricLimits,
    /// `service.version`.
    pub service_version: String,
}

impl Default for Settings {
    /// The ring, and nothing else.
    fn default() -> Self {
        Self {
            tracing: true,
            ring: Some(RingLimits::default()),
            console: false,
            file: None,
            export: ExportSettings::default(),
            metrics: MetricLimits::default(),
            service_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

impl Settings {
    /// Whether spans go anywhere but to the ring.
    pub(crate) fn delivers_spans(&self) -> bool {
        self.console || self.file.is_some() || self.export.traces.is_some()
    }
}

/// `--trace-file`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// The file.
    pub path: PathBuf,
    /// The size in bytes at which a new one is begun.
    pub max_bytes: u64,
    /// How many earlier ones are kept.
    pub kept: usize,
}

impl FileSettings {
    /// Files of 64 MiB, three of them besides the one that is written.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, max_bytes: 64 * 1024 * 1024, kept: 3 }
    }
}

/// What goes to a collector, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportSettings {
    /// Where sampled spans go; none goes nowhere.
    pub traces: Option<OtlpTarget>,
    /// Where metrics go.
    pub metrics: Option<OtlpTarget>,
    /// How often metrics go.
    pub metrics_every: Duration,
    /// Which traces are sampled.
    pub sampling: Sampling,
    /// More resource attributes; `service.name` among them replaces `fanlight`.
    pub resource: Vec<(String, String)>,
    /// Most spans that wait to be exported.
    pub queue: usize,
    /// Most spans in one request.
    pub batch: usize,
    /// How long spans wait for others before they go.
    pub delay: Duration,
}

impl Default for ExportSettings {
    fn default() -> Self {
        Self {
            traces: None,
            metrics: None,
            metrics_every: Duration::from_secs(60),
            sampling: Sampling::ParentBasedAlwaysOn,
            resource: Vec::new(),
            queue: 2048,
            batch: 512,
            delay: Duration::from_secs(5),
        }
    }
}

/// A collector's endpoint for one signal, OTLP over HTTP/protobuf.
#[derive(Clone, PartialEq, Eq)]
pub struct OtlpTarget {
    /// The whole URL, e.g. `http://127.0.0.1:4318/v1/traces`.
    pub endpoint: Url,
    /// Headers of each request. Secret: never shown.
    pub headers: Vec<(String, String)>,
    /// How long one export may take, retries included.
    pub timeout: Duration,
}

impl OtlpTarget {
    /// The endpoint without what could be secret.
    #[must_use]
    pub fn shown(&self) -> String {
        let origin = self.endpoint.origin().ascii_serialization();
        format!("{origin}{}", self.endpoint.path())
    }
}

impl std::fmt::Debug for OtlpTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let headers: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("OtlpTarget").field("endpoint", &self.shown()).field("headers", &headers).finish()
    }
}

/// Which traces are sampled, by the names of `OTEL_TRACES_SAMPLER`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sampling {
    /// `always_on`
    AlwaysOn,
    /// `always_off`
    AlwaysOff,
    /// `traceidratio`
    Ratio(f64),
    /// `parentbased_always_on`
    ParentBasedAlwaysOn,
    /// `parentbased_always_off`
    ParentBasedAlwaysOff,
    /// `parentbased_traceidratio`
    ParentBasedRatio(f64),
}

impl Sampling {
    pub(crate) fn sampler(self) -> Sampler {
        match self {
            Self::AlwaysOn => Sampler::AlwaysOn,
            Self::AlwaysOff => Sampler::AlwaysOff,
            Self::Ratio(ratio) => Sampler::TraceIdRatioBased(ratio),
            Self::ParentBasedAlwaysOn => Sampler::ParentBased(Box::new(Sampler::AlwaysOn)),
            Self::ParentBasedAlwaysOff => Sampler::ParentBased(Box::new(Sampler::AlwaysOff)),
            Self::ParentBasedRatio(ratio) => Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(ratio))),
        }
    }
}

/// A setting that cannot be followed. Names the variable; shows no value that could be secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// Not a URL.
    #[error("{variable} is no http or https URL: set it to e.g. http://127.0.0.1:4318")]
    Endpoint {
        /// The variable or setting.
        variable: String,
    },
    /// A protocol this program does not speak.
    #[error("{variable} is {value:?}, which Fanlight does not speak: use http/protobuf (port 4318 as a rule)")]
    Protocol {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
    },
    /// Not a number that makes sense there.
    #[error("{variable} is {value:?}: {wanted}")]
    Value {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
        /// What it can be.
        wanted: &'static str,
    },
}

impl ExportSettings {
    /// What the `OTEL_*` variables say, read through `variable`. `endpoint` is the collector of the
    /// configuration file and goes before the variables. Without either nothing is exported, unless
    /// `OTEL_TRACES_EXPORTER` or `OTEL_METRICS_EXPORTER` says `otlp`.
    pub fn from_env(endpoint: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<Self, SettingsError> {
        let env = Env(&|name: &str| variable(name).filter(|value| !value.trim().is_empty()));
        let mut settings = Self {
            sampling: env.sampling()?,
            resource: env.pairs("OTEL_RESOURCE_ATTRIBUTES"),
            queue: env.number("OTEL_BSP_MAX_QUEUE_SIZE", 2048)?.max(1),
            batch: env.number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512)?.max(1),
            delay: env.millis("OTEL_BSP_SCHEDULE_DELAY", 5000)?,
            metrics_every: env.millis("OTEL_METRIC_EXPORT_INTERVAL", 60_000)?.max(Duration::from_millis(100)),
            ..Self::default()
        };
        settings.batch = settings.batch.min(settings.queue);
        if let Some(name) = env.get("OTEL_SERVICE_NAME") {
            settings.resource.retain(|(key, _)| key != "service.name");
            settings.resource.push(("service.name".to_owned(), name));
        }
        if env.get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(settings);
        }
        settings.traces = env.target(endpoint, "TRACES", "v1/traces")?;
        settings.metrics = env.target(endpoint, "METRICS", "v1/metrics")?;
        Ok(settings)
    }
}

struct Env<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Env<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name)
    }

    /// The variable for one signal, else the one for all; with its name.
    fn signal(&self, signal: &str, what: &str) -> Option<(String, String)> {
        let own = format!("OTEL_EXPORTER_OTLP_{signal}_{what}");
        let common = format!("OTEL_EXPORTER_OTLP_{what}");
        [own, common].into_iter().find_map(|name| self.get(&name).map(|value| (name, value)))
    }

    fn target(&self, configured: Option<&str>, signal: &str, path: &str) -> Result<Option<OtlpTarget>, SettingsError> {
        let exporter = format!("OTEL_{signal}_EXPORTER");
        let wanted = match self.get(&exporter).as_deref() {
            None => None,
            Some("none") => return Ok(None),
            Some("otlp") => Some("http://localhost:4318"),
            Some(other) => {
                let value = other.to_owned();
                return Err(SettingsError::Value { variable: exporter, value, wanted: "use otlp or none" });
            }
        };
        let own = format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT");
        let common = "OTEL_EXPORTER_OTLP_ENDPOINT";
        let endpoint = if let Some(base) = configured {
            below(base, path).ok_or("the configured endpoint".to_owned())
        } else if let Some(whole) = self.get(&own) {
            below(&whole, "").ok_or(own)
        } else if let Some(base) = self.get(common) {
            below(&base, path).ok_or(common.to_owned())
        } else if let Some(default) = wanted {
            below(default, path).ok_or_else(String::new)
        } else {
            return Ok(None);
        };
        let endpoint = endpoint.map_err(|variable| SettingsError::Endpoint { variable })?;
        if let Some((variable, value)) = self.signal(signal, "PROTOCOL").filter(|(_, value)| value != "http/protobuf") {
            return Err(SettingsError::Protocol { variable, value });
        }
        let headers = self.signal(signal, "HEADERS").map(|(_, text)| pairs(&text)).unwrap_or_default();
        let timeout = match self.signal(signal, "TIMEOUT") {
            Some((name, _)) => self.millis(&name, 10_000)?,
            None => Duration::from_secs(10),
        };
        Ok(Some(OtlpTarget { endpoint, headers, timeout }))
    }

    fn sampling(&self) -> Result<Sampling, SettingsError> {
        let variable = "OTEL_TRACES_SAMPLER";
        let ratio = || match self.get("OTEL_TRACES_SAMPLER_ARG") {
            None => Ok(1.0),
            Some(value) => value.trim().parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).ok_or_else(|| {
                let variable = "OTEL_TRACES_SAMPLER_ARG".to_owned();
                SettingsError::Value { variable, value, wanted: "use a number from 0 to 1" }
            }),
        };
        Ok(match self.get(variable).as_deref() {
            None | Some("parentbased_always_on") => Sampling::ParentBasedAlwaysOn,
            Some("parentbased_always_off") => Sampling::ParentBasedAlwaysOff,
            Some("parentbased_traceidratio") => Sampling::ParentBasedRatio(ratio()?),
            Some("always_on") => Sampling::AlwaysOn,
            Some("always_off") => Sampling::AlwaysOff,
            Some("traceidratio") => Sampling::Ratio(ratio()?),
            Some(other) => {
                return Err(SettingsError::Value {
                    variable: variable.to_owned(),
                    value: other.to_owned(),
                    wanted: "use always_on, always_off or traceidratio, or one of them after parentbased_",
                });
            }
        })
    }

    fn number(&self, name: &str, default: usize) -> Result<usize, SettingsError> {
        let Some(value) = self.get(name) else { return Ok(default) };
        value.trim().parse().map_err(|_| SettingsError::Value {
            variable: name.to_owned(),
            value,
            wanted: "use a whole number",
        })
    }

    fn millis(&self, name: &str, default: u64) -> Result<Duration, SettingsError> {
        let default = usize::try_from(default).unwrap_or(usize::MAX);
        Ok(Duration::from_millis(self.number(name, default)? as u64))
    }

    fn pairs(&self, name: &str) -> Vec<(String, String)> {
        self.get(name).map(|text| pairs(&text)).unwrap_or_default()
    }
}

/// `path` appended to the URL's own (OTLP exporter configuration, Endpoint URLs for OTLP/HTTP).
fn below(base: &str, path: &str) -> Option<Url> {
    let mut url = Url::parse(base.trim()).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    if !path.is_empty() {
        let whole = format!("{}/{path}", url.path().trim_end_matches('/'));
        url.set_path(&whole);
    }
    Some(url)
}

/// `k=v,k=v`, values percent-encoded, as in W3C baggage.
fn pairs(text: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| {
        let text = text.trim().replace('+', "%2B");
        url::form_urlencoded::parse(text.as_bytes()).map(|(key, _)| key.into_owned()).next().unwrap_or_default()
    };
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.trim().to_owned(), decoded(&value.replace('&', "%26").replace('=', "%3D"))))
        .filter(|(key, _)| !key.is_empty())
        .collect()
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
