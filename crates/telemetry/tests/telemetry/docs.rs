//! docs/tracing.md and docs/reference/metrics.md list exactly what the code records.
//! `UPDATE_GENERATED=1` writes the table of metrics.

use fanlight_telemetry::ErrorType;
use fanlight_telemetry::metrics::{FAMILIES, Metrics};
use fanlight_telemetry::names::{ATTRIBUTES, event};

const DOCUMENT: &str = include_str!("../../../../docs/tracing.md");

/// The rows of the table below this heading with this column, with trimmed cells.
fn table(heading: &str, column: &str) -> Vec<Vec<String>> {
    let section = DOCUMENT
        .split_once(&format!("{heading}\n"))
        .expect(heading)
        .1;
    let rows = section
        .lines()
        .skip_while(|line| !line.starts_with(&format!("| {column} |")))
        .skip(2);
    let cells = |line: &str| {
        line.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().replace('`', ""))
            .collect()
    };
    let rows: Vec<Vec<String>> = rows
        .take_while(|line| line.starts_with('|'))
        .map(cells)
        .collect();
    assert!(!rows.is_empty(), "no table below {heading}");
    rows
}

#[test]
fn attributes_are_documented_with_their_spans() {
    let documented: Vec<(String, String)> = table("### Attributes", "attribute")
        .into_iter()
        .map(|row| (row[0].clone(), row[1].clone()))
        .collect();
    let kinds = |kinds: &[fanlight_telemetry::names::Kind]| {
        kinds
            .iter()
            .map(|kind| kind.as_str())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let recorded: Vec<(String, String)> = ATTRIBUTES
        .iter()
        .map(|attribute| (attribute.name.to_owned(), kinds(attribute.kinds)))
        .collect();
    assert_eq!(documented, recorded);
    for name in event::ATTRIBUTES {
        assert!(DOCUMENT.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn errors_are_documented() {
    let documented: Vec<String> = table("### Errors", "`error.type`")
        .into_iter()
        .map(|row| row[0].clone())
        .collect();
    let fixed: Vec<String> = ErrorType::FIXED
        .iter()
        .map(|error| error.as_text().into_owned())
        .collect();
    assert_eq!(documented, fixed);
}

const BEGIN: &str = "<!-- Made from crates/telemetry/src/metrics: `UPDATE_GENERATED=1 cargo test -p fanlight-telemetry --test docs` writes it. -->\n";

#[test]
fn metrics_are_documented_and_exposed() {
    fanlight_testkit::generated::assert_part("docs/reference/metrics.md", BEGIN, &metrics_table());
}

/// A row for each metric, in the order of the definitions.
fn metrics_table() -> String {
    let metrics = Metrics::new(fanlight_telemetry::metrics::MetricLimits::default());
    let telemetry = fanlight_telemetry::Telemetry::start(fanlight_telemetry::Settings::default())
        .expect("starts")
        .0;
    let exposed = metrics.prometheus(telemetry.resource().expect("a resource"));
    let mut table =
        "\n| metric | Prometheus | meaning | instrument | unit | labels |\n|---|---|---|---|---|---|\n".to_owned();
    for family in FAMILIES {
        let is_its = |line: &&str| line.starts_with("# HELP ") && line.ends_with(family.help);
        let help = exposed
            .lines()
            .find(is_its)
            .unwrap_or_else(|| panic!("{} is not exposed", family.name));
        let prometheus = help.split(' ').nth(2).unwrap();
        let labels: Vec<String> = family
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        let (name, meaning, shape) = (family.name, family.help, family.shape.as_str());
        let (unit, labels) = (family.unit, labels.join(", "));
        table +=
            &format!("| `{name}` | `{prometheus}` | {meaning} | {shape} | {unit} | {labels} |\n");
    }
    table + "\n"
}
