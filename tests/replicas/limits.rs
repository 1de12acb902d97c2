//! Limits that all replicas share, also while Valkey is slow or away.

use std::time::{Duration, Instant};

use futures_util::future::join_all;

use crate::group::{Group, backend, call, members, until};
use crate::harness::Gateway;
use crate::proxy::{Network, Proxy};
use crate::signing_in::{ANN, BOB};
use crate::valkey::Valkey;

/// A limit for each principal of six calls at once, and hardly any later.
fn limited(shared: &str) -> String {
    format!(r#","limits":{{"rates":[{{"rate":"1000/h","burst":6,"shared":"{shared}"}}]}}"#)
}

/// The number of accepted calls among 20 at each gateway.
async fn let_through(gateways: &[&Gateway], key: &str) -> Vec<usize> {
    let at = async |gateway: &Gateway| {
        let answers = join_all((0..20).map(|_| call(gateway, "search", key))).await;
        assert!(
            answers
                .iter()
                .all(|answer| [200, 429].contains(&answer.status))
        );
        answers.iter().filter(|answer| answer.status == 200).count()
    };
    join_all(gateways.iter().map(|gateway| at(gateway))).await
}

#[tokio::test]
async fn limit_is_one_for_all_replicas_and_each_principal_has_its_own() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = Group::new(backend.entry("only"), &limited("refuse"));
    let (one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
    for key in [ANN, BOB] {
        let all: usize = let_through(&[&one, &other], key).await.iter().sum();
        // A slow round earns one or two calls more.
        assert!((6..=8).contains(&all), "{all}");
    }
    let mut refused = call(&other, "search", ANN).await;
    assert_eq!(refused.status, 429);
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=4).contains(&seconds), "{seconds}");
    assert!(refused.text().await.contains(r#""code":-31008"#));
    // No key in Valkey names a client. All have one tag, so that they are on the same server also
    // if several servers are behind the address.
    let keys = valkey.ask("KEYS *rates*").await;
    assert!(
        keys.contains("fanlight:{rates}") && !keys.contains("rates-") && !keys.contains("ann"),
        "{keys}"
    );
}

#[tokio::test]
async fn malformed_count_in_valkey_is_replaced() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = Group::new(backend.entry("only"), &limited("refuse"));
    let one = group.start(valkey.url()).await;
    assert_eq!(call(&one, "search", ANN).await.status, 200);
    let keys = valkey.ask("KEYS *rates*").await;
    let key = keys.lines().find(|line| line.starts_with("fanlight"));
    for count in ["x", "nan", "inf"] {
        valkey.ask(&format!("SET {} {count}", key.unwrap())).await;
        let through = let_through(&[&one], ANN).await[0];
        assert!((6..=8).contains(&through), "{count}: {through}");
    }
}

#[tokio::test]
async fn limit_is_split_or_refuses_while_valkey_is_away() {
    for (shared, each) in [("part", 3..=4), ("refuse", 0..=0)] {
        let (mut valkey, backend) = (Valkey::start().await, backend().await);
        let group = Group::new(backend.entry("only"), &limited(shared));
        let (one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
        for gateway in [&one, &other] {
            until("two replicas", async || members(gateway).await == 2).await;
        }
        valkey.kill().await;
        for gateway in [&one, &other] {
            gateway.log.line_with("Valkey is away").await;
        }
        let through = let_through(&[&one, &other], ANN).await;
        assert!(
            through.iter().all(|through| each.contains(through)),
            "{shared}: {through:?}"
        );
        // With Valkey the limit is shared again. It starts empty, and at most the full amount is
        // allowed.
        valkey.start_again(true).await;
        until("a call", async || {
            call(&one, "search", BOB).await.status == 200
        })
        .await;
    }
}

#[tokio::test]
async fn slow_valkey_delays_no_request_for_longer_than_the_bound() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let proxy = Proxy::to(valkey.address).await;
    let group = Group::new(backend.entry("only"), &limited("part"));
    let one = group.start(proxy.url()).await;
    for delay in [200, 2000] {
        // Each direction takes half of the delay.
        proxy.set(Network::Takes(Duration::from_millis(delay / 2)));
        let began = Instant::now();
        assert_eq!(call(&one, "search", ANN).await.status, 200, "{delay} ms");
        // The call itself takes some time on a busy machine.
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{delay} ms: {:?}",
            began.elapsed()
        );
    }
    one.log.line_with("Valkey is away").await;
    proxy.set(Network::Takes(Duration::ZERO));
    one.log.line_with("joined").await;
}
