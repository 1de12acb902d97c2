//! `subscriptions/listen`: messages to modern clients outside of their requests.

use std::time::Duration;

use fanlight_canonical::{Listen, ServerMessage, TaskDialect};
use fanlight_frontend::FrontendSettings;
use fanlight_protocol::subscription::Change;
use serde_json::{Value, json};

use crate::client::{Client, Server, modern_headers, modern_request, soon};
use crate::core::notification;
use crate::streams::Stdio;

const FILTER: &str = r#""notifications":{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["a:\u0062","ignore:"]}"#;
const TOOLS: &str = "notifications/tools/list_changed";
const UPDATED: &str = "notifications/resources/updated";

fn subscribe(id: &str, filter: &str) -> String {
    modern_request(id, "subscriptions/listen", filter, "")
}

async fn say(listen: &Listen, method: &str, params: &str) {
    listen
        .messages
        .send(ServerMessage::Notification(notification(method, params)))
        .await;
}

/// Subscribes on a connection of its own; the acknowledgment is still to be read.
async fn subscribed(server: &mut Server, id: &str, filter: &str) -> (Client, Listen) {
    let mut client = server.connect().await;
    client
        .send(
            "POST",
            "/mcp",
            &modern_headers("subscriptions/listen", None),
            &subscribe(id, filter),
        )
        .await;
    let listen = server.log.listens().await;
    let head = client.head().await;
    assert_eq!(
        (head.status, head.header("content-type")),
        (200, Some("text/event-stream"))
    );
    (client, listen)
}

#[tokio::test]
async fn subscription_carries_requested_notifications_under_its_id() {
    let mut server = Server::start().await;
    let (mut client, listen) = subscribed(&mut server, r#""\u0031""#, FILTER).await;
    assert!(
        listen.context.session().is_none()
            && listen.interest.lists.has(Change::Tools)
            && !listen.interest.session
    );
    assert_eq!(
        listen.interest.uris,
        ["a:b".into(), "ignore:".into()].into()
    );
    assert_eq!(
        client.event().await.unwrap(),
        r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"\u0031"},"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a:b"]}}}"#
    );
    for unwanted in [
        "prompts/list_changed",
        "resources/list_changed",
        "message",
        "progress",
        "tasks/status",
        "x",
        "elicitation/complete",
    ] {
        say(&listen, &format!("notifications/{unwanted}"), "{}").await;
    }
    say(&listen, UPDATED, r#"{ "uri":"a:b","x":1E400 }"#).await;
    assert_eq!(
        client.event().await.unwrap(),
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"\u0031"}, "uri":"a:b","x":1E400 }}"#
    );
    // The client ends it by closing.
    drop(client);
    server.log.listens_no_more().await;
}

#[tokio::test]
async fn subscription_ends_with_a_response_at_shutdown() {
    let mut server = Server::start().await;
    let (mut client, listen) = subscribed(&mut server, "7", FILTER).await;
    client.event().await.unwrap();
    say(&listen, TOOLS, "{}").await;
    assert!(client.event().await.unwrap().contains(TOOLS));
    server.shutdown.cancel();
    let farewell = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":7}}}"#;
    assert_eq!(client.event().await.unwrap(), farewell);
    assert_eq!(client.event().await, None);
    soon(server.served).await.unwrap().unwrap();
}

#[tokio::test]
async fn malformed_subscription_is_refused() {
    let mut server = Server::with(FrontendSettings {
        max_subscriptions: 1,
        ..FrontendSettings::default()
    })
    .await;
    let mut client = server.connect().await;
    let headers = modern_headers("subscriptions/listen", None);
    let too_many = r#""notifications":{"resourceSubscriptions":["a:1","a:2"]}"#;
    for wrong in [
        "",
        r#""notifications":[]"#,
        r#""notifications":{"taskIds":"t"}"#,
        too_many,
    ] {
        let response = client.post(&headers, &subscribe("1", wrong)).await;
        assert_eq!((response.status, response.code()), (200, -32602), "{wrong}");
    }
    let refused = client
        .post(
            &headers,
            &subscribe(
                "1",
                r#""notifications":{"resourceSubscriptions":["refuse:"]}"#,
            ),
        )
        .await;
    assert_eq!(refused.code(), -31001);
    let tasks = r#""notifications":{"taskIds":["t"]}"#;
    let lacking = client.post(&headers, &subscribe("1", tasks)).await;
    assert_eq!((lacking.status, lacking.code()), (400, -32021));
    let required = json!({"extensions":{"io.modelcontextprotocol/tasks":{}}});
    assert_eq!(
        lacking.json()["error"]["data"]["requiredCapabilities"],
        required
    );
    let mut no_stream = headers.clone();
    no_stream.push(("Accept", "application/json"));
    assert_eq!(
        client
            .post(&no_stream, &subscribe("1", FILTER))
            .await
            .status,
        406
    );

    let able = subscribe("1", tasks).replace(
        r#"clientCapabilities":{}"#,
        &format!(r#"clientCapabilities":{required}"#),
    );
    client.send("POST", "/mcp", &headers, &able).await;
    let listen = server.log.listens().await;
    assert_eq!(
        (&listen.interest.tasks, listen.context.tasks),
        (&["t".into()].into(), Some(TaskDialect::Extension))
    );
    let mut other = server.connect().await;
    let refused = other
        .post(
            &headers,
            &subscribe("1", r#""notifications":{"toolsListChanged":true}"#),
        )
        .await;
    assert!(
        refused.code() == -32603 && refused.body.contains("1 subscriptions are open"),
        "{}",
        refused.body
    );
    drop(client);
    server.log.listens_no_more().await;
    // Sessions do not have this request.
    let id = other.open("2025-11-25").await;
    let legacy =
        r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{}}}"#;
    assert_eq!(
        other.post(&[("Mcp-Session-Id", &id)], legacy).await.code(),
        -32601
    );
}

#[tokio::test]
async fn silent_subscription_is_kept_alive() {
    let settings = FrontendSettings {
        keep_alive: Duration::from_millis(5),
        ..FrontendSettings::default()
    };
    let mut server = Server::with(settings).await;
    let (mut client, listen) = subscribed(&mut server, "1", FILTER).await;
    client.event().await.unwrap();
    assert!(client.block().await.unwrap().comment && client.block().await.unwrap().comment);
    say(&listen, TOOLS, "{}").await;
    assert!(client.event().await.unwrap().contains(TOOLS));
}

#[tokio::test]
async fn slow_subscriber_delays_no_other() {
    let settings = FrontendSettings {
        notification_buffer: 2,
        ..FrontendSettings::default()
    };
    let mut server = Server::with(settings).await;
    let (_client, listen) = subscribed(&mut server, "1", FILTER).await;
    let params = format!(r#"{{"uri":"a:b","x":"{}"}}"#, "x".repeat(256 << 10));
    // The client does not read, so messages fit only until the sockets are full.
    let (mut sent, mut refused) = (0, 0);
    while refused < 1000 {
        let update = ServerMessage::Notification(notification(UPDATED, &params));
        match listen.messages.try_send(update) {
            true => (sent, refused) = (sent + 1, 0),
            false => refused += 1,
        }
        tokio::task::yield_now().await;
    }
    assert!((2..200).contains(&sent), "{sent}");
}

#[tokio::test]
async fn subscriptions_on_stdio_are_concurrent_and_cancellable() {
    let mut stdio = Stdio::with(FrontendSettings {
        max_concurrent: 1,
        ..FrontendSettings::default()
    });
    let subscription = |message: &Value| {
        message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone()
    };
    stdio.send(&subscribe("1", FILTER)).await;
    let first = stdio.log.listens().await;
    assert_eq!(subscription(&stdio.message().await), json!(1));
    stdio
        .send(&subscribe(
            r#""b""#,
            r#""notifications":{"toolsListChanged":true}"#,
        ))
        .await;
    let second = stdio.log.listens().await;
    assert_eq!(subscription(&stdio.message().await), json!("b"));
    say(&second, TOOLS, "{}").await;
    assert_eq!(subscription(&stdio.message().await), json!("b"));
    say(&first, TOOLS, "{}").await;
    assert_eq!(subscription(&stdio.message().await), json!(1));
    stdio
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    stdio.log.listens_no_more().await;
    // The end of the input ends the other subscription with a response.
    let rest = stdio.end().await;
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert!(
        rest[0].starts_with(r#"{"jsonrpc":"2.0","id":"b","result":{"resultType":"complete","#),
        "{rest:?}"
    );
}
