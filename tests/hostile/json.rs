//! JSON that is costly to parse, and JSON that parsers understand differently.

use std::time::Duration;

use crate::raw_client::{Connection, JSON_HEADERS, MODERN, modern_request};
use crate::scripted::{Era, Reply};
use crate::target::{Bounds, Target};

const MIB: usize = 1 << 20;

/// Just below `limits.requestBody`.
const LARGEST: usize = 15 * MIB;

/// Bounds for values of some 12 MiB, of which memory has several copies: received, sent, and in
/// socket buffers. The scripted server also checks them in this process, while the second client
/// waits.
const LONG: Bounds = Bounds {
    memory: 64 << 20,
    processor: Duration::from_secs(12),
    time: Duration::from_secs(40),
    slowest_call: Duration::from_secs(8),
};

/// Sends a body as a call of the tool `t`, and returns the status and text of the response.
async fn call_with(target: &Target, body: &[u8]) -> (u16, String) {
    let mut connection = Connection::open(target.gateway.mcp).await;
    let length = body.len().to_string();
    let own = [
        ("MCP-Protocol-Version", MODERN),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "t"),
    ];
    let headers = [&JSON_HEADERS[..], &own, &[("Content-Length", &length)]].concat();
    // Not `request`, which parses the body to check it: that may take longer than the attack.
    let head = connection.head("POST", "/mcp", &headers);
    connection.send(&head).await.unwrap();
    // The gateway may respond before it has read everything.
    let _ = connection.send(body).await;
    let mut response = connection.response().await;
    (response.status, response.text().await)
}

fn call_of(arguments: &str) -> String {
    modern_request(
        "1",
        "tools/call",
        &format!(r#""name":"t","arguments":{arguments}"#),
        "",
    )
}

/// The calls except the second client's.
fn served(target: &Target) -> Vec<String> {
    let calls = target.backend.received("tools/call");
    let calls = calls
        .iter()
        .filter_map(|call| call.member("params.arguments"));
    calls.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deep_nesting_is_refused() {
    let target = Target::start().await;
    let deep = |open: &str, close: &str, times: usize| {
        call_of(&format!(
            r#"{{"x":{}1{}}}"#,
            open.repeat(times),
            close.repeat(times)
        ))
    };
    for body in [
        "[".repeat(LARGEST),
        r#"{"a":"#.repeat(LARGEST / 5),
        format!("{}{}", "[".repeat(LARGEST / 2), "]".repeat(LARGEST / 2)),
        deep("[", "]", 1000),
        deep("[", "]", LARGEST / 3),
        deep(r#"{"a":"#, "}", LARGEST / 7),
        deep(r#"[{"a":["#, "]}]", LARGEST / 11),
    ] {
        assert_eq!(
            call_with(&target, body.as_bytes()).await.0,
            400,
            "{}…",
            &body[..80]
        );
    }
    assert!(served(&target).is_empty());
    // Seven bodies of 15 MiB in turn: at most four are in memory at once, with the allocator's
    // reserves.
    let processor = Duration::from_secs(6);
    target
        .withstood(Bounds {
            memory: 64 << 20,
            processor,
            ..Bounds::SMALL
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_text_is_refused() {
    let target = Target::start().await;
    let within_a_string = |bytes: &[u8]| {
        let call = call_of(r#"{"x":"HERE"}"#);
        let (before, after) = call.split_once("HERE").unwrap();
        [before.as_bytes(), bytes, after.as_bytes()].concat()
    };
    let mut bodies: Vec<Vec<u8>> = [
        &b"\xff"[..],        // never valid
        b"\xc0\xaf",         // `/`, longer than it may be
        b"\xed\xa0\x80",     // half a surrogate pair
        b"\xf4\x90\x80\x80", // beyond Unicode
        b"\xf0\x9f\x98",     // cut
        b"\x00",
        b"\n",
        b"\x1f",
        br"\x41",
        br"\u12",
        br"\u00zz",
        br"\",
    ]
    .iter()
    .map(|bytes| within_a_string(bytes))
    .collect();
    for arguments in [
        "{\"x\":01}",
        "{\"x\":1.}",
        "{\"x\":.5}",
        "{\"x\":+1}",
        "{\"x\":0x10}",
        "{\"x\":NaN}",
        "{\"x\":1e}",
    ] {
        bodies.push(call_of(arguments).into_bytes());
    }
    for arguments in [
        "{x:1}",
        "{'x':1}",
        "{\"x\":1,}",
        "[1,]",
        "{\"x\" 1}",
        "{/**/\"x\":1}",
        "nul",
        "{\"x\":\u{a0}1}",
    ] {
        bodies.push(call_of(arguments).into_bytes());
    }
    // One byte order mark is passed over (RFC 8259, 8.1).
    let marks = b"\xef\xbb\xbf\xef\xbb\xbf";
    bodies.push([&marks[..], call_of("{}").as_bytes()].concat());
    bodies.push([call_of("{}").as_bytes(), b"{}"].concat());
    bodies.push([call_of("{}").as_bytes(), b"\x00"].concat());
    bodies.push(
        call_of("{}")
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect(),
    );
    for body in &bodies {
        let (status, text) = call_with(&target, body).await;
        assert_eq!(status, 400, "{} → {text}", String::from_utf8_lossy(body));
    }
    assert!(served(&target).is_empty(), "{:?}", served(&target));
    target.withstood(Bounds::SMALL).await;
}

/// If readers disagree about a value, the message must not pass the gateway's decision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duplicate_members_that_the_gateway_reads_are_refused() {
    let target = Target::start().await;
    let call = call_of(r#"{"x":1}"#);
    for (first, twice) in [
        (
            r#""method":"tools/call""#,
            r#""method":"ping","method":"tools/call""#,
        ),
        (
            r#""method":"tools/call""#,
            r#""method":"tools/call","method":"ping""#,
        ),
        (
            r#""method":"tools/call""#,
            r#""method":"tools/call","\u006dethod":"ping""#,
        ),
        (r#""id":1"#, r#""id":1,"id":2"#),
        (r#""jsonrpc":"2.0""#, r#""jsonrpc":"2.0","jsonrpc":"1.0""#),
        (r#""name":"t""#, r#""name":"t","name":"u""#),
        (r#""name":"t""#, r#""name":"u","name":"t""#),
        (r#""name":"t""#, r#""name":"t","n\u0061me":"u""#),
        (r#""params":{"#, r#""params":{},"params":{"#),
        (r#""_meta":{"#, r#""_meta":{},"_meta":{"#),
    ] {
        let body = call.replacen(first, twice, 1);
        assert_ne!(body, call);
        let (status, text) = call_with(&target, body.as_bytes()).await;
        assert_eq!(status, 400, "{twice} → {text}");
    }
    assert!(served(&target).is_empty(), "{:?}", served(&target));
    target.withstood(Bounds::SMALL).await;
}

/// Odd but valid values reach the server unchanged, since the server decides about its arguments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_values_pass_unchanged_at_bounded_cost() {
    let target = Target::start().await;
    let arguments = [
        r#"{"x":1e999999999999,"y":-1E-999999999999,"z":-0}"#.to_owned(),
        format!(r#"{{"x":{}}}"#, "9".repeat(MIB)),
        format!(r#"{{"x":0.{}e{}}}"#, "0".repeat(MIB), "1".repeat(MIB)),
        r#"{"x":"\ud800","\udc00":"\udfff\ud800","z":"\u0000"}"#.to_owned(),
        format!(r#"{{"x":"{}"}}"#, r#"\""#.repeat(5 * MIB)),
        format!(r#"{{"x":"{}"}}"#, r"\\".repeat(MIB)),
        format!(r#"{{"x":"{}"}}"#, r"\u0041".repeat(10 * MIB / 6)),
        format!(r#"{{"x":"{}"}}"#, "\u{1F980}".repeat(MIB / 2)),
        format!("{{{}\"x\":1}}", r#""x":1,"#.repeat(MIB / 4)),
        format!("{{\"x\":[{}0]}}", "0,".repeat(MIB)),
        format!("{{\"x\":[{}0]}}", "[],".repeat(MIB)),
        format!("{{\"x\":[{}0]}}", " \n\t".repeat(MIB)),
    ];
    for arguments in &arguments {
        let (status, text) = call_with(&target, call_of(arguments).as_bytes()).await;
        assert_eq!(status, 200, "{}… → {text}", &arguments[..30]);
    }
    let served = served(&target);
    assert_eq!(served.len(), arguments.len());
    assert!(
        served.iter().zip(&arguments).all(|(got, sent)| got == sent),
        "a value was changed"
    );
    target.withstood(LONG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_of_escapes_pass_unchanged_at_bounded_cost() {
    let target = Target::start().await;
    for text in [
        r#"\""#.repeat(5 * MIB),
        r"\u0041".repeat(10 * MIB / 6),
        "[{".repeat(5 * MIB),
    ] {
        let result =
            Era::Modern.complete(&format!(r#""content":[{{"type":"text","text":"{text}"}}]"#));
        target
            .backend
            .on_target("tools/call", "long", Reply::result(&*result));
        let mut connection = Connection::open(target.gateway.mcp).await;
        let body = modern_request("1", "tools/call", r#""name":"long""#, "");
        let own = [
            ("MCP-Protocol-Version", MODERN),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "long"),
        ];
        connection
            .request(
                "POST",
                "/mcp",
                &[&JSON_HEADERS[..], &own].concat(),
                body.as_bytes(),
            )
            .await;
        let answer = connection.response().await.text().await;
        assert!(answer.contains(&result), "the result was changed");
    }
    target.withstood(LONG).await;
}
