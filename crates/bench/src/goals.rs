//! What Fanlight is to reach, and how far it is from it.
//!
//! Must not know: how anything is measured.

use serde::Serialize;

use crate::era::Era;
use crate::fake::payload::Tool;
use crate::results::Results;
use crate::scenario::calls::{self, Payload};
use crate::scenario::tracing;
use crate::scenario::tracing::Tracing;

/// One goal and what was measured of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Goal {
    pub(crate) name: String,
    pub(crate) bound: Bound,
    pub(crate) limit: f64,
    pub(crate) unit: &'static str,
    /// `None` if it was not measured.
    pub(crate) measured: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Bound {
    Most,
    Least,
}

impl Goal {
    fn most(name: impl Into<String>, limit: f64, unit: &'static str, measured: Option<f64>) -> Self {
        Self { name: name.into(), bound: Bound::Most, limit, unit, measured }
    }

    fn least(name: impl Into<String>, limit: f64, unit: &'static str, measured: Option<f64>) -> Self {
        Self { bound: Bound::Least, ..Self::most(name, limit, unit, measured) }
    }

    /// Whether it is reached; `None` if it was not measured.
    pub(crate) fn met(&self) -> Option<bool> {
        self.measured.map(|measured| match self.bound {
            Bound::Most => measured <= self.limit,
            Bound::Least => measured >= self.limit,
        })
    }
}

/// All goals, with what the results say of them.
pub(crate) fn all(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for era in Era::ALL {
        goals.extend(of_calls(results, era));
        goals.extend(of_latency(results, era));
        goals.extend(of_lists(results, era));
        goals.extend(of_streams(results, era));
        goals.extend(of_stdio(results, era));
        goals.extend(of_tracing(results, era));
    }
    goals.extend(of_start(results));
    goals.extend(of_memory(results));
    goals
}

/// `above / below`, if both were measured.
pub(crate) fn ratio(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    Some(above? / below.filter(|below| *below > 0.0)?)
}

fn of_calls(results: &Results, era: Era) -> Vec<Goal> {
    let cpu = |tool: Tool, system: &str| results.median(&calls::scenario(era, tool), system, "cpu_us_per_call");
    let mut goals = Vec::new();
    for Payload { tool, name, most_cpu, least_calls } in calls::PAYLOADS {
        let to_nginx = ratio(cpu(tool, "fanlight"), cpu(tool, "nginx"));
        goals.push(Goal::most(format!("CPU per call, {name}, {}", era.as_str()), most_cpu, "x nginx", to_nginx));
        // Neither system fills its processor, since load and servers share one: calls a second are the inverse of the
        // processor time of a call.
        let calls = to_nginx.map(f64::recip);
        goals.push(Goal::least(
            format!("calls per processor, {name}, {}", era.as_str()),
            least_calls,
            "x nginx",
            calls,
        ));
    }
    let small = Tool::Text(200);
    let ten = ratio(cpu(small, "fanlight10"), cpu(small, "fanlight"));
    goals.push(Goal::most(format!("10 backends, 200 B, {}", era.as_str()), 1.05, "x one backend", ten));
    goals
}

fn of_latency(results: &Results, era: Era) -> Vec<Goal> {
    let alone = |system: &str| results.median(&format!("alone {}", era.as_str()), system, "p50_us");
    let added = |system: &str| Some((alone(system)? - alone("direct")?).max(0.0));
    let half = |value: &str| results.median(&format!("half rate {}", era.as_str()), "fanlight", value);
    vec![
        Goal::most(
            format!("latency added, p50, {}", era.as_str()),
            1.3,
            "x nginx adds",
            ratio(added("fanlight"), added("nginx")),
        ),
        Goal::most(
            format!("p99.9 at half of peak, {}", era.as_str()),
            3.0,
            "x its p50",
            ratio(half("p999_us"), half("p50_us")),
        ),
    ]
}

fn of_lists(results: &Results, era: Era) -> Vec<Goal> {
    let list = |name: &str, value: &str| results.median(&format!("{name} {}", era.as_str()), "fanlight10", value);
    let named = |name: &str| format!("{name}, {}", era.as_str());
    vec![
        Goal::most(named("CPU of a list of 500 tools"), 60.0, "us", list("list", "cpu_us_per_call")),
        Goal::most(named("CPU of a page of 50 of them"), 60.0, "us", list("list page", "cpu_us_per_call")),
        Goal::most(named("fan-outs for 64 lists at start"), 1.0, "", list("list at once", "fan_outs_at_start")),
        Goal::most(named("fan-outs for 64 after a change"), 1.0, "", list("list at once", "fan_outs_after_change")),
    ]
}

fn of_streams(results: &Results, era: Era) -> Vec<Goal> {
    let paced = |value: &str| results.median(&format!("events paced {}", era.as_str()), "fanlight", value);
    let flood = results.median(&format!("events flood {}", era.as_str()), "fanlight", "cpu_us_per_event");
    let idle = |system: &str| results.median(&format!("idle {}", era.as_str()), system, "kib_per_stream");
    let named = |name: &str| format!("{name}, {}", era.as_str());
    vec![
        Goal::most(named("event forwarded, p99"), 1000.0, "us", paced("p99_us")),
        Goal::most(named("CPU per event, a few at a time"), 10.0, "us", paced("cpu_us_per_event")),
        Goal::most(named("CPU per event, many at once"), 10.0, "us", flood),
        Goal::most(named("memory of an idle stream, 1 backend"), 16.0, "KiB", idle("fanlight")),
        Goal::most(named("memory of an idle stream, 10 backends"), 16.0, "KiB", idle("fanlight10")),
    ]
}

/// The goal is a number of calls, or most of what bare pipes do: the second is the same on every machine.
fn of_stdio(results: &Results, era: Era) -> Vec<Goal> {
    let scenario = format!("stdio {}", era.as_str());
    let rate = |system: &str| results.median(&scenario, system, "calls_per_s");
    let share = ratio(rate("fanlight"), rate("pipe"));
    vec![
        Goal::least(format!("stdio calls, {}", era.as_str()), 60_000.0, "a second", rate("fanlight")),
        Goal::least(format!("or stdio calls, {}", era.as_str()), 0.9, "x bare pipe", share),
    ]
}

fn of_tracing(results: &Results, era: Era) -> Vec<Goal> {
    let ring = tracing_cost(results, era, Tracing::Ring);
    vec![Goal::most(format!("CPU per call, spans in the ring, {}", era.as_str()), 1.1, "x no spans", ring)]
}

/// How many times more a call takes than without spans.
pub(crate) fn tracing_cost(results: &Results, era: Era, with: Tracing) -> Option<f64> {
    let cpu = |tracing: Tracing| results.median(&tracing::scenario(era), tracing.as_str(), "cpu_us_per_call");
    ratio(cpu(with), cpu(Tracing::Off))
}

fn of_start(results: &Results) -> Vec<Goal> {
    let listed = |scenario: &str| results.median(scenario, "fanlight", "listed_ms");
    vec![
        Goal::most("first list after start, 1 server", 50.0, "ms", listed("start 1")),
        Goal::most(
            "first list after start, 200 slow servers",
            1.5,
            "x one slow server",
            ratio(listed("start 200 slow"), listed("start 1 slow")),
        ),
        Goal::most("size of the program", 25.0, "MiB", results.median("size", "fanlight", "mib")),
    ]
}

fn of_memory(results: &Results) -> Vec<Goal> {
    let burst = |value: &str| results.median("burst of 1 GiB", "fanlight", value);
    let kept = burst("after_5_s_mib").zip(burst("before_mib")).map(|(after, before)| after - before);
    let churn = |value: &str| results.median("churn", "fanlight", value);
    vec![
        Goal::most("memory kept after 1 GiB of results", 16.0, "MiB", kept),
        Goal::most(
            "memory while sessions come and go",
            1.05,
            "last third : second",
            ratio(churn("last_third_mib"), churn("second_third_mib")),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Values;

    #[test]
    fn a_goal_is_met_missed_or_not_measured() {
        let mut results = Results::default();
        let scenario = calls::scenario(Era::Modern, Tool::Text(200));
        results.add(&scenario, "nginx", 0, Values::from([("cpu_us_per_call", 10.0)]));
        results.add(&scenario, "fanlight", 0, Values::from([("cpu_us_per_call", 13.0)]));
        let goals = all(&results);
        let met = |name: &str| goals.iter().find(|goal| goal.name == name).unwrap().met();
        assert_eq!(met("CPU per call, 200 B, modern"), Some(true));
        assert_eq!(met("calls per processor, 200 B, modern"), Some(false));
        assert_eq!(met("CPU per call, 200 B, legacy"), None);
    }

    #[test]
    fn nothing_is_no_divisor() {
        assert_eq!(ratio(Some(1.0), Some(0.0)), None);
        assert_eq!(ratio(Some(3.0), Some(2.0)), Some(1.5));
    }
}
