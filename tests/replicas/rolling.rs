//! Rolling updates of replicas behind each load balancer, while clients of both eras call tools.

use std::time::{Duration, Instant};

use fanlight_testkit::signing_in::ANN;
use rustix::process::Signal;

use crate::balancer::Balancer;
use crate::fleet::{Fleet, Place};
use crate::forwarding::{self, signal};
use crate::group::{Group, admin, backend, call, members, until};
use crate::linked::{Client, LinkedGroup};
use crate::load::{Ledger, Load, Outcomes, WHOLE_WITHIN};
use crate::raw_client::{Connection, INITIALIZED, JSON_HEADERS, NEWEST_LEGACY, initialize};
use crate::scripted::{Backend, Era, Gate, Reply, Transport};
use crate::valkey::Valkey;

/// Longer than any call takes.
const NEVER: Duration = Duration::from_secs(30);

/// Updates all replicas under load; returns the clients' outcomes.
async fn updated(ledger: &Ledger, what: &str) -> Outcomes {
    let valkey = Valkey::start().await;
    let group = LinkedGroup::new(ledger.entries(), "");
    let mut fleet = Fleet::start(group, [(); 3].map(|()| valkey.url())).await;
    let nginx = Balancer::nginx(&fleet.places).await;
    let load = Load::start(nginx.address, NEVER).await;
    let mut times = Vec::new();
    for number in 0..3 {
        times.push(Instant::now());
        fleet.replace(number).await;
        load.is_served().await;
    }
    times.push(Instant::now());
    let outcomes = load.stop().await;
    for (number, pair) in (1..).zip(times.windows(2)) {
        outcomes.record(
            &format!("replica {number} updated, {what}"),
            pair[0],
            pair[1],
            WHOLE_WITHIN,
        );
    }
    outcomes
}

#[tokio::test]
async fn rolling_update_fails_no_call_and_loses_no_session_over_http() {
    let ledger = Ledger::start().await;
    let outcomes = updated(&ledger, "servers over HTTP").await;
    outcomes.all_answered();
    outcomes.agree_with(&ledger);
}

#[tokio::test]
async fn rolling_update_costs_a_session_with_a_process_one_404_for_each_replica_it_loses() {
    let ledger = Ledger::with(Transport::Stdio).await;
    let outcomes = updated(&ledger, "a server with processes").await;
    outcomes.none_failed();
    // A reopened session may be at a replica that is updated later.
    assert!(
        outcomes
            .lost_sessions()
            .iter()
            .all(|lost| (1..=3).contains(lost)),
        "{}",
        outcomes.text_of_lost()
    );
    outcomes.agree_with(&ledger);
}

/// A legacy stdio server, whose sessions no other replica can take over.
async fn process() -> Backend {
    let backend = Backend::start(Era::Legacy, Transport::Stdio).await;
    backend.offers_tools(&["say"]);
    backend.on(
        "tools/call",
        Reply::result(r#"{"content":[{"type":"text","text":"said"}]}"#),
    );
    backend
}

/// A load balancer keeps sending requests on open connections.
#[tokio::test]
async fn session_that_is_asked_for_at_a_replica_that_ends_is_opened_at_another() {
    let (valkey, backend) = (Valkey::start().await, process().await);
    // A new connection has this long for its first request.
    let group = LinkedGroup::new(backend.entry("only"), r#","x-limits":"firstRequest=30s""#);
    let (ending, other) = group.start_two(&valkey.url()).await;
    let connection = Connection::open(ending.gateway.mcp).await;
    signal(&ending.gateway, Signal::TERM);
    until("not to be ready", async || {
        admin(&ending.gateway, "GET", "/readyz").await.0 == 503
    })
    .await;
    let told = async || {
        admin(&other.gateway, "GET", "/api/overview")
            .await
            .1
            .contains(r#""isEnding":true"#)
    };
    until("the other to know", told).await;
    let client = Client::open_on(connection, ANN, "{}").await;
    until("one replica", async || members(&other.gateway).await == 1).await;
    assert_eq!(client.post(&other, INITIALIZED).await.status, 202);
    assert_eq!(client.post(&other, &forwarding::say("1")).await.status, 200);
}

/// An update that switches authentication on.
#[tokio::test]
async fn client_of_a_replica_without_authentication_is_nobody_where_clients_are_authenticated() {
    let (valkey, backend) = (Valkey::start().await, process().await);
    let (entry, more) = (backend.entry("only"), r#","x-limits":"firstRequest=30s""#);
    let group = LinkedGroup::from_group(Group::without_auth(entry.clone(), more));
    let ending = group.start(&valkey.url()).await;
    let group = group.with_group(Group::new(entry, more));
    let other = group.start(&valkey.url()).await;
    until("two replicas", async || members(&ending.gateway).await == 2).await;
    let mut connection = Connection::open(ending.gateway.mcp).await;
    signal(&ending.gateway, Signal::TERM);
    until("not to be ready", async || {
        admin(&ending.gateway, "GET", "/readyz").await.0 == 503
    })
    .await;
    let body = initialize(NEWEST_LEGACY, "{}");
    connection
        .request("POST", "/mcp", &JSON_HEADERS, body.as_bytes())
        .await;
    let answer = connection.response().await;
    assert_eq!(
        (answer.status, answer.header("mcp-session-id")),
        (401, None)
    );
    drop(other);
}

/// Connections at the old address end as at a shutdown, and the replica goes on.
#[tokio::test]
async fn session_that_is_asked_for_at_a_replica_that_moves_its_listener_is_opened_there() {
    let (valkey, backend) = (Valkey::start().await, process().await);
    let group = LinkedGroup::new(backend.entry("only"), r#","x-limits":"firstRequest=30s""#);
    let [place, next, _] = Fleet::places();
    let url = valkey.url();
    let (mut moving, mut other) = tokio::join!(group.start_at(&url, place, &[]), group.start(&url));
    for at in [&moving, &other] {
        until("two replicas", async || members(&at.gateway).await == 2).await;
    }
    let connection = Connection::open(moving.gateway.mcp).await;
    moving.gateway.configure(&group.text_at(
        &url,
        Place {
            clients: next.clients,
            ..place
        },
    ));
    let (_, report) = admin(&moving.gateway, "POST", "/api/reload").await;
    assert!(report.contains(&next.clients.to_string()), "{report}");
    let client = Client::open_on(connection, ANN, "{}").await;
    moving.gateway.mcp = next.clients;
    other.gateway.kill().await;
    assert_eq!(client.post(&moving, INITIALIZED).await.status, 202);
    assert_eq!(
        client.post(&moving, &forwarding::say("1")).await.status,
        200
    );
}

/// The ending replica has no client of its own that would delay its end.
#[tokio::test]
async fn call_that_another_replica_has_passed_on_is_finished_before_its_own_ends() {
    let (valkey, backend, gate) = (
        Valkey::start().await,
        forwarding::backend().await,
        Gate::new(),
    );
    backend.on_target(
        "tools/call",
        "say",
        Reply::result(r#"{"content":[{"type":"text","text":"said"}]}"#).gated(&gate),
    );
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    let until_told = async {
        gate.reached(1).await;
        signal(&owner.gateway, Signal::TERM);
        until("not to be ready", async || {
            admin(&owner.gateway, "GET", "/readyz").await.0 == 503
        })
        .await;
        // The replica ends by itself when it can.
        owner.gateway.log.line_with("shutting down").await;
        gate.open();
    };
    let body = forwarding::say("1");
    let (mut answer, ()) = tokio::join!(client.post(&other, &body), until_told);
    assert_eq!(answer.status, 200);
    assert!(answer.text().await.contains("said"));
    // The session goes on.
    assert_eq!(client.post(&other, &forwarding::say("2")).await.status, 200);
    assert_eq!(backend.received("tools/call").len(), 2);
}

#[tokio::test]
async fn replica_that_is_told_to_end_is_not_ready_and_finishes_its_calls() {
    let (valkey, backend, gate) = (Valkey::start().await, backend().await, Gate::new());
    backend.on_target(
        "tools/call",
        "search",
        Reply::result(r#"{"resultType":"complete","content":[]}"#).gated(&gate),
    );
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, _other) = group.start_two(&valkey.url()).await;
    let until_told = async {
        gate.reached(1).await;
        signal(&owner.gateway, Signal::TERM);
        until("not to be ready", async || {
            admin(&owner.gateway, "GET", "/readyz").await.0 == 503
        })
        .await;
        gate.open();
    };
    let (answer, ()) = tokio::join!(call(&owner.gateway, "search", ANN), until_told);
    assert_eq!(answer.status, 200);
    assert_eq!(backend.count_of_target("tools/call", "search"), 1);
}
