//! The membership of replicas, and replicas that are away.

use std::time::{Duration, Instant};

use fanlight_testkit::harness::fanlight;
use fanlight_testkit::signing_in::ANN;

use crate::group::{Group, admin, backend, call, members, of_replicas, until};
use crate::proxy::{Network, Proxy};
use crate::valkey::Valkey;

#[tokio::test]
async fn replicas_know_each_other_and_notice_within_three_seconds_that_one_is_gone() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = Group::new(backend.entry("only"), "");
    let (one, mut two, three) = tokio::join!(
        group.start(valkey.url()),
        group.start(valkey.url()),
        group.start(valkey.url())
    );
    for gateway in [&one, &two, &three] {
        until("three replicas", async || members(gateway).await == 3).await;
    }
    let url = format!("http://{}", one.admin);
    let status = fanlight()
        .args(["status", "--admin", &url])
        .output()
        .await
        .unwrap();
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    assert!(
        status.contains("(this one)") && status.contains("connected for"),
        "{status}"
    );
    let metrics = admin(&one, "GET", "/metrics").await.1;
    assert!(
        metrics.contains("fanlight_replicas 3") && metrics.contains("fanlight_valkey_connected 1"),
        "{metrics}"
    );
    let details = admin(&one, "GET", "/readyz").await.1;
    assert!(details.contains(r#""replicas":{"own":"#), "{details}");

    // A replica that ends releases its lease; a killed one cannot.
    let id = of_replicas(&two, &["own"]).await;
    two.kill().await;
    // Valkey's clock decides; a lease lasts two seconds after its renewal.
    let lease_ends = number_in(
        &valkey
            .ask(&format!("ZSCORE fanlight:{{members}}:leases {id}"))
            .await,
    );
    for gateway in [&one, &three] {
        until("two replicas", async || members(gateway).await == 2).await;
    }
    let gone = number_in(
        &valkey
            .ask(&format!("ZSCORE fanlight:{{members}}:changes {id}"))
            .await,
    );
    assert!(
        gone > lease_ends && gone - lease_ends <= 1000,
        "{gone}, {lease_ends}"
    );
    three.terminate().await;
    until("one replica", async || members(&one).await == 1).await;
}

/// The number in an answer of Valkey.
fn number_in(answer: &str) -> u64 {
    let number = answer.lines().find_map(|line| line.trim().parse().ok());
    number.unwrap_or_else(|| panic!("no number: {answer}"))
}

#[tokio::test]
async fn replica_that_was_cut_off_gets_another_epoch() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let (group, proxy) = (
        Group::new(backend.entry("only"), ""),
        Proxy::to(valkey.address).await,
    );
    let (one, cut) = tokio::join!(group.start(valkey.url()), group.start(proxy.url()));
    until("two replicas", async || members(&one).await == 2).await;
    let epoch = of_replicas(&cut, &["epoch"]).await;
    assert_ne!(epoch, "null");
    proxy.set(Network::Silent);
    // The others notice by the end of its lease; the replica itself notices, too.
    until("one replica", async || members(&one).await == 1).await;
    until("no lease", async || {
        of_replicas(&cut, &["epoch"]).await == "null"
    })
    .await;
    assert_ne!(of_replicas(&cut, &["valkey", "trouble"]).await, "null");
    assert_eq!(
        call(&cut, "search", ANN).await.status,
        200,
        "calls need no Valkey"
    );
    proxy.set(Network::Takes(Duration::ZERO));
    cut.log.line_with("it has rejoined them").await;
    until("two replicas", async || members(&one).await == 2).await;
    assert_ne!(of_replicas(&cut, &["epoch"]).await, epoch);
}

#[tokio::test]
async fn replica_keeps_its_epoch_when_valkey_comes_back_with_and_without_its_data() {
    let (mut valkey, backend) = (Valkey::start().await, backend().await);
    let group = Group::new(backend.entry("only"), "");
    let one = group.start(valkey.url()).await;
    let epoch = of_replicas(&one, &["epoch"]).await;
    for keeps_data in [true, false] {
        valkey.kill().await;
        one.log.line_with("Valkey is away").await;
        let began = Instant::now();
        assert_eq!(call(&one, "search", ANN).await.status, 200);
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{:?}",
            began.elapsed()
        );
        valkey.start_again(keeps_data).await;
        let is_back =
            async || members(&one).await == 1 && of_replicas(&one, &["epoch"]).await == epoch;
        until("the replica with its epoch", is_back).await;
    }
}

#[tokio::test]
async fn malformed_numbers_in_valkey_are_replaced() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = Group::new(backend.entry("only"), "");
    let one = group.start(valkey.url()).await;
    let epoch = of_replicas(&one, &["epoch"]).await;
    let mut others = Vec::new();
    for number in ["x", "nan", "inf", "-1", "18446744073709551615"] {
        let command = format!(
            "HSET fanlight:{{members}}:members #epoch {number} #version {number} #since {number}"
        );
        valkey.ask(&command).await;
        others.push(group.start(valkey.url()).await);
        until("all replicas", async || {
            members(&one).await == others.len() + 1
        })
        .await;
    }
    assert_eq!(of_replicas(&one, &["epoch"]).await, epoch);
}

#[tokio::test]
async fn gateway_starts_without_valkey_and_joins_when_it_is_there() {
    let (mut valkey, backend) = (Valkey::start().await, backend().await);
    valkey.kill().await;
    let group = Group::new(backend.entry("only"), "");
    let one = group.start_alone(valkey.url()).await;
    one.log.line_with("cannot connect to Valkey").await;
    assert_eq!(call(&one, "search", ANN).await.status, 200);
    valkey.start_again(true).await;
    one.log.line_with("joined the other replicas").await;
}
