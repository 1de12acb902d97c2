//! Each {client era} × {transport} × {server era} × {transport}: the client gets exactly the
//! messages of its subscription, and the subscription at the server ends with the last listener.

use fanlight_tests::slicer::plain_string;

use super::*;
use crate::scripted::config;

type Peer = (Era, Transport);

async fn one_server(client: Peer, server: Peer) {
    let announcer = Announcer::start(server, "alpha").await;
    let uri = announcer.uri();
    let mut listener = ListeningClient::open(
        &config(&[announcer.entry()]),
        client,
        std::slice::from_ref(&uri),
    )
    .await;
    announcer.announce_update("1E400").await;
    listener.expect_update(&uri, "1E400").await;
    // The only server's notification is forwarded, whether or not its list has changed.
    announcer.announce_tools_changed().await;
    listener.expect_tools_changed().await;
    announcer.announce_update("-0").await;
    listener.expect_update(&uri, "-0").await;
    unsubscribe(&mut listener, &uri).await;
    expect_unsubscribed(&announcer, &mut listener).await;
}

/// Waits until the server's subscription for the client has ended.
async fn expect_unsubscribed(announcer: &Announcer, listener: &mut ListeningClient) {
    let backend = &announcer.backend;
    match (announcer.era, listener.client.era) {
        (Era::Legacy, _) => {
            let left = backend.wait_for("resources/unsubscribe", 1).await;
            assert_eq!(
                left[0].member("params.uri"),
                backend.received("resources/subscribe")[0].member("params.uri")
            );
        }
        (Era::Modern, Era::Modern) if announcer.transport == Transport::Http => {
            backend.stream(0).await.closed().await;
        }
        (Era::Modern, Era::Modern) => {
            let cancelled = backend.wait_for("notifications/cancelled", 1).await;
            let listens = backend.received(LISTEN);
            assert_eq!(
                cancelled[0].member("params.requestId"),
                listens[listens.len() - 1].member("id")
            );
        }
        (Era::Modern, Era::Legacy) => {
            // The client still wants list changes: a subscription without the resource replaces the
            // first one.
            let listens = backend.received(LISTEN).len();
            let narrowed = backend.wait_for(LISTEN, listens + 1).await;
            let filter = narrowed[listens].member("params.notifications").unwrap();
            assert!(
                !filter.contains("test://") && filter.contains("toolsListChanged"),
                "{filter}"
            );
        }
    }
    if announcer.transport == Transport::Http {
        if listener.client.era == Era::Legacy && listener.stream.is_some() {
            assert!(listener.client.session().delete().await.status < 300);
        }
        if listener.client.era == Era::Modern || listener.stream.is_some() {
            for stream in backend.streams() {
                stream.closed().await;
            }
        }
    }
}

/// The second server is of the other era and uses the other transport.
async fn two_servers(client: Peer, server: Peer) {
    let alpha = Announcer::start(server, "alpha").await;
    let beta = Announcer::start((other_era(server.0), other_transport(server.1)), "beta").await;
    let uris = [alpha.uri(), beta.uri()];
    let mut listener =
        ListeningClient::open(&config(&[alpha.entry(), beta.entry()]), client, &uris).await;
    for (announcer, number) in [(&alpha, "1.0"), (&beta, "2.0")] {
        announcer.announce_update(number).await;
        listener.expect_update(&announcer.uri(), number).await;
    }
    assert_eq!(tools(&mut listener).await, ["alpha__t", "beta__t"]);
    for announcer in [&alpha, &beta] {
        let read = announcer.backend.received("tools/list").len();
        announcer.announce_tools_changed().await;
        announcer.backend.wait_for("tools/list", read + 1).await;
        // The merged list is equal, but the client is told what the server told.
        listener.expect_tools_changed().await;
    }
    alpha.announce_update("3.0").await;
    listener.expect_update(&alpha.uri(), "3.0").await;
    beta.backend.offers_tools(&["t", "new"]);
    beta.announce_tools_changed().await;
    listener.expect_tools_changed().await;
    assert_eq!(
        tools(&mut listener).await,
        ["alpha__t", "beta__t", "beta__new"]
    );
    beta.announce_update("4.0").await;
    listener.expect_update(&beta.uri(), "4.0").await;
}

async fn tools(listener: &mut ListeningClient) -> Vec<String> {
    let result = listener.request("tools/list", "").await;
    let tools = fanlight_tests::slicer::elements(member(&result, "tools").unwrap()).unwrap();
    tools
        .iter()
        .map(|tool| {
            plain_string(member(tool, "name").unwrap())
                .unwrap()
                .to_owned()
        })
        .collect()
}

macro_rules! combinations {
    ($($(#[$nightly:meta])? $name:ident: $client:ident over $front:ident to $server:ident over $back:ident;)*) => {
        $(mod $name {
            use super::*;

            #[tokio::test]
            $(#[$nightly])?
            async fn one_server() {
                super::one_server((Era::$client, Transport::$front), (Era::$server, Transport::$back)).await;
            }

            #[tokio::test]
            $(#[$nightly])?
            async fn two_servers() {
                super::two_servers((Era::$client, Transport::$front), (Era::$server, Transport::$back)).await;
            }
        })*
    };
}

for_all_combinations!(combinations);
