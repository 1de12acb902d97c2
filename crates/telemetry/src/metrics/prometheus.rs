//! Writes metrics as Prometheus text (exposition format 0.0.4). Names follow the rules of
//! OpenTelemetry's Prometheus compatibility: dots become underscores, units become words at the
//! end, and counters get `_total`.

use std::fmt::Write as _;

use opentelemetry_sdk::Resource;

use super::family::{Counts, Family, FamilyInfo, Labels, Shape, Values};
use super::histogram::BOUNDS;

/// Writes the description of the measured resource, and then these metrics.
pub(super) fn with_target(resource: &Resource, families: &[Family]) -> String {
    let mut out = String::with_capacity(8192);
    out.push_str("# HELP target_info The measured program.\n# TYPE target_info gauge\n");
    let target: Vec<(&str, String)> = resource
        .iter()
        .map(|(key, value)| (key.as_str(), value.to_string()))
        .collect();
    sample(&mut out, "target_info", &target, None, "1");
    out.push_str(&prometheus(families));
    out
}

/// Writes these metrics in the Prometheus text exposition format 0.0.4.
pub fn prometheus(families: &[Family]) -> String {
    let mut out = String::new();
    for family in families {
        let name = name(family.info);
        let kind = match family.info.shape {
            Shape::Histogram => "histogram",
            Shape::Counter => "counter",
            Shape::UpDownCounter | Shape::Gauge => "gauge",
        };
        append(
            &mut out,
            format_args!("# HELP {name} {}\n# TYPE {name} {kind}\n", family.info.help),
        );
        for (labels, values) in &family.points {
            match values {
                Values::Integer(value) => sample(&mut out, &name, labels, None, &value.to_string()),
                Values::Histogram(counts) => histogram(&mut out, &name, labels, counts),
            }
        }
    }
    out
}

/// The name of a metric in Prometheus.
pub(super) fn name(info: &FamilyInfo) -> String {
    let mut name = info.name.replace('.', "_");
    match info.unit {
        "s" => name.push_str("_seconds"),
        "By" => name.push_str("_bytes"),
        // Units that are annotations in braces add nothing to the name, like a missing unit.
        _ => {}
    }
    if info.shape == Shape::Counter {
        name.push_str("_total");
    }
    name
}

fn histogram(out: &mut String, name: &str, labels: &Labels, counts: &Counts) {
    let bucket = format!("{name}_bucket");
    let mut so_far = 0;
    let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
    for (count, bound) in counts.buckets.iter().zip(bounds) {
        so_far += count;
        sample(
            out,
            &bucket,
            labels,
            Some(("le", &bound)),
            &so_far.to_string(),
        );
    }
    sample(
        out,
        &format!("{name}_sum"),
        labels,
        None,
        &counts.sum_seconds.to_string(),
    );
    sample(
        out,
        &format!("{name}_count"),
        labels,
        None,
        &so_far.to_string(),
    );
}

fn sample(
    out: &mut String,
    name: &str,
    labels: &[(&str, String)],
    last: Option<(&str, &str)>,
    value: &str,
) {
    out.push_str(name);
    let all = labels
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .chain(last);
    let mut before = '{';
    for (key, value) in all {
        append(
            out,
            format_args!(
                "{before}{}=\"",
                key.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
            ),
        );
        for c in value.chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                other => out.push(other),
            }
        }
        out.push('"');
        before = ',';
    }
    if before == ',' {
        out.push('}');
    }
    append(out, format_args!(" {value}\n"));
}

fn append(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(text);
}
