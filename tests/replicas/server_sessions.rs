//! Sessions at servers that belong to clients' sessions, and that other replicas continue.

use std::collections::BTreeSet;

use fanlight_testkit::signing_in::{ANN, BOB};
use rustix::process::Signal;

use crate::fleet::Fleet;
use crate::forwarding::{backend, say, signal};
use crate::group::{admin, members, until};
use crate::linked::{Client, Linked, LinkedGroup};
use crate::proxy::Network;
use crate::raw_client::legacy_request;
use crate::scripted::{Backend, Reply};
use crate::taking_over::with_networks;
use crate::valkey::Valkey;

/// The server session of the last tool call.
fn session_of_last_call(backend: &Backend) -> String {
    backend
        .received("tools/call")
        .last()
        .unwrap()
        .header("mcp-session-id")
        .unwrap()
        .to_owned()
}

/// The sessions that the server was asked to end.
fn ended_at(backend: &Backend) -> Vec<String> {
    let ended = backend.received("HTTP DELETE");
    ended
        .iter()
        .map(|request| request.header("mcp-session-id").unwrap().to_owned())
        .collect()
}

/// Calls a tool, and returns the server session.
async fn call(client: &Client, at: &Linked, backend: &Backend, id: &str) -> String {
    let before = backend.received("tools/call").len();
    assert_eq!(client.post(at, &say(id)).await.status, 200);
    assert_eq!(
        backend.received("tools/call").len(),
        before + 1,
        "the call runs once"
    );
    session_of_last_call(backend)
}

/// Checks that no request id is used twice in a server session.
fn assert_numbers_differ(backend: &Backend) {
    let calls = backend.received("tools/call");
    let numbers: BTreeSet<_> = calls
        .iter()
        .map(|call| (call.header("mcp-session-id"), call.member("id").unwrap()))
        .collect();
    assert_eq!(numbers.len(), calls.len(), "{numbers:?}");
}

/// Kills a session's replica, and waits until another has noticed.
async fn killed(owner: &mut Linked, other: &Linked) {
    owner.gateway.kill().await;
    until("one replica", async || members(&other.gateway).await == 1).await;
}

#[tokio::test]
async fn session_at_a_server_goes_on_when_its_replica_is_killed() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (mut owner, mut other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    let session = call(&client, &owner, &backend, "1").await;
    let opened = backend.received("initialize").len();
    killed(&mut owner, &other).await;
    assert_eq!(call(&client, &other, &backend, "2").await, session);
    assert_eq!(call(&client, &other, &backend, "3").await, session);
    assert_eq!(backend.received("initialize").len(), opened);
    let third = group.start(&valkey.url()).await;
    killed(&mut other, &third).await;
    assert_eq!(call(&client, &third, &backend, "4").await, session);
    assert_eq!(call(&client, &third, &backend, "5").await, session);
    assert!(!ended_at(&backend).contains(&session));
    assert_numbers_differ(&backend);
    let calls = backend.received("tools/call");
    let revision = |index: usize| {
        calls[index]
            .header("mcp-protocol-version")
            .map(ToOwned::to_owned)
    };
    assert!(revision(0).is_some() && revision(0) == revision(2));
}

/// Neither another client nor another server gets the session.
#[tokio::test]
async fn session_at_a_server_belongs_only_to_its_client_and_server() {
    let (valkey, server, stranger) = (Valkey::start().await, backend().await, backend().await);
    let group = LinkedGroup::new(server.entry("only"), "");
    let (mut owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    let moved = Client::open(&owner, ANN).await;
    let session = call(&client, &owner, &server, "1").await;
    let of_moved = call(&moved, &owner, &server, "2").await;
    // The configuration of this replica has another server with the same name.
    let renamed = LinkedGroup::new(stranger.entry("only"), "")
        .start(&valkey.url())
        .await;
    until("two replicas", async || members(&other.gateway).await == 3).await;
    owner.gateway.kill().await;
    until("two replicas", async || {
        members(&renamed.gateway).await == 2
    })
    .await;
    assert_eq!(
        client.stolen_by(BOB).post(&other, &say("3")).await.status,
        404
    );
    assert_eq!(call(&client, &other, &server, "4").await, session);
    let own = Client::open(&other, BOB).await;
    let of_bob = call(&own, &other, &server, "5").await;
    assert!(of_bob != session && of_bob != of_moved);
    assert_ne!(call(&moved, &renamed, &stranger, "6").await, of_moved);
    let told = stranger.received_in(&of_moved);
    assert!(told.is_empty(), "{told:?}");
    // Without the replicas' keys, the data in Valkey does not reveal the session.
    let keys = valkey.ask("KEYS *session*").await;
    for key in keys
        .lines()
        .map(str::trim)
        .filter(|key| key.contains("session"))
    {
        let record = valkey.ask(&format!("HGETALL {key}")).await;
        assert!(
            !record.contains(&session) && !record.contains(&of_moved),
            "{record}"
        );
    }
}

#[tokio::test]
async fn session_at_a_server_goes_on_through_an_update_of_all_replicas() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let mut fleet = Fleet::start(group, [(); 3].map(|()| valkey.url())).await;
    let client = Client::open(fleet.replica(0), ANN).await;
    let session = call(&client, fleet.replica(0), &backend, "1").await;
    for number in 0..3 {
        fleet.renew(number).await;
        let next = fleet.replica((number + 1) % 3);
        assert_eq!(
            call(&client, next, &backend, &format!("{}", number + 2)).await,
            session
        );
    }
    assert!(
        !ended_at(&backend).contains(&session),
        "{:?}",
        ended_at(&backend)
    );
    assert_numbers_differ(&backend);
}

#[tokio::test]
async fn server_that_has_forgotten_the_session_meanwhile_gets_another_and_runs_the_call_once() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (mut owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    let session = call(&client, &owner, &backend, "1").await;
    let opened = backend.received("initialize").len();
    backend.forget_session_of("tools/call");
    killed(&mut owner, &other).await;
    assert_eq!(client.post(&other, &say("2")).await.status, 200);
    let next = session_of_last_call(&backend);
    assert_ne!(next, session);
    assert_eq!(backend.received("initialize").len(), opened + 1);
    let in_next = |call: &&std::sync::Arc<crate::scripted::Received>| {
        call.header("mcp-session-id") == Some(&*next)
    };
    assert_eq!(
        backend
            .received("tools/call")
            .iter()
            .filter(in_next)
            .count(),
        1
    );
    // The new session has replaced the old one on record.
    let third = group.start(&valkey.url()).await;
    let mut other = other;
    killed(&mut other, &third).await;
    assert_eq!(call(&client, &third, &backend, "3").await, next);
}

#[tokio::test]
async fn session_at_a_server_ends_with_the_session_of_its_client_wherever_that_is() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (mut owner, other) = group.start_two(&valkey.url()).await;
    let (used, unused) = (
        Client::open(&owner, ANN).await,
        Client::open(&owner, ANN).await,
    );
    let first = call(&used, &owner, &backend, "1").await;
    let second = call(&unused, &owner, &backend, "2").await;
    assert_ne!(first, second);
    killed(&mut owner, &other).await;
    assert_eq!(call(&used, &other, &backend, "3").await, first);
    assert_eq!(used.send(&other, "DELETE", &[], "").await.status, 204);
    // DELETE is the session's first request at its new replica.
    assert_eq!(unused.send(&other, "DELETE", &[], "").await.status, 204);
    backend.wait_for("HTTP DELETE", 2).await;
    assert_eq!(
        BTreeSet::from_iter(ended_at(&backend)),
        BTreeSet::from([first, second])
    );
}

/// Stops a replica, and lets another one continue these client and server sessions.
async fn taken_over_while_stopped(
    owner: &Linked,
    other: &Linked,
    backend: &Backend,
    both: [(&Client, &String); 2],
) {
    signal(&owner.gateway, Signal::STOP);
    until("one replica", async || members(&other.gateway).await == 1).await;
    for ((client, session), id) in both.into_iter().zip(["3", "4"]) {
        assert_eq!(call(client, other, backend, id).await, *session);
    }
}

/// The returning replica must not end a session that another one has continued.
#[tokio::test]
async fn replica_that_was_stopped_does_not_end_the_session_at_a_server() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let (client, idle) = (
        Client::open(&owner, ANN).await,
        Client::open(&owner, ANN).await,
    );
    let session = call(&client, &owner, &backend, "1").await;
    let of_idle = call(&idle, &owner, &backend, "2").await;
    taken_over_while_stopped(
        &owner,
        &other,
        &backend,
        [(&client, &session), (&idle, &of_idle)],
    )
    .await;
    signal(&owner.gateway, Signal::CONT);
    owner.gateway.log.line_with("it has rejoined them").await;
    // The replica gets another request for the first session and none for the second.
    assert_eq!(call(&client, &owner, &backend, "5").await, session);
    assert!(owner.gateway.terminate().await.success());
    assert_eq!(call(&idle, &other, &backend, "6").await, of_idle);
    assert!(
        ended_at(&backend)
            .iter()
            .all(|ended| *ended != session && *ended != of_idle),
        "{:?}",
        ended_at(&backend)
    );
}

/// The other replica has taken the session over and released it since.
#[tokio::test]
async fn replica_that_was_stopped_does_not_keep_what_another_has_released() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let idle = Client::open(&owner, ANN).await;
    let (_, shown) = admin(&owner.gateway, "GET", "/api/sessions").await;
    let digest = shown
        .split_once(r#""digest":""#)
        .and_then(|(_, rest)| rest.split('"').next())
        .unwrap();
    let client = Client::open(&owner, ANN).await;
    let session = call(&client, &owner, &backend, "1").await;
    let of_idle = call(&idle, &owner, &backend, "2").await;
    taken_over_while_stopped(
        &owner,
        &other,
        &backend,
        [(&client, &session), (&idle, &of_idle)],
    )
    .await;
    assert!(other.gateway.terminate().await.success());
    signal(&owner.gateway, Signal::CONT);
    owner.gateway.log.line_with("it has rejoined them").await;
    // Ends the rest of the session at the old replica, unless it has already given that up.
    admin(
        &owner.gateway,
        "POST",
        &format!("/api/sessions/{digest}/end"),
    )
    .await;
    assert_eq!(call(&client, &owner, &backend, "5").await, session);
    owner
        .gateway
        .log
        .line_with("another replica has taken it over")
        .await;
    owner
        .gateway
        .log
        .line_with("session taken over from a replica")
        .await;
    assert_eq!(call(&idle, &owner, &backend, "6").await, of_idle);
    assert!(owner.gateway.terminate().await.success());
    assert!(
        ended_at(&backend)
            .iter()
            .all(|ended| *ended != session && *ended != of_idle),
        "{:?}",
        ended_at(&backend)
    );
    assert_numbers_differ(&backend);
}

/// Without Valkey, the replica does not learn that another one has taken the session over.
#[tokio::test]
async fn replica_that_does_not_reach_valkey_does_not_end_the_session_at_a_server() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let (mut fleet, networks) = with_networks(&backend, &valkey).await;
    let (client, idle) = (
        Client::open(fleet.replica(0), ANN).await,
        Client::open(fleet.replica(0), ANN).await,
    );
    let session = call(&client, fleet.replica(0), &backend, "1").await;
    let of_idle = call(&idle, fleet.replica(0), &backend, "2").await;
    networks.to_valkey(0, Network::Silent);
    until("two replicas", async || {
        members(&fleet.replica(1).gateway).await == 2
    })
    .await;
    assert_eq!(
        call(&client, fleet.replica(1), &backend, "3").await,
        session
    );
    assert_eq!(call(&idle, fleet.replica(1), &backend, "4").await, of_idle);
    // The replica still believes that it owns the session.
    assert_eq!(
        client
            .send(fleet.replica(0), "DELETE", &[], "")
            .await
            .status,
        204
    );
    fleet.end(0).await;
    assert_eq!(
        call(&client, fleet.replica(0), &backend, "5").await,
        session
    );
    assert_eq!(call(&idle, fleet.replica(0), &backend, "6").await, of_idle);
    assert!(
        ended_at(&backend)
            .iter()
            .all(|ended| *ended != session && *ended != of_idle),
        "{:?}",
        ended_at(&backend)
    );
}

#[tokio::test]
async fn stream_of_a_session_at_a_server_is_reopened() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    backend.serves_get();
    backend.on("resources/subscribe", Reply::result("{}"));
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (mut owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open_with(&owner, ANN, r#"{"roots":{}}"#).await;
    let session = call(&client, &owner, &backend, "1").await;
    let of_session = || {
        backend
            .streams()
            .iter()
            .filter(|it| it.request.header("mcp-session-id") == Some(&session))
            .count()
    };
    assert_eq!(of_session(), 1);
    killed(&mut owner, &other).await;
    // A ping is for no server, and causes the takeover of the session.
    assert_eq!(
        client
            .post(&other, &legacy_request("2", "ping", ""))
            .await
            .status,
        200
    );
    until("a second stream", async || of_session() == 2).await;
}
