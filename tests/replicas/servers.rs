//! Valkey as a cluster, and with sentinels that promote a replica.

use crate::group::{Group, admin, backend, call, members, request, until};
use crate::signing_in::{ANN, BOB};
use crate::valkey::{Sentinel, Valkey};

const LIMITED: &str = r#","limits":{"rates":[{"rate":"1000/h","burst":3,"shared":"refuse"}]}"#;

/// The number of accepted calls among ten, made at two gateways in turn.
async fn let_through(gateways: [&fanlight_testkit::harness::Gateway; 2]) -> usize {
    let mut through = 0;
    for n in 0..10 {
        through += usize::from(call(gateways[n % 2], "search", ANN).await.status == 200);
    }
    through
}

/// Three requests for each client, and four calls for each server.
const MIXED: &str = r#","limits":{"rates":[{"rate":"10/h","burst":3,"shared":"refuse"},{"for":"server","rate":"10/h","burst":4,"shared":"refuse"}]}"#;

/// The counters of the clients' limits.
async fn taken_by_clients(valkeys: &[Valkey]) -> Vec<String> {
    let mut taken = Vec::new();
    for valkey in valkeys {
        let keys = valkey.ask("KEYS *rates-*").await;
        for key in keys.lines().filter(|line| line.contains("rates-")) {
            taken.push(valkey.ask(&format!("GET {key}")).await);
        }
    }
    taken.sort_unstable();
    taken
}

#[tokio::test]
async fn cluster_of_valkey_keeps_what_replicas_share() {
    let (valkeys, backend) = (Valkey::cluster().await, backend().await);
    let group = Group::new(backend.entry("only"), MIXED);
    let (one, other) = tokio::join!(
        group.start(valkeys[0].cluster_url()),
        group.start(valkeys[1].cluster_url())
    );
    for gateway in [&one, &other] {
        until("two replicas", async || members(gateway).await == 2).await;
    }
    // A client that its own limit refuses takes nothing from the limit shared with others,
    assert_eq!(let_through([&one, &other]).await, 3);
    assert_eq!(call(&one, "search", BOB).await.status, 200);
    let before = taken_by_clients(&valkeys).await;
    for gateway in [&other, &one, &other] {
        assert_eq!(call(gateway, "search", BOB).await.status, 429);
    }
    // and a client that the shared limit refuses takes nothing from its own limit.
    until("what was taken to be given back", async || {
        taken_by_clients(&valkeys).await == before
    })
    .await;
    let mut statuses = Vec::new();
    for gateway in [&one, &other, &one] {
        statuses.push(request(gateway, "tools/list", "", BOB).await.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
    // The keys of one client share a slot, and other clients have other slots.
    let keys = [
        valkeys[0].ask("KEYS *rates*").await,
        valkeys[1].ask("KEYS *rates*").await,
    ]
    .concat();
    let mut tags: Vec<_> = keys
        .split('{')
        .skip(1)
        .filter_map(|rest| Some(rest.split_once('}')?.0))
        .collect();
    tags.sort_unstable();
    assert!(
        tags.len() == 3
            && tags[0] == "rates"
            && tags[1].starts_with("rates-")
            && tags[1] != tags[2],
        "{keys}"
    );

    assert_eq!(
        admin(&one, "POST", "/api/servers/only/disable").await.0,
        200
    );
    until("the switch", async || {
        admin(&other, "GET", "/api/backends")
            .await
            .1
            .contains(r#""backends":[]"#)
    })
    .await;
}

#[tokio::test]
async fn replica_of_valkey_takes_over_with_what_was_shared() {
    let (mut primary, backend) = (Valkey::start().await, backend().await);
    let replica = Valkey::replica_of(&primary).await;
    let sentinel = Sentinel::start(&primary).await;
    let group = Group::new(backend.entry("only"), LIMITED);
    let (one, other) = tokio::join!(group.start(sentinel.url()), group.start(sentinel.url()));
    let through = let_through([&one, &other]).await;
    assert!((3..=4).contains(&through), "{through}");
    primary.kill().await;
    one.log.line_with("Valkey is away").await;
    assert_eq!(call(&one, "search", ANN).await.status, 429);
    until("the replica to be the primary", async || {
        replica.ask("ROLE").await.contains("master")
    })
    .await;
    for gateway in [&one, &other] {
        let is_back = async || {
            admin(gateway, "GET", "/metrics")
                .await
                .1
                .contains("fanlight_valkey_connected 1")
        };
        until("the connection", is_back).await;
    }
    // The promoted replica knows the replicated usage.
    assert!(let_through([&one, &other]).await <= 1);
    until("two replicas", async || members(&one).await == 2).await;
}
