//! What it takes to read an envelope, to find members, and to splice: the work of every call.

use bytes::Bytes;
use divan::{Bencher, black_box};
use fanlight_protocol::json::Edits;
use fanlight_protocol::{Json, Message};

fn main() {
    divan::main();
}

/// Nesting allowed, as Fanlight has it by default.
const NESTING: usize = 128;

const SIZES: [usize; 3] = [200, 10 << 10, 1 << 20];

/// A response whose result is one long text with line breaks.
fn text_response(size: usize) -> Bytes {
    let line = format!("{}\\n", "x".repeat(78));
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

fn request() -> Bytes {
    br#"{"jsonrpc":"2.0","id":1000000001,"method":"tools/call","params":{"name":"text_200","arguments":{"query":"benchmark","limit":10},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#
        .as_slice()
        .into()
}

#[divan::bench]
fn slice_request(bencher: Bencher<'_, '_>) {
    let text = request();
    bencher.bench(|| Message::parse(black_box(text.clone()), NESTING));
}

#[divan::bench(args = SIZES)]
fn slice_text_response(bencher: Bencher<'_, '_>, size: usize) {
    let text = text_response(size);
    bencher
        .counter(divan::counter::BytesCount::new(text.len()))
        .bench(|| Message::parse(black_box(text.clone()), NESTING));
}

#[divan::bench(args = SIZES)]
fn slice_rows_response(bencher: Bencher<'_, '_>, size: usize) {
    let text = rows_response(size);
    bencher
        .counter(divan::counter::BytesCount::new(text.len()))
        .bench(|| Message::parse(black_box(text.clone()), NESTING));
}

/// The yardstick: serde_json skipping over the same bytes.
#[divan::bench(args = SIZES)]
fn raw_value_text_response(bencher: Bencher<'_, '_>, size: usize) {
    let text = text_response(size);
    let counter = divan::counter::BytesCount::new(text.len());
    bencher.counter(counter).bench(|| serde_json::from_slice::<&serde_json::value::RawValue>(black_box(&text)).is_ok());
}

/// The same for many small objects.
#[divan::bench(args = SIZES)]
fn raw_value_rows_response(bencher: Bencher<'_, '_>, size: usize) {
    let text = rows_response(size);
    let counter = divan::counter::BytesCount::new(text.len());
    bencher.counter(counter).bench(|| serde_json::from_slice::<&serde_json::value::RawValue>(black_box(&text)).is_ok());
}

/// Finding three members of the params of a call.
#[divan::bench]
fn find_members(bencher: Bencher<'_, '_>) {
    let params = match Message::parse(request(), NESTING) {
        Ok(Message::Request(request)) => request.params,
        _ => None,
    };
    bencher.bench(|| black_box(&params).as_ref().map(|params| params.find(["name", "arguments", "_meta"])));
}

/// The client's id in the place of the backend's, and a member at the front of the result.
#[divan::bench(args = SIZES)]
fn splice_response(bencher: Bencher<'_, '_>, size: usize) {
    let Ok(Message::Response(response)) = Message::parse(text_response(size), NESTING) else { return };
    let id = Json::literal("1000000001");
    bencher.bench(|| black_box(&response).to_message(&id, br#""resultType":"complete""#));
}

/// The same, and then in one piece.
#[divan::bench(args = SIZES)]
fn splice_response_into_one(bencher: Bencher<'_, '_>, size: usize) {
    let Ok(Message::Response(response)) = Message::parse(text_response(size), NESTING) else { return };
    let id = Json::literal("1000000001");
    bencher.bench(|| black_box(&response).to_message(&id, b"").into_bytes());
}

/// A tool's name replaced in the params of a call.
#[divan::bench]
fn splice_name(bencher: Bencher<'_, '_>) {
    let text = request();
    let Some(at) = text.windows(10).position(|window| window == br#""text_200""#) else { return };
    bencher.bench(|| {
        let mut edits = Edits::new(black_box(&text).clone());
        edits.replace(at..at + 10, Bytes::from_static(br#""s0__text_200""#));
        edits.finish().into_bytes()
    });
}
