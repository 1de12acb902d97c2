//! Sessions whose replica has ended, and which others continue.

use std::time::{Duration, Instant};

use fanlight_testkit::signing_in::{ANN, BOB};
use fanlight_tests::slicer::member;
use rustix::process::Signal;

use crate::fleet::{Fleet, Networks};
use crate::forwarding::{backend, say, signal};
use crate::group::{members, of_replicas, until};
use crate::linked::{Client, Linked, LinkedGroup};
use crate::proxy::Network;
use crate::raw_client::legacy_request;
use crate::scripted::{Backend, Era, Gate, Reply, Transport};
use crate::valkey::Valkey;

/// A server with a resource that clients subscribe to.
async fn with_resource() -> Backend {
    let backend = backend().await;
    backend
        .declares(r#"{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}}"#);
    backend.serves_get();
    backend.on("resources/subscribe", Reply::result("{}"));
    backend.on("logging/setLevel", Reply::result("{}"));
    backend
}

/// Three replicas and the unused networks between them.
pub(crate) async fn with_networks(backend: &Backend, valkey: &Valkey) -> (Fleet, Networks) {
    let (group, places) = (LinkedGroup::new(backend.entry("only"), ""), Fleet::places());
    let networks = Networks::between(&places, valkey).await;
    let fleet = Fleet::start_at(places, group, networks.valkeys(), <[_; 3]>::default()).await;
    (fleet, networks)
}

/// The list of replicas, with their epochs and the list's version.
async fn list_in(valkey: &Valkey) -> String {
    valkey.ask("HGETALL fanlight:{members}:members").await
}

/// The replica that owns the only session, according to Valkey.
async fn keeper_in(valkey: &Valkey) -> String {
    let keys = valkey.ask("KEYS fanlight:*:session").await;
    let key = keys
        .lines()
        .nth(2)
        .unwrap_or_else(|| panic!("no session: {keys}"));
    valkey.ask(&format!("HGET {key} owner")).await
}

/// Stops a session's replica, and waits until another one has taken the session over.
async fn taken_over_while_stopped(client: &Client, owner: &Linked, other: &Linked) {
    signal(&owner.gateway, Signal::STOP);
    until("one replica", async || members(&other.gateway).await == 1).await;
    assert_eq!(client.post(other, &say("1")).await.status, 200);
}

/// Starts Valkey again, and waits until both replicas have noticed.
async fn is_back(valkey: &mut Valkey, keeps_data: bool, both: [&Linked; 2]) {
    for Linked { gateway, .. } in both {
        gateway.log.line_with("Valkey is away").await;
    }
    valkey.start_again(keeps_data).await;
    for Linked { gateway, .. } in both {
        until("Valkey", async || {
            of_replicas(gateway, &["valkey", "trouble"]).await == "null"
        })
        .await;
        until("two replicas", async || members(gateway).await == 2).await;
    }
}

#[tokio::test]
async fn session_over_http_goes_on_at_another_replica_when_its_own_is_killed() {
    let (valkey, backend) = (Valkey::start().await, with_resource().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (mut owner, other) = group.start_two(&valkey.url()).await;
    let third = group.start(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    let subscribe = legacy_request("1", "resources/subscribe", r#""uri":"a:1""#);
    assert_eq!(client.post(&other, &subscribe).await.status, 200);
    let set_level = legacy_request("2", "logging/setLevel", r#""level":"error""#);
    assert_eq!(client.post(&owner, &set_level).await.status, 200);
    owner.gateway.kill().await;
    let began = Instant::now();
    // Requests before the loss is noticed may have run, and are not sent again.
    until("two replicas", async || members(&other.gateway).await == 2).await;
    assert_eq!(client.post(&other, &say("3")).await.status, 200);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    backend.wait_for("resources/subscribe", 2).await;
    // The third replica finds the session at its new owner.
    assert_eq!(client.post(&third, &say("4")).await.status, 200);
    assert!(
        third
            .gateway
            .log
            .text()
            .lines()
            .all(|line| !line.contains("taken over"))
    );
    // The client learns that it may have missed changes.
    let mut stream = client.stream(&third, None).await;
    let told = [
        stream.event().await.unwrap().unwrap(),
        stream.event().await.unwrap().unwrap(),
    ]
    .concat();
    assert!(told.contains("notifications/tools/list_changed"), "{told}");
    assert!(
        told.contains("notifications/resources/updated") && told.contains("a:1"),
        "{told}"
    );
}

/// The client must not throw away a session whose replica has not joined again.
#[tokio::test]
async fn session_is_not_unknown_while_its_replica_has_yet_to_join_an_empty_list() {
    let (mut valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    valkey.kill().await;
    for Linked { gateway, .. } in [&owner, &other] {
        gateway.log.line_with("Valkey is away").await;
    }
    signal(&owner.gateway, Signal::STOP);
    valkey.start_again(false).await;
    until("one replica", async || members(&other.gateway).await == 1).await;
    assert_eq!(client.post(&other, &say("1")).await.status, 503);
    signal(&owner.gateway, Signal::CONT);
    until("two replicas", async || members(&other.gateway).await == 2).await;
    assert_eq!(client.post(&other, &say("2")).await.status, 200);
}

/// The canary is chosen by the session, not by its replica. A replica that has once looked up the
/// session's owner remembers it.
#[tokio::test]
async fn session_that_has_moved_is_served_through_others_while_valkey_is_away() {
    let (mut valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (mut owner, other) = group.start_two(&valkey.url()).await;
    let third = group.start(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    owner.gateway.kill().await;
    for at in [&other, &third] {
        assert_eq!(client.post(at, &say("1")).await.status, 200);
    }
    valkey.kill().await;
    for Linked { gateway, .. } in [&other, &third] {
        gateway.log.line_with("Valkey is away").await;
    }
    assert_eq!(client.post(&third, &say("2")).await.status, 200);
}

#[tokio::test]
async fn session_is_not_lost_when_the_client_disconnects_whose_request_it_is_taken_over_for() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let (mut fleet, networks) = with_networks(&backend, &valkey).await;
    let client = Client::open(fleet.replica(0), ANN).await;
    fleet.kill(0).await;
    let before = keeper_in(&valkey).await;
    networks.to_valkey(1, Network::Takes(Duration::from_millis(50)));
    let call = say("1");
    tokio::select! {
        // The call was quicker than this test.
        _ = client.post(fleet.replica(1), &call) => {}
        // Valkey names the new owner, which does not know yet that it owns the session.
        () = until("another replica", async || keeper_in(&valkey).await != before) => {}
    }
    for number in [1, 2] {
        assert_eq!(
            client.post(fleet.replica(number), &say("2")).await.status,
            200
        );
    }
}

#[tokio::test]
async fn session_that_was_taken_over_belongs_only_to_its_client() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (mut owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    owner.gateway.kill().await;
    until("one replica", async || members(&other.gateway).await == 1).await;
    assert_eq!(
        client.stolen_by(BOB).post(&other, &say("1")).await.status,
        404
    );
    assert_eq!(client.post(&other, &say("2")).await.status, 200);
    assert_eq!(
        client.stolen_by(BOB).post(&other, &say("3")).await.status,
        404
    );
    let calls = backend.received("tools/call");
    assert_eq!(calls.len(), 1);
    // Without the replicas' keys, the data in Valkey does not reveal the session.
    let keys = valkey.ask("KEYS *session*").await;
    assert!(!keys.contains(&client.session), "{keys}");
}

/// Valkey answers one request too late, and works again at once.
#[tokio::test]
async fn session_is_taken_over_although_valkey_is_away_for_a_moment() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let (mut fleet, networks) = with_networks(&backend, &valkey).await;
    let client = Client::open(fleet.replica(0), ANN).await;
    fleet.kill(0).await;
    let other = fleet.replica(1);
    until("two replicas", async || members(&other.gateway).await == 2).await;
    networks.to_valkey(1, Network::Silent);
    let comes_back = async {
        other.gateway.log.line_with("Valkey is away").await;
        networks.to_valkey(1, Network::Takes(Duration::ZERO));
    };
    let body = say("1");
    let (answer, ()) = tokio::join!(client.post(other, &body), comes_back);
    assert_eq!(answer.status, 200);
    assert_eq!(backend.received("tools/call").len(), 1);
}

/// Concurrent requests share the session that results.
#[tokio::test]
async fn session_is_taken_over_once() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (mut owner, other) = group.start_two(&valkey.url()).await;
    let third = group.start(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    owner.gateway.kill().await;
    let requests = ["1", "2", "3", "4", "5", "6"].map(say);
    let requests = requests.iter().zip([&other, &third].into_iter().cycle());
    let answers =
        futures_util::future::join_all(requests.map(|(body, at)| client.post(at, body))).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
    let taken =
        [&other, &third].map(|at| at.gateway.log.text().matches("session taken over").count());
    assert_eq!(taken.iter().sum::<usize>(), 1, "{taken:?}");
}

/// The state of the session was in a process of the replica, which has ended.
#[tokio::test]
async fn session_with_a_process_ends_with_its_replica() {
    let valkey = Valkey::start().await;
    let backend = Backend::start(Era::Legacy, Transport::Stdio).await;
    backend.offers_tools(&["say"]);
    backend.on("tools/call", Reply::result(r#"{"content":[]}"#));
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (mut owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    assert_eq!(client.post(&other, &say("1")).await.status, 200);
    owner.gateway.kill().await;
    let began = Instant::now();
    until("one replica", async || members(&other.gateway).await == 1).await;
    assert_eq!(client.post(&other, &say("2")).await.status, 404);
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    let again = Client::open(&other, ANN).await;
    assert_eq!(again.post(&other, &say("3")).await.status, 200);
}

/// The returning replica finds that another one has taken its session over, and does not serve it
/// again.
#[tokio::test]
async fn replica_that_was_stopped_does_not_serve_what_others_have_taken_over() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    taken_over_while_stopped(&client, &owner, &other).await;
    signal(&owner.gateway, Signal::CONT);
    owner.gateway.log.line_with("it has rejoined them").await;
    assert_eq!(client.post(&owner, &say("2")).await.status, 200);
    owner
        .gateway
        .log
        .line_with("another replica has taken it over")
        .await;
    let sessions = backend.received("tools/call");
    assert_eq!(
        sessions[0].header("mcp-session-id"),
        sessions[1].header("mcp-session-id"),
        "both at the same replica"
    );
}

/// The replica must not mistake an ended session for one that Valkey has lost.
#[tokio::test]
async fn replica_that_was_stopped_does_not_bring_back_what_has_ended_elsewhere() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    taken_over_while_stopped(&client, &owner, &other).await;
    assert_eq!(client.send(&other, "DELETE", &[], "").await.status, 204);
    until("the end of the session", async || {
        keeper_in(&valkey).await.contains("ended")
    })
    .await;
    signal(&owner.gateway, Signal::CONT);
    owner.gateway.log.line_with("it has rejoined them").await;
    for at in [&owner, &other] {
        assert_eq!(client.post(at, &say("2")).await.status, 404);
    }
}

#[tokio::test]
async fn session_is_handed_over_when_its_replica_is_told_to_end() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    let mut stream = client.stream(&owner, None).await;
    let opening = stream.whole_event().await.unwrap().unwrap();
    assert!(opening.id.is_some());
    let ending = tokio::spawn(owner.gateway.terminate());
    while stream.event().await.unwrap().is_some() {}
    assert!(ending.await.unwrap().success());
    let began = Instant::now();
    let mut answer = client.post(&other, &say("1")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(member(&answer.text().await, "id"), Some("1"));
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    let resumed = client.stream(&other, opening.id.as_deref()).await;
    assert_eq!(
        (resumed.status, resumed.is_event_stream()),
        (200, true),
        "it begins anew"
    );
}

/// The session cannot be taken over, so nothing changes although the replica is unreachable.
#[tokio::test]
async fn replica_that_another_cannot_reach_keeps_its_lease_and_epoch_if_nothing_is_taken_over() {
    let valkey = Valkey::start().await;
    let backend = Backend::start(Era::Legacy, Transport::Stdio).await;
    backend.offers_tools(&["say"]);
    backend.on("tools/call", Reply::result(r#"{"content":[]}"#));
    let (fleet, networks) = with_networks(&backend, &valkey).await;
    let client = Client::open(fleet.replica(0), ANN).await;
    let before = list_in(&valkey).await;
    networks.between_replicas(Network::Silent);
    assert_eq!(client.post(fleet.replica(1), &say("1")).await.status, 404);
    assert_eq!(list_in(&valkey).await, before);
    assert_eq!(client.post(fleet.replica(0), &say("2")).await.status, 200);
}

#[tokio::test]
async fn replica_that_another_cannot_reach_stays_listed_and_gives_up_what_was_taken_over() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let (fleet, networks) = with_networks(&backend, &valkey).await;
    let (owner, other) = (fleet.replica(0), fleet.replica(1));
    let client = Client::open(owner, ANN).await;
    let mut stream = client.stream(owner, None).await;
    let event = stream.whole_event().await.unwrap().unwrap().id.unwrap();
    networks.between_replicas(Network::Silent);
    assert_eq!(client.post(other, &say("1")).await.status, 200);
    assert_eq!(
        list_in(&valkey).await.matches("version\":").count(),
        3,
        "{}",
        list_in(&valkey).await
    );
    owner.gateway.log.line_with("it has rejoined them").await;
    // The replica takes the session back, since the link to its present owner is cut as well.
    assert_eq!(client.post(owner, &say("2")).await.status, 200);
    owner
        .gateway
        .log
        .line_with("another replica has taken it over")
        .await;
    assert_eq!(backend.received("tools/call").len(), 2);
    // Events from the first time are not part of the new stream.
    let mut again = client.stream(owner, Some(&event)).await;
    assert!(
        again
            .whole_event()
            .await
            .unwrap()
            .unwrap()
            .id
            .is_some_and(|id| id != event)
    );
}

#[tokio::test]
async fn session_that_was_opened_while_valkey_was_away_is_on_record_with_its_next_request() {
    let (mut valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (mut owner, other) = group.start_two(&valkey.url()).await;
    valkey.kill().await;
    owner.gateway.log.line_with("Valkey is away").await;
    let client = Client::open(&owner, ANN).await;
    is_back(&mut valkey, true, [&owner, &other]).await;
    assert_eq!(client.post(&owner, &say("1")).await.status, 200);
    owner.gateway.kill().await;
    until("one replica", async || members(&other.gateway).await == 1).await;
    assert_eq!(client.post(&other, &say("2")).await.status, 200);
}

#[tokio::test]
async fn session_is_on_record_again_with_its_next_request_after_valkey_has_lost_its_data() {
    let (mut valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (mut owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    valkey.kill().await;
    is_back(&mut valkey, false, [&owner, &other]).await;
    assert_eq!(client.post(&owner, &say("1")).await.status, 200);
    owner.gateway.kill().await;
    until("one replica", async || members(&other.gateway).await == 1).await;
    assert_eq!(client.post(&other, &say("2")).await.status, 200);
}

#[tokio::test]
async fn idle_session_is_handed_over_although_valkey_has_lost_its_data() {
    let (mut valkey, backend) = (Valkey::start().await, backend().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    valkey.kill().await;
    is_back(&mut valkey, false, [&owner, &other]).await;
    assert!(owner.gateway.terminate().await.success());
    assert_eq!(client.post(&other, &say("1")).await.status, 200);
}

fn subscribe(uri: &str) -> String {
    legacy_request("1", "resources/subscribe", &format!(r#""uri":"{uri}""#))
}

/// The record omits subscriptions that the server refused, and those beyond its capacity.
#[tokio::test]
async fn session_is_taken_over_with_the_subscriptions_that_are_on_record() {
    let (valkey, backend) = (Valkey::start().await, with_resource().await);
    backend.on_target(
        "resources/subscribe",
        "a:refused",
        Reply::error(r#"{"code":-32002,"message":"no"}"#),
    );
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (mut owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    for uri in ["a:refused", &"a".repeat(65 << 10), "a:1"] {
        assert_eq!(client.post(&owner, &subscribe(uri)).await.status, 200);
    }
    owner.gateway.kill().await;
    until("one replica", async || members(&other.gateway).await == 1).await;
    assert_eq!(client.post(&other, &say("2")).await.status, 200);
    let made = backend.received("resources/subscribe");
    let again: Vec<_> = made[3..]
        .iter()
        .map(|request| request.member("params.uri").unwrap())
        .collect();
    assert_eq!(again, [r#""a:1""#]);
}

/// The client does not wait until all subscriptions are made, either.
#[tokio::test]
async fn subscriptions_are_made_again_beside_a_server_that_does_not_answer() {
    let (valkey, stuck, other_server) = (
        Valkey::start().await,
        with_resource().await,
        with_resource().await,
    );
    for (server, uri) in [(&stuck, "a:1"), (&other_server, "b:1")] {
        server.on(
            "resources/list",
            Reply::result(format!(r#"{{"resources":[{{"uri":"{uri}","name":"r"}}]}}"#)),
        );
    }
    let group = LinkedGroup::new(
        format!("{},{}", stuck.entry("a"), other_server.entry("b")),
        "",
    );
    let (mut owner, other) = group.start_two(&valkey.url()).await;
    let client = Client::open(&owner, ANN).await;
    for uri in ["a:1", "b:1"] {
        assert_eq!(client.post(&owner, &subscribe(uri)).await.status, 200);
    }
    let gate = Gate::new();
    stuck.on("resources/subscribe", Reply::result("{}").gated(&gate));
    owner.gateway.kill().await;
    until("one replica", async || members(&other.gateway).await == 1).await;
    let list = legacy_request("2", "tools/list", "");
    tokio::select! {
        _ = client.post(&other, &list) => {}
        () = gate.reached(1) => {}
    }
    other_server.wait_for("resources/subscribe", 2).await;
}

#[tokio::test]
async fn session_that_was_claimed_while_valkey_went_away_can_be_taken_over_afterwards() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let (mut fleet, networks) = with_networks(&backend, &valkey).await;
    let client = Client::open(fleet.replica(0), ANN).await;
    fleet.kill(0).await;
    let other = fleet.replica(1);
    until("two replicas", async || members(&other.gateway).await == 2).await;
    let before = keeper_in(&valkey).await;
    // Valkey is slow enough for the test to see the claim first.
    networks.to_valkey(1, Network::Takes(Duration::from_millis(100)));
    let goes_away = async {
        until("the claim", async || keeper_in(&valkey).await != before).await;
        networks.to_valkey(1, Network::Silent);
    };
    let call = say("1");
    let (answer, ()) = tokio::join!(client.post(other, &call), goes_away);
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (503, Some("1"))
    );
    networks.to_valkey(1, Network::Takes(Duration::ZERO));
    until("the session", async || {
        client.post(other, &call).await.status == 200
    })
    .await;
}

/// An unknown replica must not count as ended, since clients give up ended sessions.
#[tokio::test]
async fn session_of_a_replica_that_is_not_known_yet_is_not_taken_for_one_that_has_ended() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let (mut fleet, networks) = with_networks(&backend, &valkey).await;
    let client = Client::open(fleet.replica(0), ANN).await;
    networks.to_valkey(1, Network::Silent);
    fleet.kill(0).await;
    fleet
        .replica(1)
        .gateway
        .log
        .line_with("Valkey is away")
        .await;
    assert_eq!(client.post(fleet.replica(1), &say("1")).await.status, 503);
    assert_eq!(
        client
            .send(fleet.replica(1), "DELETE", &[], "")
            .await
            .status,
        503
    );
    networks.to_valkey(1, Network::Takes(Duration::ZERO));
    let other = fleet.replica(1);
    until("the session", async || {
        client.post(other, &say("2")).await.status == 200
    })
    .await;
}
