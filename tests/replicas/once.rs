//! What is good once: proofs of possession and approvals, at whichever replica they are used.

use fanlight_testkit::issuer::{Issuer, SigningKey};
use fanlight_tests::slicer;

use crate::group::{Group, admin, backend, call, request, request_with, until};
use crate::harness::Gateway;
use crate::raw_client::Response;
use crate::scripted::Backend;
use crate::signing_in::{ANN, BOB};
use crate::valkey::Valkey;

const AUDIENCE: &str = "https://mcp.example.com/mcp";

#[tokio::test]
async fn proof_of_possession_is_good_at_one_replica_once() {
    let (mut valkey, backend, issuer) = (Valkey::start().await, backend().await, Issuer::start().await);
    let oauth = format!(r#","oauth":[{{"issuer":"{}"}}]"#, issuer.url());
    let group = Group::with_auth(backend.entry("only"), &oauth, r#","publicUrl":"https://mcp.example.com""#);
    let (one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
    let (key, mut claims) = (SigningKey::es256("k"), issuer.claims("ann", AUDIENCE, "mcp:read"));
    claims["cnf"] = serde_json::json!({"jkt": key.thumbprint()});
    let token = issuer.sign(&claims);
    let proof = || key.sign(&key.proof_header(), &SigningKey::proof_claims("POST", AUDIENCE, &token));
    let ask = async |gateway: &Gateway, proof: &str| {
        let fields = [("Authorization", format!("DPoP {token}")), ("DPoP", proof.to_owned())];
        request_with(gateway, "tools/list", "", &fields).await.status
    };
    let first = proof();
    assert_eq!(ask(&one, &first).await, 200);
    // Stolen on its way, it is of no use at another replica, nor at the same one.
    assert_eq!((ask(&other, &first).await, ask(&one, &first).await), (401, 401));
    assert_eq!(ask(&other, &proof()).await, 200);
    // Whether it was used cannot be known: that is no yes.
    valkey.kill().await;
    other.log.line_with("Valkey is away").await;
    assert_eq!(ask(&other, &proof()).await, 503);
    valkey.start_again(true).await;
    until("a call", async || ask(&other, &proof()).await == 200).await;
    assert_eq!(ask(&other, &first).await, 401, "what was used before is known after a restart");
}

/// Gateways whose tool `erase` needs the approval of an operator, for which a call waits for so long.
fn asking(backend: &Backend, wait: &str) -> Group {
    let entry = backend.entry_with("only", r#""approval":{"tools":["erase"],"by":"operator"}"#);
    Group::new(entry, &format!(r#","testing":true,"timeouts":{{"approval":"{wait}"}}"#))
}

fn calls(backend: &Backend) -> usize {
    backend.received("tools/call").len()
}

/// The status of an approval that a call was refused for lack of, and its id.
async fn refused(mut response: Response) -> (String, String) {
    let text = response.text().await;
    let member = |name: &str| {
        slicer::member_at(&text, &["error", "data", name]).unwrap_or_default().trim_matches('"').to_owned()
    };
    (member("status"), member("approval"))
}

/// Waits until no call waits any more: its client has been told to send it again.
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
    let (mut one, two, three) =
        tokio::join!(group.start(valkey.url()), group.start(valkey.url()), group.start(valkey.url()));
    let (status, id) = refused(call(&one, "erase", ANN).await).await;
    assert_eq!(status, "open");
    not_waiting(&two).await;
    // The one that asked is gone, and Valkey has started again.
    one.kill().await;
    valkey.kill().await;
    two.log.line_with("Valkey is away").await;
    assert_eq!(refused(call(&two, "erase", ANN).await).await.0, "away", "what is not certain is not approved");
    valkey.start_again(true).await;
    for gateway in [&two, &three] {
        until("the question", async || admin(gateway, "GET", "/api/approvals").await.1.contains(&id)).await;
    }
    assert_eq!(admin(&two, "POST", &format!("/api/approvals/{id}/approve")).await.0, 200);
    assert_eq!(admin(&three, "POST", &format!("/api/approvals/{id}/refuse")).await.0, 409);
    // It is for this call of this client alone, and for one run of it.
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
            admin(&other, "POST", &format!("/api/approvals/{}/{word}", id.unwrap())).await.0
        };
        let before = calls(&backend);
        let (answer, status) = tokio::join!(call(&one, "erase", ANN), decided);
        assert_eq!(status, 200);
        assert_eq!(refused(answer).await.0, if is_run { "" } else { "refused" });
        assert_eq!(calls(&backend) - before, usize::from(is_run));
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
    let entry = stored.lines().find(|line| line.starts_with('{')).expect("an entry");
    assert!(!stored.contains("ann") && !valkey.ask("HVALS fanlight:{approvals}:shown").await.contains("erase"));
    let forged = entry.replace(r#""status":"open""#, r#""status":"approved","by":"bob""#);
    valkey.ask(&format!("HSET {table} {id} '{forged}'")).await;
    assert_eq!(refused(call(&one, "erase", ANN).await).await.0, "away");
    assert_eq!(calls(&backend), 0);
    // A request that needs none is not concerned.
    assert_eq!(request(&one, "tools/list", "", ANN).await.status, 200);
}
