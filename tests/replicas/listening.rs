//! The number of notification streams that several replicas keep at a server.

use crate::group::{Group, request};
use crate::raw_client::LISTEN;
use crate::scripted::{Backend, Era, Reply, Transport};
use crate::signing_in::ANN;
use crate::valkey::Valkey;

const CHANGED: &str = "notifications/tools/list_changed";

/// A server whose tool list has a `ttlMs` of `ttl`.
async fn server(tool: &str, ttl: u32) -> Backend {
    let backend = Backend::start(Era::Modern, Transport::Http).await;
    backend.declares(r#"{"tools":{"listChanged":true}}"#);
    backend.on(LISTEN, Reply::listening());
    offers(&backend, tool, ttl);
    backend
}

fn offers(backend: &Backend, tool: &str, ttl: u32) {
    let tools = format!(r#""tools":[{{"name":"{tool}","inputSchema":{{"type":"object"}}}}]"#);
    let list =
        format!(r#"{{"resultType":"complete",{tools},"ttlMs":{ttl},"cacheScope":"public"}}"#);
    backend.on("tools/list", Reply::result(list));
}

#[tokio::test]
async fn replica_listens_for_clients_that_listen_and_for_lists_that_do_not_say_how_long_they_hold()
{
    let (valkey, timed, untimed) = (
        Valkey::start().await,
        server("timed", 3_600_000).await,
        server("untimed", 0).await,
    );
    let group = Group::new([timed.entry("a"), untimed.entry("b")].join(","), "");
    let (one, other) = tokio::join!(group.start(valkey.url()), group.start(valkey.url()));
    for at in [&one, &other] {
        let tools = request(at, "tools/list", "", ANN).await.text().await;
        assert!(
            tools.contains("a__timed") && tools.contains("b__untimed"),
            "{tools}"
        );
    }
    untimed.wait_for(LISTEN, 2).await;
    assert!(timed.received(LISTEN).is_empty(), "its lists hold");
    let mut client = request(
        &one,
        LISTEN,
        r#""notifications":{"toolsListChanged":true}"#,
        ANN,
    )
    .await;
    client.event().await.unwrap().expect("an acknowledgement");
    timed.wait_for(LISTEN, 1).await;
    offers(&timed, "changed", 3_600_000);
    timed.streams().last().unwrap().notify(CHANGED, "").await;
    let told = client.event().await.unwrap().expect("a change");
    assert!(told.contains(CHANGED), "{told}");
    let tools = request(&one, "tools/list", "", ANN).await.text().await;
    assert!(tools.contains("a__changed"), "{tools}");
    let tools = request(&other, "tools/list", "", ANN).await.text().await;
    assert!(
        tools.contains("a__timed"),
        "for as long as the server has said: {tools}"
    );
}
