//! The goals and their measured values.

use serde::Serialize;

use crate::era::Era;
use crate::fake::payload::Tool;
use crate::results::Results;
use crate::scenario::calls::{self, Payload};
use crate::scenario::{access, tracing};
use crate::system::Kind;

/// One goal and its measured value.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Goal {
    pub(crate) name: String,
    pub(crate) bound: Bound,
    pub(crate) limit: f64,
    pub(crate) unit: &'static str,
    /// The measured value; `None` if it was not measured.
    pub(crate) measured: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Bound {
    Most,
    Least,
}

impl Goal {
    /// Whether the goal is reached; `None` if it was not measured.
    pub(crate) fn met(&self) -> Option<bool> {
        self.measured.map(|measured| match self.bound {
            Bound::Most => measured <= self.limit,
            Bound::Least => measured >= self.limit,
        })
    }
}

/// Collects goals from the results.
struct Goals<'a> {
    results: &'a Results,
    all: Vec<Goal>,
}

/// All goals, each with its measured value.
pub(crate) fn all(results: &Results) -> Vec<Goal> {
    let mut goals = Goals {
        results,
        all: Vec::new(),
    };
    Era::ALL.into_iter().for_each(|era| goals.of_era(era));
    goals.of_access();
    goals.of_process();
    goals.all
}

/// `above / below`, if both were measured.
pub(crate) fn ratio(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    Some(above? / below.filter(|below| *below > 0.0)?)
}

impl Goals<'_> {
    fn most(
        &mut self,
        name: impl Into<String>,
        limit: f64,
        unit: &'static str,
        measured: Option<f64>,
    ) {
        self.all.push(Goal {
            name: name.into(),
            bound: Bound::Most,
            limit,
            unit,
            measured,
        });
    }

    fn least(
        &mut self,
        name: impl Into<String>,
        limit: f64,
        unit: &'static str,
        measured: Option<f64>,
    ) {
        self.all.push(Goal {
            name: name.into(),
            bound: Bound::Least,
            limit,
            unit,
            measured,
        });
    }

    fn of_era(&mut self, era: Era) {
        let results = self.results;
        let named = |name: &str| format!("{name}, {}", era.as_str());
        let value = |scenario: &str, system: &str, name: &str| {
            results.median(&format!("{scenario} {}", era.as_str()), system, name)
        };
        let cpu = |tool: Tool, system: &str| {
            results.median(&calls::scenario(era, tool), system, "cpu_us_per_call")
        };
        for Payload {
            tool,
            name,
            most_cpu,
            least_calls,
        } in calls::PAYLOADS
        {
            let to_nginx = ratio(cpu(tool, "fanlight"), cpu(tool, "nginx"));
            self.most(
                named(&format!("CPU per call, {name}")),
                most_cpu,
                "x nginx",
                to_nginx,
            );
            // Neither system fills its processor, since load and servers share one. So calls per
            // second are the inverse of a call's processor time.
            let calls = to_nginx.map(f64::recip);
            self.least(
                named(&format!("calls per processor, {name}")),
                least_calls,
                "x nginx",
                calls,
            );
        }
        let small = |system| cpu(Tool::Text(200), system);
        self.most(
            named("10 backends, 200 B"),
            1.05,
            "x one backend",
            ratio(small("fanlight10"), small("fanlight")),
        );

        let added = |system| {
            Some((value("alone", system, "p50_us")? - value("alone", "direct", "p50_us")?).max(0.0))
        };
        self.most(
            named("latency added, p50"),
            1.3,
            "x nginx adds",
            ratio(added("fanlight"), added("nginx")),
        );
        let half = |name| value("half rate", "fanlight", name);
        self.most(
            named("p99.9 at half of peak"),
            3.0,
            "x its p50",
            ratio(half("p999_us"), half("p50_us")),
        );

        let list = |scenario, name| value(scenario, "fanlight10", name);
        self.most(
            named("CPU of a list of 500 tools"),
            60.0,
            "us",
            list("list", "cpu_us_per_call"),
        );
        self.most(
            named("fan-outs for 64 lists at start"),
            1.0,
            "",
            list("list at once", "fan_outs_at_start"),
        );
        self.most(
            named("fan-outs for 64 after a change"),
            1.0,
            "",
            list("list at once", "fan_outs_after_change"),
        );

        let paced = |name| value("events paced", "fanlight", name);
        self.most(named("event forwarded, p99"), 1000.0, "us", paced("p99_us"));
        self.most(
            named("CPU per event, a few at a time"),
            10.0,
            "us",
            paced("cpu_us_per_event"),
        );
        let flood = value("events flood", "fanlight", "cpu_us_per_event");
        self.most(named("CPU per event, many at once"), 10.0, "us", flood);
        let idle = |system| value("idle", system, "kib_per_stream");
        self.most(
            named("memory of an idle stream, 1 backend"),
            16.0,
            "KiB",
            idle("fanlight"),
        );
        self.most(
            named("memory of an idle stream, 10 backends"),
            16.0,
            "KiB",
            idle("fanlight10"),
        );

        // The goal is a number of calls, or a share of the calls over bare pipes, which does not
        // depend on the machine.
        let stdio = |system| value("stdio", system, "calls_per_s");
        self.least(
            named("stdio calls"),
            60_000.0,
            "a second",
            stdio("fanlight"),
        );
        self.least(
            named("or stdio calls"),
            0.9,
            "x bare pipe",
            ratio(stdio("fanlight"), stdio("pipe")),
        );

        let traced =
            |kind: Kind| results.median(&tracing::scenario(era), kind.as_str(), "cpu_us_per_call");
        let without = traced(Kind::FanlightNoContent);
        let ring = ratio(without, traced(Kind::FanlightNoSpans));
        self.most(
            named("CPU per call, spans in the ring"),
            1.1,
            "x no spans",
            ring,
        );
        let recorded = traced(Kind::Fanlight).zip(traced(Kind::FanlightNoRecord));
        self.most(
            named("CPU per call, audit log"),
            2.0,
            "us",
            recorded.map(|(with, without)| with - without),
        );
        self.most(
            named("CPU per call, with its content"),
            1.15,
            "x no content",
            ratio(traced(Kind::Fanlight), without),
        );
    }

    fn of_access(&mut self) {
        let cpu = |kind: Kind| {
            self.results
                .median(access::SCENARIO, kind.as_str(), "cpu_us_per_call")
        };
        let [plain, token, tls, header, grant] = access::KINDS.map(cpu);
        self.most(
            "CPU per call, with a token",
            access::TOKEN_COST,
            "x without",
            ratio(token, plain),
        );
        self.most(
            "CPU per call, over TLS",
            access::TLS_COST,
            "x without",
            ratio(tls, plain),
        );
        self.most(
            "CPU per call, with a user's grant",
            access::GRANT_COST,
            "x a header",
            ratio(grant, header),
        );
    }

    fn of_process(&mut self) {
        let results = self.results;
        let value = |scenario: &str, name: &str| results.median(scenario, "fanlight", name);
        let listed = |scenario: &str| value(scenario, "listed_ms");
        self.most(
            "first list after start, 1 server",
            50.0,
            "ms",
            listed("start 1"),
        );
        let slow = ratio(listed("start 200 slow"), listed("start 1 slow"));
        self.most(
            "first list after start, 200 slow servers",
            1.5,
            "x one slow server",
            slow,
        );
        self.most("size of the program", 25.0, "MiB", value("size", "mib"));
        let burst = |name| value("burst of 1 GiB", name);
        let kept = burst("after_5_s_mib")
            .zip(burst("before_mib"))
            .map(|(after, before)| after - before);
        self.most("memory kept after 1 GiB of results", 16.0, "MiB", kept);
        let churn = ratio(
            value("churn", "last_third_mib"),
            value("churn", "second_third_mib"),
        );
        self.most(
            "memory while sessions come and go",
            1.05,
            "last third : second",
            churn,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Values;

    #[test]
    fn goal_is_met_missed_or_not_measured() {
        let mut results = Results::default();
        let scenario = calls::scenario(Era::Modern, Tool::Text(200));
        results.add(
            &scenario,
            "nginx",
            0,
            Values::from([("cpu_us_per_call", 10.0)]),
        );
        results.add(
            &scenario,
            "fanlight",
            0,
            Values::from([("cpu_us_per_call", 13.0)]),
        );
        let goals = all(&results);
        let met = |name: &str| goals.iter().find(|goal| goal.name == name).unwrap().met();
        assert_eq!(met("CPU per call, 200 B, modern"), Some(true));
        assert_eq!(met("calls per processor, 200 B, modern"), Some(false));
        assert_eq!(met("CPU per call, 200 B, legacy"), None);
    }

    #[test]
    fn ratio_to_zero_is_not_measured() {
        assert_eq!(ratio(Some(1.0), Some(0.0)), None);
        assert_eq!(ratio(Some(3.0), Some(2.0)), Some(1.5));
    }
}
