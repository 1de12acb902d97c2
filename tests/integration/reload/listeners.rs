//! Listening clients while the servers change.

use super::*;
use crate::raw_client::{LegacySession, Response, legacy_request, listen};
use crate::scripted::{Stream, config};

const CHANGED: &str = "notifications/tools/list_changed";

/// A server with a tool and one resource, which announces changes of the resource.
async fn announcing(era: Era, tools: &[&str]) -> Backend {
    let backend = Backend::start(era, Transport::Http).await;
    backend.declares(
        r#"{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true}}"#,
    );
    backend.offers_tools(tools);
    backend.on(
        "resources/list",
        backend.list("resources", r#"{"uri":"test://r","name":"r"}"#),
    );
    backend.on(
        "resources/templates/list",
        backend.list("resourceTemplates", ""),
    );
    backend.on("resources/subscribe", Reply::result("{}"));
    match era {
        Era::Modern => backend.on("subscriptions/listen", Reply::listening()),
        Era::Legacy => backend.serves_get(),
    }
    backend
}

async fn update(backend: &Backend, era: Era) {
    let updated = "notifications/resources/updated";
    let streams: Vec<Stream> = backend.streams();
    for stream in streams {
        match era {
            Era::Modern
                if stream
                    .filter()
                    .is_some_and(|filter| filter.contains("test://r")) =>
            {
                stream.notify(updated, r#""uri":"test://r""#).await;
            }
            Era::Modern => {}
            Era::Legacy => {
                stream
                    .message(&format!(
                        r#"{{"jsonrpc":"2.0","method":"{updated}","params":{{"uri":"test://r"}}}}"#
                    ))
                    .await;
            }
        }
    }
}

/// Checks that the next message contains this part.
async fn next(stream: &mut Response, part: &str) {
    let message = stream.event().await.unwrap().expect("a message");
    assert!(message.contains(part), "{message}");
}

/// Checks that both clients hear of changed tools once, and of updates of their resource, whichever
/// server has it.
async fn continues(old_era: Era, new_era: Era, several: bool) {
    let (old, new) = (
        announcing(old_era, &["t"]).await,
        announcing(new_era, &["t", "u"]).await,
    );
    let other = announcing(Era::Modern, &["o"]).await;
    other.on("resources/list", other.list("resources", ""));
    let entries = |s: &Backend| match several {
        true => config(&[s.entry("s"), other.entry("other")]),
        false => config(&[s.entry("s")]),
    };
    let gateway = Gateway::start_with(&entries(&old), &["--no-watch"]).await;
    let filter = r#"{"toolsListChanged":true,"resourceSubscriptions":["test://r"]}"#;
    let mut modern = listen(gateway.mcp, "1", filter).await;
    next(&mut modern, "acknowledged").await;
    let session = LegacySession::open(gateway.mcp).await;
    let mut legacy = session.stream(None).await;
    let subscribed = session
        .post(&legacy_request(
            "2",
            "resources/subscribe",
            r#""uri":"test://r""#,
        ))
        .await;
    let mut subscribed = subscribed;
    assert!(subscribed.messages().await.1.contains("result"));

    reload(&gateway, &entries(&new)).await;
    next(&mut modern, CHANGED).await;
    next(&mut legacy, CHANGED).await;
    // The server announces repeatedly, since only an announcement shows on which stream the gateway
    // listens.
    let new = std::sync::Arc::new(new);
    let announcing = tokio::spawn({
        let new = std::sync::Arc::clone(&new);
        async move {
            loop {
                update(&new, new_era).await;
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    });
    next(&mut modern, "resources/updated").await;
    next(&mut legacy, "resources/updated").await;
    announcing.abort();
    reload(&gateway, &entries(&old)).await;
    after_updates(&mut modern, CHANGED).await;
    after_updates(&mut legacy, CHANGED).await;
}

/// Checks that the next message that is not about the resource contains this part.
async fn after_updates(stream: &mut Response, part: &str) {
    loop {
        let message = stream.event().await.unwrap().expect("a message");
        if !message.contains("resources/updated") {
            return assert!(message.contains(part), "{message}");
        }
    }
}

#[tokio::test]
async fn listening_continues_at_a_changed_modern_server() {
    continues(Era::Modern, Era::Modern, false).await;
    continues(Era::Modern, Era::Modern, true).await;
}

#[tokio::test]
async fn listening_continues_at_a_changed_legacy_server() {
    continues(Era::Legacy, Era::Legacy, false).await;
    continues(Era::Legacy, Era::Legacy, true).await;
}
