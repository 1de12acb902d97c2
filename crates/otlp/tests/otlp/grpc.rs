//! Spans, metrics and log records at a collector over gRPC, from a batch processor whose thread has
//! no runtime.

mod collector;

use std::path::Path;
use std::time::Duration;

use collector::Collector;
use fanlight_otlp::{
    ExportSettings, Guard, LogExport, OtlpProtocol, OtlpTarget, StartError, TlsFiles,
};
use fanlight_protocol::Method;
use fanlight_telemetry::metrics::DropReason;
use fanlight_telemetry::{
    Arrival, BackendInfo, Carriers, Departure, Endpoint, Headers, Moment, Outcome, Settings,
    Target, Telemetry, TrustInbound,
};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use tonic::Code;

const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const BOUND: Duration = Duration::from_secs(10);

fn target(endpoint: &str) -> OtlpTarget {
    OtlpTarget {
        endpoint: endpoint.parse().unwrap(),
        protocol: OtlpProtocol::Grpc,
        headers: vec![("authorization".to_owned(), "Bearer s3cr3t".to_owned())],
        timeout: Duration::from_secs(5),
        tls: TlsFiles::default(),
    }
}

fn start(
    traces: Option<OtlpTarget>,
    metrics: Option<OtlpTarget>,
) -> Result<(Telemetry, Guard), StartError> {
    let export = ExportSettings {
        traces,
        metrics,
        metrics_every: Duration::from_secs(3600),
        ..ExportSettings::default()
    };
    fanlight_otlp::start(Settings::default(), &export)
}

/// Records a call that reaches a server, in the client's trace.
fn call(telemetry: &Telemetry, traceparent: &str) {
    let backend = telemetry.backend(BackendInfo {
        name: "files".to_owned(),
        endpoint: Endpoint::Stdio,
    });
    let headers = Headers {
        traceparent: Some(traceparent),
        ..Headers::default()
    };
    let server = telemetry.server(&Arrival {
        method: &Method::CallTool,
        target: Target::Tool("files__read"),
        id: None,
        received: Moment::now(),
        carriers: Carriers {
            meta: None,
            headers,
            trust: TrustInbound::Trust,
        },
    });
    let departure = Departure {
        method: &Method::CallTool,
        target: Target::Tool("read"),
        id: None,
        attempt: 1,
    };
    server
        .parent()
        .client(&backend, &departure)
        .finish(&Outcome::Finished);
    server.finish(&Outcome::Finished);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn sampled_spans_arrive_once_with_their_parents() {
    let mut collector = Collector::start(Code::Ok).await;
    let (telemetry, guard) = start(Some(target(&collector.endpoint)), None).unwrap();
    call(&telemetry, UNSAMPLED);
    call(&telemetry, SAMPLED);
    assert!(guard.shutdown(BOUND).await);
    let (authorization, request) = collector.traces.recv().await.unwrap();
    assert_eq!(authorization, ["Bearer s3cr3t"]);
    assert!(collector.traces.try_recv().is_err(), "one batch");
    let spans: Vec<_> = request
        .resource_spans
        .iter()
        .flat_map(|r| &r.scope_spans)
        .flat_map(|s| &s.spans)
        .collect();
    assert_eq!(spans.len(), 2, "the trace that is not sampled stays here");
    assert!(
        spans
            .iter()
            .all(|span| hex(&span.trace_id) == SAMPLED[3..35])
    );
    let of = |kind: SpanKind| spans.iter().find(|span| span.kind == kind as i32).unwrap();
    assert_eq!(hex(&of(SpanKind::Server).parent_span_id), &SAMPLED[36..52]);
    assert_eq!(
        of(SpanKind::Client).parent_span_id,
        of(SpanKind::Server).span_id
    );
    assert_eq!(
        telemetry
            .metrics()
            .unwrap()
            .spans_dropped(DropReason::ExportFailed),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_arrive() {
    let mut collector = Collector::start(Code::Ok).await;
    let (telemetry, guard) = start(None, Some(target(&collector.endpoint))).unwrap();
    call(&telemetry, SAMPLED);
    assert!(guard.shutdown(BOUND).await);
    let (authorization, request) = collector.metrics.recv().await.unwrap();
    assert_eq!(authorization, ["Bearer s3cr3t"]);
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    for name in [
        "mcp.server.operation.duration",
        "mcp.client.operation.duration",
    ] {
        assert!(metrics.iter().any(|metric| metric.name == name), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_records_arrive_and_refused_ones_are_counted() {
    for (code, exported, lost) in [(Code::Ok, 2, 0), (Code::InvalidArgument, 0, 2)] {
        let mut collector = Collector::start(code).await;
        let (telemetry, _guard) = start(None, None).unwrap();
        let export = LogExport::start(&target(&collector.endpoint), &telemetry, "test").unwrap();
        export.line(r#"{"event":"request","who":"ann"}"#);
        export.note("checkpoint", "a\nb\n");
        assert_eq!(export.end(BOUND).await, lost == 0);
        assert_eq!((export.exported(), export.lost()), (exported, lost));
        let mut names = Vec::new();
        while names.len() < 2 {
            let (authorization, request) = collector.logs.recv().await.unwrap();
            assert_eq!(authorization, ["Bearer s3cr3t"]);
            let records = &request.resource_logs[0].scope_logs[0].log_records;
            names.extend(records.iter().map(|record| record.event_name.clone()));
        }
        assert_eq!(names, ["test.request", "test.checkpoint"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_spans_are_counted() {
    let collector = Collector::start(Code::InvalidArgument).await;
    let (telemetry, guard) = start(Some(target(&collector.endpoint)), None).unwrap();
    call(&telemetry, SAMPLED);
    guard.shutdown(BOUND).await;
    assert_eq!(
        telemetry
            .metrics()
            .unwrap()
            .spans_dropped(DropReason::ExportFailed),
        2
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_is_bounded_when_the_collector_is_silent() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", silent.local_addr().unwrap());
    let (telemetry, guard) = start(Some(target(&endpoint)), None).unwrap();
    call(&telemetry, SAMPLED);
    let ended = tokio::time::timeout(BOUND, guard.shutdown(Duration::from_millis(200))).await;
    assert_eq!(ended, Ok(false));
}

/// The settings that standard variables make for a collector with an unknown certificate.
fn over_tls(collector: &Collector, protocol: &str, certificate: Option<&Path>) -> ExportSettings {
    let variable = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(collector.endpoint.clone()),
        "OTEL_EXPORTER_OTLP_PROTOCOL" => Some(protocol.to_owned()),
        "OTEL_EXPORTER_OTLP_CERTIFICATE" => certificate.map(|path| path.display().to_string()),
        "OTEL_EXPORTER_OTLP_TIMEOUT" => Some("5000".to_owned()),
        _ => None,
    };
    ExportSettings::from_env(Default::default(), variable).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn collector_certificate_is_verified_with_the_configured_root() {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let file = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("collector-{}.pem", std::process::id()));
    std::fs::write(&file, own.cert.pem()).unwrap();
    for protocol in ["grpc", "http/protobuf"] {
        let mut collector = Collector::start_with_tls(&own).await;
        let start = |certificate| {
            let export = ExportSettings {
                metrics: None,
                ..over_tls(&collector, protocol, certificate)
            };
            fanlight_otlp::start(Settings::default(), &export).unwrap()
        };
        let (telemetry, guard) = start(None);
        call(&telemetry, SAMPLED);
        guard.shutdown(BOUND).await;
        assert_eq!(
            telemetry
                .metrics()
                .unwrap()
                .spans_dropped(DropReason::ExportFailed),
            2,
            "{protocol}: not trusted"
        );
        let (telemetry, guard) = start(Some(file.as_path()));
        call(&telemetry, SAMPLED);
        assert!(guard.shutdown(BOUND).await, "{protocol}");
        assert_eq!(
            telemetry
                .metrics()
                .unwrap()
                .spans_dropped(DropReason::ExportFailed),
            0,
            "{protocol}"
        );
        let (_, request) = collector.traces.recv().await.unwrap();
        assert_eq!(
            request.resource_spans[0].scope_spans[0].spans.len(),
            2,
            "{protocol}"
        );
        assert!(
            collector.traces.try_recv().is_err(),
            "{protocol}: the first way in was none"
        );
    }
    std::fs::remove_file(file).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_tls_files_are_reported() {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let collector = Collector::start_with_tls(&own).await;
    let nonsense = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    for protocol in ["grpc", "http/protobuf"] {
        for (path, why) in [
            (Path::new("/no/such.pem"), "No such file"),
            (&nonsense, "no certificate in PEM"),
        ] {
            let export = over_tls(&collector, protocol, Some(path));
            let error = fanlight_otlp::start(Settings::default(), &export)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(&path.display().to_string()) && error.contains(why),
                "{error}"
            );
        }
        let mut export = over_tls(&collector, protocol, None);
        export.traces.as_mut().unwrap().tls.client_certificate = Some(nonsense.clone());
        let error = fanlight_otlp::start(Settings::default(), &export)
            .unwrap_err()
            .to_string();
        assert!(error.contains("needs its key"), "{error}");
    }
}
