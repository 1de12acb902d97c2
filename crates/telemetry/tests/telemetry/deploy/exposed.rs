//! The exposed metrics: the samples at `/metrics` of a gateway on which every event with a label
//! has happened.

use std::collections::{BTreeMap, BTreeSet};

use fanlight_protocol::{Json, Method, Revision, code};
use fanlight_telemetry::metrics::{FAMILIES, MetricLimits, MirrorOutcome, NameKind};
use fanlight_telemetry::{
    Arrival, BackendInfo, Carriers, Departure, Endpoint, ErrorType, Moment, Network, Outcome,
    Settings, Target, Telemetry,
};

/// The labels of every sample, by its name.
pub(crate) fn exposed() -> BTreeMap<String, BTreeSet<String>> {
    let mut samples: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in gateway()
        .prometheus()
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let (series, _) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels
            .trim_end_matches('}')
            .split(',')
            .filter_map(|pair| pair.split_once('='));
        samples
            .entry(name.to_owned())
            .or_default()
            .extend(labels.map(|(key, _)| key.to_owned()));
    }
    let known: BTreeSet<String> = FAMILIES
        .iter()
        .flat_map(|family| family.labels)
        .map(|label| label.replace('.', "_"))
        .collect();
    let seen: BTreeSet<String> = samples
        .iter()
        .filter(|(name, _)| *name != "target_info")
        .flat_map(|(_, labels)| labels.clone())
        .collect();
    assert_eq!(
        &seen - &BTreeSet::from(["le".to_owned()]),
        known,
        "a label has no sample here: add what gives it one"
    );
    // Metrics of the audit log and of replicas (`crates/record` and `tests/replicas` check these), and Prometheus' own.
    for (name, labels) in [
        ("fanlight_approvals_open", &[][..]),
        ("fanlight_audit_entries_total", &["outcome"]),
        ("fanlight_audit_exported_total", &["outcome"]),
        ("fanlight_definitions_held", &[]),
        ("fanlight_replicas", &[]),
        ("fanlight_valkey_connected", &[]),
        ("fanlight_valkey_requests_total", &["outcome"]),
        ("up", &[]),
    ] {
        samples.insert(
            name.to_owned(),
            labels.iter().map(|&label| label.to_owned()).collect(),
        );
    }
    // Labels that Prometheus adds when it scrapes, and that its Kubernetes operator adds.
    for labels in samples.values_mut() {
        labels.extend(["instance", "job", "namespace", "service"].map(str::to_owned));
    }
    samples
}

/// A gateway with more kinds of calls than it distinguishes, so that there is an overflow, too.
fn gateway() -> Telemetry {
    let metrics = MetricLimits {
        series: 2,
        ..MetricLimits::default()
    };
    let (telemetry, _guard) = Telemetry::start(Settings {
        metrics,
        ..Settings::default()
    })
    .expect("starts");
    let registry = telemetry.metrics().expect("counts");
    let backend = telemetry.backend(BackendInfo {
        name: "files".to_owned(),
        endpoint: Endpoint::Http {
            host: "127.0.0.1".to_owned(),
            port: 8080,
        },
    });
    registry.read_states(|| vec![("files".to_owned(), true)]);
    backend.metrics().set_endpoints(1, 1);
    backend.metrics().count_mirrored(MirrorOutcome::Same);
    for (kind, name) in [(NameKind::Tool, "read"), (NameKind::Prompt, "plan")] {
        registry.learn(None, kind, name.as_bytes(), || vec![name.to_owned()]);
        registry.learn(Some(backend.metrics()), kind, name.as_bytes(), || {
            vec![name.to_owned()]
        });
    }
    let id = Json::literal("1");
    let calls = [
        (Method::CallTool, Target::Tool("read")),
        (Method::GetPrompt, Target::Prompt("plan")),
        (Method::Ping, Target::None),
    ];
    for (method, target) in &calls {
        let (method, target, received) = (method, *target, Moment::now());
        let arrival = Arrival {
            method,
            target,
            id: Some(&id),
            received,
            carriers: Carriers::default(),
        };
        let mut server = telemetry.server(&arrival);
        server.set_network(Network::Http {
            version: "1.1",
            client: None,
        });
        server.set_revision(Revision::V2025_11_25);
        let mut client = server.parent().client(
            &backend,
            &Departure {
                method,
                target,
                id: Some((&id).into()),
                attempt: 1,
            },
        );
        client.set_revision(Revision::V2025_11_25);
        client.finish(&Outcome::failed(ErrorType::JsonRpc(code::INTERNAL)));
        server.finish(&Outcome::failed(ErrorType::JsonRpc(code::INTERNAL)));
    }
    telemetry
}
