//! Servers that an operator disables at all replicas.

use rustix::process::Signal;

use crate::group::{Group, admin, backend, request, until};
use crate::harness::Gateway;
use crate::signing_in::ANN;
use crate::valkey::Valkey;

const SWITCHES: &str = "fanlight:{switches}:servers";

/// The switch of a server as Valkey has it; empty if it has none.
async fn switch_of(valkey: &Valkey, server: &str) -> String {
    let answer = valkey.ask(&format!("HGET {SWITCHES} {server}")).await;
    let value = answer
        .strip_prefix('$')
        .filter(|rest| !rest.starts_with('-'));
    let value = value.and_then(|rest| rest.lines().nth(1));
    value.unwrap_or_default().to_owned()
}

/// Whoever can write to Valkey switches no server on: not by a plain word, an earlier switch, another
/// server's switch or the removal of a switch. `enabled: false` of the file wins.
#[tokio::test]
async fn who_can_write_to_valkey_switches_no_server_on() {
    let (valkey, first, second) = (Valkey::start().await, backend().await, backend().await);
    let disabled = second
        .entry("third")
        .replacen('{', r#"{"enabled":false,"#, 1);
    let servers = [first.entry("first"), second.entry("second"), disabled];
    let group = Group::new(servers.join(","), "");
    let (one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
    let switch = async |server: &str, how: &str| {
        let path = format!("/api/servers/{server}/{how}");
        assert_eq!(admin(&one, "POST", &path).await.0, 200);
        switch_of(&valkey, server).await
    };
    let shows_third = async |gateway: &Gateway| {
        let mut list = request(gateway, "tools/list", "", ANN).await;
        list.text().await.contains("third__erase")
    };
    // An operator's own word counts at that replica; nobody else's does.
    let third = switch("third", "enable").await;
    assert!(shows_third(&one).await && !shows_third(&other).await);
    switch("second", "disable").await;
    let earlier = switch("second", "enable").await;
    until("the other replica", async || shows_second(&other).await).await;
    let latest = switch("second", "disable").await;
    until("the other replica", async || !shows_second(&other).await).await;
    let channel = valkey.ask("PUBSUB CHANNELS *").await;
    let channel = channel
        .lines()
        .find(|line| line.contains("fanlight"))
        .unwrap()
        .to_owned();
    for forged in ["on", &earlier, &third, ""] {
        valkey
            .ask(&match forged {
                "" => format!("DEL {SWITCHES}"),
                forged => format!("HSET {SWITCHES} second {forged}"),
            })
            .await;
        valkey.ask(&format!("PUBLISH {channel} x")).await;
        until("the switch", async || {
            switch_of(&valkey, "second").await.len() == latest.len()
                && switch_of(&valkey, "second").await != earlier
        })
        .await;
        assert!(
            !shows_second(&one).await && !shows_second(&other).await,
            "{forged}"
        );
    }
    let later = group.start(valkey.url()).await;
    until("the replica that came later", async || {
        !shows_second(&later).await
    })
    .await;
    assert!(!shows_third(&later).await && !shows_third(&other).await);
}

/// Simulates another replica's change whose publication is lost, since nobody is subscribed at that
/// moment.
#[tokio::test]
async fn unheard_publication_of_a_cluster_is_read_after_subscribing_again() {
    let (cluster, first, second) = (Valkey::cluster().await, backend().await, backend().await);
    let group = Group::new([first.entry("first"), second.entry("second")].join(","), "");
    let earlier = group.start(cluster[0].cluster_url()).await;
    assert_eq!(
        admin(&earlier, "POST", "/api/servers/second/disable")
            .await
            .0,
        200
    );
    let mut switch = String::new();
    for server in &cluster {
        switch += &switch_of(server, "second").await;
    }
    drop(earlier);
    for server in &cluster {
        server.ask(&format!("DEL {SWITCHES}")).await;
    }
    let gateway = group.start(cluster[0].cluster_url()).await;
    assert!(shows_second(&gateway).await);
    for server in &cluster {
        // One of the cluster's servers owns the key.
        server
            .ask(&format!("HSET {SWITCHES} second {switch}"))
            .await;
    }
    for server in &cluster {
        server.ask("CLIENT KILL TYPE pubsub").await;
    }
    until("the server", async || !shows_second(&gateway).await).await;
}

#[tokio::test]
async fn server_of_a_cluster_that_does_not_answer_keeps_no_replica_from_the_others() {
    let ([one, two], first, second) = (Valkey::cluster().await, backend().await, backend().await);
    let group = Group::new([first.entry("first"), second.entry("second")].join(","), "");
    two.signal(Signal::STOP);
    // The slots move, as after a failover.
    for change in ["DELSLOTSRANGE", "ADDSLOTSRANGE"] {
        one.ask(&format!("CLUSTER {change} 8192 16383")).await;
    }
    until("the cluster", async || {
        one.ask("CLUSTER INFO").await.contains("cluster_state:ok")
    })
    .await;
    let gateway = group
        .start(format!("{},{}", one.cluster_url(), two.address))
        .await;
    assert!(shows_second(&gateway).await);
}

/// Whether clients see the second server's tools.
async fn shows_second(gateway: &Gateway) -> bool {
    request(gateway, "tools/list", "", ANN)
        .await
        .text()
        .await
        .contains("second__erase")
}

#[tokio::test]
async fn server_that_is_switched_while_valkey_refuses_to_write_is_switched_elsewhere_afterwards() {
    let (valkey, first, second) = (Valkey::start().await, backend().await, backend().await);
    let group = Group::new([first.entry("first"), second.entry("second")].join(","), "");
    let (one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
    assert!(shows_second(&other).await);
    valkey.ask("CONFIG SET maxmemory 1").await;
    assert_eq!(
        admin(&one, "POST", "/api/servers/second/disable").await.0,
        200
    );
    one.log.line_with("the other replicas learn later").await;
    valkey.ask("CONFIG SET maxmemory 0").await;
    until("the other replica", async || !shows_second(&other).await).await;
}

#[tokio::test]
async fn server_is_switched_at_all_replicas_and_at_those_that_come_later() {
    let (mut valkey, first, second) = (Valkey::start().await, backend().await, backend().await);
    let group = Group::new([first.entry("first"), second.entry("second")].join(","), "");
    let (one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
    assert!(shows_second(&one).await && shows_second(&other).await);
    assert_eq!(
        admin(&one, "POST", "/api/servers/second/disable").await.0,
        200
    );
    until("the other replica", async || !shows_second(&other).await).await;
    let later = group.start(valkey.url()).await;
    until("the replica that came later", async || {
        !shows_second(&later).await
    })
    .await;
    // While Valkey is away, the change applies at the asked replica, and at the others as soon as
    // possible.
    valkey.kill().await;
    one.log.line_with("Valkey is away").await;
    assert_eq!(
        admin(&one, "POST", "/api/servers/second/enable").await.0,
        200
    );
    assert!(shows_second(&one).await && !shows_second(&other).await);
    valkey.start_again(true).await;
    for gateway in [&one, &other, &later] {
        until("the server", async || shows_second(gateway).await).await;
    }
}
