//! The groups of measurements. Each starts and ends its own processes.

pub(crate) mod access;
pub(crate) mod calls;
mod events;
mod idle;
mod latency;
pub(crate) mod lists;
mod memory;
mod start;
mod stdio;
pub(crate) mod tracing;

use std::time::Duration;

use clap::ValueEnum;

use crate::era::Era;
use crate::error::{BenchError, Result};
use crate::load::calls::{Load, Pace, count};
use crate::results::{Results, Values};
use crate::system::{Bench, Fakes, FanlightConfig, Kind, System};
use crate::usage::Usage;

/// A group of measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Group {
    /// Calls of several sizes on 16 connections: processor time, throughput
    Calls,
    /// One connection, and a fixed rate at half of the peak
    Latency,
    /// Merged lists of tools
    Lists,
    /// Progress notifications
    Events,
    /// Thousands of idle streams: memory
    Idle,
    /// A shared child process behind pipes
    Stdio,
    /// Time to the first answer, and the size of the program
    Start,
    /// A burst of large results, and sessions that come and go
    Memory,
    /// Calls with no spans, with spans in the ring, and with all of them exported
    Tracing,
    /// Calls without a token, with one, and over TLS
    Access,
}

/// The measurements and their durations.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) groups: Vec<Group>,
    pub(crate) systems: Vec<Kind>,
    pub(crate) eras: Vec<Era>,
    pub(crate) rounds: usize,
    /// The duration of one measurement of one system.
    pub(crate) window: Duration,
    /// Connections of the closed loop.
    pub(crate) connections: usize,
    /// Idle streams.
    pub(crate) streams: usize,
    /// The duration of sessions that come and go.
    pub(crate) churn: Duration,
}

/// One run: its tools and its results.
pub(crate) struct Run {
    pub(crate) bench: Bench,
    pub(crate) plan: Plan,
    pub(crate) results: Results,
}

impl Run {
    /// Measures every group of the plan. The results note failed measurements.
    pub(crate) async fn all(&mut self) {
        for group in self.plan.groups.clone() {
            eprintln!("{group:?}");
            let done = match group {
                Group::Calls => calls::measure(self).await,
                Group::Latency => latency::measure(self).await,
                Group::Lists => lists::measure(self).await,
                Group::Events => events::measure(self).await,
                Group::Idle => idle::measure(self).await,
                Group::Stdio => stdio::measure(self).await,
                Group::Start => start::measure(self).await,
                Group::Memory => memory::measure(self).await,
                Group::Tracing => tracing::measure(self).await,
                Group::Access => access::measure(self).await,
            };
            self.value_or_failure(&format!("{group:?}"), done);
        }
    }

    /// The value, or `None` with a note of the error in the results.
    fn value_or_failure<T>(&mut self, what: &str, done: Result<T>) -> Option<T> {
        let error = match done {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let text = format!("{what}: {error}");
        eprintln!("  {text}");
        match error {
            BenchError::Unsupported(_) | BenchError::Missing { .. } => {
                self.results.skipped.push(text);
            }
            _ => self.results.failures.push(text),
        }
        None
    }

    fn has(&self, kind: Kind) -> bool {
        self.plan.systems.contains(&kind)
    }

    /// Starts systems in front of the same servers, except those that this machine does not have.
    async fn start_systems(
        &mut self,
        kinds: &[Kind],
        fakes: &Fakes,
        config: FanlightConfig,
    ) -> Vec<System> {
        let mut systems = Vec::new();
        for kind in kinds {
            let started = System::start(&self.bench, *kind, &fakes.addresses, &config).await;
            systems.extend(self.value_or_failure(kind.as_str(), started));
        }
        systems
    }

    /// Adds measured values, or notes the error.
    fn add(&mut self, scenario: &str, system: &str, round: usize, measured: Result<Values>) {
        if let Some(values) = self.value_or_failure(&format!("{scenario}, {system}"), measured) {
            self.results.add(scenario, system, round, values);
        }
    }

    async fn stop_systems(&mut self, systems: Vec<System>, fakes: Fakes) {
        for system in systems {
            let kind = system.kind;
            let stopped = system.stop().await;
            self.value_or_failure(kind.as_str(), stopped);
        }
        let stopped = fakes.stop().await;
        self.value_or_failure("the fake server", stopped);
    }

    /// Puts `load` on `system`: for a moment first, then for the plan's duration; adds the results.
    async fn put_on(
        &mut self,
        scenario: &str,
        round: usize,
        system: &System,
        load: &Load,
        pace: Pace,
    ) {
        let measured = under_load(|| system.usage(), load, pace, self.plan.window).await;
        self.add(scenario, system.kind.as_str(), round, measured);
    }
}

/// The cost and the latency of calls while `load` is on a system with this `usage`.
pub(crate) async fn under_load(
    usage: impl Fn() -> Result<Usage>,
    load: &Load,
    pace: Pace,
    window: Duration,
) -> Result<Values> {
    let mut ready = load.open().await?;
    ready.run(pace, window / 5).await?;
    let before = usage()?;
    let served = ready.run(pace, window).await?;
    let after = usage()?;
    ready.close().await;
    let calls = count(served.latencies.count()).max(1.0);
    let cpu = (after.cpu - before.cpu).as_secs_f64();
    Ok(Values::from([
        ("cpu_us_per_call", cpu * 1e6 / calls),
        ("busy_percent", cpu * 100.0 / served.took.as_secs_f64()),
        ("calls_per_s", served.per_second()),
        ("p50_us", served.latencies.percentile(50.0)),
        ("p99_us", served.latencies.percentile(99.0)),
        ("p999_us", served.latencies.percentile(99.9)),
        ("max_us", served.latencies.max()),
        ("rss_mib", mebibytes(after.resident)),
    ]))
}

#[allow(
    clippy::cast_precision_loss,
    reason = "memory in bytes is far below 2^52"
)]
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
