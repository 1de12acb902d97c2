use std::time::{Duration, SystemTime};

use fanlight_protocol::{Json, Method};
use opentelemetry::trace::SpanId;

use super::*;
use crate::names::Kind;
use crate::record::{ParentSpan, SpanStart};
use crate::rounds::StateId;
use crate::{
    BackendInfo, BackendTelemetry, ClientName, Endpoint, ErrorType, Moment, Outcome, Target,
    TraceContext, stored,
};

/// A span that has not ended, of a message.
pub(crate) fn record_of(method: Method, target: Target<'_>) -> Record {
    record(method, target, 1, 1, 0, None)
}

fn record(
    method: Method,
    target: Target<'_>,
    trace: u128,
    id: u64,
    parent: u64,
    backend: Option<&str>,
) -> Record {
    let backend = backend.map(|name| {
        let (name, endpoint) = (name.to_owned(), Endpoint::Stdio);
        BackendTelemetry::new(BackendInfo { name, endpoint }, None, None)
    });
    let start = SpanStart {
        kind: Kind::Server,
        method: Some(stored::method(&method)),
        subject: stored::subject(target),
        id: None,
        backend,
        attempt: None,
        began: Moment::now(),
        links: Vec::new(),
    };
    let context = TraceContext::new_child(None, TraceId::from(trace), SpanId::from(id), false);
    let parent = (parent > 0).then(|| ParentSpan {
        id: SpanId::from(parent),
        is_remote: false,
    });
    Record::new(start, context, parent, None, None)
}

/// The fields of a test span. All other fields have defaults.
#[derive(Default)]
struct Of<'a> {
    parent: u64,
    tool: Option<&'a str>,
    backend: Option<&'a str>,
    error: Option<ErrorType>,
    first_round: Option<u128>,
    issued: Option<&'a str>,
    continued: Option<&'a str>,
}

fn push(ring: &Ring, trace: u128, id: u64, of: &Of<'_>) -> usize {
    let target = of.tool.map_or(Target::None, Target::Tool);
    let span = record(Method::CallTool, target, trace, id, of.parent, of.backend);
    if let Some(first) = of.first_round {
        span.update(|fields| fields.optional().first_round = Some(TraceId::from(first)));
    }
    let state = |state: Option<&str>| state.and_then(StateId::derive);
    span.update(|fields| {
        fields.optional().issued = state(of.issued);
        fields.optional().continued = state(of.continued);
    });
    let outcome = of.error.map_or(Outcome::Finished, Outcome::failed);
    let size = span.end(&outcome, Duration::from_millis(5)).unwrap();
    ring.push(Arc::new(span), size);
    size
}

fn numbers(ring: &Ring, query: &Query) -> Vec<u64> {
    ring.query(query).iter().map(|trace| trace.number).collect()
}

#[test]
fn oldest_traces_are_evicted_first() {
    let ring = Ring::new(RingLimits {
        traces: 3,
        bytes: usize::MAX,
    });
    for trace in 1..=5 {
        push(&ring, trace, 1, &Of::default());
        push(
            &ring,
            trace,
            2,
            &Of {
                parent: 1,
                ..Of::default()
            },
        );
    }
    assert_eq!(numbers(&ring, &Query::default()), [5, 4, 3]);
    assert!(ring.get(TraceId::from_bytes(1u128.to_be_bytes())).is_none());
    assert_eq!(
        numbers(
            &ring,
            &Query {
                before: Some(5),
                limit: 1,
                ..Query::default()
            }
        ),
        [4]
    );
}

#[test]
fn bytes_are_bounded_and_accounted_for() {
    let limits = RingLimits {
        traces: 1000,
        bytes: 64 * 1024,
    };
    let ring = Ring::new(limits);
    let big = "x".repeat(400);
    let sizes: Vec<usize> = (1..=500)
        .map(|trace| {
            push(
                &ring,
                trace,
                1,
                &Of {
                    tool: Some(&big),
                    ..Of::default()
                },
            )
        })
        .collect();
    assert!(sizes.iter().all(|size| *size > 400 + size_of::<Record>()));
    let (traces, bytes) = ring.size();
    assert!(
        bytes <= limits.bytes && traces > 10,
        "{traces} traces, {bytes} bytes"
    );
    let counted: usize = sizes.iter().rev().take(traces).sum();
    assert_eq!(counted, bytes);
}

#[test]
fn endless_trace_keeps_its_newest_spans_and_evicts_no_others() {
    let ring = Ring::new(RingLimits {
        traces: 10,
        bytes: 64 * 1024,
    });
    push(&ring, 1, 1, &Of::default());
    for id in 1..=1000 {
        push(&ring, 2, id, &Of::default());
    }
    assert_eq!(numbers(&ring, &Query::default()), [2, 1]);
    let long = ring.get(TraceId::from_bytes(2u128.to_be_bytes())).unwrap();
    assert_eq!(
        long.spans.last().unwrap().span_context.span_id(),
        SpanId::from_bytes(1000u64.to_be_bytes())
    );
    assert_eq!(long.dropped as usize + long.spans.len(), 1000);
}

#[test]
fn traces_are_found_by_their_content() {
    let ring = Ring::new(RingLimits::default());
    push(
        &ring,
        1,
        1,
        &Of {
            tool: Some("files__read"),
            ..Of::default()
        },
    );
    push(
        &ring,
        1,
        2,
        &Of {
            parent: 1,
            tool: Some("read"),
            backend: Some("files"),
            error: None,
            ..Of::default()
        },
    );
    let timeout = Some(ErrorType::Timeout);
    push(
        &ring,
        2,
        3,
        &Of {
            parent: 0,
            tool: Some("Add"),
            backend: Some("other"),
            error: timeout,
            ..Of::default()
        },
    );
    let found = |query: Query| numbers(&ring, &query);
    assert_eq!(
        found(Query {
            backend: Some("files".into()),
            ..Query::default()
        }),
        [1]
    );
    assert_eq!(
        found(Query {
            tool: Some("files__read".into()),
            ..Query::default()
        }),
        [1]
    );
    assert_eq!(
        found(Query {
            tool: Some("read".into()),
            ..Query::default()
        }),
        [1]
    );
    assert_eq!(
        found(Query {
            error: Some(true),
            ..Query::default()
        }),
        [2]
    );
    assert_eq!(
        found(Query {
            error: Some(false),
            ..Query::default()
        }),
        [1]
    );
    assert_eq!(
        found(Query {
            text: Some("TIMEout".into()),
            ..Query::default()
        }),
        [2]
    );
    assert_eq!(
        found(Query {
            text: Some("call add".into()),
            ..Query::default()
        }),
        [2]
    );
    assert_eq!(
        found(Query {
            text: Some("0001".into()),
            ..Query::default()
        }),
        [1]
    );
    assert!(
        found(Query {
            backend: Some("files".into()),
            error: Some(true),
            ..Query::default()
        })
        .is_empty()
    );
}

#[test]
fn summary_describes_a_trace() {
    let ring = Ring::new(RingLimits::default());
    push(
        &ring,
        1,
        20,
        &Of {
            parent: 10,
            tool: None,
            backend: Some("b"),
            error: Some(ErrorType::Timeout),
            ..Of::default()
        },
    );
    push(
        &ring,
        1,
        10,
        &Of {
            error: Some(ErrorType::JsonRpc(-31002)),
            ..Of::default()
        },
    );
    let summary = ring.query(&Query::default())[0].summary().unwrap();
    assert!(summary.duration >= Duration::from_millis(5) && summary.name == "tools/call");
    assert_eq!((summary.spans, summary.backends), (2, vec!["b".to_owned()]));
    assert_eq!(summary.error.as_deref(), Some("-31002"));
}

#[test]
fn rounds_of_a_call_are_one_trace_without_the_time_between_them() {
    let ring = Ring::new(RingLimits::default());
    let mut size = push(&ring, 1, 1, &Of::default());
    let child = Of {
        parent: 3,
        ..Of::default()
    };
    size += push(&ring, 2, 2, &child);
    let last = Of {
        error: Some(ErrorType::ToolError),
        first_round: Some(1),
        ..Of::default()
    };
    let mut feed = ring.subscribe();
    size += push(&ring, 2, 3, &last);
    let [trace] = &ring.query(&Query::default())[..] else {
        panic!("several traces")
    };
    let first = TraceId::from(1);
    assert_eq!((trace.id, trace.spans.len()), (first, 3));
    assert_eq!(trace.outcome, TraceOutcome::ToolError);
    assert_eq!(trace.duration, Duration::from_millis(10));
    assert_eq!(ring.get(TraceId::from(2)).unwrap().id, first);
    assert_eq!((ring.size(), feed.try_recv()), ((1, size), Ok(first)));
    // The first round's trace may be gone.
    let other = Of {
        first_round: Some(9),
        ..Of::default()
    };
    push(&ring, 4, 1, &other);
    assert_eq!(ring.query(&Query::default()).len(), 2);
}

#[test]
fn rounds_are_joined_by_the_state_between_them() {
    let ring = Ring::new(RingLimits::default());
    let (first, second) = ("a state of the first round", "a state of the second round");
    let issuing = |issued, continued| Of {
        issued,
        continued,
        ..Of::default()
    };
    push(&ring, 1, 1, &issuing(Some(first), None));
    push(&ring, 2, 1, &issuing(Some("short"), None));
    let waiting = ring.get(TraceId::from(1)).unwrap();
    assert!(!waiting.has_ended && !waiting.is_own);
    push(&ring, 3, 1, &issuing(Some(second), Some(first)));
    push(&ring, 4, 1, &issuing(None, Some(second)));
    push(&ring, 5, 1, &issuing(None, Some("short")));
    // A state is good once.
    push(&ring, 6, 1, &issuing(None, Some(first)));
    let call = ring.get(TraceId::from(4)).unwrap();
    assert_eq!((call.id, call.spans.len()), (TraceId::from(1), 3));
    assert!(call.has_ended);
    assert_eq!(call.duration, Duration::from_millis(15));
    let ids = ring.query(&Query::default());
    let ids: Vec<_> = ids.iter().map(|trace| trace.id).collect();
    assert_eq!(ids, [6, 5, 2, 1].map(TraceId::from));
}

#[test]
fn waits_for_people_are_no_part_of_the_duration_and_own_requests_are_apart() {
    let ring = Ring::new(RingLimits::default());
    let mut question = record(Method::Elicit, Target::None, 1, 2, 1, None);
    question.start.kind = Kind::Client;
    let size = question
        .end(&Outcome::Finished, Duration::from_secs(3600))
        .unwrap();
    ring.push(Arc::new(question), size);
    let call = record(Method::CallTool, Target::None, 1, 1, 0, None);
    let wait = (call.start.began.wall(), Duration::from_secs(1800));
    call.update(|fields| fields.optional().waits.push(wait));
    let lasted = Duration::from_secs(3601);
    let size = call.end(&Outcome::Finished, lasted).unwrap();
    ring.push(Arc::new(call), size);
    let [call] = &ring.query(&Query::default())[..] else {
        panic!("several traces")
    };
    assert!(
        call.duration < Duration::from_secs(2),
        "{:?}",
        call.duration
    );
    attempt(&ring, 7, "a", Some(ErrorType::ConnectFailed));
    let own = |own| {
        ring.query(&Query {
            own: Some(own),
            ..Query::default()
        })
    };
    let [attempt] = &own(true)[..] else {
        panic!("several traces")
    };
    assert_eq!(
        (attempt.id, attempt.side),
        (TraceId::from(7), Some(Side::Server))
    );
    assert_eq!(own(false).len(), 1);
}

#[test]
fn refused_era_probe_is_no_failure() {
    let ring = Ring::new(RingLimits::default());
    for (trace, kind) in [(1, Kind::Client), (2, Kind::Server)] {
        let mut span = record(Method::Discover, Target::None, trace, 1, 0, None);
        span.start.kind = kind;
        let size = span
            .end(
                &Outcome::failed(ErrorType::JsonRpc(-32601)),
                Duration::from_millis(5),
            )
            .unwrap();
        ring.push(Arc::new(span), size);
    }
    let failed = ring.query(&Query {
        error: Some(true),
        ..Query::default()
    });
    assert_eq!(
        failed.iter().map(|trace| trace.number).collect::<Vec<_>>(),
        [2]
    );
    assert_eq!(
        failed[0].summary().unwrap().error.as_deref(),
        Some("-32601")
    );
    assert_eq!(
        ring.query(&Query {
            error: Some(false),
            ..Query::default()
        })[0]
            .summary()
            .unwrap()
            .error,
        None
    );
}

/// An attempt to connect `backend` that belongs to no request.
fn attempt(ring: &Ring, trace: u128, backend: &str, error: Option<ErrorType>) {
    let mut span = record(
        Method::Initialize,
        Target::None,
        trace,
        trace as u64,
        0,
        Some(backend),
    );
    (span.start.kind, span.start.method) = (Kind::Internal, None);
    let outcome = error.map_or(Outcome::Finished, Outcome::failed);
    // The handshake ends before its connecting span.
    push(
        ring,
        trace,
        1,
        &Of {
            parent: trace as u64,
            backend: Some(backend),
            ..Of::default()
        },
    );
    let size = span.end(&outcome, Duration::from_millis(5)).unwrap();
    ring.push(Arc::new(span), size);
}

#[test]
fn repeated_attempts_to_connect_are_one_trace() {
    // The ring has one more place than it needs in the end, for the attempt that is under way.
    let ring = Ring::new(RingLimits {
        traces: 4,
        bytes: usize::MAX,
    });
    let failed = Some(ErrorType::ConnectFailed);
    push(&ring, 1, 1, &Of::default());
    for trace in 2..=50 {
        attempt(&ring, trace, "a", failed);
        attempt(&ring, trace + 100, "b", failed);
    }
    let all = ring.query(&Query::default());
    let attempts: Vec<_> = all
        .iter()
        .map(|trace| trace.attempts.map(|attempts| attempts.count))
        .collect();
    assert_eq!(attempts, [Some(49), Some(49), None]);
    let last = all[1].clone();
    assert!(last.attempts.unwrap().first <= last.spans[1].start_time);
    assert_eq!((last.id, last.spans.len()), (TraceId::from(50), 2));
    // The size no longer includes dropped and merged traces.
    let sizes: usize = ring
        .state
        .lock()
        .traces
        .values()
        .map(|entry| entry.bytes)
        .sum();
    assert_eq!(ring.size(), (3, sizes));
}

#[test]
fn attempt_that_ends_differently_is_a_trace_of_its_own() {
    let ring = Ring::new(RingLimits::default());
    attempt(&ring, 1, "a", Some(ErrorType::ConnectFailed));
    attempt(&ring, 2, "a", Some(ErrorType::Timeout));
    attempt(&ring, 3, "a", None);
    attempt(&ring, 4, "a", None);
    attempt(&ring, 5, "a", Some(ErrorType::ConnectFailed));
    let counts: Vec<_> = ring
        .query(&Query::default())
        .iter()
        .map(|trace| trace.attempts.unwrap().count)
        .collect();
    assert_eq!(counts, [1, 2, 2]);
}

/// Pushes a SERVER span of a client's request that lasted this long.
fn push_of(
    ring: &Ring,
    trace: u128,
    method: Method,
    client: &str,
    principal: Option<&str>,
    millis: u64,
) {
    let span = record(method, Target::None, trace, 1, 0, None);
    let info = Json::parse(
        format!(r#"{{"name":"{client}","version":"1.2"}}"#).into(),
        8,
    )
    .unwrap();
    let principal: Option<Arc<str>> = principal.map(Arc::from);
    span.update(|fields| fields.client = ClientName::new(Some(&info), principal.as_ref()));
    let size = span
        .end(&Outcome::Finished, Duration::from_millis(millis))
        .unwrap();
    ring.push(Arc::new(span), size);
}

#[test]
fn traces_are_found_by_client_method_and_duration() {
    let ring = Ring::new(RingLimits::default());
    push_of(&ring, 1, Method::ListTools, "Inspector", None, 900);
    push_of(&ring, 2, Method::Ping, "claude-code", Some("ann"), 5);
    push_of(&ring, 3, Method::Ping, "claude-code", Some("anna"), 50);
    let found = |query: Query| numbers(&ring, &query);
    assert_eq!(
        found(Query {
            client: Some("INSP".into()),
            ..Query::default()
        }),
        [1]
    );
    assert_eq!(
        found(Query {
            client: Some("1.2".into()),
            ..Query::default()
        }),
        [3, 2, 1]
    );
    assert_eq!(
        found(Query {
            principal: Some("ann".into()),
            ..Query::default()
        }),
        [2]
    );
    assert_eq!(
        found(Query {
            method: Some("ping".into()),
            ..Query::default()
        }),
        [3, 2]
    );
    assert_eq!(
        found(Query {
            at_least: Some(Duration::from_millis(50)),
            ..Query::default()
        }),
        [3, 1]
    );
    assert_eq!(
        found(Query {
            order: Order::Slowest,
            limit: 2,
            ..Query::default()
        }),
        [1, 3]
    );
    let now = SystemTime::now();
    let soon = now + Duration::from_secs(5);
    assert_eq!(
        found(Query {
            since: Some(now - Duration::from_secs(60)),
            ..Query::default()
        }),
        [3, 2, 1]
    );
    assert!(
        found(Query {
            since: Some(soon),
            ..Query::default()
        })
        .is_empty()
    );
    assert!(
        found(Query {
            until: Some(now - Duration::from_secs(60)),
            ..Query::default()
        })
        .is_empty()
    );
    let summary = ring.query(&Query {
        limit: 1,
        ..Query::default()
    })[0]
        .summary()
        .unwrap();
    assert_eq!(
        (summary.client.as_deref(), summary.principal.as_deref()),
        (Some("claude-code 1.2"), Some("anna"))
    );
}

#[test]
fn traces_are_found_by_their_outcome() {
    let ring = Ring::new(RingLimits::default());
    let errors = [
        (None, TraceOutcome::Ok),
        (Some(ErrorType::ToolError), TraceOutcome::ToolError),
        (
            Some(ErrorType::JsonRpc(-32602)),
            TraceOutcome::ProtocolError,
        ),
        (Some(ErrorType::Abandoned), TraceOutcome::Cancelled),
        (Some(ErrorType::Timeout), TraceOutcome::Failed),
        // Fanlight sends this error in place of the server's answer.
        (Some(ErrorType::JsonRpc(-31002)), TraceOutcome::Failed),
    ];
    for (trace, (error, _)) in (1..).zip(&errors) {
        push(
            &ring,
            trace,
            1,
            &Of {
                error: *error,
                ..Of::default()
            },
        );
    }
    for outcome in TraceOutcome::ALL {
        let found = ring.query(&Query {
            outcome: Some(outcome),
            ..Query::default()
        });
        let expected = errors.iter().filter(|(_, of)| *of == outcome).count();
        assert!(
            found.len() == expected && found.iter().all(|trace| trace.outcome == outcome),
            "{outcome:?}"
        );
        assert_eq!(outcome.as_str().parse(), Ok(outcome));
    }
    // The answer to the client decides the outcome.
    push(
        &ring,
        9,
        2,
        &Of {
            parent: 1,
            error: Some(ErrorType::Timeout),
            ..Of::default()
        },
    );
    push(
        &ring,
        9,
        1,
        &Of {
            error: Some(ErrorType::ToolError),
            ..Of::default()
        },
    );
    assert_eq!(
        ring.query(&Query {
            limit: 1,
            ..Query::default()
        })[0]
            .outcome,
        TraceOutcome::ToolError
    );
}

#[test]
fn side_is_who_can_do_something_about_it() {
    for (error, at_server, side) in [
        (ErrorType::Cancelled, true, Side::Client),
        (ErrorType::JsonRpc(code::INVALID_PARAMS), true, Side::Client),
        (
            ErrorType::JsonRpc(code::METHOD_NOT_FOUND),
            false,
            Side::Client,
        ),
        (
            ErrorType::JsonRpc(code::NOT_PERMITTED),
            false,
            Side::Gateway,
        ),
        (ErrorType::Overloaded, false, Side::Gateway),
        (ErrorType::JsonRpc(code::INTERNAL), false, Side::Gateway),
        (ErrorType::JsonRpc(code::INTERNAL), true, Side::Server),
        (
            ErrorType::JsonRpc(code::BACKEND_TIMEOUT),
            false,
            Side::Server,
        ),
        (ErrorType::ToolError, true, Side::Server),
        (ErrorType::ConnectFailed, true, Side::Server),
    ] {
        assert_eq!(Side::judge(error, at_server), side, "{error:?}");
    }
}
