//! Measured values: samples, one for each round, and their medians.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::latency::median;

/// The values of one round of one scenario for one system.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) scenario: String,
    pub(crate) system: String,
    pub(crate) round: usize,
    /// Values by name; a name ends with the unit.
    pub(crate) values: Values,
}

pub(crate) type Values = BTreeMap<&'static str, f64>;

/// All measured values of one run.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) samples: Vec<Sample>,
    /// Skipped measurements with their reasons.
    pub(crate) skipped: Vec<String>,
    /// Failed measurements: a wrong answer, a broken connection.
    pub(crate) failures: Vec<String>,
}

/// The medians of all rounds of one scenario for one system.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Median {
    pub(crate) scenario: String,
    pub(crate) system: String,
    pub(crate) rounds: usize,
    pub(crate) values: Values,
}

impl Results {
    pub(crate) fn add(&mut self, scenario: &str, system: &str, round: usize, values: Values) {
        let shown: Vec<_> = values
            .iter()
            .map(|(name, value)| format!("{name} {value:.1}"))
            .collect();
        eprintln!(
            "  {scenario:<24} {system:<11} round {}: {}",
            round + 1,
            shown.join(", ")
        );
        self.samples.push(Sample {
            scenario: scenario.into(),
            system: system.into(),
            round,
            values,
        });
    }

    /// The median of one value over the rounds; `None` if it was not measured.
    pub(crate) fn median(&self, scenario: &str, system: &str, value: &str) -> Option<f64> {
        let all: Vec<f64> = self
            .samples(scenario, system)
            .filter_map(|sample| sample.values.get(value))
            .copied()
            .collect();
        median(&all)
    }

    /// The smallest value, the median and the largest value over the rounds; `None` if it was not
    /// measured.
    pub(crate) fn range(&self, scenario: &str, system: &str, value: &str) -> Option<[f64; 3]> {
        let all = || {
            self.samples(scenario, system)
                .filter_map(|sample| sample.values.get(value))
                .copied()
        };
        let (least, greatest) = (all().reduce(f64::min)?, all().reduce(f64::max)?);
        Some([least, self.median(scenario, system, value)?, greatest])
    }

    /// The medians, in the order of measurement.
    pub(crate) fn medians(&self) -> Vec<Median> {
        let mut medians: Vec<Median> = Vec::new();
        for Sample {
            scenario,
            system,
            values,
            ..
        } in &self.samples
        {
            if medians
                .iter()
                .any(|known| known.scenario == *scenario && known.system == *system)
            {
                continue;
            }
            let values = values
                .keys()
                .filter_map(|name| Some((*name, self.median(scenario, system, name)?)));
            let (values, rounds) = (values.collect(), self.samples(scenario, system).count());
            medians.push(Median {
                scenario: scenario.clone(),
                system: system.clone(),
                rounds,
                values,
            });
        }
        medians
    }

    fn samples(&self, scenario: &str, system: &str) -> impl Iterator<Item = &Sample> {
        self.samples
            .iter()
            .filter(move |sample| sample.scenario == scenario && sample.system == system)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_per_scenario_system_and_value() {
        let mut results = Results::default();
        for (round, cost) in [5.0, 1.0, 3.0].into_iter().enumerate() {
            results.add(
                "calls",
                "a",
                round,
                Values::from([("cpu", cost), ("rss", 7.0)]),
            );
            results.add("calls", "b", round, Values::from([("cpu", cost * 10.0)]));
        }
        assert_eq!(results.median("calls", "a", "cpu"), Some(3.0));
        assert_eq!(results.median("calls", "b", "cpu"), Some(30.0));
        assert_eq!(results.median("calls", "b", "rss"), None);
        assert_eq!(results.range("calls", "a", "cpu"), Some([1.0, 3.0, 5.0]));
        assert_eq!(results.range("calls", "b", "rss"), None);
        let medians = results.medians();
        assert_eq!(medians.len(), 2);
        assert_eq!((medians[0].rounds, medians[0].values.len()), (3, 2));
    }
}
