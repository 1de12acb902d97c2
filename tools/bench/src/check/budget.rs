//! The budget: the permitted instructions of each kind of call, and the tolerance.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{BenchError, Doing, Result};

/// The content of the budget file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Budget {
    /// The percentage by which a count may exceed the budget: the variation between runs.
    tolerance_percent: f64,
    /// The permitted instructions by kind of call.
    instructions: BTreeMap<String, f64>,
}

/// The result of a comparison.
pub(super) struct Compared {
    pub(super) text: String,
    /// The number of counts that exceed their budget or have none.
    pub(super) count: usize,
}

impl Budget {
    pub(super) fn new(counted: &BTreeMap<String, f64>) -> Self {
        Self {
            tolerance_percent: 10.0,
            instructions: counted.clone(),
        }
    }

    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).doing(format!("reading {}", path.display()))?;
        serde_json::from_str(&text)
            .map_err(|error| BenchError::Other(format!("{}: {error}", path.display())))
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| BenchError::Other(error.to_string()))?;
        fs::write(path, text + "\n").doing(format!("writing {}", path.display()))
    }

    /// Whether none of these counts is over its budget.
    pub(super) fn has_room_for(&self, counted: &BTreeMap<String, f64>) -> bool {
        counted
            .iter()
            .all(|(name, found)| percent_over(*found, self.of_work(name)) <= self.tolerance_percent)
    }

    /// The budget for a kind of work; zero if there is none.
    fn of_work(&self, name: &str) -> f64 {
        self.instructions.get(name).copied().unwrap_or(0.0)
    }

    pub(super) fn compare(&self, counted: &BTreeMap<String, f64>) -> Compared {
        let (mut text, mut count) = (String::new(), 0);
        for (name, found) in counted {
            let budget = self.of_work(name);
            let change = percent_over(*found, budget);
            let verdict = match change {
                _ if budget <= 0.0 => "NO BUDGET",
                over if over > self.tolerance_percent => "OVER BUDGET",
                under if under < -self.tolerance_percent => "under budget: lower it with --update",
                _ => "ok",
            };
            count += usize::from(verdict.ends_with("BUDGET"));
            let _ = writeln!(
                text,
                "{name:<32} {found:>12.0} of {budget:>12.0} ({change:+.1}%) {verdict}"
            );
        }
        for name in self
            .instructions
            .keys()
            .filter(|name| !counted.contains_key(*name))
        {
            count += 1;
            let _ = writeln!(text, "{name:<32} NOT COUNTED");
        }
        Compared { text, count }
    }
}

/// The percentage by which a count exceeds its budget; infinite for a budget of zero.
fn percent_over(found: f64, budget: f64) -> f64 {
    (found / budget - 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pairs: &[(&str, f64)]) -> BTreeMap<String, f64> {
        pairs
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    }

    #[test]
    fn count_over_the_tolerance_fails() {
        let budget = Budget::new(&counts(&[("a", 1000.0), ("b", 1000.0)]));
        assert_eq!(
            budget
                .compare(&counts(&[("a", 1099.0), ("b", 500.0)]))
                .count,
            0
        );
        assert_eq!(
            budget
                .compare(&counts(&[("a", 1101.0), ("b", 1000.0)]))
                .count,
            1
        );
    }

    #[test]
    fn room_is_for_counts_within_the_tolerance_alone() {
        let budget = Budget::new(&counts(&[("a", 1000.0), ("b", 1000.0)]));
        assert!(budget.has_room_for(&counts(&[("a", 1099.0)])));
        assert!(!budget.has_room_for(&counts(&[("a", 1000.0), ("b", 1101.0)])));
        assert!(!budget.has_room_for(&counts(&[("new", 1.0)])));
    }

    #[test]
    fn kind_that_is_missing_on_either_side_fails() {
        let budget = Budget::new(&counts(&[("a", 1000.0)]));
        assert_eq!(
            budget
                .compare(&counts(&[("a", 1000.0), ("new", 1.0)]))
                .count,
            1
        );
        assert_eq!(budget.compare(&counts(&[])).count, 1);
    }

    #[test]
    fn committed_budget_names_every_kind() {
        let budget = Budget::read(Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/budget.json"
        )))
        .unwrap();
        let named: Vec<_> = super::super::SETUPS
            .iter()
            .flat_map(|setup| setup.work)
            .map(|work| work.name)
            .collect();
        assert!(
            named
                .iter()
                .all(|name| budget.instructions.contains_key(*name)),
            "{budget:?}"
        );
    }
}
