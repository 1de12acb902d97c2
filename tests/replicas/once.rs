//! Single-use things at every replica: proofs of possession and approvals.

use fanlight_testkit::issuer::{Issuer, SigningKey};
use fanlight_tests::slicer;

use crate::group::{Group, admin, backend, call, request, request_with, send, until};
use crate::harness::Gateway;
use crate::raw_client::{Response, modern_request_with};
use crate::scripted::{Backend, Era, Reply};
use crate::signing_in::{ANN, BOB};
use crate::valkey::Valkey;

const AUDIENCE: &str = "https://mcp.example.com/mcp";

#[tokio::test]
async fn proof_of_possession_is_good_at_one_replica_once() {
    let (mut valkey, backend, issuer) = (
        Valkey::start().await,
        backend().await,
        Issuer::start().await,
    );
    let oauth = format!(r#","oauth":[{{"issuer":"{}"}}]"#, issuer.url());
    let group = Group::with_auth(
        backend.entry("only"),
        &oauth,
        r#","publicUrl":"https://mcp.example.com""#,
    );
    let (one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
    let (key, mut claims) = (
        SigningKey::es256("k"),
        issuer.claims("ann", AUDIENCE, "mcp:read"),
    );
    claims["cnf"] = serde_json::json!({"jkt": key.thumbprint()});
    let token = issuer.sign(&claims);
    let proof = || {
        key.sign(
            &key.proof_header(),
            &SigningKey::proof_claims("POST", AUDIENCE, &token),
        )
    };
    let ask = async |gateway: &Gateway, proof: &str| {
        let fields = [
            ("Authorization", format!("DPoP {token}")),
            ("DPoP", proof.to_owned()),
        ];
        request_with(gateway, "tools/list", "", &fields)
            .await
            .status
    };
    let first = proof();
    assert_eq!(ask(&one, &first).await, 200);
    // A stolen proof is useless at another replica and at the same one.
    assert_eq!(
        (ask(&other, &first).await, ask(&one, &first).await),
        (401, 401)
    );
    assert_eq!(ask(&other, &proof()).await, 200);
    // Without Valkey, the gateway cannot know whether the proof was used, so it refuses.
    valkey.kill().await;
    other.log.line_with("Valkey is away").await;
    assert_eq!(ask(&other, &proof()).await, 503);
    valkey.start_again(true).await;
    until("a call", async || ask(&other, &proof()).await == 200).await;
    assert_eq!(
        ask(&other, &first).await,
        401,
        "what was used before is known after a restart"
    );
}

/// Gateways whose tool `erase` needs an operator's approval. `wait` is the time that a call waits
/// for it.
fn asking(backend: &Backend, wait: &str) -> Group {
    let entry = backend.entry_with("only", r#""approval":{"tools":["erase"],"by":"operator"}"#);
    Group::new(entry, &format!(r#","timeouts":{{"approval":"{wait}"}}"#))
}

fn calls(backend: &Backend) -> usize {
    backend.received("tools/call").len()
}

/// The status and the id of the approval that a refused call lacks.
async fn refused(mut response: Response) -> (String, String) {
    let text = response.text().await;
    let member = |name: &str| {
        slicer::member_at(&text, &["error", "data", name])
            .unwrap_or_default()
            .trim_matches('"')
            .to_owned()
    };
    (member("status"), member("approval"))
}

/// Waits until no call waits any more, because each client was asked to retry.
async fn not_waiting(gateway: &Gateway) {
    let is_told = async || {
        let list = admin(gateway, "GET", "/api/approvals").await.1;
        list.contains(r#""waiting":false"#) && !list.contains(r#""waiting":true"#)
    };
    until("the call not to wait", is_told).await;
}

#[tokio::test]
async fn approval_that_was_asked_for_at_one_replica_is_given_at_another_and_used_up_at_a_third() {
    let (mut valkey, backend) = (Valkey::start().await, backend().await);
    let group = asking(&backend, "10ms");
    let (mut one, two, three) = tokio::join!(
        group.start(valkey.url()),
        group.start(valkey.url()),
        group.start(valkey.url())
    );
    let (status, id) = refused(call(&one, "erase", ANN).await).await;
    assert_eq!(status, "open");
    not_waiting(&two).await;
    // The replica that created the approval is gone, and Valkey has restarted.
    one.kill().await;
    valkey.kill().await;
    two.log.line_with("Valkey is away").await;
    assert_eq!(
        refused(call(&two, "erase", ANN).await).await.0,
        "away",
        "what is not certain is not approved"
    );
    valkey.start_again(true).await;
    for gateway in [&two, &three] {
        until("the question", async || {
            admin(gateway, "GET", "/api/approvals")
                .await
                .1
                .contains(&id)
        })
        .await;
    }
    assert_eq!(
        admin(&two, "POST", &format!("/api/approvals/{id}/approve"))
            .await
            .0,
        200
    );
    assert_eq!(
        admin(&three, "POST", &format!("/api/approvals/{id}/refuse"))
            .await
            .0,
        409
    );
    // The approval covers one run of this call of this client.
    assert_eq!(refused(call(&three, "erase", BOB).await).await.0, "open");
    assert_eq!(calls(&backend), 0);
    let answers = tokio::join!(call(&two, "erase", ANN), call(&three, "erase", ANN));
    let (answers, mut run) = ([answers.0, answers.1], 0);
    for answer in answers {
        run += usize::from(refused(answer).await.0.is_empty());
    }
    assert_eq!((run, calls(&backend)), (1, 1));
    assert_eq!(refused(call(&two, "erase", ANN).await).await.0, "open");
}

#[tokio::test]
async fn call_that_waits_at_one_replica_goes_on_when_another_is_told() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = asking(&backend, "50s");
    let (one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
    for (word, is_run) in [("approve", true), ("refuse", false)] {
        let decided = async {
            let open = async || {
                let list = admin(&other, "GET", "/api/approvals").await.1;
                let id = list
                    .split(r#""id":""#)
                    .find_map(|rest| Some(rest.split_once(r#"","status":"open""#)?.0.to_owned()));
                id.filter(|_| list.contains(r#""waiting":true"#))
            };
            let mut id = None;
            until("the question", async || {
                let found = open().await;
                found.is_some()
            })
            .await;
            id = open().await.or(id);
            admin(
                &other,
                "POST",
                &format!("/api/approvals/{}/{word}", id.unwrap()),
            )
            .await
            .0
        };
        let before = calls(&backend);
        let (answer, status) = tokio::join!(call(&one, "erase", ANN), decided);
        assert_eq!(status, 200);
        assert_eq!(refused(answer).await.0, if is_run { "" } else { "refused" });
        assert_eq!(calls(&backend) - before, usize::from(is_run));
    }
}

/// Makes a server ask for input in two rounds of each call, with a state in each.
fn asks_twice(backend: &Backend) {
    let required = |state: &str| {
        format!(
            r#"{{"resultType":"input_required","inputRequests":{{"a":{{"method":"roots/list"}}}},"requestState":"{state}"}}"#
        )
    };
    backend.on(
        "tools/call",
        Reply::compute(move |call| match call.member("params.requestState") {
            None => required("first"),
            Some(r#""first""#) => required("second"),
            Some(_) => Era::Modern.complete(r#""content":[]"#),
        }),
    );
}

/// A call of `erase` with this path and further params, by a client with roots.
async fn erase(gateway: &Gateway, key: &str, path: &str, more: &str) -> String {
    let params = format!(r#""name":"erase","arguments":{{"path":"{path}"}}{more}"#);
    let body = modern_request_with(r#"{"roots":{}}"#, "1", "tools/call", &params, "");
    send(
        gateway,
        &body,
        &[("Authorization", format!("Bearer {key}"))],
    )
    .await
    .text()
    .await
}

/// The params that bring the input that this answer requires.
fn input_for(answer: &str) -> String {
    let state = slicer::member(answer, "result.requestState")
        .unwrap_or_else(|| panic!("not asked: {answer}"));
    format!(r#","requestState":{state},"inputResponses":{{"a":{{"roots":[]}}}}"#)
}

#[tokio::test]
async fn next_round_of_an_approved_call_goes_on_at_any_replica_once() {
    let (mut valkey, backend) = (Valkey::start().await, backend().await);
    asks_twice(&backend);
    let group = asking(&backend, "10ms");
    let (one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
    let status = |answer: &str| {
        slicer::member(answer, "error.data.status")
            .unwrap_or("none")
            .trim_matches('"')
            .to_owned()
    };
    let asked = erase(&one, ANN, "/a", "").await;
    let id = slicer::member(&asked, "error.data.approval")
        .unwrap()
        .trim_matches('"')
        .to_owned();
    not_waiting(&one).await;
    assert_eq!(
        admin(&other, "POST", &format!("/api/approvals/{id}/approve"))
            .await
            .0,
        200
    );
    let first = input_for(&erase(&one, ANN, "/a", "").await);
    let rounds = "fanlight:{approvals}:rounds";
    let stored = valkey.ask(&format!("HVALS {rounds}")).await;
    let stored = stored
        .lines()
        .find(|line| line.starts_with('{'))
        .expect("the call between its rounds");
    assert!(
        !stored.contains("ann") && !stored.contains("first") && !stored.contains(&id),
        "{stored}"
    );
    // The approval does not cover other arguments, another client, or a missing state.
    assert_eq!(status(&erase(&other, ANN, "/b", &first).await), "unasked");
    let stolen = erase(&other, BOB, "/a", &first).await;
    assert_eq!(
        slicer::member(&stolen, "error.code"),
        Some("-32602"),
        "{stolen}"
    );
    assert_eq!(status(&erase(&other, ANN, "/a", "").await), "open");
    assert_eq!(calls(&backend), 1);
    // A call that cannot be checked does not run; it can be checked later.
    valkey.kill().await;
    other.log.line_with("Valkey is away").await;
    assert_eq!(status(&erase(&other, ANN, "/a", &first).await), "away");
    valkey.start_again(true).await;
    until("Valkey", async || {
        admin(&other, "GET", "/metrics")
            .await
            .1
            .contains("fanlight_valkey_connected 1")
    })
    .await;
    let second = input_for(&erase(&other, ANN, "/a", &first).await);
    until("Valkey", async || {
        admin(&one, "GET", "/metrics")
            .await
            .1
            .contains("fanlight_valkey_connected 1")
    })
    .await;
    let last = erase(&one, ANN, "/a", &second).await;
    assert_eq!(
        slicer::member(&last, "result.content"),
        Some("[]"),
        "{last}"
    );
    // Each state is good once, at whichever replica.
    for gateway in [&one, &other] {
        for state in [&first, &second] {
            assert_eq!(status(&erase(gateway, ANN, "/a", state).await), "unasked");
        }
    }
    // Write access to Valkey does not suffice to continue a call.
    let sealed = slicer::member(stored, "by").unwrap();
    valkey
        .ask(&format!(
            "HSET {rounds} forged '{}'",
            stored.replace(sealed, r#""approved""#)
        ))
        .await;
    assert_eq!(status(&erase(&one, ANN, "/a", &first).await), "unasked");
    assert_eq!(calls(&backend), 3);
}

#[tokio::test]
async fn malformed_entry_in_valkey_keeps_nobody_from_asking() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = asking(&backend, "10ms");
    let one = group.start(valkey.url()).await;
    for entry in ["x", "null", r#"{"expires":"x"}"#] {
        let command = format!("HSET fanlight:{{approvals}}:entries malformed '{entry}'");
        valkey.ask(&command).await;
        let (status, id) = refused(call(&one, "erase", ANN).await).await;
        assert_eq!(status, "open", "{entry}");
        let (_, list) = admin(&one, "GET", "/api/approvals").await;
        assert!(list.contains(&id), "{list}");
    }
}

#[tokio::test]
async fn whoever_can_write_in_valkey_can_approve_nothing() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let group = asking(&backend, "10ms");
    let one = group.start(valkey.url()).await;
    let (_, id) = refused(call(&one, "erase", ANN).await).await;
    not_waiting(&one).await;
    let table = "fanlight:{approvals}:entries";
    let stored = valkey.ask(&format!("HGET {table} {id}")).await;
    let entry = stored
        .lines()
        .find(|line| line.starts_with('{'))
        .expect("an entry");
    assert!(
        !stored.contains("ann")
            && !valkey
                .ask("HVALS fanlight:{approvals}:shown")
                .await
                .contains("erase")
    );
    let forged = entry.replace(r#""status":"open""#, r#""status":"approved","by":"bob""#);
    valkey.ask(&format!("HSET {table} {id} '{forged}'")).await;
    assert_eq!(refused(call(&one, "erase", ANN).await).await.0, "away");
    assert_eq!(calls(&backend), 0);
    // A request that needs no approval is not affected.
    assert_eq!(request(&one, "tools/list", "", ANN).await.status, 200);
}
