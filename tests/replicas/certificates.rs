//! Certificates of replicas that are renewed while requests pass between them.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::forwarding::{backend, response_of, say};
use crate::linked::{Client, LinkFiles, LinkedGroup};
use crate::signing_in::{ANN, BOB};
use crate::tls::{Authority, Pair, TlsClient};
use crate::valkey::Valkey;

const NOTE: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":"still"}}"#;

fn replica_of(authority: &Authority) -> Pair {
    authority.client("spiffe://example.com/replica")
}

#[tokio::test]
async fn authority_is_replaced_at_one_replica_after_the_other_and_nothing_that_passes_fails() {
    let (valkey, backend) = (Valkey::start().await, backend().await);
    backend.declares(r#"{"tools":{"listChanged":true}}"#);
    backend.serves_get();
    let (group, next) = (LinkedGroup::new(backend.entry("only"), ""), Authority::new());
    let files = [LinkFiles::of(&group.authority), LinkFiles::of(&group.authority)];
    let (owner, other) = group.start_two_with(&valkey.url(), [&files[0], &files[1]]).await;
    let replicas = [(&owner, &files[0]), (&other, &files[1])];
    // A session of each, used through the other one.
    let [client, reverse] = [Client::open(&owner, ANN).await, Client::open(&other, BOB).await];
    let mut stream = client.stream(&other, None).await;
    assert_eq!((stream.status, stream.is_event_stream()), (200, true));

    let is_over = AtomicBool::new(false);
    let calling = async |client: &Client, at| {
        let mut number = 0;
        while !is_over.load(Ordering::Relaxed) {
            number += 1;
            let mut response = client.post(at, &say(&number.to_string())).await;
            let text = response.text().await;
            assert_eq!(response.status, 200, "{text}");
        }
        number
    };
    let rotating = async {
        let both = format!("{}{}", group.authority.pem(), next.pem());
        for step in 0..3 {
            for (replica, files) in replicas {
                match step {
                    0 => files.put("ca.pem", &both),
                    1 => files.put_pair(&next.server()),
                    _ => files.put("ca.pem", &next.pem()),
                }
                let (status, report) = replica.gateway.reload().await;
                assert_eq!(status, 200, "{report}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let (through_other, through_owner, ()) =
        tokio::join!(calling(&client, &other), calling(&reverse, &owner), rotating);
    assert!(through_other > 0 && through_owner > 0);
    // What ran all the time goes on.
    let calls = backend.received("tools/call");
    let session = calls[0].header("mcp-session-id").unwrap();
    backend.stream_of(session).await.message(NOTE).await;
    while !stream.event().await.unwrap().expect("the stream was cut").contains("still") {}

    for (replica, files) in replicas {
        let old = TlsClient::showing(&next, &replica_of(&group.authority));
        assert!(response_of(replica, &old, &[]).await.is_none(), "what the earlier authority signed is accepted");
        let before = TlsClient::showing(&group.authority, &replica_of(&next));
        assert!(response_of(replica, &before, &[]).await.is_none(), "the earlier certificate is shown");
        let new = TlsClient::showing(&next, &replica_of(&next));
        assert_eq!(response_of(replica, &new, &[]).await, Some(421));
        // What cannot be used changes nothing.
        files.put("ca.pem", "garbage");
        let (status, report) = replica.gateway.reload().await;
        assert!(status == 422 && report.contains("`replicas.tls` cannot be used"), "{status}: {report}");
        assert_eq!(response_of(replica, &new, &[]).await, Some(421));
    }
    assert_eq!(client.post(&other, &say("0")).await.status, 200);
    assert_eq!(reverse.post(&owner, &say("0")).await.status, 200);
}
