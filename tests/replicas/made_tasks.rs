//! Tasks made by Fanlight. A request about one names its session; another replica may own either,
//! and either may have moved.

use std::time::Duration;

use fanlight_testkit::slicer;

use crate::fleet::{Fleet, Networks};
use crate::group::{Group, admin, members, until};
use crate::harness::TempFile;
use crate::linked::{Client, Linked, LinkedGroup};
use crate::proxy::Network;
use crate::raw_client::legacy_request;
use crate::scripted::{Backend, Era, Reply, Transport};
use crate::signing_in::{ANN, BOB};
use crate::tasks::{EVERYTHING, backend_over};
use crate::valkey::Valkey;

/// A modern server with tasks, whose tool answers at once.
async fn at_once() -> Backend {
    at_once_over(Transport::Http).await
}

async fn at_once_over(transport: Transport) -> Backend {
    let backend = backend_over(transport).await;
    backend.on(
        "tools/call",
        Reply::result(Era::Modern.complete(r#""content":[{"type":"text","text":"done"}]"#)),
    );
    backend
}

/// The id of a task that Fanlight makes of a result.
async fn made_by_fanlight(client: &Client, at: &Linked, tool: &str) -> String {
    let call = legacy_request(
        "1",
        "tools/call",
        &format!(r#""name":"{tool}","arguments":{{}},"task":{{}}"#),
    );
    let made = client.post(at, &call).await.messages().await.1;
    let id = slicer::member(&made, "result.task.taskId").and_then(slicer::plain_string);
    id.unwrap_or_else(|| panic!("no task: {made}")).to_owned()
}

pub(crate) async fn about(client: &Client, at: &Linked, method: &str, task: &str) -> String {
    let request = legacy_request("7", method, &format!(r#""taskId":"{task}""#));
    client.post(at, &request).await.messages().await.1
}

#[tokio::test]
async fn task_that_fanlight_has_made_is_known_to_its_client_at_every_replica() {
    for servers in [1, 2] {
        let (valkey, backend, another) = (Valkey::start().await, at_once().await, at_once().await);
        let (entry, tool) = match servers {
            1 => (backend.entry("only"), "t"),
            _ => (
                [backend.entry("only"), another.entry("more")].join(","),
                "only__t",
            ),
        };
        let group = LinkedGroup::new(entry, "");
        let (mut owner, other) = group.start_two(&valkey.url()).await;
        let third = group.start(&valkey.url()).await;
        for at in [&owner, &other, &third] {
            until("three replicas", async || members(&at.gateway).await == 3).await;
        }
        let maker = Client::open(&owner, ANN).await;
        let id = made_by_fanlight(&maker, &owner, tool).await;
        let elsewhere = Client::open(&other, ANN).await;
        // The same holds at a replica that owns neither the session nor the task.
        for at in [&other, &third, &owner] {
            let got = about(&elsewhere, at, "tasks/get", &id).await;
            assert_eq!(
                slicer::member(&got, "result.status"),
                Some(r#""completed""#),
                "{servers}: {got}"
            );
            assert_eq!(slicer::member(&got, "id"), Some("7"));
            let result = about(&elsewhere, at, "tasks/result", &id).await;
            assert!(result.contains("done"), "{servers}: {result}");
        }
        let again = about(&elsewhere, &other, "tasks/cancel", &id).await;
        assert_eq!(
            slicer::member(&again, "error.message"),
            Some(r#""the task has ended already: it is completed""#)
        );
        let own = about(&maker, &third, "tasks/get", &id).await;
        assert_eq!(
            slicer::member(&own, "result.status"),
            Some(r#""completed""#),
            "{own}"
        );
        assert_eq!(
            (
                backend.received("tools/call").len(),
                another.received("tools/call").len()
            ),
            (1, 0)
        );

        // For other clients the task never existed.
        let bob = Client::open(&other, BOB).await;
        let never = format!("{}AAAA", &id[..id.len() - 4]);
        let unknown = async |client: &Client, at: &Linked, method: &str, task: &str| {
            let answer = about(client, at, method, task).await;
            assert_eq!(
                slicer::member(&answer, "error.code"),
                Some("-32602"),
                "{answer}"
            );
            answer
        };
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            for at in [&owner, &other, &third] {
                let never_made = unknown(&elsewhere, at, method, &never).await;
                assert_eq!(unknown(&bob, at, method, &id).await, never_made, "{method}");
            }
        }
        // The owning replica has ended, and the task with it.
        owner.gateway.kill().await;
        for (at, method) in [
            (&other, "tasks/get"),
            (&other, "tasks/result"),
            (&third, "tasks/get"),
        ] {
            until("two replicas", async || members(&at.gateway).await == 2).await;
            let gone = unknown(&elsewhere, at, method, &id).await;
            assert_eq!(gone, unknown(&bob, at, method, &id).await);
        }
        let call = legacy_request(
            "8",
            "tools/call",
            &format!(r#""name":"{tool}","arguments":{{}}"#),
        );
        assert!(
            elsewhere
                .post(&third, &call)
                .await
                .messages()
                .await
                .1
                .contains("done"),
            "the session goes on"
        );
    }
}

#[tokio::test]
async fn task_that_fanlight_has_made_is_not_told_of_without_a_session_or_in_that_of_another() {
    let (valkey, backend) = (Valkey::start().await, at_once().await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let maker = Client::open(&owner, ANN).await;
    let id = made_by_fanlight(&maker, &owner, "t").await;
    // A client without a session gets the same answer as about any task, also at the owning
    // replica.
    let none = Client::without_session(ANN);
    let wrong = maker.stolen_by(BOB);
    for at in [&owner, &other] {
        let answer = about(&none, at, "tasks/get", &id).await;
        assert_eq!(
            slicer::member(&answer, "error.code"),
            Some("-32600"),
            "{answer}"
        );
        assert_eq!(
            wrong
                .post(
                    at,
                    &legacy_request("7", "tasks/get", &format!(r#""taskId":"{id}""#))
                )
                .await
                .status,
            404
        );
    }
}

/// A group with two servers whose tool answers at once.
struct Scene {
    valkey: Valkey,
    servers: [Backend; 2],
    policy: TempFile,
}

impl Scene {
    async fn start() -> Self {
        let policy = TempFile::new("cedar", EVERYTHING);
        Self {
            valkey: Valkey::start().await,
            servers: [at_once().await, at_once().await],
            policy,
        }
    }

    fn entries(&self) -> String {
        let [first, second] = &self.servers;
        [first.entry("only"), second.entry("more")].join(",")
    }

    /// A member of the configuration with a policy that permits everything.
    fn policy(&self) -> String {
        format!(r#","policy":{{"files":[{:?}]}}"#, self.policy.path())
    }
}

/// Makes a client send a request, so that its session moves to this replica.
async fn is_served(client: &Client, at: &Linked) {
    let call = legacy_request("1", "tools/call", r#""name":"only__t","arguments":{}"#);
    let answer = client.post(at, &call).await.messages().await.1;
    assert!(answer.contains("done"), "{answer}");
}

async fn is_told(client: &Client, at: &Linked, task: &str) -> bool {
    let got = about(client, at, "tasks/get", task).await;
    let is_told = slicer::member(&got, "result.status") == Some(r#""completed""#);
    assert!(
        is_told || slicer::member(&got, "error.code") == Some("-32602"),
        "{got}"
    );
    is_told
}

/// The session id names a replica that has ended.
#[tokio::test]
async fn task_of_a_session_that_was_taken_over_is_known_at_every_replica() {
    for number in 0..3 {
        let scene = Scene::start().await;
        let group = LinkedGroup::from_group(match number {
            0 => Group::without_auth(scene.entries(), ""),
            1 => Group::new(scene.entries(), &scene.policy()),
            _ => Group::new(scene.entries(), ""),
        });
        let (mut owner, other) = group.start_two(&scene.valkey.url()).await;
        let third = group.start(&scene.valkey.url()).await;
        let client = Client::open(&owner, ANN).await;
        owner.gateway.kill().await;
        for at in [&other, &third] {
            until("two replicas", async || members(&at.gateway).await == 2).await;
        }
        is_served(&client, &other).await;
        let id = made_by_fanlight(&client, &other, "only__t").await;
        for at in [&third, &other] {
            assert!(is_told(&client, at, &id).await, "{number}");
            let result = about(&client, at, "tasks/result", &id).await;
            assert!(result.contains("done"), "{number}: {result}");
        }
        // The other replicas are asked only for this session.
        let again = Client::open(&third, BOB).await;
        assert!(
            !is_told(&again, &third, &id).await && !is_told(&again, &other, &id).await,
            "{number}"
        );
    }
}

/// The replica lives, and can be reached again.
#[tokio::test]
async fn task_of_a_replica_that_has_lost_its_session_is_known_at_every_replica() {
    for is_under_policy in [false, true] {
        let scene = Scene::start().await;
        let more = if is_under_policy {
            scene.policy()
        } else {
            String::new()
        };
        let (group, places) = (LinkedGroup::new(scene.entries(), &more), Fleet::places());
        let networks = Networks::between(&places, &scene.valkey).await;
        let fleet = Fleet::start_at(places, group, networks.valkeys(), <[_; 3]>::default()).await;
        let client = Client::open(fleet.replica(0), ANN).await;
        let id = made_by_fanlight(&client, fleet.replica(0), "only__t").await;
        networks.between_replicas(Network::Silent);
        is_served(&client, fleet.replica(1)).await;
        fleet
            .replica(0)
            .gateway
            .log
            .line_with("it has rejoined them")
            .await;
        networks.between_replicas(Network::Takes(Duration::ZERO));
        for number in [0, 2] {
            assert!(
                is_told(&client, fleet.replica(number), &id).await,
                "{number} {more}"
            );
        }
        // The replica remembers for a while that it could not reach the owner.
        until("the task", async || {
            is_told(&client, fleet.replica(1), &id).await
        })
        .await;
    }
}

#[tokio::test]
async fn task_is_told_of_by_the_replica_that_takes_its_session_over() {
    let scene = Scene::start().await;
    let group = LinkedGroup::new(scene.entries(), "");
    let (mut owner, other) = group.start_two(&scene.valkey.url()).await;
    let third = group.start(&scene.valkey.url()).await;
    let (client, maker) = (
        Client::open(&owner, ANN).await,
        Client::open(&other, ANN).await,
    );
    let id = made_by_fanlight(&maker, &other, "only__t").await;
    owner.gateway.kill().await;
    until("two replicas", async || members(&third.gateway).await == 2).await;
    assert!(is_told(&client, &third, &id).await);
    third.gateway.log.line_with("session taken over").await;
    // The answering replica has no such session; operators there still see whose request it was.
    let path = "/api/traces?principal=ann&method=tasks/get";
    until("the trace", async || {
        admin(&other.gateway, "GET", path)
            .await
            .1
            .contains("traceId")
    })
    .await;
}

/// A session with a process has no record in Valkey. Only its replica knows that the session lives.
#[tokio::test]
async fn task_is_told_of_in_a_session_that_is_not_on_record() {
    let (valkey, backend) = (Valkey::start().await, at_once_over(Transport::Stdio).await);
    let group = LinkedGroup::new(backend.entry("only"), "");
    let (owner, other) = group.start_two(&valkey.url()).await;
    let third = group.start(&valkey.url()).await;
    for at in [&owner, &other, &third] {
        until("three replicas", async || members(&at.gateway).await == 3).await;
    }
    let (maker, elsewhere) = (
        Client::open(&owner, ANN).await,
        Client::open(&other, ANN).await,
    );
    let id = made_by_fanlight(&maker, &owner, "t").await;
    for at in [&owner, &other, &third] {
        assert!(is_told(&elsewhere, at, &id).await);
    }
}

/// "MUST respond to requests containing that session ID with HTTP 404" (2025-11-25
/// basic/transports, Session Management).
#[tokio::test]
async fn session_that_has_ended_is_told_of_no_task() {
    let scene = Scene::start().await;
    let group = LinkedGroup::new(scene.entries(), "");
    let (owner, other) = group.start_two(&scene.valkey.url()).await;
    let third = group.start(&scene.valkey.url()).await;
    for at in [&owner, &other, &third] {
        until("three replicas", async || members(&at.gateway).await == 3).await;
    }
    let (maker, ended) = (
        Client::open(&owner, ANN).await,
        Client::open(&other, ANN).await,
    );
    let id = made_by_fanlight(&maker, &owner, "only__t").await;
    assert_eq!(ended.send(&other, "DELETE", &[], "").await.status, 204);
    for at in [&owner, &other, &third] {
        for method in ["tasks/get", "tasks/result", "tasks/cancel"] {
            let request = legacy_request("7", method, &format!(r#""taskId":"{id}""#));
            // In the first seconds of a group the answer is 503.
            until(method, async || {
                ended.post(at, &request).await.status == 404
            })
            .await;
        }
        assert!(is_told(&maker, at, &id).await, "in a session that lives");
    }
}
