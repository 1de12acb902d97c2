//! One client on a pair of byte streams.

use std::time::Duration;

use fanlight_frontend::FrontendSettings;
use serde_json::Value;
use tokio::io::{AsyncWriteExt as _, BufReader, duplex};

use crate::client::{legacy_call, modern_call, modern_request, soon};
use crate::core::{Happened, told};
use crate::streams::Stdio;

#[tokio::test]
async fn stdio_serves_both_eras_side_by_side() {
    let mut stdio = Stdio::start();
    let discovered = stdio
        .ask(&modern_request("1", "server/discover", "", ""))
        .await;
    assert_eq!(discovered["result"]["supportedVersions"][0], "2026-07-28");
    assert_eq!(
        stdio.initialize().await["result"]["protocolVersion"],
        "2024-11-05"
    );
    stdio
        .send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    stdio.send(&legacy_call("2", "echo", "")).await;
    assert_eq!(
        stdio.line().await.unwrap(),
        r#"{"jsonrpc":"2.0","id":2,"result":{ "content":[],"structuredContent":{"a":1.0}, "n": 1.0 }}"#
    );
    stdio.send(&modern_call("3", "echo", "")).await;
    assert!(
        stdio
            .line()
            .await
            .unwrap()
            .contains(r#""id":3,"result":{"resultType":"complete","#)
    );
    let calls = [
        stdio.log.began().await,
        stdio.log.began().await,
        stdio.log.began().await,
        stdio.log.began().await,
    ];
    assert_eq!(calls[1].context.caller, calls[2].context.caller);
    assert_ne!(calls[0].context.caller, calls[3].context.caller);
    assert_eq!(
        told(&calls[2].context).0,
        Some(r#"{"name":"c","version":"1"}"#)
    );
    assert!(stdio.end().await.is_empty());
}

#[tokio::test]
async fn stdio_messages_are_on_one_line() {
    let mut stdio = Stdio::start();
    stdio.initialize().await;
    stdio
        .send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#)
        .await;
    assert_eq!(
        stdio.line().await.unwrap(),
        r#"{"jsonrpc":"2.0","id":2,"result":{"tools":[]}}"#
    );
}

#[tokio::test]
async fn malformed_line_is_answered_and_harms_no_other() {
    let mut stdio = Stdio::with(FrontendSettings {
        max_line: 2000,
        ..FrontendSettings::default()
    });
    let long = format!(
        r#"{{"jsonrpc":"2.0","id":"long","method":"x","params":{{"x":"{}"}}}}"#,
        "x".repeat(9000)
    );
    for (text, code, id) in [
        ("garbage", -32700, Value::Null),
        ("[]", -32600, Value::Null),
        (r#"{"jsonrpc":"2.0","id":4}"#, -32600, 4.into()),
        (&long, -32600, "long".into()),
        (&"y".repeat(9000), -32600, Value::Null),
        (
            r#"{"jsonrpc":"2.0","id":5,"method":"tools/list"}"#,
            -32602,
            5.into(),
        ),
        (
            r#"{"jsonrpc":"2.0","id":5,"method":"server/discover"}"#,
            -32602,
            5.into(),
        ),
        (
            r#"{"jsonrpc":"2.0","id":6,"method":"initialize","params":{}}"#,
            -32602,
            6.into(),
        ),
        (
            &modern_request("7", "tools/list", "", "").replace("2026-07-28", "1900-01-01"),
            -32022,
            7.into(),
        ),
        (&modern_request("8", "ping", "", ""), -32601, 8.into()),
        (
            &modern_request("9", "unknown/method", "", ""),
            -32601,
            9.into(),
        ),
    ] {
        let answer = stdio.ask(text).await;
        assert_eq!(answer["error"]["code"], code, "{answer}");
        assert_eq!(
            answer.get("id").cloned().unwrap_or_default(),
            id,
            "{answer}"
        );
    }
    // None of these messages deserves an answer.
    stdio.send(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    stdio
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}"#)
        .await;
    let pong = stdio
        .ask(r#"{"jsonrpc":"2.0","id":10,"method":"ping"}"#)
        .await;
    assert_eq!(
        (&pong["id"], &pong["result"]),
        (&10.into(), &serde_json::json!({}))
    );
}

#[tokio::test]
async fn concurrent_requests_are_bounded_per_connection() {
    let mut stdio = Stdio::with(FrontendSettings {
        max_concurrent: 2,
        ..FrontendSettings::default()
    });
    stdio.send(&modern_call("1", "wait", "")).await;
    stdio.send(&modern_call("2", "wait", "")).await;
    let busy = stdio.ask(&modern_call("3", "echo", "")).await;
    assert_eq!(
        (&busy["id"], &busy["error"]["code"]),
        (&3.into(), &(-32603).into())
    );
    assert!(
        busy["error"]["message"]
            .as_str()
            .unwrap()
            .contains("2 requests are running")
    );
    stdio.core.release.add_permits(2);
    let mut answered = [
        stdio.message().await["id"].as_i64(),
        stdio.message().await["id"].as_i64(),
    ];
    answered.sort_unstable();
    assert_eq!(answered, [Some(1), Some(2)]);
}

#[tokio::test]
async fn cancelled_request_has_no_answer_in_either_era() {
    let mut stdio = Stdio::start();
    stdio.initialize().await;
    stdio.log.began().await;
    assert!(matches!(stdio.log.ended().await, Happened::Answered));
    for call in [legacy_call("1", "wait", ""), modern_call("1", "wait", "")] {
        stdio.send(&call).await;
        stdio.log.began().await;
        stdio
            .send(
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
            )
            .await;
        assert!(matches!(stdio.log.ended().await, Happened::Dropped));
    }
    assert!(stdio.end().await.is_empty());
}

#[tokio::test]
async fn notifications_precede_the_answer_in_order() {
    let mut stdio = Stdio::start();
    stdio
        .send(&modern_call(
            "1",
            "notify",
            r#""progressToken":"p","io.modelcontextprotocol/logLevel":"error""#,
        ))
        .await;
    for count in 1..=50 {
        let progress = stdio.message().await;
        assert_eq!(
            (
                &progress["params"]["progress"],
                &progress["params"]["progressToken"]
            ),
            (&count.into(), &"p".into())
        );
    }
    assert_eq!(stdio.message().await["params"]["level"], "error");
    assert_eq!(stdio.message().await["id"], 1);
    stdio.initialize().await;
    let level =
        r#"{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"warning"}}"#;
    assert_eq!(stdio.ask(level).await["id"], 2);
    stdio.send(&legacy_call("3", "notify", "")).await;
    assert_eq!(stdio.message().await["params"]["level"], "warning");
    assert_eq!(stdio.message().await["params"]["level"], "error");
    assert_eq!(stdio.message().await["id"], 3);
}

#[tokio::test]
async fn slow_reader_loses_nothing() {
    let mut stdio = Stdio::start();
    let mut input = stdio.input.take().unwrap();
    let calls: String = (0..100)
        .map(|id| modern_call(&id.to_string(), "notify", r#""progressToken":1"#) + "\n")
        .collect();
    let writing = tokio::spawn(async move { input.write_all(calls.as_bytes()).await.unwrap() });
    let (mut answers, mut progress) = (0, 0);
    // Only now the client reads: far more than the streams and queues hold.
    while answers < 100 {
        let message = stdio.message().await;
        if message.get("id").is_some() {
            answers += 1;
        } else {
            progress += 1;
        }
    }
    assert_eq!(progress, 100 * 50);
    soon(writing).await.unwrap();
}

#[tokio::test]
async fn request_running_at_the_end_of_input_is_answered() {
    let mut stdio = Stdio::start();
    stdio.send(&modern_call("1", "wait", "")).await;
    stdio.log.began().await;
    // The last line may lack its line break.
    let last = modern_call("2", "echo", "");
    soon(stdio.input.as_mut().unwrap().write_all(last.as_bytes()))
        .await
        .unwrap();
    stdio.core.release.add_permits(1);
    let answers = stdio.end().await;
    assert_eq!(answers.len(), 2, "{answers:?}");
}

#[tokio::test]
async fn request_is_cut_after_the_drain_time() {
    let mut stdio = Stdio::with(FrontendSettings {
        drain: Duration::from_millis(50),
        ..FrontendSettings::default()
    });
    stdio.send(&modern_call("1", "wait", "")).await;
    stdio.log.began().await;
    stdio.shutdown.cancel();
    assert_eq!(stdio.line().await, None);
    assert!(matches!(stdio.log.ended().await, Happened::Dropped));
    soon(stdio.served).await.unwrap().unwrap();
}

#[tokio::test]
async fn closed_output_ends_the_connection() {
    let mut stdio = Stdio::start();
    let Stdio { input, output, .. } = &mut stdio;
    *output = BufReader::new(duplex(1).0);
    soon(
        input
            .as_mut()
            .unwrap()
            .write_all(format!("{}\n", modern_call("1", "echo", "")).as_bytes()),
    )
    .await
    .unwrap();
    soon(stdio.served).await.unwrap().unwrap();
}

#[tokio::test]
async fn messages_before_the_initialize_answer_belong_to_the_session() {
    let mut stdio = Stdio::start();
    stdio.send(r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#).await;
    stdio
        .send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
        .await;
    stdio.send(&legacy_call("2", "echo", "")).await;
    let answers = stdio.end().await;
    assert!(
        answers.len() == 2 && answers.iter().all(|answer| answer.contains("\"result\"")),
        "{answers:?}"
    );
}

/// The counters agree with the pipes to the byte.
#[tokio::test]
async fn bytes_are_counted_in_both_directions() {
    let (telemetry, _guard) =
        fanlight_telemetry::Telemetry::start(fanlight_telemetry::Settings::default()).unwrap();
    let settings = FrontendSettings {
        telemetry: telemetry.clone(),
        ..FrontendSettings::default()
    };
    let mut stdio = Stdio::with(settings);
    let (mut sent, mut got) = (0, 0);
    for message in [
        r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
        "no message at all",
        r#"{"é":1}"#,
    ] {
        stdio.send(message).await;
        sent += message.len() + 1;
        got += stdio.line().await.unwrap().len() + 1;
    }
    assert!(stdio.end().await.is_empty());
    let text = telemetry.prometheus();
    for (direction, bytes) in [("receive", sent), ("transmit", got)] {
        let series = format!(
            "fanlight_client_io_bytes_total{{network_io_direction=\"{direction}\"}} {bytes}\n"
        );
        assert!(text.contains(&series), "{series}{text}");
    }
}
