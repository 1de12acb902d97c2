//! The files in deploy/ are valid, and name only metrics and labels that Fanlight exposes.

mod exposed;
mod promql;

use std::collections::BTreeSet;

use promql::{Checker, Labels};
use serde_json::Value;

const ALERTS: &str = include_str!("../../../../deploy/alerts.yaml");
const COLLECTOR: &str = include_str!("../../../../deploy/otel-collector.yaml");
const DASHBOARD: &str = include_str!("../../../../deploy/grafana-dashboard.json");
const METRICS: &str = include_str!("../../../../docs/reference/metrics.md");
const PROMETHEUS: &str = include_str!("../../../../deploy/prometheus.yaml");
const FRONTEND: &str = include_str!("../../../frontend/src/settings.rs");

fn checker() -> Checker {
    Checker {
        exposed: exposed::exposed(),
        named: BTreeSet::new(),
    }
}

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).expect("YAML")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("no text {key:?} in {value}"))
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key]
        .as_array()
        .unwrap_or_else(|| panic!("no list {key:?} in {value}"))
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value
        .as_object()
        .unwrap_or_else(|| panic!("no mapping: {value}"))
        .keys()
        .map(String::as_str)
        .collect()
}

/// The texts between each `before` and the next `after` in `text`.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    text.split(before)
        .skip(1)
        .map(|rest| rest.split_once(after).expect(after).0.trim())
        .collect()
}

#[test]
fn alerts_use_exposed_metrics() {
    let mut checker = checker();
    let rules = yaml(ALERTS);
    let mut names = BTreeSet::new();
    for rule in list(&rules, "groups")
        .iter()
        .flat_map(|group| list(group, "rules"))
    {
        assert!(
            names.insert(text(rule, "alert").to_owned()),
            "two rules have one name: {rule}"
        );
        assert!(
            ["critical", "info", "warning"].contains(&text(&rule["labels"], "severity")),
            "{rule}"
        );
        let labels = checker.query(text(rule, "expr"));
        for key in ["summary", "description"] {
            for template in between(text(&rule["annotations"], key), "{{", "}}") {
                let label = template.strip_prefix("$labels.");
                let fits = label.map_or(template.starts_with("$value"), |label| {
                    labels.contains(label)
                });
                assert!(fits, "{{{{ {template} }}}} has no value in {rule}");
            }
        }
    }
    for wanted in [
        "fanlight_backend_up",
        "fanlight_calls_suspended",
        "fanlight_spans_dropped_total",
        "fanlight_backend_restarts_total",
        "fanlight_replicas",
        "fanlight_valkey_connected",
    ] {
        assert!(checker.named.contains(wanted), "no rule about {wanted}");
    }
}

#[test]
fn queries_of_the_reference_use_exposed_metrics() {
    let (_, rows) = METRICS
        .split_once("| question | query |\n|---|---|\n")
        .expect("a table of queries");
    let queries = between(rows, "| `", "` |");
    assert!(!queries.is_empty());
    let mut checker = checker();
    for query in queries {
        checker.query(query);
    }
}

#[test]
fn suspended_calls_alert_uses_the_limit() {
    let limits = between(FRONTEND, "limit(\"suspendedCalls\", ", ")");
    let [limit] = limits[..] else {
        panic!("the front end has one such limit, not {limits:?}");
    };
    assert!(
        ALERTS.contains(&format!("fanlight_calls_suspended > 0.8 * {limit}")),
        "the limit is {limit}"
    );
}

#[test]
fn prometheus_scrapes_the_job_of_the_rules() {
    let config = yaml(PROMETHEUS);
    assert_eq!(list(&config, "rule_files"), ["alerts.yaml"]);
    let jobs: Vec<&str> = list(&config, "scrape_configs")
        .iter()
        .map(|job| text(job, "job_name"))
        .collect();
    assert_eq!(jobs, ["fanlight"]);
    let target = &config["scrape_configs"][0]["static_configs"][0]["targets"][0];
    assert_eq!(target, "127.0.0.1:8081", "the admin listener");
}

#[test]
fn collector_pipelines_use_all_components() {
    let config = yaml(COLLECTOR);
    let service = &config["service"];
    let listed = |pipeline: &Value, key: &str| -> BTreeSet<String> {
        list(pipeline, key)
            .iter()
            .map(|name| name.as_str().expect("a name").to_owned())
            .collect()
    };
    for part in ["receivers", "processors", "exporters"] {
        let used: BTreeSet<String> = service["pipelines"]
            .as_object()
            .expect("pipelines")
            .values()
            .flat_map(|p| listed(p, part))
            .collect();
        let defined: BTreeSet<String> =
            keys(&config[part]).into_iter().map(str::to_owned).collect();
        assert_eq!(used, defined, "{part} used and defined");
    }
    let extensions: BTreeSet<String> = keys(&config["extensions"])
        .into_iter()
        .map(str::to_owned)
        .collect();
    assert_eq!(listed(service, "extensions"), extensions);
    assert_eq!(
        keys(&service["pipelines"]),
        BTreeSet::from(["metrics", "traces"])
    );
    let protocols = &config["receivers"]["otlp"]["protocols"];
    assert!(text(&protocols["http"], "endpoint").ends_with(":4318"));
    assert!(text(&protocols["grpc"], "endpoint").ends_with(":4317"));
}

#[test]
fn dashboard_uses_exposed_metrics() {
    let mut checker = checker();
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("JSON");
    assert!(
        dashboard["schemaVersion"].is_u64()
            && !text(&dashboard, "uid").is_empty()
            && !text(&dashboard, "title").is_empty()
    );
    let variables: Vec<&str> = list(&dashboard["templating"], "list")
        .iter()
        .map(|v| text(v, "name"))
        .collect();
    for variable in list(&dashboard["templating"], "list")
        .iter()
        .filter(|variable| variable["type"] == "query")
    {
        let query = text(&variable["query"], "query");
        assert_eq!(query, text(variable, "definition"));
        let (series, label) = between(query, "label_values(", ")")[0]
            .rsplit_once(',')
            .expect("a label");
        let labels = checker.query(&plain(series, &variables));
        assert!(labels.contains(label.trim()), "{query}");
    }
    let mut ids = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for panel in list(&dashboard, "panels") {
        assert!(
            ids.insert(panel["id"].as_u64().expect("an id")),
            "two panels have one id: {panel}"
        );
        place(&panel["gridPos"], &mut taken);
        if panel["type"] == "row" {
            continue;
        }
        assert!(
            !text(panel, "description").is_empty() && panel["fieldConfig"]["defaults"].is_object(),
            "{panel}"
        );
        assert!(!list(panel, "targets").is_empty(), "{panel}");
        let references: BTreeSet<&str> = list(panel, "targets")
            .iter()
            .map(|target| text(target, "refId"))
            .collect();
        assert_eq!(references.len(), list(panel, "targets").len(), "{panel}");
        for target in list(panel, "targets") {
            assert_eq!(target["datasource"]["uid"], "${datasource}");
            let labels = checker.query(&plain(text(target, "expr"), &variables));
            for label in between(text(target, "legendFormat"), "{{", "}}") {
                assert!(
                    labels.contains(label),
                    "the legend names {label}, which the result has not: {target}"
                );
            }
        }
    }
    let missing: Vec<&String> = all_but(&checker.exposed, &checker.named).collect();
    assert!(missing.is_empty(), "not on the dashboard: {missing:?}");
}

/// The query with values in place of Grafana's variables, each of which must exist.
fn plain(query: &str, variables: &[&str]) -> String {
    for used in query.split('$').skip(1) {
        let end = used
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(used.len());
        let name = &used[..end];
        assert!(
            name == "__rate_interval" || variables.contains(&name),
            "no variable {name}: {query}"
        );
    }
    query
        .replace("$__rate_interval", "5m")
        .replace("$instance", ".*")
        .replace("$backend", ".*")
}

/// Records a panel's place in Grafana's grid, which is 24 wide; Grafana would move overlapping
/// panels.
fn place(position: &Value, taken: &mut BTreeSet<(u64, u64)>) {
    let number = |key: &str| {
        position[key]
            .as_u64()
            .unwrap_or_else(|| panic!("no {key} in {position}"))
    };
    let (x, y, width, height) = (number("x"), number("y"), number("w"), number("h"));
    assert!(x + width <= 24, "beyond the edge: {position}");
    for cell in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
        assert!(taken.insert(cell), "two panels at {cell:?}: {position}");
    }
}

/// Metrics that no query names; of a histogram, one of its three kinds of samples suffices.
fn all_but<'a>(
    exposed: &'a std::collections::BTreeMap<String, Labels>,
    named: &'a BTreeSet<String>,
) -> impl Iterator<Item = &'a String> {
    let stem = |name: &str| {
        let stem = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix));
        stem.unwrap_or(name).to_owned()
    };
    let stems: BTreeSet<String> = named.iter().map(|name| stem(name)).collect();
    exposed.keys().filter(move |name| {
        !["target_info", "up"].contains(&name.as_str()) && !stems.contains(&stem(name))
    })
}

#[test]
fn unexposed_metrics_are_detected() {
    for wrong in [
        "fanlight_backend_upp",
        "fanlight_backend_restarts",
        "fanlight_backend_up{backend=\"a\"}",
        "sum by (tool) (fanlight_backend_up)",
        "mcp_server_operation_duration_seconds_count{error_type=\"time_out\"}",
        "mcp_server_operation_duration_seconds_count{mcp_method_name=\"tool/call\"}",
        "histogram_quantile(0.9, sum(rate(mcp_server_operation_duration_seconds_bucket[5m])))",
        "sum by (le) (",
    ] {
        let mut checker = checker();
        let checked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| checker.query(wrong)));
        assert!(checked.is_err(), "{wrong} was let through");
    }
}
