use super::*;

fn from(
    endpoint: Option<&str>,
    variables: &[(&str, &str)],
) -> Result<ExportSettings, SettingsError> {
    configured(Collector { endpoint }, variables)
}

fn configured(
    collector: Collector<'_>,
    variables: &[(&str, &str)],
) -> Result<ExportSettings, SettingsError> {
    ExportSettings::from_env(collector, among(variables))
}

fn among(variables: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
    move |name| {
        variables
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| (*value).to_owned())
    }
}

fn display(target: Option<OtlpTarget>) -> Option<String> {
    target.map(|target| target.display())
}

#[test]
fn export_is_off_by_default() {
    assert_eq!(from(None, &[]).unwrap(), ExportSettings::default());
    assert_eq!(
        from(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")])
            .unwrap()
            .traces,
        None
    );
}

#[test]
fn endpoints_follow_the_specification() {
    let both = from(
        None,
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318/base/")],
    )
    .unwrap();
    assert_eq!(
        display(both.traces).unwrap(),
        "http://c:4318/base/v1/traces"
    );
    assert_eq!(
        display(both.metrics).unwrap(),
        "http://c:4318/base/v1/metrics"
    );
    let own = from(
        None,
        &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:4318/other")],
    )
    .unwrap();
    assert_eq!(display(own.traces).unwrap(), "http://c:4318/other");
    assert_eq!(own.metrics, None);
    let by_exporter = from(None, &[("OTEL_TRACES_EXPORTER", "otlp")]).unwrap();
    assert_eq!(
        display(by_exporter.traces).unwrap(),
        "http://localhost:4318/v1/traces"
    );
    let configured = from(
        Some("http://mine:1"),
        &[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318")],
    )
    .unwrap();
    assert_eq!(
        display(configured.traces).unwrap(),
        "http://mine:1/v1/traces"
    );
}

#[test]
fn log_records_have_a_target_of_their_own() {
    let of = |configured, variables: &[(&str, &str)]| {
        display(
            OtlpTarget::read_logs(
                Collector {
                    endpoint: configured,
                },
                among(variables),
            )
            .unwrap(),
        )
    };
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
    assert_eq!(
        of(None, &[endpoint]).as_deref(),
        Some("http://c:4318/v1/logs")
    );
    assert_eq!(
        of(Some("http://mine:1"), &[endpoint]).as_deref(),
        Some("http://mine:1/v1/logs")
    );
    let own = ("OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", "http://d:1/logs");
    assert_eq!(
        of(None, &[endpoint, own]).as_deref(),
        Some("http://d:1/logs")
    );
    for off in [
        &[][..],
        &[endpoint, ("OTEL_LOGS_EXPORTER", "none")],
        &[endpoint, ("OTEL_SDK_DISABLED", "true")],
    ] {
        assert_eq!(of(None, off), None);
    }
}

#[test]
fn protocol_is_per_signal_and_configuration_overrides_it() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4317/base");
    let traces_by_grpc = [endpoint, ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc")];
    let settings = from(None, &traces_by_grpc).unwrap();
    let (traces, metrics) = (settings.traces.unwrap(), settings.metrics.unwrap());
    assert_eq!(
        (traces.protocol, traces.display().as_str()),
        (OtlpProtocol::Grpc, "http://c:4317")
    );
    assert_eq!(
        (metrics.protocol, metrics.display().as_str()),
        (OtlpProtocol::HttpProtobuf, "http://c:4317/base/v1/metrics")
    );
    let default = [
        ("OTEL_METRICS_EXPORTER", "otlp"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
    ];
    assert_eq!(
        display(from(None, &default).unwrap().metrics).unwrap(),
        "http://localhost:4317"
    );
}

#[test]
fn export_can_be_switched_off() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
    assert_eq!(
        from(None, &[endpoint, ("OTEL_SDK_DISABLED", "true")])
            .unwrap()
            .traces,
        None
    );
    let settings = from(None, &[endpoint, ("OTEL_TRACES_EXPORTER", "none")]).unwrap();
    assert!(settings.traces.is_none() && settings.metrics.is_some());
}

#[test]
fn headers_timeouts_and_resources_are_read_and_headers_never_shown() {
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:pw@c:4318"),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer%20s3cr3t, x = a=b+c",
        ),
        ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "2500"),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "service.name=other,deployment.environment=test%2Cstage",
        ),
        ("OTEL_SERVICE_NAME", "gate"),
    ];
    let settings = from(None, &variables).unwrap();
    let traces = settings.traces.unwrap();
    assert_eq!(
        traces.headers,
        [
            ("authorization".into(), "Basic dXNlcjpwdw==".into()),
            // This one counts.
            ("authorization".into(), "Bearer s3cr3t".into()),
            ("x".into(), "a=b+c".into())
        ]
    );
    assert_eq!(traces.endpoint.as_str(), "http://c:4318/v1/traces");
    assert_eq!(traces.timeout, Duration::from_millis(2500));
    assert_eq!(
        resource_from_env(among(&variables)),
        [
            ("deployment.environment".into(), "test,stage".into()),
            ("service.name".to_owned(), "gate".to_owned())
        ]
    );
    let debug = format!("{traces:?}");
    assert!(
        !debug.contains("s3cr3t") && !debug.contains("pw"),
        "{debug}"
    );
}

#[test]
fn samplers_are_parsed_by_name() {
    let sampling = |name, arg| {
        sampling_from_env(among(&[
            ("OTEL_TRACES_SAMPLER", name),
            ("OTEL_TRACES_SAMPLER_ARG", arg),
        ]))
    };
    assert_eq!(
        sampling("parentbased_traceidratio", "0.25").unwrap(),
        Sampling {
            follows_parent: true,
            ratio: 0.25
        }
    );
    assert_eq!(
        sampling("always_off", "").unwrap(),
        Sampling {
            follows_parent: false,
            ratio: 0.0
        }
    );
    assert!(
        sampling("traceidratio", "2")
            .unwrap_err()
            .to_string()
            .contains("from 0 to 1")
    );
    assert!(sampling("sometimes", "").is_err());
}

#[test]
fn error_says_what_to_do() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
    let json = from(
        None,
        &[
            endpoint,
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ],
    )
    .unwrap_err();
    assert!(
        json.to_string().contains("use http/protobuf")
            && json.to_string().contains("TRACES_PROTOCOL"),
        "{json}"
    );
    let secret = from(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:s3cr3t")]).unwrap_err();
    assert!(
        secret.to_string().contains("OTEL_EXPORTER_OTLP_ENDPOINT")
            && !secret.to_string().contains("s3cr3t")
    );
}

#[test]
fn propagators_are_those_named() {
    let of = |value: Option<&str>| {
        let value = value.map(str::to_owned);
        propagators_from_env(|name| value.clone().filter(|_| name == "OTEL_PROPAGATORS"))
    };
    let both = |trace_context, baggage| Propagators {
        trace_context,
        baggage,
    };
    assert_eq!(of(None), (both(true, true), vec![]));
    assert_eq!(of(Some("")), (both(true, true), vec![]));
    assert_eq!(of(Some("none")), (both(false, false), vec![]));
    assert_eq!(
        of(Some("baggage, tracecontext,baggage")),
        (both(true, true), vec![])
    );
    assert_eq!(
        of(Some("tracecontext,b3")),
        (both(true, false), vec!["b3".to_owned()])
    );
}
