//! Spans, metrics and log records at a collector, decoded from the Protobuf of real requests.
//!
//! This build of the crate has the exporter's features `http-json` and `reqwest-client`. If the
//! exporter chose, they would change its protocol and panic on its thread.

use std::time::Duration;

use crate::receiver::{Received, Receiver};
use fanlight_otlp::{ExportSettings, Guard, LogExport, OtlpProtocol, OtlpTarget, TlsFiles};
use fanlight_protocol::{Json, Method, Response, Revision};
use fanlight_telemetry::metrics::DropReason;
use fanlight_telemetry::ring::Query;
use fanlight_telemetry::{
    Arrival, BackendInfo, BackendTelemetry, BatchSettings, Carriers, ContentSettings, Departure,
    Endpoint, ErrorType, Event, Headers, Level, Moment, Network, Outcome, Sampling, Settings,
    Target, Telemetry, TrustInbound,
};
use hyper::StatusCode;
use hyper::body::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message as _;

const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
const BOUND: Duration = Duration::from_secs(10);

fn target(receiver: &Receiver, path: &str) -> OtlpTarget {
    OtlpTarget {
        endpoint: format!("{}{path}", receiver.endpoint).parse().unwrap(),
        protocol: OtlpProtocol::HttpProtobuf,
        headers: vec![("authorization".to_owned(), "Bearer s3cr3t".to_owned())],
        timeout: Duration::from_secs(5),
        tls: TlsFiles::default(),
    }
}

fn start(export: ExportSettings) -> (Telemetry, Guard) {
    let content = ContentSettings {
        level: Level::On,
        is_chosen: true,
        ..ContentSettings::default()
    };
    let settings = Settings {
        content,
        ..Settings::default()
    };
    fanlight_otlp::start(settings, &export).unwrap()
}

fn traces_to(receiver: &Receiver) -> ExportSettings {
    ExportSettings {
        traces: Some(target(receiver, "/v1/traces")),
        ..ExportSettings::default()
    }
}

fn backend(telemetry: &Telemetry) -> BackendTelemetry {
    telemetry.backend(BackendInfo {
        name: "files".to_owned(),
        endpoint: Endpoint::Http {
            host: "files.internal".to_owned(),
            port: 8080,
        },
    })
}

fn arrival<'a>(meta: Option<&'a Json>, header: Option<&'a str>) -> Arrival<'a> {
    let headers = Headers {
        traceparent: header,
        ..Headers::default()
    };
    Arrival {
        method: &Method::CallTool,
        target: Target::Tool("files__read"),
        id: None,
        received: Moment::now(),
        carriers: Carriers {
            meta,
            headers,
            trust: TrustInbound::Trust,
        },
    }
}

const DEPARTURE: Departure<'static> = Departure {
    method: &Method::CallTool,
    target: Target::Tool("read"),
    id: None,
    attempt: 1,
};

async fn exported(receiver: &mut Receiver) -> Vec<Span> {
    let mut spans = Vec::new();
    while let Ok(request) = receiver.requests.try_recv() {
        assert_eq!(
            (request.path.as_str(), request.content_type.as_str()),
            ("/v1/traces", "application/x-protobuf")
        );
        assert_eq!(request.authorization.as_deref(), Some("Bearer s3cr3t"));
        for resource in ExportTraceServiceRequest::decode(request.body)
            .unwrap()
            .resource_spans
        {
            let attributes = resource.resource.unwrap().attributes;
            for key in ["service.name", "service.instance.id"] {
                assert!(attributes.iter().any(|kv| kv.key == key), "{key}");
            }
            spans.extend(
                resource
                    .scope_spans
                    .into_iter()
                    .flat_map(|scope| scope.spans),
            );
        }
    }
    spans
}

fn attribute(span: &Span, key: &str) -> Option<String> {
    let mut found = span.attributes.iter().filter(|kv| kv.key == key);
    let value = found.next()?.value.clone()?.value?;
    assert!(found.next().is_none(), "{key} is there twice");
    Some(match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        Value::BoolValue(yes) => yes.to_string(),
        other => format!("{other:?}"),
    })
}

fn named<'a>(spans: &'a [Span], name: &str, kind: SpanKind) -> &'a Span {
    let found: Vec<&Span> = spans
        .iter()
        .filter(|span| span.name == name && span.kind == kind as i32)
        .collect();
    assert_eq!(
        found.len(),
        1,
        "{name} {kind:?} among {:?}",
        spans.iter().map(|span| &span.name).collect::<Vec<_>>()
    );
    found[0]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn call_with_elicitation_is_one_trace() {
    let mut receiver = Receiver::start(StatusCode::OK).await;
    let (telemetry, guard) = start(traces_to(&receiver));
    let backend = backend(&telemetry);
    let meta = Json::literal(
        r#"{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","tracestate":"v=1","baggage":"b=1"}"#,
    );
    let id = Json::literal("7");
    let arrival = Arrival {
        id: Some(&id),
        ..arrival(Some(&meta), Some(UNSAMPLED))
    };
    let mut server = telemetry.server(&arrival);
    server.set_network(Network::Http {
        version: "1.1",
        client: Some("127.0.0.1:4000".parse().unwrap()),
    });
    server.set_revision(Revision::V2025_11_25);
    server.set_session("s1");
    let parent = server.parent();
    parent.cache_hit(false);
    let connect = parent.begin_connecting(&backend);
    let initialize = Departure {
        method: &Method::Initialize,
        target: Target::None,
        id: Some((&id).into()),
        attempt: 1,
    };
    connect
        .parent()
        .client(&backend, &initialize)
        .finish(&Outcome::Finished);
    connect.finish(&Outcome::Finished);
    let client = parent.client(
        &backend,
        &Departure {
            id: Some((&id).into()),
            ..DEPARTURE
        },
    );
    client.keep_params(
        &Method::CallTool,
        &Json::literal(r#"{"arguments":{"path":"x","password":"s3"}}"#),
    );
    let sent = client.propagation();
    let none = Json::literal("{}");
    let request = Arrival {
        method: &Method::Elicit,
        target: Target::None,
        id: Some(&id),
        received: Moment::now(),
        carriers: Carriers {
            meta: Some(&none),
            ..Carriers::default()
        },
    };
    let elicitation = client.parent().server(&backend, &request);
    let sent_on = Departure {
        method: &Method::Elicit,
        target: Target::None,
        id: Some((&id).into()),
        attempt: 1,
    };
    elicitation
        .parent()
        .to_client(&sent_on)
        .finish(&Outcome::Finished);
    elicitation.finish(&Outcome::Finished);
    for _ in 0..40 {
        parent.event(&Event::Progress {
            progress: Some(1.0),
            total: None,
        });
    }
    client.end_with_answer(
        &Method::CallTool,
        &Response::from_result(&Json::literal(r#"{"isError":true}"#)),
    );
    server.finish(&Outcome::Failed {
        error: ErrorType::JsonRpc(-32602),
        message: Some("no such path"),
    });
    assert!(guard.shutdown(BOUND).await);

    let spans = exported(&mut receiver).await;
    assert_eq!(spans.len(), 6);
    assert!(
        spans
            .iter()
            .all(|span| hex(&span.trace_id) == SAMPLED[3..35] && span.trace_state == "v=1")
    );
    let server = named(&spans, "tools/call files__read", SpanKind::Server);
    assert_eq!(hex(&server.parent_span_id), &SAMPLED[36..52]);
    assert_eq!(server.flags & 0x300, 0x300, "its parent is remote");
    assert_eq!(server.links.len(), 1);
    assert_eq!(hex(&server.links[0].trace_id), &UNSAMPLED[3..35]);
    assert_eq!((server.events.len(), server.dropped_events_count), (32, 8));
    // The mistake is the client's, so the span has not failed.
    assert_eq!(
        (
            server.status.as_ref().map_or(0, |status| status.code),
            attribute(server, "error.type")
        ),
        (0, None)
    );
    for (key, value) in [
        ("mcp.method.name", "tools/call"),
        ("gen_ai.tool.name", "files__read"),
        ("gen_ai.operation.name", "execute_tool"),
        ("jsonrpc.request.id", "7"),
        ("mcp.protocol.version", "2025-11-25"),
        ("mcp.session.id", "e8bc163c82eee187"),
        ("network.transport", "tcp"),
        ("network.protocol.version", "1.1"),
        ("client.address", "127.0.0.1"),
        ("client.port", "4000"),
        ("fanlight.cache.hit", "false"),
        ("rpc.response.status_code", "-32602"),
        ("fanlight.error.message", "no such path"),
    ] {
        assert_eq!(attribute(server, key).as_deref(), Some(value), "{key}");
    }
    let client = named(&spans, "tools/call read", SpanKind::Client);
    assert_eq!(client.parent_span_id, server.span_id);
    assert_eq!(client.flags & 0x300, 0x100, "its parent is local");
    assert_eq!(
        attribute(client, "error.type").as_deref(),
        Some("tool_error")
    );
    assert_eq!(attribute(client, "fanlight.attempt").as_deref(), Some("1"));
    assert_eq!(
        attribute(client, "server.address").as_deref(),
        Some("files.internal")
    );
    assert_eq!(
        attribute(client, "gen_ai.tool.call.arguments").as_deref(),
        Some(r#"{"path":"x","password":"[redacted]"}"#)
    );
    assert_eq!(
        attribute(client, "gen_ai.tool.call.result").as_deref(),
        Some(r#"{"isError":true}"#)
    );
    let connect = named(&spans, "connect", SpanKind::Internal);
    assert_eq!(connect.parent_span_id, server.span_id);
    assert_eq!(
        named(&spans, "initialize", SpanKind::Client).parent_span_id,
        connect.span_id
    );
    let elicitation = named(&spans, "elicitation/create", SpanKind::Server);
    assert_eq!(elicitation.parent_span_id, client.span_id);
    assert_eq!(
        named(&spans, "elicitation/create", SpanKind::Client).parent_span_id,
        elicitation.span_id
    );
    let headers: Vec<(&str, String)> = sent
        .headers()
        .map(|(key, value)| (key, value.to_owned()))
        .collect();
    let traceparent = format!("{}-{}-01", &SAMPLED[..35], hex(&client.span_id));
    assert_eq!(
        headers,
        [
            ("traceparent", traceparent),
            ("tracestate", "v=1".into()),
            ("baggage", "b=1".into())
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unsampled_trace_is_in_the_ring_and_not_exported() {
    let mut receiver = Receiver::start(StatusCode::OK).await;
    let (telemetry, guard) = start(traces_to(&receiver));
    let backend = backend(&telemetry);
    for header in [UNSAMPLED, SAMPLED] {
        let server = telemetry.server(&arrival(None, Some(header)));
        let client = server.parent().client(&backend, &DEPARTURE);
        let sent = client.propagation().headers().next().unwrap().1.to_owned();
        assert!(
            sent.starts_with(&header[..36]) && sent.ends_with(&header[53..]),
            "{sent}"
        );
        client.finish(&Outcome::Finished);
        server.finish(&Outcome::Finished);
    }
    assert!(guard.shutdown(BOUND).await);
    let spans = exported(&mut receiver).await;
    assert_eq!(spans.len(), 2);
    assert!(
        spans
            .iter()
            .all(|span| hex(&span.trace_id) == SAMPLED[3..35])
    );
    let traces = telemetry.ring().unwrap().query(&Query::default());
    assert_eq!(
        traces
            .iter()
            .map(|trace| trace.spans.len())
            .collect::<Vec<_>>(),
        [2, 2]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn server_request_from_another_trace_stays_with_its_call() {
    let (telemetry, _guard) = start(ExportSettings::default());
    let backend = backend(&telemetry);
    let server = telemetry.server(&arrival(None, Some(SAMPLED)));
    let client = server.parent().client(&backend, &DEPARTURE);
    client
        .parent()
        .server(&backend, &arrival(None, Some(UNSAMPLED)))
        .finish(&Outcome::Finished);
    let traces = telemetry.ring().unwrap().query(&Query::default());
    assert_eq!(traces.len(), 1);
    let request = &traces[0].spans[0];
    assert_eq!(request.span_context.trace_id().to_string(), &SAMPLED[3..35]);
    assert_eq!(
        Some(request.parent_span_id),
        client.parent().ids().map(|ids| ids.span_id)
    );
    assert_eq!(
        request.links[0].span_context.trace_id().to_string(),
        &UNSAMPLED[3..35]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sampler_decides_for_new_traces() {
    let mut receiver = Receiver::start(StatusCode::OK).await;
    let settings = Settings {
        sampling: Sampling {
            ratio: 0.0,
            ..Sampling::default()
        },
        ..Settings::default()
    };
    let (telemetry, guard) = fanlight_otlp::start(settings, &traces_to(&receiver)).unwrap();
    let server = telemetry.server(&arrival(None, Some("00-malformed")));
    let sent = server
        .parent()
        .client(&backend(&telemetry), &DEPARTURE)
        .propagation();
    assert!(sent.headers().next().unwrap().1.ends_with("-00"));
    drop(server);
    assert!(guard.shutdown(BOUND).await);
    assert!(exported(&mut receiver).await.is_empty());
    let traces = telemetry.ring().unwrap().query(&Query {
        error: Some(true),
        ..Query::default()
    });
    assert_eq!(
        traces[0].summary().unwrap().error.as_deref(),
        Some("abandoned")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn undelivered_spans_are_counted_and_block_nothing() {
    let receiver = Receiver::start(StatusCode::BAD_REQUEST).await;
    let batch = BatchSettings {
        queue: 4,
        size: 4,
        ..BatchSettings::default()
    };
    let (telemetry, guard) = start(ExportSettings {
        batch,
        ..traces_to(&receiver)
    });
    let metrics = telemetry.metrics().unwrap().clone();
    let ended = 200;
    for _ in 0..ended {
        telemetry
            .server(&arrival(None, None))
            .finish(&Outcome::Finished);
    }
    guard.shutdown(BOUND).await;
    let full = metrics.spans_dropped(DropReason::QueueFull);
    let failed = metrics.spans_dropped(DropReason::ExportFailed);
    assert_eq!(full + failed, ended, "{full} + {failed}");
    assert!(failed >= 4);
    let text = telemetry.prometheus();
    assert!(
        text.contains(&format!(
            "fanlight_spans_dropped_total{{reason=\"export_failed\"}} {failed}\n"
        )),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_is_bounded_when_the_collector_is_silent() {
    // A collector that accepts connections and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/v1/traces", silent.local_addr().unwrap());
    let target = OtlpTarget {
        endpoint: endpoint.parse().unwrap(),
        protocol: OtlpProtocol::HttpProtobuf,
        headers: Vec::new(),
        timeout: Duration::from_secs(60),
        tls: TlsFiles::default(),
    };
    let (telemetry, guard) = start(ExportSettings {
        traces: Some(target),
        ..ExportSettings::default()
    });
    telemetry
        .server(&arrival(None, None))
        .finish(&Outcome::Finished);
    let delivered = tokio::time::timeout(
        Duration::from_secs(10),
        guard.shutdown(Duration::from_millis(200)),
    )
    .await;
    assert_eq!(delivered, Ok(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_exported() {
    let mut receiver = Receiver::start(StatusCode::OK).await;
    let metrics = Some(target(&receiver, "/v1/metrics"));
    let every = Duration::from_secs(3600);
    let (telemetry, guard) = start(ExportSettings {
        metrics,
        metrics_every: every,
        ..ExportSettings::default()
    });
    telemetry
        .server(&arrival(None, None))
        .finish(&Outcome::Finished);
    let registry = telemetry.metrics().unwrap();
    registry.read_states(|| vec![("files".to_owned(), true)]);
    assert!(guard.shutdown(BOUND).await);
    let request = receiver.requests.recv().await.unwrap();
    assert_eq!(
        (request.path.as_str(), request.content_type.as_str()),
        ("/v1/metrics", "application/x-protobuf")
    );
    let request = ExportMetricsServiceRequest::decode(request.body).unwrap();
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let data = |name: &str| {
        metrics
            .iter()
            .find(|metric| metric.name == name)
            .unwrap()
            .data
            .clone()
            .unwrap()
    };
    let Data::Histogram(histogram) = data("mcp.server.operation.duration") else {
        panic!("a histogram")
    };
    assert_eq!(histogram.data_points[0].count, 1);
    assert_eq!(
        histogram.data_points[0].bucket_counts.len(),
        histogram.data_points[0].explicit_bounds.len() + 1
    );
    let Data::Gauge(up) = data("fanlight.backend.up") else {
        panic!("a gauge")
    };
    assert_eq!(up.data_points[0].attributes[0].key, "fanlight.backend.name");
}

/// Starts an exporter of log records to this receiver.
fn logs_to(receiver: &Receiver) -> LogExport {
    let (telemetry, _guard) = start(ExportSettings::default());
    LogExport::start(&target(receiver, "/v1/logs"), &telemetry, "test").unwrap()
}

/// The first `count` log records, from any number of requests.
async fn log_records(receiver: &mut Receiver, count: usize) -> Vec<LogRecord> {
    let mut records = Vec::new();
    while records.len() < count {
        records.extend(log_records_in(receiver.requests.recv().await.unwrap()));
    }
    records
}

fn log_records_in(received: Received) -> Vec<LogRecord> {
    assert_eq!(
        (received.path.as_str(), received.content_type.as_str()),
        ("/v1/logs", "application/x-protobuf")
    );
    assert_eq!(received.authorization.as_deref(), Some("Bearer s3cr3t"));
    let mut request = ExportLogsServiceRequest::decode(received.body).unwrap();
    let logs = request.resource_logs.remove(0);
    assert!(
        logs.resource
            .unwrap()
            .attributes
            .iter()
            .any(|attribute| attribute.key == "service.name")
    );
    logs.scope_logs
        .into_iter()
        .flat_map(|logs| logs.log_records)
        .collect()
}

fn body(record: &LogRecord) -> &str {
    match record.body.as_ref().and_then(|body| body.value.as_ref()) {
        Some(Value::StringValue(text)) => text,
        other => unreachable!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn line_is_the_body_of_a_log_record_and_its_members_are_attributes() {
    let mut receiver = Receiver::start(StatusCode::OK).await;
    let export = logs_to(&receiver);
    let line = r#"{"time":"2026-11-25T21:03:11.250Z","event":"request","seq":7,"who":"a\u006en","policies":["p1","p2"],"arguments":{"a":1},"trace":"4bf92f3577b34da6a3ce929d0e0e4736"}"#;
    export.line(line);
    export.note("checkpoint", "name\n7\nroot\n");
    assert!(export.end(BOUND).await);
    assert_eq!((export.exported(), export.lost()), (2, 0));
    let records = log_records(&mut receiver, 2).await;
    let (first, second) = (&records[0], &records[1]);
    assert_eq!((body(first), body(second)), (line, "name\n7\nroot\n"));
    assert_eq!(
        (first.event_name.as_str(), second.event_name.as_str()),
        ("test.request", "test.checkpoint")
    );
    assert_eq!(first.time_unix_nano, 1_795_640_591_250_000_000);
    assert_eq!(hex(&first.trace_id), SAMPLED[3..35]);
    let attributes: Vec<_> = first
        .attributes
        .iter()
        .map(|one| (one.key.as_str(), format!("{:?}", one.value)))
        .collect();
    let keys: Vec<_> = attributes.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys, ["test.seq", "test.who", "test.policies"]);
    assert!(
        attributes[0].1.contains("IntValue(7)")
            && attributes[1].1.contains(r#"StringValue("ann")"#),
        "{attributes:?}"
    );
    assert!(
        attributes[2].1.contains("p2") && second.attributes.is_empty(),
        "{attributes:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn log_records_are_sent_again_in_order_until_the_collector_takes_them() {
    let answers = |number| {
        (
            if number < 2 {
                StatusCode::SERVICE_UNAVAILABLE
            } else {
                StatusCode::OK
            },
            Bytes::new(),
        )
    };
    let mut receiver = Receiver::answering(answers).await;
    let export = logs_to(&receiver);
    export.line(r#"{"seq":1}"#);
    let attempts = [
        receiver.requests.recv().await.unwrap(),
        receiver.requests.recv().await.unwrap(),
    ];
    assert_eq!(attempts[0].body, attempts[1].body);
    export.line(r#"{"seq":2}"#);
    let taken = log_records(&mut receiver, 2).await;
    assert_eq!(
        taken.iter().map(body).collect::<Vec<_>>(),
        [r#"{"seq":1}"#, r#"{"seq":2}"#]
    );
    assert!(export.end(BOUND).await);
    assert_eq!((export.exported(), export.lost()), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn log_records_that_are_refused_or_do_not_fit_are_counted() {
    // The first request is refused as a whole, and one record of each further request.
    let partial = ExportLogsPartialSuccess {
        rejected_log_records: 1,
        error_message: "no".to_owned(),
    };
    let partial = ExportLogsServiceResponse {
        partial_success: Some(partial),
    }
    .encode_to_vec();
    let answers = move |number| match number {
        0 => (StatusCode::BAD_REQUEST, Bytes::new()),
        _ => (StatusCode::OK, Bytes::from(partial.clone())),
    };
    let mut receiver = Receiver::answering(answers).await;
    let export = logs_to(&receiver);
    export.line("{}");
    receiver.requests.recv().await.unwrap();
    export.line("{}");
    export.note("more", "");
    assert!(!export.end(BOUND).await);
    assert_eq!(export.exported() + export.lost(), 3);
    assert!(export.lost() >= 2, "{}", export.lost());
    // The collector never answers: the queue is bounded, and so is the time at the end.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/v1/logs", silent.local_addr().unwrap())
        .parse()
        .unwrap();
    let (telemetry, _guard) = start(ExportSettings::default());
    let export = LogExport::start(
        &OtlpTarget {
            endpoint,
            ..target(&receiver, "")
        },
        &telemetry,
        "test",
    )
    .unwrap();
    let line = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
    (0..40).for_each(|_| export.line(&line));
    assert!(export.lost() >= 20, "{}", export.lost());
    let ended = tokio::time::timeout(BOUND, export.end(Duration::from_millis(200))).await;
    assert_eq!(ended, Ok(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_subscriber_misses_traces() {
    let (telemetry, _guard) = start(ExportSettings::default());
    let mut feed = telemetry.ring().unwrap().subscribe();
    telemetry
        .server(&arrival(None, Some(SAMPLED)))
        .finish(&Outcome::Finished);
    assert_eq!(feed.recv().await.unwrap().to_string(), &SAMPLED[3..35]);
    for _ in 0..1000 {
        telemetry
            .server(&arrival(None, Some(SAMPLED)))
            .finish(&Outcome::Finished);
    }
    assert!(matches!(
        feed.recv().await,
        Err(tokio::sync::broadcast::error::RecvError::Lagged(_))
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_file_has_lines_of_otlp_json_and_rotates() {
    let folder = std::env::temp_dir().join(format!("fanlight-telemetry-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("traces.jsonl");
    let file = fanlight_telemetry::FileSettings {
        path: path.clone(),
        max_bytes: 2000,
        kept: 2,
    };
    let (telemetry, guard) = Telemetry::start(Settings {
        file: Some(file),
        ..Settings::default()
    })
    .unwrap();
    let meta = Json::literal(
        r#"{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}"#,
    );
    for _ in 0..300 {
        let server = telemetry.server(&arrival(Some(&meta), Some(UNSAMPLED)));
        server.parent().event(&Event::Log { level: None });
        server.finish(&Outcome::failed(ErrorType::Timeout));
    }
    assert!(guard.shutdown(BOUND).await);
    let mut spans = 0;
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        names.push(entry.file_name().into_string().unwrap());
        for line in std::fs::read_to_string(entry.path()).unwrap().lines() {
            // The types of OTLP accept exactly the JSON encoding of OTLP.
            let request: ExportTraceServiceRequest = serde_json::from_str(line).unwrap();
            for span in &request.resource_spans[0].scope_spans[0].spans {
                assert_eq!(hex(&span.trace_id), &SAMPLED[3..35]);
                assert_eq!(hex(&span.links[0].trace_id), &UNSAMPLED[3..35]);
                assert_eq!((span.kind, span.events.len()), (SpanKind::Server as i32, 1));
                assert_eq!(attribute(span, "error.type").as_deref(), Some("timeout"));
                spans += 1;
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(spans > 0 && spans <= 300);
    assert!(
        names.len() <= 3 && names.contains(&"traces.jsonl".to_owned()),
        "{names:?}"
    );
}
