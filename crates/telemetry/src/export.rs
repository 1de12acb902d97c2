//! The OTLP exporter of spans, its batch processor, and the HTTP client under both signals.
//!
//! Protocol and client are ours to say and not left to the exporter's choice: which they would be
//! depends on the features that any crate of the build switches on. An asynchronous client panics on
//! the batch processor's thread, which has no runtime; this one does its work on the runtime it was
//! made in, and so does a channel of gRPC. Their requests open no spans.
//!
//! Must not know: what the spans say.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use opentelemetry_http::{HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SpanProcessor as _};
use tokio::runtime::Handle;

use crate::grpc;
use crate::metrics::Metrics;
use crate::pipeline::{Counted, Gate};
use crate::settings::{ExportSettings, OtlpProtocol, OtlpTarget};
use crate::telemetry::StartError;
use crate::tls;

/// Most bytes of a collector's answer that are read.
const LONGEST_ANSWER: usize = 64 * 1024;

/// The way to the collector for spans.
pub(crate) fn gate(
    settings: &ExportSettings,
    target: &OtlpTarget,
    resource: &Resource,
    handle: &Handle,
    metrics: &Arc<Metrics>,
) -> Result<Gate, StartError> {
    let exporter = match target.protocol {
        OtlpProtocol::HttpProtobuf => SpanExporter::builder()
            .with_http()
            .with_http_client(Client::new(target, handle.clone())?)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(target.endpoint.as_str())
            .with_timeout(target.timeout)
            .build(),
        OtlpProtocol::Grpc => SpanExporter::builder()
            .with_tonic()
            .with_channel(grpc::channel(target, handle)?)
            .with_metadata(grpc::metadata(target)?)
            .with_timeout(target.timeout)
            .build(),
    };
    let exporter = exporter.map_err(|error| StartError::Exporter { reason: error.to_string() })?;
    let inside = Arc::new(AtomicUsize::new(0));
    let counted = Counted { exporter, inside: Arc::clone(&inside), metrics: Arc::clone(metrics) };
    let config = BatchConfigBuilder::default()
        .with_max_queue_size(settings.queue)
        .with_max_export_batch_size(settings.batch)
        .with_scheduled_delay(settings.delay)
        .build();
    let mut next = Box::new(BatchSpanProcessor::builder(counted).with_batch_config(config).build());
    next.set_resource(resource);
    Ok(Gate { next, inside, capacity: settings.queue, metrics: Arc::clone(metrics) })
}

/// An HTTP client that can be used from any thread.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    headers: HeaderMap,
    handle: Handle,
}

impl Client {
    pub(crate) fn new(target: &OtlpTarget, handle: Handle) -> Result<Self, StartError> {
        let mut http = reqwest::Client::builder()
            .timeout(target.timeout)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("fanlight/", env!("CARGO_PKG_VERSION")));
        if target.endpoint.scheme() == "https" {
            http = tls::for_http(&target.tls, http)?;
        }
        let http = http.build().map_err(|error| StartError::Exporter { reason: error.to_string() })?;
        let headers = headers(target)?;
        Ok(Self { http, headers, handle })
    }
}

/// What each request to the collector has besides.
pub(crate) fn headers(target: &OtlpTarget) -> Result<HeaderMap, StartError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &target.headers {
        let header = HeaderName::try_from(name).ok().zip(HeaderValue::try_from(value).ok());
        let (name, mut value) = header.ok_or_else(|| StartError::Header { name: name.clone() })?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (mut parts, body) = request.into_parts();
        parts.headers.extend(self.headers.clone());
        let request = reqwest::Request::try_from(Request::from_parts(parts, body))?;
        let http = self.http.clone();
        self.handle.spawn(async move { exchange(&http, request).await }).await?
    }
}

async fn exchange(http: &reqwest::Client, request: reqwest::Request) -> Result<Response<Bytes>, HttpError> {
    // The URL could hold credentials; who reads the error knows the endpoint.
    let mut answer = http.execute(request).await.map_err(reqwest::Error::without_url)?;
    let mut body = BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
        if body.len() + chunk.len() > LONGEST_ANSWER {
            return Err("the collector's answer is too long".into());
        }
        body.extend_from_slice(&chunk);
    }
    let mut response = Response::new(body.freeze());
    *response.status_mut() = answer.status();
    *response.headers_mut() = answer.headers().clone();
    Ok(response)
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}
