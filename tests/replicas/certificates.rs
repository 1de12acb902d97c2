//! Renewed certificates of replicas while requests pass between them.

use std::fs;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::forwarding::{backend, response_of, say};
use crate::group::{self, Group, admin, until};
use crate::harness::{Gateway, within};
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
    let (group, next) = (
        LinkedGroup::new(backend.entry("only"), ""),
        Authority::new(),
    );
    let files = [
        LinkFiles::issue(&group.authority),
        LinkFiles::issue(&group.authority),
    ];
    let (owner, other) = group
        .start_two_with(&valkey.url(), [&files[0], &files[1]])
        .await;
    let replicas = [(&owner, &files[0]), (&other, &files[1])];
    // Each replica owns a session that is used through the other one.
    let [client, reverse] = [
        Client::open(&owner, ANN).await,
        Client::open(&other, BOB).await,
    ];
    assert_eq!(client.post(&other, &say("0")).await.status, 200);
    let session = backend.received("tools/call")[0]
        .header("mcp-session-id")
        .unwrap()
        .to_owned();
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
    let (through_other, through_owner, ()) = tokio::join!(
        calling(&client, &other),
        calling(&reverse, &owner),
        rotating
    );
    assert!(through_other > 0 && through_owner > 0);
    // The stream that was open all the time goes on.
    backend.stream_of(&session).await.message(NOTE).await;
    while !stream
        .event()
        .await
        .unwrap()
        .expect("the stream was cut")
        .contains("still")
    {}

    for (replica, files) in replicas {
        let old = TlsClient::showing(&next, &replica_of(&group.authority));
        assert!(
            response_of(replica, &old, &[]).await.is_none(),
            "what the earlier authority signed is accepted"
        );
        let before = TlsClient::showing(&group.authority, &replica_of(&next));
        assert!(
            response_of(replica, &before, &[]).await.is_none(),
            "the earlier certificate is shown"
        );
        let new = TlsClient::showing(&next, &replica_of(&next));
        assert_eq!(response_of(replica, &new, &[]).await, Some(421));
        // Unusable files change nothing.
        files.put("ca.pem", "garbage");
        let (status, report) = replica.gateway.reload().await;
        assert!(
            status == 422 && report.contains("`replicas.tls` cannot be used"),
            "{status}: {report}"
        );
        assert_eq!(response_of(replica, &new, &[]).await, Some(421));
    }
    assert_eq!(client.post(&other, &say("0")).await.status, 200);
    assert_eq!(reverse.post(&owner, &say("0")).await.status, 200);
}

/// Forwards TLS connections to a server.
async fn pass_on(
    listener: &TcpListener,
    acceptor: TlsAcceptor,
    to: SocketAddr,
    connections: &mut JoinSet<()>,
) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let acceptor = acceptor.clone();
        connections.spawn(async move {
            // The handshake fails on a refused or broken connection.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            let _ =
                copy_bidirectional(&mut stream, &mut TcpStream::connect(to).await.unwrap()).await;
        });
    }
}

#[tokio::test]
async fn valkey_is_reached_again_with_certificates_of_another_authority() {
    renewed_after(|_| {}).await;
}

#[tokio::test]
async fn certificates_for_valkey_are_renewed_while_other_options_of_replicas_wait_for_a_restart() {
    renewed_after(|gateway| {
        let text = fs::read_to_string(gateway.config_path()).unwrap();
        gateway.configure(&text.replace(r#""caFile":"#, r#""group":"other","caFile":"#));
    })
    .await;
}

/// Renews the certificates of Valkey and of the gateways by another authority, through a change of
/// the configuration.
async fn renewed_after(change: impl FnOnce(&Gateway)) {
    let (valkey, backend) = (Valkey::start().await, group::backend().await);
    let (authority, next) = (Authority::new(), Authority::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("valkeys://{}", listener.local_addr().unwrap());
    let (group, files) = (
        Group::new(backend.entry("only"), ""),
        LinkFiles::issue(&authority),
    );
    let options = files.for_valkey();
    let mut connections = JoinSet::new();
    let acceptor = authority.server().acceptor_demanding(&authority);
    let gateway = tokio::select! {
        gateway = group.start_with(&url, &options) => gateway,
        () = pass_on(&listener, acceptor, valkey.address, &mut connections) => unreachable!(),
    };
    drop(connections);
    let is_connected = async || {
        admin(&gateway, "GET", "/metrics")
            .await
            .1
            .contains("fanlight_valkey_connected 1")
    };
    let mut connections = JoinSet::new();
    let renewed = async {
        gateway.log.line_with("cannot connect to Valkey").await;
        // Unusable files change nothing: neither a broken authority nor a certificate with another
        // key.
        for (name, text) in [("ca.pem", "garbage"), ("key.pem", &next.server().key())] {
            files.put(name, text);
            let (status, report) = gateway.reload().await;
            assert!(
                status == 422 && report.contains("cannot be used"),
                "{status}: {report}"
            );
            files.put("ca.pem", &authority.pem());
        }
        files.put_pair(&authority.server());
        change(&gateway);
        assert_eq!(gateway.reload().await.0, 200);
        files.put("ca.pem", &next.pem());
        files.put_pair(&next.server());
        assert_eq!(gateway.reload().await.0, 200);
        until("Valkey", is_connected).await;
    };
    tokio::select! {
        () = renewed => {}
        () = pass_on(&listener, next.server().acceptor_demanding(&next), valkey.address, &mut connections) => unreachable!(),
    }
}

/// The cluster's client connects by itself to servers that are added or come back. It must not use
/// the old certificates for that.
#[tokio::test]
async fn cluster_of_valkey_that_goes_on_is_reached_anew_with_renewed_certificates() {
    let (authority, next, backend) = (Authority::new(), Authority::new(), group::backend().await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // The server announces the address at which TLS ends.
    let valkey = Valkey::whole_cluster(address.port()).await;
    let (group, files) = (
        Group::new(backend.entry("only"), ""),
        LinkFiles::issue(&authority),
    );
    let (url, options) = (format!("valkeys+cluster://{address}"), files.for_valkey());
    let mut connections = JoinSet::new();
    let acceptor = authority.server().acceptor_demanding(&authority);
    let gateway = tokio::select! {
        gateway = group.start_with(&url, &options) => gateway,
        () = pass_on(&listener, acceptor, valkey.address, &mut connections) => unreachable!(),
    };
    files.put("ca.pem", &next.pem());
    files.put_pair(&next.server());
    assert_eq!(gateway.reload().await.0, 200);
    let acceptor = next.server().acceptor_demanding(&next);
    let renewed = async {
        while acceptor
            .accept(listener.accept().await.unwrap().0)
            .await
            .is_err()
        {}
    };
    within("a connection with the renewed certificate", renewed).await;
}
