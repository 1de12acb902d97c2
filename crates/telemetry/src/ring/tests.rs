use std::time::{Duration, SystemTime};

use opentelemetry::InstrumentationScope;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry_sdk::trace::{SpanEvents, SpanLinks};

use super::*;
use crate::names::{BACKEND_NAME, ERROR_TYPE, GEN_AI_TOOL_NAME, MCP_METHOD_NAME};

fn span(trace: u128, id: u64, parent: u64, attributes: &[(&'static str, &str)]) -> Arc<SpanData> {
    let start = SystemTime::UNIX_EPOCH + Duration::from_millis(id);
    Arc::new(SpanData {
        span_context: SpanContext::new(
            TraceId::from_bytes(trace.to_be_bytes()),
            SpanId::from_bytes(id.to_be_bytes()),
            TraceFlags::default(),
            false,
            TraceState::NONE,
        ),
        parent_span_id: SpanId::from_bytes(parent.to_be_bytes()),
        parent_span_is_remote: false,
        span_kind: SpanKind::Server,
        name: "tools/call Add".into(),
        start_time: start,
        end_time: start + Duration::from_millis(5),
        attributes: attributes.iter().map(|(key, value)| KeyValue::new(*key, (*value).to_owned())).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: Status::Unset,
        instrumentation_scope: InstrumentationScope::default(),
    })
}

fn numbers(ring: &Ring, query: &Query) -> Vec<u64> {
    ring.query(query).iter().map(|trace| trace.number).collect()
}

#[test]
fn the_oldest_traces_go_first() {
    let ring = Ring::new(RingLimits { traces: 3, bytes: usize::MAX });
    for trace in 1..=5 {
        ring.push(span(trace, 1, 0, &[]));
        ring.push(span(trace, 2, 1, &[]));
    }
    assert_eq!(numbers(&ring, &Query::default()), [5, 4, 3]);
    assert!(ring.get(TraceId::from_bytes(1u128.to_be_bytes())).is_none());
    assert_eq!(numbers(&ring, &Query { before: Some(5), limit: 1, ..Query::default() }), [4]);
}

#[test]
fn bytes_are_bounded_and_accounted_for() {
    let limits = RingLimits { traces: 1000, bytes: 64 * 1024 };
    let ring = Ring::new(limits);
    let big = "x".repeat(1000);
    for trace in 1..=500 {
        ring.push(span(trace, 1, 0, &[("a", &big)]));
    }
    let (traces, bytes) = ring.size();
    assert!(bytes <= limits.bytes && traces > 10, "{traces} traces, {bytes} bytes");
    let counted: usize =
        ring.query(&Query::default()).iter().flat_map(|trace| &trace.spans).map(|s| estimated_size(s)).sum();
    assert_eq!(counted, bytes);
}

#[test]
fn a_trace_without_end_leaves_room_for_others_and_keeps_its_newest() {
    let ring = Ring::new(RingLimits { traces: 10, bytes: 64 * 1024 });
    ring.push(span(1, 1, 0, &[]));
    for id in 1..=1000 {
        ring.push(span(2, id, 0, &[]));
    }
    assert_eq!(numbers(&ring, &Query::default()), [2, 1]);
    let long = ring.get(TraceId::from_bytes(2u128.to_be_bytes())).unwrap();
    assert_eq!(long.spans.last().unwrap().span_context.span_id(), SpanId::from_bytes(1000u64.to_be_bytes()));
    assert_eq!(long.dropped as usize + long.spans.len(), 1000);
}

#[test]
fn traces_are_found_by_what_is_in_them() {
    let ring = Ring::new(RingLimits::default());
    ring.push(span(1, 1, 0, &[(GEN_AI_TOOL_NAME, "files__read")]));
    ring.push(span(1, 2, 1, &[(BACKEND_NAME, "files"), (GEN_AI_TOOL_NAME, "read")]));
    ring.push(span(2, 3, 0, &[(BACKEND_NAME, "other"), (ERROR_TYPE, "timeout")]));
    let found = |query: Query| numbers(&ring, &query);
    assert_eq!(found(Query { backend: Some("files".into()), ..Query::default() }), [1]);
    assert_eq!(found(Query { tool: Some("files__read".into()), ..Query::default() }), [1]);
    assert_eq!(found(Query { tool: Some("read".into()), ..Query::default() }), [1]);
    assert_eq!(found(Query { error: Some(true), ..Query::default() }), [2]);
    assert_eq!(found(Query { error: Some(false), ..Query::default() }), [1]);
    assert_eq!(found(Query { text: Some("TIMEout".into()), ..Query::default() }), [2]);
    assert_eq!(found(Query { text: Some("call add".into()), ..Query::default() }), [2, 1]);
    assert_eq!(found(Query { text: Some("0001".into()), ..Query::default() }), [1]);
    assert!(found(Query { backend: Some("files".into()), error: Some(true), ..Query::default() }).is_empty());
}

#[test]
fn a_summary_tells_what_a_list_shows() {
    let ring = Ring::new(RingLimits::default());
    ring.push(span(1, 20, 10, &[(BACKEND_NAME, "b"), (ERROR_TYPE, "timeout")]));
    ring.push(span(1, 10, 0, &[(ERROR_TYPE, "-31002")]));
    let summary = ring.query(&Query::default())[0].summary().unwrap();
    assert_eq!(summary.duration, Duration::from_millis(15));
    assert_eq!((summary.spans, summary.backends), (2, vec!["b".to_owned()]));
    assert_eq!(summary.error.as_deref(), Some("-31002"));
}

#[test]
fn finding_the_era_of_a_legacy_server_is_no_failure() {
    let attributes = [(MCP_METHOD_NAME, "server/discover"), (ERROR_TYPE, "-32601")];
    let of_kind = |trace, kind: SpanKind| {
        let span = span(trace, 1, 0, &attributes);
        Arc::new(SpanData { span_kind: kind, ..(*span).clone() })
    };
    let ring = Ring::new(RingLimits::default());
    ring.push(of_kind(1, SpanKind::Client));
    ring.push(of_kind(2, SpanKind::Server));
    let failed = ring.query(&Query { error: Some(true), ..Query::default() });
    assert_eq!(failed.iter().map(|trace| trace.number).collect::<Vec<_>>(), [2]);
    assert_eq!(failed[0].summary().unwrap().error.as_deref(), Some("-32601"));
    assert_eq!(ring.query(&Query { error: Some(false), ..Query::default() })[0].summary().unwrap().error, None);
}
