//! A small OTLP/gRPC collector on loopback: tonic's services, which record their requests.

use std::sync::Arc;

use http_body_util::BodyExt as _;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use prost::Message as _;
use rcgen::{CertifiedKey, KeyPair};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{self, ServerConfig};
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::{Code, Request, Response, Status};

/// The collector; dropping it ends it.
pub(crate) struct Collector {
    /// `http://127.0.0.1:…`
    pub(crate) endpoint: String,
    /// Trace requests with their `authorization`.
    pub(crate) traces: mpsc::Receiver<(Vec<String>, ExportTraceServiceRequest)>,
    /// Metric requests with their `authorization`.
    pub(crate) metrics: mpsc::Receiver<(Vec<String>, ExportMetricsServiceRequest)>,
    /// Log requests with their `authorization`.
    pub(crate) logs: mpsc::Receiver<(Vec<String>, ExportLogsServiceRequest)>,
    task: JoinHandle<()>,
}

#[derive(Clone)]
struct Answers<T> {
    code: Code,
    got: mpsc::Sender<(Vec<String>, T)>,
}

impl<T> Answers<T> {
    fn answer<R: Default>(&self, request: Request<T>) -> Result<Response<R>, Status> {
        let values = request.metadata().get_all("authorization").iter();
        let authorization = values
            .map(|value| value.to_str().expect("text").to_owned())
            .collect();
        // Requests beyond the capacity of the channel are dropped.
        let _ = self.got.try_send((authorization, request.into_inner()));
        if self.code == Code::Ok {
            Ok(Response::new(R::default()))
        } else {
            Err(Status::new(self.code, "no"))
        }
    }
}

#[tonic::async_trait]
impl TraceService for Answers<ExportTraceServiceRequest> {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.answer(request)
    }
}

#[tonic::async_trait]
impl MetricsService for Answers<ExportMetricsServiceRequest> {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        self.answer(request)
    }
}

#[tonic::async_trait]
impl LogsService for Answers<ExportLogsServiceRequest> {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        self.answer(request)
    }
}

impl Collector {
    /// Starts a collector that answers with `code`.
    pub(crate) async fn start(code: Code) -> Self {
        Self::listen(code, None).await
    }

    /// Starts a collector with TLS and this certificate, which also accepts traces as OTLP over
    /// HTTP.
    pub(crate) async fn start_with_tls(certificate: &CertifiedKey<KeyPair>) -> Self {
        let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der()).into();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder
                    .with_no_client_auth()
                    .with_single_cert(vec![certificate.cert.der().clone()], key)
            })
            .expect("a certificate and its key");
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self::listen(Code::Ok, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn listen(code: Code, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let scheme = if tls.is_some() { "https" } else { "http" };
        let endpoint = format!("{scheme}://{}", listener.local_addr().expect("an address"));
        let (got_traces, traces) = mpsc::channel(64);
        let (got_metrics, metrics) = mpsc::channel(64);
        let (got_logs, logs) = mpsc::channel(64);
        let over_http = got_traces.clone();
        let for_traces = TraceServiceServer::new(Answers {
            code,
            got: got_traces,
        });
        let for_metrics = MetricsServiceServer::new(Answers {
            code,
            got: got_metrics,
        });
        let for_logs = LogsServiceServer::new(Answers {
            code,
            got: got_logs,
        });
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (for_traces, for_metrics, for_logs) =
                    (for_traces.clone(), for_metrics.clone(), for_logs.clone());
                let over_http = over_http.clone();
                let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                    let (mut for_traces, mut for_metrics) =
                        (for_traces.clone(), for_metrics.clone());
                    let mut for_logs = for_logs.clone();
                    let over_http = over_http.clone();
                    async move {
                        if request.uri().path() == "/v1/traces" {
                            return Ok(take_http(request, &over_http).await);
                        }
                        let request = request.map(|body| body.map_err(std::io::Error::other));
                        if request.uri().path().contains(".trace.") {
                            for_traces.call(request).await
                        } else if request.uri().path().contains(".logs.") {
                            for_logs.call(request).await
                        } else {
                            for_metrics.call(request).await
                        }
                    }
                });
                let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                match tls.clone() {
                    None => drop(tokio::spawn(
                        http2.serve_connection(TokioIo::new(stream), service),
                    )),
                    Some(tls) => drop(tokio::spawn(async move {
                        // A client that does not trust the certificate hangs up.
                        if let Ok(stream) = tls.accept(stream).await {
                            let _ = http2.serve_connection(TokioIo::new(stream), service).await;
                        }
                    })),
                }
            }
        });
        Self {
            endpoint,
            traces,
            metrics,
            logs,
            task,
        }
    }
}

async fn take_http(
    request: hyper::Request<hyper::body::Incoming>,
    got: &mpsc::Sender<(Vec<String>, ExportTraceServiceRequest)>,
) -> hyper::Response<Body> {
    let body = request
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    let _ = got.try_send((
        Vec::new(),
        ExportTraceServiceRequest::decode(body).expect("Protobuf"),
    ));
    hyper::Response::new(Body::empty())
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}
