//! `fanlight traces`: the last traces of a running gateway, or one of them as a waterfall.

use comfy_table::{Cell, CellAlignment};
use serde_json::Value;

use super::style::{Style, duration};
use super::{Admin, spans, waterfall};
use crate::cli::TracesArgs;
use crate::failure::Failure;
use crate::inspect::{plain, print, table};
use crate::out::say;

/// Prints the traces that are asked for, newest first; or the one that is named.
pub(crate) async fn traces(args: &TracesArgs) -> Result<(), Failure> {
    let admin = Admin::new(&args.admin)?;
    match &args.trace_id {
        Some(id) => one(&admin, id, args.json).await,
        None => list(&admin, args).await,
    }
}

async fn list(admin: &Admin, args: &TracesArgs) -> Result<(), Failure> {
    let mut query = vec![("limit", args.limit.to_string())];
    for (key, value) in [("backend", &args.backend), ("tool", &args.tool), ("text", &args.text)] {
        query.extend(value.clone().map(|value| (key, value)));
    }
    if args.error {
        query.push(("error", "true".to_owned()));
    }
    let text = admin.get("/api/traces", &query).await?;
    if args.json {
        say!("{}", String::from_utf8_lossy(&text));
        return Ok(());
    }
    let answer = admin.json(&text)?;
    if answer.get("recording").and_then(Value::as_bool) == Some(false) {
        return Err(Failure::other("this gateway keeps no traces: `limits.traces` of its configuration is 0"));
    }
    let traces: Vec<&Value> = answer.get("traces").and_then(Value::as_array).into_iter().flatten().collect();
    if traces.is_empty() {
        say!("no such traces");
        return Ok(());
    }
    let mut rows = table(&["TIME", "TOOK", "SPANS", "REQUEST", "BACKENDS", "ERROR", "TRACE"]);
    for trace in traces {
        rows.add_row(row(trace));
    }
    // The id is there to be copied, so it is the last to be broken over lines.
    if let Some(column) = rows.column_mut(6) {
        column.set_constraint(comfy_table::ColumnConstraint::ContentWidth);
    }
    print(&rows);
    Ok(())
}

fn row(trace: &Value) -> Vec<Cell> {
    let text = |key: &str| trace.get(key).and_then(Value::as_str).unwrap_or_default();
    let float = |key: &str| trace.get(key).and_then(Value::as_f64).unwrap_or_default();
    let backends: Vec<&str> =
        trace.get("backends").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    vec![
        Cell::new(clock(float("startMs"))),
        right(duration((float("durationMs") * 1e6) as u64)),
        right(trace.get("spans").and_then(Value::as_u64).unwrap_or_default().to_string()),
        Cell::new(plain(text("name"), 120)),
        Cell::new(plain(&backends.join(", "), 120)),
        Cell::new(plain(text("error"), 60)),
        Cell::new(plain(text("traceId"), 32)),
    ]
}

async fn one(admin: &Admin, id: &str, json: bool) -> Result<(), Failure> {
    let id = id.to_ascii_lowercase();
    // A `traceparent` names a trace too.
    let id = id.split('-').find(|part| part.len() == 32).unwrap_or(&id);
    if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Failure::usage("a trace id has 32 hexadecimal digits; `fanlight traces` lists those there are"));
    }
    let text = admin.get(&format!("/api/traces/{id}"), &[]).await?;
    if json {
        say!("{}", String::from_utf8_lossy(&text));
        return Ok(());
    }
    let spans = spans::read(&text).map_err(|what| Failure::other(format!("{}: {what}", admin.shown())))?;
    let start = spans.iter().map(|span| span.start).min().unwrap_or_default();
    let style = Style::of_stdout();
    say!("{} {id}  {}", style.bold("trace"), style.dim(&clock(start as f64 / 1e6)));
    say!("{}", waterfall::render(&spans, style));
    Ok(())
}

/// The time of day in UTC of milliseconds since 1970: the ring holds no more than the last hours.
fn clock(millis: f64) -> String {
    let millis = millis.max(0.0) as u64;
    let (seconds, rest) = (millis / 1000, millis % 1000);
    format!("{:02}:{:02}:{:02}.{rest:03}Z", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_a_row() {
        let trace = serde_json::json!({"traceId": "4bf92f3577b34da6a3ce929d0e0e4736", "name": "tools/call a",
            "startMs": 86_400_000.0 + 3_723_004.0, "durationMs": 12.5, "spans": 3, "backends": ["x", "y"]});
        let cells: Vec<String> = row(&trace).iter().map(Cell::content).collect();
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(cells, ["01:02:03.004Z", "12.5 ms", "3", "tools/call a", "x, y", "", id]);
        assert_eq!(row(&Value::Null).len(), 7);
    }
}
