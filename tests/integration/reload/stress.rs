//! Many clients of both eras in a closed loop, while the configuration changes repeatedly.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::raw_client::{LegacySession, legacy_request};
use crate::scripted::config;

/// `FANLIGHT_RELOAD_STRESS=200x100` runs 200 clients during 100 reloads.
fn scale() -> (usize, usize) {
    let text = std::env::var("FANLIGHT_RELOAD_STRESS").unwrap_or_else(|_| "16x20".into());
    let (clients, reloads) = text
        .split_once('x')
        .expect("clients and reloads, such as 200x100");
    (clients.parse().unwrap(), reloads.parse().unwrap())
}

/// A server that answers each call with its argument, which identifies the call.
async fn echo(era: Era, transport: Transport) -> Backend {
    let backend = Backend::start(era, transport).await;
    backend.offers_tools(&["t"]);
    backend.on(
        "tools/call",
        Reply::compute(move |call| {
            let number = call.member("params.arguments.n").unwrap_or("null");
            era.complete(&format!(
                r#""content":[],"structuredContent":{{"n":{number}}}"#
            ))
        }),
    );
    backend
}

/// Calls one tool after the other until the test stops it; returns the number of calls.
async fn client(
    number: usize,
    mcp: std::net::SocketAddr,
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
) {
    let session = match number % 2 {
        0 => None,
        _ => Some(LegacySession::open(mcp).await),
    };
    let mut own = 0;
    while !stop.load(Ordering::Relaxed) {
        let id = number * 1_000_000 + own;
        own += 1;
        let server = if own % 2 == 0 { "kept" } else { "changed" };
        let params = format!(r#""name":"{server}__t","arguments":{{"n":{id}}}"#);
        let mut response = match &session {
            None => post_modern(mcp, &modern_request("1", "tools/call", &params, "")).await,
            Some(session) => {
                session
                    .post(&legacy_request(
                        &(own + 9).to_string(),
                        "tools/call",
                        &params,
                    ))
                    .await
            }
        };
        let answer = response.messages().await.1;
        assert!(
            answer.contains(&format!(r#""structuredContent":{{"n":{id}}}"#)),
            "{server}: {answer}"
        );
        calls.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_is_lost_or_run_twice_while_the_configuration_changes() {
    let (clients, reloads) = scale();
    let (kept, changed) = (
        echo(Era::Modern, Transport::Http).await,
        echo(Era::Legacy, Transport::Http).await,
    );
    let (added, child) = (
        echo(Era::Legacy, Transport::Stdio).await,
        echo(Era::Modern, Transport::Stdio).await,
    );
    // In each round the changing server has another definition.
    let configuration = |round: usize| {
        let mut entries = vec![kept.entry("kept")];
        entries.push(changed.entry_with(
            "changed",
            &format!(r#""headers":{{"x-round":"{}"}}"#, round / 5),
        ));
        match round % 5 {
            1 => entries.push(added.entry("added")),
            2 => entries.extend([child.entry("child"), added.entry("added")]),
            _ => {}
        }
        let text = config(&entries);
        if round % 5 == 3 {
            text.replacen('{', "{\"nonsense\":1,", 1)
        } else {
            text
        }
    };
    let gateway = Gateway::start_with(&configuration(0), &["--no-watch"]).await;
    // On a busy machine the first probe of a server's era may time out.
    for tool in ["kept__t", "changed__t"] {
        while !call(&gateway, tool).await.contains("structuredContent") {}
    }
    let (stop, calls) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let running: Vec<_> = (0..clients)
        .map(|number| {
            tokio::spawn(client(
                number,
                gateway.mcp,
                Arc::clone(&stop),
                Arc::clone(&calls),
            ))
        })
        .collect();
    let mut memory = Vec::new();
    for round in 1..=reloads {
        let before = calls.load(Ordering::Relaxed);
        gateway.configure(&configuration(round));
        let (status, report) = gateway.reload().await;
        assert_eq!(status == 422, round % 5 == 3, "{report}");
        while calls.load(Ordering::Relaxed) < before + clients
            && !running.iter().any(|client| client.is_finished())
        {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        memory.push(gateway.memory());
    }
    stop.store(true, Ordering::Relaxed);
    for client in running {
        client.await.unwrap();
    }
    let mut executed = HashMap::new();
    for call in [&kept, &changed]
        .iter()
        .flat_map(|server| server.received("tools/call"))
    {
        // The first calls have no argument.
        if let Some(number) = call.member("params.arguments.n") {
            *executed.entry(number.to_owned()).or_insert(0) += 1;
        }
    }
    assert!(
        executed.values().all(|times| *times == 1),
        "a call was run twice"
    );
    assert_eq!(
        executed.len(),
        calls.load(Ordering::Relaxed),
        "a call was lost"
    );
    let (early, late) = (memory[reloads / 2], memory[reloads - 1]);
    eprintln!(
        "{} calls, {reloads} reloads, memory {} → {} KiB",
        executed.len(),
        early >> 10,
        late >> 10
    );
    assert!(
        late < early + (early / 4).max(8 << 20),
        "memory grew from {early} to {late}: {memory:?}"
    );
}
