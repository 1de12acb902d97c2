//! `/api/tools/statistics`: how often each tool was called in the last hour, and how long it took.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use fanlight_protocol::Json;
use fanlight_protocol::json::ObjectBuilder;
use fanlight_telemetry::metrics::{MINUTES, ToolFigures};

use super::{Answer, Query};
use crate::Admin;
use crate::reply::json;
use crate::values::{array, count, millis, number};

const DEFAULT: usize = 100;
const MOST: usize = 1000;

/// How often the minutes of the figures are closed.
const MINUTE: Duration = Duration::from_secs(60);

/// The tools that were called, the most called first.
pub(super) async fn statistics(State(admin): State<Arc<Admin>>, query: Query) -> Answer {
    let limit = query.number("limit", DEFAULT, MOST)?;
    let tools = admin.subject.telemetry.metrics().map(|metrics| metrics.tools()).unwrap_or_default();
    let mut answer = ObjectBuilder::new();
    answer.integer("minutes", count(MINUTES)).integer("toolCount", count(tools.len()));
    answer.member("tools", &array(tools.iter().take(limit).map(tool)));
    Ok(json(answer.finish()))
}

/// Closes each minute of the figures, for as long as it is polled.
pub(crate) async fn close_minutes(admin: &Admin) {
    let mut minutes = tokio::time::interval(MINUTE);
    loop {
        minutes.tick().await;
        admin.subject.telemetry.metrics().into_iter().for_each(|metrics| metrics.close_tool_minute());
    }
}

fn tool(tool: &ToolFigures) -> Json {
    let mut object = ObjectBuilder::new();
    object.string("backend", &tool.backend).string("tool", &tool.tool);
    object.integer("calls", count(tool.calls)).integer("errors", count(tool.errors));
    object.integer("givenUp", count(tool.given_up)).member("perMinute", &number(tool.per_minute));
    let duration = |value: Option<Duration>| value.map_or_else(Json::null, millis);
    object.member("p50Ms", &duration(tool.median)).member("p95Ms", &duration(tool.p95));
    object.member("p99Ms", &duration(tool.p99));
    object.member(
        "durations",
        &array(tool.ranges.iter().map(|(end, calls)| {
            let mut range = ObjectBuilder::new();
            range.member("toMs", &duration(*end)).integer("calls", count(*calls));
            range.finish()
        })),
    );
    let minutes = |of: fn(&(u32, u32)) -> u32| array(tool.minutes.iter().map(|one| number(f64::from(of(one)))));
    object.member("callsByMinute", &minutes(|one| one.0)).member("errorsByMinute", &minutes(|one| one.1));
    object.finish()
}
