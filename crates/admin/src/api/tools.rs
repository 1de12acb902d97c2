//! `/api/tools/statistics`: how often each tool was called in the last hour, and how long calls
//! took.

use std::time::Duration;

use axum::extract::State;
use fanlight_telemetry::metrics::{MINUTES, ToolFigures};

use super::{Answer, Query};
use crate::{Admin, AdminState, answer, millis};

const DEFAULT: usize = 100;
const MOST: usize = 1000;

/// The interval of the figures: each minute is closed after this time.
const MINUTE: Duration = Duration::from_secs(60);

answers! {
    /// Figures of the tools called in the last hour.
    pub(crate) struct ToolStatistics {
        /// The number of minutes covered.
        minutes: usize,
        /// The number of all tools, including those beyond `limit`.
        tool_count: usize,
        tools: Vec<Tool>,
    }

    /// A tool.
    struct Tool {
        backend: String,
        /// The server's own name for the tool.
        tool: String,
        calls: u64,
        errors: u64,
        /// Calls that their client has abandoned.
        given_up: u64,
        per_minute: f64,
        p50_ms: Option<f64>,
        p95_ms: Option<f64>,
        p99_ms: Option<f64>,
        /// The number of calls by duration.
        durations: Vec<Range>,
        calls_by_minute: Vec<u32>,
        errors_by_minute: Vec<u32>,
    }

    /// The number of calls within a range of durations, which begins at the end of the previous
    /// one.
    struct Range {
        /// The end of the range; null for the last one.
        to_ms: Option<f64>,
        calls: u64,
    }
}

/// Lists the called tools, most called first.
pub(super) async fn statistics(State(admin): AdminState, query: Query) -> Answer {
    let limit = query.number("limit", DEFAULT, MOST)?;
    let tools = admin
        .subject
        .telemetry
        .metrics()
        .map(|metrics| metrics.tools())
        .unwrap_or_default();
    let tool_count = tools.len();
    let tools = tools.into_iter().take(limit).map(tool).collect();
    Ok(answer(&ToolStatistics {
        minutes: MINUTES,
        tool_count,
        tools,
    }))
}

/// Closes each minute of the figures, as long as it is polled.
pub(crate) async fn close_minutes(admin: &Admin) {
    let mut minutes = tokio::time::interval(MINUTE);
    loop {
        minutes.tick().await;
        admin
            .subject
            .telemetry
            .metrics()
            .into_iter()
            .for_each(|metrics| metrics.close_tool_minute());
    }
}

fn tool(tool: ToolFigures) -> Tool {
    Tool {
        backend: tool.backend,
        tool: tool.tool,
        calls: tool.calls,
        errors: tool.errors,
        given_up: tool.given_up,
        per_minute: tool.per_minute,
        p50_ms: tool.median.map(millis),
        p95_ms: tool.p95.map(millis),
        p99_ms: tool.p99.map(millis),
        durations: tool
            .ranges
            .into_iter()
            .map(|(end, calls)| Range {
                to_ms: end.map(millis),
                calls,
            })
            .collect(),
        calls_by_minute: tool.minutes.iter().map(|one| one.0).collect(),
        errors_by_minute: tool.minutes.iter().map(|one| one.1).collect(),
    }
}
