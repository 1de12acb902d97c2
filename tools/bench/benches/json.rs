//! Reading an envelope, finding members, and splicing: the work of every call.

use std::hint::black_box;

use bytes::Bytes;
use criterion::measurement::WallTime;
use criterion::{
    BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main,
};
use fanlight_protocol::json::Edits;
use fanlight_protocol::{Json, Message};

criterion_group!(
    benches,
    slice_request,
    slice_responses,
    find_members,
    splice_responses,
    splice_name
);
criterion_main!(benches);

/// The permitted nesting, as in Fanlight by default.
const NESTING: usize = 128;

const SIZES: [usize; 3] = [200, 10 << 10, 1 << 20];

/// A response whose result is one long text: lines with quotes, like source code.
fn text_response(size: usize) -> Bytes {
    let line = format!(r#"let answer = \"{}\";  // line\n"#, "x".repeat(43));
    let text = line.repeat(size / line.len() + 1);
    format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":"{text}"}}],"isError":false}}}}"#)
        .into()
}

/// A response whose result is many small objects.
fn rows_response(size: usize) -> Bytes {
    let row = r#"{"id":123456,"name":"row 123456","score":17.125,"tags":["a","b"],"active":true,"parent":null}"#;
    let rows = vec![row; size / row.len() + 1].join(",");
    format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[],"structuredContent":{{"rows":[{rows}]}}}}}}"#).into()
}

/// A result of servers with structured output: rows, preceded by their serialised JSON as text.
fn structured_response(size: usize) -> Bytes {
    let row = r#"{"id":123456,"name":"row 123456","score":17.125,"tags":["a","b"],"active":true,"parent":null}"#;
    let rows = vec![row; size / (2 * row.len()) + 1].join(",");
    let text = rows.replace('"', r#"\""#);
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"result":{{"content":[{{"type":"text","text":"{{\"rows\":[{text}]}}"}}],"structuredContent":{{"rows":[{rows}]}}}}}}"#
    )
    .into()
}

fn request() -> Bytes {
    br#"{"jsonrpc":"2.0","id":1000000001,"method":"tools/call","params":{"name":"text_200","arguments":{"query":"benchmark","limit":10},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#
        .as_slice()
        .into()
}

fn slice_request(criterion: &mut Criterion) {
    let text = request();
    criterion.bench_function("slice a request", |bencher| {
        bencher.iter(|| Message::parse(black_box(text.clone()), NESTING));
    });
}

fn slice_responses(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("slice a response");
    slice(&mut group, "text", text_response);
    slice(&mut group, "rows", rows_response);
    slice(&mut group, "structured", structured_response);
}

/// Compares slicing with serde_json skipping over the same bytes.
fn slice(group: &mut BenchmarkGroup<'_, WallTime>, kind: &str, response: fn(usize) -> Bytes) {
    for size in SIZES {
        let text = response(size);
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_with_input(BenchmarkId::new(kind, size), &text, |bencher, text| {
            bencher.iter(|| Message::parse(black_box(text.clone()), NESTING));
        });
        group.bench_with_input(
            BenchmarkId::new(format!("{kind}, RawValue"), size),
            &text,
            |bencher, text| {
                bencher.iter(|| {
                    serde_json::from_slice::<&serde_json::value::RawValue>(black_box(text)).is_ok()
                });
            },
        );
    }
}

/// Finds three members in the params of a call.
fn find_members(criterion: &mut Criterion) {
    let params = match Message::parse(request(), NESTING) {
        Ok(Message::Request(request)) => request.params,
        _ => None,
    };
    criterion.bench_function("find three members", |bencher| {
        bencher.iter(|| {
            black_box(&params)
                .as_ref()
                .map(|params| params.find(["name", "arguments", "_meta"]))
        });
    });
}

/// Splices the client's id over the server's, and a member into the front of the result; also all
/// of it in one piece.
fn splice_responses(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("splice a response");
    let id = Json::literal("1000000001");
    for size in SIZES {
        let Ok(Message::Response(response)) = Message::parse(text_response(size), NESTING) else {
            return;
        };
        group.bench_with_input(
            BenchmarkId::new("in pieces", size),
            &response,
            |bencher, response| {
                bencher.iter(|| {
                    black_box(response)
                        .to_message(&id, Bytes::from_static(br#""resultType":"complete""#))
                });
            },
        );
        group.bench_with_input(
            BenchmarkId::new("in one", size),
            &response,
            |bencher, response| {
                bencher.iter(|| {
                    black_box(response)
                        .to_message(&id, Bytes::new())
                        .into_bytes()
                });
            },
        );
    }
}

/// Replaces a tool's name in the params of a call.
fn splice_name(criterion: &mut Criterion) {
    let text = request();
    let Some(at) = text
        .windows(10)
        .position(|window| window == br#""text_200""#)
    else {
        return;
    };
    criterion.bench_function("splice a name", |bencher| {
        bencher.iter(|| {
            let mut edits = Edits::new(black_box(&text).clone());
            edits.replace(at..at + 10, Bytes::from_static(br#""s0__text_200""#));
            edits.finish().into_bytes()
        });
    });
}
