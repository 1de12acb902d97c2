//! `fanlight trace-test`: shows whether a trace is propagated from the client through the gateway
//! to the server.
//!
//! The call goes over HTTP to a running gateway, or to one started for the test. It has different
//! `traceparent` values in `_meta` and in the headers, so that the result shows which of them
//! arrived.

use std::borrow::Cow;
use std::time::Duration;

use fanlight_config::Config;
use fanlight_config::client_files::for_shell;
use fanlight_gateway::catalogue::ListKind;
use fanlight_protocol::param_header::MAX_MIRRORED;
use fanlight_protocol::param_header::{self, ParamHeader};
use fanlight_protocol::visible::plain;
use fanlight_protocol::{Json, Response};
use fanlight_telemetry::ring::Query;
use fanlight_telemetry::{Telemetry, otlp_json};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout_at};

use super::client::{Client, TraceParents};
use super::hops::{Hop, Sent, judge};
use super::{arguments, no_such_tool};
use crate::cli::{CommonArgs, TraceTestArgs};
use crate::observe::spans::{self, Kind, Span};
use crate::observe::style::{Style, duration};
use crate::observe::{Admin, waterfall};
use crate::{Failure, Result, say};

/// How long to wait for the last span after the answer.
const LAST_SPAN: Duration = Duration::from_secs(2);
/// The interval at which a running gateway is asked for the trace.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Calls a tool of a gateway on this machine, whose `telemetry` records the spans. Prints each hop
/// and the trace; fails if a hop lost the context.
pub async fn trace_test(client: &Client, telemetry: &Telemetry, args: &TraceTestArgs) -> Result {
    let ids = Ids::random();
    let answer = call(client, args, &ids).await?;
    let trace = from_ring(telemetry, &ids).await;
    show_hops(&ids, &answer, &trace, args.json)
}

/// [`trace_test`] of a running gateway.
pub async fn trace_test_at(
    url: &str,
    config: &Config,
    args: &TraceTestArgs,
    common: &CommonArgs,
) -> Result {
    let admin = Admin::find(&args.admin, common).await?;
    let client = Client::new(url, config.timeouts.call)?.with_token_of_environment();
    let ids = Ids::random();
    let answer = call(&client, args, &ids).await?;
    let trace = from_admin(&admin, &ids).await?;
    show_hops(&ids, &answer, &trace, args.json)
}

/// Prints the hops of a call and its trace, which is OTLP-JSON.
fn show_hops(ids: &Ids, answer: &Response, trace: &str, json: bool) -> Result {
    let recorded = spans::read(trace.as_bytes())?;
    let sent = Sent {
        trace: &ids.trace,
        meta: &ids.meta,
        header: &ids.header,
        method: "tools/call",
    };
    let hops = judge(&sent, &recorded, answer.body().as_text());
    if json {
        say!("{}", report(ids, &hops));
    } else {
        show(ids, &hops, &recorded, answer);
    }
    match hops.iter().filter(|hop| hop.carried.is_err()).count() {
        0 => Ok(()),
        _ => Err(failure!("the trace was not propagated on every hop")),
    }
}

/// The ids of the test, in lower-case hexadecimal.
struct Ids {
    trace: String,
    meta: String,
    header: String,
}

impl Ids {
    fn random() -> Self {
        let span = || format!("{:016x}", fastrand::u64(1..));
        Self {
            trace: format!("{:032x}", fastrand::u128(1..)),
            meta: span(),
            header: span(),
        }
    }

    fn traceparent(&self, span: &str) -> String {
        format!("00-{}-{span}-01", self.trace)
    }
}

/// Calls the tool.
async fn call(client: &Client, args: &TraceTestArgs, ids: &Ids) -> Result<Response> {
    let arguments = arguments(&[args.arguments().to_owned()], None)?;
    let (meta, header) = (ids.traceparent(&ids.meta), ids.traceparent(&ids.header));
    let (tool, mirrored, _) = find(client, args.tool.as_deref()).await?;
    client
        .call_modern(
            &tool,
            &mirrored,
            &arguments,
            Some(TraceParents {
                meta: &meta,
                header: &header,
            }),
        )
        .await
}

/// Finds the tool in the list, with its parameters that are mirrored into headers and its
/// `inputSchema`. Without a name it finds the first tool that has `readOnlyHint` and requires no
/// arguments.
pub(super) async fn find(
    client: &Client,
    wanted: Option<&str>,
) -> Result<(String, Vec<ParamHeader>, Json)> {
    let mut names = Vec::new();
    let mut reader_with_arguments = None;
    for entry in client.entries(ListKind::Tools).await? {
        let Some(name) = entry
            .get("name")
            .and_then(|name| name.as_str().map(Cow::into_owned))
        else {
            continue;
        };
        let schema = entry.get("inputSchema").unwrap_or_else(Json::empty_object);
        let fits = match wanted {
            Some(wanted) => wanted == name,
            None => only_reads(&entry) && needs_nothing(&schema),
        };
        if fits {
            let mirrored = param_header::annotations(&schema, MAX_MIRRORED)?;
            return Ok((name, mirrored, schema));
        }
        if only_reads(&entry) {
            reader_with_arguments.get_or_insert_with(|| (name.clone(), required(&schema)));
        }
        names.push(name);
    }
    if let Some(tool) = wanted {
        return Err(no_such_tool(tool, names.iter().map(String::as_str)));
    }
    Err(Failure::usage(match reader_with_arguments {
        Some((name, required)) => {
            let arguments = required.iter().map(|name| format!("{}: …", Json::string(name))).collect::<Vec<_>>();
            format!(
                "each tool that only reads (`readOnlyHint`) needs arguments; give some:\n  \
                 fanlight trace-test --args {} -- {}",
                for_shell(&format!("{{{}}}", plain(&arguments.join(", "), 300))),
                for_shell(&plain(&name, 100))
            )
        }
        None => "no tool says that it only reads (`readOnlyHint`), and others may change something; name the \
                         one to call:\n  fanlight trace-test TOOL --args JSON\n`fanlight list tools` lists the tools"
            .to_owned(),
    }))
}

fn only_reads(tool: &Json) -> bool {
    let hint = tool
        .get("annotations")
        .and_then(|annotations| annotations.get("readOnlyHint"));
    hint.is_some_and(|hint| hint.is_true())
}

/// Whether a tool with this `inputSchema` can probably be called without arguments.
fn needs_nothing(schema: &Json) -> bool {
    let asks_more = ["anyOf", "oneOf", "allOf", "$ref", "minProperties"];
    required(schema).is_empty()
        && asks_more
            .iter()
            .all(|keyword| schema.get(keyword).is_none())
}

/// The names of the required arguments.
fn required(schema: &Json) -> Vec<String> {
    let Some(names) = schema.get("required") else {
        return Vec::new();
    };
    names
        .elements()
        .filter_map(|name| names.slice(name).as_str().map(Cow::into_owned))
        .collect()
}

/// Reads the trace from the ring once the request's span has ended.
async fn from_ring(telemetry: &Telemetry, ids: &Ids) -> String {
    let (Some(ring), Some(resource)) = (telemetry.ring(), telemetry.resource()) else {
        return r#"{"resourceSpans":[]}"#.to_owned();
    };
    let mut ended = ring.subscribe();
    let until = Instant::now() + LAST_SPAN;
    loop {
        let query = Query {
            text: Some(ids.trace.clone()),
            ..Query::default()
        };
        let found = ring
            .query(&query)
            .into_iter()
            .find(|trace| trace.id.to_string() == ids.trace);
        let spans = found.map(|trace| trace.spans).unwrap_or_default();
        let text = otlp_json::traces(resource, spans);
        if is_whole(&text) || timeout_at(until, ended.recv()).await.is_err() {
            return text;
        }
    }
}

/// Reads the trace from a running gateway's admin listener once the request's span has ended.
async fn from_admin(admin: &Admin, ids: &Ids) -> Result<String> {
    let until = Instant::now() + LAST_SPAN;
    loop {
        let text = admin.get(&["traces", &ids.trace], &[]).await;
        match text.map(|text| String::from_utf8_lossy(&text).into_owned()) {
            Ok(text) if is_whole(&text) || Instant::now() > until => return Ok(text),
            // The answer is 404 until the first span ends, and forever if the trace did not arrive.
            Err(failure) if !failure.is_not_found() => return Err(failure),
            Err(_) if Instant::now() > until => return Ok(r#"{"resourceSpans":[]}"#.to_owned()),
            _ => sleep(POLL_INTERVAL).await,
        }
    }
}

/// Whether the trace contains the request's own span, which ends last.
fn is_whole(trace: &str) -> bool {
    spans::read(trace.as_bytes())
        .is_ok_and(|spans| spans.iter().any(|span| span.kind == Kind::Server))
}

fn show(ids: &Ids, hops: &[Hop], recorded: &[Span], answer: &Response) {
    let style = Style::for_stdout();
    say!("{} {}", style.bold("trace"), ids.trace);
    say!("");
    for hop in hops {
        let title = format!("{} → {}", hop.from, plain(&hop.to, 60));
        match &hop.carried {
            Ok(by) => {
                say!(
                    "{} {title}  in {}  {}",
                    style.good("✓"),
                    by.join(" and "),
                    style.dim(&duration(hop.duration))
                );
            }
            Err(reason) => say!(
                "{} {title}  {}",
                style.bad("✗ not carried"),
                plain(reason, 300)
            ),
        }
        hop.notes
            .iter()
            .for_each(|note| say!("    {}", plain(note, 200)));
    }
    if answer.is_error() {
        say!(
            "\nthe call was answered with an error: {}",
            plain(answer.body().as_text(), 300)
        );
    }
    if !recorded.is_empty() {
        say!("\n{}", waterfall::render(recorded, style));
    }
}

fn report(ids: &Ids, hops: &[Hop]) -> serde_json::Value {
    let hops: Vec<_> = hops
        .iter()
        .map(|hop| {
            json!({
                "from": hop.from,
                "to": hop.to,
                "carried": hop.carried.is_ok(),
                "by": hop.carried.as_ref().ok(),
                "reason": hop.carried.as_ref().err(),
                "spanId": hop.span,
                "durationMs": hop.duration as f64 / 1e6,
                "notes": hop.notes,
            })
        })
        .collect();
    json!({ "traceId": ids.trace, "sent": { "_meta": ids.meta, "headers": ids.header }, "hops": hops })
}
