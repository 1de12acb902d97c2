//! Requests without Valkey: state that clients carry, sealed with common keys, is valid at every
//! replica; and records name their replica.

use std::fs;

use fanlight_testkit::harness::TempFile;
use fanlight_testkit::slicer::{member, plain_string};

use rustix::process::Signal;

use crate::forwarding;
use crate::group::{Group, backend, call, of_replicas, request};
use crate::linked::{Client, LinkedGroup};
use crate::scripted::{Era, Reply};
use crate::signing_in::{ANN, BOB};
use crate::valkey::Valkey;

#[tokio::test]
async fn cursor_is_good_at_every_replica_for_its_client_alone() {
    let (mut valkey, first, second) = (Valkey::start().await, backend().await, backend().await);
    let entries = [first.entry("first"), second.entry("second")].join(",");
    let group = Group::new(entries, r#","x-limits":"pageSize=1""#);
    let (mut one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
    let page = request(&one, "tools/list", "", ANN).await.text().await;
    let cursor = member(&page, "result.nextCursor")
        .and_then(plain_string)
        .expect("a cursor")
        .to_owned();
    let shown = member(&page, "result.tools").unwrap().to_owned();
    // Both the replica that sealed the state and Valkey are gone.
    one.kill().await;
    valkey.kill().await;
    let params = format!(r#""cursor":"{cursor}""#);
    let next = request(&other, "tools/list", &params, ANN)
        .await
        .text()
        .await;
    let after = member(&next, "result.tools").unwrap_or_else(|| panic!("{next}"));
    assert!(after != shown && after.contains("\"name\""), "{next}");
    let stolen = request(&other, "tools/list", &params, BOB)
        .await
        .text()
        .await;
    assert_eq!(member(&stolen, "error.code"), Some("-32602"), "{stolen}");
}

#[tokio::test]
async fn state_of_a_server_is_good_at_every_replica_for_its_client_alone() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    let ask =
        r#"{"resultType":"input_required","requestState":"held by the client","inputRequests":{}}"#;
    backend.once("tools/call", Reply::result(ask));
    let group = Group::new(backend.entry("only"), "");
    let (one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
    let asked = call(&one, "search", ANN).await.text().await;
    let state = member(&asked, "result.requestState")
        .and_then(plain_string)
        .unwrap_or_else(|| panic!("{asked}"));
    let again = format!(
        r#""name":"search","arguments":{{}},"inputResponses":{{}},"requestState":"{state}""#
    );
    let stolen = request(&other, "tools/call", &again, BOB)
        .await
        .text()
        .await;
    assert!(member(&stolen, "error.code").is_some(), "{stolen}");
    let done = request(&other, "tools/call", &again, ANN)
        .await
        .text()
        .await;
    assert!(member(&done, "result.content").is_some(), "{done}");
    let received = backend.received("tools/call");
    let states: Vec<_> = received
        .iter()
        .filter_map(|call| call.member("params.requestState"))
        .collect();
    assert_eq!(states, [r#""held by the client""#]);
    assert_eq!(backend.received("tools/call").len(), 2, "{:?}", Era::Modern);
}

#[tokio::test]
async fn modern_requests_ask_valkey_nothing_without_a_rule_in_common() {
    let (valkey, backend) = (Valkey::start().await, forwarding::backend().await);
    let group = LinkedGroup::new(
        backend.entry("only"),
        r#","limits":{"rates":[{"rate":"1000000/s"}]}"#,
    );
    let (one, _other) = group.start_two(&valkey.url()).await;
    let served = async || {
        for _ in 0..20 {
            for (method, params) in [
                ("tools/call", r#""name":"say","arguments":{}"#),
                ("tools/list", ""),
            ] {
                assert_eq!(request(&one.gateway, method, params, ANN).await.status, 200);
            }
        }
    };
    // Only lease renewals contain the lease's duration.
    let is_of_request =
        |line: &String| !(line.contains("{members}:leases") && line.contains(r#" "2000" "#));
    let sent = valkey.sent_during(served()).await;
    assert!(!sent.iter().any(is_of_request), "{sent:#?}");
    // The check itself works: commands caused by a request appear.
    let of_session = async {
        assert_eq!(
            Client::open(&one, ANN)
                .await
                .post(&one, &forwarding::say("1"))
                .await
                .status,
            200
        );
    };
    let sent = valkey.sent_during(of_session).await;
    assert!(sent.iter().any(is_of_request), "{sent:#?}");
    valkey.signal(Signal::STOP);
    served().await;
}

#[tokio::test]
async fn lines_of_the_record_name_their_replica() {
    let (valkey, backend, folder) = (Valkey::start().await, backend().await, TempFile::folder());
    let file = folder.path().join("audit.jsonl");
    let group = Group::new(
        backend.entry("only"),
        &format!(r#","audit":{{"file":{file:?},"required":true}}"#),
    );
    let one = group.start(valkey.url()).await;
    assert_eq!(call(&one, "search", ANN).await.status, 200);
    let own = of_replicas(&one, &["own"]).await;
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<_> = text
        .lines()
        .filter(|line| line.contains(r#""event":"request""#))
        .collect();
    assert!(
        !lines.is_empty()
            && lines
                .iter()
                .all(|line| member(line, "replica") == Some(&own)),
        "{own}: {text}"
    );
}
