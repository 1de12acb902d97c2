//! Floods of HTTP/2 frames that cost the sender little (CVE-2019-9511 to 9518, CVE-2023-44487,
//! CVE-2024-27316).

pub(crate) mod frames;

use std::time::Duration;

use self::frames::{
    CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, LARGEST_FRAME,
    NEWEST_ENTRY, PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, attack, attack_deaf, call,
    exchange, field, frame, indexed_field,
};
use crate::target::{Bounds, Target};

/// The ids of streams that a client may open, in order.
fn streams(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|number| 2 * number + 1)
}

/// The number of calls of the tool that only attackers call.
fn flooded(target: &Target) -> usize {
    let calls = target.backend.received("tools/call");
    calls
        .iter()
        .filter(|call| call.member("params.name") == Some(r#""flood""#))
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_is_served_over_http2() {
    let target = Target::start().await;
    let (body, block) = call("flood");
    let request = [
        frame(HEADERS, END_HEADERS, 1, &block),
        frame(DATA, END_STREAM, 1, body.as_bytes()),
    ]
    .concat();
    let outcome = exchange(target.gateway.mcp, &request).await;
    assert!(
        outcome.frames.contains(&HEADERS),
        "the frames of the attacks are valid: {outcome:?}"
    );
    assert_eq!(flooded(&target), 1);
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rapid_resets_reach_the_server_in_small_numbers() {
    const STREAMS: u32 = 5000;
    let target = Target::start().await;
    let (body, block) = call("flood");
    let opened = |stream| frame(HEADERS, END_HEADERS, stream, &block);
    let sent = |stream| {
        [
            opened(stream),
            frame(DATA, END_STREAM, stream, body.as_bytes()),
        ]
        .concat()
    };
    let reset = |stream| frame(RST_STREAM, 0, stream, &CANCEL);
    let heads: Vec<u8> = streams(STREAMS)
        .flat_map(|stream| [opened(stream), reset(stream)].concat())
        .collect();
    let calls: Vec<u8> = streams(STREAMS)
        .flat_map(|stream| [sent(stream), reset(stream)].concat())
        .collect();
    attack(target.gateway.mcp, &heads).await;
    let outcome = attack(target.gateway.mcp, &calls).await;
    assert!(outcome.is_ended(), "{outcome:?}");
    assert!(
        flooded(&target) < STREAMS as usize / 5,
        "{} calls reached the server",
        flooded(&target)
    );
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_header_blocks_end_the_connection() {
    let target = Target::start().await;
    let (_, block) = call("flood");
    for part in [&b""[..], &field("x", "y"), &field("x", &"y".repeat(1000))] {
        let mut frames = frame(HEADERS, 0, 1, &block);
        let continuation = frame(CONTINUATION, 0, 1, part);
        frames.extend(continuation.repeat((8 << 20) / continuation.len()));
        let outcome = attack(target.gateway.mcp, &frames).await;
        assert!(
            outcome.is_ended(),
            "{} bytes a frame: {:?}",
            part.len(),
            outcome.frames.last()
        );
    }
    assert_eq!(flooded(&target), 0);
    target.withstood(Bounds::SMALL).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn compressed_headers_are_not_multiplied_in_memory() {
    let target = Target::start().await;
    // Each byte of the block stands for a header of 4000 bytes: 4 MiB of frames expand to 16 GiB of
    // headers.
    let mut first = call("flood").1;
    first.extend(indexed_field("x", &"y".repeat(4000)));
    let bytes = vec![NEWEST_ENTRY; LARGEST_FRAME];
    let mut one_block = frame(HEADERS, 0, 1, &first);
    one_block.extend(frame(CONTINUATION, 0, 1, &bytes).repeat(255));
    one_block.extend(frame(CONTINUATION, END_HEADERS, 1, &bytes));
    attack(target.gateway.mcp, &one_block).await;
    let mut many_blocks = frame(HEADERS, END_HEADERS, 1, &first);
    let repeated = [call("flood").1, vec![NEWEST_ENTRY; LARGEST_FRAME / 2]].concat();
    for stream in streams(100).skip(1) {
        many_blocks.extend(frame(HEADERS, END_HEADERS, stream, &repeated));
    }
    attack(target.gateway.mcp, &many_blocks).await;
    assert_eq!(flooded(&target), 0);
    target.withstood(Bounds::SMALL).await;
}

/// The peer does not read, so the gateway would have to keep its answers unless it stops reading,
/// too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_answers_to_control_frames_are_bounded() {
    let target = Target::start().await;
    for control in [frame(SETTINGS, 0, 0, &[]), frame(PING, 0, 0, b"flooding")] {
        let frames = control.repeat((2 << 20) / control.len());
        attack_deaf(target.gateway.mcp, &frames).await;
    }
    target
        .withstood(Bounds {
            time: Duration::from_secs(20),
            ..Bounds::SMALL
        })
        .await;
}

/// Each setting requires an answer, which costs more than sending the setting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_settings_ends_the_connection() {
    let target = Target::start().await;
    let settings = frame(SETTINGS, 0, 0, &[]);
    let few = attack(target.gateway.mcp, &settings.repeat(500)).await;
    assert!(!few.is_ended(), "{:?}", few.frames.last());
    for flood in [
        settings,
        frame(PING, 0, 0, b"flooding"),
        frame(0xfa, 0, 0, b"unknown"),
    ] {
        let outcome = attack(target.gateway.mcp, &flood.repeat(400_000)).await;
        assert!(outcome.is_ended(), "{:?}", outcome.frames.last());
    }
    target
        .withstood(Bounds {
            memory: 24 << 20,
            ..Bounds::SMALL
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_without_effect_cost_little() {
    let target = Target::start().await;
    let (_, block) = call("flood");
    let open = frame(HEADERS, END_HEADERS, 1, &block);
    for idle in [
        frame(DATA, 0, 1, b""),
        frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1]),
        frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        frame(0xfa, 0, 0, b"unknown"),
        frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]),
        frame(PING, 0, 0, b"flooding"),
    ] {
        let frames = [open.clone(), idle.repeat(20_000)].concat();
        attack(target.gateway.mcp, &frames).await;
    }
    target
        .withstood(Bounds {
            processor: Duration::from_secs(4),
            ..Bounds::SMALL
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_frames_end_the_connection() {
    let target = Target::start().await;
    let (body, block) = call("flood");
    let open = frame(HEADERS, END_HEADERS, 1, &block);
    let long = frame(DATA, 0, 1, &vec![b' '; LARGEST_FRAME + 1]);
    let cases = [
        ("a frame over the limit", [open.clone(), long].concat()),
        ("an even stream", frame(HEADERS, END_HEADERS, 2, &block)),
        (
            "data on an idle stream",
            frame(DATA, END_STREAM, 1, body.as_bytes()),
        ),
        (
            "a stream id that goes back",
            [frame(HEADERS, END_HEADERS, 9, &block), open.clone()].concat(),
        ),
        (
            "an interrupted header block",
            [frame(HEADERS, 0, 1, &block), frame(PING, 0, 0, b"12345678")].concat(),
        ),
        (
            "a window that overflows",
            frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        ),
        (
            "broken compression",
            frame(
                HEADERS,
                END_HEADERS,
                1,
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            ),
        ),
        (
            "a huge integer",
            frame(
                HEADERS,
                END_HEADERS,
                1,
                &[[0x7f].as_slice(), &[0xff; 100]].concat(),
            ),
        ),
        ("settings that are cut", frame(SETTINGS, 0, 0, &[0, 4, 0])),
        ("garbage", b"GET / HTTP/1.1\r\n\r\n".repeat(100)),
    ];
    for (what, frames) in cases {
        let outcome = attack(target.gateway.mcp, &frames).await;
        assert!(
            outcome.is_ended() || outcome.frames.contains(&GOAWAY),
            "{what}: {outcome:?}"
        );
    }
    assert_eq!(flooded(&target), 0);
    target.withstood(Bounds::SMALL).await;
}

/// These headers are forbidden in HTTP/2 requests, and a way to smuggle if they are translated to
/// HTTP/1.1 (RFC 9113, section 8.2).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_of_http1_framing_are_refused_over_http2() {
    let target = Target::start().await;
    let (body, block) = call("flood");
    for (name, value) in [
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("content-length", "5"),
        ("x\r\ny", "z"),
        ("x", "y\r\nz: 1"),
        ("X-Upper", "x"),
        (":path", "/mcp"),
        (":unknown", "x"),
    ] {
        let block = [block.clone(), field(name, value)].concat();
        let request = [
            frame(HEADERS, END_HEADERS, 1, &block),
            frame(DATA, END_STREAM, 1, body.as_bytes()),
        ]
        .concat();
        let outcome = exchange(target.gateway.mcp, &request).await;
        assert!(
            outcome.is_ended() || outcome.frames.contains(&RST_STREAM),
            "{name}: {value}: {outcome:?}"
        );
    }
    assert_eq!(flooded(&target), 0, "none of them was served");
    target.withstood(Bounds::SMALL).await;
}
