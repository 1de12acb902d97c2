//! The handle with which requests record spans, and the guard that ends telemetry.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry_sdk::Resource;

use crate::pipeline::Recorder;
use crate::recording::Tap;
use crate::{
    Arrival, BackendInfo, BackendTelemetry, ContentSettings, ContentWindow, Metrics, Parent,
    Propagators, Ring, RunningRequest, ServerSpan,
};

/// Records spans and metrics. Cheap to clone. Telemetry that is off records nothing and allocates
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Telemetry(Option<Arc<Shared>>);

#[derive(Debug)]
struct Shared {
    recorder: Option<Arc<Recorder>>,
    ring: Option<Arc<Ring>>,
    metrics: Arc<Metrics>,
    resource: Resource,
    propagators: Propagators,
    tap: Arc<Tap>,
}

impl Telemetry {
    /// Telemetry that is off.
    pub fn off() -> Self {
        Self(None)
    }

    pub(crate) fn new(
        recorder: Option<Arc<Recorder>>,
        ring: Option<Arc<Ring>>,
        metrics: Arc<Metrics>,
        resource: Resource,
        propagators: Propagators,
    ) -> Self {
        Self(Some(Arc::new(Shared {
            recorder,
            ring,
            metrics,
            resource,
            propagators,
            tap: Arc::default(),
        })))
    }

    /// Begins the span of a message received from a client.
    pub fn server(&self, message: &Arrival<'_>) -> ServerSpan {
        let registry = self.metrics().cloned();
        let parent = match self.recorder() {
            Some(recorder) => {
                let span = ServerSpan::begin(recorder, message, None, None);
                span.list_as_running();
                Parent::from_span(span)
            }
            None => {
                let propagators = self
                    .0
                    .as_ref()
                    .map(|shared| shared.propagators)
                    .unwrap_or_default();
                propagators
                    .header(&message.carriers)
                    .map_or_else(Parent::default, Parent::forwarding)
            }
        };
        ServerSpan::new(parent, registry, None, message)
    }

    /// The parent of work that belongs to no request, such as connecting at the start or refreshing
    /// a catalogue. Its spans begin traces of their own.
    pub fn root(&self) -> Parent {
        let recorder = self.recorder().cloned();
        recorder.map_or_else(Parent::default, Parent::root)
    }

    /// The telemetry of one server. The caller creates it once per server.
    pub fn backend(&self, info: BackendInfo) -> BackendTelemetry {
        BackendTelemetry::new(info, self.metrics().cloned(), self.tap().cloned())
    }

    /// The running requests of clients, oldest first. Empty if spans are not recorded.
    pub fn running(&self) -> Vec<RunningRequest> {
        self.recorder()
            .map(|recorder| recorder.running.views())
            .unwrap_or_default()
    }

    /// Cancels the running request whose span has this id, in hexadecimal. Returns the name of the
    /// request, if it was running.
    pub fn cancel(&self, span_id: &str) -> Option<String> {
        self.recorder()?.running.cancel(span_id)
    }

    /// Replaces the rules for which content is kept.
    pub fn set_content(&self, settings: ContentSettings) {
        if let Some(recorder) = self.recorder() {
            recorder.content.set(settings);
        }
    }

    /// The rules for which content is kept, unless nothing is recorded.
    pub fn content(&self) -> Option<ContentSettings> {
        Some(self.recorder()?.content.settings())
    }

    /// Keeps the content of some calls for a time. A time that is over ends it. Returns false if the
    /// server or endpoint has a level of its own, which holds.
    pub fn keep_content(&self, window: ContentWindow) -> bool {
        let recorder = self.recorder();
        recorder.is_none_or(|recorder| recorder.content.open(window))
    }

    /// The times during which operators keep content.
    pub fn content_windows(&self) -> Vec<ContentWindow> {
        let recorder = self.recorder();
        recorder.map_or_else(Vec::new, |recorder| recorder.content.windows())
    }

    fn recorder(&self) -> Option<&Arc<Recorder>> {
        self.0.as_ref()?.recorder.as_ref()
    }

    /// The ring of recent traces, if there is one.
    pub fn ring(&self) -> Option<&Arc<Ring>> {
        self.0.as_ref()?.ring.as_ref()
    }

    /// The metrics, unless telemetry is off.
    pub fn metrics(&self) -> Option<&Arc<Metrics>> {
        self.0.as_ref().map(|shared| &shared.metrics)
    }

    /// The tap of recordings, unless telemetry is off.
    pub fn tap(&self) -> Option<&Arc<Tap>> {
        self.0.as_ref().map(|shared| &shared.tap)
    }

    /// The resource of all spans and metrics. OTLP-JSON contains it.
    pub fn resource(&self) -> Option<&Resource> {
        self.0.as_ref().map(|shared| &shared.resource)
    }

    /// The metrics in the Prometheus text format; empty if telemetry is off.
    pub fn prometheus(&self) -> String {
        self.0
            .as_ref()
            .map(|shared| shared.metrics.prometheus(&shared.resource))
            .unwrap_or_default()
    }
}

/// Ends telemetry when the program ends.
#[derive(Debug)]
pub struct Guard(Option<Arc<Recorder>>);

impl Guard {
    pub(crate) fn new(recorder: Option<Arc<Recorder>>) -> Self {
        Self(recorder)
    }

    /// Delivers queued spans and ends, within about `bound`. Returns whether all spans were
    /// delivered. Spans that end afterwards are lost.
    pub async fn shutdown(self, bound: Duration) -> bool {
        let Some(recorder) = self.0 else { return true };
        // The SDK blocks, and its exporter needs this runtime meanwhile.
        let delivered = tokio::task::spawn_blocking(move || recorder.pipeline.shutdown(bound));
        match tokio::time::timeout(bound + Duration::from_millis(500), delivered).await {
            Ok(Ok(Ok(()))) => true,
            Ok(Ok(Err(error))) => {
                tracing::warn!(%error, "not all traces could be delivered");
                false
            }
            Ok(Err(_)) | Err(_) => false,
        }
    }
}
