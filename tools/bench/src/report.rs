//! Tables for people and JSON for programs.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::error::{Doing, Result};
use crate::goals::{self, Bound, ratio};
use crate::results::Results;
use crate::scenario::{Plan, calls};

/// The machine of the measurements.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    processor: String,
    processors: usize,
    kernel: String,
    /// Load averages before and after, which show other load.
    load_before: String,
    load_after: String,
}

impl Machine {
    pub(crate) fn before_load() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let models = cpuinfo
            .lines()
            .filter_map(|line| line.strip_prefix("model name"));
        Self {
            processor: models
                .clone()
                .next()
                .unwrap_or_default()
                .trim_start_matches([' ', '\t', ':'])
                .to_owned(),
            processors: models.count().max(1),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            load_before: first_line("/proc/loadavg"),
            load_after: String::new(),
        }
    }

    /// Its processors and its kernel.
    pub(crate) fn described(&self) -> String {
        format!(
            "{} processors, {}; Linux {}",
            self.processors, self.processor, self.kernel
        )
    }

    /// Other load: the load averages before and after.
    pub(crate) fn other_load(&self) -> String {
        format!("{} before, {} after", self.load_before, self.load_after)
    }

    pub(crate) fn after_load(self) -> Self {
        Self {
            load_after: first_line("/proc/loadavg"),
            ..self
        }
    }
}

fn first_line(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Writes all measured values to a JSON file.
pub(crate) fn write(path: &Path, machine: &Machine, plan: &Plan, results: &Results) -> Result<()> {
    let file = serde_json::json!({
        "machine": machine,
        "rounds": plan.rounds,
        "seconds": plan.window.as_secs_f64(),
        "connections": plan.connections,
        "goals": goals::all(results),
        "medians": results.medians(),
        "samples": results.samples,
        "skipped": results.skipped,
        "failures": results.failures,
    });
    fs::write(path, format!("{file:#}")).doing(format!("writing {}", path.display()))
}

/// The tables: the costs of calls compared with nginx, all medians, the goals, and the skipped
/// measurements.
pub(crate) fn tables(machine: &Machine, plan: &Plan, results: &Results) -> String {
    let Machine {
        processor,
        processors,
        kernel,
        load_before,
        load_after,
    } = machine;
    let (rounds, seconds, connections) = (plan.rounds, plan.window.as_secs_f64(), plan.connections);
    let mut text = format!(
        "{processors} processors, {processor}; Linux {kernel}; load before {load_before}, after {load_after}\n\
         {rounds} rounds of {seconds} s, {connections} connections; medians\n\n"
    );
    for (title, table) in [
        ("CPU per call, in us", calls_table(plan, results)),
        ("Everything else, medians", medians_table(results)),
        ("Goals", goals_table(results)),
    ] {
        if table.rows.len() > 1 {
            let _ = write!(text, "{title}\n\n{table}\n");
        }
    }
    for (title, lines) in [
        ("Not measured", &results.skipped),
        ("Failed", &results.failures),
    ] {
        for line in lines {
            let _ = writeln!(text, "{title}: {line}");
        }
    }
    text
}

/// A table in Markdown.
#[derive(Debug)]
struct Table {
    rows: Vec<Vec<String>>,
    /// Whether all columns but the first have numbers.
    has_numbers: bool,
}

impl Table {
    fn new(header: &[&str], has_numbers: bool) -> Self {
        let header = header.iter().map(|&heading| heading.to_owned()).collect();
        Self {
            rows: vec![header],
            has_numbers,
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        for (index, row) in self.rows.iter().enumerate() {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                if self.has_numbers && column > 0 {
                    write!(f, "| {cell:>width$} ")?;
                } else {
                    write!(f, "| {cell:<width$} ")?;
                }
            }
            writeln!(f, "|")?;
            if index == 0 {
                for width in &widths {
                    write!(f, "|{}", "-".repeat(width + 2))?;
                }
                writeln!(f, "|")?;
            }
        }
        Ok(())
    }
}

fn calls_table(plan: &Plan, results: &Results) -> Table {
    let header = [
        "result",
        "nginx",
        "fanlight",
        "to nginx",
        "10 backends",
        "to 1 backend",
    ];
    let mut table = Table::new(&header, true);
    for era in &plan.eras {
        for calls::Payload { tool, name, .. } in calls::PAYLOADS {
            let cpu = |system: &str| {
                results.median(&calls::scenario(*era, tool), system, "cpu_us_per_call")
            };
            let (nginx, one, ten) = (cpu("nginx"), cpu("fanlight"), cpu("fanlight10"));
            if nginx.or(one).or(ten).is_some() {
                let numbers =
                    [nginx, one, ratio(one, nginx), ten, ratio(ten, one)].map(format_value);
                let what = format!("{name}, {}", era.as_str());
                table.rows.push([what].into_iter().chain(numbers).collect());
            }
        }
    }
    table
}

fn medians_table(results: &Results) -> Table {
    let mut table = Table::new(&["scenario", "system", "values"], false);
    for median in results.medians() {
        let values: Vec<_> = median
            .values
            .iter()
            .map(|(name, value)| format!("{name} {}", format_value(Some(*value))))
            .collect();
        let row = vec![median.scenario, median.system, values.join(", ")];
        table.rows.push(row);
    }
    table
}

fn goals_table(results: &Results) -> Table {
    let mut table = Table::new(&["goal", "at", "limit", "measured", "met"], true);
    for goal in goals::all(results) {
        let met = match goal.met() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => continue,
        };
        let bound = if goal.bound == Bound::Most {
            "most"
        } else {
            "least"
        };
        let limit = format!("{} {}", format_value(Some(goal.limit)), goal.unit);
        let measured = format_value(goal.measured);
        let row = [goal.name.as_str(), bound, limit.trim(), &measured, met];
        table.rows.push(row.map(str::to_owned).to_vec());
    }
    table
}

/// Three significant digits.
pub(crate) fn format_value(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let shown: Vec<_> = [0.123, 12.34, 12345.6]
            .into_iter()
            .map(|value| format_value(Some(value)))
            .collect();
        assert_eq!(shown, ["0.12", "12.3", "12346"]);
    }
}
