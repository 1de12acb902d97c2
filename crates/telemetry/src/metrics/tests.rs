use super::backend::NamedBackend;
use super::*;
use crate::message::{Moment, Network, Transport};
use crate::metrics::histogram::Key;
use crate::metrics::timer::tests::record;
use crate::metrics::{MetricLimits, Side, Timer};
use crate::{BackendInfo, BackendTelemetry, Endpoint, Target};

fn resource() -> Resource {
    Resource::builder_empty()
        .with_service_name("fan\"light")
        .build()
}

fn backend(metrics: &Arc<Metrics>) -> BackendTelemetry {
    let info = BackendInfo {
        name: "files".to_owned(),
        endpoint: Endpoint::Stdio,
    };
    BackendTelemetry::new(info, Some(Arc::clone(metrics)), None)
}

fn call(metrics: &Arc<Metrics>, backend: &BackendTelemetry, tool: &str, error: Option<ErrorType>) {
    let (registry, target) = (Arc::clone(metrics), Target::Tool(tool));
    let mut timer = Timer::start(
        registry,
        Side::Client,
        Some(backend.labels()),
        &Method::CallTool,
        target,
        Moment::now(),
    );
    timer.set_revision(Revision::V2025_11_25);
    timer.stop(error, Duration::from_millis(1));
}

#[test]
fn labels_are_only_names_from_lists() {
    let metrics = Arc::new(Metrics::new(MetricLimits {
        names_per_backend: 2,
        series: 100,
    }));
    let files = backend(&metrics);
    let names = || ["read", "write", "third"].map(str::to_owned).to_vec();
    metrics.learn(Some(files.metrics()), NameKind::Tool, b"list", names);
    for tool in ["read", "write", "third", "made-up"] {
        call(&metrics, &files, tool, None);
    }
    let text = metrics.prometheus(&resource());
    let count = |tool: &str| {
        format!(
            "mcp_client_operation_duration_seconds_count{{mcp_method_name=\"tools/call\",gen_ai_tool_name=\"{tool}\",gen_ai_operation_name=\"execute_tool\",mcp_protocol_version=\"2025-11-25\",network_transport=\"pipe\",fanlight_backend_name=\"files\"}}"
        )
    };
    assert!(text.contains(&format!("{} 1\n", count("read"))), "{text}");
    assert!(text.contains(&format!("{} 2\n", count("_OTHER"))), "{text}");
    assert!(!text.contains("third") && !text.contains("made-up"));
}

#[test]
fn list_is_read_once_until_others_replace_it() {
    let metrics = Metrics::new(MetricLimits {
        names_per_backend: 2,
        series: 100,
    });
    let looked = std::cell::Cell::new(0);
    let learn = |kind, list: &str| {
        metrics.learn(None, kind, list.as_bytes(), || {
            looked.set(looked.get() + 1);
            vec![list.to_owned()]
        });
        looked.get()
    };
    assert_eq!(
        [
            learn(NameKind::Tool, "a"),
            learn(NameKind::Tool, "b"),
            learn(NameKind::Tool, "a")
        ],
        [1, 2, 2]
    );
    assert_eq!(learn(NameKind::Prompt, "a"), 3);
    assert!((0..20).all(|n| learn(NameKind::Tool, &n.to_string()) == 4 + n));
    assert_eq!(learn(NameKind::Tool, "a"), 24);
    let known = |tool| {
        metrics
            .known_names()
            .id(0, Target::Tool(tool))
            .map(|id| metrics.known_names().text(id))
    };
    assert_eq!(
        [known("b"), known("7")],
        [Some("b".to_owned()), Some("_OTHER".to_owned())]
    );
}

#[test]
fn unknown_methods_and_codes_share_a_series() {
    let metrics = Arc::new(Metrics::new(MetricLimits::default()));
    for n in 0..50 {
        let method = Method::from_name(&format!("vendor/{n}"));
        Timer::start(
            Arc::clone(&metrics),
            Side::Server,
            None,
            &method,
            Target::None,
            Moment::now(),
        )
        .stop(Some(ErrorType::JsonRpc(n)), Duration::ZERO);
    }
    let text = metrics.prometheus(&resource());
    let series = r#"mcp_server_operation_duration_seconds_count{mcp_method_name="_OTHER",error_type="_OTHER"} 50"#;
    assert!(text.contains(series), "{text}");
}

#[test]
fn series_limit_counts_the_rest_as_overflow() {
    let series = Series::new(10);
    let known = KnownNames::new(1);
    for backend in 0..25 {
        let key = Key {
            backend,
            method: Method::Ping,
            name: None,
            error: None,
            revision: None,
            transport: None,
            http: None,
        };
        series.record(key, Duration::from_millis(1));
    }
    let points = series.snapshot(About::Received, &known, &|_| None);
    assert_eq!(points.len(), 11);
    let Values::Histogram(overflow) = &points.last().unwrap().1 else {
        panic!("a histogram")
    };
    assert_eq!(overflow.buckets.iter().sum::<u64>(), 15);
}

#[test]
fn duration_counts_in_the_bucket_of_the_conventions() {
    let series = Series::new(10);
    let key = Key {
        backend: 0,
        method: Method::Ping,
        name: None,
        error: None,
        revision: None,
        transport: None,
        http: None,
    };
    for millis in [10, 11, 300_000, 300_001] {
        series.record(key.clone(), Duration::from_millis(millis));
    }
    let points = series.snapshot(About::Received, &KnownNames::new(1), &|_| None);
    let Values::Histogram(counts) = &points[0].1 else {
        panic!("a histogram")
    };
    assert_eq!(
        counts.buckets,
        [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    );
    assert!((counts.sum_seconds - 600.022).abs() < 1e-9);
}

/// The labels of a series with this error, on both sides.
fn labels_of(error: ErrorType) -> [Vec<(&'static str, String)>; 2] {
    [About::Received, About::Sent].map(|about| {
        let (series, known) = (Series::new(10), KnownNames::new(1));
        let (method, transport) = (Method::CallTool, Some(Transport::Tcp));
        let key = Key {
            backend: 1,
            method,
            name: None,
            error: Some(error),
            revision: None,
            transport,
            http: Some("2"),
        };
        series.record(key, Duration::from_millis(1));
        let named = |_| {
            Some(NamedBackend {
                name: "b".to_owned(),
                address: Some((Arc::from("h"), 80)),
            })
        };
        series.snapshot(about, &known, &named).remove(0).0
    })
}

#[test]
fn mistakes_of_senders_are_no_failures_of_receivers() {
    for code in [-32700, -32600, -32601, -32602, -32002] {
        let [received, sent] = labels_of(ErrorType::JsonRpc(code));
        let status =
            |labels: &[(&str, String)]| labels.contains(&(label::STATUS, code.to_string()));
        let is_error =
            |labels: &[(&str, String)]| labels.iter().any(|(name, _)| *name == label::ERROR);
        assert!(status(&received) && status(&sent), "{received:?}");
        assert!(!is_error(&received) && is_error(&sent), "{received:?}");
    }
    let [received, sent] = labels_of(ErrorType::JsonRpc(-32603));
    assert!(received.contains(&(label::ERROR, "-32603".to_owned())));
    for common in [
        (label::OPERATION, "execute_tool"),
        (label::PROTOCOL, "http"),
        (label::PROTOCOL_VERSION, "2"),
    ] {
        let common = (common.0, common.1.to_owned());
        assert!(
            received.contains(&common) && sent.contains(&common),
            "{common:?}"
        );
    }
    let address = [
        (label::ADDRESS, "h".to_owned()),
        (label::PORT, "80".to_owned()),
    ];
    assert!(
        address
            .iter()
            .all(|one| sent.contains(one) && !received.contains(one)),
        "{received:?}"
    );
}

#[test]
fn sessions_are_counted_by_their_side() {
    let metrics = Metrics::new(MetricLimits::default());
    metrics.backend("b").set_address(Some((Arc::from("h"), 80)));
    let labels = BackendLabels {
        index: metrics.backend("b").index(),
        transport: Transport::Tcp,
    };
    let lasted = Duration::from_secs(70);
    metrics.session_ended(
        SessionSide::Client(labels),
        Revision::V2025_11_25,
        lasted,
        Some(ErrorType::Timeout),
    );
    metrics.session_ended(
        SessionSide::Server(Network::Stdio),
        Revision::V2025_06_18,
        lasted,
        None,
    );
    let text = metrics.prometheus(&resource());
    for series in [
        r#"mcp_client_session_duration_seconds_count{error_type="timeout",mcp_protocol_version="2025-11-25",network_transport="tcp",network_protocol_name="http",network_protocol_version="1.1",server_address="h",server_port="80",fanlight_backend_name="b"} 1"#,
        r#"mcp_server_session_duration_seconds_sum{mcp_protocol_version="2025-06-18",network_transport="pipe"} 70"#,
    ] {
        assert!(text.contains(series), "{series}\n{text}");
    }
}

#[test]
fn active_requests_follow_timers() {
    let metrics = Arc::new(Metrics::new(MetricLimits::default()));
    let active = |metrics: &Metrics| {
        metrics
            .prometheus(&resource())
            .contains("\nfanlight_requests_active 1\n")
    };
    let timer = Timer::start(
        Arc::clone(&metrics),
        Side::Server,
        None,
        &Method::Ping,
        Target::None,
        Moment::now(),
    );
    assert!(active(&metrics));
    drop(timer);
    assert!(
        metrics
            .prometheus(&resource())
            .contains("\nfanlight_requests_active 0\n")
    );
}

#[test]
fn prometheus_text_follows_the_exposition_format() {
    let metrics = Arc::new(Metrics::new(MetricLimits::default()));
    let files = backend(&metrics);
    metrics.read_states(|| vec![("files".to_owned(), true)]);
    files.metrics().io(Direction::Receive, 7);
    metrics.client_bytes(Direction::Transmit, 9);
    call(&metrics, &files, "x", Some(ErrorType::Timeout));
    let text = metrics.prometheus(&resource());
    for line in [
        "target_info{service_name=\"fan\\\"light\"} 1",
        "# TYPE mcp_client_operation_duration_seconds histogram",
        "fanlight_backend_up{fanlight_backend_name=\"files\"} 1",
        "fanlight_backend_io_bytes_total{fanlight_backend_name=\"files\",network_io_direction=\"receive\"} 7",
        "fanlight_client_io_bytes_total{network_io_direction=\"transmit\"} 9",
        "fanlight_spans_dropped_total{reason=\"queue_full\"} 0",
    ] {
        assert!(text.lines().any(|given| given == line), "{line} in\n{text}");
    }
    assert!(text.contains("le=\"+Inf\"} 1\n") && text.contains("error_type=\"timeout\""));
    let names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .collect();
    assert_eq!(names.len(), FAMILIES.len() + 1);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(
            names.iter().any(|family| name.starts_with(family)),
            "{line}"
        );
        assert!(
            line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(),
            "{line}"
        );
    }
}

const SENT: Side = Side::Client;

#[test]
fn figures_count_one_backend() {
    let metrics = Metrics::new(MetricLimits::default());
    for millis in [1, 2, 3, 15] {
        record(
            &metrics,
            SENT,
            "a",
            "t",
            None,
            Duration::from_millis(millis),
        );
    }
    record(
        &metrics,
        SENT,
        "a",
        "t",
        Some(ErrorType::Timeout),
        Duration::from_millis(400),
    );
    record(&metrics, SENT, "b", "t", None, Duration::from_secs(60));
    let of = |method, error| Key {
        backend: metrics.backend("a").index(),
        method,
        name: None,
        error,
        revision: None,
        transport: None,
        http: None,
    };
    metrics.client.record(
        of(Method::Discover, Some(ErrorType::JsonRpc(-32601))),
        Duration::from_millis(1),
    );
    // The time to connect says nothing about the duration of calls.
    metrics
        .client
        .record(of(Method::Initialize, None), Duration::from_secs(200));
    let figures = metrics.figures("a");
    assert_eq!((figures.requests, figures.errors), (5, 1));
    let (median, p95) = (figures.median.unwrap(), figures.p95.unwrap());
    assert!(
        median > Duration::from_millis(1) && median <= Duration::from_millis(3),
        "{median:?}"
    );
    assert!(
        p95 > Duration::from_millis(200) && p95 <= Duration::from_millis(400),
        "{p95:?}"
    );
    assert_eq!(metrics.figures("c"), BackendFigures::default());
    metrics.backend("c").restarted();
    assert_eq!(metrics.figures("c").restarts, 1);
}

#[test]
fn failed_connections_and_what_they_kept_from_being_sent_are_errors() {
    let metrics = Metrics::new(MetricLimits::default());
    metrics.backend("a").connect_failed();
    record(
        &metrics,
        Side::Unsent,
        "a",
        "t",
        Some(ErrorType::ConnectFailed),
        Duration::ZERO,
    );
    let figures = metrics.figures("a");
    assert_eq!(
        (figures.requests, figures.errors, figures.failed_connections),
        (1, 2, 1)
    );
    assert_eq!((figures.median, figures.p95), (None, None));
}
