//! Several listeners and servers: shared subscriptions, and failures that affect only one of them.

use super::*;
use crate::harness::Gateway;
use crate::raw_client::LegacySession;
use crate::scripted::{Fault, Reply, config};

/// An id that is a string and differs from the number 1.
const OTHER: &str = r#""1""#;

const SERVERS: [(Era, Transport); 4] = [
    (Era::Modern, Transport::Http),
    (Era::Modern, Transport::Stdio),
    (Era::Legacy, Transport::Http),
    (Era::Legacy, Transport::Stdio),
];

/// The subscription `id` of a client without a session, acknowledged.
async fn subscription(gateway: &Gateway, id: &str, uris: &[String]) -> Response {
    let mut stream = listen(gateway.mcp, id, &filter(uris)).await;
    let acknowledged = next_message(&mut stream, id).await;
    assert_eq!(
        member(&acknowledged, "params.notifications"),
        Some(filter(uris).as_str()),
        "{acknowledged}"
    );
    stream
}

async fn next_message(stream: &mut Response, id: &str) -> String {
    let message = stream
        .event()
        .await
        .expect("a whole stream")
        .expect("a message before the end");
    assert_eq!(
        member_at(&message, &["params", "_meta", SUBSCRIPTION_ID]),
        Some(id),
        "{message}"
    );
    message
}

fn number(message: &str) -> Option<&str> {
    member(message, "params.n")
}

#[tokio::test]
async fn clients_share_one_subscription_until_the_last_leaves() {
    for server in SERVERS {
        let announcer = Announcer::start(server, "alpha").await;
        let gateway = Gateway::start(&config(&[announcer.entry()])).await;
        let uris = [announcer.uri()];
        let mut one = subscription(&gateway, "1", &uris).await;
        let mut other = subscription(&gateway, OTHER, &uris).await;
        let method = if server.0 == Era::Legacy {
            "resources/subscribe"
        } else {
            LISTEN
        };
        assert_eq!(announcer.backend.received(method).len(), 1, "{server:?}");
        announcer.announce_update("1").await;
        assert_eq!(number(&next_message(&mut one, "1").await), Some("1"));
        assert_eq!(number(&next_message(&mut other, OTHER).await), Some("1"));
        drop(one);
        announcer.announce_update("2").await;
        assert_eq!(number(&next_message(&mut other, OTHER).await), Some("2"));
        assert_eq!(announcer.backend.received("resources/unsubscribe").len(), 0);
        drop(other);
        match server {
            (Era::Legacy, _) => drop(announcer.backend.wait_for("resources/unsubscribe", 1).await),
            (Era::Modern, Transport::Stdio) => drop(
                announcer
                    .backend
                    .wait_for("notifications/cancelled", 1)
                    .await,
            ),
            (Era::Modern, Transport::Http) => {}
        }
        if server.1 == Transport::Http {
            announcer.backend.stream(0).await.closed().await;
        }
    }
}

/// One of three servers exits: only listeners that need it are affected, and the gateway listens to
/// it again after a restart.
#[tokio::test]
async fn listening_resumes_after_a_server_restart_without_effect_on_others() {
    let dying = Announcer::start((Era::Legacy, Transport::Stdio), "alpha").await;
    let others = [
        Announcer::start((Era::Modern, Transport::Http), "beta").await,
        Announcer::start((Era::Legacy, Transport::Http), "gamma").await,
    ];
    let entries = [dying.entry(), others[0].entry(), others[1].entry()];
    let gateway = Gateway::start(&config(&entries)).await;
    let uris = [dying.uri(), others[0].uri(), others[1].uri()];
    let mut stream = subscription(&gateway, "7", &uris).await;
    // The server exits while its list is read again, which happens on the connection of the
    // subscription.
    dying
        .backend
        .once("tools/list", Reply::fault(Fault::Die(1)));
    dying.announce_tools_changed().await;
    for (announcer, sent) in others.iter().zip(["1", "2"]) {
        announcer.announce_update(sent).await;
        loop {
            // The gateway may announce changes that were possibly missed in between.
            let message = next_message(&mut stream, "7").await;
            if number(&message) == Some(sent) {
                break;
            }
            assert!(
                message.contains(&dying.uri()) || message.contains(TOOLS_CHANGED),
                "{message}"
            );
        }
    }
    // The gateway has subscribed again and announces changes that were possibly missed.
    dying.backend.wait_for("resources/subscribe", 2).await;
    dying.announce_update("3").await;
    loop {
        let message = next_message(&mut stream, "7").await;
        if number(&message) == Some("3") {
            break;
        }
        assert!(
            message.contains(&dying.uri()) || message.contains(TOOLS_CHANGED),
            "{message}"
        );
    }
}

/// 2026-07-28 HTTP: the stream breaks, the server stays up.
#[tokio::test]
async fn broken_subscription_is_renewed_and_missed_changes_are_announced() {
    let announcer = Announcer::start((Era::Modern, Transport::Http), "alpha").await;
    let gateway = Gateway::start(&config(&[announcer.entry()])).await;
    let mut stream = subscription(&gateway, "7", &[announcer.uri()]).await;
    announcer.backend.stream(0).await.cut().await;
    let again = announcer.backend.stream(1).await;
    assert_eq!(again.filter(), announcer.backend.stream(0).await.filter());
    let missed = [
        next_message(&mut stream, "7").await,
        next_message(&mut stream, "7").await,
    ];
    assert!(missed[0].contains(TOOLS_CHANGED), "{missed:?}");
    assert!(
        missed[1].contains(UPDATED) && missed[1].contains(&announcer.uri()),
        "{missed:?}"
    );
    announcer.announce_update("1").await;
    assert_eq!(number(&next_message(&mut stream, "7").await), Some("1"));
}

/// A modern server has no sessions, so the legacy client's subscriptions move to the endpoint that
/// serves it.
#[tokio::test]
async fn subscription_of_a_legacy_client_goes_on_at_another_endpoint_of_a_modern_server() {
    let server = (Era::Modern, Transport::Http);
    let [one, two] = [
        Announcer::start(server, "alpha").await,
        Announcer::start(server, "alpha").await,
    ];
    let (uri, urls) = (one.uri(), [one.backend.url(), two.backend.url()]);
    let config = format!(r#"{{"mcpServers":{{"alpha":{{"urls":{urls:?}}}}}}}"#);
    let client = (Era::Legacy, Transport::Http);
    let mut listener = ListeningClient::open(&config, client, std::slice::from_ref(&uri)).await;
    let is_subscribed = |endpoint: &Announcer| {
        endpoint
            .backend
            .received(LISTEN)
            .iter()
            .any(|listen| listen.text.contains(&uri))
    };
    let (home, other) = if is_subscribed(&one) {
        (one, two)
    } else {
        (two, one)
    };
    assert!(is_subscribed(&home) && !is_subscribed(&other));
    home.announce_update("1").await;
    listener.expect_update(&uri, "1").await;
    drop(home);
    // The gateway announces the resource, which may have changed while nobody listened.
    loop {
        let message = listener.next_message().await;
        if message.contains(UPDATED) {
            assert!(
                message.contains(&uri) && number(&message).is_none(),
                "{message}"
            );
            break;
        }
        assert!(message.contains("list_changed"), "{message}");
    }
    assert!(is_subscribed(&other));
    other.announce_update("2").await;
    while number(&listener.next_message().await) != Some("2") {}
    unsubscribe(&mut listener, &uri).await;
    let subscriptions = other.backend.streams();
    let it = subscriptions
        .iter()
        .rev()
        .find(|stream| stream.filter().is_some_and(|filter| filter.contains(&uri)));
    it.expect("the subscription").closed().await;
}

/// 2025-11-25 transports, Session Management: 404 on the stream ends the session; the next session
/// gets the subscriptions.
#[tokio::test]
async fn lost_session_is_subscribed_again() {
    for client in [Era::Legacy, Era::Modern] {
        let announcer = Announcer::start((Era::Legacy, Transport::Http), "alpha").await;
        let uri = announcer.uri();
        let mut listener = ListeningClient::open(
            &config(&[announcer.entry()]),
            (client, Transport::Http),
            std::slice::from_ref(&uri),
        )
        .await;
        announcer.announce_update("1").await;
        listener.expect_update(&uri, "1").await;
        let session = |subscribed: &crate::scripted::Received| {
            subscribed.header("mcp-session-id").unwrap().to_owned()
        };
        let forgotten = session(&announcer.backend.received("resources/subscribe")[0]);
        announcer.backend.once(
            "HTTP GET",
            Reply::fault(Fault::Status(404, "text/plain", "no such session")),
        );
        announcer.backend.stream_of(&forgotten).await.cut().await;
        let subscribed = announcer.backend.wait_for("resources/subscribe", 2).await;
        assert_ne!(session(&subscribed[1]), forgotten);
        announcer.announce_update("2").await;
        loop {
            let message = listener.next_message().await;
            if number(&message) == Some("2") {
                break;
            }
            assert!(
                message.contains("list_changed") || message.contains(&uri),
                "{message}"
            );
        }
    }
}

/// Only the listener that does not read loses messages.
#[tokio::test]
async fn slow_reader_loses_only_its_own_messages() {
    const MESSAGES: usize = 400;
    const AGAIN: &str = "\"again\"";
    let announcer = Announcer::start((Era::Modern, Transport::Http), "alpha").await;
    let limits = r#""x-limits":"notifications=8,replayBytes=65536""#;
    let gateway = Gateway::start(&format!(
        r#"{{"mcpServers":{{{}}},{limits}}}"#,
        announcer.entry()
    ))
    .await;
    let uris = [announcer.uri()];
    let session = LegacySession::open(gateway.mcp).await;
    let mut slow_session = session.stream(None).await;
    let subscribe = legacy_request(
        "1",
        "resources/subscribe",
        &format!(r#""uri":"{}""#, uris[0]),
    );
    session.post(&subscribe).await.messages().await;
    let mut slow = subscription(&gateway, "1", &uris).await;
    let mut fast = subscription(&gateway, "2", &uris).await;
    let padding = "x".repeat(128 << 10);
    let mut sent = 0;
    while !gateway
        .log
        .text()
        .contains("a listening client does not keep up")
    {
        announcer
            .announce_update(&format!(r#"[{sent},"{padding}"]"#))
            .await;
        let message = next_message(&mut fast, "2").await;
        assert_eq!(
            member(number(&message).unwrap(), "0"),
            Some(sent.to_string().as_str()),
            "nothing is lost"
        );
        sent += 1;
        assert!(
            sent < MESSAGES,
            "messages are lost once all buffers are full"
        );
    }
    // The remaining messages are in order, and new ones arrive once it reads.
    let mut last = None;
    loop {
        announcer.announce_update(AGAIN).await;
        assert_eq!(number(&next_message(&mut fast, "2").await), Some(AGAIN));
        let message = next_message(&mut slow, "1").await;
        if number(&message) == Some(AGAIN) {
            break;
        }
        let index = number(&message)
            .and_then(|n| member(n, "0"))
            .unwrap()
            .parse::<usize>()
            .unwrap();
        assert!(last < Some(index), "{last:?} {index}");
        last = Some(index);
    }
    assert!(last < Some(sent - 1), "{last:?} of {sent}");
    drop(slow);
    assert!(slow_session.event().await.unwrap().is_some());
}
