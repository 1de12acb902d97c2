//! Lists served from the cache, because the gateway listens for changes or because of the server's
//! `ttlMs`.

use super::*;
use crate::harness::within;
use crate::scripted::{Reply, config};

const SERVERS: [(Era, Transport); 4] = [
    (Era::Modern, Transport::Http),
    (Era::Modern, Transport::Stdio),
    (Era::Legacy, Transport::Http),
    (Era::Legacy, Transport::Stdio),
];

/// A second server, so that lists are merged.
async fn beside(server: (Era, Transport)) -> Announcer {
    Announcer::start((server.0, other_transport(server.1)), "beta").await
}

#[tokio::test]
async fn list_is_served_from_cache_while_servers_announce_changes() {
    for server in SERVERS {
        let (alpha, beta) = (
            Announcer::start(server, "alpha").await,
            beside(server).await,
        );
        let entries = [alpha.entry(), beta.entry()];
        let mut client = Client::start(&config(&entries), Era::Modern, Transport::Http).await;
        assert_eq!(client.tool_names().await, ["alpha__t", "beta__t"]);
        let mut stream = listen(client.address(), ID, &filter(&[])).await;
        stream.event().await.unwrap().expect("an acknowledgement");
        // Each server has sent a notification, so the gateway listens to both.
        for (announcer, count) in [(&alpha, 3), (&beta, 4)] {
            announcer.backend.offers_tools(&["t", "first"]);
            announcer.announce_tools_changed().await;
            let changed = stream.event().await.unwrap().expect("a message");
            assert!(changed.contains(TOOLS_CHANGED), "{changed}");
            assert_eq!(client.tool_names().await.len(), count);
        }
        let requests =
            || [&alpha, &beta].map(|announcer| announcer.backend.received("tools/list").len());
        let before = requests();
        for _ in 0..5 {
            assert_eq!(client.tool_names().await.len(), 4);
        }
        assert_eq!(requests(), before, "{server:?}");
        for names in [["t", "a"], ["t", "b"]] {
            alpha.backend.offers_tools(&names);
            alpha.announce_tools_changed().await;
            let changed = stream.event().await.unwrap().expect("a message");
            assert!(changed.contains(TOOLS_CHANGED), "{changed}");
            assert_eq!(
                client.tool_names().await,
                [
                    "alpha__t",
                    &format!("alpha__{}", names[1]),
                    "beta__t",
                    "beta__first"
                ]
            );
        }
        assert_eq!(requests()[1], before[1], "it has announced nothing");
    }
}

/// 2026-07-28 caching: a list may be cached for `ttlMs`, and clients get the remaining time.
#[tokio::test]
async fn list_is_served_from_cache_within_its_ttl() {
    const TTL: u32 = 1500;
    let server = |ttl: u32| async move {
        let announcer = Announcer::start(
            (Era::Modern, Transport::Http),
            if ttl > 0 { "alpha" } else { "beta" },
        )
        .await;
        announcer.backend.declares(r#"{"tools":{}}"#);
        announcer.backend.on(
            LISTEN,
            Reply::error(r#"{"code":-32601,"message":"Method not found"}"#),
        );
        let tools = r#""tools":[{"name":"t","inputSchema":{"type":"object"}}]"#;
        let list =
            format!(r#"{{"resultType":"complete",{tools},"ttlMs":{ttl},"cacheScope":"public"}}"#);
        announcer.backend.on("tools/list", Reply::result(list));
        announcer
    };
    let (lasting, fleeting) = (server(TTL).await, server(0).await);
    let mut client = Client::start(
        &config(&[lasting.entry(), fleeting.entry()]),
        Era::Modern,
        Transport::Http,
    )
    .await;
    let first = client.request("1", "tools/list", "", "").await;
    assert_eq!(first.member("result.ttlMs"), "0", "the minimum of both");
    let requests = |announcer: &Announcer| announcer.backend.received("tools/list").len();
    let (before, fleeting_before) = (requests(&lasting), requests(&fleeting));
    client.tool_names().await;
    assert!(requests(&fleeting) > fleeting_before);
    // Time itself is under test: repeated requests reach the server only after `ttlMs`.
    within("the expiry of ttlMs", async {
        while requests(&lasting) == before {
            client.tool_names().await;
        }
    })
    .await;
    assert!(requests(&fleeting) > requests(&lasting));
}
