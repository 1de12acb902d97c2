//! Each {client era} × {transport} × {server era} × {transport}: the client gets what it has subscribed to and nothing
//! else, and the subscription at the server ends with the last listener.

use fanlight_tests::slicer::plain_string;

use super::*;
use crate::scripted::config;

type Peer = (Era, Transport);

async fn one_server(client: Peer, server: Peer) {
    let speaker = Speaker::start(server, "alpha").await;
    let uri = speaker.uri();
    let mut ear = Ear::open(&config(&[speaker.entry()]), client, std::slice::from_ref(&uri)).await;
    speaker.says_updated("1E400").await;
    ear.hears_update(&uri, "1E400").await;
    // The notification of the only server is enough, whether or not its list has changed.
    speaker.says_tools_changed().await;
    ear.hears_tools_changed().await;
    speaker.says_updated("-0").await;
    ear.hears_update(&uri, "-0").await;
    unsubscribe(&mut ear, &uri).await;
    is_left(&speaker, &mut ear).await;
}

/// Waits until the server's subscription for the client has ended.
async fn is_left(speaker: &Speaker, ear: &mut Ear) {
    let backend = &speaker.backend;
    match (speaker.era, ear.client.era) {
        (Era::Legacy, _) => {
            let left = backend.wait_for("resources/unsubscribe", 1).await;
            assert_eq!(left[0].member("params.uri"), backend.received("resources/subscribe")[0].member("params.uri"));
        }
        (Era::Modern, Era::Modern) if speaker.transport == Transport::Http => backend.stream(0).await.closed().await,
        (Era::Modern, Era::Modern) => {
            let cancelled = backend.wait_for("notifications/cancelled", 1).await;
            let listens = backend.received(LISTEN);
            assert_eq!(cancelled[0].member("params.requestId"), listens[listens.len() - 1].member("id"));
        }
        (Era::Modern, Era::Legacy) => {
            // List changes are still wanted: a subscription without the resource replaces the first.
            let listens = backend.received(LISTEN).len();
            let narrowed = backend.wait_for(LISTEN, listens + 1).await;
            let filter = narrowed[listens].member("params.notifications").unwrap();
            assert!(!filter.contains("test://") && filter.contains("toolsListChanged"), "{filter}");
        }
    }
    if speaker.transport == Transport::Http {
        if ear.client.era == Era::Legacy && ear.stream.is_some() {
            assert!(ear.client.session().delete().await.status < 300);
        }
        if ear.client.era == Era::Modern || ear.stream.is_some() {
            for stream in backend.streams() {
                stream.closed().await;
            }
        }
    }
}

/// The second server is of the other era and uses the other transport.
async fn two_servers(client: Peer, server: Peer) {
    let alpha = Speaker::start(server, "alpha").await;
    let beta = Speaker::start((other_era(server.0), other_transport(server.1)), "beta").await;
    let uris = [alpha.uri(), beta.uri()];
    let mut ear = Ear::open(&config(&[alpha.entry(), beta.entry()]), client, &uris).await;
    for (speaker, number) in [(&alpha, "1.0"), (&beta, "2.0")] {
        speaker.says_updated(number).await;
        ear.hears_update(&speaker.uri(), number).await;
    }
    assert_eq!(tools(&mut ear).await, ["alpha__t", "beta__t"]);
    for speaker in [&alpha, &beta] {
        let read = speaker.backend.received("tools/list").len();
        speaker.says_tools_changed().await;
        speaker.backend.wait_for("tools/list", read + 1).await;
    }
    // No list has changed, so no other notification may arrive.
    alpha.says_updated("3.0").await;
    ear.hears_update(&alpha.uri(), "3.0").await;
    beta.backend.offers_tools(&["t", "new"]);
    beta.says_tools_changed().await;
    ear.hears_tools_changed().await;
    assert_eq!(tools(&mut ear).await, ["alpha__t", "beta__t", "beta__new"]);
    beta.says_updated("4.0").await;
    ear.hears_update(&beta.uri(), "4.0").await;
}

async fn tools(ear: &mut Ear) -> Vec<String> {
    let result = ear.request("tools/list", "").await;
    let tools = fanlight_tests::slicer::elements(member(&result, "tools").unwrap()).unwrap();
    tools.iter().map(|tool| plain_string(member(tool, "name").unwrap()).unwrap().to_owned()).collect()
}

macro_rules! cells {
    ($($name:ident: $client:ident over $front:ident to $server:ident over $back:ident;)*) => {
        $(mod $name {
            use super::*;

            #[tokio::test]
            async fn one_server() {
                super::one_server((Era::$client, Transport::$front), (Era::$server, Transport::$back)).await;
            }

            #[tokio::test]
            async fn two_servers() {
                super::two_servers((Era::$client, Transport::$front), (Era::$server, Transport::$back)).await;
            }
        })*
    };
}

cells! {
    modern_http_to_modern_http: Modern over Http to Modern over Http;
    modern_http_to_modern_stdio: Modern over Http to Modern over Stdio;
    modern_http_to_legacy_http: Modern over Http to Legacy over Http;
    modern_http_to_legacy_stdio: Modern over Http to Legacy over Stdio;
    modern_stdio_to_modern_http: Modern over Stdio to Modern over Http;
    modern_stdio_to_modern_stdio: Modern over Stdio to Modern over Stdio;
    modern_stdio_to_legacy_http: Modern over Stdio to Legacy over Http;
    modern_stdio_to_legacy_stdio: Modern over Stdio to Legacy over Stdio;
    legacy_http_to_modern_http: Legacy over Http to Modern over Http;
    legacy_http_to_modern_stdio: Legacy over Http to Modern over Stdio;
    legacy_http_to_legacy_http: Legacy over Http to Legacy over Http;
    legacy_http_to_legacy_stdio: Legacy over Http to Legacy over Stdio;
    legacy_stdio_to_modern_http: Legacy over Stdio to Modern over Http;
    legacy_stdio_to_modern_stdio: Legacy over Stdio to Modern over Stdio;
    legacy_stdio_to_legacy_http: Legacy over Stdio to Legacy over Http;
    legacy_stdio_to_legacy_stdio: Legacy over Stdio to Legacy over Stdio;
}
