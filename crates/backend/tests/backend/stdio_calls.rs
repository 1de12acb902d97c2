//! Requests to child processes that go well, notifications, and cancellation.

use fanlight_backend::EraChoice;
use fanlight_canonical::BackendClient;
use fanlight_protocol::meta::LogLevel;

use crate::support::child::{Child, exists};
use crate::support::log::Log;
use crate::support::{PATIENCE, ask, call, listening, revision, send, settings, start};

#[tokio::test]
async fn both_eras_are_found() {
    for (child, expected) in [(Child::legacy(""), "2025-06-18"), (Child::modern(""), "2026-07-28")] {
        let backend = start(settings(child.transport()));
        assert_eq!(revision(&backend).await, expected);
        assert_eq!(child.starts().len(), 1);
        backend.stop().await;
        assert!(!exists(child.starts()[0]));
    }
}

#[tokio::test]
async fn server_that_exits_on_the_probe_is_restarted_as_legacy() {
    let child = Child::legacy(r#"*'"method":"server/discover"'*) exit 3;;"#);
    let backend = start(settings(child.transport()));
    assert_eq!(revision(&backend).await, "2025-06-18");
    assert_eq!(child.starts().len(), 2);
    backend.stop().await;
}

#[tokio::test]
async fn modern_server_that_starts_slowly_is_recognised() {
    let refuse = r#"*'"method":"initialize"'*) error '{"code":-32601,"message":"no such method"}';;"#;
    // It answers the probe only once `initialize` is there, well after the probe was given up.
    let child = Child::new(&format!(
        r#"*'"method":"server/discover"'*) probe=$id;;
        *'"method":"initialize"'*) second=$id; id=$probe
          result '{{"supportedVersions":["2026-07-28"],"capabilities":{{}}}}'
          id=$second; error '{{"code":-32601,"message":"no such method"}}';;
        {refuse}"#
    ));
    let mut settings = settings(child.transport());
    settings.timeouts.probe = std::time::Duration::from_millis(50);
    let backend = start(settings);
    assert_eq!(revision(&backend).await, "2026-07-28");
    backend.stop().await;
}

#[tokio::test]
async fn era_is_remembered_until_it_is_refused() {
    let modern = r#"result '{"supportedVersions":["2026-07-28"],"capabilities":{}}'"#;
    let child = Child::legacy(&format!(
        r#"*'"method":"server/discover"'*) echo probe >> "$STATE/probes"
          if [ -e "$STATE/upgraded" ]; then {modern}; else error '{{"code":-32601,"message":"m"}}'; fi;;
        *'"method":"initialize"'*) [ -e "$STATE/upgraded" ] && error '{{"code":-32601,"message":"m"}}' ||
          result '{{"protocolVersion":"2025-06-18","capabilities":{{}}}}';;
        *'"method":"test/upgrade"'*) : > "$STATE/upgraded"; exit 0;;
        *'"method":"test/restart"'*) exit 0;;"#
    ));
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    ask(&backend, "test/restart", "").await.unwrap_err();
    assert_eq!(revision(&backend).await, "2025-06-18");
    assert_eq!(child.file("probes").lines().count(), 1);
    // A second early end is followed by a pause, which the next request does not wait for.
    ask(&backend, "test/upgrade", "").await.unwrap_err();
    let up_again = async {
        while backend.status().revision != Some("2026-07-28") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, up_again).await.unwrap();
    assert_eq!(child.file("probes").lines().count(), 2);
    backend.stop().await;
}

#[tokio::test]
async fn era_can_be_configured() {
    let child = Child::legacy(r#"*'"method":"server/discover"'*) exit 3;;"#);
    let mut settings = settings(child.transport());
    settings.era = EraChoice::Legacy;
    let backend = start(settings);
    assert_eq!(revision(&backend).await, "2025-06-18");
    assert_eq!(child.starts().len(), 1);
    backend.stop().await;
}

#[tokio::test]
async fn messages_are_single_lines_and_keep_their_bytes() {
    let child =
        Child::modern(r#"*'"method":"test/echo"'*) text=${line#*\"params\":}; result "{\"line\":${text%\}}}";;"#);
    let mut settings = settings(child.transport());
    settings.era = EraChoice::Modern;
    let backend = start(settings);
    let echoed = ask(&backend, "test/echo", "{ \"a\" :\r\n 1.0 , \"b\":\"\\u0041 é\" }").await.unwrap();
    assert!(echoed.ends_with(r#"}, "a" : 1.0 , "b":"\u0041 é" }}"#), "{echoed}");
    backend.stop().await;
}

#[tokio::test]
async fn requests_are_multiplexed() {
    // The first is answered after the second.
    let child = Child::modern(
        r#"*'"method":"test/first"'*) first=$id;;
        *'"method":"test/second"'*) result '{"n":2}'; id=$first; result '{"n":1}';;"#,
    );
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    let (first, second) = tokio::join!(ask(&backend, "test/first", ""), ask(&backend, "test/second", ""));
    assert_eq!((first.unwrap().as_str(), second.unwrap().as_str()), (r#"{"n":1}"#, r#"{"n":2}"#));
    backend.stop().await;
}

#[tokio::test]
async fn progress_is_delivered_to_the_call_that_asked_for_it() {
    let child = Child::modern(
        r#"*'"method":"test/work"'*)
          say "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":$id,\"progress\":1.0}}"
          say '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"x"}}'
          result '{}';;"#,
    );
    let backend = start(settings(child.transport()));
    let (asking, mut inbox) = listening(call("test/work", ""), |context| context.wants_progress = true);
    let (silent, mut quiet) = listening(call("test/work", ""), |_| {});
    send(&backend, silent).await.unwrap();
    send(&backend, asking).await.unwrap();
    assert_eq!(inbox.recv().await.unwrap().params().unwrap().get("progress").unwrap().as_text(), "1.0");
    assert!(inbox.recv().await.is_none() && quiet.recv().await.is_none());
    backend.stop().await;
}

const LOGGING: &str = r#"*'"method":"test/wait"'*) waiting=$id;;
    *'"method":"test/log"'*)
      say '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"secret"}}'
      result '{}'; id=$waiting; result '{}';;"#;

/// Two calls run, of these clients and with these levels; who gets the log message?
async fn log_receivers(child: Child, waiting: (u64, Option<LogLevel>), logging: (u64, Option<LogLevel>)) -> [bool; 2] {
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    let of = |method: &str, (key, level)| {
        listening(call(method, ""), |context| {
            context.caller = crate::support::client(key);
            context.log_level = level;
        })
    };
    let (first, mut first_inbox) = of("test/wait", waiting);
    let (second, mut second_inbox) = of("test/log", logging);
    let (first, second) = tokio::join!(send(&backend, first), send(&backend, second));
    first.unwrap();
    second.unwrap();
    backend.stop().await;
    [first_inbox.recv().await.is_some(), second_inbox.recv().await.is_some()]
}

#[tokio::test]
async fn log_messages_are_not_delivered_to_another_client() {
    let info = Some(LogLevel::Info);
    let legacy = || {
        Child::legacy(&LOGGING.replace(
            "*'\"method\":\"test/wait",
            "*'\"method\":\"logging/setLevel\"'*) result '{}';;\n*'\"method\":\"test/wait",
        ))
    };
    let modern = || Child::modern(LOGGING);
    // Of the same client: the oldest call.
    assert_eq!(log_receivers(legacy(), (1, None), (1, None)).await, [true, false]);
    assert_eq!(log_receivers(legacy(), (1, None), (2, None)).await, [false, false]);
    assert_eq!(log_receivers(modern(), (1, None), (2, info)).await, [false, true]);
    assert_eq!(log_receivers(modern(), (1, info), (2, info)).await, [false, false]);
    assert_eq!(log_receivers(modern(), (1, None), (2, None)).await, [false, false]);
}

#[tokio::test]
async fn requests_of_a_legacy_server_are_answered() {
    let child = Child::legacy(
        r#"*'"method":"test/ask"'*) asked=$id
          say '{"jsonrpc":"2.0","id":"p","method":"ping"}'
          say '{"jsonrpc":"2.0","id":9,"method":"roots/list"}';;
        *'"id":"p","result":{}'*) ping=yes;;
        *'"id":9,"error":{"code":-32601'*) id=$asked; result "{\"ping\":\"$ping\"}";;"#,
    );
    let backend = start(settings(child.transport()));
    assert_eq!(ask(&backend, "test/ask", "").await.unwrap(), r#"{"ping":"yes"}"#);
    backend.stop().await;
}

#[tokio::test]
async fn dropped_request_is_cancelled_and_its_late_answer_ignored() {
    let child = Child::legacy(
        r#"*'"method":"test/slow"'*) slow=$id; : > "$STATE/began";;
        *'"method":"notifications/cancelled"'*) cancelled=${line#*\"requestId\":}; cancelled=${cancelled%%,*};;
        *'"method":"test/seen"'*) now=$id; id=$slow; result '{"late":true}'; id=$now
          result "{\"slow\":$slow,\"cancelled\":$cancelled}";;"#,
    );
    let backend = start(settings(child.transport()));
    revision(&backend).await;
    let mut request = backend.request(call("test/slow", ""));
    // Polled once, the request is with the writer; that it was sent shows in what comes after it.
    assert!(futures_util::FutureExt::now_or_never(&mut request).is_none());
    drop(request);
    let seen = ask(&backend, "test/seen", "").await.unwrap();
    let numbers: Vec<_> = seen.matches(|c: char| c.is_ascii_digit()).collect();
    assert_eq!(numbers.len() % 2, 0);
    assert_eq!(numbers[..numbers.len() / 2], numbers[numbers.len() / 2..], "{seen}");
    backend.stop().await;
}

#[tokio::test]
async fn standard_error_is_logged_with_the_backend_name() {
    let log = Log::catch();
    let child = Child::modern(
        r#"*'"method":"test/warn"'*) printf 'watch \033[31mout\n' >&2; printf '%05000d\n' 7 >&2; result '{}';;"#,
    );
    let backend = start(settings(child.transport()));
    ask(&backend, "test/warn", "").await.unwrap();
    backend.stop().await;
    let text = log.text();
    let line = text.lines().find(|line| line.contains("watch")).unwrap();
    assert!(line.contains("fanlight::child") && line.contains("tested"), "{line}");
    assert!(line.contains("watch \u{fffd}[31mout"), "{line}");
    let long = text.lines().find(|line| line.contains("00000000")).unwrap();
    assert!(long.len() < 4400 && long.contains("(5000 bytes)"), "{}", long.len());
}
