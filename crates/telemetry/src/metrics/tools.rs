//! Figures of each tool over the last hour.
//!
//! A call costs nothing for these figures: they compare the counts of the histograms with their
//! counts at the last full minute. Minutes without a call are not kept. Metrics distinguish a
//! limited number of tools, and count all others together.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fanlight_protocol::Method;
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use super::Metrics;
use super::durations::Durations;
use super::known::NameId;
use crate::error_type::ErrorType;

/// How many minutes are distinguished, including the current one.
pub const MINUTES: usize = 60;
/// How many minutes the rate covers.
const RATE: u64 = 5;

/// The figures of one tool over the last [`MINUTES`].
#[derive(Clone, Debug, PartialEq)]
pub struct ToolFigures {
    /// The name of the server in the configuration.
    pub backend: String,
    /// The name of the tool at the server. `_OTHER` stands for all tools that metrics do not
    /// distinguish.
    pub tool: String,
    /// How many calls have ended or could not be sent. Calls that the client gave up do not count.
    pub calls: u64,
    /// How many of these calls failed.
    pub errors: u64,
    /// How many calls the client gave up.
    pub given_up: u64,
    /// Calls per minute: the mean of the last five minutes.
    pub per_minute: f64,
    /// The median time between a call and its response, without connecting. `None` if no call was
    /// sent.
    pub median: Option<Duration>,
    /// The 95th percentile of this time.
    pub p95: Option<Duration>,
    /// The 99th percentile of this time.
    pub p99: Option<Duration>,
    /// How many calls are in each range of durations. Each range has its end, and the last one has
    /// `None`.
    pub ranges: Vec<(Option<Duration>, u64)>,
    /// The calls and errors of each minute, oldest first.
    pub minutes: [(u32, u32); MINUTES],
}

/// The ends of the ranges of [`ToolFigures::ranges`], in microseconds.
const RANGES: [u64; 20] = [
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
];

/// A tool: the index of its server, and its name.
type ToolKey = (u16, NameId);

/// The counts of each tool at full minutes.
#[derive(Debug)]
pub(super) struct ToolHistory {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the current minute.
    minute: u64,
    tools: HashMap<ToolKey, Entry, RandomState>,
}

#[derive(Debug, Default)]
struct Entry {
    /// The counts at the start of the current minute.
    counted: Totals,
    /// The earlier minutes in which calls were counted, oldest first.
    minutes: VecDeque<Minute>,
}

/// The counts of a tool since the start.
#[derive(Clone, Debug, Default)]
struct Totals {
    durations: Durations,
    unsent: u64,
    errors: u64,
    given_up: u64,
}

#[derive(Debug)]
struct Minute {
    number: u64,
    unsent: u64,
    errors: u64,
    given_up: u64,
    /// The ranges of durations that are not empty.
    durations: Box<[(u8, u32)]>,
}

impl Default for ToolHistory {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            state: Mutex::default(),
        }
    }
}

impl Metrics {
    /// Closes the current minute for the figures of tools, if it is over. The program calls this
    /// each minute.
    pub fn close_tool_minute(&self) {
        self.close_minute(self.tools.began.elapsed().as_secs() / 60);
    }

    /// The figures of each tool that was called in the last [`MINUTES`]. The most frequently called
    /// tool is first.
    pub fn tools(&self) -> Vec<ToolFigures> {
        self.tools_at(self.tools.began.elapsed())
    }

    fn close_minute(&self, minute: u64) {
        let totals = self.tool_totals();
        self.tools.state.lock().advance(minute, &totals);
    }

    fn tools_at(&self, uptime: Duration) -> Vec<ToolFigures> {
        let totals = self.tool_totals();
        let mut state = self.tools.state.lock();
        state.advance(uptime.as_secs() / 60, &totals);
        let mut all: Vec<ToolFigures> = totals
            .iter()
            .filter_map(|(key, total)| {
                let window = state.window(key, total)?;
                Some(window.figures(
                    self.configured_backend(key.0)?,
                    self.known.text(key.1),
                    uptime,
                ))
            })
            .collect();
        drop(state);
        all.sort_by(|a, b| (b.calls, &a.backend, &a.tool).cmp(&(a.calls, &b.backend, &b.tool)));
        all
    }

    /// The counts of each tool since the start.
    fn tool_totals(&self) -> HashMap<ToolKey, Totals, RandomState> {
        let mut all: HashMap<ToolKey, Totals, RandomState> = HashMap::default();
        self.client.for_each(|key, durations| {
            let (Method::CallTool, Some(name)) = (&key.method, key.name) else {
                return;
            };
            let total = all.entry((key.backend, name)).or_default();
            match key.error {
                Some(ErrorType::Abandoned | ErrorType::Cancelled) => {
                    total.given_up += durations.count();
                }
                error => {
                    total.errors += error.map_or(0, |_| durations.count());
                    total.durations.add(&durations);
                }
            }
        });
        self.unsent.for_each(|key, durations| {
            let (Method::CallTool, Some(name)) = (&key.method, key.name) else {
                return;
            };
            let total = all.entry((key.backend, name)).or_default();
            total.unsent += durations.count();
            total.errors += durations.count();
        });
        all
    }
}

impl State {
    /// Begins the minute `now`, unless it is the current one.
    fn advance(&mut self, now: u64, totals: &HashMap<ToolKey, Totals, RandomState>) {
        if now <= self.minute {
            return;
        }
        for (key, total) in totals {
            let entry = self.tools.entry(*key).or_default();
            entry
                .minutes
                .extend(total.since(&entry.counted, self.minute));
            entry.counted = total.clone();
        }
        for entry in self.tools.values_mut() {
            while entry
                .minutes
                .front()
                .is_some_and(|first| first.number + MINUTES as u64 <= now)
            {
                entry.minutes.pop_front();
            }
        }
        self.minute = now;
    }

    /// The sums of a tool over the last [`MINUTES`]. `None` if it has no calls in them.
    fn window(&self, key: &ToolKey, total: &Totals) -> Option<Window> {
        let mut window = Window::default();
        let entry = self.tools.get(key);
        let counted = entry
            .map(|entry| &entry.counted)
            .cloned()
            .unwrap_or_default();
        let running = total.since(&counted, self.minute);
        for minute in entry
            .into_iter()
            .flat_map(|entry| &entry.minutes)
            .chain(&running)
        {
            window.add(minute, self.minute);
        }
        (window.calls + window.given_up > 0).then_some(window)
    }
}

impl Totals {
    /// The calls since `earlier`, as the minute with this number. `None` if there are none.
    fn since(&self, earlier: &Self, number: u64) -> Option<Minute> {
        let small = |(range, count)| {
            (
                u8::try_from(range).unwrap_or(u8::MAX),
                u32::try_from(count).unwrap_or(u32::MAX),
            )
        };
        let minute = Minute {
            number,
            unsent: self.unsent.saturating_sub(earlier.unsent),
            errors: self.errors.saturating_sub(earlier.errors),
            given_up: self.given_up.saturating_sub(earlier.given_up),
            durations: self
                .durations
                .since(&earlier.durations)
                .map(small)
                .collect(),
        };
        (minute.calls() + minute.given_up > 0).then_some(minute)
    }
}

impl Minute {
    fn calls(&self) -> u64 {
        self.unsent
            + self
                .durations
                .iter()
                .map(|(_, count)| u64::from(*count))
                .sum::<u64>()
    }
}

/// The sums of some minutes.
#[derive(Debug)]
struct Window {
    calls: u64,
    errors: u64,
    given_up: u64,
    /// The calls in the minutes that the rate covers.
    recent: u64,
    durations: Durations,
    minutes: [(u32, u32); MINUTES],
}

impl Default for Window {
    fn default() -> Self {
        let (durations, minutes) = (Durations::default(), [(0, 0); MINUTES]);
        Self {
            calls: 0,
            errors: 0,
            given_up: 0,
            recent: 0,
            durations,
            minutes,
        }
    }
}

impl Window {
    fn add(&mut self, minute: &Minute, now: u64) {
        let (calls, age) = (minute.calls(), now.saturating_sub(minute.number));
        self.calls += calls;
        self.errors += minute.errors;
        self.given_up += minute.given_up;
        self.recent += if age < RATE { calls } else { 0 };
        for (range, count) in &minute.durations {
            self.durations
                .0
                .get_mut(usize::from(*range))
                .into_iter()
                .for_each(|sum| *sum += u64::from(*count));
        }
        let place = usize::try_from(age)
            .ok()
            .and_then(|age| (MINUTES - 1).checked_sub(age));
        if let Some(place) = place.and_then(|place| self.minutes.get_mut(place)) {
            let small = |count| u32::try_from(count).unwrap_or(u32::MAX);
            *place = (small(calls), small(minute.errors));
        }
    }

    fn figures(self, backend: String, tool: String, uptime: Duration) -> ToolFigures {
        // The current minute is not over yet. There is no rate of less than a minute.
        let seconds = (uptime.as_secs_f64() % 60.0 + (RATE - 1) as f64 * 60.0)
            .min(uptime.as_secs_f64())
            .max(60.0);
        let ends = RANGES
            .map(|micros| Some(Duration::from_micros(micros)))
            .into_iter()
            .chain([None]);
        let ranges = ends
            .zip(self.durations.within(&RANGES.map(|micros| micros * 1000)))
            .collect();
        ToolFigures {
            ranges,
            backend,
            tool,
            calls: self.calls,
            errors: self.errors,
            given_up: self.given_up,
            per_minute: self.recent as f64 * 60.0 / seconds,
            median: self.durations.quantile(0.5),
            p95: self.durations.quantile(0.95),
            p99: self.durations.quantile(0.99),
            minutes: self.minutes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::timer::tests::record;
    use super::super::{MetricLimits, NameKind, Side};
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// Metrics that know the tools `read` and `write` of the server `files`.
    fn metrics() -> Metrics {
        let metrics = Metrics::new(MetricLimits::default());
        let backend = metrics.backend("files");
        metrics.learn(Some(&backend), NameKind::Tool, b"list", || {
            ["read", "write"].map(str::to_owned).to_vec()
        });
        metrics
    }

    fn call(metrics: &Metrics, tool: &str, millis: u64, error: Option<ErrorType>) {
        record(
            metrics,
            Side::Client,
            "files",
            tool,
            error,
            Duration::from_millis(millis),
        );
    }

    #[test]
    fn minutes_and_quantiles_are_those_of_the_last_hour() {
        let metrics = metrics();
        for _ in 0..10 {
            call(&metrics, "read", 4, None);
        }
        call(&metrics, "write", 700, Some(ErrorType::ToolError));
        metrics.close_minute(1);
        call(&metrics, "read", 4, Some(ErrorType::Timeout));
        call(&metrics, "read", 90_000, Some(ErrorType::Cancelled));
        let all = metrics.tools_at(MINUTE + Duration::from_secs(1));
        let [read, write] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!(
            (
                read.backend.as_str(),
                read.tool.as_str(),
                write.tool.as_str()
            ),
            ("files", "read", "write")
        );
        assert_eq!((read.calls, read.errors, read.given_up), (11, 1, 1));
        assert_eq!(
            (read.minutes[58], read.minutes[59], read.minutes[57]),
            ((10, 0), (1, 1), (0, 0))
        );
        // A call that the client gave up does not show how long the tool takes.
        assert!(read.p99.unwrap() <= Duration::from_millis(4), "{read:?}");
        assert!(
            write.median.unwrap() > Duration::from_millis(500),
            "{write:?}"
        );
        let some = |one: &ToolFigures| {
            one.ranges
                .iter()
                .copied()
                .filter(|(_, count)| *count > 0)
                .collect::<Vec<_>>()
        };
        assert_eq!(some(read), [(Some(Duration::from_millis(5)), 11)]);
        assert_eq!(some(write), [(Some(Duration::from_secs(1)), 1)]);
        // An hour later the first minute is forgotten.
        let later = metrics.tools_at(MINUTE * 60);
        assert_eq!(
            (later.len(), later[0].calls, later[0].minutes[0]),
            (1, 1, (1, 1))
        );
        assert!(metrics.tools_at(MINUTE * 61).is_empty());
    }

    #[test]
    fn calls_that_could_not_be_sent_are_errors_without_a_duration() {
        let metrics = metrics();
        record(
            &metrics,
            Side::Unsent,
            "files",
            "read",
            Some(ErrorType::ConnectFailed),
            Duration::ZERO,
        );
        let all = metrics.tools_at(MINUTE);
        assert_eq!((all[0].calls, all[0].errors, all[0].median), (1, 1, None));
    }

    #[test]
    fn unknown_tools_are_counted_together_and_removed_backends_not_at_all() {
        let metrics = metrics();
        for tool in 0..5 {
            call(&metrics, &format!("made-up-{tool}"), 1, None);
        }
        let all = metrics.tools_at(MINUTE);
        assert_eq!(
            (all.len(), all[0].tool.as_str(), all[0].calls),
            (1, "_OTHER", 5)
        );
        metrics.retire_backend("files");
        assert!(metrics.tools_at(MINUTE).is_empty());
    }

    #[test]
    fn rate_is_the_mean_of_the_last_minutes() {
        let metrics = metrics();
        for _ in 0..9 {
            call(&metrics, "read", 1, None);
        }
        // In the first minute the rate counts as if a whole minute had passed.
        assert_eq!(metrics.tools_at(Duration::from_secs(3))[0].per_minute, 9.0);
        assert_eq!(metrics.tools_at(Duration::from_secs(90))[0].per_minute, 6.0);
        assert_eq!(metrics.tools_at(MINUTE * 30)[0].per_minute, 0.0);
    }
}
