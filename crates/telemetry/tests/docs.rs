//! docs/tracing.md lists exactly what the code records.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "the lint knows test functions only, not their helpers")]

use fanlight_telemetry::ErrorType;
use fanlight_telemetry::metrics::{FAMILIES, Metrics};
use fanlight_telemetry::names::{ATTRIBUTES, event};

const DOCUMENT: &str = include_str!("../../../docs/tracing.md");

/// The rows of the table below the heading and column given, cells trimmed.
fn table(heading: &str, column: &str) -> Vec<Vec<String>> {
    let section = DOCUMENT.split_once(&format!("{heading}\n")).expect(heading).1;
    let rows = section.lines().skip_while(|line| !line.starts_with(&format!("| {column} |"))).skip(2);
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
    let rows: Vec<Vec<String>> = rows.take_while(|line| line.starts_with('|')).map(cells).collect();
    assert!(!rows.is_empty(), "no table below {heading}");
    rows
}

#[test]
fn attributes_are_documented_with_their_spans() {
    let documented: Vec<(String, String)> =
        table("### Attributes", "attribute").into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    let kinds = |kinds: &[fanlight_telemetry::names::Kind]| {
        kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
    };
    let recorded: Vec<(String, String)> =
        ATTRIBUTES.iter().map(|attribute| (attribute.name.to_owned(), kinds(attribute.kinds))).collect();
    assert_eq!(documented, recorded);
    for name in event::ATTRIBUTES {
        assert!(DOCUMENT.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn errors_are_documented() {
    let documented: Vec<String> = table("### Errors", "`error.type`").into_iter().map(|row| row[0].clone()).collect();
    let fixed: Vec<String> = ErrorType::FIXED.iter().map(|error| error.as_text().into_owned()).collect();
    assert_eq!(documented, fixed);
}

#[test]
fn metrics_are_documented_and_exposed() {
    let metrics = Metrics::new(fanlight_telemetry::metrics::MetricLimits::default());
    let resource = fanlight_telemetry::Telemetry::start(fanlight_telemetry::Settings::default()).expect("starts").0;
    let exposed = metrics.prometheus(resource.resource().expect("a resource"));
    let rows = table("## Metrics", "metric");
    assert_eq!(rows.len(), FAMILIES.len());
    for (row, family) in rows.iter().zip(FAMILIES) {
        let labels = family.labels.join(", ");
        assert_eq!(row, &[family.name, &row[1], family.shape.as_str(), family.unit, &labels]);
        assert!(exposed.contains(&format!("# TYPE {} ", row[1])), "{} is not exposed", row[1]);
    }
}
