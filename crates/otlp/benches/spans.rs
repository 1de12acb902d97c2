//! The cost of telemetry for a call: a span for the received message and one for the sent message,
//! with the attributes of a tool call over HTTP, and the outgoing trace context.
//!
//! `cargo bench -p fanlight-otlp`

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a benchmark that cannot start has nothing to measure"
)]

use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use fanlight_otlp::{ExportSettings, OtlpProtocol, OtlpTarget, TlsFiles};
use fanlight_protocol::{Json, Method, Revision};
use fanlight_telemetry::{
    Arrival, BackendInfo, BackendTelemetry, Carriers, Departure, Endpoint, Moment, Network,
    Outcome, Parent, Settings, Target, Telemetry,
};

criterion_group!(
    benches,
    off,
    metrics_only,
    ring_only,
    ring_and_export,
    poll_in_scope
);
criterion_main!(benches);

fn off(criterion: &mut Criterion) {
    run(criterion, "off", &Telemetry::off());
}

fn metrics_only(criterion: &mut Criterion) {
    let settings = Settings {
        tracing: false,
        ..Settings::default()
    };
    run(
        criterion,
        "metrics",
        &Telemetry::start(settings).expect("starts").0,
    );
}

fn ring_only(criterion: &mut Criterion) {
    run(
        criterion,
        "metrics and ring",
        &Telemetry::start(Settings::default()).expect("starts").0,
    );
}

fn ring_and_export(criterion: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("starts");
    let _entered = runtime.enter();
    let endpoint = format!("http://{}/v1/traces", sink())
        .parse()
        .expect("a URL");
    let target = OtlpTarget {
        endpoint,
        protocol: OtlpProtocol::HttpProtobuf,
        headers: Vec::new(),
        timeout: Duration::from_secs(5),
        tls: TlsFiles::default(),
    };
    let export = ExportSettings {
        traces: Some(target),
        ..ExportSettings::default()
    };
    let (telemetry, guard) = fanlight_otlp::start(Settings::default(), &export).expect("starts");
    run(criterion, "metrics, ring and export", &telemetry);
    runtime.block_on(guard.shutdown(Duration::from_secs(5)));
}

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// A poll of an idle task, with and without the scope by which log lines find their span.
fn poll_in_scope(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a poll");
    let idle = std::future::pending::<()>;
    let works: [(_, Work); 2] = [
        ("alone", Box::pin(idle())),
        ("in scope", Box::pin(Parent::default().scope(idle()))),
    ];
    for (name, mut work) in works {
        group.bench_function(name, |bencher| {
            bencher.iter(|| work.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        });
    }
}

fn run(criterion: &mut Criterion, what: &str, telemetry: &Telemetry) {
    let backend = telemetry.backend(BackendInfo {
        name: "files".to_owned(),
        endpoint: Endpoint::Http {
            host: "127.0.0.1".to_owned(),
            port: 8080,
        },
    });
    let meta = Json::literal(
        r#"{"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}"#,
    );
    let id = Json::literal("12345");
    criterion.bench_function(&format!("both spans of a call: {what}"), |bencher| {
        bencher.iter(|| call(telemetry, &backend, &meta, &id));
    });
}

fn call(telemetry: &Telemetry, backend: &BackendTelemetry, meta: &Json, id: &Json) {
    let mut server = telemetry.server(&Arrival {
        method: &Method::CallTool,
        target: Target::Tool("files__read"),
        id: Some(id),
        received: Moment::now(),
        carriers: Carriers {
            meta: Some(meta),
            ..Carriers::default()
        },
    });
    server.set_network(Network::Http {
        version: "1.1",
        client: None,
    });
    server.set_revision(Revision::V2025_11_25);
    let departure = Departure {
        method: &Method::CallTool,
        target: Target::Tool("read"),
        id: Some(id.into()),
        attempt: 1,
    };
    let mut client = server.parent().client(backend, &departure);
    client.set_revision(Revision::V2026_07_28);
    black_box(client.propagation());
    client.finish(&Outcome::Finished);
    server.finish(&Outcome::Finished);
}

/// A server on loopback that answers everything with 200; it ends with the program.
fn sink() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut bytes = vec![0; 1 << 20];
            // A batch usually fits; otherwise the rest is lost with the answer.
            while stream.read(&mut bytes).is_ok_and(|count| count > 0) {
                if stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                    .is_err()
                {
                    break;
                }
            }
        }
    });
    address
}
